//! What a command wrote: a little in memory, more in a spool that the host can read.

use crate::redaction::Redacting;
use rustix::event::{EventfdFlags, eventfd};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;
use workroom_proto::{OutputRule, Spool, Stream};

/// As much of each stream as travels in a message.
const SMALL: usize = 1400;

/// Bytes that all spools of a room may take together: they are the guest's memory, which the room's limit does not
/// count.
const MOST_SPOOLED: u64 = 256 << 20;

/// What the spools of a room may take, as far as they are taken.
#[derive(Clone, Default)]
pub(crate) struct SpoolSpace {
    taken: Rc<Cell<u64>>,
}

/// A part of it, given back when it is dropped.
struct Taken {
    space: SpoolSpace,
    bytes: u64,
}

impl SpoolSpace {
    fn take(&self, bytes: u64) -> io::Result<Taken> {
        let mut taken = Taken { space: self.clone(), bytes: 0 };
        taken.grow(bytes)?;
        Ok(taken)
    }
}

impl Taken {
    fn grow(&mut self, to: u64) -> io::Result<()> {
        let more = to.saturating_sub(self.bytes);
        let taken = self.space.taken.get().saturating_add(more);
        if taken > MOST_SPOOLED {
            return Err(io::Error::other(
                "what its commands have written takes all the memory there is for it",
            ));
        }
        self.space.taken.set(taken);
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.space.taken.set(self.space.taken.get() - self.bytes);
    }
}

/// The output of one command. Grows to its rule's size and no further.
pub(crate) struct Output {
    rule: OutputRule,
    small: [Vec<u8>; 2],
    written: [u64; 2],
    /// With the space that it takes, if that is memory.
    spool: Option<(Spool, Option<Taken>)>,
    space: SpoolSpace,
    /// What came after there was no more space is not kept, so that what is has no gap.
    is_cut: bool,
    /// Grows with every write, so that a host that reads along need not ask.
    counter: Option<OwnedFd>,
    /// Where there are secrets that must not be seen in it.
    redacting: Option<Box<Redacting>>,
}

impl Output {
    pub(crate) fn new(rule: OutputRule, space: &SpoolSpace) -> io::Result<Output> {
        let mut output = Output {
            rule,
            small: Default::default(),
            written: [0; 2],
            spool: None,
            space: space.clone(),
            is_cut: false,
            counter: None,
            redacting: None,
        };
        if rule.live {
            output.share()?;
        }
        Ok(output)
    }

    /// All of it in a file of the host's.
    pub(crate) fn on(file: OwnedFd, rule: OutputRule) -> io::Result<Output> {
        let mut output = Output {
            rule,
            small: Default::default(),
            written: [0; 2],
            spool: Some((Spool::on(file, rule)?, None)),
            space: SpoolSpace::default(),
            is_cut: false,
            counter: None,
            redacting: None,
        };
        output.share()?;
        Ok(output)
    }

    /// What it wrote, without secrets.
    pub(crate) fn append(&mut self, stream: Stream, data: &[u8]) {
        let Some(mut redacting) = self.redacting.take() else { return self.put(stream, data) };
        self.put(stream, redacting.push(stream, data));
        self.redacting = Some(redacting);
    }

    /// From now on it is redacted, if there is something to look for.
    pub(crate) fn redact(&mut self, redacting: Option<Box<Redacting>>) {
        self.redacting = redacting;
    }

    pub(crate) fn redacting(&mut self) -> Option<&mut Redacting> {
        self.redacting.as_deref_mut()
    }

    /// When what is held back of it was held for long enough.
    pub(crate) fn idle_at(&self) -> Option<Instant> {
        self.redacting.as_ref()?.idle_at()
    }

    /// Nothing has come for a while: what is harmless of what is held back goes on.
    pub(crate) fn idle(&mut self) {
        let Some(mut redacting) = self.redacting.take() else { return };
        Stream::BOTH.into_iter().for_each(|stream| self.put(stream, redacting.idle(stream)));
        self.redacting = Some(redacting);
    }

    /// It has ended, or what follows belongs to something else: nothing is held back any more.
    pub(crate) fn finish(&mut self) {
        let Some(mut redacting) = self.redacting.take() else { return };
        Stream::BOTH.into_iter().for_each(|stream| self.put(stream, redacting.finish(stream)));
        self.redacting = Some(redacting);
    }

    fn put(&mut self, stream: Stream, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.written[stream as usize] += data.len() as u64;
        let small = &mut self.small[stream as usize];
        if self.spool.is_none() && !self.is_cut && small.len() + data.len() <= SMALL {
            small.extend_from_slice(data);
            return;
        }
        if !self.is_cut && self.spool_up(stream, data).is_err() {
            self.is_cut = true;
            if self.spool.is_none() {
                let small = &mut self.small[stream as usize];
                small.extend_from_slice(&data[..data.len().min(SMALL - small.len())]);
            }
        }
        if let Some(counter) = &self.counter {
            let _ = rustix::io::write(counter, &1u64.to_ne_bytes());
        }
    }

    /// Without memory for it the bytes are lost, and their number is known.
    fn spool_up(&mut self, stream: Stream, data: &[u8]) -> io::Result<()> {
        self.spill(stream, data.len())?;
        let Some((spool, taken)) = &mut self.spool else { return Ok(()) };
        if let Some(taken) = taken {
            taken.grow(spool.size_with(stream, data.len() as u64))?;
        }
        spool.append(stream, data)
    }

    /// Moves what is in memory to a spool, if there is space for that and for so much more.
    fn spill(&mut self, to: Stream, more: usize) -> io::Result<()> {
        if self.spool.is_none() {
            let mut spool = Spool::new(self.rule)?;
            let mut taken = self.space.take(spool.size_with(to, 0))?;
            for stream in Stream::BOTH {
                let small = &self.small[stream as usize];
                let more = if stream == to { more } else { 0 };
                taken.grow(spool.size_with(stream, (small.len() + more) as u64))?;
                spool.append(stream, small)?;
            }
            self.small = Default::default();
            self.spool = Some((spool, Some(taken)));
        }
        Ok(())
    }

    /// The spool and its counter, for a host that wants to read along.
    pub(crate) fn share(&mut self) -> io::Result<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        self.spill(Stream::Stdout, 0)?;
        if self.counter.is_none() {
            self.counter = Some(eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        }
        match (&self.spool, &self.counter) {
            (Some((spool, _)), Some(counter)) => Ok((spool.as_fd(), counter.as_fd())),
            _ => Err(io::ErrorKind::Other.into()),
        }
    }

    pub(crate) fn written(&self) -> [u64; 2] {
        self.written
    }

    /// All of it, if that is little; else the spool.
    pub(crate) fn whole(&self) -> (Option<[Vec<u8>; 2]>, Option<BorrowedFd<'_>>) {
        match &self.spool {
            Some((spool, _)) => (None, Some(spool.as_fd())),
            None => (Some(self.small.clone()), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workroom_proto::SpoolReader;

    fn rule(bytes: u64) -> OutputRule {
        OutputRule { head: bytes / 2, ring: bytes / 2, live: false }
    }

    /// All commands of a room together take what there is, and what is not kept is still counted.
    #[test]
    fn spools_share_one_space_and_give_it_back() {
        let space = SpoolSpace::default();
        let large = vec![b'x'; MOST_SPOOLED as usize - (64 << 10)];
        let mut first = Output::new(rule(2 * MOST_SPOOLED), &space).unwrap();
        first.append(Stream::Stdout, &large);
        assert!(first.whole().1.is_some());
        let some = vec![b'y'; 128 << 10];
        let mut second = Output::new(rule(1 << 20), &space).unwrap();
        second.append(Stream::Stderr, &some);
        second.append(Stream::Stderr, b"more");
        assert_eq!(second.written(), [0, some.len() as u64 + 4]);
        // The beginning, as far as that takes no spool, and nothing after what is missing.
        assert_eq!(second.whole().0.unwrap()[1], some[..SMALL]);
        // One that has begun keeps what it has.
        let mut begun = Output::new(rule(1 << 20), &space).unwrap();
        begun.append(Stream::Stdout, &some[..16 << 10]);
        begun.append(Stream::Stdout, &some);
        begun.append(Stream::Stdout, b"more");
        assert_eq!(begun.written(), [(16 << 10) + some.len() as u64 + 4, 0]);
        let reader = SpoolReader::new(begun.whole().1.unwrap().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(reader.written(Stream::Stdout).unwrap(), 16 << 10);
        drop(first);
        let mut third = Output::new(rule(1 << 20), &space).unwrap();
        third.append(Stream::Stdout, &some);
        assert!(third.whole().1.is_some());
        drop((second, begun, third));
        assert_eq!(space.taken.get(), 0);
    }

    /// What a command may write and has not takes nothing.
    #[test]
    fn only_what_is_written_takes_space() {
        let space = SpoolSpace::default();
        let live = OutputRule { head: 32 << 20, ring: 32 << 20, live: true };
        let mut many: Vec<Output> = (0..1000).map(|_| Output::new(live, &space).unwrap()).collect();
        many.iter_mut().for_each(|output| output.append(Stream::Stdout, b"a line\n"));
        assert!(space.taken.get() < 32 << 20, "{}", space.taken.get());
        many.clear();
        assert_eq!(space.taken.get(), 0);
        // Of more than is kept, no more than is kept.
        let mut endless = Output::new(rule(64 << 10), &space).unwrap();
        (0..1000).for_each(|_| endless.append(Stream::Stdout, &[b'x'; 4096]));
        assert!(space.taken.get() <= (64 << 10) + (12 << 10), "{}", space.taken.get());
    }
}
