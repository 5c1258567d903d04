//! What goes to stdout, for people and for programs. A reader that has gone away has had enough.

use crate::remote::Failure;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{ErrorKind, Write};
use workroom_types::Timestamp;

/// Writes text as it is.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    bytes(text.as_bytes())
}

/// Writes bytes at once: nothing is held back.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::ReaderGone),
        Err(error) => Err(Failure::problem(format!("the output cannot be written: {error}"), "")),
    }
}

/// A sentence of ours on stderr, in one piece: others may write to the same place. Nobody may be left to read it.
pub(crate) fn complain(sentence: &str) {
    let line = format!("workroom: {}\n", clean(sentence));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

pub(crate) fn line(line: &str) -> Result<(), Failure> {
    text(&format!("{line}\n"))
}

/// One line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    match serde_json::to_string(value) {
        Ok(text) => line(&text),
        Err(error) => Err(Failure::problem(format!("the result cannot be written as JSON: {error}"), "")),
    }
}

/// Text that others made, such that it cannot move the cursor or turn the reading direction.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| if harmful(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

/// `12s`, `5m`, `3h`, `2d`: the largest unit that is not 0.
pub(crate) fn ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = u64::try_from(now.0.saturating_sub(then.0) / 1000).unwrap_or(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Seconds as they would be written for an option: `90s`, `10m`, `1h`.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        s if s > 0 && s.is_multiple_of(86_400) => format!("{}d", s / 86_400),
        s if s > 0 && s.is_multiple_of(3600) => format!("{}h", s / 3600),
        s if s > 0 && s.is_multiple_of(60) => format!("{}m", s / 60),
        s => format!("{s}s"),
    }
}

/// `1 command`, `2 commands`.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Names and values below each other.
pub(crate) fn sheet(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_spans_for_people() {
        let then = Timestamp(1_000_000_000);
        for (seconds, words) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (3600, "1h"), (100_000, "27h"), (200_000, "2d")]
        {
            assert_eq!(ago(then.plus_seconds(seconds), then), words);
        }
        // A clock that is behind the server's.
        assert_eq!(ago(then, then.plus_seconds(5)), "0s");
        for (seconds, words) in [(0, "0s"), (90, "90s"), (600, "10m"), (3600, "1h"), (172_800, "2d")] {
            assert_eq!(span(seconds), words);
        }
    }

    #[test]
    fn what_others_wrote_cannot_move_the_cursor() {
        assert_eq!(clean("plain ä"), "plain ä");
        assert_eq!(clean("a\x1b[2Jb\nc\u{202e}"), "a\\u{1b}[2Jb\\nc\\u{202e}");
    }

    #[test]
    fn a_sheet_is_aligned() {
        let rows = [("id", "1".to_owned()), ("last active", "now".to_owned())];
        assert_eq!(sheet(&rows), "id           1\nlast active  now\n");
    }
}
