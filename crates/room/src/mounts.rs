//! The mount API in the words of this crate: clone a tree, make a file system, put it somewhere.

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
pub(crate) use workroom_sys::mount::{Attributes, make_private, set_attributes};

/// What every mount of a room has, device binds excepted.
pub(crate) const PLAIN: Attributes = Attributes::NO_SUID.and(Attributes::NO_DEV);

/// A detached copy of the tree at `path`, with everything mounted beneath it.
pub(crate) fn clone_tree(path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    clone_tree_at(CWD, path)
}

pub(crate) fn clone_tree_at(dir: BorrowedFd<'_>, path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(dir, path.as_ref(), flags)?)
}

/// Puts a detached mount at `target` below `dir`. A symlink as the last component is not followed.
pub(crate) fn attach(mount: BorrowedFd<'_>, dir: BorrowedFd<'_>, target: impl AsRef<Path>) -> io::Result<()> {
    Ok(move_mount(mount, "", dir, target.as_ref(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Puts a detached mount at `target` in a tree that a room has written to: no link on the way is followed.
pub(crate) fn attach_in_room(mount: BorrowedFd<'_>, root: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
    attach_on(mount, in_room(root, target)?.as_fd())
}

/// Puts a detached mount onto what is open already.
pub(crate) fn attach_on(mount: BorrowedFd<'_>, place: BorrowedFd<'_>) -> io::Result<()> {
    let by_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, "", place, "", by_descriptor)?)
}

/// Opens a place in a tree that a room has written to, only to name it. Links there are the room's, and would be
/// followed with the machine's authority: one on the way is an error.
pub(crate) fn in_room(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?)
}

/// One option of a file system being made.
#[derive(Clone, Copy)]
pub(crate) enum FsOption<'a> {
    Set(&'a str, &'a str),
    Flag(&'a str),
}

/// A new, detached file system.
pub(crate) fn make(kind: &str, options: &[FsOption<'_>], attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    make_from(kind, options.iter().copied(), attributes)
}

fn make_from<'a>(
    kind: &str,
    options: impl Iterator<Item = FsOption<'a>>,
    attributes: MountAttrFlags,
) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for option in options {
        match option {
            FsOption::Set(key, value) => fsconfig_set_string(context.as_fd(), key, value)?,
            FsOption::Flag(key) => fsconfig_set_flag(context.as_fd(), key)?,
        }
    }
    fsconfig_create(context.as_fd())?;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// An overlay over `lowers`, the uppermost first.
pub(crate) fn make_overlay(
    lowers: &[String],
    options: &[FsOption<'_>],
    attributes: MountAttrFlags,
) -> io::Result<OwnedFd> {
    let joined = lowers.join(":");
    let as_one = [FsOption::Set("lowerdir", &joined)];
    if lowers.len() > 1 {
        let one_by_one = lowers.iter().map(|lower| FsOption::Set("lowerdir+", lower));
        match make_from("overlay", one_by_one.chain(options.iter().copied()), attributes) {
            // Before Linux 6.7 they are one option, which holds 255 bytes.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            made => return made,
        }
    }
    make_from("overlay", as_one.into_iter().chain(options.iter().copied()), attributes)
}

/// Opens a directory only to name things below it.
pub(crate) fn directory(path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path.as_ref(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes `new_root` the root of this mount namespace and lets go of the old one.
pub(crate) fn change_root(new_root: BorrowedFd<'_>) -> io::Result<()> {
    rustix::process::fchdir(new_root)?;
    // With both arguments the same, the old root is left on top of the new one, where it is taken off.
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}
