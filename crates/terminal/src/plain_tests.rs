//! Tests of plain text: what stays, what goes, what a line becomes.

use super::*;

fn with(options: PlainOptions, bytes: impl AsRef<[u8]>) -> String {
    let (mut plain, mut text) = (Plain::new(options), String::new());
    plain.feed(bytes.as_ref(), &mut text);
    plain.finish(&mut text);
    text
}

fn plain(bytes: impl AsRef<[u8]>) -> String {
    with(PlainOptions::default(), bytes)
}

fn held(bytes: impl AsRef<[u8]>) -> String {
    with(PlainOptions { hold_back: 24, ..PlainOptions::default() }, bytes)
}

fn wide(columns: u16, bytes: impl AsRef<[u8]>) -> String {
    with(PlainOptions { terminal_columns: Some(columns), ..PlainOptions::default() }, bytes)
}

#[test]
fn text_without_sequences_stays_as_it_is() {
    for text in [
        "",
        "a",
        "a\n",
        "a\nb",
        "\n\n",
        "  a  \n",
        "a\tb\t\n",
        "é界🦀e\u{301} 👩\u{200d}🚀\n",
        "\u{feff}bom\n",
    ] {
        assert_eq!(plain(text), text);
        assert_eq!(held(text), text);
        assert_eq!(wide(20, text), text);
    }
    assert_eq!(plain("a\r\nb\r\n"), "a\nb\n");
    assert_eq!(plain(b"a\xffb"), "a\u{fffd}b");
    assert_eq!(plain(b"a\xe7\x95"), "a\u{fffd}");
}

#[test]
fn sequences_of_every_kind_are_taken_away() {
    assert_eq!(plain("\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mx\x1b[4:3my\x1b[?25l"), "red xy");
    assert_eq!(plain("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b"), "alinkb");
    assert_eq!(plain("\x1bP1$r0m\x1b\\a\x1b_apc\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d"), "abcd");
    assert_eq!(plain("\x1b(Ba\x1b)0b\x1b%Gc\x1b#3d\x1b=e\x1b>f"), "abcdef");
    assert_eq!(plain("\x1bNa\x1bOb\u{8e}c\u{9b}1md"), "abcd");
    assert_eq!(plain("a\0\x07\x7fb"), "ab");
}

#[test]
fn line_drawing_is_drawn() {
    assert_eq!(plain("\x1b(0lqqk\x1b(Bq\x1b)0\x0ex\x0fx"), "┌──┐q│x");
}

#[test]
fn progress_is_its_last_state() {
    let bar: String =
        (0..=100).map(|percent| format!("\r{percent:3}% [{:<10}]", "#".repeat(percent / 10))).collect();
    assert_eq!(plain(format!("{bar}\ndone\n")), "100% [##########]\ndone\n");
    assert_eq!(plain("downloading\r\x1b[Kdone\n"), "done\n");
    assert_eq!(plain("downloading\x1b[2K\rdone\n"), "done\n");
    assert_eq!(plain("longer text\rshort\n"), "shortr text\n");
    assert_eq!(plain("working...\r          \rok\n"), "ok\n");
    assert_eq!(plain("working...\r          \r"), "");
}

#[test]
fn typing_mistakes_are_rubbed_out() {
    assert_eq!(plain("lz\x08 \x08s -l\n"), "ls -l\n");
    assert_eq!(plain("lz\x08\x1b[Ks\n"), "ls\n");
    assert_eq!(plain("界\x08\x08  \x08\x08x\n"), "x\n");
    assert_eq!(plain("\x08\x08a\n"), "a\n");
    // A character that the shell inserts into a line, and one that it deletes.
    assert_eq!(plain("echo wrld\x08\x08\x08\x1b[1@o\n"), "echo world\n");
    assert_eq!(plain("echo woorld\x08\x08\x08\x08\x1b[1P\n"), "echo world\n");
    assert_eq!(plain("abcdef\x1b[4D\x1b[2X\n"), "ab  ef\n");
    assert_eq!(plain("abc\x1b[1G\x1b[Cx\x1b[6Gy\n"), "axc  y\n");
    assert_eq!(plain("abc\x1b[1Kd\n"), "   d\n");
}

#[test]
fn marks_stay_with_their_character() {
    assert_eq!(plain("e\u{301}a\x08\x08x\n"), "xa\n");
    assert_eq!(plain("e\u{301}a\x1b[1D\x1b[@b\n"), "e\u{301}ba\n");
    assert_eq!(plain("ae\u{301}\r\x1b[P\n"), "e\u{301}\n");
    assert_eq!(plain("e\u{301}x\r\x1b[Ky\n"), "y\n");
}

#[test]
fn half_of_a_wide_character_is_a_blank() {
    assert_eq!(plain("界x\rab\n"), "abx\n");
    assert_eq!(plain("界x\ra\n"), "a x\n");
    assert_eq!(plain("a界x\r界\n"), "界 x\n");
}

#[test]
fn an_unfinished_line_can_be_seen() {
    let (mut plain, mut text) = (Plain::default(), String::new());
    plain.feed(b"one\n10%\r20%\x1b[", &mut text);
    assert_eq!((text.as_str(), plain.unfinished().as_str()), ("one\n", "20%"));
    plain.feed(b"K\nPassword: ", &mut text);
    assert_eq!((text.as_str(), plain.unfinished().as_str()), ("one\n20%\n", "Password: "));
    plain.finish(&mut text);
    assert_eq!(text, "one\n20%\nPassword: ");
    assert_eq!(plain.unfinished(), "");
}

#[test]
fn redrawn_lines_are_their_last_state_when_they_are_held_back() {
    let frames = "a 1\nb 1\n\x1b[2A\x1b[2Ka 2\n\x1b[2Kb 2\n\x1b[2F\x1b[0Ja 3\nb 3\nend\n";
    assert_eq!(held(frames), "a 3\nb 3\nend\n");
    // Without, every state is there once, and nothing is lost.
    assert_eq!(plain(frames), "a 1\nb 1\na 2\nb 2\na 3\nb 3\nend\n");
    assert_eq!(held(format!("{}\x1b[99Ax\n", "y\n".repeat(24))), format!("x\n{}", "y\n".repeat(23)));
}

#[test]
fn moves_to_a_place_begin_a_line() {
    assert_eq!(plain("one\x1b[5;3Htwo\x1b[2J\x1b[Hthree\n"), "one\n  two\nthree\n");
    assert_eq!(plain("$ clear\r\n\x1b[H\x1b[2J\x1b[3J$ "), "$ clear\n$ ");
}

#[test]
fn a_wrapped_line_is_one_line_and_can_be_edited() {
    assert_eq!(wide(10, "0123456789abc\r\nx\r\n"), "0123456789abc\nx\n");
    // A line editor at the right edge writes a character and returns, to make the terminal wrap.
    assert_eq!(wide(10, "$ 23456789 \rabc"), "$ 23456789abc");
    // It goes up into the first row, changes it, and comes back down.
    assert_eq!(wide(10, "0123456789abc\x1b[A\rX\x1b[B\rY\n"), "X123456789Ybc\n");
    assert_eq!(wide(10, "0123456789abc\x1b[A\r\x1b[2K\n"), "          abc");
    assert_eq!(wide(10, "0123456789abc\x1b[A\r\x1b[J\n"), "\n");
    // A wide character that does not fit goes to the next row as a whole.
    assert_eq!(wide(10, "012345678界x\ry"), "012345678y x");
    assert_eq!(wide(10, "012345678界x"), "012345678界x");
    assert_eq!(wide(10, "0123456789\rX\n"), "X123456789\n");
    assert_eq!(wide(10, "\x1b[31m0123456789\x1b[m\x1b[K\nx\x1b[K  \n"), "0123456789\nx  \n");
}

#[test]
fn full_screen_programs_are_left_out_with_a_note() {
    let bytes = "$ vim\r\n\x1b[?1049h\x1b[2J~\r\n~\r\ntext\x1b[?1049l$ ";
    assert_eq!(plain(bytes), format!("$ vim\n{LEFT_OUT}\n$ "));
    assert_eq!(plain("a\n\x1b[?1047hx\n"), format!("a\n{STILL_ON}\n"));
    let keep = PlainOptions { alternate_screen: AlternateScreen::Keep, ..PlainOptions::default() };
    assert_eq!(with(keep, "\x1b[?1049hx\n\x1b[?1049ly"), "x\ny");
    assert_eq!(plain("a\x1b[?1049lb"), "ab");
}

#[test]
fn long_lines_are_cut_and_say_so() {
    let options = || PlainOptions { max_line: 10, ..PlainOptions::default() };
    assert_eq!(with(options(), "0123456789\n"), "0123456789\n");
    assert_eq!(with(options(), "0123456789abc\nx\n"), "0123456789 … [3 characters cut]\nx\n");
    assert_eq!(with(options(), "0123456789abc\r\x1b[Kx\n"), "x\n");
    assert_eq!(with(options(), "0123456789abc\x1b[m\x1b[K\n"), "0123456789 … [3 characters cut]\n");
    assert_eq!(with(options(), "012345678界\n"), "012345678 … [1 characters cut]\n");
    let flood = "x".repeat(10 << 20);
    let cut = plain(&flood);
    assert_eq!(cut.len(), 16_384 + format!(" … [{} characters cut]", flood.len() - 16_384).len());
    let narrow = PlainOptions { max_line: 15, terminal_columns: Some(10), ..PlainOptions::default() };
    assert_eq!(with(narrow, "0123456789abcdefg\n"), "0123456789abcde … [2 characters cut]\n");
}

#[test]
fn movements_make_few_blanks() {
    assert_eq!(plain("\x1b[65535Cx\n").len(), 502);
    assert_eq!(plain("\x1b[65535Gx\x1b[65535@\n").len(), 502);
    assert_eq!(wide(80, "\x1b[65535Cx\n").len(), 81);
    assert!(plain(format!("{}\n", "a\r\x1b[500@".repeat(1000))).len() < 17_000);
}

#[test]
fn marks_are_bounded() {
    let text = plain(format!("e{}\n", "\u{301}".repeat(100_000)));
    assert!(text.len() < 200, "{}", text.len());
    assert!(text.contains("characters cut"));
}
