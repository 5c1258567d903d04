//! One line of text that is still being written: overwritten, erased and inserted into, as a terminal would.

use crate::style::columns;
use std::collections::BTreeMap;

/// The second column of a wide character.
const WIDE_TAIL: char = '\0';

/// A column that stays empty because a wide character did not fit into it and went to the next row of the terminal.
const FILLER: char = '\x01';

/// The marks that one character may carry, in bytes.
const MAX_MARKS: usize = 64;

/// Each entry of `cells` is one column, except that a tab is one column too: how wide it is shown is up to whoever
/// shows it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Line {
    cells: Vec<char>,
    /// Marks that combine with the character in a column: rare, so kept beside.
    marks: BTreeMap<usize, String>,
    /// Characters that had no place.
    cut: u64,
    /// What was written once is passed on as it is. In a line that was changed, blanks at the end are what is left of
    /// something longer.
    changed: bool,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.cut == 0
    }

    pub(crate) fn columns(&self) -> usize {
        self.cells.len()
    }

    /// Writes a character at a column and gives the column after it.
    pub(crate) fn put(&mut self, column: usize, character: char, limit: usize) -> usize {
        let width = if character == '\t' { 1 } else { columns(character) };
        if width == 0 && column > 0 && column <= self.cells.len() {
            self.mark(column - 1, character);
            return column;
        }
        let end = column + width.max(1);
        if end > limit {
            self.cut += 1;
            return column;
        }
        if column < self.cells.len() {
            self.changed = true;
            self.split_wide(column);
            self.split_wide(end);
        } else if column > self.cells.len() {
            self.changed = true;
            self.cells.resize(column, ' ');
        }
        if self.cells.len() < end {
            self.cells.resize(end, WIDE_TAIL);
        }
        self.cells[column..end].fill(WIDE_TAIL);
        self.cells[column] = character;
        if !self.marks.is_empty() {
            self.marks.retain(|at, _| !(column..end).contains(at));
        }
        end
    }

    /// Leaves a column out, and gives the next.
    pub(crate) fn put_filler(&mut self, column: usize) -> usize {
        self.put(column, FILLER, usize::MAX)
    }

    fn mark(&mut self, column: usize, character: char) {
        let column = if self.cells[column] == WIDE_TAIL { column.saturating_sub(1) } else { column };
        let marks = self.marks.entry(column).or_default();
        if marks.len() + character.len_utf8() <= MAX_MARKS {
            marks.push(character);
        } else {
            self.cut += 1;
        }
    }

    /// A wide character of which one half goes is a blank in the other half.
    fn split_wide(&mut self, column: usize) {
        if column > 0 && self.cells.get(column) == Some(&WIDE_TAIL) {
            self.cells[column - 1] = ' ';
            self.cells[column] = ' ';
            self.marks.remove(&(column - 1));
        }
    }

    /// Erases from a column to the end. What had no place goes too, unless it is before the column.
    pub(crate) fn erase_from(&mut self, column: usize) {
        if column < self.cells.len() {
            self.changed = true;
            self.split_wide(column);
            self.cells.truncate(column);
            self.marks.split_off(&column);
            self.cut = 0;
        }
    }

    pub(crate) fn blank(&mut self, column: usize, count: usize) {
        let end = column.saturating_add(count).min(self.cells.len());
        if column < end {
            self.changed = true;
            self.split_wide(column);
            self.split_wide(end);
            self.cells[column..end].fill(' ');
            self.marks.retain(|at, _| !(column..end).contains(at));
        }
    }

    pub(crate) fn delete(&mut self, column: usize, count: usize) {
        let end = column.saturating_add(count).min(self.cells.len());
        if column < end {
            self.changed = true;
            self.split_wide(column);
            self.split_wide(end);
            self.cells.drain(column..end);
            self.move_marks(|at| match at {
                _ if at < column => Some(at),
                _ if at < end => None,
                _ => Some(at - (end - column)),
            });
        }
    }

    pub(crate) fn insert_blanks(&mut self, column: usize, count: usize, limit: usize) {
        let count = count.min(limit.saturating_sub(self.cells.len()));
        if column < self.cells.len() && count > 0 {
            self.changed = true;
            self.split_wide(column);
            self.cells.splice(column..column, std::iter::repeat_n(' ', count));
            self.move_marks(|at| Some(if at < column { at } else { at + count }));
        }
    }

    fn move_marks(&mut self, place: impl Fn(usize) -> Option<usize>) {
        self.marks = std::mem::take(&mut self.marks)
            .into_iter()
            .filter_map(|(at, marks)| Some((place(at)?, marks)))
            .collect();
    }

    pub(crate) fn write_to(&self, out: &mut String) {
        let start = out.len();
        for (column, &character) in self.cells.iter().enumerate() {
            if character != WIDE_TAIL && character != FILLER {
                out.push(character);
            }
            if let Some(marks) = self.marks.get(&column) {
                out.push_str(marks);
            }
        }
        if self.changed {
            let kept = out[start..].trim_end_matches(' ').len();
            out.truncate(start + kept);
        }
        if self.cut > 0 {
            out.push_str(&format!(" … [{} characters cut]", self.cut));
        }
    }
}
