//! The mount API in the words of this program: clone a tree, make a file system, put it somewhere; and mount attributes,
//! which rustix lacks.

use crate::check;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_bind_recursive, move_mount, open_tree,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// `MOUNT_ATTR_*` of mount_setattr(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes(u64);

impl Attributes {
    pub const NONE: Self = Self(0);
    pub const READ_ONLY: Self = Self(libc::MOUNT_ATTR_RDONLY);
    pub const NO_SUID: Self = Self(libc::MOUNT_ATTR_NOSUID);
    pub const NO_DEV: Self = Self(libc::MOUNT_ATTR_NODEV);
    pub const NO_EXEC: Self = Self(libc::MOUNT_ATTR_NOEXEC);

    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Changes a mount and all beneath it: sets attributes and, with a user namespace, maps its ids.
pub fn set_attributes(
    mount: BorrowedFd<'_>,
    set: Attributes,
    idmap: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    apply(
        mount,
        &libc::mount_attr {
            attr_set: set.0 | if idmap.is_some() { libc::MOUNT_ATTR_IDMAP } else { 0 },
            attr_clr: 0,
            propagation: 0,
            userns_fd: idmap.map_or(0, |fd| fd.as_raw_fd() as u64),
        },
    )
}

/// Sets attributes on a mount and all beneath it, and cuts them off from every peer: nothing mounted there
/// shows elsewhere, nor back.
pub fn make_private(mount: BorrowedFd<'_>, set: Attributes) -> io::Result<()> {
    apply(
        mount,
        &libc::mount_attr { attr_set: set.0, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 },
    )
}

fn apply(mount: BorrowedFd<'_>, attr: &libc::mount_attr) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the path is an empty C string and `attr` a valid structure of the size given.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            attr as *const libc::mount_attr,
            size_of::<libc::mount_attr>(),
        )
    };
    check(answer).map(drop)
}

/// A detached copy of the tree at `path`, with everything mounted beneath it.
pub fn clone_tree(path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    clone_tree_at(CWD, path)
}

/// The same from below `dir`.
pub fn clone_tree_at(dir: BorrowedFd<'_>, path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(dir, path.as_ref(), flags)?)
}

/// Puts a detached mount at `target` below `dir`. A symlink as the last component is not followed.
pub fn attach(mount: BorrowedFd<'_>, dir: BorrowedFd<'_>, target: impl AsRef<Path>) -> io::Result<()> {
    Ok(move_mount(mount, "", dir, target.as_ref(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Copies the tree at `source`, with everything mounted beneath it, to `target`, in one call: each call that changes mounts
/// waits for all others of the machine that do.
pub fn bind(source: impl AsRef<Path>, target: impl AsRef<Path>) -> io::Result<()> {
    Ok(mount_bind_recursive(source.as_ref(), target.as_ref())?)
}

/// One option of a file system being made.
#[derive(Clone, Copy)]
pub enum FsOption<'a> {
    Set(&'a str, &'a str),
    Flag(&'a str),
}

/// A new, detached file system.
pub fn make(kind: &str, options: &[FsOption<'_>], attributes: MountAttrFlags) -> io::Result<OwnedFd> {
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
pub fn make_overlay(
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
pub fn directory(path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path.as_ref(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes `new_root` the root of this mount namespace and lets go of the old one.
pub fn change_root(new_root: BorrowedFd<'_>) -> io::Result<()> {
    rustix::process::fchdir(new_root)?;
    // With both arguments the same, the old root is left on top of the new one, where it is taken off.
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

/// The same where the old root stands on another mount, which is the working directory and which `new_root` hangs
/// in: the old one is taken off, and the new one put there.
///
/// pivot_root(2) looks at every process of the machine, and keeps all from starting and ending meanwhile.
pub fn replace_root(new_root: BorrowedFd<'_>) -> io::Result<()> {
    let beneath = directory(".")?;
    rustix::process::chdir("/")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    attach(new_root, beneath.as_fd(), ".")?;
    rustix::process::fchdir(new_root)?;
    Ok(rustix::process::chroot(".")?)
}
