//! Bytes that arrive in pieces, as text: a character that is cut in the middle waits for its rest.

/// What stands for bytes that are not UTF-8.
pub(crate) const REPLACEMENT: &str = "\u{fffd}";

/// Gives the same text for the same bytes, however they are cut into pieces. Each longest run of bytes that could
/// have begun a character and did not become one is one U+FFFD, as the standard library and browsers do it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Utf8Decoder {
    held: [u8; 4],
    length: usize,
}

impl Utf8Decoder {
    pub(crate) fn decode(&mut self, mut bytes: &[u8], mut sink: impl FnMut(&str)) {
        while self.length > 0
            && let Some((&next, rest)) = bytes.split_first()
        {
            self.held[self.length] = next;
            match std::str::from_utf8(&self.held[..=self.length]) {
                Ok(text) => {
                    sink(text);
                    self.length = 0;
                    bytes = rest;
                }
                Err(error) if error.error_len().is_none() => {
                    self.length += 1;
                    bytes = rest;
                }
                // What was held could have become a character; this byte says that it does not. The byte itself
                // may begin one, so it is looked at again.
                Err(_) => {
                    sink(REPLACEMENT);
                    self.length = 0;
                }
            }
        }
        let mut left = bytes.len();
        for chunk in bytes.utf8_chunks() {
            if !chunk.valid().is_empty() {
                sink(chunk.valid());
            }
            let invalid = chunk.invalid();
            left -= chunk.valid().len() + invalid.len();
            if invalid.is_empty() {
                continue;
            }
            let incomplete =
                left == 0 && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if incomplete {
                self.held[..invalid.len()].copy_from_slice(invalid);
                self.length = invalid.len();
            } else {
                sink(REPLACEMENT);
            }
        }
    }

    /// How many bytes wait for the rest of their character.
    pub(crate) fn held(&self) -> usize {
        self.length
    }

    /// No more bytes come: the beginning of a character that is still held never became one.
    pub(crate) fn finish(&mut self) -> Option<&'static str> {
        (std::mem::take(&mut self.length) > 0).then_some(REPLACEMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[&[u8]]) -> String {
        let (mut decoder, mut text) = (Utf8Decoder::default(), String::new());
        for piece in pieces {
            decoder.decode(piece, |part| text.push_str(part));
        }
        text.push_str(decoder.finish().unwrap_or_default());
        text
    }

    #[test]
    fn every_cut_gives_what_the_standard_library_gives_for_the_whole() {
        let samples: [&[u8]; 7] = [
            "plain, é, 界, 🦀".as_bytes(),
            b"\xff\xfe",
            b"a\xe7\x95",
            b"\xe7\x95x\xf0\x9f\xa6",
            b"\xf0\x9f\xf0\x9f\xa6\x80",
            b"\xed\xa0\x80 surrogate, overlong \xc0\xaf\xe0\x80\x80",
            b"\xe7\xe7\x95\x8c\x80\xc3",
        ];
        for sample in samples {
            let expected = String::from_utf8_lossy(sample);
            for first in 0..=sample.len() {
                for second in first..=sample.len() {
                    let pieces = [&sample[..first], &sample[first..second], &sample[second..]];
                    assert_eq!(decode(&pieces), expected, "{sample:?} cut at {first} and {second}");
                }
            }
            let bytes: Vec<&[u8]> = sample.chunks(1).collect();
            assert_eq!(decode(&bytes), expected);
        }
    }
}
