//! What a service wrote, as lines: of its current or last run.

use crate::processes::entry::Entry;
use std::sync::Arc;
use workroom_proto::{SpoolReader, Stream};
use workroom_types::{LogLine, OutputStream, Problem, ProblemCode, ServiceLogs};

/// Bytes of each stream that one answer is made of.
const MOST_BYTES: u64 = 1 << 20;

/// Lines of each stream where a caller says neither how many nor from where.
const USUAL_TAIL: usize = 100;

/// Which lines are wanted.
#[derive(Debug, Clone, Default)]
pub struct LogQuery {
    /// The last so many of each stream.
    pub tail: Option<usize>,
    /// Those from here on, as an answer before has said.
    pub cursor: Option<String>,
}

impl LogQuery {
    /// Where each stream is to be read from, of a run that may go on.
    pub fn places(&self, run: &crate::ProcessHandle) -> Result<[u64; 2], Problem> {
        let reader = run.entry.reader().map_err(|error| unreadable(&error))?;
        let mut places = [0; 2];
        for (place, stream) in places.iter_mut().zip(Stream::BOTH) {
            *place = self.begin(&reader, stream)?;
        }
        Ok(places)
    }

    fn begin(&self, reader: &SpoolReader, stream: Stream) -> Result<u64, Problem> {
        if let Some(cursor) = &self.cursor {
            return Ok(read_cursor(cursor)?[stream as usize]);
        }
        let wanted = self.tail.unwrap_or(USUAL_TAIL);
        let written = reader.written(stream).map_err(|error| unreadable(&error))?;
        let (first, data) = read_from(reader, stream, written.saturating_sub(MOST_BYTES))?;
        let is_cut = first > 0;
        Ok(first + beginning_of_tail(&data, wanted, is_cut) as u64)
    }
}

/// Where the last lines begin, one that has no end yet counted; the first one of data that is cut off is none.
fn beginning_of_tail(data: &[u8], wanted: usize, is_cut: bool) -> usize {
    if wanted == 0 {
        return data.len();
    }
    let ends = data.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    // The end of the last line is the beginning of none.
    let mut beginnings = ends.filter(|at| *at < data.len());
    match beginnings.nth(wanted - 1) {
        Some(at) => at,
        None if is_cut => data.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1),
        None => 0,
    }
}

/// `12.34`: the places in stdout and stderr.
fn read_cursor(text: &str) -> Result<[u64; 2], Problem> {
    let parts = text
        .split_once('.')
        .and_then(|(stdout, stderr)| Some([stdout.parse::<u64>().ok()?, stderr.parse::<u64>().ok()?]));
    parts.ok_or_else(|| {
        Problem::invalid(
            format!("\"{}\" is not a cursor", crate::validate::shown(text)),
            "use `cursor` of the answer before, as it is",
        )
    })
}

/// What is kept from a place on, up to the most of one answer, and where it begins.
fn read_from(reader: &SpoolReader, stream: Stream, from: u64) -> Result<(u64, Vec<u8>), Problem> {
    let (mut first, mut data) = (None, Vec::new());
    while (data.len() as u64) < MOST_BYTES {
        let at = first.map_or(from, |first: u64| first + data.len() as u64);
        let space = (MOST_BYTES - data.len() as u64) as usize;
        let piece = reader.read(stream, at, space).map_err(|error| unreadable(&error))?;
        let is_gap = first.is_some() && piece.offset != at;
        first = first.or(Some(piece.offset));
        if piece.data.is_empty() || is_gap {
            break;
        }
        data.extend_from_slice(&piece.data);
    }
    Ok((first.unwrap_or(from), data))
}

pub(super) fn read(
    entry: &Arc<Entry>,
    query: LogQuery,
    earlier: Vec<String>,
) -> Result<ServiceLogs, Problem> {
    // In this order: what ended after it was looked at has written no less.
    let runs = entry.is_running();
    let reader = entry.reader().map_err(|error| unreadable(&error))?;
    let mut logs = ServiceLogs { process: entry.id(), earlier, end: !runs, ..ServiceLogs::default() };
    let mut places = [0; 2];
    for (place, stream) in places.iter_mut().zip(Stream::BOTH) {
        let from = query.begin(&reader, stream)?;
        let (first, data) = read_from(&reader, stream, from)?;
        logs.missing += first.saturating_sub(from);
        let written = reader.written(stream).map_err(|error| unreadable(&error))?;
        let name = [OutputStream::Stdout, OutputStream::Stderr][stream as usize];
        let is_full = data.len() as u64 >= MOST_BYTES;
        let taken = cut_lines(&data, is_full || !runs, |at, line| {
            let text = String::from_utf8_lossy(line).into_owned();
            logs.lines.push(LogLine { stream: name, offset: first + at as u64, text });
        });
        *place = first + taken as u64;
        logs.end &= *place >= written;
    }
    logs.cursor = format!("{}.{}", places[0], places[1]);
    Ok(logs)
}

/// Gives each line with its place. One without an end is given only if `all`; else it is left for the next time.
fn cut_lines(data: &[u8], all: bool, mut give: impl FnMut(usize, &[u8])) -> usize {
    let mut at = 0;
    while let Some(length) = data[at..].iter().position(|byte| *byte == b'\n') {
        give(at, data[at..at + length].strip_suffix(b"\r").unwrap_or(&data[at..at + length]));
        at += length + 1;
    }
    // In a full answer the beginning of a line is left for the next one, unless it is all that there is.
    if all && at < data.len() && (at == 0 || (data.len() as u64) < MOST_BYTES) {
        give(at, &data[at..]);
        at = data.len();
    }
    at
}

fn unreadable(error: &std::io::Error) -> Problem {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            Problem::new(ProblemCode::NotFound, "the output of this run is not kept any more", "")
        }
        _ => Problem::new(ProblemCode::Internal, format!("the output cannot be read: {error}"), ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(data: &[u8], all: bool) -> (usize, Vec<(usize, String)>) {
        let mut lines = Vec::new();
        let taken =
            cut_lines(data, all, |at, line| lines.push((at, String::from_utf8_lossy(line).into_owned())));
        (taken, lines)
    }

    #[test]
    fn lines_are_whole_until_there_will_be_no_more() {
        assert_eq!(lines(b"a\nbc\r\nd", false), (6, vec![(0, "a".into()), (2, "bc".into())]));
        assert_eq!(lines(b"d", true), (1, vec![(0, "d".into())]));
        assert_eq!(lines(b"", true), (0, vec![]));
        assert_eq!(lines(b"\n\n", false).1.len(), 2);
    }

    #[test]
    fn a_tail_is_the_last_lines() {
        let tail = |data: &str, wanted, is_cut| {
            String::from_utf8_lossy(&data.as_bytes()[beginning_of_tail(data.as_bytes(), wanted, is_cut)..])
                .into_owned()
        };
        assert_eq!(tail("a\nb\nc\n", 2, false), "b\nc\n");
        assert_eq!(tail("a\nb\nc", 2, false), "b\nc");
        assert_eq!(tail("a\nb\nc\n", 9, false), "a\nb\nc\n");
        assert_eq!(tail("cut off\nb\nc\n", 9, true), "b\nc\n");
        assert_eq!(tail("a\n", 0, false), "");
    }

    #[test]
    fn a_cursor_is_two_places() {
        assert_eq!(read_cursor("12.0").ok(), Some([12, 0]));
        for wrong in ["", "12", "a.b", "1.2.3", "-1.0"] {
            assert_eq!(read_cursor(wrong).expect_err(wrong).status, 400);
        }
    }
}
