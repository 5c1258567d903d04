//! Output of programs as plain text: what a person would read afterwards.
//!
//! Escape sequences are taken away and what they did to the line is done: a progress bar is its last state, a typing
//! mistake that was rubbed out is gone. A line that a terminal wraps stays one line.
//!
//! A line is passed on when it ends, and then it stands. Programs that go up again to redraw several lines would need
//! those lines back: with [`PlainOptions::hold_back`] that many lines wait before they are passed on. Without it each
//! redrawing adds lines. A move to a place on the screen begins a new line, because there is no screen here.

use crate::line::Line;
use crate::sequence::{Csi, Token, Tokenizer};
use crate::style::columns;
use crate::utf8::Utf8Decoder;
use avt::Charset;
use std::collections::VecDeque;

/// How far to the right a movement may go, as on the widest terminal: what is skipped becomes blanks.
const MAX_MOVE: usize = 500;

const LEFT_OUT: &str = "[a full-screen program ran here; its screen is left out]";
const STILL_ON: &str = "[a full-screen program has the screen; it is left out]";

/// What becomes of text on the alternate screen, where editors and pagers draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlternateScreen {
    /// It is left out, as it is from a terminal's history, with a line that says so.
    LeaveOut,
    Keep,
}

#[derive(Debug, Clone)]
pub struct PlainOptions {
    /// The width of the terminal that the program believes to have. Programs that edit long lines count on its
    /// wrapping; output that went into a pipe knows of none.
    pub terminal_columns: Option<u16>,
    /// The longest line, in columns. What is beyond is counted, and the count stands at the end of the line.
    pub max_line: usize,
    /// How many finished lines wait, so that a program can still go up and change them.
    pub hold_back: usize,
    pub alternate_screen: AlternateScreen,
}

impl Default for PlainOptions {
    fn default() -> PlainOptions {
        PlainOptions {
            terminal_columns: None,
            max_line: 16_384,
            hold_back: 0,
            alternate_screen: AlternateScreen::LeaveOut,
        }
    }
}

/// Turns bytes into plain text, piece by piece.
#[derive(Debug)]
pub struct Plain {
    decoder: Utf8Decoder,
    tokenizer: Tokenizer,
    page: Page,
}

/// The lines that can still change, and the cursor among them.
#[derive(Debug)]
struct Page {
    options: PlainOptions,
    /// Never empty.
    lines: VecDeque<Line>,
    row: usize,
    /// Where in the line the terminal's row begins that the cursor is on: a multiple of the terminal's width.
    origin: usize,
    /// Counted from the start of the line, not of the terminal's row.
    column: usize,
    /// Counted from the start of the terminal's row.
    saved_column: usize,
    on_alternate: bool,
    charsets: [Charset; 2],
    shifted: bool,
}

impl Default for Plain {
    fn default() -> Plain {
        Plain::new(PlainOptions::default())
    }
}

impl Plain {
    pub fn new(options: PlainOptions) -> Plain {
        let page = Page {
            options,
            lines: VecDeque::from([Line::default()]),
            row: 0,
            origin: 0,
            column: 0,
            saved_column: 0,
            on_alternate: false,
            charsets: [Charset::Ascii; 2],
            shifted: false,
        };
        Plain { decoder: Utf8Decoder::default(), tokenizer: Tokenizer::default(), page }
    }

    /// The terminal has another width from now on.
    pub fn set_terminal_columns(&mut self, columns: u16) {
        self.page.options.terminal_columns = Some(columns);
        self.page.origin = 0;
    }

    /// Takes bytes and appends the lines that they finished.
    pub fn feed(&mut self, bytes: &[u8], out: &mut String) {
        self.decoder.decode(bytes, |text| {
            for character in text.chars() {
                if let Some(token) = self.tokenizer.feed(character) {
                    self.page.take(token, out);
                }
            }
        });
    }

    /// What is there and not passed on yet: a prompt, for one, is a line that never ends.
    pub fn unfinished(&self) -> String {
        let mut text = String::new();
        self.page.write_rest(&mut text);
        text
    }

    /// No more bytes come: appends what is left. Then it is as new.
    pub fn finish(&mut self, out: &mut String) {
        if let Some(replacement) = self.decoder.finish() {
            self.feed(replacement.as_bytes(), out);
        }
        if std::mem::take(&mut self.page.on_alternate) && self.page.leaves_out() {
            self.page.say(STILL_ON, out);
        }
        self.page.write_rest(out);
        *self = Plain::new(self.page.options.clone());
    }
}

impl Page {
    fn take(&mut self, token: Token<'_>, out: &mut String) {
        if self.on_alternate && self.leaves_out() {
            match token {
                Token::Csi(csi) => self.mode(csi, out),
                Token::Escape { intermediate: None, last: 'c' } => self.alternate(false, out),
                _ => {}
            }
            return;
        }
        match token {
            Token::Print(character) => {
                self.put(self.charsets[usize::from(self.shifted)].translate(character))
            }
            Token::Control(control) => self.control(control, out),
            Token::Escape { intermediate, last } => self.escape(intermediate, last, out),
            Token::Csi(csi) if csi.marker.is_none() && csi.intermediate.is_none() => self.edit(csi, out),
            Token::Csi(csi) => self.mode(csi, out),
            Token::Osc(_) => {}
        }
    }

    fn leaves_out(&self) -> bool {
        self.options.alternate_screen == AlternateScreen::LeaveOut
    }

    fn line(&mut self) -> &mut Line {
        &mut self.lines[self.row]
    }

    /// The columns of the terminal; without one a line is a row without end.
    fn width(&self) -> usize {
        self.options.terminal_columns.map_or(usize::MAX / 2, |columns| usize::from(columns.max(2)))
    }

    /// The column within the terminal's row. After the last one the cursor waits there for the next character.
    fn offset(&self) -> usize {
        (self.column - self.origin).min(self.width() - 1)
    }

    fn put(&mut self, character: char) {
        let limit = self.options.max_line;
        let end = self.origin + self.width();
        if self.column + columns(character) > end && columns(character) > 0 {
            while self.column < end.min(limit) {
                let column = self.column;
                self.column = self.line().put_filler(column);
            }
            if end < limit {
                self.origin = end;
            }
        }
        let column = self.column;
        self.column = self.line().put(column, character, limit);
    }

    fn control(&mut self, control: char, out: &mut String) {
        match control {
            '\n' | '\x0b' | '\x0c' | '\u{84}' | '\u{85}' => self.line_feed(out),
            '\r' => self.column = self.origin,
            '\x08' => self.move_to(self.offset().saturating_sub(1)),
            '\t' => self.put('\t'),
            '\x0e' => self.shifted = true,
            '\x0f' => self.shifted = false,
            _ => {}
        }
    }

    fn escape(&mut self, intermediate: Option<char>, last: char, out: &mut String) {
        let charset = if last == '0' { Charset::Drawing } else { Charset::Ascii };
        match (intermediate, last) {
            (Some('('), _) => self.charsets[0] = charset,
            (Some(')'), _) => self.charsets[1] = charset,
            (None, 'D' | 'E') => self.line_feed(out),
            (None, 'M') => self.up(1),
            (None, '7') => self.saved_column = self.offset(),
            (None, '8') => self.move_to(self.saved_column),
            (None, 'c') => {
                self.charsets = [Charset::Ascii; 2];
                self.shifted = false;
                self.begin_line(out);
            }
            _ => {}
        }
    }

    fn edit(&mut self, csi: &Csi, out: &mut String) {
        let (offset, times, limit) = (self.offset(), csi.times(), self.options.max_line);
        let column = self.origin + offset;
        match csi.last {
            'A' => self.up(times),
            'B' | 'e' => self.down(times),
            'E' => {
                self.down(times);
                self.column = self.origin;
            }
            'F' => {
                self.up(times);
                self.column = self.origin;
            }
            'C' | 'a' => self.move_to(offset + times),
            'D' => self.move_to(offset.saturating_sub(times)),
            'G' | '`' => self.move_to(times - 1),
            'H' | 'f' => {
                self.begin_line(out);
                self.move_to(usize::from(csi.parameters().get(1).copied().unwrap_or(1).max(1)) - 1);
            }
            'd' => {
                self.begin_line(out);
                self.move_to(offset);
            }
            'J' => match csi.first() {
                0 => {
                    let column = self.column;
                    self.line().erase_from(column);
                    self.lines.truncate(self.row + 1);
                }
                2 => self.begin_line(out),
                _ => {}
            },
            'K' => match csi.first() {
                // A character in the last column stays, though the cursor has not left that column yet: programs that
                // end their colours with this do not mean to rub it out.
                0 => self.erase_row_from(self.column),
                1 => {
                    let origin = self.origin;
                    self.line().blank(origin, offset + 1);
                }
                2 => self.erase_row_from(self.origin),
                _ => {}
            },
            'P' => self.line().delete(column, times),
            'X' => self.line().blank(column, times),
            '@' => self.line().insert_blanks(column, times.min(MAX_MOVE), limit),
            's' => self.saved_column = offset,
            'u' => self.move_to(self.saved_column),
            _ => {}
        }
    }

    fn mode(&mut self, csi: &Csi, out: &mut String) {
        if csi.marker == Some('?')
            && csi.intermediate.is_none()
            && csi.parameters().iter().any(|mode| matches!(mode, 47 | 1047 | 1049))
        {
            match csi.last {
                'h' => self.alternate(true, out),
                'l' => self.alternate(false, out),
                _ => {}
            }
        }
    }

    fn alternate(&mut self, on: bool, out: &mut String) {
        let was_on = std::mem::replace(&mut self.on_alternate, on);
        if was_on && !on && self.leaves_out() {
            self.say(LEFT_OUT, out);
        }
    }

    /// Puts words of ours on a line of their own.
    fn say(&mut self, words: &str, out: &mut String) {
        self.begin_line(out);
        words.chars().for_each(|character| self.put(character));
        self.new_line(out);
    }

    /// Goes to a column of the terminal's row, but no further than a terminal would, or than the line already goes.
    fn move_to(&mut self, offset: usize) {
        let reach = MAX_MOVE.max(self.lines[self.row].columns()).min(self.options.max_line);
        self.column = (self.origin + offset.min(self.width() - 1)).min(reach.max(self.origin));
    }

    /// Erases to the end of the terminal's row. The line goes on behind it only where it was wrapped.
    fn erase_row_from(&mut self, column: usize) {
        let end = self.origin + self.width();
        let line = self.line();
        if line.columns() > end { line.blank(column, end - column) } else { line.erase_from(column) }
    }

    fn up(&mut self, times: usize) {
        let (offset, width) = (self.offset(), self.width());
        for _ in 0..times {
            if self.origin > 0 {
                self.origin -= width;
            } else if self.row > 0 {
                self.row -= 1;
                self.origin = self.line().columns().saturating_sub(1) / width * width;
            } else {
                break;
            }
        }
        self.column = self.origin + offset;
    }

    fn down(&mut self, times: usize) {
        let offset = self.offset();
        for _ in 0..times {
            if !self.down_in_line() {
                if self.row + 1 == self.lines.len() {
                    break;
                }
                self.row += 1;
                self.origin = 0;
            }
        }
        self.column = self.origin + offset;
    }

    /// Goes to the next of the terminal's rows that the line takes, if there is one.
    fn down_in_line(&mut self) -> bool {
        let next = self.origin + self.width();
        let goes_on = self.line().columns() > next;
        if goes_on {
            self.origin = next;
        }
        goes_on
    }

    fn line_feed(&mut self, out: &mut String) {
        if self.down_in_line() {
            self.column = self.origin;
        } else {
            self.new_line(out);
        }
    }

    fn new_line(&mut self, out: &mut String) {
        self.origin = 0;
        self.column = 0;
        self.row += 1;
        if self.row == self.lines.len() {
            self.lines.push_back(Line::default());
        }
        while self.lines.len() > self.options.hold_back + 1
            && self.row > 0
            && let Some(line) = self.lines.pop_front()
        {
            self.row -= 1;
            line.write_to(out);
            out.push('\n');
        }
    }

    /// Goes below all that is there.
    fn begin_line(&mut self, out: &mut String) {
        self.row = self.lines.len() - 1;
        self.origin = 0;
        self.column = 0;
        if !self.line().is_empty() {
            self.new_line(out);
        }
    }

    fn write_rest(&self, out: &mut String) {
        for (row, line) in self.lines.iter().enumerate() {
            if row > 0 {
                out.push('\n');
            }
            line.write_to(out);
        }
    }
}

#[cfg(test)]
#[path = "plain_tests.rs"]
mod tests;
