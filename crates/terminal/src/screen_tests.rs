//! Tests of the screen: bytes in pieces, drawing, history, answers, and bounds.

use super::*;
use crate::style::{Color, Style};

fn screen(cols: u16, rows: u16) -> Screen {
    Screen::new(Size::new(cols, rows).expect("a size"))
}

fn fed(bytes: impl AsRef<[u8]>) -> Screen {
    let mut screen = screen(40, 10);
    screen.feed(bytes.as_ref());
    screen
}

#[test]
fn text_lands_on_the_grid() {
    let screen = fed("hello\r\nworld");
    assert_eq!(screen.text(Blanks::Trim)[..3], ["hello", "world", ""]);
    assert_eq!(screen.text(Blanks::Keep)[0], format!("{:40}", "hello"));
    assert_eq!(screen.cursor(), Cursor { column: 5, row: 1, visible: true });
    assert_eq!(screen.text(Blanks::Trim).len(), 10);
}

#[test]
fn characters_and_sequences_may_be_cut_anywhere() {
    let bytes = "é界🦀\x1b[1;3H\x1b[31mred\x1b]2;tïtle\x1b\\\x1b[0m".as_bytes();
    let whole = fed(bytes).snapshot(Blanks::Trim);
    assert_eq!(whole.title.as_deref(), Some("tïtle"));
    for cut in 0..=bytes.len() {
        let mut screen = screen(40, 10);
        screen.feed(&bytes[..cut]);
        screen.feed(&bytes[cut..]);
        assert_eq!(screen.snapshot(Blanks::Trim), whole, "cut at {cut}");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_replaced() {
    assert_eq!(fed(b"a\xff\xfeb\xe7\x95c").text(Blanks::Trim)[0], "a\u{fffd}\u{fffd}b\u{fffd}c");
}

#[test]
fn styles_are_runs_and_serialise_briefly() {
    let screen = fed("a\x1b[1;4;7;31;48;2;1;2;255mb界c\x1b[0;3;2;9;5;38;5;200md\x1b[m e");
    let line = &screen.lines(Blanks::Trim)[0];
    assert_eq!(line.text(), "ab界cd e");
    assert_eq!(
        serde_json::to_value(line).expect("JSON"),
        serde_json::json!({"runs": [
            {"column": 0, "text": "a"},
            {"column": 1, "text": "b界c", "fg": 1, "bg": "#0102ff", "bold": true, "underline": true, "inverse": true},
            {"column": 5, "text": "d", "fg": 200, "faint": true, "italic": true, "strikethrough": true, "blink": true},
            {"column": 6, "text": " e"},
        ]})
    );
}

#[test]
fn blanks_with_a_background_are_not_trimmed() {
    let screen = fed("x\x1b[44m  \x1b[0m   ");
    let line = &screen.lines(Blanks::Trim)[0];
    assert_eq!(line.text(), "x  ");
    let blue = Style { background: Some(Color::Palette(4)), ..Style::default() };
    assert_eq!(line.runs[1].style, blue);
    assert_eq!(screen.lines(Blanks::Keep)[0].text().len(), 40);
}

#[test]
fn the_alternate_screen_comes_and_goes() {
    let mut screen = fed("shell\x1b[?1049h\x1b[Hvim\x1b[?25l");
    assert!(screen.is_alternate());
    assert_eq!(screen.text(Blanks::Trim)[0], "vim");
    assert!(!screen.cursor().visible);
    assert_eq!(screen.whole_text(), ["shell"]);
    screen.feed(b"\x1b[?25h\x1b[?1049l");
    assert!(!screen.is_alternate());
    assert_eq!(screen.text(Blanks::Trim)[0], "shell");
    assert!(screen.cursor().visible);
}

#[test]
fn titles_are_set_put_aside_and_taken_back() {
    let mut screen = fed("\x1b]0;one\x07");
    assert_eq!(screen.title(), Some("one"));
    screen.feed(b"\x1b[22;0t\x1b]2;vim; file\x1b\\");
    assert_eq!(screen.title(), Some("vim; file"));
    screen.feed(b"\x1b[23;0t\x1b]1;icon\x07\x1b]52;c;clip\x07");
    assert_eq!(screen.title(), Some("one"));
    screen.feed(b"\x1b]2;\x07");
    assert_eq!(screen.title(), None);
    screen.feed(format!("\x1b]2;{}\x07", "t".repeat(1 << 20)).as_bytes());
    assert_eq!(screen.title().map(str::len), Some(256));
}

#[test]
fn modes_of_the_keyboard_are_known() {
    let mut screen = fed("\x1b[?1h\x1b[?25;2004h");
    assert_eq!(screen.key_modes(), KeyModes { application_cursor: true, bracketed_paste: true });
    screen.feed(b"\x1b[?1l\x1b[?2004l");
    assert_eq!(screen.key_modes(), KeyModes::default());
    screen.feed(b"\x1b[?1h\x1b[?2004h\x1bc");
    assert_eq!(screen.key_modes(), KeyModes::default());
}

#[test]
fn questions_are_answered_once() {
    let ask = |question: &str| String::from_utf8(fed(question).take_answers()).expect("text");
    assert_eq!(ask("\x1b[c"), "\x1b[?62;22c");
    assert_eq!(ask("\x1b[0c\x1bZ"), "\x1b[?62;22c\x1b[?62;22c");
    assert_eq!(ask("\x1b[>c"), "\x1b[>0;0;0c");
    assert_eq!(ask("\x1b[5n"), "\x1b[0n");
    assert_eq!(ask("ab\r\nc\x1b[6nd"), "\x1b[2;2R");
    assert_eq!(ask("\x1b[5;7H\x1b[?6n"), "\x1b[?5;7R");
    assert_eq!(ask("\x1b[999;999H\x1b[6n"), "\x1b[10;40R");
    assert_eq!(ask(&format!("{}\x1b[6n", "x".repeat(40))), "\x1b[1;40R");
    assert_eq!(ask("\x1b[?2004h\x1b[?2004$p\x1b[?25$p\x1b[?1049$p\x1b[?2026$p"), {
        "\x1b[?2004;1$y\x1b[?25;1$y\x1b[?1049;2$y\x1b[?2026;0$y"
    });
    assert_eq!(ask("\x1b[18t"), "\x1b[8;10;40t");
    // Answers that come back, as they do when a program has turned echo on, are not questions.
    assert_eq!(ask("\x1b[?62;22c\x1b[2;2R\x1b[0n\x1b[?25;1$y"), "");
    let mut screen = fed("\x1b[5n");
    assert_eq!(screen.take_answers(), b"\x1b[0n");
    assert_eq!(screen.take_answers(), b"");
}

#[test]
fn answers_that_nobody_takes_do_not_pile_up() {
    let mut screen = screen(40, 10);
    screen.feed("\x1b[5n".repeat(100_000).as_bytes());
    assert_eq!(screen.answers_dropped(), 100_000 - 1024);
    assert_eq!(screen.take_answers().len(), 4096);
    screen.feed(b"\x1b[5n");
    assert_eq!(screen.take_answers(), b"\x1b[0n");
}

#[test]
fn history_keeps_what_scrolls_off_with_its_style() {
    let mut screen = screen(20, 10);
    for line in 0..30 {
        screen.feed(format!("\x1b[3{}mline {line}\x1b[0m 界\r\n", line % 8).as_bytes());
    }
    assert_eq!(screen.history_len(), 21);
    let line = screen.history().nth(3).expect("a line");
    assert_eq!(line.text(), "line 3 界");
    assert_eq!(line.runs[0].style.foreground, Some(Color::Palette(3)));
    assert_eq!((line.runs[1].text.as_str(), line.runs[1].column), (" 界", 6));
    let whole = screen.whole_text();
    assert_eq!(whole.len(), 30);
    assert_eq!((whole[0].as_str(), whole[29].as_str()), ("line 0 界", "line 29 界"));
}

#[test]
fn wrapped_rows_are_one_line_of_text() {
    let mut screen = screen(20, 10);
    let long = "0123456789".repeat(7);
    screen.feed(format!("{long}\r\nshort").as_bytes());
    assert_eq!(screen.whole_text(), [long.as_str(), "short"]);
    screen.feed("\r\n".repeat(20).as_bytes());
    assert_eq!(screen.whole_text(), [long.as_str(), "short"]);
    assert!(screen.history().next().expect("a line").wrapped);
}

#[test]
fn clearing_the_history_and_resetting_clear_it() {
    let many = "line\r\n".repeat(30);
    assert_eq!(fed(format!("{many}\x1b[H\x1b[2J\x1b[3J")).history_len(), 0);
    assert_eq!(fed(format!("{many}\x1bc")).history_len(), 0);
    let cleared = fed("seen\r\n\x1b[H\x1b[2Jnow");
    assert_eq!(cleared.text(Blanks::Trim)[0], "now");
    assert_eq!(cleared.whole_text(), ["seen", "now"]);
}

#[test]
fn history_is_bounded_in_lines_and_counts_what_it_dropped() {
    let mut screen = screen(20, 10);
    for line in 0..HISTORY_LINES + 500 {
        screen.feed(format!("{line}\r\n").as_bytes());
    }
    assert_eq!(screen.history_len(), HISTORY_LINES);
    assert_eq!(screen.history_dropped(), 491);
    assert_eq!(screen.history().next().expect("a line").text(), "491");
}

#[test]
fn history_is_bounded_in_bytes() {
    let mut screen = screen(500, 10);
    // Every cell has a character of four bytes and a colour of its own.
    let line: String = (0..250).map(|cell| format!("\x1b[38;5;{cell}m\u{1f980}")).collect();
    for _ in 0..3_500 {
        screen.feed(line.as_bytes());
        screen.feed(b"\r\n");
    }
    assert!(screen.history_len() < 3_400);
    assert_eq!(screen.history_len() as u64 + screen.history_dropped(), 3_500 - 9);
}

#[test]
fn resizing_keeps_the_text() {
    let mut screen = screen(80, 24);
    for line in 0..50 {
        screen.feed(format!("line {line} {}\r\n", "x".repeat(50)).as_bytes());
    }
    let before = screen.whole_text();
    for (cols, rows) in [(40, 10), (500, 200), (20, 10), (80, 24)] {
        screen.resize(Size::new(cols, rows).expect("a size"));
        assert_eq!((screen.size().cols(), screen.size().rows()), (cols, rows));
        assert_eq!(screen.text(Blanks::Keep).len(), usize::from(rows));
        assert!(screen.lines(Blanks::Keep).iter().all(|line| line.text().len() == usize::from(cols)));
    }
    // A line that was split between the history and the screen stays split there.
    assert_eq!(screen.whole_text().concat(), before.concat());
}

#[test]
fn a_storm_of_resizes_ends() {
    let mut screen = screen(80, 24);
    for round in 0..2_000_u16 {
        screen.feed(b"text \x1b[?1049h\xe7\x95\x8c\x1b[?1049l\r\n");
        screen.resize(Size::nearest(round.wrapping_mul(7919) % 600, round.wrapping_mul(104) % 250));
    }
    assert!(screen.history_len() <= HISTORY_LINES);
}

#[test]
fn marks_without_a_column_and_deletion_characters_leave_the_columns_alone() {
    let screen = fed("e\u{301}\u{200d}x\x7fy");
    assert_eq!(screen.text(Blanks::Trim)[0], "exy");
    assert_eq!(screen.cursor().column, 3);
}

#[test]
fn repetition_is_bounded() {
    let screen = fed("a\x1b[5bb\x1b[65535b");
    assert!(screen.text(Blanks::Trim)[0].starts_with("aaaaaabbbb"));
    assert_eq!(screen.history_len(), 0);
}

#[test]
fn strings_without_end_take_no_memory_and_show_nothing() {
    for opening in ["\x1b]2;", "\x1bP", "\x1b_", "\x1b[", "\x1b]52;c;"] {
        let mut screen = fed(opening);
        for _ in 0..64 {
            screen.feed(&b"1234567;".repeat(8192));
        }
        screen.feed(b"\x18after");
        assert_eq!(screen.text(Blanks::Trim)[0], "after", "{opening:?}");
    }
}
