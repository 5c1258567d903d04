//! Directories of the host that the operator grants: taken from where they were judged, and guarded.
//!
//! Nothing is looked up twice: the directory is opened once, compared with the one that was judged, and the mount is
//! made of the very thing that is open. In a writable one some names stay as they are, for what they make the host do:
//!
//! ```text
//!  D/.git/         a mount of itself, so that it cannot be moved away with what is protected in it
//!  D/.git/config   a read-only mount of itself
//!  D/.profile      not there: an empty file is made, marked, and mounted read-only upon itself;
//!                  it goes when nobody uses the directory any more, if it is still empty
//! ```

use crate::mounts::{Attributes, PLAIN, clone_tree, in_room, make_private, set_attributes};
use crate::template::Template;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use workroom_sys::place::{attach_on, clone_tree_of, entry, identity, is_mount_root, open_beneath};
use workroom_types::{Bind, ErrorCode, RoomError};

/// What an entry that was made to be mounted on is told by.
const MARK: &str = "user.workroom.placeholder";

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Takes detached copies of granted directories, in their order.
pub(crate) fn take(template: &Template, binds: &[Bind]) -> Result<Vec<OwnedFd>, RoomError> {
    if binds.is_empty() {
        return Ok(Vec::new());
    }
    template.on_the_machine(|| binds.iter().map(take_one).collect())?
}

fn take_one(bind: &Bind) -> Result<OwnedFd, RoomError> {
    let opened = open_judged(bind)?;
    let taken = || {
        if !bind.read_only {
            make_placeholders(opened.as_fd(), &bind.protect)?;
        }
        let tree = clone_tree_of(opened.as_fd())?;
        let extra = if bind.read_only { Attributes::READ_ONLY } else { Attributes::NONE };
        make_private(tree.as_fd(), PLAIN.and(extra))?;
        Ok(tree)
    };
    taken().map_err(|error| refused(bind, &error))
}

/// Opens the directory that was judged, and no other.
fn open_judged(bind: &Bind) -> Result<OwnedFd, RoomError> {
    let opened = open_beneath(&bind.anchor, &bind.beneath).map_err(|error| refused(bind, &error))?;
    match identity(opened.as_fd()) {
        Ok(found) if found == bind.judged => Ok(opened),
        Ok(_) => {
            Err(refused(bind, &io::Error::other("it is another directory than the one that was judged")))
        }
        Err(error) => Err(refused(bind, &error)),
    }
}

pub(crate) fn refused(bind: &Bind, error: &io::Error) -> RoomError {
    let place = bind.target.display();
    if error.raw_os_error() == Some(libc::EEXIST) {
        return RoomError::new(
            ErrorCode::InvalidArgument,
            format!("{place} in the room is not free for a directory of the host"),
            "remove what is there, or use another alias",
        );
    }
    RoomError::new(
        ErrorCode::PathNotFound,
        format!("the directory of the host for {place} cannot be mounted: {error}"),
        "ask for it again; if that does not help, the operator's policy file names where it should be",
    )
}

fn parts(path: &str) -> impl Iterator<Item = &OsStr> {
    path.split('/').filter(|part| !part.is_empty()).map(OsStr::new)
}

/// Makes what is protected and not there, so that it can be mounted on.
fn make_placeholders(dir: BorrowedFd<'_>, protect: &[String]) -> io::Result<()> {
    let owner = rustix::fs::fstat(dir)?;
    for path in protect {
        let mut at = dir.try_clone_to_owned()?;
        let count = parts(path).count();
        for (number, name) in parts(path).enumerate() {
            let is_last = number + 1 == count;
            match rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {
                    let as_directory = !is_last || path.ends_with('/');
                    make_placeholder(at.as_fd(), name, as_directory, &owner)?;
                    break;
                }
                Err(error) => return Err(error.into()),
                // Whatever it is, it is covered as a whole.
                Ok(stat) if !FileType::from_raw_mode(stat.st_mode).is_dir() => break,
                Ok(_) if is_last => break,
                Ok(_) => {
                    at = rustix::fs::openat(&at, name, DIRECTORY, Mode::empty())?;
                    if is_placeholder(at.as_fd()) {
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

fn is_placeholder(opened: BorrowedFd<'_>) -> bool {
    rustix::fs::fgetxattr(opened, MARK, &mut [0u8; 8]).is_ok()
}

fn make_placeholder(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    as_directory: bool,
    owner: &rustix::fs::Stat,
) -> io::Result<()> {
    let made = if as_directory {
        match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755)) {
            // Another room's, of this very moment.
            Err(Errno::EXIST) => return Ok(()),
            made => made?,
        }
        rustix::fs::openat(dir, name, DIRECTORY, Mode::empty())?
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o644)) {
            Err(Errno::EXIST) => return Ok(()),
            made => made?,
        }
    };
    // Where files have no marks it stays behind, empty.
    let _ = rustix::fs::fsetxattr(&made, MARK, b"1", XattrFlags::empty());
    if rustix::process::geteuid().is_root() {
        // Without the authority over all ids this is nothing, and it is ours already.
        let _ =
            rustix::fs::fchown(&made, Some(Uid::from_raw(owner.st_uid)), Some(Gid::from_raw(owner.st_gid)));
    }
    Ok(())
}

/// Mounts over what is protected and what is hidden in a granted directory that is attached.
pub(crate) fn guard(tree: BorrowedFd<'_>, bind: &Bind) -> io::Result<()> {
    for name in &bind.hide {
        hide(tree, OsStr::new(name))?;
    }
    if bind.read_only {
        return Ok(());
    }
    for path in &bind.protect {
        protect(tree, path)?;
    }
    protect_below(tree, &bind.protect)
}

/// How far down in a granted directory is looked for more of what is protected, and into how many directories.
const DEEPEST: usize = 4;
const MOST_LOOKS: usize = 4096;

/// Further down, what is there is protected: the repositories in a directory of repositories.
fn protect_below(tree: BorrowedFd<'_>, protected: &[String]) -> io::Result<()> {
    let first = |path: &String| path.split('/').next().map(str::to_owned);
    let firsts: Vec<String> = protected.iter().filter_map(first).collect();
    let mut ahead = VecDeque::from([PathBuf::new()]);
    let mut looks = 0;
    while let Some(way) = ahead.pop_front() {
        looks += 1;
        if looks > MOST_LOOKS {
            break;
        }
        let at = if way.as_os_str().is_empty() { Path::new(".") } else { &way };
        // One that is closed to us, or gone by now, is passed over.
        let Ok(dir) = in_room(tree, at) else { continue };
        let Ok(names) = names_in(dir.as_fd()) else { continue };
        let depth = way.components().count();
        for (name, is_directory) in names {
            let is_first = firsts.iter().any(|first| OsStr::new(first) == name);
            if is_first && depth > 0 {
                let of_it = protected.iter().filter(|path| parts(path).next() == Some(&name));
                for path in of_it.filter(|path| is_there(dir.as_fd(), path)) {
                    protect(dir.as_fd(), path)?;
                }
            } else if !is_first && is_directory && depth + 1 < DEEPEST {
                ahead.push_back(way.join(name));
            }
        }
    }
    Ok(())
}

fn is_there(dir: BorrowedFd<'_>, path: &str) -> bool {
    in_room(dir, Path::new(path.trim_end_matches('/'))).is_ok()
}

/// What is in a directory, each with whether it is one.
fn names_in(dir: BorrowedFd<'_>) -> io::Result<Vec<(OsString, bool)>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(rustix::fs::openat(dir, ".", DIRECTORY, Mode::empty())?)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push((OsStr::from_bytes(name.to_bytes()).to_owned(), entry.file_type().is_dir()));
        }
    }
    Ok(names)
}

fn hide(tree: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let place = match entry(tree, name) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
    attach_on(nothing(kind)?.as_fd(), place.as_fd())
}

/// Nothing at all, read-only, in the shape of what it is to cover.
fn nothing(kind: FileType) -> io::Result<OwnedFd> {
    clone_tree(if kind.is_dir() { "/source/empty/directory" } else { "/source/empty/file" })
}

fn protect(tree: BorrowedFd<'_>, path: &str) -> io::Result<()> {
    let mut at = tree.try_clone_to_owned()?;
    let mut names = parts(path).peekable();
    while let Some(name) = names.next() {
        let place = match entry(at.as_fd(), name) {
            // What it would be in is covered as a whole.
            Err(Errno::NOENT | Errno::NOTDIR) if is_read_only(at.as_fd())? => return Ok(()),
            opened => opened?,
        };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
        let is_mounted = is_mount_root(place.as_fd(), "")?;
        let is_way = kind.is_dir() && names.peek().is_some_and(|next| entry(place.as_fd(), next).is_ok());
        if is_mounted {
            at = place;
            continue;
        }
        // A link cannot be mounted upon itself; one with nothing upon it leads nowhere, and nobody can replace it.
        let cover = if kind.is_symlink() { nothing(kind)? } else { clone_tree_of(place.as_fd())? };
        if !is_way {
            set_attributes(cover.as_fd(), Attributes::READ_ONLY, None)?;
        }
        attach_on(cover.as_fd(), place.as_fd())?;
        if !is_way {
            return Ok(());
        }
        // From here on through the mount upon it.
        at = cover;
    }
    Ok(())
}

fn is_read_only(dir: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::fs::fstatvfs(dir)?.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// Removes what was made to be mounted on and is still empty.
pub(crate) fn remove_placeholders(bind: &Bind) -> io::Result<()> {
    if bind.read_only {
        return Ok(());
    }
    let Ok(opened) = open_judged(bind) else { return Ok(()) };
    for path in &bind.protect {
        let mut at = opened.try_clone()?;
        for name in parts(path) {
            match remove_placeholder(at.as_fd(), name)? {
                Some(directory) => at = directory,
                None => break,
            }
        }
    }
    Ok(())
}

/// Answers the directory that is there, if it is somebody's.
fn remove_placeholder(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<OwnedFd>> {
    let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(None) };
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_empty_file = kind.is_file() && stat.st_size == 0;
    if !kind.is_dir() && !is_empty_file {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(found) = rustix::fs::openat(dir, name, flags, Mode::empty()) else { return Ok(None) };
    if !is_placeholder(found.as_fd()) {
        return Ok(kind.is_dir().then_some(found));
    }
    let how = if kind.is_dir() { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match rustix::fs::unlinkat(dir, name, how) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_directory_that_was_judged_is_taken() {
        let scratch = std::env::temp_dir().join(format!("workroom-binds-{}", std::process::id()));
        std::fs::create_dir_all(scratch.join("base/a")).unwrap();
        std::fs::create_dir_all(scratch.join("base/b")).unwrap();
        let judged = identity(open_beneath(&scratch.join("base"), Path::new("a")).unwrap().as_fd()).unwrap();
        let bind = Bind {
            anchor: scratch.join("base"),
            beneath: "a".into(),
            judged,
            target: "/workspace/a".into(),
            read_only: true,
            protect: Vec::new(),
            hide: Vec::new(),
        };
        assert!(open_judged(&bind).is_ok());
        std::fs::rename(scratch.join("base/a"), scratch.join("base/c")).unwrap();
        assert!(open_judged(&bind).is_err(), "it is gone");
        std::fs::rename(scratch.join("base/b"), scratch.join("base/a")).unwrap();
        assert!(open_judged(&bind).unwrap_err().detail.contains("another directory"));
        std::fs::remove_dir_all(&scratch).unwrap();
    }

    #[test]
    fn placeholders_are_made_once_and_go_if_they_are_empty() {
        let scratch = std::env::temp_dir().join(format!("workroom-placeholders-{}", std::process::id()));
        std::fs::create_dir_all(scratch.join("repo/.git")).unwrap();
        std::fs::create_dir_all(scratch.join("plain")).unwrap();
        std::fs::write(scratch.join("repo/.profile"), "").unwrap();
        let protect: Vec<String> =
            [".git/hooks/", ".git/config", ".profile"].map(str::to_owned).into_iter().collect();
        for (name, expected, after) in [
            ("repo", vec![".git/config", ".git/hooks", ".profile"], vec![".profile"]),
            ("plain", vec![".git", ".profile"], vec![]),
        ] {
            let dir = scratch.join(name);
            let opened = open_beneath(&dir, Path::new("")).unwrap();
            let judged = identity(opened.as_fd()).unwrap();
            for _ in 0..2 {
                make_placeholders(opened.as_fd(), &protect).unwrap();
                for path in &expected {
                    assert!(dir.join(path).exists(), "{name}: {path}");
                }
            }
            assert!(name == "repo" || !dir.join(".git/config").exists());
            let bind = Bind {
                anchor: dir.clone(),
                beneath: PathBuf::new(),
                judged,
                target: "/workspace/a".into(),
                read_only: false,
                protect: protect.clone(),
                hide: Vec::new(),
            };
            remove_placeholders(&bind).unwrap();
            for path in &expected {
                assert_eq!(dir.join(path).exists(), after.contains(path), "{name}: {path}");
            }
        }
        std::fs::remove_dir_all(&scratch).unwrap();
    }
}
