//! Redaction of a stream of bytes that comes in pieces.
//!
//! ```text
//!                    dealt with            undecided
//!  raw      ├──────────────────────┬────────────────────┤ more to come
//!           │ forgotten   │ needed │ held back          │
//!                         └ a secret may have begun here
//! ```
//!
//! **What comes out does not depend on how the stream was cut into pieces.** Only what may be the start of a
//! secret is held back, from its first byte on, and never more than 1 KiB, which is as much as is looked for at a
//! time: ordinary output passes at once.
//!
//! **Who redacts.** Whoever writes a stream down, before it is written: once, in one place. All readers then see
//! the same bytes at the same offsets, cursors count redacted bytes, and a reader resumes at an offset without
//! knowing of any of this. A writer that starts anew in the middle of a stream, over raw bytes that are kept
//! elsewhere, continues from a [`Checkpoint`].
//!
//! **Idle streams.** A shell that echoes `s` while a secret begins with `s` must not look dead. When nothing has
//! come for a while (50 ms, say) the writer calls [`RedactStream::idle`]. That shows what is held back as far as
//! it is harmless: at most a quarter of any secret that it may become, and at most eight bytes. Should the secret
//! then really come, its rest is covered, and the few bytes stay seen. Longer pieces wait, however long it takes.
//!
//! **The end.** A stream may end anywhere: a time-out, a limit, a kill. [`RedactStream::finish`] covers a piece
//! of a secret at the very end if it is more than a harmless one, and has at least four bytes.

use crate::cover::{Cover, Ending};
use crate::redactor::{Redactor, SharedRedactor};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One stream on its way through redaction.
pub struct RedactStream {
    redactor: SharedRedactor,
    /// The end of what came: bytes that are needed for a decision, those before `cover.done` only to look back at.
    held: Vec<u8>,
    cover: Cover,
    read: u64,
    written: u64,
    hits: Vec<crate::finder::Hit>,
}

/// Where a stream stands, without a byte of it: enough to go on in another process that has the raw bytes from
/// `raw` on. The same secrets give the same bytes as if nothing had happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The raw offset of the next byte to push.
    pub raw: u64,
    /// The offset in the redacted stream of the next byte to come out.
    pub redacted: u64,
    /// So many bytes from `raw` on have been dealt with, and are pushed again only to be looked back at.
    dealt_with: u64,
    /// Names already given for the region that ends there.
    region: Vec<String>,
}

impl RedactStream {
    pub fn new(redactor: &SharedRedactor) -> RedactStream {
        RedactStream {
            redactor: redactor.clone(),
            held: Vec::new(),
            cover: Cover::default(),
            read: 0,
            written: 0,
            hits: Vec::new(),
        }
    }

    /// Goes on where another stopped: push the raw bytes from `checkpoint.raw` on.
    pub fn resume(redactor: &SharedRedactor, checkpoint: &Checkpoint) -> RedactStream {
        let mut stream = RedactStream::new(redactor);
        (stream.read, stream.written) = (checkpoint.raw, checkpoint.redacted);
        stream.cover.done = usize::try_from(checkpoint.dealt_with).unwrap_or(usize::MAX);
        stream.cover.region = checkpoint.region.iter().map(|name| name.as_str().into()).collect();
        stream
    }

    /// Goes on in the place of another, in this process, with what that one holds back.
    pub fn take_over(&mut self, before: RedactStream) {
        let redactor = self.redactor.clone();
        *self = RedactStream { redactor, ..before };
    }

    /// Where a new stream could take over from this one.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            raw: self.read - self.held.len() as u64,
            redacted: self.written,
            dealt_with: self.cover.done as u64,
            region: self.cover.region.iter().map(|name| name.to_string()).collect(),
        }
    }

    /// Takes the next bytes, and appends to `out` what can be shown.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        self.read += chunk.len() as u64;
        let redactor = self.redactor.get();
        if !self.held.is_empty() {
            self.held.extend_from_slice(chunk);
            let text = std::mem::take(&mut self.held);
            let needed = self.walk(&redactor, &text, Ending::Open, out);
            self.keep(text, needed);
        } else {
            // The usual case: nothing is held, nothing is copied but to where it goes.
            let needed = self.walk(&redactor, chunk, Ending::Open, out);
            self.held.extend_from_slice(&chunk[needed..]);
        }
    }

    /// Bytes are held back that [`idle`](Self::idle) might show.
    pub fn is_waiting(&self) -> bool {
        self.cover.done < self.held.len()
    }

    /// Nothing has come for a while: appends what is harmless of what is held back.
    pub fn idle(&mut self, out: &mut Vec<u8>) {
        let redactor = self.redactor.get();
        let text = std::mem::take(&mut self.held);
        let needed = self.walk(&redactor, &text, Ending::Idle, out);
        self.keep(text, needed);
    }

    /// The stream has ended, or is cut off here: appends the rest. What is pushed afterwards begins anew.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let redactor = self.redactor.get();
        let text = std::mem::take(&mut self.held);
        self.walk(&redactor, &text, Ending::Cut, out);
        self.cover = Cover::default();
    }

    /// How many redacted bytes have come out.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn walk(&mut self, redactor: &Arc<Redactor>, text: &[u8], ending: Ending, out: &mut Vec<u8>) -> usize {
        let before = out.len();
        redactor.finder().find(text, &mut self.hits);
        let needed = self.cover.walk(redactor, text, &self.hits, ending, out);
        self.written += (out.len() - before) as u64;
        // A resumed stream may not have got all yet that was dealt with before.
        let needed = needed.min(text.len());
        self.cover.done = self.cover.done.saturating_sub(needed);
        needed
    }

    fn keep(&mut self, mut text: Vec<u8>, needed: usize) {
        text.drain(..needed);
        self.held = text;
    }
}
