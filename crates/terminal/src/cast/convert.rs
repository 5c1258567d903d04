//! Recordings in other forms: asciicast v2 for older players, and a transcript for people.

use super::{CastError, EventKind, Reader, event_line, micros};
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
    let header = reader.header();
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
    writeln!(writer, "{header}")?;
    for event in reader {
        let event = event?;
        if !matches!(event.kind, EventKind::Exit(_) | EventKind::Other { .. }) {
            let line = event_line(micros(event.at), event.kind.code(), &event.kind.data());
            writer.write_all(line.as_bytes())?;
        }
    }
    writer.flush()?;
    Ok(writer)
}

/// Writes what a recording showed as plain text.
pub fn transcript<R: BufRead, W: Write>(reader: Reader<R>, mut writer: W) -> Result<W, CastError> {
    let term = &reader.header().term;
    // Nothing can be redrawn that is not on the screen.
    let hold_back = usize::from(term.rows.clamp(crate::Size::MIN.rows(), crate::Size::MAX.rows()));
    let mut plain =
        Plain::new(PlainOptions { terminal_columns: Some(term.cols), hold_back, ..PlainOptions::default() });
    let mut text = String::new();
    for event in reader {
        match event?.kind {
            EventKind::Output(output) => plain.feed(output.as_bytes(), &mut text),
            EventKind::Resize { cols, .. } => plain.set_terminal_columns(cols),
            EventKind::Input(_) | EventKind::Marker(_) | EventKind::Exit(_) | EventKind::Other { .. } => {}
        }
        if text.len() >= PIECE {
            writer.write_all(text.as_bytes())?;
            text.clear();
        }
    }
    plain.finish(&mut text);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    writer.write_all(text.as_bytes())?;
    writer.flush()?;
    Ok(writer)
}
