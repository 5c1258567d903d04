//! The only `unsafe` of this crate: the kernel calls of the floor that rustix does not offer.
//!
//! crates/sys has the same for rooms. The floor has its own, to stay as small as a C program would be.
#![allow(unsafe_code)]

use rustix::process::Pid;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

fn check(answer: libc::c_long) -> io::Result<libc::c_long> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Copies this single-threaded process into new user and pid namespaces; the copy ends with `child`'s status.
pub(super) fn clone_into_namespaces(child: impl FnOnce() -> i32) -> io::Result<Pid> {
    // SAFETY: `clone_args` is plain integers; all zeroes is the kernel's own default.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (libc::CLONE_NEWUSER | libc::CLONE_NEWPID) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: without CLONE_VM and with no stack given this is a fork: the child returns here on a private
    // copy of the same stack, and no other thread exists whose locks it could miss.
    let pid =
        check(unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) })?;
    if pid == 0 {
        let status = child();
        // SAFETY: ends the process at once; nothing of the parent's is flushed or run twice.
        unsafe { libc::_exit(status) }
    }
    Pid::from_raw(pid as i32).ok_or_else(|| io::Error::other("clone3 answered no pid"))
}

/// All of a room's namespaces but those that are made by the clone.
pub(super) fn unshare_the_rest() -> io::Result<()> {
    let kinds = libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    // SAFETY: namespaces only; neither memory nor the descriptor table is unshared.
    check(unsafe { libc::unshare(kinds) }.into()).map(drop)
}

pub(super) fn unshare_mounts() -> io::Result<()> {
    // SAFETY: as above.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) }.into()).map(drop)
}

pub(super) fn unshare_user() -> io::Result<()> {
    // SAFETY: as above.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER) }.into()).map(drop)
}

pub(super) const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
pub(super) const NO_SUID: u64 = libc::MOUNT_ATTR_NOSUID;
pub(super) const NO_DEV: u64 = libc::MOUNT_ATTR_NODEV;
pub(super) const NO_EXEC: u64 = libc::MOUNT_ATTR_NOEXEC;

/// Sets attributes on a mount and all beneath it.
pub(super) fn set_attributes(mount: BorrowedFd<'_>, set: u64) -> io::Result<()> {
    mount_setattr(mount, &libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 })
}

/// Sets attributes on a mount and all beneath it, and cuts them off from every peer.
pub(super) fn make_private(mount: BorrowedFd<'_>, set: u64) -> io::Result<()> {
    let propagation = libc::MS_PRIVATE;
    mount_setattr(mount, &libc::mount_attr { attr_set: set, attr_clr: 0, propagation, userns_fd: 0 })
}

fn mount_setattr(mount: BorrowedFd<'_>, attributes: &libc::mount_attr) -> io::Result<()> {
    // SAFETY: the path is an empty C string and `attributes` a valid structure of the size given.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            attributes as *const libc::mount_attr,
            size_of::<libc::mount_attr>(),
        )
    };
    check(answer).map(drop)
}

/// Brings `lo` of this network namespace up.
pub(super) fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: `ifreq` is plain data; zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an `ifreq`, which `request` is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) }.into()).map(drop)
}
