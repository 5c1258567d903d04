//! The hostile program: exchanges directories with links that lead outside, as fast as it can, until it is told to stop.
//!
//! It is this test's own program, which is static and is put into the room as a file. It only ever works on names in the
//! arena without following links, so that whatever happens outside was not done by it.

use super::{ELSEWHERE, FILES, LINKS};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, ResolveFlags, openat, openat2, renameat_with};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;

/// How many exchanges of all pairs there are between two repairs of what file work took away.
const ROUNDS: u32 = 40;

/// Swaps these traps in the current directory until there is a file `stop` in it; says how many exchanges there were.
pub(crate) fn swap_until_told(traps: &[(&str, &str)]) -> u64 {
    let pairs: Vec<(String, String)> = traps
        .iter()
        .map(|(name, _)| (name.to_string(), format!("other-{name}")))
        .chain(ELSEWHERE.iter().map(|(one, other)| (one.to_string(), other.to_string())))
        .collect();
    let mut exchanges = 0;
    while fs::symlink_metadata("stop").is_err() {
        repair(traps);
        for _ in 0..ROUNDS {
            for (one, other) in &pairs {
                let swapped = renameat_with(CWD, one.as_str(), CWD, other.as_str(), RenameFlags::EXCHANGE);
                exchanges += u64::from(swapped.is_ok());
            }
        }
    }
    exchanges
}

/// Makes the arena what it should be: file work moves and deletes parts of it.
fn repair(traps: &[(&str, &str)]) {
    for (name, target) in LINKS {
        if fs::read_link(name).ok().as_deref() != Some(Path::new(target)) {
            remove(Path::new(name));
            let _ = symlink(target, name);
        }
    }
    for &(name, target) in traps {
        let other = format!("other-{name}");
        let is_dir = |name: &str| fs::symlink_metadata(name).is_ok_and(|meta| meta.is_dir());
        let is_link = |name: &str| fs::read_link(name).is_ok();
        let real = match (is_dir(name), is_dir(&other)) {
            (true, false) if is_link(&other) => name.to_owned(),
            (false, true) if is_link(name) => other,
            _ => {
                remove(Path::new(name));
                remove(Path::new(&other));
                let _ = fs::create_dir(name);
                let _ = symlink(target, &other);
                name.to_owned()
            }
        };
        fill(&real);
    }
    for (one, other) in ELSEWHERE {
        // No link is ever a part of these, unless file work puts one there: it does not.
        for name in [one, other] {
            if fs::symlink_metadata(name).is_err() {
                let _ = fs::create_dir_all(name);
            }
            fill(name);
        }
    }
}

/// Files in a directory that must be one and no link, also a moment later.
fn fill(name: &str) {
    let (flags, mode) = (OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::from_raw_mode(0o755));
    let Ok(top) = openat(CWD, name, flags | OFlags::NOFOLLOW, Mode::empty()) else { return };
    for (above, below) in [(".", "sub"), (".", "outside"), ("outside", "sub")] {
        // File work may have put a link in the place of any of these.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let Ok(above) = openat2(&top, above, flags, Mode::empty(), resolve) else { continue };
        let _ = rustix::fs::mkdirat(&above, below, mode);
        fill_one(&above);
        if let Ok(below) = openat2(&above, below, flags, Mode::empty(), resolve) {
            fill_one(&below);
        }
    }
}

fn fill_one(dir: &OwnedFd) {
    for name in FILES {
        // What file work has made of it is of use too, but not for ever.
        let seen = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        if seen.is_ok_and(|stat| stat.st_size > 10_000) {
            let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        }
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        if let Ok(file) = openat(dir, name, new, Mode::from_raw_mode(0o644)) {
            let _ = rustix::io::write(&file, b"inside\n");
        }
    }
}

fn remove(path: &Path) {
    // Neither follows a link.
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        let _ = fs::remove_dir_all(path);
    } else {
        let _ = fs::remove_file(path);
    }
}
