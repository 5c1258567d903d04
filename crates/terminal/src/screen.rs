//! The screen of a terminal: what somebody who looked at it now would see.
//!
//! The drawing is done by `avt`. This adds what a host needs around it: bytes in any pieces, a history with bounds,
//! the title, and the answers that programs such as editors and shells wait for when no person's terminal gives them.
//!
//! Feeding costs time in proportion to the bytes, but a hostile program can make three bytes repaint the whole
//! screen; feed pieces of a few kilobytes and let others run in between.

use crate::answers::Dialogue;
use crate::history::History;
use crate::keys::KeyModes;
use crate::sequence::Tokenizer;
use crate::size::Size;
use crate::style::{Blanks, StyledLine, columns};
use crate::utf8::Utf8Decoder;
use avt::parser::{EdScope, Function};
use avt::{ScreenKind, Terminal};
use serde::Serialize;

/// The lines of history that a screen keeps, at most.
pub const HISTORY_LINES: usize = crate::history::MAX_LINES;

/// A terminal's screen, fed with what programs write to it.
///
/// Combining marks and joiners are left out of the grid: they take no column, and a grid of one character for each
/// cell has no place for them. [`crate::Plain`] keeps them.
pub struct Screen {
    decoder: Utf8Decoder,
    model: Model,
}

struct Model {
    parser: avt::Parser,
    grid: Terminal,
    history: History,
    tokenizer: Tokenizer,
    dialogue: Dialogue,
}

/// Where the cursor is, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cursor {
    pub column: u16,
    pub row: u16,
    pub visible: bool,
}

/// All of a screen at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    pub size: Size,
    pub cursor: Cursor,
    pub title: Option<String>,
    /// A full-screen program has taken the alternate screen.
    pub alternate: bool,
    pub lines: Vec<StyledLine>,
    pub history_lines: usize,
    /// Lines that the history no longer holds.
    pub history_dropped: u64,
}

impl Screen {
    pub fn new(size: Size) -> Screen {
        let (cols, rows) = (usize::from(size.cols()), usize::from(size.rows()));
        let grid = Terminal::new(cols, rows).expect("the least size of a screen is more than nothing");
        Screen {
            decoder: Utf8Decoder::default(),
            model: Model {
                parser: avt::Parser::new(),
                grid,
                history: History::default(),
                tokenizer: Tokenizer::default(),
                dialogue: Dialogue::default(),
            },
        }
    }

    /// Takes what a program wrote, in whatever pieces it comes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.decoder.decode(bytes, |text| text.chars().for_each(|character| self.model.take(character)));
    }

    /// Changes the size. Lines of the primary screen are wrapped anew; those of the history stay as they are.
    pub fn resize(&mut self, size: Size) {
        let (cols, rows) = (usize::from(size.cols()), usize::from(size.rows()));
        self.model.grid.resize_with(cols, rows, &mut self.model.history);
    }

    /// What the terminal has to answer to the program: bytes to write to the PTY, once. Drop them while a person's own
    /// terminal is attached, which answers by itself.
    pub fn take_answers(&mut self) -> Vec<u8> {
        self.model.dialogue.take_answers()
    }

    /// How many answers were dropped because nobody took the earlier ones.
    pub fn answers_dropped(&self) -> u64 {
        self.model.dialogue.dropped()
    }

    pub fn size(&self) -> Size {
        let (cols, rows) = self.model.grid.size();
        Size::nearest(cols as u16, rows as u16)
    }

    pub fn cursor(&self) -> Cursor {
        let cursor = self.model.grid.cursor();
        let last_column = self.model.grid.size().0 - 1;
        Cursor { column: cursor.col.min(last_column) as u16, row: cursor.row as u16, visible: cursor.visible }
    }

    pub fn title(&self) -> Option<&str> {
        self.model.dialogue.title.as_deref()
    }

    pub fn is_alternate(&self) -> bool {
        self.model.grid.active_screen_kind() == ScreenKind::Alternate
    }

    /// What the program asked of the keyboard.
    pub fn key_modes(&self) -> KeyModes {
        KeyModes {
            application_cursor: self.model.grid.cursor_key_app_mode(),
            bracketed_paste: self.model.dialogue.bracketed_paste,
        }
    }

    /// The rows that are visible, from the top.
    pub fn lines(&self, blanks: Blanks) -> Vec<StyledLine> {
        self.model.grid.screen().visible_lines().map(|line| StyledLine::of(line, blanks)).collect()
    }

    /// The text of the rows that are visible, from the top.
    pub fn text(&self, blanks: Blanks) -> Vec<String> {
        let text = |line: &avt::Line| match blanks {
            Blanks::Keep => line.text(),
            Blanks::Trim => line.text().trim_end_matches(' ').to_owned(),
        };
        self.model.grid.screen().visible_lines().map(text).collect()
    }

    pub fn snapshot(&self, blanks: Blanks) -> Snapshot {
        Snapshot {
            size: self.size(),
            cursor: self.cursor(),
            title: self.title().map(str::to_owned),
            alternate: self.is_alternate(),
            lines: self.lines(blanks),
            history_lines: self.history_len(),
            history_dropped: self.history_dropped(),
        }
    }

    pub fn history_len(&self) -> usize {
        self.model.history.len()
    }

    /// How many lines have left the history at its old end.
    pub fn history_dropped(&self) -> u64 {
        self.model.history.dropped()
    }

    /// What has scrolled off the top of the primary screen, oldest first.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = StyledLine> + ExactSizeIterator + '_ {
        self.model.history.lines()
    }

    /// The history and the primary screen as lines of text, with rows joined again that were one line to the program.
    /// Blank rows at the end are left out.
    pub fn whole_text(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut current = String::new();
        let mut add = |text: &str, wrapped: bool| {
            current.push_str(text);
            if !wrapped {
                current.truncate(current.trim_end_matches(' ').len());
                lines.push(std::mem::take(&mut current));
            }
        };
        self.model.history.texts().for_each(|(text, wrapped)| add(text, wrapped));
        for line in self.model.grid.primary_screen().visible_lines() {
            add(&line.text(), line.is_wrapped());
        }
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }
}

impl Model {
    fn take(&mut self, character: char) {
        if let Some(function) = self.parser.feed(character) {
            self.draw(function);
        }
        if let Some(token) = self.tokenizer.feed(character) {
            self.dialogue.take(token, &self.grid);
        }
    }

    fn draw(&mut self, function: Function) {
        let function = match function {
            // Neither is drawn by any terminal: a deletion character, and marks without a column of their own.
            Function::Print('\x7f') => return,
            Function::Print(character) if columns(character) == 0 => return,
            // A handful of bytes must not be worth sixty thousand characters.
            Function::Rep(times) => Function::Rep(times.min(self.grid.size().0 as u16)),
            Function::Ed(EdScope::SavedLines) => return self.history.clear(),
            Function::Ris => {
                self.history.clear();
                Function::Ris
            }
            other => other,
        };
        self.grid.execute_with(function, &mut self.history);
    }
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
