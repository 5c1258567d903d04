//! What happens to a process beside its output, kept until its recorder takes it: sizes, markers, what was typed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use workroom_types::TerminalSize;

/// The most that waits: a recorder that is behind by more loses the rest, and says how much.
const MOST_NOTES: usize = 4096;
const MOST_BYTES: usize = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    Resized(TerminalSize),
    Typed(Vec<u8>),
    Marked(String),
}

impl Note {
    fn bytes(&self) -> usize {
        match self {
            Note::Resized(_) => 0,
            Note::Typed(data) => data.len(),
            Note::Marked(label) => label.len(),
        }
    }
}

/// A point of a process's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    /// What stdout and stderr had by then.
    pub(crate) written: [u64; 2],
}

#[derive(Default)]
pub(crate) struct Notes {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    is_wanted: bool,
    notes: VecDeque<(Moment, Note)>,
    bytes: usize,
    dropped: u64,
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody takes them. What nobody takes is not kept.
    pub(crate) fn set_wanted(&self, is_wanted: bool) {
        *self.lock() = List { is_wanted, ..List::default() };
    }

    pub(crate) fn are_wanted(&self) -> bool {
        self.lock().is_wanted
    }

    /// Whether it was kept.
    pub(crate) fn push(&self, moment: Moment, note: Note) -> bool {
        let mut list = self.lock();
        if !list.is_wanted {
            return false;
        }
        if list.notes.len() >= MOST_NOTES || list.bytes + note.bytes() > MOST_BYTES {
            list.dropped += 1;
            return false;
        }
        list.bytes += note.bytes();
        list.notes.push_back((moment, note));
        true
    }

    /// All that wait, the first one first, and how many were not kept.
    pub(crate) fn take(&self) -> (VecDeque<(Moment, Note)>, u64) {
        let mut list = self.lock();
        list.bytes = 0;
        (std::mem::take(&mut list.notes), std::mem::take(&mut list.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_is_not_kept_and_what_is_too_much_is_counted() {
        let notes = Notes::default();
        let moment = Moment { at: Instant::now(), written: [0; 2] };
        let typed = |length| Note::Typed(vec![b'x'; length]);
        assert!(!notes.push(moment, typed(1)));
        notes.set_wanted(true);
        assert!(notes.push(moment, typed(MOST_BYTES)));
        assert!(!notes.push(moment, typed(1)));
        let (taken, dropped) = notes.take();
        assert_eq!((taken.len(), dropped), (1, 1));
        for _ in 0..MOST_NOTES {
            assert!(notes.push(moment, Note::Marked(String::new())));
        }
        assert!(!notes.push(moment, Note::Marked(String::new())));
        assert_eq!(notes.take().1, 1);
        assert_eq!(notes.take(), (VecDeque::new(), 0));
    }
}
