//! A screen that is known, put onto the caller's own terminal: what a viewer sees who comes later.

use workroom_types::{ScreenColor, ScreenRow, ScreenRun, TerminalScreen};

/// Everything that draws the screen, with the cursor and the modes as the program has them.
pub(crate) fn paint(screen: &TerminalScreen) -> String {
    let mut text = String::new();
    if screen.alternate {
        text.push_str("\x1b[?1049h");
    }
    text.push_str("\x1b[0m\x1b[2J");
    for (row, line) in screen.rows.iter().enumerate() {
        paint_row(row + 1, line, &mut text);
    }
    let modes = [
        (1, screen.modes.application_cursor),
        (2004, screen.modes.bracketed_paste),
        (25, screen.cursor.visible),
    ];
    for (mode, on) in modes {
        text.push_str(&format!("\x1b[?{mode}{}", if on { 'h' } else { 'l' }));
    }
    text + &format!("\x1b[0m\x1b[{};{}H", screen.cursor.row + 1, screen.cursor.column + 1)
}

fn paint_row(number: usize, row: &ScreenRow, text: &mut String) {
    if row.runs.is_empty() {
        return;
    }
    for run in &row.runs {
        // Each where it belongs: characters may be wider here than there.
        text.push_str(&format!("\x1b[{number};{}H", run.column + 1));
        text.push_str(&look(run));
        text.extend(run.text.chars().filter(|character| !character.is_control()));
    }
    text.push_str("\x1b[0m");
}

fn look(run: &ScreenRun) -> String {
    let mut codes = vec!["0".to_owned()];
    let flags = [
        (run.bold, 1),
        (run.faint, 2),
        (run.italic, 3),
        (run.underline, 4),
        (run.blink, 5),
        (run.inverse, 7),
        (run.strikethrough, 9),
    ];
    codes.extend(flags.iter().filter(|(on, _)| *on).map(|(_, code)| code.to_string()));
    for (color, ground) in [(&run.fg, 38), (&run.bg, 48)] {
        match color {
            Some(ScreenColor::Palette(index)) => codes.push(format!("{ground};5;{index}")),
            Some(ScreenColor::Rgb(rgb)) => codes.extend(rgb_codes(rgb, ground)),
            None => {}
        }
    }
    format!("\x1b[{}m", codes.join(";"))
}

/// `#rrggbb`; nothing for what is not written so.
fn rgb_codes(rgb: &str, ground: u8) -> Option<String> {
    let part = |at: usize| u8::from_str_radix(rgb.get(at..at + 2)?, 16).ok();
    Some(format!("{ground};2;{};{};{}", part(1)?, part(3)?, part(5)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use workroom_terminal::{Blanks, Screen, Size};

    /// Painted on another screen it is the same screen.
    #[test]
    fn what_is_painted_looks_like_what_was_seen() {
        let run = |column, text: &str| ScreenRun { column, text: text.into(), ..ScreenRun::default() };
        let bold = ScreenRun {
            bold: true,
            fg: Some(ScreenColor::Rgb("#0102ff".into())),
            bg: Some(ScreenColor::Palette(200)),
            ..run(4, "bold")
        };
        let mut seen = TerminalScreen { alternate: true, ..TerminalScreen::default() };
        seen.rows = vec![
            ScreenRow { runs: vec![run(0, "日本"), bold], ..ScreenRow::default() },
            ScreenRow::default(),
            ScreenRow { runs: vec![run(0, "evil\x1b[2J")], ..ScreenRow::default() },
        ];
        (seen.cursor.row, seen.cursor.column, seen.modes.bracketed_paste) = (2, 3, true);
        let mut screen = Screen::new(Size::new(20, 10).expect("a size"));
        screen.feed(paint(&seen).as_bytes());
        assert_eq!(screen.text(Blanks::Trim)[..3], ["日本bold", "", "evil[2J"]);
        let style = screen.lines(Blanks::Trim)[0].runs[1].style;
        assert!(style.bold && style.foreground.is_some() && style.background.is_some(), "{style:?}");
        assert!(screen.is_alternate() && screen.key_modes().bracketed_paste && !screen.cursor().visible);
        assert_eq!((screen.cursor().row, screen.cursor().column), (2, 3));
    }
}
