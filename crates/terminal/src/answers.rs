//! What a program says to its terminal besides drawing: its title, the modes of the keyboard, and questions, which a
//! terminal answers on the program's input.

use crate::sequence::{Csi, Token};
use avt::{ScreenKind, Terminal};

/// The answers that wait to be taken. A program that asks and never reads must not fill our memory.
const MAX_WAITING: usize = 4096;
const MAX_TITLE_CHARS: usize = 256;
const MAX_SAVED_TITLES: usize = 10;

#[derive(Debug, Default)]
pub(crate) struct Dialogue {
    pub(crate) title: Option<String>,
    saved_titles: Vec<Option<String>>,
    pub(crate) bracketed_paste: bool,
    waiting: Vec<u8>,
    dropped: u64,
}

impl Dialogue {
    /// Takes one token, after the grid has taken it: an answer tells the state that the question found.
    pub(crate) fn take(&mut self, token: Token<'_>, grid: &Terminal) {
        match token {
            Token::Osc(command) => self.command(command),
            Token::Csi(csi) => self.sequence(csi, grid),
            Token::Escape { intermediate: None, last: 'c' } => {
                self.bracketed_paste = false;
                self.title = None;
                self.saved_titles.clear();
            }
            // DECID, the oldest form of the question what this terminal is.
            Token::Escape { intermediate: None, last: 'Z' } => self.answer_what_it_is(),
            Token::Print(_) | Token::Control(_) | Token::Escape { .. } => {}
        }
    }

    pub(crate) fn take_answers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.waiting)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    fn command(&mut self, command: &str) {
        // 0 sets the title of the window and the icon, 2 of the window.
        if let Some(title) = command.strip_prefix("0;").or_else(|| command.strip_prefix("2;")) {
            let title: String = title.chars().filter(|c| !c.is_control()).take(MAX_TITLE_CHARS).collect();
            self.title = (!title.is_empty()).then_some(title);
        }
    }

    fn sequence(&mut self, csi: &Csi, grid: &Terminal) {
        match (csi.marker, csi.intermediate, csi.last) {
            (Some('?'), None, 'h') if csi.parameters().contains(&2004) => self.bracketed_paste = true,
            (Some('?'), None, 'l') if csi.parameters().contains(&2004) => self.bracketed_paste = false,
            (None, None, 'c') if csi.first() == 0 => self.answer_what_it_is(),
            // Version 0: programs turn on special treatment for versions that they know.
            (Some('>'), None, 'c') if csi.first() == 0 => self.answer("\x1b[>0;0;0c"),
            (None, None, 'n') if csi.first() == 5 => self.answer("\x1b[0n"),
            (None | Some('?'), None, 'n') if csi.first() == 6 => self.answer_position(csi, grid),
            (Some('?'), Some('$'), 'p') => self.answer_mode(csi.first(), grid),
            (None, None, 't') => self.window(csi, grid),
            _ => {}
        }
    }

    /// A VT220 with colours: what drawing on the grid comes nearest to.
    fn answer_what_it_is(&mut self) {
        self.answer("\x1b[?62;22c");
    }

    fn answer_position(&mut self, csi: &Csi, grid: &Terminal) {
        let cursor = grid.cursor();
        // Past the last column the cursor waits for the next character; programs are told the last column.
        let (row, column) = (cursor.row + 1, cursor.col.min(grid.size().0 - 1) + 1);
        let marker = if csi.marker.is_some() { "?" } else { "" };
        self.answer(&format!("\x1b[{marker}{row};{column}R"));
    }

    fn answer_mode(&mut self, mode: u16, grid: &Terminal) {
        let on = match mode {
            1 => Some(grid.cursor_key_app_mode()),
            25 => Some(grid.cursor().visible),
            47 | 1047 | 1049 => Some(grid.active_screen_kind() == ScreenKind::Alternate),
            2004 => Some(self.bracketed_paste),
            _ => None,
        };
        let state = match on {
            Some(true) => 1,
            Some(false) => 2,
            None => 0,
        };
        self.answer(&format!("\x1b[?{mode};{state}$y"));
    }

    fn window(&mut self, csi: &Csi, grid: &Terminal) {
        match csi.first() {
            18 => {
                let (cols, rows) = grid.size();
                self.answer(&format!("\x1b[8;{rows};{cols}t"));
            }
            // Full-screen programs put the title aside and take it back when they end.
            22 if self.saved_titles.len() < MAX_SAVED_TITLES => self.saved_titles.push(self.title.clone()),
            23 => {
                if let Some(title) = self.saved_titles.pop() {
                    self.title = title;
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, answer: &str) {
        if self.waiting.len() + answer.len() <= MAX_WAITING {
            self.waiting.extend_from_slice(answer.as_bytes());
        } else {
            self.dropped += 1;
        }
    }
}
