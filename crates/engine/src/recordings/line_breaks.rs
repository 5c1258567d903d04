//! Output that was written to no terminal, as a terminal would have been given it: each line begins at the left.

use std::borrow::Cow;

/// Puts a carriage return before each line feed that has none, as a terminal's driver does.
#[derive(Debug, Default)]
pub(super) struct LineBreaks {
    after_return: bool,
}

impl LineBreaks {
    pub(super) fn for_terminal<'d>(&mut self, data: &'d [u8]) -> Cow<'d, [u8]> {
        if !data.contains(&b'\n') {
            self.after_return = data.last().map_or(self.after_return, |byte| *byte == b'\r');
            return Cow::Borrowed(data);
        }
        let mut made = Vec::with_capacity(data.len() + data.len() / 16);
        for &byte in data {
            if byte == b'\n' && !self.after_return {
                made.push(b'\r');
            }
            made.push(byte);
            self.after_return = byte == b'\r';
        }
        Cow::Owned(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_begin_at_the_left_wherever_they_were_cut() {
        let whole = b"a\nb\r\nc\r\rd\n\n";
        for cut in 0..=whole.len() {
            let mut breaks = LineBreaks::default();
            let mut made = breaks.for_terminal(&whole[..cut]).into_owned();
            made.extend_from_slice(&breaks.for_terminal(&whole[cut..]));
            assert_eq!(made, b"a\r\nb\r\nc\r\rd\r\n\r\n", "cut at {cut}");
        }
    }
}
