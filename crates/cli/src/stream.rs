//! One direction of a command's input or output, moved piece by piece when both sides are ready.

use crate::capture::Capture;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// As much as a pipe holds by default.
const PIECE: usize = 64 << 10;

/// What a pipe is sure to take when it says that it takes something.
const SURE: usize = 4096;

/// The command's output on its way to the caller.
pub(crate) struct Outflow {
    source: Option<OwnedFd>,
    sink: BorrowedFd<'static>,
    kept: Option<Capture>,
    /// The source has something, and the sink is waited for.
    holding: bool,
    /// Both sides can be spliced, as far as is known.
    splices: bool,
    /// The sink is a pipe or socket, whose reader may be slow.
    careful: bool,
    /// Why what was written could not be passed on. A reader that has gone away is no reason.
    lost: Option<Errno>,
}

/// Why a piece was not moved.
enum Stuck {
    Source(Errno),
    Sink(Errno),
}

impl Outflow {
    pub(crate) fn closed() -> Outflow {
        Outflow {
            source: None,
            sink: rustix::stdio::stdout(),
            kept: None,
            holding: false,
            splices: false,
            careful: false,
            lost: None,
        }
    }

    pub(crate) fn new(source: OwnedFd, sink: BorrowedFd<'static>, capture: bool) -> Outflow {
        let kind = fstat(sink).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let careful = matches!(kind, Ok(FileType::Fifo | FileType::Socket | FileType::CharacterDevice));
        let kept = capture.then(Capture::default);
        // What poll saw may be gone by the time it is read: the room can read its own output.
        set_nonblocking(&source);
        Outflow { source: Some(source), sink, kept, holding: false, splices: true, careful, lost: None }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.source.is_none()
    }

    /// When nobody in the room can write any more: closes what holds nothing, though others may have it open.
    pub(crate) fn close_if_empty(&mut self) {
        let Some(source) = &self.source else { return };
        let mut fds = [PollFd::new(source, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let readable =
            rustix::event::poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::IN);
        if !readable {
            self.source = None;
        }
    }

    /// Stops waiting for whoever should read.
    pub(crate) fn give_up(&mut self) {
        self.source = None;
    }

    /// What became of it, if not all of it arrived.
    pub(crate) fn lost(&self) -> Option<Errno> {
        self.lost
    }

    pub(crate) fn into_capture(self) -> Capture {
        self.kept.unwrap_or_default()
    }

    pub(crate) fn waits_for(&self) -> Option<PollFd<'_>> {
        let source = self.source.as_ref()?;
        Some(if self.holding {
            PollFd::from_borrowed_fd(self.sink, PollFlags::OUT)
        } else {
            PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN)
        })
    }

    /// What was waited for has come.
    pub(crate) fn advance(&mut self) {
        if !self.holding && self.kept.is_none() && self.careful {
            self.holding = true;
            return;
        }
        self.holding = false;
        let Some(source) = &self.source else { return };
        let moved = match &mut self.kept {
            Some(capture) => {
                let mut piece = [0u8; PIECE];
                rustix::io::read(source, &mut piece)
                    .inspect(|&read| capture.push(&piece[..read]))
                    .map_err(Stuck::Source)
            }
            None => self.pass_on(),
        };
        match moved {
            // The end; or, on a terminal, EIO: its last user is gone; or nobody reads any more, in which
            // case closing our side tells the command so.
            Ok(0) => self.source = None,
            Ok(_)
            | Err(Stuck::Source(Errno::AGAIN | Errno::INTR) | Stuck::Sink(Errno::AGAIN | Errno::INTR)) => {}
            Err(Stuck::Source(_) | Stuck::Sink(Errno::PIPE)) => self.source = None,
            Err(Stuck::Sink(error)) => {
                self.lost = Some(error);
                self.source = None;
            }
        }
    }

    fn pass_on(&mut self) -> Result<usize, Stuck> {
        let Some(source) = &self.source else { return Ok(0) };
        if self.splices {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            match splice(source, None, self.sink, None, 16 * PIECE, flags) {
                moved @ (Ok(_) | Err(Errno::AGAIN | Errno::INTR)) => return moved.map_err(Stuck::Source),
                // Terminals and files opened for appending cannot be spliced to. What else went wrong, and on which side, shows
                // when it is read and written.
                Err(_) => self.splices = false,
            }
        }
        let mut piece = [0u8; PIECE];
        let most = if self.careful { SURE } else { PIECE };
        let read = rustix::io::read(source, &mut piece[..most]).map_err(Stuck::Source)?;
        let mut left = &piece[..read];
        while !left.is_empty() {
            match rustix::io::write(self.sink, left) {
                Ok(written) => left = &left[written..],
                Err(Errno::INTR) => {}
                // A caller that made its own stdout non-blocking still gets every byte.
                Err(Errno::AGAIN) => {
                    let mut fds = [PollFd::from_borrowed_fd(self.sink, PollFlags::OUT)];
                    let _ = rustix::event::poll(&mut fds, None);
                }
                Err(error) => return Err(Stuck::Sink(error)),
            }
        }
        Ok(read)
    }
}

/// The caller's stdin on its way to the command.
pub(crate) struct Inflow {
    sink: Option<OwnedFd>,
    /// Read, and not taken by the command yet.
    pending: Vec<u8>,
    holding: bool,
    splices: bool,
    /// What the command is sent when stdin ends: a terminal has no end of its own.
    farewell: &'static [u8],
}

impl Inflow {
    pub(crate) fn closed() -> Inflow {
        Inflow { sink: None, pending: Vec::new(), holding: false, splices: false, farewell: b"" }
    }

    pub(crate) fn to_pipe(sink: OwnedFd) -> Inflow {
        set_nonblocking(&sink);
        Inflow { sink: Some(sink), pending: Vec::new(), holding: false, splices: true, farewell: b"" }
    }

    pub(crate) fn to_terminal(sink: OwnedFd) -> Inflow {
        set_nonblocking(&sink);
        Inflow { sink: Some(sink), pending: Vec::new(), holding: false, splices: false, farewell: b"\x04" }
    }

    pub(crate) fn waits_for(&self) -> Option<PollFd<'_>> {
        let sink = self.sink.as_ref()?;
        Some(if self.holding {
            PollFd::from_borrowed_fd(sink.as_fd(), PollFlags::OUT)
        } else {
            PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN)
        })
    }

    pub(crate) fn advance(&mut self) {
        if !self.holding {
            self.holding = true;
            return;
        }
        self.holding = false;
        let Some(sink) = &self.sink else { return };
        let moved = match self.splices {
            true => {
                let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
                splice(rustix::stdio::stdin(), None, sink, None, PIECE, flags)
            }
            false => self.pass_on(),
        };
        match moved {
            Ok(0) => self.sink = None,
            Err(Errno::INVAL) if self.splices => self.splices = false,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            // The command reads no more, or there is no stdin.
            Err(_) => self.sink = None,
        }
    }
}

impl Inflow {
    /// Reads only when all that was read before is taken: a terminal that takes something may take little.
    fn pass_on(&mut self) -> Result<usize, Errno> {
        let Some(sink) = &self.sink else { return Ok(0) };
        if self.pending.is_empty() {
            let mut piece = [0u8; SURE];
            let read = rustix::io::read(rustix::stdio::stdin(), &mut piece)?;
            if read == 0 {
                let _ = rustix::io::write(sink, self.farewell);
                return Ok(0);
            }
            self.pending.extend_from_slice(&piece[..read]);
        }
        let written = rustix::io::write(sink, &self.pending);
        // What is left is tried again when the sink takes something, before stdin is looked at.
        self.holding = true;
        let written = written?;
        self.pending.drain(..written);
        self.holding = !self.pending.is_empty();
        Ok(written)
    }
}

pub(crate) fn set_nonblocking(fd: &OwnedFd) {
    if let Ok(flags) = fcntl_getfl(fd) {
        let _ = fcntl_setfl(fd, flags | OFlags::NONBLOCK);
    }
}
