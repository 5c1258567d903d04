//! A screen as callers see it.

use super::models::Drawn;
use workroom_terminal::{Blanks, Color, StyledLine};
use workroom_types::{
    ProcessState, PtySize, ScreenColor, ScreenCursor, ScreenModes, ScreenRow, ScreenRun, TerminalScreen,
};

/// What of a screen is wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScreenQuery {
    /// Rows that have scrolled off the top, the last ones.
    pub scrollback: usize,
    /// Also colours and attributes.
    pub attributes: bool,
}

pub(crate) fn view(drawn: &Drawn, query: ScreenQuery, state: ProcessState) -> TerminalScreen {
    let screen = &drawn.screen;
    let (size, cursor, modes) = (screen.size(), screen.cursor(), screen.key_modes());
    let skipped = screen.history_len().saturating_sub(query.scrollback);
    let history: Vec<StyledLine> = screen.history().skip(skipped).collect();
    let text = |line: &StyledLine| line.text().trim_end_matches(' ').to_owned();
    TerminalScreen {
        size: PtySize { cols: Some(size.cols()), rows: Some(size.rows()) },
        cursor: ScreenCursor { row: cursor.row, column: cursor.column, visible: cursor.visible },
        title: screen.title().map(str::to_owned),
        alternate: screen.is_alternate(),
        modes: ScreenModes {
            application_cursor: modes.application_cursor,
            bracketed_paste: modes.bracketed_paste,
        },
        text: screen.text(Blanks::Trim),
        rows: match query.attributes {
            true => screen.lines(Blanks::Trim).into_iter().map(row).collect(),
            false => Vec::new(),
        },
        scrollback: history.iter().map(text).collect(),
        scrollback_rows: match query.attributes {
            true => history.into_iter().map(row).collect(),
            false => Vec::new(),
        },
        scrollback_lines: screen.history_len() as u64,
        scrollback_dropped: screen.history_dropped(),
        next_cursor: drawn.at,
        missing: drawn.missing,
        state,
    }
}

fn row(line: StyledLine) -> ScreenRow {
    let run = |run: workroom_terminal::Run| ScreenRun {
        column: run.column,
        text: run.text,
        fg: run.style.foreground.map(color),
        bg: run.style.background.map(color),
        bold: run.style.bold,
        faint: run.style.faint,
        italic: run.style.italic,
        underline: run.style.underline,
        blink: run.style.blink,
        inverse: run.style.inverse,
        strikethrough: run.style.strikethrough,
    };
    ScreenRow { wrapped: line.wrapped, runs: line.runs.into_iter().map(run).collect() }
}

fn color(color: Color) -> ScreenColor {
    match color {
        Color::Palette(index) => ScreenColor::Palette(index),
        Color::Rgb(red, green, blue) => ScreenColor::Rgb(format!("#{red:02x}{green:02x}{blue:02x}")),
    }
}
