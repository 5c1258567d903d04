//! From hits to redacted text: what is covered, what is shown, and what must wait.
//!
//! Every byte of every occurrence is covered, also where occurrences overlap. Occurrences that overlap are one
//! *region*, and so are sections of a long one that follow each other; it is replaced by the names of those that reach
//! further than the ones before, each name once. So `[REDACTED:…]` is never looked at again, and a secret inside a
//! longer one does not show.

use crate::finder::Hit;
use crate::forms::SHORTEST;
use crate::redactor::{Label, Redactor};
use std::sync::Arc;

/// What is known of the text behind the end of what is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// More may come: a piece of a secret waits for it.
    Open,
    /// Nothing has come for a while: a piece too short to matter is shown, others go on waiting.
    Idle,
    /// It was cut off here, perhaps in the middle of a secret: a piece that matters is covered, if there is as much
    /// of it as there must be of a secret.
    Cut,
    /// This is the whole text: a piece of a secret is not one.
    Whole,
}

/// How much of a form may be seen without giving its secret away: a quarter, and no more than eight bytes. The
/// rest is then as hard to guess as a secret of three quarters of the length.
pub(crate) fn harmless(length: usize) -> usize {
    (length / 4).min(8)
}

/// How far a text has been dealt with.
#[derive(Debug, Default)]
pub(crate) struct Cover {
    /// So many bytes at the text's start have been shown or covered.
    pub(crate) done: usize,
    /// The names given for the region that ends at `done`; none if what is before `done` was shown.
    pub(crate) region: Vec<Arc<str>>,
}

/// A start of something that may be a secret, at the end of the text.
struct Piece<'a> {
    /// So much of it may be shown, whichever of the patterns it belongs to.
    harmless: usize,
    label: &'a Label,
}

/// An occurrence, or what counts as one.
struct Found<'a> {
    start: usize,
    end: usize,
    label: &'a Label,
}

impl<'a> Found<'a> {
    fn of(start: usize, label: &'a Label) -> Found<'a> {
        Found { start, end: start + label.length, label }
    }
}

impl Cover {
    /// Goes through the text as far as can be decided. Returns from where on it is still needed: all bytes from
    /// there on, those before `done` too, must be there at the next call.
    pub(crate) fn walk(
        &mut self,
        redactor: &Redactor,
        text: &[u8],
        hits: &[Hit],
        ending: Ending,
        out: &mut Vec<u8>,
    ) -> usize {
        let (mut needed, mut limit) = (text.len(), text.len());
        for hit in hits {
            let start = hit.start;
            let mut found = hit.whole.map(|number| Found::of(start, redactor.label(number)));
            match (ending, piece_of(redactor, hit, ending)) {
                (Ending::Open, Some(_)) => {
                    (needed, limit) = (start, start);
                    break;
                }
                (Ending::Idle, piece) => {
                    // What lies before is not decided, and nothing overtakes it.
                    if start > limit {
                        break;
                    }
                    if let Some(piece) = piece {
                        needed = needed.min(start);
                        limit = limit.min(start + piece.harmless);
                    }
                }
                (Ending::Cut, Some(piece)) if text.len() - start > piece.harmless.max(SHORTEST - 1) => {
                    found = found.filter(|found| found.end == text.len());
                    found = found.or(Some(Found { end: text.len(), ..Found::of(start, piece.label) }));
                }
                _ => {}
            }
            if let Some(found) = found {
                self.cover(text, &found, out);
            }
        }
        self.show(text, limit, out);
        needed
    }

    fn show(&mut self, text: &[u8], to: usize, out: &mut Vec<u8>) {
        if to > self.done {
            out.extend_from_slice(&text[self.done..to]);
            self.done = to;
            self.region.clear();
        }
    }

    fn cover(&mut self, text: &[u8], found: &Found, out: &mut Vec<u8>) {
        if found.end <= self.done {
            return;
        }
        self.show(text, found.start, out);
        if found.start >= self.done && !found.label.continues {
            self.region.clear();
        }
        let name = &found.label.name;
        if !self.region.contains(name) {
            out.extend_from_slice(b"[REDACTED:");
            out.extend_from_slice(name.as_bytes());
            out.push(b']');
            self.region.push(Arc::clone(name));
        }
        self.done = found.end;
    }
}

/// What the text ends in. While it may go on it is enough to know that there is something.
fn piece_of<'a>(redactor: &'a Redactor, hit: &Hit, ending: Ending) -> Option<Piece<'a>> {
    let mut labels = hit.pieces.clone().map(|number| redactor.label(number));
    let label = labels.next()?;
    let mut piece = Piece { harmless: harmless(label.length), label };
    if ending != Ending::Open {
        for label in labels {
            piece.harmless = piece.harmless.min(harmless(label.length));
            if label.name < piece.label.name {
                piece.label = label;
            }
        }
    }
    Some(piece)
}
