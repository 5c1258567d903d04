//! Deleting what rooms have written: any depth, any mode, any names, and no link followed.
//!
//! A directory that is not empty is moved up to the top before it is looked into, so however deep the tree is,
//! two descriptors suffice.

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Deletes a directory with all that is in it. One that is not there is deleted already.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    remove_below(CWD, path)
}

/// The same of an entry of a directory, whatever it is.
pub(crate) fn remove_at(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    match remove_entry(dir, name, FileType::Unknown) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => remove_below(dir, name),
        Err(error) => Err(error.into()),
    }
}

/// Deletes all that is in a directory.
pub(crate) fn empty_dir(top: BorrowedFd<'_>) -> io::Result<()> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let mut aside = Aside {
        prefix: format!(".removing-{:016x}-", u64::from_ne_bytes(random)),
        moved: 0,
        waiting: Vec::new(),
    };
    empty(top, top, &mut aside)?;
    while let Some(name) = aside.waiting.pop() {
        let dir = open_dir(top, name.as_c_str())?;
        empty(dir.as_fd(), top, &mut aside)?;
        drop(dir);
        unlinkat(top, name.as_c_str(), AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

fn remove_below(at: BorrowedFd<'_>, name: impl rustix::path::Arg + Copy) -> io::Result<()> {
    let top = match open_dir(at, name) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    empty_dir(top.as_fd())?;
    match unlinkat(at, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Directories that were moved to the top, under names that nobody could have guessed.
struct Aside {
    prefix: String,
    moved: u64,
    waiting: Vec<CString>,
}

/// Entries that are taken away in one go, in the order of their inodes.
const TOGETHER: usize = 16 * 1024;

/// Empties `dir`; directories in it that are not empty are moved to `top`.
///
/// A large directory lists its entries in no order that the disk knows. In that of their inodes a block of these is written
/// once and not sixteen times: it takes half the time, and those who wait for the disk meanwhile wait for less.
fn empty(dir: BorrowedFd<'_>, top: BorrowedFd<'_>, aside: &mut Aside) -> io::Result<()> {
    loop {
        let mut entries = Vec::new();
        let mut found = false;
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." || name.to_bytes().starts_with(aside.prefix.as_bytes()) {
                continue;
            }
            found = true;
            entries.push((entry.ino(), entry.file_type(), name.to_owned()));
            if entries.len() == TOGETHER {
                remove_all(dir, &mut entries, top, aside)?;
            }
        }
        remove_all(dir, &mut entries, top, aside)?;
        // Entries may be passed over while others are taken away: only a look that finds none is the last.
        if !found {
            return Ok(());
        }
    }
}

fn remove_all(
    dir: BorrowedFd<'_>,
    entries: &mut Vec<(u64, FileType, CString)>,
    top: BorrowedFd<'_>,
    aside: &mut Aside,
) -> io::Result<()> {
    entries.sort_unstable_by_key(|(inode, ..)| *inode);
    for (_, kind, name) in entries.drain(..) {
        match remove_entry(dir, &name, kind) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                aside.moved += 1;
                let moved = CString::new(format!("{}{}", aside.prefix, aside.moved))?;
                renameat(dir, &name, top, moved.as_c_str())?;
                aside.waiting.push(moved);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn remove_entry(dir: BorrowedFd<'_>, name: &CStr, kind: FileType) -> Result<(), Errno> {
    if kind == FileType::Directory {
        return unlinkat(dir, name, AtFlags::REMOVEDIR);
    }
    match unlinkat(dir, name, AtFlags::empty()) {
        // The kind was not told, or has changed.
        Err(Errno::ISDIR) => unlinkat(dir, name, AtFlags::REMOVEDIR),
        other => other,
    }
}

/// Follows no link, and opens what its owner may not.
fn open_dir(at: BorrowedFd<'_>, name: impl rustix::path::Arg + Copy) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(at, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            // Ours, and closed to us: without privileges that is what a mode of 000 means.
            rustix::fs::chmodat(at, name, Mode::RWXU, AtFlags::empty())?;
            openat(at, name, flags, Mode::empty())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn whatever_is_there_goes_and_what_links_point_to_stays() {
        let base = std::env::temp_dir().join(format!("workroom-remove-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let (tree, precious) = (base.join("tree"), base.join("precious"));
        fs::create_dir_all(&precious).unwrap();
        fs::write(precious.join("file"), "keep").unwrap();
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        symlink(&precious, tree.join("a/link")).unwrap();
        symlink("/nowhere", tree.join("dangling")).unwrap();
        fs::write(tree.join("a/b/.removing-1"), "a name of ours").unwrap();
        fs::create_dir(tree.join(".removing-1")).unwrap();
        fs::write(tree.join(".removing-1/x"), "").unwrap();
        // Deeper than any path may be long.
        let mut at = open_dir(CWD, &tree).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "deep", Mode::RWXU).unwrap();
            at = open_dir(at.as_fd(), "deep").unwrap();
        }
        fs::set_permissions(tree.join("a/b"), fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "keep");
        remove_tree(&tree).unwrap();
        fs::remove_dir_all(&base).unwrap();
    }
}
