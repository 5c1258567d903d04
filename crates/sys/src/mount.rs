//! Mount attributes: what rustix's mount API lacks.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

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
