//! Stopping all commands of a room where they are, and letting them go on.

use crate::census::{Census, Staff};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long the kernel may take to stop everything: a process in the middle of a disk access is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// By cgroup, which processes do not notice; or, where there is none, by signals.
pub(crate) enum Freezer {
    /// `cgroup.freeze` and `cgroup.events`.
    Group { freeze: OwnedFd, events: OwnedFd },
    /// Who was stopped, so that those who had stopped themselves stay so.
    Signals { stopped: Vec<i32> },
}

impl Freezer {
    pub(crate) fn new(group: Option<(OwnedFd, OwnedFd)>) -> Freezer {
        match group {
            Some((freeze, events)) => Freezer::Group { freeze, events },
            None => Freezer::Signals { stopped: Vec::new() },
        }
    }

    pub(crate) fn freeze(&mut self, census: &Census, staff: &Staff) -> io::Result<()> {
        match self {
            Freezer::Group { freeze, events } => {
                rustix::io::pwrite(&*freeze, b"1", 0)?;
                let frozen = wait_frozen(events);
                if frozen.is_err() {
                    let _ = rustix::io::pwrite(&*freeze, b"0", 0);
                }
                frozen
            }
            Freezer::Signals { stopped } => {
                *stopped = census.stop_all(staff);
                Ok(())
            }
        }
    }

    /// Does something while nothing in the room moves, where that can be had without the processes' help.
    pub(crate) fn while_still<T>(&self, action: impl FnOnce() -> T) -> T {
        let Freezer::Group { freeze, events } = self else { return action() };
        // What cannot be stopped in time is in the kernel's hands, and makes nothing either.
        let _ = rustix::io::pwrite(freeze, b"1", 0).map(|_| wait_frozen(events));
        let done = action();
        let _ = rustix::io::pwrite(freeze, b"0", 0);
        done
    }

    pub(crate) fn thaw(&mut self, census: &Census) -> io::Result<()> {
        match self {
            Freezer::Group { freeze, .. } => {
                rustix::io::pwrite(&*freeze, b"0", 0)?;
            }
            Freezer::Signals { stopped } => census.continue_these(&std::mem::take(stopped)),
        }
        Ok(())
    }
}

fn wait_frozen(events: &OwnedFd) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut text = [0; 256];
        let read = rustix::io::pread(events, &mut text, 0)?;
        if String::from_utf8_lossy(&text[..read]).lines().any(|line| line == "frozen 1") {
            return Ok(());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::other("some process could not be stopped in time"));
        }
        // The kernel announces a change of this file as an exceptional condition.
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(events, PollFlags::PRI)], Some(&timeout));
    }
}
