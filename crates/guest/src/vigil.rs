//! Staying awake for a command that was announced: for its coming, and for its end.
//!
//! ```text
//!  asleep ──rung──▶ awake, 0.2 ms at most ──asked for──▶ awake, 2 ms at most ──ended──▶ asleep
//! ```
//!
//! Who rings is the host, and only where there are processors to spare. To wake up takes longer than all that guest and
//! launcher do for a command.

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use workroom_proto::{Channel, Received, ToLauncher};

/// From the bell to the command: as long as the host takes to read a request, and a little more.
const UNTIL_ASKED: Duration = Duration::from_micros(200);

/// Most short commands are over by then. One that is not can be waited for asleep.
const UNTIL_ENDED: Duration = Duration::from_millis(2);

pub(crate) struct Vigil {
    bell: OwnedFd,
    until: Option<Instant>,
}

impl Vigil {
    pub(crate) fn new() -> io::Result<Vigil> {
        Ok(Vigil { bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?, until: None })
    }

    /// Each ring is heard once, and the count behind it is nobody's to read.
    pub(crate) fn watch(&self, epoll: &OwnedFd, key: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(epoll, &self.bell, epoll::EventData::new_u64(key), flags)?)
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The bell was rung.
    pub(crate) fn begin(&mut self) {
        self.until = Some(Instant::now() + UNTIL_ASKED);
    }

    /// What it was rung for has come.
    pub(crate) fn asked(&mut self) {
        if self.until.is_some() {
            self.until = Some(Instant::now() + UNTIL_ENDED);
        }
    }

    pub(crate) fn end(&mut self) {
        self.until = None;
    }

    pub(crate) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Waits for something to happen: awake at first, if that is called for.
    pub(crate) fn wait(
        &mut self,
        epoll: &OwnedFd,
        events: &mut [epoll::Event],
        timeout: Option<&Timespec>,
    ) -> Result<usize, Errno> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        while let Some(until) = self.until {
            if Instant::now() >= until {
                self.until = None;
                break;
            }
            match epoll::wait(epoll, &mut *events, Some(&at_once)) {
                Ok(0) => std::hint::spin_loop(),
                happened => return happened,
            }
        }
        epoll::wait(epoll, events, timeout)
    }
}

/// The launcher's next message: looked for again and again once it was told that there soon is one.
pub(crate) fn next_for_launcher(channel: &Channel) -> io::Result<Received<ToLauncher>> {
    loop {
        match channel.receive()? {
            Received::Message(ToLauncher::Soon, _) => {}
            other => return Ok(other),
        }
        let until = Instant::now() + 2 * UNTIL_ASKED;
        while Instant::now() < until {
            match channel.try_receive()? {
                Some(Received::Message(ToLauncher::Soon, _)) => {}
                Some(other) => return Ok(other),
                None => std::hint::spin_loop(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test is no guest, and may have threads")]

    use super::*;
    use workroom_types::{CommandSpec, RoomUser};

    const BELL: u64 = 4;

    fn room() -> (OwnedFd, Vigil, [epoll::Event; 4]) {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let vigil = Vigil::new().unwrap();
        vigil.watch(&epoll, BELL).unwrap();
        let nothing = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        (epoll, vigil, [nothing; 4])
    }

    fn ring(vigil: &Vigil) {
        rustix::io::write(vigil.bell(), &1u64.to_ne_bytes()).unwrap();
    }

    #[test]
    fn each_ring_is_heard_once_and_nobody_has_to_count() {
        let (epoll, mut vigil, mut events) = room();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        for _ in 0..3 {
            ring(&vigil);
            assert_eq!(vigil.wait(&epoll, &mut events, None), Ok(1));
            assert_eq!(events[0].data.u64(), BELL);
            assert_eq!(vigil.wait(&epoll, &mut events, Some(&at_once)), Ok(0));
        }
    }

    #[test]
    fn a_bell_keeps_awake_for_a_moment_and_what_it_was_rung_for_a_little_longer() {
        let (epoll, mut vigil, mut events) = room();
        vigil.asked();
        assert_eq!(vigil.until, None, "nobody has rung");
        vigil.begin();
        let first = vigil.until.unwrap();
        vigil.asked();
        assert!(vigil.until.unwrap() > first);
        // It ends by itself, and then is a wait like any other.
        let short = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        assert_eq!(vigil.wait(&epoll, &mut events, Some(&short)), Ok(0));
        assert_eq!(vigil.until, None);
        // What happens meanwhile is heard, and the vigil goes on.
        vigil.begin();
        ring(&vigil);
        assert_eq!(vigil.wait(&epoll, &mut events, None), Ok(1));
        assert!(vigil.until.is_some());
        vigil.end();
        assert_eq!(vigil.until, None);
    }

    #[test]
    fn a_launcher_that_was_told_to_wait_gets_what_comes_whenever_it_comes() {
        let (guest, launcher) = Channel::pair().unwrap();
        let spec = CommandSpec {
            argv: vec![b"true".to_vec()],
            env: Vec::new(),
            cwd: b"/".to_vec(),
            user: RoomUser::Agent,
            terminal: None,
        };
        let launch = move |command| ToLauncher::Launch { command, spec: spec.clone() };
        let next = || match next_for_launcher(&launcher).unwrap() {
            Received::Message(message, _) => Some(message),
            Received::Closed => None,
        };
        // At once, after being told twice, and long after.
        guest.send(&launch(1), &[]).unwrap();
        assert_eq!(next(), Some(launch(1)));
        guest.send(&ToLauncher::Soon, &[]).unwrap();
        guest.send(&ToLauncher::Soon, &[]).unwrap();
        guest.send(&launch(2), &[]).unwrap();
        assert_eq!(next(), Some(launch(2)));
        guest.send(&ToLauncher::Soon, &[]).unwrap();
        let third = launch(3);
        let late = std::thread::spawn(move || {
            std::thread::sleep(20 * UNTIL_ASKED);
            guest.send(&third, &[]).unwrap();
            guest.send(&ToLauncher::Soon, &[]).unwrap();
        });
        assert!(matches!(next(), Some(ToLauncher::Launch { command: 3, .. })));
        late.join().unwrap();
        assert_eq!(next(), None, "the guest is gone");
    }
}
