//! Archives that go out and come in again, and what they meet at the destination.
#![allow(clippy::disallowed_methods, reason = "nobody swaps paths in a test's own directory")]

mod hostile;
mod zips;

use super::super::scratch::{Scratch, path};
use super::{export, import};
use base64::Engine;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use workroom_types::{ArchiveCaps, ArchiveFormat, Imported, Problem, ProblemCode, UploadRules};

const FORMATS: [ArchiveFormat; 4] =
    [ArchiveFormat::Tar, ArchiveFormat::TarGz, ArchiveFormat::TarZst, ArchiveFormat::Zip];

/// A file that stands for a pipe: it is read to its end, or written from its beginning.
fn memory(content: &[u8]) -> File {
    let mut file = File::from(rustix::fs::memfd_create("pipe", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.write_all(content).unwrap();
    file.rewind().unwrap();
    file
}

fn take_in(room: &Scratch, at: &str, archive: &[u8], caps: ArchiveCaps) -> Result<Imported, Problem> {
    import(&room.base(), &path(at), caps, &UploadRules::default(), memory(archive).into())
}

fn give_out(room: &Scratch, at: &str, format: ArchiveFormat) -> Result<(u64, Vec<u8>), Problem> {
    let mut pipe = memory(b"");
    let writer: OwnedFd = pipe.try_clone().unwrap().into();
    let mut begun = false;
    let entries = export(&room.base(), &path(at), format, writer, || {
        begun = true;
        Ok(())
    })?;
    assert!(begun);
    let mut archive = Vec::new();
    pipe.rewind().unwrap();
    pipe.read_to_end(&mut archive).unwrap();
    Ok((entries, archive))
}

/// Every path below a directory, with kind, mode, time and content.
fn listing(top: &Path) -> Vec<(Vec<u8>, u32, i64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut ahead = vec![top.to_owned()];
    while let Some(dir) = ahead.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let at = entry.unwrap().path();
            let stat = std::fs::symlink_metadata(&at).unwrap();
            let content = if stat.is_dir() {
                ahead.push(at.clone());
                Vec::new()
            } else if stat.is_symlink() {
                std::fs::read_link(&at).unwrap().as_os_str().as_bytes().to_vec()
            } else {
                std::fs::read(&at).unwrap()
            };
            let name = at.strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec();
            let mode = if stat.is_symlink() { 0 } else { stat.mode() };
            found.push((name, mode, stat.mtime(), content));
        }
    }
    found.sort();
    found
}

fn tree(room: &Scratch) {
    room.mkdir("from/sub/empty");
    room.write("from/a", "a\n");
    room.write("from/a.txt", "");
    room.mkdir(format!("from/{}", "long/".repeat(40)));
    room.write(format!("from/{}{}", "long/".repeat(40), "n".repeat(200)), "deep");
    room.write(Path::new("from").join(std::ffi::OsStr::from_bytes(b"not \xff text\n")), "x");
    let noise: Vec<u8> = (0..300_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    room.write("from/sub/noise", noise);
    room.write("from/sub/zeros", vec![0; 900_000]);
    room.link("../a", "from/sub/link");
    room.link(format!("{}x", "y/".repeat(80)), "from/dangling");
    let mode = |at: &str, mode| {
        std::fs::set_permissions(room.inside(at), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("from/a", 0o640);
    mode("from/sub/noise", 0o755);
    mode("from/sub/empty", 0o700);
    for at in ["from/a", "from/sub/noise", "from/sub/empty", "from/sub"] {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_001);
        File::open(room.inside(at)).unwrap().set_modified(time).unwrap();
    }
}

#[test]
fn what_goes_out_comes_in_the_same_and_always_in_the_same_order() {
    let room = Scratch::new();
    tree(&room);
    let before = listing(&room.inside("from"));
    for format in FORMATS {
        let (entries, archive) = give_out(&room, "from", format).unwrap();
        assert_eq!(entries as usize, before.len(), "{format:?}");
        assert_eq!(give_out(&room, "from", format).unwrap().1, archive, "{format:?}");
        let to = format!("to/{format:?}");
        let imported = take_in(&room, &to, &archive, ArchiveCaps::default()).unwrap();
        assert_eq!((imported.destination, imported.entry_count), (to.clone(), entries));
        assert_eq!(imported.stripped, workroom_types::Stripped::default());
        let after = listing(&room.inside(&to));
        for (was, is) in before.iter().zip(&after) {
            assert_eq!((&was.0, was.1, &was.3), (&is.0, is.1, &is.3), "{format:?}");
            // The time of a link is not kept by every format.
            assert!(was.2 == is.2 || was.1 == 0, "{format:?}: {}", was.0.escape_ascii());
        }
        assert_eq!(before.len(), after.len());
        // Again over what is there now.
        take_in(&room, &to, &archive, ArchiveCaps::default()).unwrap();
        assert_eq!(listing(&room.inside(&to)).len(), after.len());
    }
}

#[test]
fn members_are_sorted_and_a_file_goes_out_by_its_name() {
    let room = Scratch::new();
    tree(&room);
    let names = |archive: &[u8]| -> Vec<String> {
        let mut archive = ::tar::Archive::new(archive);
        let entries = archive.entries().unwrap();
        entries.map(|entry| String::from_utf8_lossy(&entry.unwrap().path_bytes()).into_owned()).collect()
    };
    let all = names(&give_out(&room, "from", ArchiveFormat::Tar).unwrap().1);
    assert_eq!(all[..3], ["a", "a.txt", "dangling"]);
    assert!(all.iter().any(|name| name == "sub/empty/"), "{all:?}");
    let (entries, one) = give_out(&room, "from/sub/link", ArchiveFormat::Tar).unwrap();
    assert_eq!((entries, names(&one)), (1, vec!["link".to_owned()]));
}

#[test]
fn bzip2_and_xz_are_unpacked() {
    let bytes = |text: &str| base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    for packed in [bytes(BZIP2), bytes(XZ)] {
        let room = Scratch::new();
        let imported = take_in(&room, "to", &packed, ArchiveCaps::default()).unwrap();
        assert_eq!(imported.entry_count, 3);
        let runs: Vec<u8> = (0..600usize).flat_map(|n| vec![(n % 7) as u8; n % 300]).collect();
        assert_eq!(room.read("to/d/runs"), runs);
        assert_eq!(room.read("to/d/l"), runs);
        assert_eq!(std::fs::metadata(room.inside("to/d")).unwrap().mtime(), 1_700_000_000);
        // Cut off or changed anywhere, it is refused and leaves nothing.
        for at in (0..packed.len()).step_by(13) {
            let mut changed = packed.clone();
            changed[at] ^= 0x10;
            for broken in [&packed[..at], &changed] {
                if let Err(problem) = take_in(&room, "bad", broken, ArchiveCaps::default()) {
                    assert_eq!(problem.code, ProblemCode::ArchiveRefused, "{at}: {problem}");
                    assert!(!room.exists("bad"), "{at}");
                } else {
                    // A bit that means nothing to anybody.
                    assert_eq!(room.read("bad/d/runs"), runs);
                    std::fs::remove_dir_all(room.inside("bad")).unwrap();
                }
            }
        }
    }
}

#[test]
fn what_is_there_is_replaced_only_by_its_like() {
    let room = Scratch::new();
    room.mkdir("from/dir/sub");
    room.write("from/dir/file", "new");
    room.write("from/dir/sub/deep", "new");
    room.write("from/other", "new");
    let archive = give_out(&room, "from", ArchiveFormat::Tar).unwrap().1;

    room.mkdir("to/dir/sub");
    room.mkdir("to/dir/kept");
    room.write("to/dir/file", "old");
    room.link("../outside/secret", "to/other");
    take_in(&room, "to", &archive, ArchiveCaps::default()).unwrap();
    assert_eq!(room.read("to/dir/file"), b"new");
    // The link was replaced, and not what it led to.
    assert!(!std::fs::symlink_metadata(room.inside("to/other")).unwrap().is_symlink());
    assert!(room.exists("to/dir/kept") && room.outside_is_untouched());

    type Obstacle = (&'static str, fn(&Scratch));
    let obstacles: [Obstacle; 5] = [
        ("a directory where a link is", |room| room.link("../../outside/deeper", "bad/dir/sub")),
        ("a directory where a file is", |room| room.write("bad/dir/sub", "file")),
        ("a file where a directory is", |room| room.mkdir("bad/other")),
        ("a file where a directory is, deeper", |room| room.mkdir("bad/dir/sub/deep")),
        ("a file where a FIFO is", |room| room.fifo("bad/other")),
    ];
    for (what, obstacle) in obstacles {
        let room = Scratch::new();
        room.mkdir("bad/dir");
        room.write("bad/dir/file", "old");
        obstacle(&room);
        let problem = take_in(&room, "bad", &archive, ArchiveCaps::default()).unwrap_err();
        assert_eq!(problem.code, ProblemCode::ArchiveRefused, "{what}: {problem}");
        assert_eq!(room.read("bad/dir/file"), b"old", "{what}");
        let names = std::fs::read_dir(room.inside("bad")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.into_iter().all(|name| name == "dir" || name == "other"), "{what}");
        assert!(room.outside_is_untouched());
    }
    room.write("file", "");
    assert_eq!(
        take_in(&room, "file", &archive, ArchiveCaps::default()).unwrap_err().code,
        ProblemCode::WrongKind
    );
    room.link("../outside", "out");
    let out = take_in(&room, "out/x", &archive, ArchiveCaps::default()).unwrap_err();
    assert_eq!(out.code, ProblemCode::PathOutsideWorkspace);
}

#[test]
fn what_cannot_be_in_an_archive_refuses_the_export_before_its_first_byte() {
    let room = Scratch::new();
    tree(&room);
    room.fifo("from/sub/fifo");
    let mut pipe = memory(b"");
    let writer: OwnedFd = pipe.try_clone().unwrap().into();
    let problem =
        export(&room.base(), &path("from"), ArchiveFormat::Zip, writer, || panic!("begun")).unwrap_err();
    assert_eq!(problem.code, ProblemCode::WrongKind);
    assert!(problem.detail.contains("from/sub/fifo"), "{problem}");
    assert_eq!(pipe.seek(std::io::SeekFrom::End(0)).unwrap(), 0);
    let missing = give_out(&room, "missing", ArchiveFormat::Tar).unwrap_err();
    assert_eq!(missing.code, ProblemCode::NotFound);
}

#[test]
fn a_file_that_changes_its_size_leaves_the_archive_readable() {
    for (format, grows) in [(ArchiveFormat::Tar, true), (ArchiveFormat::Zip, false)] {
        let room = Scratch::new();
        room.mkdir("from");
        room.write("from/changes", vec![7; 3 << 20]);
        room.write("from/then", "after");
        // A pipe is full long before the file is read: the export waits there while the file changes.
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let file = room.inside("from/changes");
        let reading = std::thread::spawn(move || {
            let mut archive = vec![0; 512];
            let mut reader = File::from(reader);
            reader.read_exact(&mut archive[..1]).unwrap();
            let changing = File::options().write(true).open(file).unwrap();
            changing.set_len(if grows { 9 << 20 } else { 5 }).unwrap();
            archive.truncate(1);
            reader.read_to_end(&mut archive).unwrap();
            archive
        });
        let noise = room.inside("from/changes");
        if format == ArchiveFormat::Zip {
            // Nothing that packs to less than the pipe holds would wait.
            let noise_content: Vec<u8> = (0..786_432u32)
                .flat_map(|n| {
                    n.wrapping_mul(2_654_435_761).rotate_left(n % 31).wrapping_mul(n | 1).to_le_bytes()
                })
                .collect();
            std::fs::write(noise, noise_content).unwrap();
        }
        let outcome = export(&room.base(), &path("from"), format, writer, || Ok(()));
        let problem = outcome.unwrap_err();
        assert_eq!(problem.code, ProblemCode::Busy, "{problem}");
        assert!(problem.detail.contains("\"from/changes\" changed its size"), "{problem}");
        let archive = reading.join().unwrap();
        take_in(&room, "to", &archive, ArchiveCaps::default()).unwrap();
        assert_eq!(room.read("to/changes").len(), 3 << 20);
        assert_eq!(room.read("to/then"), b"after");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_export_quietly() {
    let room = Scratch::new();
    tree(&room);
    for format in FORMATS {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        export(&room.base(), &path("from"), format, writer, || Ok(())).unwrap();
    }
}

/// Made by another program, of `d/`, `d/runs` and the link `d/l`; in two streams.
const BZIP2: &str = "\
     QlpoMTFBWSZTWTgFS4wABDJ////////////////////////////////////////////4QALuiijNAFamkp/qoZAyAAAANAekZ+Ko\
     9qm1NDQDQAGmjIP1Q/VAaBoBoABo0aNGjQND9NUGRoaDRo0DRoyaZGjJpkb1CaYnqYnqZNCKelG/1UTUnlGgAAAAAAAAAAAAAAAA\
     AaAA0AAAAAAAAAAAAAAAAAAAgAAAAAAAAADQAAAAAAAAAGgAAAAAAAAAAAAAAAAAAAAABpEiQGagaAyMgBk00Gmj3pUME0ADQaAy\
     NAfqgaBgjCYCZDQNDQyaZGJkaGIaNGRoaMQ9QGgaAADEwJkFSgiwRbm8bg4jsVjHabUO4XFyu7FzMd2ZvGGxjzksm/ZnAPaTPOqP\
     z/tN1wYPldBaZ6XW7a6k9Xx/FVbRYIDZisdk0yAIAZYwTxJwCzWbOQugVjAXY4WCZsCCREgIAATo7Eb0UncaTwNLEjSeRpZBLKON\
     eZPTJ8ZZ9koy09/1evgGe/goSGh1onuRkdHyMrLzc9RUtQxvue0CmldQAAAiAAAA2QE6pjAQhHQEAgE7sUyERPoRnUGfSDPphnwZ\
     3s+qO/n2J4A+4PvD8Dh8aF5vRWiO1OdXs0S7x+f1/D601V+/61bbb7iK3KvDAAAGMCAAwpiIES3SpgYg4mDEZCImUGZQZlBmUGaB\
     M4FgiwZYQsKWGLziw/T6kRFRfgjfL6ZCSlJaYmpyfoWtM9XxZZZZapI6iEAAAn0yB0BCRRvaJk0TJjMmMyYzJjN1TQJuuaJ754o/\
     bPFn7x4yNjvPHyEjJystLzM3OT1BRNaVtUMWjRo0aOToAgIiMYgRFo0GTMAmkrSQokhQ6FDoUOhQ6KNEujuI7q3vLVy3vlkkpOU+\
     Et85iZmvtOTs/QUNG1pKZtT/5zVVVVVql+AQADkgACAAfBCNgRiEwQEIzBEqYypjKmMqYyplXKuVcq5VyrlXKvOz0/+KD80NFR/p\
     r+6Slpv42/tPUf6pcxKqqquggABALbvpjnQbiHGMhECEQIQgyEQBQGMBQUBgKCgMYCgoDAUFAYwFBiMAYNqCgMYCg2wRtH6PxVEP\
     8rjKJAaIJWQ68PmDgAQXuVADahUJaxMCpWDNSSxeogstCprOwCy2cWPSEJDvDzqQR9DuvOPoq4kBtuAjcJIUJVbSGR5BBAVRBBAV\
     UBVEEEEEBVEEEEEBVEEEHyiAqv2hBiKcRFcccicq7AgOuuugadxxxyJTYal51HvCkN6takGDBgvQHQAAAAAAAAAAAAAAAAAAAAAA\
     AAAAAAAAAAAAAAAABRQB+DEaYjTEaEaEaVRpoRr/i7kinChIHAKlxgBCWmg5MUFZJlNZPwCtJgABefv////////A/4AABif/////\
     ///////////////////4MAGRGARJIAAADQAAAAAAAAAAAAAAAaAAANA0A0AaPUZNA0ZNNDTE00BCkjIAAAAAAAAyDQAABoADQA0A\
     DQNAANADQAANAA0AAABoVJNJ//6qohNA9QAAAAAAAAAAAAAAAAAAAAAAAAAAAAAGaIUQiMCXKkEoiPlTNEj1FecuzuRnap/i6O/2\
     /VddZGtyUixckIAIPqOAgICBBEnBMYIqUQTABEAKAMUYlJqfNVRs5dYGKe0NY/woOzy+P4q9P8LFyBMREAFbAZ6jpqs3aXF6dxj2\
     fqbO7xIOvw9foxJS5mgNISgCIAJYCFwBJYeNlZ2lqlNwrx845juNHDx9Ekl7i8JYeORTRAIAAYYBAADCZhhE9bY2t0rxcpYcuZ7z\
     Rs77H0KP8z9EnrFNtjTQAQAxDCEIAAYQFOYt0D9Zgz3eBrzOHT3ufQIkaT9LdA6+XIphEYAEACHEQIDCA2c1PQ76nvb3+D/ygQ/z\
     +/6en5dBQ06n/b7/j8zMIRQhFpe5wdPcqzOSAAIBGJgRwrEn9xooSO/MQhCgjwhLjz0efvVEkJc1LmZJHjw8VK1MqZlSpUqRLkSJ\
     HJkyZNDNUflzcmbn5yz0M7OztFm5qSAAAACYCZAAAAAAAAAAAAAAAI0IoQijQiQiQijRkUSESEX/F3JFOFCQPwCtJg==";

const XZ: &str = "\
     /Td6WFoAAATm1rRGAgAhARYAAAB0L+Wj4Y//BbldADILvBunjDRE4cIHdekACY2x8R77HKpsCmuNZZSIUaeQ5MT9tp+H5fMdEeCm\
     fvxa7ZTPTOLeIlw0Eax81zgH9Ywuuw8JyE/zuT9XmOmrLScyGIowQvOPISvTwtM6Xdcve3GYIdEr9G+Gmg6Y0Vkg7KA8U+NZmCtP\
     U1CH1Fs8k0Be7n6BQIF3pY4hWUlU/UqS5Echnt05n/57SrlxxNIpMkxQYHEIoxXlJD044OW9wiE92nvdIz3oWG3gBnzU4lRPyJE+\
     G6cvq64zEFmvtAh8r5sbur3FStgzFcNOAf3Ws0n96jS8BOsX9P+ez7dtIZoSLWYsjEc0UEmaamAuKLrph02l53CvP6hWIsW8L7Vn\
     hyXNLryEXA3gO4xsYz+O6FHelU1Dn7yWsbaUq5S0QjEd1CCR2U4jq74zS1xHis9pcVfokIDfR9gCkzcl8YKV100RWh1bTlbwa2Xd\
     q5mMdYwO6ul1huPQjNFrKUuGtX7NXq/sVa4LbvmP8Zjqosuu/vTaijPmVI3Jumigrj1nI2aiMZ4JGET0S5hnoYsHhN9IZoygxvWQ\
     hMEwKQ3SoQdvaldHtCYdcmEkrmOlEzybhmiuAaQs7R38nfoFiMDyipqIj1XEHoOMfNwoQGRR4tRTQEnpNushxAx1TnwwykIUo/GB\
     0SZiMg6eyIu3kbAFUJ0MYpN3CYaOofNJVw1yO2585jmNO3WYloVTuEUt2e6olMrPYYYvg2KEz6CgUnhPpm+ihkenqgdEZIgU9frv\
     tnqeWrSXsdxoHUNUXIdiRaek1J+wQLMFrNW3oybQa8JDNbuyDn9vcSKpTPPboSHA3vyxz5buIcFt5naMDVIXRal9JevLwAjlAOA+\
     tf1DCoApc0DoFA1KeJnpJKqKifGlmhrYbWs+f33kiT1i60FBLzeIO/CQg70Y4tvkbbjD+OnVzrTkgugI7obTaKaDcA7KieAWUG8X\
     c43UHA37GvcpvFXw4twRpsS4huOxpGTFq+CE1xBj4muQpnYJnrCxdE3crbbTQAbtbADHJQsz89Odt16nrJNJmpJm5Cs4xFWAB+pl\
     isvXo2KeFqzZvMKj9EsHCxphNslMmpEbH0Z5EtarvMSrkBP1/tCzEHkvxi3DZs3irDmHyRF1l6ONUsdC7jsPv2/dQ11ndiyt7UUn\
     bC2+2KPYgRHsCuokSoEK3JWKgHS6bcZzZ4e/idagJeKtpGggSl1f5QMTKQdDqB1NNYjP7+qucH0f9deEHHO/GuYxJzRtO8l5E1YH\
     qQ3iHSuRzJk2gTAdj7MFi6nGgPz4wdJUDxD4cU2WKK5voYIxDMZdwjj3l97Y740FAk7a4Fs0TbR7w43BujQwU0ndVuK5eN5EdzBj\
     pLSd4t+KWEJi2Uy14/upOePo5ft7GIZCkOMxX6W+b+aeMHM8ddq8dH3E7IHpuV+pRQiWlq0R0d0ZBIpBHWBL9qvFejplTUqSGvfN\
     43BLLrmYaFmIIsZpXJLXPQg1GXX6MXlAog0fOXNhKVryDE1T0nx1jD2NLoF+6JAAzqjTGTL6Bso91W+KBcgL/1l7CXXf0VPBz6b6\
     lUSkeccknQM+AAcjKVoAx/8G0SdM3hpM8ikP2lsva5XaWN/Vfyg1KhiC8wAgR9/3uwvaG/xFFjF9q2wo++/8+GfU6y0bDYYtErJl\
     jjLic+IshRtU3GMs6wzx5TmKV6VRE6N0ayVvlDDvf9/WYTHFcuhk8TEzjKGZmbQB7wzF45tG/1DYhSmfZtiq6U6v5bGsTgjFvPYC\
     3AM4najx1TFeTySErIGhLt0rjcVIL7QuMj4JHsD2+wtaILyLLwj3MWl7MKnzpWP5zZ7Le+zXqMPArtkKTr3EpAS1OvWT/dQQX1Q3\
     +ybFJXa3mtxu9XVEDE8mqWwuQGtTGKyWpkfvPD33tiEhITU9TlgviMibXqg8pWmmoWB/Dep+oSZ7ZRtESrEtEaW9tt6WLv4AAAAA\
     cLocpPRPxfoAAdULgKAGAI0kDZSxxGf7AgAAAAAEWVo=";
