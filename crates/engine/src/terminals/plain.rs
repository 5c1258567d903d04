//! Pages of a terminal's output as plain text. A page ends where a line does, so that the next one can begin there
//! without knowing of this one.

use super::models::sets_mode;
use crate::processes::entry::Entry;
use crate::processes::unreadable;
use workroom_proto::Stream;
use workroom_terminal::{Plain, PlainOptions};
use workroom_types::{PlainPage, Problem};

/// Puts what follows on the alternate screen, as the program had done before.
const ON_ALTERNATE: &[u8] = b"\x1b[?1049h";

/// No escape sequence that matters is longer.
const LONGEST_SEQUENCE: usize = 64;

/// Where a page begins, and how much may be read for it.
pub(crate) struct From {
    pub(crate) cursor: u64,
    pub(crate) most: usize,
    /// Columns of a line, if that is not as usual.
    pub(crate) max_line: Option<usize>,
    pub(crate) runs: bool,
    /// Whether the alternate screen was on at a byte of the output.
    pub(crate) was_alternate: Box<dyn FnOnce(u64) -> bool + Send>,
}

pub(crate) fn page(entry: &Entry, from: From) -> Result<PlainPage, Problem> {
    let reader = entry.reader().map_err(|error| unreadable(&error))?;
    let mut data: Vec<u8> = Vec::new();
    let mut cursor = None;
    while data.len() < from.most {
        let next = cursor.map_or(from.cursor, |cursor: u64| cursor + data.len() as u64);
        let piece =
            reader.read(Stream::Stdout, next, from.most - data.len()).map_err(|error| unreadable(&error))?;
        if piece.data.is_empty() || cursor.is_some() && piece.offset != next {
            break;
        }
        cursor = cursor.or(Some(piece.offset));
        data.extend_from_slice(&piece.data);
    }
    let written = reader.written(Stream::Stdout).map_err(|error| unreadable(&error))?;
    // Of a cursor that is ahead of everything nothing is there yet.
    let cursor = cursor.unwrap_or(from.cursor.min(written));
    let is_all = cursor + data.len() as u64 >= written;
    let mut page = PlainPage {
        cursor,
        missing: cursor.saturating_sub(from.cursor),
        end: is_all && !from.runs,
        ..PlainPage::default()
    };
    let usual = PlainOptions::default();
    let max_line = from.max_line.unwrap_or(usual.max_line);
    let mut plain = Plain::new(PlainOptions { max_line, ..usual });
    if (from.was_alternate)(cursor) {
        plain.feed(ON_ALTERNATE, &mut page.text);
    }
    let (mut fed, mut columns) = (0, 0);
    // After the last line that is finished: bytes that were read, and bytes of text.
    let mut finished = (0, 0);
    while fed < data.len() {
        let line = up_to_a_stop(&data[fed..]);
        let wanted = entry.sizes().at(cursor + fed as u64).map_or(0, |(size, _)| size.cols);
        if wanted != columns {
            columns = wanted;
            plain.set_terminal_columns(columns);
        }
        plain.feed(line, &mut page.text);
        fed += line.len();
        let is_stop = line.ends_with(b"\n") || line.len() >= 2 && sets_mode(&line[line.len() - 2..]);
        if is_stop && plain.unfinished().is_empty() {
            finished = (fed, page.text.len());
        }
    }
    if page.end {
        plain.finish(&mut page.text);
        page.next_cursor = cursor + data.len() as u64;
    } else if is_all || finished.0 > 0 {
        page.unfinished = page.text.split_off(finished.1) + &plain.unfinished();
        page.next_cursor = cursor + finished.0 as u64;
    } else {
        // A line that is longer than a page, or a program that draws on the alternate screen.
        page.text.push_str(&plain.unfinished());
        page.next_cursor = cursor + whole_sequences(&data) as u64;
    }
    Ok(page)
}

/// The bytes up to the next place that a page may begin at if no line is under way there: after a newline, or after the
/// screen may have been changed for the other.
fn up_to_a_stop(data: &[u8]) -> &[u8] {
    let newline = data.iter().position(|byte| *byte == b'\n').map_or(data.len(), |at| at + 1);
    let line = &data[..newline];
    let end = line.windows(2).position(sets_mode).map_or(newline, |at| at + 2);
    &data[..end]
}

/// How many bytes there are before a sequence that may be cut off at the end.
fn whole_sequences(data: &[u8]) -> usize {
    let tail = data.len().saturating_sub(LONGEST_SEQUENCE).max(1).min(data.len());
    data[tail..].iter().rposition(|byte| *byte == 0x1b).map_or(data.len(), |at| tail + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_not_cut_inside_a_sequence() {
        assert_eq!(whole_sequences(b"abc"), 3);
        assert_eq!(whole_sequences(b"abc\x1b[?10"), 3);
        assert_eq!(whole_sequences(b"\x1b[?10"), 5, "a page must go on");
        assert_eq!(whole_sequences(b""), 0);
        let far = [b"\x1b".as_slice(), &[b'x'; 100]].concat();
        assert_eq!(whole_sequences(&far), far.len());
    }
}
