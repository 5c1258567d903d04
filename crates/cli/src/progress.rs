//! How far a transfer has come, for who waits for it at a terminal.

use std::io::{self, IsTerminal, Read, Write};
use std::time::{Duration, Instant};
use workroom_types::format_bytes;

/// What is over before anybody wonders needs no words.
const QUIET_FOR: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(200);

pub(crate) struct Progress {
    total: Option<u64>,
    done: u64,
    began: Instant,
    next: Instant,
    shown: bool,
    to_terminal: bool,
}

impl Progress {
    pub(crate) fn new(total: Option<u64>) -> Progress {
        let began = Instant::now();
        let to_terminal = io::stderr().is_terminal();
        Progress { total, done: 0, began, next: began + QUIET_FOR, shown: false, to_terminal }
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        self.done += bytes as u64;
        let now = Instant::now();
        if self.to_terminal && now >= self.next {
            self.next = now + PERIOD;
            self.shown = true;
            let line = format!("\r\x1b[K{}", self.line(now - self.began));
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }

    fn line(&self, elapsed: Duration) -> String {
        let speed = (self.done as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
        let of = self.total.map(|total| format!(" of {}", format_bytes(total))).unwrap_or_default();
        format!("{}{of}, {}/s", format_bytes(self.done), format_bytes(speed))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

/// A reader whose progress is shown.
pub(crate) struct Watched<R> {
    pub(crate) reader: R,
    pub(crate) progress: Progress,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.progress.add(read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_and_how_fast() {
        let mut progress = Progress::new(Some(4 << 20));
        progress.add(2 << 20);
        assert_eq!(progress.line(Duration::from_secs(2)), "2 MiB of 4 MiB, 1 MiB/s");
    }
}
