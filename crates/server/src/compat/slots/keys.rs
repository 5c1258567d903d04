//! Keys as tmux names them: what it does not know as a key it types as text.

use workroom_types::TerminalKey;

/// Names of keys, whatever the case of their letters.
const NAMES: [&str; 34] = [
    "F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10", "F11", "F12", "IC", "Insert", "DC",
    "Delete", "Home", "End", "NPage", "PageDown", "PgDn", "PPage", "PageUp", "PgUp", "Tab", "BTab", "Space",
    "BSpace", "Enter", "Escape", "Up", "Down", "Left", "Right",
];

/// What Enter is called, and what does the same.
const ENTERS: [&str; 3] = ["Enter", "C-m", "KPEnter"];

/// What one string of a client's is to the terminal.
pub(super) fn key(word: &str) -> TerminalKey {
    let keypad = word.get(..2).filter(|head| head.eq_ignore_ascii_case("KP")).map(|_| &word[2..]);
    match keypad {
        Some(rest) if rest.eq_ignore_ascii_case("Enter") => return TerminalKey::Key("Enter".into()),
        Some(rest) if rest.len() == 1 && rest.chars().all(|c| c.is_ascii_digit() || "/*-+.".contains(c)) => {
            return TerminalKey::Text { text: rest.to_owned() };
        }
        _ => {}
    }
    match is_key(word) {
        true => TerminalKey::Key(word.to_owned()),
        false => TerminalKey::Text { text: word.to_owned() },
    }
}

fn is_key(word: &str) -> bool {
    let mut rest = word;
    loop {
        let modifier = ["C-", "M-", "S-", "^"].into_iter().find(|modifier| {
            rest.len() > modifier.len()
                && rest.get(..modifier.len()).is_some_and(|head| head.eq_ignore_ascii_case(modifier))
        });
        match modifier {
            Some(modifier) => rest = &rest[modifier.len()..],
            None => break,
        }
    }
    let is_character = rest.chars().count() == 1 && !rest.chars().any(char::is_control);
    // Without a modifier a character is typed as it is.
    (is_character && rest.len() < word.len()) || NAMES.iter().any(|name| name.eq_ignore_ascii_case(rest))
}

/// Whether a line is entered by this.
pub(super) fn enters(word: &str) -> bool {
    ENTERS.iter().any(|enter| enter.eq_ignore_ascii_case(word)) || word.ends_with(['\r', '\n'])
}

/// How many lines are entered by these, as far as can be told.
pub(super) fn lines(words: &[String]) -> usize {
    let within = |word: &String| match enters(word) && !word.ends_with(['\r', '\n']) {
        true => 1,
        false => word.chars().filter(|c| matches!(c, '\r' | '\n')).count(),
    };
    words.iter().map(within).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_typed(word: &str) -> bool {
        matches!(key(word), TerminalKey::Text { .. })
    }

    #[test]
    fn names_are_keys_and_everything_else_is_typed() {
        for named in [
            "Enter", "enter", "C-c", "C-m", "KPEnter", "M-x", "S-Tab", "Up", "F12", "^C", "C-M-Left",
            "BSpace",
        ] {
            assert!(!is_typed(named), "{named}");
        }
        for text in ["ls -la", "Enter;", "C-", "Return", "a", "echo C-c", "", "^", "\n", "ü", "KP", "KP5"] {
            assert!(is_typed(text), "{text:?}");
        }
        assert_eq!(key("KPEnter"), TerminalKey::Key("Enter".into()));
        assert_eq!(key("KP+"), TerminalKey::Text { text: "+".into() });
    }

    #[test]
    fn lines_are_entered_by_keys_and_by_line_breaks() {
        assert!(["Enter", "C-m", "kpenter", "ls\n"].into_iter().all(enters));
        assert!(!enters("ls") && !enters("Up"));
        let words = |words: &[&str]| lines(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        assert_eq!([words(&["ls", "Enter"]), words(&["a\nb\n", "c"]), words(&["x"])], [1, 2, 0]);
    }
}
