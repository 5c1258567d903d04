//! Places in trees that somebody else may be changing: found without following a link, made, mounted on and freed.

use crate::seccomp::LauncherKey;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Component, Path};
use std::sync::atomic::{AtomicU64, Ordering};

/// The kernel says EAGAIN while something elsewhere is being renamed.
const MOST_TRIES: usize = 64;

/// What the filter that this process is behind wants to be shown with openat2(2), if it is behind one.
static KEY: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// In a process that has the launcher's key: it is shown from here on.
pub fn show_key(key: LauncherKey) {
    for (place, word) in KEY.iter().zip(key.words()) {
        place.store(word, Ordering::Relaxed);
    }
}

/// openat2(2) of something that is there, from behind a filter too that otherwise refuses it.
pub fn openat2(
    dir: impl AsFd,
    path: impl rustix::path::Arg,
    flags: OFlags,
    resolve: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    // SAFETY: all zero is a valid value of a structure of integers.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = flags.bits().into();
    how.resolve = resolve.bits();
    let [fifth, sixth] = [&KEY[0], &KEY[1]].map(|word| word.load(Ordering::Relaxed));
    path.into_with_c_str(|path| {
        // SAFETY: the path is a C string and `how` of the size that is said; the kernel does not look at the rest.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                dir.as_fd().as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of::<libc::open_how>(),
                fifth,
                sixth,
            )
        };
        match crate::check(opened) {
            // SAFETY: the kernel made it for us, and nobody else owns it.
            Ok(opened) => Ok(unsafe { OwnedFd::from_raw_fd(opened as i32) }),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    })
}

/// Opens a directory of the host to name it: `anchor` as it is written, with the links in it, and what is `beneath` it
/// over no link and never out of it.
pub fn open_beneath(anchor: &Path, beneath: &Path) -> io::Result<OwnedFd> {
    let base = crate::mount::directory(anchor)?;
    if beneath.as_os_str().is_empty() {
        return Ok(base);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..MOST_TRIES {
        match rustix::fs::openat2(&base, beneath, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            opened => return Ok(opened?),
        }
    }
    Err(Errno::AGAIN.into())
}

/// What tells a directory from every other one: its device and inode.
pub fn identity(directory: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// A detached copy of the tree at what is open, with everything mounted beneath it.
pub fn clone_tree_of(place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(place, "", flags)?)
}

/// Puts a detached mount onto what is open already.
pub fn attach_on(mount: BorrowedFd<'_>, place: BorrowedFd<'_>) -> io::Result<()> {
    let by_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, "", place, "", by_descriptor)?)
}

/// Opens what a directory has under a name, only to name it; a link as itself.
pub fn entry(dir: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Makes a directory for a mount to cover, with those above it, owned by `owner` where it is made. EEXIST if something
/// else is there.
pub fn make_place(
    root: BorrowedFd<'_>,
    target: &Path,
    owner: impl Fn(&Path) -> Option<(u32, u32)>,
) -> io::Result<OwnedFd> {
    let mut at = root.try_clone_to_owned()?;
    let mut so_far = std::path::PathBuf::new();
    for part in target.components() {
        let Component::Normal(name) = part else { continue };
        so_far.push(name);
        match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                if let Some((uid, gid)) = owner(&so_far) {
                    let (uid, gid) =
                        (rustix::process::Uid::from_raw(uid), rustix::process::Gid::from_raw(gid));
                    rustix::fs::chownat(&at, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                }
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = match rustix::fs::openat(&at, name, flags, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(Errno::EXIST.into()),
            opened => opened?,
        };
    }
    Ok(at)
}

/// EEXIST if a mount there would hide something: a directory that is not empty, or another mount.
pub fn check_free(place: BorrowedFd<'_>) -> io::Result<()> {
    if is_mount_root(place, "")? || !is_empty(place)? { Err(Errno::EXIST.into()) } else { Ok(()) }
}

fn is_empty(dir: BorrowedFd<'_>) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(dir, ".", flags, Mode::empty())?;
    for entry in rustix::fs::Dir::new(opened)? {
        let entry = entry?;
        if entry.file_name() != c"." && entry.file_name() != c".." {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether something is mounted at what a directory has under a name, or, with none, at itself.
pub fn is_mount_root(dir: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<bool> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    let found = rustix::fs::statx(dir, name, flags, StatxFlags::TYPE)?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Takes off what is mounted at `target`, at once and also while it is in use, and removes the place if it is wanted.
/// Says whether something was mounted there. Leaves this process in another working directory.
pub fn free_place(root: BorrowedFd<'_>, target: &Path, remove: bool) -> io::Result<bool> {
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    let parent = parent.strip_prefix("/").unwrap_or(parent);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let parent = match parent.as_os_str().is_empty() {
        true => root.try_clone_to_owned()?,
        false => rustix::fs::openat2(root, parent, flags, Mode::empty(), resolve)?,
    };
    match is_mount_root(parent.as_fd(), name) {
        Ok(true) => {}
        Ok(false) | Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    // By a name in the working directory: a path would be looked up again, and there are links of the room's about.
    rustix::process::fchdir(&parent)?;
    rustix::mount::unmount(name, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
    if remove {
        // One that somebody has put something into stays.
        let _ = rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_link_beneath_the_anchor_is_followed_and_those_in_it_are() {
        let scratch = std::env::temp_dir().join(format!("workroom-place-{}", std::process::id()));
        std::fs::create_dir_all(scratch.join("base/inner")).unwrap();
        std::fs::create_dir_all(scratch.join("outside")).unwrap();
        std::fs::write(scratch.join("base/file"), "").unwrap();
        symlink("../outside", scratch.join("base/out")).unwrap();
        symlink("inner", scratch.join("base/in")).unwrap();
        symlink("base", scratch.join("link")).unwrap();
        let open = |beneath: &str| {
            open_beneath(&scratch.join("link"), Path::new(beneath)).map_err(|error| error.raw_os_error())
        };
        let inner = open("inner").unwrap();
        assert_eq!(
            identity(inner.as_fd()).unwrap(),
            identity(open_beneath(&scratch.join("base/inner"), Path::new("")).unwrap().as_fd()).unwrap()
        );
        for (beneath, expected) in [
            ("out", Errno::LOOP),
            ("in", Errno::LOOP),
            ("in/x", Errno::LOOP),
            ("../outside", Errno::XDEV),
            ("/", Errno::XDEV),
            ("none", Errno::NOENT),
            ("file", Errno::NOTDIR),
        ] {
            assert_eq!(open(beneath).err().flatten(), Some(expected.raw_os_error()), "{beneath}");
        }
        std::fs::remove_dir_all(&scratch).unwrap();
    }

    #[test]
    fn a_place_is_made_where_nothing_is() {
        let scratch = std::env::temp_dir().join(format!("workroom-made-place-{}", std::process::id()));
        std::fs::create_dir_all(scratch.join("full/x")).unwrap();
        std::fs::write(scratch.join("file"), "").unwrap();
        symlink("full", scratch.join("link")).unwrap();
        let root = crate::mount::directory(&scratch).unwrap();
        let make = |target: &str| {
            let place = make_place(root.as_fd(), Path::new(target), |_| None)?;
            check_free(place.as_fd())
        };
        make("/a/b").unwrap();
        make("a/b").unwrap();
        for taken in ["full", "file", "link", "link/y", "file/z"] {
            assert_eq!(make(taken).unwrap_err().raw_os_error(), Some(libc::EEXIST), "{taken}");
        }
        assert!(!free_place(root.as_fd(), Path::new("/a/b"), true).unwrap());
        assert!(!free_place(root.as_fd(), Path::new("/none"), true).unwrap());
        std::fs::remove_dir_all(&scratch).unwrap();
    }
}
