//! Cutting a stream of bytes into pieces of text without damaging a character that lies across a border.

/// One stream of a command, on its way into chunks of text.
#[derive(Default)]
pub(crate) struct TextCutter {
    /// The beginning of a character whose end has not come yet: at most three bytes.
    held: Vec<u8>,
    /// Where in the stream what is held begins, or the next byte is expected.
    offset: u64,
}

/// A piece of text, and where in the stream its bytes begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) text: String,
}

impl TextCutter {
    /// Takes bytes that begin at `offset`; gives what is complete. Two pieces come where bytes before `offset`
    /// are missing: what was held can then never be completed.
    pub(crate) fn push(&mut self, offset: u64, data: &[u8]) -> [Option<Piece>; 2] {
        let torn = if offset == self.offset + self.held.len() as u64 { None } else { self.finish() };
        if self.held.is_empty() {
            self.offset = offset;
        }
        let joined;
        let bytes = if self.held.is_empty() {
            data
        } else {
            joined = [std::mem::take(&mut self.held).as_slice(), data].concat();
            &joined
        };
        let (whole, rest) = bytes.split_at(bytes.len() - incomplete_tail(bytes));
        let piece = (!whole.is_empty())
            .then(|| Piece { offset: self.offset, text: String::from_utf8_lossy(whole).into_owned() });
        self.offset += whole.len() as u64;
        self.held = rest.to_vec();
        [torn, piece]
    }

    /// Where in the stream what was given so far ends.
    pub(crate) fn place(&self) -> u64 {
        self.offset
    }

    /// What is left when nothing more comes.
    pub(crate) fn finish(&mut self) -> Option<Piece> {
        let held = std::mem::take(&mut self.held);
        let offset = self.offset;
        self.offset += held.len() as u64;
        (!held.is_empty()).then(|| Piece { offset, text: String::from_utf8_lossy(&held).into_owned() })
    }
}

/// How many bytes at the end are a character that may still become whole.
fn incomplete_tail(bytes: &[u8]) -> usize {
    (1..=3.min(bytes.len()))
        .find(|&length| {
            let tail = &bytes[bytes.len() - length..];
            tail[0] >= 0xc0 && std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(bytes: &[u8], size: usize) -> Vec<Piece> {
        let mut cutter = TextCutter::default();
        let mut pieces = Vec::new();
        for (index, chunk) in bytes.chunks(size).enumerate() {
            pieces.extend(cutter.push((index * size) as u64, chunk).into_iter().flatten());
        }
        pieces.extend(cutter.finish());
        pieces
    }

    #[test]
    fn text_survives_every_way_of_cutting_it() {
        let text = "aé€😀 ende\u{301}\n日本語😀";
        for size in 1..=text.len() {
            let pieces = cut(text.as_bytes(), size);
            let joined: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
            assert_eq!(joined, text, "in chunks of {size}");
            let mut at = 0;
            for piece in pieces {
                assert_eq!(piece.offset, at, "in chunks of {size}");
                at += piece.text.len() as u64;
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_as_if_they_had_come_at_once() {
        let cases: [&[u8]; 6] =
            [b"a\xffb", b"\xf0\x9f\x98", b"\xe2\x82x", b"\x80\x80", b"\xc3\xc3\xa9", b"ok\xf0\x9f"];
        for bytes in cases {
            let at_once = String::from_utf8_lossy(bytes);
            for size in 1..=bytes.len() {
                let joined: String = cut(bytes, size).into_iter().map(|piece| piece.text).collect();
                assert_eq!(joined, at_once, "{bytes:?} in chunks of {size}");
            }
        }
    }

    #[test]
    fn nothing_is_held_back_that_cannot_become_a_character() {
        let mut cutter = TextCutter::default();
        let [_, piece] = cutter.push(0, b"a\xff");
        assert_eq!(piece, Some(Piece { offset: 0, text: "a\u{fffd}".into() }));
        assert_eq!(cutter.finish(), None);
    }

    #[test]
    fn what_was_held_before_a_gap_comes_out_where_it_was() {
        let mut cutter = TextCutter::default();
        assert_eq!(cutter.push(0, b"ab\xe2\x82"), [None, Some(Piece { offset: 0, text: "ab".into() })]);
        let after_gap = cutter.push(100, b"cd");
        assert_eq!(
            after_gap,
            [
                Some(Piece { offset: 2, text: "\u{fffd}".into() }),
                Some(Piece { offset: 100, text: "cd".into() })
            ]
        );
    }
}
