//! A command's output as the guest keeps it and the host reads it: one file, bounded, whatever is written.
//!
//! ```text
//!  0        8        16       24     4096
//!  │ stdout │ stderr │ shape  │ …    │ head │ ring ││ head │ ring │
//!    bytes    bytes    head, ring      └── stdout ──┘└── stderr ──┘
//!    written  written
//! ```
//!
//! The first `head` bytes of a stream stay; of the rest the last `ring` bytes do. A count is written after the
//! bytes that it counts; a reader looks at it again after reading, and drops what was overwritten meanwhile.

use crate::OutputRule;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Where the streams begin.
const BODY: u64 = PAGE;

const PAGE: u64 = 4096;

/// The streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout = 0,
    Stderr = 1,
}

impl Stream {
    pub const BOTH: [Stream; 2] = [Stream::Stdout, Stream::Stderr];
}

/// The writing side.
#[derive(Debug)]
pub struct Spool {
    file: OwnedFd,
    rule: OutputRule,
    written: [u64; 2],
}

impl Spool {
    /// In memory, and only as much of it as is written.
    pub fn new(rule: OutputRule) -> io::Result<Spool> {
        Spool::on(memfd_create("output", MemfdFlags::CLOEXEC)?, rule)
    }

    /// On a file that is empty.
    pub fn on(file: OwnedFd, rule: OutputRule) -> io::Result<Spool> {
        let shape = [rule.head.to_ne_bytes(), rule.ring.to_ne_bytes()].concat();
        write_at(file.as_fd(), &shape, 16)?;
        Ok(Spool { file, rule, written: [0; 2] })
    }

    pub fn append(&mut self, stream: Stream, mut data: &[u8]) -> io::Result<()> {
        let OutputRule { head, ring, .. } = self.rule;
        let base = BODY + stream as u64 * (head + ring);
        let mut at = self.written[stream as usize];
        let end = at + data.len() as u64;
        // Of more than a ring full, all but the end would be overwritten in this very call.
        if ring > 0 && at >= head && data.len() as u64 > ring {
            let skipped = data.len() as u64 - ring;
            data = &data[skipped as usize..];
            at += skipped;
        }
        while !data.is_empty() {
            let (place, room) = if at < head {
                (at, head - at)
            } else if ring > 0 {
                let inside = (at - head) % ring;
                (head + inside, ring - inside)
            } else {
                break;
            };
            let (now, later) = data.split_at(data.len().min(room as usize));
            write_at(self.file.as_fd(), now, base + place)?;
            at += now.len() as u64;
            data = later;
        }
        self.written[stream as usize] = end;
        write_at(self.file.as_fd(), &end.to_ne_bytes(), stream as u64 * 8)
    }

    pub fn written(&self) -> [u64; 2] {
        self.written
    }

    /// What it takes, in whole pages, once so much more is written to a stream.
    pub fn size_with(&self, stream: Stream, more: u64) -> u64 {
        let mut written = self.written;
        written[stream as usize] = written[stream as usize].saturating_add(more);
        size(self.rule.head, self.rule.ring, written)
    }
}

/// What a spool of this shape takes, in whole pages. A stream that begins within a page takes all of that.
fn size(head: u64, ring: u64, written: [u64; 2]) -> u64 {
    let most = head.saturating_add(ring);
    let pages = |written: u64| match written.min(most) {
        0 => 0,
        kept => kept.next_multiple_of(PAGE).saturating_add(PAGE),
    };
    BODY.saturating_add(pages(written[0])).saturating_add(pages(written[1]))
}

impl AsFd for Spool {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The reading side, on the other side's descriptor.
#[derive(Debug)]
pub struct SpoolReader {
    file: OwnedFd,
    head: u64,
    ring: u64,
}

/// A piece of a stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins: not where was asked for, if that is gone already.
    pub offset: u64,
    pub data: Vec<u8>,
}

impl SpoolReader {
    /// Checks that it is a plain file, and of a possible shape.
    pub fn new(file: OwnedFd) -> io::Result<SpoolReader> {
        let stat = rustix::fs::fstat(&file)?;
        if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a spool that is not a file"));
        }
        let mut reader = SpoolReader { file, head: 0, ring: 0 };
        (reader.head, reader.ring) = (reader.number(16)?, reader.number(24)?);
        if reader.head.max(reader.ring) > 1 << 40 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a spool of an impossible size"));
        }
        Ok(reader)
    }

    /// How many bytes were ever written to a stream.
    pub fn written(&self, stream: Stream) -> io::Result<u64> {
        self.number(stream as u64 * 8)
    }

    /// What it takes, in whole pages.
    pub fn size(&self) -> io::Result<u64> {
        Ok(size(self.head, self.ring, [self.written(Stream::Stdout)?, self.written(Stream::Stderr)?]))
    }

    /// Where what is kept without a gap up to the end begins: bytes before it, behind the head, are dropped.
    pub fn first_kept(&self, stream: Stream) -> io::Result<u64> {
        let written = self.written(stream)?;
        if written <= self.head + self.ring {
            return Ok(0);
        }
        Ok(written - self.ring)
    }

    /// Up to `most` bytes from `offset` on, or from the first that is still there after it.
    pub fn read(&self, stream: Stream, offset: u64, most: usize) -> io::Result<Piece> {
        let base = BODY + stream as u64 * (self.head + self.ring);
        let mut offset = offset;
        loop {
            let written = self.written(stream)?;
            offset = offset.max(self.oldest(offset, written));
            if offset >= written {
                return Ok(Piece { offset, data: Vec::new() });
            }
            let (place, room) = if offset < self.head {
                (offset, self.head - offset)
            } else {
                let inside = (offset - self.head) % self.ring.max(1);
                (self.head + inside, self.ring - inside)
            };
            let wanted = room.min(written - offset).min(most as u64);
            let mut data = vec![0; wanted as usize];
            let read =
                rustix::io::retry_on_intr(|| rustix::io::pread(&self.file, &mut data[..], base + place))?;
            data.truncate(read);
            // What was overtaken while we read is not what was asked for.
            let oldest = self.oldest(offset, self.written(stream)?);
            if oldest <= offset {
                return Ok(Piece { offset, data });
            }
            offset = oldest;
        }
    }

    /// The first byte at or after `offset` that is still there.
    fn oldest(&self, offset: u64, written: u64) -> u64 {
        if offset < self.head { offset } else { offset.max(written.saturating_sub(self.ring)).max(self.head) }
    }

    fn number(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(&self.file, &mut bytes, at))?;
        // A file that is shorter than its header has nothing written yet.
        Ok(if read == 8 { u64::from_ne_bytes(bytes) } else { 0 })
    }
}

fn write_at(file: BorrowedFd<'_>, mut data: &[u8], mut at: u64) -> io::Result<()> {
    while !data.is_empty() {
        match rustix::io::pwrite(file, data, at) {
            Ok(written) => {
                data = &data[written..];
                at += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(head: u64, ring: u64) -> (Spool, SpoolReader) {
        let spool = Spool::new(OutputRule { head, ring, live: false }).unwrap();
        let reader = SpoolReader::new(spool.as_fd().try_clone_to_owned().unwrap()).unwrap();
        (spool, reader)
    }

    /// Everything from `offset` on, with where each piece began.
    fn all(reader: &SpoolReader, stream: Stream, mut offset: u64) -> Vec<(u64, Vec<u8>)> {
        let mut pieces = Vec::new();
        loop {
            let piece = reader.read(stream, offset, 5).unwrap();
            if piece.data.is_empty() {
                return pieces;
            }
            offset = piece.offset + piece.data.len() as u64;
            pieces.push((piece.offset, piece.data));
        }
    }

    /// Against a plain model: the first bytes and the last bytes, whatever the sizes and the cuts.
    #[test]
    fn the_beginning_and_the_end_are_kept_whatever_is_written() {
        for head in [0u64, 1, 7] {
            for ring in [1u64, 4, 9] {
                let mut model = Vec::new();
                let (mut spool, reader) = pair(head, ring);
                for (turn, cut) in [3usize, 0, 1, 11, 2, 40, 5, 1, 1].into_iter().enumerate() {
                    let chunk: Vec<u8> = (0..cut).map(|n| (turn * 31 + n) as u8).collect();
                    model.extend_from_slice(&chunk);
                    spool.append(Stream::Stderr, &chunk).unwrap();
                    let written = model.len() as u64;
                    assert_eq!(reader.written(Stream::Stderr).unwrap(), written);
                    assert_eq!(reader.written(Stream::Stdout).unwrap(), 0);
                    let mut seen = Vec::new();
                    for (offset, data) in all(&reader, Stream::Stderr, 0) {
                        for (n, byte) in data.iter().enumerate() {
                            seen.push(offset + n as u64);
                            assert_eq!(model[offset as usize + n], *byte, "at {offset}+{n}");
                        }
                    }
                    let kept: Vec<u64> =
                        (0..written).filter(|at| *at < head || *at + ring >= written).collect();
                    assert_eq!(seen, kept, "head {head} ring {ring} written {written}");
                }
            }
        }
    }

    #[test]
    fn a_reader_that_is_behind_is_told_where_it_is() {
        let (mut spool, reader) = pair(2, 4);
        spool.append(Stream::Stdout, b"0123456789").unwrap();
        let piece = reader.read(Stream::Stdout, 3, 100).unwrap();
        assert_eq!(piece, Piece { offset: 6, data: b"6789".to_vec() });
        assert_eq!(reader.read(Stream::Stdout, 8, 100).unwrap().data, b"89");
        assert_eq!(reader.read(Stream::Stdout, 99, 100).unwrap().data, b"");
    }
}
