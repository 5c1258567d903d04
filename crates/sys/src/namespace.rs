//! Entering and making namespaces.

use crate::check;
use crate::seccomp::LauncherKey;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Kinds of namespaces, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Namespaces(libc::c_int);

impl Namespaces {
    pub const NONE: Self = Self(0);
    pub const USER: Self = Self(libc::CLONE_NEWUSER);
    pub const MOUNT: Self = Self(libc::CLONE_NEWNS);
    pub const NET: Self = Self(libc::CLONE_NEWNET);
    pub const IPC: Self = Self(libc::CLONE_NEWIPC);
    pub const UTS: Self = Self(libc::CLONE_NEWUTS);
    pub const CGROUP: Self = Self(libc::CLONE_NEWCGROUP);
    pub const PID: Self = Self(libc::CLONE_NEWPID);

    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn and_if(self, condition: bool, other: Self) -> Self {
        if condition { self.and(other) } else { self }
    }
}

/// Leaves the named namespaces for new ones.
pub fn unshare(kinds: Namespaces) -> io::Result<()> {
    // SAFETY: namespaces only; neither memory nor the descriptor table is unshared.
    check(unsafe { libc::unshare(kinds.0) }.into()).map(drop)
}

/// The same from behind a filter, which is shown `key`.
pub fn unshare_with(kinds: Namespaces, key: LauncherKey) -> io::Result<()> {
    let [fifth, sixth] = key.words();
    // SAFETY: as above; the kernel does not look at the other arguments.
    check(unsafe { libc::syscall(libc::SYS_unshare, kinds.0, 0, 0, 0, fifth, sixth) }).map(drop)
}

/// The inode of this process's UTS namespace: a name for all that it starts. Allocates nothing.
pub fn own_uts_label() -> io::Result<u64> {
    // _IO(0xff, 10), Linux 6.11: without it, the way through /proc, which takes ten times as long.
    const PIDFD_GET_UTS_NAMESPACE: libc::c_ulong = 0xff0a;
    let own = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())?;
    // SAFETY: takes no argument, and answers a new descriptor or an error.
    let namespace = unsafe { libc::ioctl(own.as_raw_fd(), PIDFD_GET_UTS_NAMESPACE, 0) };
    if namespace < 0 {
        return Ok(rustix::fs::stat(c"/proc/self/ns/uts")?.st_ino);
    }
    // SAFETY: the kernel made it for us, and nobody else owns it.
    let namespace = unsafe { OwnedFd::from_raw_fd(namespace) };
    Ok(rustix::fs::fstat(&namespace)?.st_ino)
}

/// Enters the namespace behind a descriptor.
pub fn enter(namespace: BorrowedFd<'_>, kind: Namespaces) -> io::Result<()> {
    // SAFETY: setns touches no memory of this process.
    check(unsafe { libc::setns(namespace.as_raw_fd(), kind.0) }.into()).map(drop)
}

/// Makes a user namespace with the given maps and returns a descriptor of it.
///
/// A user namespace is born with a process: a helper that shares our memory is cloned into it, only waits,
/// and is ended as soon as the namespace is held by the descriptor. `proc_dir` is a `/proc` that shows our
/// children, of the pid namespace we are in. What the kernel counts for a namespace's maker (inotify instances,
/// namespaces) it counts for `owner`. The caller reaps the helper, whenever it reaps.
pub fn new_user_namespace(
    proc_dir: BorrowedFd<'_>,
    owner: u32,
    uid_map: &str,
    gid_map: &str,
) -> io::Result<OwnedFd> {
    let mut stack = [0u128; 256];
    set_effective_uid(owner)?;
    // SAFETY: the helper runs `wait_for_end` on a stack of its own and calls nothing but pause(2), in which it
    // is killed below without ever coming back to that stack.
    let cloned = check(
        unsafe {
            libc::clone(
                wait_for_end,
                stack.as_mut_ptr_range().end.cast(),
                libc::CLONE_NEWUSER | libc::CLONE_VM | libc::SIGCHLD,
                std::ptr::null_mut(),
            )
        }
        .into(),
    );
    set_effective_uid(0)?;
    let pid = cloned? as libc::pid_t;
    let made = map_and_open(proc_dir, pid, uid_map, gid_map);
    // SAFETY: `pid` is our own child, not yet reaped, so the number cannot mean another process.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    made
}

/// Of this thread, whose real and saved uid stay, so that it can be taken back.
fn set_effective_uid(uid: u32) -> io::Result<()> {
    const SAME: u32 = u32::MAX;
    // SAFETY: takes integers only.
    check(unsafe { libc::syscall(libc::SYS_setresuid, SAME, uid, SAME) }).map(drop)
}

extern "C" fn wait_for_end(_: *mut libc::c_void) -> libc::c_int {
    loop {
        // SAFETY: pause only waits; this process ends by SIGKILL.
        unsafe { libc::pause() };
    }
}

fn map_and_open(proc_dir: BorrowedFd<'_>, pid: i32, uid_map: &str, gid_map: &str) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, openat};
    write_at(proc_dir, &format!("{pid}/gid_map"), gid_map)?;
    write_at(proc_dir, &format!("{pid}/uid_map"), uid_map)?;
    Ok(openat(proc_dir, format!("{pid}/ns/user"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Writes a small kernel file in one call, as id maps must be.
pub fn write_at(dir: BorrowedFd<'_>, path: &str, text: &str) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, openat};
    let file = openat(dir, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    let written = rustix::io::write(&file, text.as_bytes())?;
    if written == text.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
