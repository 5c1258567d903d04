//! Output kept for a result: the head and the tail of a stream, in bounded memory.

use std::collections::VecDeque;

/// Half of what is kept of a stream.
const HALF: usize = 512 << 10;

#[derive(Default)]
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Capture {
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = HALF - self.head.len();
        let first = bytes.len().min(room);
        self.head.extend_from_slice(&bytes[..first]);
        bytes = &bytes[first..];
        self.tail.extend(bytes);
        let excess = self.tail.len().saturating_sub(HALF);
        self.tail.drain(..excess);
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    fn missing(&self) -> u64 {
        self.total - self.head.len() as u64 - self.tail.len() as u64
    }

    pub(crate) fn truncated(&self) -> bool {
        self.missing() > 0
    }

    /// The stream as text, with the gap, if there is one, said in its place.
    pub(crate) fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if !self.truncated() {
            return String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned();
        }
        format!(
            "{}\n[... {} bytes left out ...]\n{}",
            String::from_utf8_lossy(&self.head),
            self.missing(),
            String::from_utf8_lossy(&tail)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_streams_are_whole_and_long_ones_say_what_is_missing() {
        let mut short = Capture::default();
        short.push(b"hello ");
        short.push("wörld".as_bytes());
        assert_eq!((short.text().as_str(), short.truncated()), ("hello wörld", false));

        let mut long = Capture::default();
        for chunk in 0..48u32 {
            long.push(&vec![b'a' + (chunk % 26) as u8; 65536]);
        }
        long.push(b"the end");
        let text = long.text();
        assert_eq!(long.total(), 48 * 65536 + 7);
        assert!(long.truncated() && text.starts_with("aaa") && text.ends_with("the end"));
        assert!(text.contains(&format!("[... {} bytes left out ...]", long.total() - 2 * HALF as u64)));
    }
}
