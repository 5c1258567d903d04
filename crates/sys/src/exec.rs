//! Becoming another program.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::ptr;

/// A null-terminated array of C strings, as `execve` wants it. Built before the process is cloned, so that
/// nothing is allocated between clone and exec.
pub struct ExecStrings {
    pointers: Vec<*const c_char>,
    _strings: Vec<CString>,
}

impl ExecStrings {
    pub fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
        Self { pointers, _strings: strings }
    }
}

/// Replaces this process by `program`. Returns only if that failed.
pub fn execve(program: &CStr, argv: &ExecStrings, env: &ExecStrings) -> io::Error {
    // SAFETY: both arrays end with a null pointer and point into strings that the structs own.
    unsafe { libc::execve(program.as_ptr(), argv.pointers.as_ptr(), env.pointers.as_ptr()) };
    io::Error::last_os_error()
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: closing descriptors touches no memory. Rust owners of those descriptors exist only in this
    // process's past: the callers are clones that go on to exec or that own nothing above `first`.
    crate::check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) })?;
    Ok(())
}

/// Marks every descriptor from `first` on to be closed when a program is executed.
pub fn close_from_on_exec(first: u32) -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    // SAFETY: only sets a flag on descriptors.
    crate::check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, CLOSE_RANGE_CLOEXEC) })?;
    Ok(())
}

/// Makes `source` be descriptor `target`, inherited by what is executed next.
pub fn place_fd(source: i32, target: i32) -> io::Result<()> {
    if source == target {
        // SAFETY: only clears a flag of a descriptor.
        crate::check(unsafe { libc::fcntl(target, libc::F_SETFD, 0) }.into())?;
        return Ok(());
    }
    // SAFETY: dup2 onto 0 to 3 in a process that is about to exec; no Rust object there owns them.
    crate::check(unsafe { libc::dup2(source, target) }.into())?;
    Ok(())
}

/// Makes the terminal on descriptor `fd` the controlling one of this (new) session.
pub fn take_terminal(fd: i32) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes an integer argument.
    crate::check(unsafe { libc::ioctl(fd, libc::TIOCSCTTY, 0) }.into())?;
    Ok(())
}

/// Closes every descriptor but those named.
pub fn close_all_but(keep: &mut [i32]) -> io::Result<()> {
    keep.sort_unstable();
    let mut first = 0u32;
    for &fd in keep.iter() {
        let fd = fd as u32;
        if fd > first {
            // SAFETY: closes descriptors only. The caller is a fresh clone: what owned these descriptors is
            // the parent's business and is never touched or dropped in this process.
            crate::check(unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) })?;
        }
        first = fd + 1;
    }
    close_from(first)
}

/// Closes the descriptors named.
pub fn close_these(fds: impl Iterator<Item = i32>) {
    for fd in fds {
        // SAFETY: closes descriptors only; as above, the caller is a fresh clone in which their owners are
        // never touched or dropped.
        unsafe { libc::close(fd) };
    }
}
