//! Mounts in a room's tree, and the mount API in the words of this program.

use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
pub(crate) use workroom_sys::mount::{
    Attributes, FsOption, attach, bind, change_root, clone_tree, clone_tree_at, directory, make,
    make_overlay, make_private, replace_root, set_attributes,
};
pub(crate) use workroom_sys::place::attach_on;

/// What every mount of a room has, device binds excepted.
pub(crate) const PLAIN: Attributes = Attributes::NO_SUID.and(Attributes::NO_DEV);

/// Puts a detached mount at `target` in a tree that a room has written to: no link on the way is followed.
pub(crate) fn attach_in_room(mount: BorrowedFd<'_>, root: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
    attach_on(mount, in_room(root, target)?.as_fd())
}

/// Does something in a directory, and comes back.
pub(crate) fn in_directory<T>(dir: BorrowedFd<'_>, action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let here = directory(".")?;
    rustix::process::fchdir(dir)?;
    let done = action();
    rustix::process::fchdir(here)?;
    done
}

/// Opens a place in a tree that a room has written to, only to name it. Links there are the room's, and would be
/// followed with the machine's authority: one on the way is an error.
pub(crate) fn in_room(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    in_room_as(root, path, OFlags::empty())
}

/// The same for a directory; ENOTDIR where the room has something else.
pub(crate) fn directory_in_room(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    in_room_as(root, path, OFlags::DIRECTORY)
}

fn in_room_as(root: BorrowedFd<'_>, path: &Path, more: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | more;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?)
}
