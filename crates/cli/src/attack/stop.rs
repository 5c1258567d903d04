//! Why the suite ends before its last case, and how it hears of signals meanwhile.
//!
//! Whoever interrupts it wants it to end, not to leave its bait on the machine.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use workroom_sys::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, next_signal, signal_fd};
use workroom_types::{ErrorCode, RoomError};

pub(super) enum Stop {
    /// By this number.
    Signal(u8),
    Fault(RoomError),
}

impl From<RoomError> for Stop {
    fn from(error: RoomError) -> Stop {
        Stop::Fault(error)
    }
}

pub(super) fn fault(what: &str, error: io::Error) -> RoomError {
    RoomError::new(ErrorCode::RoomSetup, format!("{what}: {error}"), "")
}

/// Signals that would have ended this process.
pub(super) struct Signals(OwnedFd);

impl Signals {
    /// Before the first thread is started, and before anything is laid out.
    pub(super) fn watch() -> Result<Signals, RoomError> {
        signal_fd(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT])
            .map(Signals)
            .map_err(|error| fault("watch for signals", error))
    }

    pub(super) fn check(&self) -> Result<(), Stop> {
        match next_signal(self.0.as_fd()).and_then(|signal| u8::try_from(signal).ok()) {
            Some(signal) => Err(Stop::Signal(signal)),
            None => Ok(()),
        }
    }

    /// Waits until one of these can be read, or has hung up, or the time is up; says for each whether it was so.
    pub(super) fn wait<const N: usize>(
        &self,
        others: [BorrowedFd<'_>; N],
        deadline: Instant,
    ) -> Result<[bool; N], Stop> {
        loop {
            self.check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut fds: Vec<PollFd<'_>> =
                others.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
            fds.push(PollFd::new(&self.0, PollFlags::IN));
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Ok([false; N]),
                Ok(_) if fds[..N].iter().all(|fd| fd.revents().is_empty()) => {}
                Ok(_) => return Ok(std::array::from_fn(|at| !fds[at].revents().is_empty())),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(fault("poll", error.into()).into()),
            }
        }
    }

    pub(super) fn sleep(&self, time: Duration) -> Result<(), Stop> {
        self.wait([], Instant::now() + time).map(|[]| ())
    }
}
