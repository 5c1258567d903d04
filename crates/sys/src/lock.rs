//! Locks on bytes of a file that belong to an opening of it, not to a process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Locks one byte for whoever holds this opening of the file; says whether it was free.
pub fn try_lock_byte(file: BorrowedFd<'_>, byte: u64) -> io::Result<bool> {
    // SAFETY: plain data; zeroes are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte as libc::off_t;
    lock.l_len = 1;
    // SAFETY: reads the structure, which lives through the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}
