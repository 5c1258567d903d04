//! Zips whose parts disagree, and zips of other makers.

use super::*;

fn zip(room: &Scratch) -> Vec<u8> {
    room.mkdir("from");
    room.write("from/name", "content of the file, content of the file");
    room.link("name", "from/link");
    give_out(room, "from", ArchiveFormat::Zip).unwrap().1
}

fn find(archive: &[u8], what: &[u8]) -> usize {
    archive.windows(what.len()).position(|window| window == what).unwrap()
}

#[test]
fn a_zip_whose_parts_disagree_is_refused() {
    let room = Scratch::new();
    let whole = zip(&room);
    let local = find(&whole, b"PK\x03\x04\x2d\0\x08\x08");
    let entry = find(&whole, b"PK\x01\x02\x2d\x03\x2d\0\x08\x08");
    let end = find(&whole, b"PK\x05\x06");
    let content = local + 30 + 4 + 9;
    let changes: [(&str, usize, u8); 15] = [
        ("the name before the content", local + 30, b'm'),
        ("the name in the directory", entry + 46, b'm'),
        ("the method", local + 8, 0),
        ("an unknown method", entry + 10, 12),
        ("encryption", entry + 8, 9),
        ("the checksum", entry + 16, 0x55),
        ("the size", entry + 24, 3),
        ("the packed size", entry + 20, 3),
        ("the place of the content", entry + 42, 7),
        ("a device", entry + 41, 0o020),
        ("the content", content, 0xff),
        ("the number of entries", end + 10, 9),
        ("the length of the directory", end + 12, 1),
        ("the place of the directory", end + 16, 1),
        ("a part of several", end + 4, 1),
    ];
    for (what, at, value) in changes {
        let mut changed = whole.clone();
        assert_ne!(changed[at], value, "{what}");
        changed[at] = value;
        let problem = take_in(&room, "to", &changed, ArchiveCaps::default()).unwrap_err();
        assert_eq!(problem.code, ProblemCode::ArchiveRefused, "{what}: {problem}");
        assert!(!room.exists("to"), "{what}");
    }
    take_in(&room, "to", &whole, ArchiveCaps::default()).unwrap();
    assert_eq!(room.read("to/link"), b"content of the file, content of the file");
}

#[test]
fn names_and_links_of_a_zip_are_held_to_the_same_rules() {
    let room = Scratch::new();
    let whole = zip(&room);
    for (from, to, wanted) in [
        (&b"name"[..], &b"/abs"[..], "has an absolute name"),
        (b"name", b"../x", "has a .. in its name"),
        (b"name", b"na\0e", "has a NUL in its name"),
        (b"link", b"name", "is in the archive twice"),
    ] {
        let mut changed = whole.clone();
        let stored = find(&whole, b"PK\x03\x04\x2d\0\0\x08") + 30 + 4 + 9;
        for at in 0..whole.len() - from.len() {
            // Names only: the link's target is the same text.
            if whole[at..].starts_with(from) && at != stored {
                changed[at..at + to.len()].copy_from_slice(to);
            }
        }
        let problem = take_in(&room, "to", &changed, ArchiveCaps::default()).unwrap_err();
        assert!(problem.detail.contains(wanted), "{wanted}: {problem}");
        assert_eq!(problem.code, ProblemCode::ArchiveRefused);
        assert!(!room.exists("to"));
    }
    room.write("from/zeros", vec![0; 3 << 20]);
    let archive = give_out(&room, "from", ArchiveFormat::Zip).unwrap().1;
    let limit = |caps| take_in(&room, "to", &archive, caps).unwrap_err().limit.unwrap();
    assert_eq!(limit(ArchiveCaps { ratio: 10, ..Default::default() }), "archive_ratio");
    assert_eq!(limit(ArchiveCaps { entries: 2, ..Default::default() }), "archive_entries");
    assert_eq!(limit(ArchiveCaps { bytes: 1 << 20, ..Default::default() }), "archive_bytes");
    assert!(!room.exists("to"));
}

/// Without data descriptors, made on a system without modes, with a comment at its end, and times by the wall clock.
#[test]
fn a_plain_zip_of_another_maker_is_taken_in() {
    let content = b"hello";
    let crc = crc32fast::hash(content).to_le_bytes();
    let fixed = |name: &[u8], size: u8, crc: &[u8; 4]| {
        let mut fields = vec![20, 0, 0, 0, 0, 0];
        // 12:34:56 on 2020-02-29.
        fields.extend_from_slice(&(12u16 << 11 | 34 << 5 | 28).to_le_bytes());
        fields.extend_from_slice(&((2020u16 - 1980) << 9 | 2 << 5 | 29).to_le_bytes());
        fields.extend_from_slice(crc);
        fields.extend_from_slice(&[size, 0, 0, 0, size, 0, 0, 0, name.len() as u8, 0, 0, 0]);
        fields
    };
    let mut archive = Vec::new();
    let mut directory = Vec::new();
    for (name, body, crc) in [(&b"dir/"[..], &b""[..], &[0; 4]), (b"dir/file", content, &crc)] {
        let fields = fixed(name, body.len() as u8, crc);
        directory.extend_from_slice(b"PK\x01\x02\x14\0");
        directory.extend_from_slice(&fields);
        directory.extend_from_slice(&[0; 10]);
        directory.extend_from_slice(&(archive.len() as u32).to_le_bytes());
        directory.extend_from_slice(name);
        for part in [b"PK\x03\x04", &fields[..], name, body] {
            archive.extend_from_slice(part);
        }
    }
    let start = archive.len() as u8;
    archive.extend_from_slice(&directory);
    archive.extend_from_slice(&[
        b'P',
        b'K',
        5,
        6,
        0,
        0,
        0,
        0,
        2,
        0,
        2,
        0,
        directory.len() as u8,
        0,
        0,
        0,
        start,
        0,
        0,
        0,
        3,
        0,
    ]);
    archive.extend_from_slice(b"end");
    let room = Scratch::new();
    let imported = take_in(&room, "", &archive, ArchiveCaps::default()).unwrap();
    assert_eq!((imported.entry_count, imported.bytes_written), (2, 5));
    assert_eq!(room.read("dir/file"), content);
    let stat = std::fs::metadata(room.inside("dir/file")).unwrap();
    assert_eq!((stat.mode() & 0o777, stat.mtime()), (0o644, 1_582_979_696));
}
