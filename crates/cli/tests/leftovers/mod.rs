//! The program that leaves a mess: what makes deleting hard, as a process in a room can make it.

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, openat};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

/// How much of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mess {
    /// Entries of one directory.
    pub(crate) wide: u64,
    /// Directories in each other.
    pub(crate) deep: u64,
}

impl Mess {
    /// Regular files, with the one that is the room's root's; names of one file count for each.
    pub(crate) fn files(&self) -> u64 {
        self.wide + 1 + 3 + 5 + 1
    }
}

/// Makes `mess` in the current directory.
pub(crate) fn make_mess(mess: &Mess) {
    let at = |name: &str| format!("mess/{name}");
    fs::create_dir("mess").expect("a place for it");
    // The room's root has no rights over what others own, and adds to it.
    mode("mess", 0o777);

    fs::create_dir(at("wide")).expect("a directory");
    let wide = open(CWD, &at("wide"));
    for number in 0..mess.wide {
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(&wide, format!("f-{number}"), new, Mode::from_raw_mode(0o644)).expect("a file");
    }

    // Far deeper than any path can say. From its end to its beginning, each put into the next: Landlock looks at all that
    // is above whatever is made, and would make this the square of the depth.
    fs::create_dir_all(at("deep")).expect("a directory");
    fs::write(at("deep/end"), "").expect("a file");
    for _ in 1..mess.deep {
        fs::create_dir(at("next")).expect("a directory");
        fs::rename(at("deep"), at("next/deep")).expect("a directory in the next");
        fs::rename(at("next"), at("deep")).expect("the next in its place");
    }

    fs::create_dir(at("links")).expect("a directory");
    for (target, name) in
        [("/etc", "out"), (".", "loop"), ("../..", "up"), ("nowhere", "dangling"), ("/", "root")]
    {
        symlink(target, at(&format!("links/{name}"))).expect("a link");
    }

    fs::create_dir(at("odd")).expect("a directory");
    mknodat(CWD, at("odd/fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a FIFO");
    drop(UnixListener::bind(at("odd/socket")).expect("a socket"));
    // What an overlay hides things with, where the kernel lets anybody make one.
    let _ = mknodat(CWD, at("odd/whiteout"), FileType::CharacterDevice, Mode::empty(), 0);
    fs::write(at("odd/ \n\t\\x"), "a name").expect("a file");
    fs::write(at("odd/.wh.hidden"), "a name that means something elsewhere").expect("a file");
    fs::write(at("odd/one"), "one file").expect("a file");
    for number in 0..2 {
        fs::hard_link(at("odd/one"), at(&format!("odd/one-{number}"))).expect("another name");
    }

    fs::create_dir_all(at("closed/inner/most")).expect("directories");
    for file in ["closed/a", "closed/inner/b", "closed/inner/most/c"] {
        fs::write(at(file), "closed").expect("a file");
        mode(&at(file), 0o000);
    }
    for (dir, bits) in [("closed/inner/most", 0o000), ("closed/inner", 0o111), ("closed", 0o555)] {
        mode(&at(dir), bits);
    }
    fs::create_dir(at("sealed")).expect("a directory");
    mode(&at("sealed"), 0o000);
}

fn open(dir: impl std::os::fd::AsFd, name: &str) -> OwnedFd {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty()).expect("a directory")
}

fn mode(path: &str, bits: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(bits)).expect("permissions");
}
