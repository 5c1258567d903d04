//! Waiting for descriptors without a thread: in the host's runtime.

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits for a descriptor to become readable, and no more.
pub fn watch_reading(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    watch(fd, Interest::READABLE)
}

/// Waits for a descriptor to have space, and no more.
pub fn watch_writing(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    watch(fd, Interest::WRITABLE)
}

/// Waits for a socket to have something, or space for something.
pub fn watch_socket(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    watch(fd, Interest::READABLE | Interest::WRITABLE)
}

fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, owns its descriptor alone and always names the same one; the `AsyncFd` owns it
    // from here on, and safe code has no way to close it behind its back.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest)? })
}
