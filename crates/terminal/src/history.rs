//! What has scrolled off the top of a screen: the newest lines, kept small.
//!
//! The grid costs 16 bytes for each cell, blank or not. A line that nothing changes any more is kept as its text and
//! the places where the style changes, so 20,000 usual lines are about two megabytes instead of twenty-six, and a
//! resize does not touch them.

use crate::style::{Style, StyledLine, columns};
use std::collections::VecDeque;
use std::mem::size_of;

/// The lines that are kept.
pub(crate) const MAX_LINES: usize = 20_000;

/// The memory that they may take: lines of the widest terminal with another colour in each cell would need much more
/// than lines usually do.
pub(crate) const MAX_BYTES: usize = 16 << 20;

#[derive(Debug, Default)]
pub(crate) struct History {
    lines: VecDeque<Kept>,
    bytes: usize,
    dropped: u64,
}

#[derive(Debug)]
struct Kept {
    text: Box<str>,
    /// Where a style begins, as an offset into the text. Plain text from the start needs no entry.
    styles: Box<[(u16, Style)]>,
    wrapped: bool,
}

impl Kept {
    fn cost(&self) -> usize {
        size_of::<Kept>() + self.text.len() + self.styles.len() * size_of::<(u16, Style)>()
    }
}

impl History {
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// How many lines there were that are no longer kept.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn clear(&mut self) {
        *self = History::default();
    }

    pub(crate) fn lines(&self) -> impl DoubleEndedIterator<Item = StyledLine> + ExactSizeIterator + '_ {
        self.lines.iter().map(Kept::styled)
    }

    /// The text of each line, and whether it goes on in the next one.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, bool)> {
        self.lines.iter().map(|line| (&*line.text, line.wrapped))
    }

    fn push(&mut self, line: &avt::Line) {
        let kept = Kept::from(line);
        self.bytes += kept.cost();
        self.lines.push_back(kept);
        while self.lines.len() > MAX_LINES || self.bytes > MAX_BYTES {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.cost();
            self.dropped += 1;
        }
    }
}

/// This is done for every line of a flood, so it makes no runs on the way.
impl From<&avt::Line> for Kept {
    fn from(line: &avt::Line) -> Kept {
        let cells = line.cells();
        let blank = avt::Cell::default();
        let end = cells.iter().rposition(|cell| *cell != blank).map_or(0, |last| last + 1);
        let cells = if line.is_wrapped() { cells } else { &cells[..end] };
        let mut text = String::with_capacity(cells.len());
        let mut styles = Vec::new();
        let mut pen = *blank.pen();
        for cell in cells.iter().filter(|cell| cell.width() > 0) {
            if *cell.pen() != pen {
                pen = *cell.pen();
                styles.push((u16::try_from(text.len()).unwrap_or(u16::MAX), Style::from(&pen)));
            }
            text.push(cell.char());
        }
        Kept { text: text.into(), styles: styles.into(), wrapped: line.is_wrapped() }
    }
}

impl Kept {
    fn styled(&self) -> StyledLine {
        let mut line = StyledLine { runs: Vec::new(), wrapped: self.wrapped };
        let mut styles = self.styles.iter().peekable();
        let mut column = 0;
        for (offset, character) in self.text.char_indices() {
            if let Some((_, style)) = styles.next_if(|(start, _)| usize::from(*start) == offset) {
                line.start_run(column, *style);
            } else if offset == 0 {
                line.start_run(0, Style::default());
            }
            if let Some(run) = line.runs.last_mut() {
                run.text.push(character);
            }
            column += columns(character);
        }
        line
    }
}

/// The grid itself keeps no history: each line that leaves its top comes here.
impl avt::Observer for History {
    type Output = ();

    fn evicted(&mut self, _: &mut avt::Observation<'_>, line: &avt::Line) {
        self.push(line);
    }

    fn end(&mut self, _: &mut avt::Observation<'_>) {}
}
