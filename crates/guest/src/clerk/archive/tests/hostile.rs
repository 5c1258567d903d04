//! Tars that were made to do harm, or were damaged: refused by name, with nothing left behind.

use super::*;

/// A member, header and all, of any name and type.
pub(super) fn member(name: &[u8], kind: u8, target: &[u8], content: &[u8]) -> Vec<u8> {
    with_size(name, kind, target, content.len() as u64, content)
}

fn with_size(name: &[u8], kind: u8, target: &[u8], size: u64, content: &[u8]) -> Vec<u8> {
    let mut header = ::tar::Header::new_ustar();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target);
    header.as_mut_bytes()[156] = kind;
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(1_000_000);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn pax(kind: u8, records: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (key, value) in records {
        let bare = key.len() + value.len() + 3;
        let length = (1..).find(|digits| (bare + digits).to_string().len() == *digits).unwrap() + bare;
        body.extend_from_slice(format!("{length} {key}={value}\n").as_bytes());
    }
    member(b"pax", kind, b"", &body)
}

fn tar(members: &[Vec<u8>]) -> Vec<u8> {
    let mut archive = members.concat();
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// Imported beside something that is there, and refused: the same is there afterwards.
fn refused(archive: &[u8], caps: ArchiveCaps) -> Problem {
    let room = Scratch::new();
    room.mkdir("to");
    room.write("to/kept", "kept");
    room.link("../../outside", "to/out");
    let problem = take_in(&room, "to", archive, caps).unwrap_err();
    let mut names: Vec<_> =
        std::fs::read_dir(room.inside("to")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["kept", "out"], "{problem}");
    assert_eq!(room.read("to/kept"), b"kept");
    assert!(room.outside_is_untouched(), "{problem}");
    problem
}

#[test]
fn members_that_do_harm_are_refused_by_name() {
    let file = |name: &[u8]| member(name, b'0', b"", b"x");
    let link = |name: &[u8], target: &[u8]| member(name, b'2', target, b"");
    let long = format!("{}x", "d/".repeat(3000));
    let cases: Vec<(Vec<Vec<u8>>, &str)> = vec![
        (vec![file(b"/etc/passwd")], "\"/etc/passwd\" has an absolute name"),
        (vec![file(b"../up")], "\"../up\" has a .. in its name"),
        (vec![file(b"a/../../up")], "has a .. in its name"),
        (vec![file(b"")], "has no name"),
        (vec![file(b"./")], "has no name"),
        (vec![file(b"a/")], "has a directory's name"),
        (vec![member(b"hard", b'1', b"kept", b"")], "\"hard\" is a hard link"),
        (vec![member(b"dev", b'3', b"", b"")], "is a device"),
        (vec![member(b"dev", b'4', b"", b"")], "is a device"),
        (vec![member(b"pipe", b'6', b"", b"")], "is a FIFO"),
        (vec![member(b"sparse", b'S', b"", b"")], "is a sparse file"),
        (vec![member(b"cont", b'7', b"", b"")], "is of an unknown type"),
        (vec![member(b"odd\n\xff", b'Z', b"", b"")], "\"odd\\x0a\\xff\" is of an unknown type"),
        (vec![member(b"dir", b'5', b"", b"content")], "is no file and has a content"),
        (vec![link(b"l", b"/etc")], "\"/etc\", which is absolute"),
        (vec![link(b"l", b"..")], "leads out of the destination"),
        (vec![link(b"a/l", b"../../x")], "leads out of the destination"),
        (vec![link(b"a/l", b"b/../../x")], "leads down and up again"),
        (vec![link(b"l", b"")], "is no path"),
        // Through a link of the archive itself, and through one that is at the destination.
        (vec![link(b"l", b"d"), file(b"l/x")], "\"l/x\" needs a directory"),
        (vec![file(b"f"), file(b"f/x")], "\"f/x\" needs a directory"),
        (vec![file(b"out/secret")], "\"out\" is a directory, and at the destination is a link"),
        (
            vec![member(b"kept", b'5', b"", b"")],
            "\"kept\" is a directory, and at the destination is something else",
        ),
        // The same name for different things.
        (vec![file(b"a"), member(b"a", b'5', b"", b"")], "\"a\" needs a directory"),
        (vec![member(b"a", b'5', b"", b""), file(b"a")], "\"a\" is in the archive twice"),
        (vec![file(b"a"), link(b"a", b"b")], "\"a\" is in the archive twice"),
        (vec![link(b"a", b"b"), file(b"a")], "\"a\" is in the archive twice"),
        // Long headers.
        (vec![pax(b'x', &[("path", "../up")]), file(b"fine")], "\"../up\" has a .."),
        (vec![pax(b'x', &[("path", "a\0b")]), file(b"fine")], "an extended header has"),
        (vec![pax(b'x', &[("path", &long)]), file(b"fine")], "longer than 4096"),
        (vec![pax(b'x', &[("path", &"x".repeat(300))]), file(b"fine")], "longer than 255"),
        (vec![pax(b'x', &[("size", "7")]), file(b"two")], "\"two\" has two sizes, 1 and 7"),
        (vec![pax(b'x', &[("size", "-1")]), file(b"two")], "an extended header has \"-1\""),
        (vec![pax(b'x', &[("linkpath", "/etc")]), link(b"l", b"fine")], "which is absolute"),
        (vec![pax(b'x', &[("GNU.sparse.major", "1")]), file(b"f")], "sparse"),
        (vec![pax(b'x', &[("a", "b")]), pax(b'x', &[("a", "b")]), file(b"f")], "two extended headers"),
        (vec![pax(b'g', &[("path", "x")]), file(b"f")], "a global header sets \"path\""),
        (vec![pax(b'x', &[("a", "b")])], "announces a member"),
        (vec![member(b"pax", b'x', b"", b"99 a=b\n"), file(b"f")], "not made as it should be"),
        (vec![member(b"././@LongLink", b'L', b"", b"/abs\0"), file(b"f")], "\"/abs\" has an absolute name"),
        (vec![member(b"././@LongLink", b'K', b"", b"/abs\0"), link(b"l", b"f")], "which is absolute"),
        (vec![with_size(b"././@LongLink", b'L', b"", 5 << 20, b"")], "larger than 1 MiB"),
    ];
    for (members, wanted) in cases {
        // What comes before it is fine, and goes too.
        let mut all = vec![member(b"before", b'0', b"", b"fine"), member(b"way/down/", b'5', b"", b"")];
        all.extend(members);
        let problem = refused(&tar(&all), ArchiveCaps::default());
        assert_eq!(problem.code, ProblemCode::ArchiveRefused, "{wanted}: {problem}");
        assert!(problem.detail.contains(wanted), "wanted {wanted}: {problem}");
    }
}

#[test]
fn what_is_damaged_is_refused() {
    let whole = tar(&[member(b"a", b'0', b"", &[1; 2000]), member(b"b", b'0', b"", b"x")]);
    for end in (0..whole.len() - 1024).step_by(256) {
        assert_eq!(refused(&whole[..end], ArchiveCaps::default()).code, ProblemCode::ArchiveRefused, "{end}");
    }
    let mut wrong = whole.clone();
    wrong[3000 / 512 * 512 + 3] ^= 1;
    for (archive, wanted) in [
        (&b""[..], "it is empty"),
        (b"just some text", "neither a tar"),
        (&[b"\x1f\x8b\x08", &[0; 40][..]].concat(), "the archive is not taken in"),
        (&wrong, "checksum is wrong"),
        (&[&whole[..], b"more"].concat(), "something follows its end"),
    ] {
        let problem = refused(archive, ArchiveCaps::default());
        assert!(problem.detail.contains(wanted), "{wanted}: {problem}");
    }
    // One empty block at the end, and a plain file that packs as a tar does not.
    let room = Scratch::new();
    take_in(&room, "", &whole[..whole.len() - 512], ArchiveCaps::default()).unwrap();
    assert_eq!(room.read("b"), b"x");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&[b'x'; 5000]).unwrap();
    assert!(refused(&packed.finish().unwrap(), ArchiveCaps::default()).detail.contains("it is no tar"));
}

#[test]
fn every_packing_is_refused_when_it_is_cut_off() {
    let room = Scratch::new();
    room.mkdir("from");
    room.write("from/file", (0..40_000u32).flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>());
    for format in FORMATS {
        let (_, archive) = give_out(&room, "from", format).unwrap();
        let step = archive.len() / 40 + 1;
        // The two empty blocks at a tar's end can be one.
        let spare = if format == ArchiveFormat::Tar { 1024 } else { 1 };
        for end in (0..archive.len() - spare).step_by(step).chain([archive.len() - spare]) {
            let problem = refused(&archive[..end], ArchiveCaps::default());
            assert_eq!(problem.code, ProblemCode::ArchiveRefused, "{format:?} at {end}: {problem}");
        }
    }
}

#[test]
fn caps_are_named() {
    let few = ArchiveCaps { bytes: 1000, entries: 3, depth: 4, ratio: 100 };
    let file = |name: &[u8], size: usize| member(name, b'0', b"", &vec![b'x'; size]);
    let limit = |archive: &[u8], caps: ArchiveCaps| {
        let problem = refused(archive, caps);
        assert_eq!(problem.code, ProblemCode::LimitExceeded, "{problem}");
        problem.limit.unwrap()
    };
    assert_eq!(limit(&tar(&[file(b"a", 600), file(b"b", 401)]), few), "archive_bytes");
    assert_eq!(limit(&tar(&[with_size(b"a", b'0', b"", 1 << 50, b"")]), few), "archive_bytes");
    assert_eq!(
        limit(&tar(&[file(b"a", 1), file(b"b", 1), file(b"c", 1), file(b"d", 1)]), few),
        "archive_entries"
    );
    assert_eq!(limit(&tar(&vec![pax(b'g', &[("a", "b")]); 10]), few), "archive_entries");
    assert_eq!(limit(&tar(&[file(b"a/b/c/d/e", 1)]), few), "archive_depth");
    let zeros = tar(&[member(b"zeros", b'0', b"", &vec![0; 4 << 20])]);
    let bomb = |bytes: &[u8]| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    };
    let tight = ArchiveCaps { ratio: 100, ..ArchiveCaps::default() };
    assert_eq!(limit(&bomb(&zeros), tight), "archive_ratio");
    assert_eq!(limit(&zstd::encode_all(&zeros[..], 3).unwrap(), tight), "archive_ratio");
    // A little of it is always allowed.
    let room = Scratch::new();
    let small = tar(&[member(b"zeros", b'0', b"", &vec![0; 900_000])]);
    take_in(&room, "", &bomb(&small), tight).unwrap();
    take_in(&room, "again", &tar(&[file(b"a", 600), file(b"b", 400), file(b"c/d/e/f", 0)]), few).unwrap();
}

#[test]
fn what_is_not_taken_over_is_counted() {
    let room = Scratch::new();
    let mut header = ::tar::Header::new_gnu();
    header.set_path("program").unwrap();
    header.set_size(0);
    header.set_mode(0o6755);
    header.set_uid(1234);
    header.set_gid(0);
    header.set_mtime(5);
    header.set_cksum();
    let archive = tar(&[
        pax(b'g', &[("comment", "of all")]),
        pax(b'x', &[("SCHILY.xattr.user.a", "1"), ("SCHILY.xattr.user.b", "2"), ("mtime", "1234567.5")]),
        header.as_bytes().to_vec(),
        member(b"plain", b'0', b"", b""),
    ]);
    let imported = take_in(&room, "", &archive, ArchiveCaps::default()).unwrap();
    let stripped = workroom_types::Stripped { special_modes: 1, ownership: 1, xattrs: 2 };
    assert_eq!((imported.entry_count, imported.stripped), (2, stripped));
    let stat = std::fs::metadata(room.inside("program")).unwrap();
    assert_eq!((stat.mode() & 0o7777, stat.mtime(), stat.mtime_nsec()), (0o755, 1_234_567, 500_000_000));
    assert_eq!(std::fs::metadata(room.inside("plain")).unwrap().mtime(), 1_000_000);
}

#[test]
fn the_last_of_several_files_of_one_name_stays_and_directories_stay_writable() {
    let room = Scratch::new();
    let mut shut = ::tar::Header::new_ustar();
    shut.set_path("shut/").unwrap();
    shut.set_entry_type(::tar::EntryType::Directory);
    shut.set_size(0);
    shut.set_mode(0o050);
    shut.set_mtime(77);
    shut.set_uid(0);
    shut.set_gid(0);
    shut.set_cksum();
    let archive = tar(&[
        member(b"./", b'5', b"", b""),
        shut.as_bytes().to_vec(),
        member(b"shut/a", b'0', b"", b"first"),
        member(b"./shut//./a", b'0', b"", b"second"),
        member(b"shut/l", b'2', b"a", b""),
        member(b"shut/l", b'2', b"../shut/a", b""),
    ]);
    take_in(&room, "", &archive, ArchiveCaps::default()).unwrap();
    assert_eq!(room.read("shut/l"), b"second");
    let stat = std::fs::metadata(room.inside("shut")).unwrap();
    assert_eq!((stat.mode() & 0o777, stat.mtime()), (0o750, 77));
}
