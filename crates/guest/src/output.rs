//! What a command wrote: a little in memory, more in a spool that the host can read.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use workroom_proto::{OutputRule, Spool, Stream};

/// As much of each stream as travels in a message.
const SMALL: usize = 1400;

/// The output of one command. Grows to its rule's size and no further.
pub(crate) struct Output {
    rule: OutputRule,
    small: [Vec<u8>; 2],
    written: [u64; 2],
    spool: Option<Spool>,
    /// Grows with every write, so that a host that reads along need not ask.
    counter: Option<OwnedFd>,
}

impl Output {
    pub(crate) fn new(rule: OutputRule) -> io::Result<Output> {
        let mut output =
            Output { rule, small: Default::default(), written: [0; 2], spool: None, counter: None };
        if rule.live {
            output.share()?;
        }
        Ok(output)
    }

    pub(crate) fn append(&mut self, stream: Stream, data: &[u8]) {
        self.written[stream as usize] += data.len() as u64;
        let small = &mut self.small[stream as usize];
        if self.spool.is_none() && small.len() + data.len() <= SMALL {
            small.extend_from_slice(data);
            return;
        }
        // Without memory for a spool the bytes are lost and their number is known.
        if self.spill().is_ok()
            && let Some(spool) = &mut self.spool
        {
            let _ = spool.append(stream, data);
        }
        if let Some(counter) = &self.counter {
            let _ = rustix::io::write(counter, &1u64.to_ne_bytes());
        }
    }

    /// Moves what is in memory to a spool.
    fn spill(&mut self) -> io::Result<()> {
        if self.spool.is_none() {
            let mut spool = Spool::new(self.rule)?;
            for stream in Stream::BOTH {
                spool.append(stream, &std::mem::take(&mut self.small[stream as usize]))?;
            }
            self.spool = Some(spool);
        }
        Ok(())
    }

    /// The spool and its counter, for a host that wants to read along.
    pub(crate) fn share(&mut self) -> io::Result<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        self.spill()?;
        if self.counter.is_none() {
            self.counter = Some(eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        }
        match (&self.spool, &self.counter) {
            (Some(spool), Some(counter)) => Ok((spool.as_fd(), counter.as_fd())),
            _ => Err(io::ErrorKind::Other.into()),
        }
    }

    pub(crate) fn written(&self) -> [u64; 2] {
        self.written
    }

    /// All of it, if that is little; else the spool.
    pub(crate) fn whole(&self) -> (Option<[Vec<u8>; 2]>, Option<BorrowedFd<'_>>) {
        match &self.spool {
            Some(spool) => (None, Some(spool.as_fd())),
            None => (Some(self.small.clone()), None),
        }
    }
}
