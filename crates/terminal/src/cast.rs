//! Recordings of terminals in asciinema's format: what a header and an event are.
//!
//! A recording is a line of JSON for the header and one for each event, `[seconds since the event before, code, data]`
//! (asciicast v3). See <https://docs.asciinema.org/manual/asciicast/v3/>.

mod convert;
mod reader;
mod recorder;

pub use convert::{Transcript, to_v2, transcript, v2_event, v2_header};
pub use reader::Reader;
pub use recorder::{Recorded, Recorder, Source};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The first line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    version: u8,
    pub term: Term,
    /// When it began, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<u64>,
    /// The longest pause that a player should make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_time_limit: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// The terminal that was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Term {
    pub cols: u16,
    pub rows: u16,
    /// The value of `TERM`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theme: Option<Theme>,
}

/// Colours as `#rrggbb`; the palette is 8 or 16 of them with colons between.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Theme {
    pub fg: String,
    pub bg: String,
    pub palette: String,
}

impl Header {
    const VERSION: u8 = 3;

    pub fn new(cols: u16, rows: u16) -> Header {
        Header {
            version: Header::VERSION,
            term: Term { cols, rows, kind: None, version: None, theme: None },
            timestamp: None,
            idle_time_limit: None,
            command: None,
            title: None,
            env: BTreeMap::new(),
            tags: Vec::new(),
        }
    }
}

/// Something that happened, and when, since the start of the recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub at: Duration,
    pub kind: EventKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// `o`: the terminal showed this.
    Output(String),
    /// `i`: somebody typed this.
    Input(String),
    /// `m`: a place of interest, with a label or without.
    Marker(String),
    /// `r`: the terminal has another size.
    Resize { cols: u16, rows: u16 },
    /// `x`: the program ended with this status.
    Exit(i32),
    /// A kind that is newer than this code; players pass over it.
    Other { code: String, data: String },
}

impl EventKind {
    pub fn code(&self) -> &str {
        match self {
            EventKind::Output(_) => "o",
            EventKind::Input(_) => "i",
            EventKind::Marker(_) => "m",
            EventKind::Resize { .. } => "r",
            EventKind::Exit(_) => "x",
            EventKind::Other { code, .. } => code,
        }
    }

    fn data(&self) -> String {
        match self {
            EventKind::Output(text) | EventKind::Input(text) | EventKind::Marker(text) => text.clone(),
            EventKind::Resize { cols, rows } => format!("{cols}x{rows}"),
            EventKind::Exit(status) => status.to_string(),
            EventKind::Other { data, .. } => data.clone(),
        }
    }
}

/// One line of a recording, with its newline. Times are whole microseconds, so that adding them up loses nothing.
fn event_line(seconds_in_micros: u64, code: &str, data: &str) -> String {
    let (seconds, micros) = (seconds_in_micros / 1_000_000, seconds_in_micros % 1_000_000);
    let (code, data) = (serde_json::Value::from(code), serde_json::Value::from(data));
    format!("[{seconds}.{micros:06}, {code}, {data}]\n")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[derive(Debug, thiserror::Error)]
pub enum CastError {
    #[error("the recording cannot be read or written: {0}")]
    Io(#[from] std::io::Error),
    #[error("the recording is empty")]
    Empty,
    #[error("this is no recording: its first line is not the header of an asciicast ({0})")]
    NoHeader(String),
    #[error("the recording is an asciicast of version {0}; only version 3 can be read")]
    Version(u64),
    #[error("line {line} of the recording is not an event: {reason}")]
    BadEvent { line: u64, reason: String },
    #[error("line {line} of the recording is longer than {limit} bytes")]
    LongLine { line: u64, limit: usize },
    #[error("the recording was given up when it could not be written")]
    GivenUp,
}

#[cfg(test)]
#[path = "cast/tests.rs"]
mod tests;
