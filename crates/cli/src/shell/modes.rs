//! What a program has switched on in the caller's own terminal, so that it can be switched off when the caller leaves.
//!
//! Only private modes (`ESC [ ? 1049 h`) are looked at: they are what outlives the program. All else is passed on unseen.

use std::collections::BTreeSet;

/// On in every terminal unless a program turns them off: wrapping, and the cursor's being visible.
const USUALLY_ON: [u16; 2] = [7, 25];

/// More modes at once than any program uses.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Modes {
    /// Those that are not as usual.
    changed: BTreeSet<u16>,
    place: Place,
}

/// Where in a sequence the bytes so far have led.
#[derive(Debug, Default, Clone)]
enum Place {
    #[default]
    Outside,
    Escape,
    Bracket,
    /// `ESC [ ?` and these numbers.
    Numbers(Vec<u16>),
}

impl Modes {
    pub(crate) fn watch(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.take(*byte);
        }
    }

    pub(crate) fn set(&mut self, mode: u16, on: bool) {
        if on == USUALLY_ON.contains(&mode) {
            self.changed.remove(&mode);
        } else if self.changed.len() < MOST {
            self.changed.insert(mode);
        }
    }

    fn take(&mut self, byte: u8) {
        self.place = match (std::mem::take(&mut self.place), byte) {
            (_, 0x1b) => Place::Escape,
            (Place::Escape, b'[') => Place::Bracket,
            (Place::Escape, b'c') => {
                self.changed.clear();
                Place::Outside
            }
            (Place::Bracket, b'?') => Place::Numbers(vec![0]),
            (Place::Numbers(mut numbers), b'0'..=b'9') => {
                if let Some(last) = numbers.last_mut() {
                    *last = last.saturating_mul(10).saturating_add(u16::from(byte - b'0'));
                }
                Place::Numbers(numbers)
            }
            (Place::Numbers(mut numbers), b';') if numbers.len() < MOST => {
                numbers.push(0);
                Place::Numbers(numbers)
            }
            (Place::Numbers(numbers), b'h' | b'l') => {
                numbers.into_iter().for_each(|mode| self.set(mode, byte == b'h'));
                Place::Outside
            }
            _ => Place::Outside,
        };
    }

    /// What makes the terminal as it was before.
    pub(crate) fn undo(&mut self) -> String {
        let mut text = String::new();
        for mode in std::mem::take(&mut self.changed) {
            let letter = if USUALLY_ON.contains(&mode) { 'h' } else { 'l' };
            text.push_str(&format!("\x1b[?{mode}{letter}"));
        }
        // Colours and the keypad.
        text + "\x1b[0m\x1b>"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_switched_on_is_switched_off_again() {
        let mut modes = Modes::default();
        for piece in ["\x1b[?10", "49;2004h text", "\x1b[?25l\x1b[31m\x1b[?1", "h\x1b[?1l"] {
            modes.watch(piece.as_bytes());
        }
        assert_eq!(modes.undo(), "\x1b[?25h\x1b[?1049l\x1b[?2004l\x1b[0m\x1b>");
        assert_eq!(modes.undo(), "\x1b[0m\x1b>");
        modes.watch(b"\x1b[?1049h\x1bc");
        assert_eq!(modes.undo(), "\x1b[0m\x1b>");
    }
}
