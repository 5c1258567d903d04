//! What the tests share: streams recorded from real programs in a terminal of 80 by 24, and random numbers that are the
//! same in every run.

use std::path::PathBuf;
use workroom_terminal::{Blanks, Plain, PlainOptions, Screen, Size};

pub(crate) const COLUMNS: u16 = 80;

/// The programs: an editor that edits, an editor started from a shell and left, a pager that searches, a process
/// viewer that draws the whole screen, two package managers with progress bars, coloured output, and a shell in which a
/// line longer than the screen was edited.
pub(crate) const PROGRAMS: [&str; 8] =
    ["vim", "vim_quit", "less", "htop", "pip", "cargo_build", "git_log", "bash"];

pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let crate_dir = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests"));
    let path = crate_dir.join("tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn size() -> Size {
    Size::new(COLUMNS, 24).expect("a size")
}

pub(crate) fn plain_options() -> PlainOptions {
    PlainOptions { terminal_columns: Some(COLUMNS), ..PlainOptions::default() }
}

/// All that is to be seen and known of a screen, as text.
pub(crate) fn describe(screen: &mut Screen) -> String {
    let mut text = String::new();
    for line in screen.text(Blanks::Trim) {
        text.push_str(&format!("|{line}\n"));
    }
    let cursor = screen.cursor();
    let answers = String::from_utf8(screen.take_answers()).expect("answers are text");
    text.push_str(&format!(
        "cursor: column {} row {} visible {}\n",
        cursor.column, cursor.row, cursor.visible
    ));
    text.push_str(&format!("title: {:?}\nalternate: {}\n", screen.title(), screen.is_alternate()));
    text.push_str(&format!("{:?}\nanswers: {answers:?}\n", screen.key_modes()));
    text.push_str(&format!("history: {}\n", screen.history_len()));
    text
}

/// The plain text of bytes that come in the given pieces.
pub(crate) fn plain<'a>(options: PlainOptions, pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let (mut plain, mut text) = (Plain::new(options), String::new());
    for piece in pieces {
        plain.feed(piece, &mut text);
    }
    plain.finish(&mut text);
    text
}

/// A small generator of numbers (splitmix64).
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    /// Cuts bytes into pieces of random lengths, mostly short.
    pub(crate) fn cut<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let most = if self.below(4) == 0 { 200 } else { 4 };
            let (piece, rest) = bytes.split_at((1 + self.below(most)).min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}
