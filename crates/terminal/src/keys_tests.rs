//! Tests of keys: names, modifiers, modes, mistakes, and pasting.

use super::*;

const NORMAL: KeyModes = KeyModes { application_cursor: false, bracketed_paste: false };
const APPLICATION: KeyModes = KeyModes { application_cursor: true, bracketed_paste: false };

#[track_caller]
fn sends(names: &[&str], bytes: &str) {
    for name in names {
        assert_eq!(key(name, NORMAL).as_deref(), Ok(bytes.as_bytes()), "{name}");
    }
}

#[test]
fn names_of_keys() {
    sends(&["Enter", "enter", "Return", "\r", "\n"], "\r");
    sends(&["Tab", "TAB", "\t"], "\t");
    sends(&["Escape", "Esc"], "\x1b");
    sends(&["Space", " "], " ");
    sends(&["BSpace", "Backspace"], "\x7f");
    sends(&["Delete", "DC"], "\x1b[3~");
    sends(&["Insert", "IC"], "\x1b[2~");
    sends(&["Home"], "\x1b[H");
    sends(&["End"], "\x1b[F");
    sends(&["PageUp", "PgUp", "PPage"], "\x1b[5~");
    sends(&["PageDown", "PgDn", "NPage"], "\x1b[6~");
    sends(&["Up", "ArrowUp"], "\x1b[A");
    sends(&["Down"], "\x1b[B");
    sends(&["Right"], "\x1b[C");
    sends(&["Left"], "\x1b[D");
}

#[test]
fn function_keys() {
    let all = ["OP", "OQ", "OR", "OS", "[15~", "[17~", "[18~", "[19~", "[20~", "[21~", "[23~", "[24~"];
    for (index, bytes) in all.iter().enumerate() {
        sends(&[&format!("F{}", index + 1), &format!("f{}", index + 1)], &format!("\x1b{bytes}"));
    }
    sends(&["S-F1"], "\x1b[1;2P");
    sends(&["C-F5"], "\x1b[15;5~");
    assert!(matches!(key("F13", NORMAL), Err(KeyError::Unknown { .. })));
}

#[test]
fn control_in_all_its_spellings() {
    sends(&["C-c", "C-C", "c-c", "Ctrl+C", "ctrl+c", "Ctrl-C", "Control+c", "^C", "^c"], "\x03");
    sends(&["C-a"], "\x01");
    sends(&["C-z", "^Z"], "\x1a");
    sends(&["C-Space", "C-@", "C- "], "\0");
    sends(&["C-[", "^["], "\x1b");
    sends(&["C-\\"], "\x1c");
    sends(&["C-]"], "\x1d");
    sends(&["C-^", "^^"], "\x1e");
    sends(&["C-_", "C-/"], "\x1f");
    sends(&["C-?", "^?"], "\x7f");
    sends(&["C-BSpace"], "\x08");
}

#[test]
fn alt_shift_and_combinations() {
    sends(&["M-x", "Alt+x", "Meta-x"], "\x1bx");
    sends(&["M-X", "M-S-x"], "\x1bX");
    sends(&["M-é"], "\x1bé");
    sends(&["C-M-x", "M-C-x", "Ctrl+Alt+x"], "\x1b\x18");
    sends(&["M-Enter"], "\x1b\r");
    sends(&["M-BSpace"], "\x1b\x7f");
    sends(&["S-Tab", "BTab", "Shift+Tab"], "\x1b[Z");
    sends(&["S-a", "A"], "A");
    sends(&["C-Up"], "\x1b[1;5A");
    sends(&["S-Left"], "\x1b[1;2D");
    sends(&["M-Right"], "\x1b[1;3C");
    sends(&["C-M-S-Home"], "\x1b[1;8H");
    sends(&["C-Delete"], "\x1b[3;5~");
}

#[test]
fn characters_that_look_like_modifiers_are_themselves() {
    for character in ["-", "+", "^", "C", "M", "S", "c", "1", "é", "界", "\\"] {
        sends(&[character], character);
    }
    sends(&["M--"], "\x1b-");
    sends(&["M-+", "Alt++"], "\x1b+");
}

#[test]
fn application_cursor_mode_changes_cursor_keys_without_modifiers() {
    assert_eq!(key("Up", APPLICATION).as_deref(), Ok(&b"\x1bOA"[..]));
    assert_eq!(key("Home", APPLICATION).as_deref(), Ok(&b"\x1bOH"[..]));
    assert_eq!(key("C-Up", APPLICATION).as_deref(), Ok(&b"\x1b[1;5A"[..]));
    assert_eq!(key("PageUp", APPLICATION).as_deref(), Ok(&b"\x1b[5~"[..]));
}

#[test]
fn unknown_names_come_with_near_ones() {
    let message = |name: &str| key(name, NORMAL).expect_err(name).to_string();
    assert_eq!(message("Entr"), "there is no key \"Entr\"; did you mean Enter?");
    assert!(message("C-pagedwn").contains("PageDown"), "{}", message("C-pagedwn"));
    assert!(message("Backspce").contains("Backspace"));
    assert!(message("F13").contains("F1"));
    assert_eq!(
        message("hello world"),
        "there is no key \"hello world\"; if it is text to type, send it as text"
    );
    assert_eq!(message(""), "there is no key \"\"; if it is text to type, send it as text");
    assert!(message(&"x".repeat(10_000)).len() < 200);
    assert!(message("C-").starts_with("there is no key"));
}

#[test]
fn combinations_without_bytes_say_why() {
    for name in
        ["C-Enter", "S-Enter", "C-Tab", "S-Escape", "C-S-c", "C-1", "C-é", "S-1", "S-Space", "C-S-BSpace"]
    {
        assert!(matches!(key(name, NORMAL), Err(KeyError::NoBytes { .. })), "{name}");
    }
    assert_eq!(
        key("S-1", NORMAL).expect_err("depends").to_string(),
        "a terminal has no bytes for \"S-1\": which character Shift makes of it depends on the keyboard; send that \
         character itself"
    );
}

#[test]
fn entries_mix_keys_and_text() {
    let list: Vec<Entry> =
        serde_json::from_str(r#"["C-c", {"text": "ls C-c\n"}, "Enter", {"paste": "a\nb"}]"#)
            .expect("entries");
    let modes = KeyModes { application_cursor: false, bracketed_paste: true };
    assert_eq!(entries(&list, modes).as_deref(), Ok(&b"\x03ls C-c\n\r\x1b[200~a\rb\x1b[201~"[..]));
    assert!(entries(&[Entry::Key("Nope".into())], modes).is_err());
    let long = Entry::Text { text: "x".repeat(MAX_BYTES) };
    assert!(matches!(entries(&[long.clone(), long], modes), Err(KeyError::TooMuch { .. })));
}

#[test]
fn a_paste_cannot_leave_its_marks() {
    let modes = KeyModes { application_cursor: false, bracketed_paste: true };
    let sent = paste("a\x1b[20\x1b[201~1~rm -rf /\n\u{9b}201~\x03", modes);
    let sent = String::from_utf8(sent).expect("text");
    assert_eq!(sent, "\x1b[200~a[20[201~1~rm -rf /\r201~\x1b[201~");
    assert_eq!(sent.matches('\x1b').count(), 2);
    assert_eq!(paste("one\r\ntwo\n", NORMAL), b"one\rtwo\r");
}
