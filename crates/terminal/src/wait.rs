//! Waiting for text to appear, on a screen or in a stream. The caller has the clock: it asks after each piece of output.

use crate::plain::{Plain, PlainOptions};
use crate::screen::Screen;
use crate::style::columns;
use regex_lite::{Regex, RegexBuilder};
use serde::Serialize;
use std::collections::VecDeque;

const MAX_PATTERN: usize = 1024;
/// A compiled pattern may take this much, which also bounds the time that each character costs.
const MAX_COMPILED: usize = 32 << 10;
const MAX_NESTING: u32 = 32;

/// A match is found if it is no longer than this. Older text is not searched again.
const MAX_MATCH: usize = 16 << 10;

/// What is waited for.
#[derive(Debug, Clone)]
pub struct Pattern {
    search: Search,
}

#[derive(Debug, Clone)]
enum Search {
    Text(String),
    Regex(Regex),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("the pattern is empty; it would match at once")]
    Empty,
    #[error("the pattern is {bytes} bytes long; use at most {MAX_PATTERN}")]
    TooLong { bytes: usize },
    #[error("\"{pattern}\" is not a regular expression that can be used: {reason}")]
    Invalid { pattern: String, reason: String },
}

impl Pattern {
    /// This text, as it is.
    pub fn text(text: &str) -> Result<Pattern, PatternError> {
        check_length(text)?;
        Ok(Pattern { search: Search::Text(text.to_owned()) })
    }

    /// A regular expression: `^` and `$` are the ends of a line, `\d`, `\w` and `\s` are ASCII, and there are no
    /// references back and no look-around, so that no pattern can take long.
    pub fn regex(pattern: &str) -> Result<Pattern, PatternError> {
        check_length(pattern)?;
        let regex = RegexBuilder::new(pattern)
            .multi_line(true)
            .size_limit(MAX_COMPILED)
            .nest_limit(MAX_NESTING)
            .build()
            .map_err(|error| PatternError::Invalid {
                pattern: pattern.to_owned(),
                reason: error.to_string(),
            })?;
        Ok(Pattern { search: Search::Regex(regex) })
    }

    /// Whether it is on the screen now. Rows that are one line to the program are searched as one. Blanks at the end of
    /// a row are not there, except before the cursor: a prompt ends with one.
    pub fn on_screen(&self, screen: &Screen) -> Option<OnScreen> {
        let mut text = String::new();
        // Where in the text each row begins.
        let mut starts = Vec::new();
        let cursor = screen.cursor();
        for (row, line) in screen.lines(crate::Blanks::Trim).into_iter().enumerate() {
            starts.push(text.len());
            let line_text = line.text();
            text.push_str(&line_text);
            if row == usize::from(cursor.row) {
                let width: usize = line_text.chars().map(columns).sum();
                text.extend(std::iter::repeat_n(' ', usize::from(cursor.column).saturating_sub(width)));
            }
            if !line.wrapped {
                text.push('\n');
            }
        }
        let (start, end) = self.find(&text)?;
        let row = starts.partition_point(|row| *row <= start).saturating_sub(1);
        Some(OnScreen { row: row as u16, text: text[start..end].to_owned() })
    }

    fn find(&self, text: &str) -> Option<(usize, usize)> {
        match &self.search {
            Search::Text(wanted) => text.find(wanted.as_str()).map(|start| (start, start + wanted.len())),
            Search::Regex(regex) => regex.find(text).map(|found| (found.start(), found.end())),
        }
    }
}

fn check_length(pattern: &str) -> Result<(), PatternError> {
    match pattern.len() {
        0 => Err(PatternError::Empty),
        1..=MAX_PATTERN => Ok(()),
        bytes => Err(PatternError::TooLong { bytes }),
    }
}

/// A match on the screen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OnScreen {
    pub row: u16,
    pub text: String,
}

/// A match in a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InStream {
    /// Where it begins and ends.
    pub start: u64,
    pub end: u64,
    pub text: String,
}

/// The last of a stream's plain text. A position is a number of bytes of text since its beginning.
///
/// The line that is not finished yet is at the end of the text, and can still change.
#[derive(Debug)]
pub struct TextLog {
    plain: Plain,
    kept: VecDeque<u8>,
    /// The position of the first byte that is kept.
    start: u64,
    limit: usize,
}

/// Text since a position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Since {
    /// Where the text begins: at the position asked for, or where what is kept begins.
    pub start: u64,
    pub text: String,
    /// How many bytes after the position are no longer kept.
    pub missed: u64,
}

impl TextLog {
    /// Keeps the last `limit` bytes of finished lines.
    pub fn new(limit: usize, options: PlainOptions) -> TextLog {
        TextLog { plain: Plain::new(options), kept: VecDeque::new(), start: 0, limit }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        let mut text = String::new();
        self.plain.feed(bytes, &mut text);
        self.keep(&text);
    }

    /// The stream has ended: the last line is finished as it is.
    pub fn finish(&mut self) {
        let mut text = String::new();
        self.plain.finish(&mut text);
        self.keep(&text);
    }

    /// The terminal has another width from now on.
    pub fn set_terminal_columns(&mut self, columns: u16) {
        self.plain.set_terminal_columns(columns);
    }

    /// The position after all text, the unfinished line included.
    pub fn position(&self) -> u64 {
        self.finished() + self.plain.unfinished().len() as u64
    }

    pub fn since(&self, position: u64) -> Since {
        let from = position.max(self.start);
        let index = self.index(from);
        let mut bytes: Vec<u8> = self.kept.range(index..).copied().collect();
        bytes.extend_from_slice(self.plain.unfinished().as_bytes());
        // Inside the line that is not finished the position is one of the line as it was.
        let mut skipped = from.saturating_sub(self.finished()).min(bytes.len() as u64) as usize;
        while bytes.get(skipped).is_some_and(|byte| is_continuation(*byte)) {
            skipped += 1;
        }
        let text = String::from_utf8_lossy(&bytes[skipped..]).into_owned();
        let start = self.start + (index + skipped) as u64;
        Since { start, text, missed: self.start.saturating_sub(position) }
    }

    /// The position after the last finished line.
    fn finished(&self) -> u64 {
        self.start + self.kept.len() as u64
    }

    /// Where a position is in what is kept, or the first character after it.
    fn index(&self, position: u64) -> usize {
        let mut index = usize::try_from(position - self.start).unwrap_or(usize::MAX).min(self.kept.len());
        while self.kept.get(index).is_some_and(|byte| is_continuation(*byte)) {
            index += 1;
        }
        index
    }

    fn keep(&mut self, text: &str) {
        self.kept.extend(text.as_bytes());
        if self.kept.len() > self.limit {
            let first = self.start + (self.kept.len() - self.limit) as u64;
            let excess = self.index(first);
            self.kept.drain(..excess);
            self.start += excess as u64;
        }
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Looks for a pattern in what comes after a point of a stream.
#[derive(Debug, Clone)]
pub struct Waiter {
    pattern: Pattern,
    /// Where the search goes on.
    from: u64,
    /// What stood in the unfinished line when the waiting began: it is no news as long as it stands there.
    before: String,
}

impl Waiter {
    /// Waits for what comes from now on.
    pub fn new(pattern: Pattern, log: &TextLog) -> Waiter {
        Waiter { pattern, from: log.finished(), before: log.plain.unfinished() }
    }

    /// Waits for what came after a position, or comes.
    pub fn since(pattern: Pattern, position: u64) -> Waiter {
        Waiter { pattern, from: position, before: String::new() }
    }

    /// Whether the pattern has appeared. Ask after each piece of output; what was searched without success is not
    /// searched again, except for what a match could begin with.
    pub fn check(&mut self, log: &TextLog) -> Option<InStream> {
        let Since { start, text, .. } = log.since(self.from);
        // A line that was rewritten is all new.
        let old = if text.starts_with(&self.before) { self.before.len() } else { 0 };
        if let Some((begin, end)) = self.pattern.find(&text[old..]) {
            let (begin, end) = (old + begin, old + end);
            let text = text[begin..end].to_owned();
            return Some(InStream { start: start + begin as u64, end: start + end as u64, text });
        }
        let finished = log.finished();
        let keep_from = finished.saturating_sub(MAX_MATCH as u64);
        if keep_from > self.from {
            self.from = keep_from;
            self.before.clear();
        }
        None
    }
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod tests;
