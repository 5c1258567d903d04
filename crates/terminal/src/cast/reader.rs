//! Reading a recording, one that was broken off included.

use super::{CastError, Event, EventKind, Header, micros};
use serde_json::Value;
use std::io::{BufRead, Read};
use std::time::Duration;

/// The longest line that is read. Ours are shorter by far; others record a second of a flood in one event.
const MAX_LINE: usize = 16 << 20;

/// Gives the events of a recording in their order, with times since its start.
#[derive(Debug)]
pub struct Reader<R: BufRead> {
    source: R,
    header: Header,
    line: Vec<u8>,
    line_number: u64,
    micros: u64,
    whole_bytes: u64,
    whole_micros: u64,
    is_cut_off: bool,
    is_done: bool,
}

impl<R: BufRead> Reader<R> {
    pub fn new(mut source: R) -> Result<Reader<R>, CastError> {
        let mut line = Vec::new();
        let complete = read_line(&mut source, &mut line, 1)?;
        if line.is_empty() {
            return Err(CastError::Empty);
        }
        let value: Value =
            serde_json::from_slice(&line).map_err(|error| CastError::NoHeader(error.to_string()))?;
        match value.get("version").and_then(Value::as_u64) {
            Some(version) if version == u64::from(Header::VERSION) => {}
            Some(version) => return Err(CastError::Version(version)),
            None => return Err(CastError::NoHeader("it has no version".into())),
        }
        let header = serde_json::from_value(value).map_err(|error| CastError::NoHeader(error.to_string()))?;
        let whole_bytes = if complete { line.len() as u64 } else { 0 };
        Ok(Reader {
            source,
            header,
            line,
            line_number: 1,
            micros: 0,
            whole_bytes,
            whole_micros: 0,
            is_cut_off: false,
            is_done: false,
        })
    }

    /// A later part of a recording, from the beginning of a line on, whose last event before it was at `since`.
    pub fn of_rest(source: R, header: Header, since: Duration) -> Reader<R> {
        let micros = micros(since);
        Reader {
            source,
            header,
            line: Vec::new(),
            line_number: 1,
            micros,
            whole_bytes: 0,
            whole_micros: micros,
            is_cut_off: false,
            is_done: false,
        }
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many bytes have been read as lines with an end: where to cut a recording that was broken off, to go on
    /// with it.
    pub fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// The time of the last event within these bytes.
    pub fn whole_time(&self) -> Duration {
        Duration::from_micros(self.whole_micros)
    }

    /// The last line has no end: whoever wrote the recording was stopped in the middle of it.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    fn read_event(&mut self) -> Result<Option<Event>, CastError> {
        loop {
            self.line_number += 1;
            let complete = read_line(&mut self.source, &mut self.line, self.line_number)?;
            if self.line.is_empty() {
                return Ok(None);
            }
            if !complete {
                // A file that somebody saved without a last newline is as good as one with it.
                let event = self.parse();
                self.is_cut_off = event.is_err();
                return Ok(event.unwrap_or_default());
            }
            let event = self.parse()?;
            self.whole_bytes += self.line.len() as u64;
            self.whole_micros = self.micros;
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// The event of a line; none for a comment, an empty line, or a kind whose data is not text.
    fn parse(&mut self) -> Result<Option<Event>, CastError> {
        let line = self.line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(None);
        }
        let line_number = self.line_number;
        let bad = |reason: &str| CastError::BadEvent { line: line_number, reason: reason.to_owned() };
        let (interval, code, data): (f64, String, Value) =
            serde_json::from_slice(line).map_err(|error| bad(&error.to_string()))?;
        let interval = Duration::try_from_secs_f64(interval)
            .map_err(|_| bad(&format!("{interval} is no number of seconds that can pass")))?;
        // Rounded, because the decimal fraction became a binary one.
        let micros = u64::try_from((interval.as_nanos() + 500) / 1000).unwrap_or(u64::MAX);
        let micros = self.micros.saturating_add(micros);
        let kind = match (code.as_str(), data) {
            ("o", Value::String(text)) => EventKind::Output(text),
            ("i", Value::String(text)) => EventKind::Input(text),
            ("m", Value::String(label)) => EventKind::Marker(label),
            ("r", Value::String(size)) => resize(&size).ok_or_else(|| bad("the size is not COLSxROWS"))?,
            ("x", Value::String(status)) => {
                EventKind::Exit(status.parse().map_err(|_| bad("the exit status is no number"))?)
            }
            ("o" | "i" | "m" | "r" | "x", _) => return Err(bad("its data is not text")),
            (_, Value::String(data)) => EventKind::Other { code, data },
            _ => {
                self.micros = micros;
                return Ok(None);
            }
        };
        self.micros = micros;
        Ok(Some(Event { at: Duration::from_micros(micros), kind }))
    }
}

/// After an error there is nothing more.
impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Event, CastError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let event = self.read_event().transpose();
        self.is_done = !matches!(event, Some(Ok(_)));
        event
    }
}

fn resize(size: &str) -> Option<EventKind> {
    let (cols, rows) = size.split_once('x')?;
    Some(EventKind::Resize { cols: cols.parse().ok()?, rows: rows.parse().ok()? })
}

/// Reads a line with its newline, and says whether it had one.
fn read_line(source: &mut impl BufRead, line: &mut Vec<u8>, number: u64) -> Result<bool, CastError> {
    line.clear();
    source.by_ref().take(MAX_LINE as u64).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        Ok(true)
    } else if line.len() == MAX_LINE {
        Err(CastError::LongLine { line: number, limit: MAX_LINE })
    } else {
        Ok(false)
    }
}
