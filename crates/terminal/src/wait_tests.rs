//! Tests of waiting: patterns, positions, lines that change, and bounds.

use super::*;
use crate::size::Size;

fn text(text: &str) -> Pattern {
    Pattern::text(text).expect("a pattern")
}

fn regex(pattern: &str) -> Pattern {
    Pattern::regex(pattern).expect("a pattern")
}

fn log() -> TextLog {
    TextLog::new(1 << 16, PlainOptions::default())
}

#[test]
fn patterns_that_are_none_are_refused() {
    assert_eq!(Pattern::text("").expect_err("empty"), PatternError::Empty);
    assert_eq!(Pattern::regex("").expect_err("empty"), PatternError::Empty);
    let long = "x".repeat(2000);
    assert_eq!(Pattern::text(&long).expect_err("long"), PatternError::TooLong { bytes: 2000 });
    for pattern in ["(", "a{1000}{1000}", "[z-a]", &"(".repeat(100)] {
        let error = Pattern::regex(pattern).expect_err(pattern);
        assert!(matches!(error, PatternError::Invalid { .. }), "{error}");
    }
}

#[test]
fn a_prompt_without_an_end_of_line_is_found() {
    let mut log = log();
    let mut waiter = Waiter::new(text("Password: "), &log);
    assert_eq!(waiter.check(&log), None);
    log.feed(b"connecting\r\n\x1b[1mPass");
    assert_eq!(waiter.check(&log), None);
    log.feed(b"word: \x1b[0m");
    let found = waiter.check(&log).expect("the prompt");
    assert_eq!(found, InStream { start: 11, end: 21, text: "Password: ".into() });
}

#[test]
fn what_was_there_before_is_no_news() {
    let mut log = log();
    log.feed(b"ready\n$ ");
    let mut waiter = Waiter::new(regex(r"\$ $"), &log);
    assert_eq!(waiter.check(&log), None);
    log.feed(b"ls\r\nfile\r\n");
    assert_eq!(waiter.check(&log), None);
    log.feed(b"$ ");
    assert_eq!(waiter.check(&log).expect("the next prompt").start, 16);
    let mut earlier = Waiter::since(text("ready"), 0);
    assert_eq!(earlier.check(&log).expect("it was there").start, 0);
}

#[test]
fn a_line_that_is_rewritten_is_new() {
    let mut log = log();
    log.feed(b"\r 10%");
    let mut waiter = Waiter::new(text("0%"), &log);
    assert_eq!(waiter.check(&log), None);
    log.feed(b"\r 20%");
    assert_eq!(waiter.check(&log).expect("another state").text, "0%");
}

#[test]
fn regular_expressions_know_lines() {
    let mut log = log();
    log.feed(b"error: one\nlistening on 127.0.0.1:8080\n");
    let found = Waiter::since(regex(r"^listening on .*:(\d+)$"), 0).check(&log).expect("a match");
    assert_eq!(found.text, "listening on 127.0.0.1:8080");
    assert_eq!(Waiter::since(regex("^on"), 0).check(&log), None);
    assert!(Waiter::since(regex("one\nlist"), 0).check(&log).is_some());
}

#[test]
fn positions_name_text_and_say_what_is_missed() {
    let mut log = TextLog::new(10, PlainOptions::default());
    log.feed("abc\ndé\nfg".as_bytes());
    assert_eq!(log.position(), 10);
    assert_eq!(log.since(4), Since { start: 4, text: "dé\nfg".into(), missed: 0 });
    // In the middle of a character the text begins after it.
    assert_eq!(log.since(6).text, "\nfg");
    assert_eq!(log.since(9), Since { start: 9, text: "g".into(), missed: 0 });
    assert_eq!(log.since(99), Since { start: 10, text: String::new(), missed: 0 });
    log.feed(b"hij\nklm\n");
    assert_eq!(log.since(2), Since { start: 8, text: "fghij\nklm\n".into(), missed: 6 });
    log.finish();
    assert_eq!(log.position(), 18);
}

#[test]
fn a_flood_is_searched_once_and_a_match_across_pieces_is_found() {
    let mut log = TextLog::new(64 << 10, PlainOptions::default());
    let mut waiter = Waiter::new(text("needle\nin hay"), &log);
    for _ in 0..500 {
        log.feed(&b"0123456789abcde\n".repeat(256));
        assert_eq!(waiter.check(&log), None);
    }
    log.feed(b"need");
    assert_eq!(waiter.check(&log), None);
    log.feed(b"le\nin ");
    assert_eq!(waiter.check(&log), None);
    log.feed(b"haystack");
    let found = waiter.check(&log).expect("a match");
    assert_eq!(found.start, 500 * 4096);
    assert_eq!(log.since(found.start).text, "needle\nin haystack");
}

#[test]
fn the_screen_is_searched_with_wrapped_rows_joined() {
    let mut screen = Screen::new(Size::new(20, 10).expect("a size"));
    screen.feed(b"one\r\n0123456789012345678901234567\r\n\x1b[31mdone\x1b[0m!");
    assert_eq!(text("89012345").on_screen(&screen), Some(OnScreen { row: 1, text: "89012345".into() }));
    assert_eq!(text("done!").on_screen(&screen).map(|found| found.row), Some(3));
    assert_eq!(regex("^done!$").on_screen(&screen).map(|found| found.row), Some(3));
    assert_eq!(regex("^two").on_screen(&screen), None);
    screen.feed(b"\x1b[2J");
    assert_eq!(text("done").on_screen(&screen), None);
}

#[test]
fn a_prompt_is_found_with_the_blank_that_it_ends_with() {
    let mut screen = Screen::new(Size::new(20, 10).expect("a size"));
    screen.feed("ä $ ls   \r\nä $ ".as_bytes());
    assert_eq!(regex(r"^ä \$ $").on_screen(&screen).map(|found| found.row), Some(1));
    assert_eq!(regex("^ä $ ls $").on_screen(&screen), None);
}

#[test]
fn a_pattern_that_would_backtrack_does_not() {
    let mut log = TextLog::new(1 << 20, PlainOptions::default());
    log.feed(&b"a".repeat(30_000));
    assert_eq!(Waiter::since(regex("(a*)*b"), 0).check(&log), None);
}
