//! What real programs wrote, as a screen and as plain text.

use crate::support::{PROGRAMS, describe, fixture, plain, plain_options, size};
use workroom_terminal::{Color, Screen};

fn expected(name: &str) -> String {
    String::from_utf8(fixture(name)).expect("expectations are text")
}

fn screen_of(program: &str) -> Screen {
    let mut screen = Screen::new(size());
    screen.feed(&fixture(&format!("{program}.bin")));
    screen
}

#[test]
fn screens_are_as_expected() {
    for program in PROGRAMS {
        let actual = describe(&mut screen_of(program));
        assert!(actual == expected(&format!("{program}.screen.txt")), "the screen of {program} is\n{actual}");
    }
}

#[test]
fn plain_text_is_as_expected() {
    for program in PROGRAMS {
        let actual = plain(plain_options(), [fixture(&format!("{program}.bin")).as_slice()]);
        assert!(actual == expected(&format!("{program}.plain.txt")), "the text of {program} is\n{actual}");
    }
}

#[test]
fn no_escape_is_left_in_plain_text() {
    for program in PROGRAMS {
        let text = plain(plain_options(), [fixture(&format!("{program}.bin")).as_slice()]);
        let control =
            text.chars().find(|character| character.is_control() && !matches!(character, '\n' | '\t'));
        assert_eq!(control, None, "{program}");
    }
}

#[test]
fn colours_of_a_log_are_runs() {
    let screen = screen_of("git_log");
    // The log is longer than the screen, so its first line is in the history.
    let first = screen.history().next().expect("a line");
    let commit = first.runs.iter().find(|run| run.text.starts_with("commit ")).expect("a commit");
    assert_eq!(commit.style.foreground, Some(Color::Palette(3)));
    let branch = first.runs.iter().find(|run| run.text == "main").expect("a branch");
    assert_eq!(branch.style.foreground, Some(Color::Palette(2)));
    assert!(branch.style.bold);
}
