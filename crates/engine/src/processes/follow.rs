//! A process's output from a cursor on, as it is written: any number of readers, none of which can hold it up.

use super::entry::Entry;
use std::io;
use std::sync::Arc;
use tokio::sync::watch;
use workroom_proto::{SpoolReader, Stream};
use workroom_types::{OutputStream, Process};

/// Bytes in one piece.
const PIECE: usize = 256 << 10;

/// The next thing that a reader learns.
#[derive(Debug)]
pub enum Followed {
    Output {
        stream: OutputStream,
        /// Where the data begins.
        offset: u64,
        data: Vec<u8>,
        /// Bytes before it that were dropped before they could be read.
        missing: u64,
    },
    /// It has ended, and all that it wrote was given.
    Ended(Box<Process>),
}

/// One reader of a process's output.
pub struct Follower {
    entry: Arc<Entry>,
    reader: SpoolReader,
    changes: watch::Receiver<u64>,
    /// Where each stream is read next; none of a stream that is not wanted.
    cursors: [Option<u64>; 2],
    /// Which stream is looked at first: the other than last time, so that neither starves.
    next: usize,
}

impl Follower {
    pub(crate) fn new(entry: &Arc<Entry>, cursors: [Option<u64>; 2]) -> io::Result<Follower> {
        let changes = entry.changes();
        let reader = entry.reader()?;
        Ok(Follower { entry: entry.clone(), reader, changes, cursors, next: 0 })
    }

    /// What is there already; nothing if all of it was given.
    pub fn try_next(&mut self) -> io::Result<Option<Followed>> {
        for turn in 0..2 {
            let at = (self.next + turn) % 2;
            let Some(cursor) = self.cursors[at] else { continue };
            let piece = self.reader.read(Stream::BOTH[at], cursor, PIECE)?;
            if piece.data.is_empty() {
                continue;
            }
            self.cursors[at] = Some(piece.offset + piece.data.len() as u64);
            self.next = at + 1;
            let stream = [OutputStream::Stdout, OutputStream::Stderr][at];
            let missing = piece.offset.saturating_sub(cursor);
            return Ok(Some(Followed::Output { stream, offset: piece.offset, data: piece.data, missing }));
        }
        Ok(None)
    }

    /// May be dropped and called again without loss. After [`Followed::Ended`] there is nothing more.
    pub async fn next(&mut self) -> io::Result<Followed> {
        loop {
            // In this order: what ended after it was looked at has told of a change.
            self.changes.mark_unchanged();
            let runs = self.entry.is_running();
            if let Some(piece) = self.try_next()? {
                return Ok(piece);
            }
            if !runs {
                return Ok(Followed::Ended(Box::new(self.entry.info())));
            }
            if self.changes.changed().await.is_err() {
                return Ok(Followed::Ended(Box::new(self.entry.info())));
            }
        }
    }

    pub fn cursors(&self) -> [Option<u64>; 2] {
        self.cursors
    }
}
