//! Reaping children with what they used.

use std::io;

/// How a reaped child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Exited(i32),
    Killed(i32),
}

/// A reaped child. Its usage includes that of the children it waited for itself.
#[derive(Debug, Clone, Copy)]
pub struct Reaped {
    pub pid: i32,
    pub ending: Ending,
    pub cpu_micros: u64,
    /// Bytes of the largest process among it and the children it waited for.
    pub peak_memory: u64,
}

/// Reaps one ended child, if there is one, whatever signal announces its end.
pub fn reap() -> io::Result<Option<Reaped>> {
    loop {
        let mut status = 0;
        // SAFETY: plain data; zeroes are valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both places are valid for the kernel to write to.
        let pid = unsafe { libc::wait4(-1, &mut status, libc::WNOHANG | libc::__WALL, &mut usage) };
        if pid < 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::ECHILD) => return Ok(None),
                _ => return Err(error),
            }
        }
        if pid == 0 {
            return Ok(None);
        }
        let ending = if libc::WIFSIGNALED(status) {
            Ending::Killed(libc::WTERMSIG(status))
        } else {
            Ending::Exited(libc::WEXITSTATUS(status))
        };
        let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        return Ok(Some(Reaped {
            pid,
            ending,
            cpu_micros: micros(usage.ru_utime) + micros(usage.ru_stime),
            peak_memory: usage.ru_maxrss as u64 * 1024,
        }));
    }
}
