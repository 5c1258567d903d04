//! Recordings in other forms: asciicast v2 for older players, and a transcript for people.

use super::{CastError, Event, EventKind, Header, Reader, event_line, micros};
use crate::plain::{Plain, PlainOptions};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};

/// Text is written in pieces of about this size.
const PIECE: usize = 32 << 10;

/// The header of asciicast v2.
#[derive(Serialize)]
struct HeaderV2<'a> {
    version: u8,
    width: u16,
    height: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_time_limit: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    theme: Option<&'a super::Theme>,
}

/// Writes a recording as asciicast v2, in which times are since the start. It has no place for an exit status, nor for
/// kinds that are not known here.
pub fn to_v2<R: BufRead, W: Write>(reader: Reader<R>, mut writer: W) -> Result<W, CastError> {
    writer.write_all(v2_header(reader.header())?.as_bytes())?;
    for event in reader {
        if let Some(line) = v2_event(&event?) {
            writer.write_all(line.as_bytes())?;
        }
    }
    writer.flush()?;
    Ok(writer)
}

/// The first line of a recording as asciicast v2 has it.
pub fn v2_header(header: &Header) -> Result<String, CastError> {
    let mut env: BTreeMap<&str, &str> =
        header.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    // Version 2 has no other place for the kind of the terminal.
    if let Some(kind) = &header.term.kind {
        env.entry("TERM").or_insert(kind);
    }
    let header = HeaderV2 {
        version: 2,
        width: header.term.cols,
        height: header.term.rows,
        timestamp: header.timestamp,
        idle_time_limit: header.idle_time_limit,
        command: header.command.as_deref(),
        title: header.title.as_deref(),
        env,
        theme: header.term.theme.as_ref(),
    };
    let header = serde_json::to_string(&header).map_err(std::io::Error::from)?;
    Ok(format!("{header}\n"))
}

/// An event as asciicast v2 has it, if it has it.
pub fn v2_event(event: &Event) -> Option<String> {
    if matches!(event.kind, EventKind::Exit(_) | EventKind::Other { .. }) {
        return None;
    }
    Some(event_line(micros(event.at), event.kind.code(), &event.kind.data()))
}

/// Writes what a recording showed as plain text.
pub fn transcript<R: BufRead, W: Write>(reader: Reader<R>, mut writer: W) -> Result<W, CastError> {
    let mut transcript = Transcript::new(reader.header());
    let mut text = String::new();
    for event in reader {
        transcript.feed(&event?, &mut text);
        if text.len() >= PIECE {
            writer.write_all(text.as_bytes())?;
            text.clear();
        }
    }
    transcript.finish(&mut text);
    writer.write_all(text.as_bytes())?;
    writer.flush()?;
    Ok(writer)
}

/// What a recording showed as plain text, event by event.
#[derive(Debug)]
pub struct Transcript {
    plain: Plain,
    /// Of what was given so far.
    last: char,
}

impl Transcript {
    pub fn new(header: &Header) -> Transcript {
        let term = &header.term;
        // Nothing can be redrawn that is not on the screen.
        let hold_back = usize::from(term.rows.clamp(crate::Size::MIN.rows(), crate::Size::MAX.rows()));
        let options =
            PlainOptions { terminal_columns: Some(term.cols), hold_back, ..PlainOptions::default() };
        Transcript { plain: Plain::new(options), last: '\n' }
    }

    /// Takes an event and appends the lines that it finished.
    pub fn feed(&mut self, event: &Event, text: &mut String) {
        let before = text.len();
        match &event.kind {
            EventKind::Output(output) => self.plain.feed(output.as_bytes(), text),
            EventKind::Resize { cols, .. } => self.plain.set_terminal_columns(*cols),
            EventKind::Input(_) | EventKind::Marker(_) | EventKind::Exit(_) | EventKind::Other { .. } => {}
        }
        self.last = text[before..].chars().next_back().unwrap_or(self.last);
    }

    /// There are no more: appends what is left, and the end of the last line.
    pub fn finish(&mut self, text: &mut String) {
        let before = text.len();
        self.plain.finish(text);
        self.last = text[before..].chars().next_back().unwrap_or(self.last);
        if self.last != '\n' {
            text.push('\n');
        }
    }
}
