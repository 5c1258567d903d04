//! Text cut into characters, controls and escape sequences, as the parser of a DEC terminal cuts it.
//!
//! It follows the same state machine as the grid's own parser, so that both agree on where a sequence ends; the grid's
//! parser does not show what it does not draw (titles, questions, modes of the keyboard).

/// How much of an operating system command is kept; the rest is read and dropped.
const MAX_STRING: usize = 2048;
const MAX_PARAMETERS: usize = 16;

#[derive(Debug)]
pub(crate) enum Token<'a> {
    Print(char),
    /// C0 and C1 controls, with ESC forms of C1 left as `Escape`.
    Control(char),
    Escape {
        intermediate: Option<char>,
        last: char,
    },
    Csi(&'a Csi),
    Osc(&'a str),
}

/// A control sequence: `ESC [ marker parameters intermediate last`.
#[derive(Debug, Default)]
pub(crate) struct Csi {
    pub(crate) marker: Option<char>,
    pub(crate) intermediate: Option<char>,
    pub(crate) last: char,
    parameters: [u16; MAX_PARAMETERS],
    count: usize,
    /// After a colon come parts of a parameter, which nothing here needs.
    in_subparameter: bool,
}

impl Csi {
    pub(crate) fn parameters(&self) -> &[u16] {
        &self.parameters[..=self.count]
    }

    /// The first parameter, as it was given or 0.
    pub(crate) fn first(&self) -> u16 {
        self.parameters[0]
    }

    /// A count: one where none was given, as for all movements.
    pub(crate) fn times(&self) -> usize {
        usize::from(self.first().max(1))
    }

    fn take(&mut self, character: char) {
        match character {
            ';' => {
                self.count = (self.count + 1).min(MAX_PARAMETERS - 1);
                self.in_subparameter = false;
            }
            ':' => self.in_subparameter = true,
            _ if self.in_subparameter => {}
            digit => {
                let value = &mut self.parameters[self.count];
                let digit = digit.to_digit(10).unwrap_or(0) as u16;
                *value = value.saturating_mul(10).saturating_add(digit);
            }
        }
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum State {
    #[default]
    Ground,
    Escape,
    EscapeIntermediate,
    CsiStart,
    CsiParameters,
    CsiIntermediate,
    CsiIgnored,
    Osc,
    /// Device control strings, privacy messages and the like: read to their end and dropped.
    IgnoredString,
}

#[derive(Debug, Default)]
pub(crate) struct Tokenizer {
    state: State,
    csi: Csi,
    intermediate: Option<char>,
    string: String,
}

impl Tokenizer {
    pub(crate) fn feed(&mut self, character: char) -> Option<Token<'_>> {
        match character {
            '\x1b' => return self.end_string(State::Escape),
            '\x18' | '\x1a' => {
                self.state = State::Ground;
                return None;
            }
            '\u{80}'..='\u{9f}' => return self.c1(character),
            _ => {}
        }
        match self.state {
            State::Ground => match character {
                '\0'..='\x1f' => Some(Token::Control(character)),
                '\x7f' => None,
                _ => Some(Token::Print(character)),
            },
            State::Escape | State::EscapeIntermediate => self.escape(character),
            State::CsiStart | State::CsiParameters | State::CsiIntermediate | State::CsiIgnored => {
                self.csi(character)
            }
            State::Osc => match character {
                '\x07' => self.end_string(State::Ground),
                '\0'..='\x1f' => None,
                _ => {
                    if self.string.len() + character.len_utf8() <= MAX_STRING {
                        self.string.push(character);
                    }
                    None
                }
            },
            State::IgnoredString => None,
        }
    }

    /// Goes on to another state; an operating system command that was under way is complete.
    fn end_string(&mut self, next: State) -> Option<Token<'_>> {
        let was = std::mem::replace(&mut self.state, next);
        self.intermediate = None;
        (was == State::Osc).then_some(Token::Osc(&self.string))
    }

    fn c1(&mut self, character: char) -> Option<Token<'_>> {
        match character {
            '\u{9b}' => self.begin_csi(),
            '\u{9d}' => self.begin_osc(),
            '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}' => self.state = State::IgnoredString,
            '\u{9c}' => return self.end_string(State::Ground),
            _ => {
                self.state = State::Ground;
                return Some(Token::Control(character));
            }
        }
        None
    }

    fn begin_csi(&mut self) {
        self.state = State::CsiStart;
        self.csi = Csi::default();
    }

    fn begin_osc(&mut self) {
        self.state = State::Osc;
        self.string.clear();
    }

    fn escape(&mut self, character: char) -> Option<Token<'_>> {
        match character {
            '\0'..='\x1f' => return Some(Token::Control(character)),
            '\x7f' => return None,
            ' '..='/' => {
                self.intermediate = Some(character);
                self.state = State::EscapeIntermediate;
                return None;
            }
            _ => {}
        }
        if self.state == State::Escape {
            match character {
                '[' => {
                    self.begin_csi();
                    return None;
                }
                ']' => {
                    self.begin_osc();
                    return None;
                }
                'P' | 'X' | '^' | '_' => {
                    self.state = State::IgnoredString;
                    return None;
                }
                _ => {}
            }
        }
        self.state = State::Ground;
        Some(Token::Escape { intermediate: self.intermediate, last: character })
    }

    fn csi(&mut self, character: char) -> Option<Token<'_>> {
        match (self.state, character) {
            (_, '\0'..='\x1f') => return Some(Token::Control(character)),
            (_, '\x7f') => {}
            (State::CsiIgnored, ' '..='?') => {}
            (State::CsiIgnored, _) => self.state = State::Ground,
            (_, ' '..='/') => {
                self.csi.intermediate = Some(character);
                self.state = State::CsiIntermediate;
            }
            (State::CsiStart, '<'..='?') => {
                self.csi.marker = Some(character);
                self.state = State::CsiParameters;
            }
            (State::CsiStart, '0'..='9' | ';') | (State::CsiParameters, '0'..='9' | ':' | ';') => {
                self.csi.take(character);
                self.state = State::CsiParameters;
            }
            (_, '0'..='?') => self.state = State::CsiIgnored,
            _ => {
                self.csi.last = character;
                self.state = State::Ground;
                return Some(Token::Csi(&self.csi));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<String> {
        let mut tokenizer = Tokenizer::default();
        let shown = |token: Token<'_>| match token {
            Token::Print(character) => character.to_string(),
            Token::Control(character) => format!("{character:?}"),
            Token::Escape { intermediate, last } => format!("<esc {intermediate:?} {last}>"),
            Token::Csi(csi) => {
                format!("<csi {:?} {:?} {:?} {}>", csi.marker, csi.parameters(), csi.intermediate, csi.last)
            }
            Token::Osc(text) => format!("<osc {text}>"),
        };
        text.chars().filter_map(|character| tokenizer.feed(character).map(shown)).collect()
    }

    #[test]
    fn sequences_are_told_from_text() {
        assert_eq!(
            tokens("a\x1b[1;31mb\x1b[?2004$pc"),
            ["a", "<csi None [1, 31] None m>", "b", "<csi Some('?') [2004] Some('$') p>", "c"]
        );
        assert_eq!(tokens("\x1b(0\x1b=x"), ["<esc Some('(') 0>", "<esc None =>", "x"]);
        assert_eq!(
            tokens("\x1b]0;hi\x07\x1b]2;ho\x1b\\x"),
            ["<osc 0;hi>", "<osc 2;ho>", "<esc None \\>", "x"]
        );
        assert_eq!(tokens("\u{9b}2Jx\u{9d}2;t\u{9c}y"), ["<csi None [2] None J>", "x", "<osc 2;t>", "y"]);
    }

    #[test]
    fn strings_that_nothing_reads_are_dropped_to_their_end() {
        assert_eq!(tokens("\x1bP1$r0m\x07still\x1b\\x"), ["<esc None \\>", "x"]);
        assert_eq!(tokens("\x1b_G data\x1b\\\x1b^pm\u{9c}y"), ["<esc None \\>", "y"]);
    }

    #[test]
    fn what_breaks_a_sequence_off_ends_it() {
        assert_eq!(tokens("\x1b[12\x18m\x1b]0;gone\x1ax"), ["m", "x"]);
        assert_eq!(tokens("\x1b[1\x1b[2Jx"), ["<csi None [2] None J>", "x"]);
        assert_eq!(tokens("\x1b[1\n2Jx"), ["'\\n'", "<csi None [12] None J>", "x"]);
        assert_eq!(tokens("\x1b[1?2Jx"), ["x"]);
    }

    #[test]
    fn sizes_are_bounded_and_numbers_do_not_overflow() {
        let long = format!("\x1b]2;{}\x07", "é".repeat(1 << 20));
        assert!(tokens(&long)[0].len() < MAX_STRING + 16);
        assert_eq!(tokens("\x1b[99999999999A"), ["<csi None [65535] None A>"]);
        let many = format!("\x1b[{}m", "7;".repeat(1000));
        assert_eq!(tokens(&many).len(), 1);
        assert_eq!(tokens("\x1b[4:3;58:2::1:2:3m"), ["<csi None [4, 58] None m>"]);
    }
}
