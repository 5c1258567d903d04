//! Signals as a descriptor, and a clean signal state for what is started.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use libc::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};

/// Blocks the given signals and returns a non-blocking descriptor that they arrive on instead.
pub fn signal_fd(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = set_of(signals);
    // SAFETY: `set` is an initialised signal set; the old mask is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) }.into())?;
    // SAFETY: makes a new descriptor, which nobody else owns.
    unsafe {
        let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        check(fd.into())?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// The next signal waiting on the descriptor.
pub fn next_signal(fd: BorrowedFd<'_>) -> Option<i32> {
    // SAFETY: plain data; zeroes are valid.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    // SAFETY: reads at most one structure into `info`.
    let read =
        unsafe { libc::read(fd.as_raw_fd(), (&raw mut info).cast(), size_of::<libc::signalfd_siginfo>()) };
    (read == size_of::<libc::signalfd_siginfo>() as isize).then_some(info.ssi_signo as i32)
}

/// Gives every signal its default action, which all that is started from here on inherits.
pub fn default_all() {
    // SAFETY: installs only the default action. Signals that cannot be changed (KILL, STOP, the C library's own)
    // answer EINVAL, which is fine.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// Has a signal do nothing.
pub fn ignore(signal: i32) {
    // SAFETY: installs no handler; a signal that cannot be ignored answers EINVAL and stays as it is.
    unsafe {
        libc::signal(signal, libc::SIG_IGN);
    }
}

/// Blocks no signal, as a program expects to find it.
pub fn unblock_all() {
    let set = set_of(&[]);
    // SAFETY: an initialised set; the old mask is not asked for.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set before it is added to.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}
