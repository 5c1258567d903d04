//! Which bytes a key sends: names of keys, with modifiers, as tmux and people write them.
//!
//! `Enter`, `C-c`, `Ctrl+C`, `^C`, `M-x`, `Alt+x`, `S-Tab`, `C-M-Left`, `F5` and single characters are keys. The bytes
//! are those of xterm without extensions, so some combinations have none: they are an error, because the key that a
//! terminal would send in their place does something else.

use serde::{Deserialize, Serialize};

/// The most that one call may send, in bytes: more than a person types, and little to hold.
pub const MAX_BYTES: usize = 1 << 20;
const MAX_SUGGESTIONS: usize = 4;

/// What a program has asked of the keyboard; [`crate::Screen::key_modes`] knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyModes {
    /// DECCKM: arrows, Home and End send `ESC O` forms.
    pub application_cursor: bool,
    /// Mode 2004: pasted text is put between marks.
    pub bracketed_paste: bool,
}

/// One thing to send. In JSON a string is a key; text is an object, so that the two are never confused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Entry {
    Key(String),
    /// Sent as it is, with nothing added.
    Text {
        text: String,
    },
    Paste {
        paste: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("there is no key \"{name}\"; {}", suggestion(near))]
    Unknown { name: String, near: Vec<&'static str> },
    #[error("a terminal has no bytes for \"{name}\": {reason}")]
    NoBytes { name: String, reason: &'static str },
    #[error("the keys are {bytes} bytes; send at most {MAX_BYTES} at a time")]
    TooMuch { bytes: usize },
}

fn suggestion(near: &[&'static str]) -> String {
    if near.is_empty() {
        "if it is text to type, send it as text".to_owned()
    } else {
        format!("did you mean {}?", near.join(" or "))
    }
}

/// A key with its modifiers.
#[derive(Debug, Clone, Copy)]
struct Key {
    base: Base,
    ctrl: bool,
    alt: bool,
    shift: bool,
}

#[derive(Debug, Clone, Copy)]
enum Base {
    Character(char),
    Enter,
    Tab,
    Escape,
    Backspace,
    /// `ESC [ letter`: arrows, Home, End.
    Cursor(char),
    /// `ESC [ number ~`: Insert, Delete, the pages, F5 to F12.
    Numbered(u8),
    /// `ESC O letter`: F1 to F4.
    Function(char),
}

/// The first name of each is the one that is suggested.
const NAMES: &[(&[&str], Base)] = &[
    (&["Enter", "Return", "CR"], Base::Enter),
    (&["Tab"], Base::Tab),
    (&["Escape", "Esc"], Base::Escape),
    (&["Space"], Base::Character(' ')),
    (&["BSpace", "Backspace", "BS"], Base::Backspace),
    (&["Delete", "Del", "DC"], Base::Numbered(3)),
    (&["Insert", "Ins", "IC"], Base::Numbered(2)),
    (&["Home"], Base::Cursor('H')),
    (&["End"], Base::Cursor('F')),
    (&["PageUp", "PgUp", "PPage"], Base::Numbered(5)),
    (&["PageDown", "PgDn", "PgDown", "NPage"], Base::Numbered(6)),
    (&["Up", "ArrowUp"], Base::Cursor('A')),
    (&["Down", "ArrowDown"], Base::Cursor('B')),
    (&["Right", "ArrowRight"], Base::Cursor('C')),
    (&["Left", "ArrowLeft"], Base::Cursor('D')),
    (&["F1"], Base::Function('P')),
    (&["F2"], Base::Function('Q')),
    (&["F3"], Base::Function('R')),
    (&["F4"], Base::Function('S')),
    (&["F5"], Base::Numbered(15)),
    (&["F6"], Base::Numbered(17)),
    (&["F7"], Base::Numbered(18)),
    (&["F8"], Base::Numbered(19)),
    (&["F9"], Base::Numbered(20)),
    (&["F10"], Base::Numbered(21)),
    (&["F11"], Base::Numbered(23)),
    (&["F12"], Base::Numbered(24)),
];

#[derive(Debug, Clone, Copy)]
enum Modifier {
    Ctrl,
    Alt,
    Shift,
}

/// What may stand before the name of a key, and what it holds down.
const PREFIXES: &[(&str, Modifier)] = &[
    ("Control+", Modifier::Ctrl),
    ("Control-", Modifier::Ctrl),
    ("Ctrl+", Modifier::Ctrl),
    ("Ctrl-", Modifier::Ctrl),
    ("C-", Modifier::Ctrl),
    ("^", Modifier::Ctrl),
    ("Meta+", Modifier::Alt),
    ("Meta-", Modifier::Alt),
    ("Alt+", Modifier::Alt),
    ("Alt-", Modifier::Alt),
    ("M-", Modifier::Alt),
    ("Shift+", Modifier::Shift),
    ("Shift-", Modifier::Shift),
    ("S-", Modifier::Shift),
];

impl Key {
    fn named(name: &str) -> Result<Key, KeyError> {
        let mut key = Key { base: Base::Enter, ctrl: false, alt: false, shift: false };
        let mut rest = name;
        // A prefix with nothing after it is a character, or a mistake.
        let prefix = |rest: &str| {
            PREFIXES.iter().find(|(prefix, _)| {
                rest.len() > prefix.len()
                    && rest.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
            })
        };
        while let Some((prefix, modifier)) = prefix(rest) {
            match modifier {
                Modifier::Ctrl => key.ctrl = true,
                Modifier::Alt => key.alt = true,
                Modifier::Shift => key.shift = true,
            }
            rest = &rest[prefix.len()..];
        }
        if rest.eq_ignore_ascii_case("BTab") {
            key.shift = true;
            rest = "Tab";
        }
        key.base = base(rest).ok_or_else(|| KeyError::Unknown { name: shown(name), near: near(rest) })?;
        Ok(key)
    }

    /// The bytes that the key sends, or why there are none.
    fn bytes(self, modes: KeyModes) -> Result<Vec<u8>, &'static str> {
        // xterm's number for the modifiers, in the sequences that have room for one.
        let modifiers = 1 + u8::from(self.shift) + 2 * u8::from(self.alt) + 4 * u8::from(self.ctrl);
        let sequence = match self.base {
            Base::Cursor(letter) if modifiers > 1 => format!("\x1b[1;{modifiers}{letter}"),
            Base::Cursor(letter) if modes.application_cursor => format!("\x1bO{letter}"),
            Base::Cursor(letter) => format!("\x1b[{letter}"),
            Base::Numbered(number) if modifiers > 1 => format!("\x1b[{number};{modifiers}~"),
            Base::Numbered(number) => format!("\x1b[{number}~"),
            Base::Function(letter) if modifiers > 1 => format!("\x1b[1;{modifiers}{letter}"),
            Base::Function(letter) => format!("\x1bO{letter}"),
            Base::Tab if self.shift && !self.ctrl => self.after_alt("\x1b[Z"),
            Base::Backspace if self.ctrl && !self.shift => self.after_alt("\x08"),
            Base::Character(character) if self.ctrl => {
                self.after_alt(&control(character, self.shift)?.to_string())
            }
            Base::Character(character) if self.shift => self.after_alt(&shifted(character)?),
            Base::Character(character) => self.after_alt(&character.to_string()),
            _ if self.ctrl || self.shift => {
                return Err(
                    "the key sends the same bytes without Ctrl and Shift, and would do what it does then",
                );
            }
            Base::Enter => self.after_alt("\r"),
            Base::Tab => self.after_alt("\t"),
            Base::Escape => self.after_alt("\x1b"),
            Base::Backspace => self.after_alt("\x7f"),
        };
        Ok(sequence.into_bytes())
    }

    fn after_alt(self, bytes: &str) -> String {
        let escape = if self.alt { "\x1b" } else { "" };
        format!("{escape}{bytes}")
    }
}

fn base(name: &str) -> Option<Base> {
    let mut characters = name.chars();
    if let (Some(character), None) = (characters.next(), characters.next()) {
        return match character {
            '\r' | '\n' => Some(Base::Enter),
            '\t' => Some(Base::Tab),
            '\x1b' => Some(Base::Escape),
            '\x7f' => Some(Base::Backspace),
            control if control.is_control() => None,
            other => Some(Base::Character(other)),
        };
    }
    let named = |(names, _): &&(&[&str], Base)| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    NAMES.iter().find(named).map(|(_, base)| *base)
}

/// A name that somebody sent, short enough for a message.
fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(40).flat_map(char::escape_debug).collect();
    if name.chars().nth(40).is_some() {
        shown.push('…');
    }
    shown
}

/// The names that a mistyped one may have meant, nearest first.
fn near(name: &str) -> Vec<&'static str> {
    if name.len() > 20 {
        return Vec::new();
    }
    let name = name.to_ascii_lowercase();
    let mut near: Vec<(usize, &'static str)> = NAMES
        .iter()
        .flat_map(|(names, _)| names.iter())
        .filter_map(|known| {
            let lower = known.to_ascii_lowercase();
            let distance =
                if name.len() >= 2 && lower.starts_with(&name) { 1 } else { distance(&name, &lower) };
            // Two mistakes in a short name leave nothing of it.
            (distance <= (known.len() / 2).min(2)).then_some((distance, *known))
        })
        .collect();
    near.sort();
    near.into_iter().map(|(_, known)| known).take(MAX_SUGGESTIONS).collect()
}

/// How many characters have to be put in, taken out or changed.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, one) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, other) in to.iter().enumerate() {
            let change = diagonal + usize::from(one != *other);
            diagonal = row[column + 1];
            row[column + 1] = change.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

fn control(character: char, shift: bool) -> Result<char, &'static str> {
    let code = match character {
        'a'..='z' | 'A'..='Z' if shift => {
            return Err("Ctrl with a letter is the same with and without Shift");
        }
        'a'..='z' => character as u8 - b'a' + 1,
        'A'..='Z' => character as u8 - b'A' + 1,
        ' ' if !shift => 0,
        '@' | '2' => 0,
        '[' | '3' => 0x1b,
        '\\' | '4' => 0x1c,
        ']' | '5' => 0x1d,
        '^' | '6' => 0x1e,
        '_' | '/' | '7' => 0x1f,
        '?' | '8' => 0x7f,
        _ => return Err("Ctrl goes with letters, Space and @ [ \\ ] ^ _ ? /"),
    };
    Ok(char::from(code))
}

fn shifted(character: char) -> Result<String, &'static str> {
    if character == ' ' {
        return Err("Space is the same with and without Shift");
    }
    let upper: String = character.to_uppercase().collect();
    if upper == character.to_string() && !character.is_uppercase() {
        return Err("which character Shift makes of it depends on the keyboard; send that character itself");
    }
    Ok(upper)
}

/// The bytes of one key by its name.
pub fn key(name: &str, modes: KeyModes) -> Result<Vec<u8>, KeyError> {
    Key::named(name)?.bytes(modes).map_err(|reason| KeyError::NoBytes { name: shown(name), reason })
}

/// The bytes of keys and texts in their order. All are checked before any is sent.
pub fn entries(entries: &[Entry], modes: KeyModes) -> Result<Vec<u8>, KeyError> {
    let mut bytes = Vec::new();
    for entry in entries {
        match entry {
            Entry::Key(name) => bytes.extend(key(name, modes)?),
            Entry::Text { text } => bytes.extend_from_slice(text.as_bytes()),
            Entry::Paste { paste: text } => bytes.extend(paste(text, modes)),
        }
        if bytes.len() > MAX_BYTES {
            return Err(KeyError::TooMuch { bytes: bytes.len() });
        }
    }
    Ok(bytes)
}

/// The bytes of pasted text, as a terminal sends them: lines end as with Enter, and controls are left out, so that a
/// text cannot end its own paste and go on as typing. Between marks if the program has asked for them.
pub fn paste(text: &str, modes: KeyModes) -> Vec<u8> {
    let text = text.replace("\r\n", "\r").replace('\n', "\r");
    let text: String = text.chars().filter(|c| matches!(c, '\r' | '\t') || !c.is_control()).collect();
    if modes.bracketed_paste { format!("\x1b[200~{text}\x1b[201~").into_bytes() } else { text.into_bytes() }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
