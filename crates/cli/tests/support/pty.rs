//! A terminal to run the program on, and reading what comes until it is what was waited for.

use super::PATIENCE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Reads from a pipe or terminal, and keeps what it has seen.
pub(crate) struct Watch {
    fd: OwnedFd,
    seen: Vec<u8>,
}

impl Watch {
    pub(crate) fn new(fd: impl Into<OwnedFd>) -> Watch {
        Watch { fd: fd.into(), seen: Vec::new() }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// What came until now, without waiting.
    pub(crate) fn now(&mut self) -> String {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        while poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&at_once)) == Ok(1)
            && self.more(Instant::now())
        {}
        self.text()
    }

    /// Waits until `words` have come, and forgets what came up to there.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.text();
            if let Some(at) = text.find(words) {
                let end = at + words.len();
                self.seen = text.as_bytes()[end..].to_vec();
                return text[..end].to_owned();
            }
            assert!(self.more(deadline), "it ended before {words:?} came; it said {text:?}");
        }
    }

    /// Waits for the end of it all and returns what was not asked for yet.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        while self.more(deadline) {}
        self.text()
    }

    /// Takes what there is; says whether more may come.
    #[track_caller]
    fn more(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let ready = poll(&mut fds, Some(&timeout)).expect("poll");
        assert!(ready > 0, "nothing came for {PATIENCE:?}; before that {:?}", self.text());
        let mut piece = [0u8; 65536];
        match rustix::io::read(&self.fd, &mut piece) {
            // A terminal says EIO when its last user is gone.
            Ok(0) | Err(rustix::io::Errno::IO) => false,
            Ok(read) => {
                self.seen.extend_from_slice(&piece[..read]);
                true
            }
            Err(error) => panic!("read: {error}"),
        }
    }
}

/// A terminal: the side that a person sits at, and the side that programs run on.
pub(crate) struct Pty {
    pub(crate) master: OwnedFd,
    slave: File,
}

impl Pty {
    pub(crate) fn new(rows: u16, cols: u16) -> Pty {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("openpt");
        grantpt(&master).expect("grantpt");
        unlockpt(&master).expect("unlockpt");
        let name = ptsname(&master, Vec::new()).expect("ptsname");
        let slave = File::options()
            .read(true)
            .write(true)
            .custom_flags(OpenptFlags::NOCTTY.bits() as i32)
            .open(name.to_str().expect("a plain name"))
            .expect("open the terminal");
        let pty = Pty { master, slave };
        pty.resize(rows, cols);
        pty
    }

    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, size).expect("resize");
    }

    pub(crate) fn modes(&self) -> Termios {
        tcgetattr(&self.slave).expect("tcgetattr")
    }

    pub(crate) fn slave(&self) -> Stdio {
        self.slave.try_clone().expect("clone").into()
    }

    /// Starts a command with this as its controlling terminal.
    pub(crate) fn start(&self, command: &mut Command) -> (Child, Watch) {
        let child = command.stdin(self.slave()).stdout(self.slave()).stderr(self.slave()).spawn();
        let watch = Watch::new(self.master.as_fd().try_clone_to_owned().expect("clone"));
        (child.expect("start"), watch)
    }

    /// Bytes that were typed and that nobody has read.
    pub(crate) fn unread(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.slave).expect("fionread")
    }

    /// Types.
    pub(crate) fn send(&self, keys: &[u8]) {
        rustix::io::write(&self.master, keys).expect("type");
    }
}
