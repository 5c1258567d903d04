//! The sizes that a process's terminal has had, and from which byte of its output on: what was drawn for one size makes
//! no sense on another.

use serde::{Deserialize, Serialize};
use workroom_types::TerminalSize;

/// Changes of size that are remembered. Somebody who drags the corner of a window makes hundreds; the oldest go.
const MOST: usize = 1000;

/// In the order of the output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sizes(Vec<(u64, TerminalSize)>);

impl Sizes {
    pub(crate) fn new(first: Option<TerminalSize>) -> Sizes {
        Sizes(first.map(|size| (0, size)).into_iter().collect())
    }

    /// From this byte on it has another size.
    pub(crate) fn change(&mut self, at: u64, size: TerminalSize) {
        if self.0.last().is_some_and(|(_, last)| *last == size) {
            return;
        }
        let at = at.max(self.0.last().map_or(0, |(last, _)| *last));
        self.0.retain(|(other, _)| *other != at);
        self.0.push((at, size));
        if self.0.len() > MOST {
            self.0.remove(0);
        }
    }

    /// The size at this byte, and the byte from which on there is another.
    pub(crate) fn at(&self, offset: u64) -> Option<(TerminalSize, Option<u64>)> {
        let next = self.0.partition_point(|(at, _)| *at <= offset);
        // What was before the oldest change is not known any more; its size comes nearest.
        let (_, size) = self.0.get(next.saturating_sub(1))?;
        Some((*size, self.0.get(next.max(1)).map(|(at, _)| *at)))
    }

    /// Whether there is more to remember than the process's record says.
    pub(crate) fn has_changed(&self) -> bool {
        self.0.len() > 1 || self.0.first().is_some_and(|(at, _)| *at > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(cols: u16) -> TerminalSize {
        TerminalSize { rows: 24, cols }
    }

    #[test]
    fn each_byte_has_the_size_that_it_was_written_for() {
        let mut sizes = Sizes::new(Some(size(80)));
        sizes.change(10, size(100));
        sizes.change(20, size(100));
        sizes.change(30, size(120));
        sizes.change(30, size(90));
        assert_eq!(sizes.at(0), Some((size(80), Some(10))));
        assert_eq!(sizes.at(10), Some((size(100), Some(30))));
        assert_eq!(sizes.at(99), Some((size(90), None)));
        assert_eq!(Sizes::default().at(5), None);
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut sizes = Sizes::new(Some(size(80)));
        for turn in 1..=2 * MOST as u64 {
            sizes.change(turn, size(80 + (turn % 2) as u16));
        }
        assert_eq!(sizes.0.len(), MOST);
        assert_eq!(sizes.at(0), Some((sizes.0[0].1, Some(sizes.0[1].0))));
    }
}
