//! A recording on its way to a reader: as it is, as an older version, or as plain text; also while it is being made.

use super::book::is_over;
use super::file::Reached;
use crate::blocking;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use workroom_terminal::cast::{CastError, Event, Header, Reader, Transcript, v2_event, v2_header};
use workroom_types::{Problem, ProblemCode};

/// As much as is read at once. Longer than the longest line, which is 16 KiB of text with every character escaped.
const PIECE: u64 = 256 << 10;

/// What a reader of a recording is given, piece by piece.
pub struct RecordingStream {
    file: Arc<File>,
    /// Where to read next.
    at: u64,
    end: End,
    form: Form,
    is_finished: bool,
}

/// Where the recording ends.
pub(super) enum End {
    Fixed(u64),
    /// Where it has come to, as long as it is being made.
    Moving(watch::Receiver<Reached>),
}

/// What becomes of the lines.
pub(super) enum Form {
    AsItIs,
    V2 {
        since: Since,
        /// Bytes that the reader has already.
        skip: u64,
    },
    Transcript {
        since: Since,
        transcript: Option<Transcript>,
    },
}

/// What is known of the recording from the lines before.
#[derive(Default, Clone)]
pub(super) struct Since {
    header: Option<Header>,
    time: Duration,
}

impl RecordingStream {
    pub(super) fn new(file: File, at: u64, end: End, form: Form) -> RecordingStream {
        RecordingStream { file: Arc::new(file), at, end, form, is_finished: false }
    }

    /// Whether it is being made while it is read.
    pub fn is_growing(&self) -> bool {
        matches!(self.end, End::Moving(_))
    }

    /// The next piece; nothing after the last, nor after a call that was not waited for or that failed.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        while !self.is_finished {
            let (end, is_last) = match &mut self.end {
                End::Fixed(end) => (*end, true),
                End::Moving(reached) => {
                    let is_last = reached.has_changed().is_err();
                    let reached = *reached.borrow_and_update();
                    (reached.bytes, is_last || is_over(&reached))
                }
            };
            if self.at < end {
                // Until all went well.
                self.is_finished = true;
                let piece = self.read(end).await?;
                self.is_finished = false;
                if !piece.is_empty() {
                    return Ok(Some(piece.into()));
                }
                continue;
            }
            match &mut self.end {
                // Its end is looked at once more when it is over.
                End::Moving(reached) if !is_last => drop(reached.changed().await),
                _ => {
                    self.is_finished = true;
                    let rest = self.form.finish();
                    if !rest.is_empty() {
                        return Ok(Some(rest.into()));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Reads and converts on a thread that may wait, and may take its time.
    async fn read(&mut self, end: u64) -> Result<Vec<u8>, Problem> {
        let (file, at, length) = (self.file.clone(), self.at, (end - self.at).min(PIECE) as usize);
        let mut form = std::mem::replace(&mut self.form, Form::AsItIs);
        let (form, taken, made) = blocking(move || {
            let mut lines = read_exact(&file, at, length).map_err(|error| unreadable(&error))?;
            if !matches!(form, Form::AsItIs) {
                keep_whole_lines(&mut lines).map_err(|error| unreadable(&error))?;
            }
            let taken = lines.len() as u64;
            let made = form.convert(lines).map_err(|error| unreadable(&error))?;
            Ok((form, taken, made))
        })
        .await?;
        self.form = form;
        self.at += taken;
        Ok(made)
    }
}

fn keep_whole_lines(lines: &mut Vec<u8>) -> io::Result<()> {
    let last = lines.iter().rposition(|byte| *byte == b'\n');
    let last = last.ok_or_else(|| io::Error::other("it has a line without an end"))?;
    lines.truncate(last + 1);
    Ok(())
}

fn read_exact(file: &File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut data = vec![0; length];
    file.read_exact_at(&mut data, at)?;
    Ok(data)
}

impl Form {
    pub(super) fn v2(skip: u64) -> Form {
        Form::V2 { since: Since::default(), skip }
    }

    pub(super) fn transcript() -> Form {
        Form::Transcript { since: Since::default(), transcript: None }
    }

    fn convert(&mut self, lines: Vec<u8>) -> Result<Vec<u8>, CastError> {
        match self {
            Form::AsItIs => Ok(lines),
            Form::V2 { since, skip } => {
                let is_first = since.header.is_none();
                let events = since.events(&lines)?;
                let mut made = match &since.header {
                    Some(header) if is_first => v2_header(header)?,
                    _ => String::new(),
                };
                events.iter().filter_map(v2_event).for_each(|line| made.push_str(&line));
                let known = (*skip).min(made.len() as u64);
                *skip -= known;
                let mut made = made.into_bytes();
                made.drain(..known as usize);
                Ok(made)
            }
            Form::Transcript { since, transcript } => {
                let events = since.events(&lines)?;
                let mut text = String::new();
                if let Some(header) = &since.header {
                    let transcript = transcript.get_or_insert_with(|| Transcript::new(header));
                    events.iter().for_each(|event| transcript.feed(event, &mut text));
                }
                Ok(text.into_bytes())
            }
        }
    }

    fn finish(&mut self) -> Vec<u8> {
        let mut text = String::new();
        if let Form::Transcript { transcript: Some(transcript), .. } = self {
            transcript.finish(&mut text);
        }
        text.into_bytes()
    }
}

impl Since {
    fn events(&mut self, lines: &[u8]) -> Result<Vec<Event>, CastError> {
        let mut reader = match &self.header {
            Some(header) => Reader::of_rest(lines, header.clone(), self.time),
            None => Reader::new(lines)?,
        };
        let events = reader.by_ref().collect::<Result<_, _>>()?;
        self.time = reader.whole_time();
        self.header = Some(reader.header().clone());
        Ok(events)
    }
}

pub(super) fn unreadable(error: &dyn std::fmt::Display) -> Problem {
    Problem::new(ProblemCode::Internal, format!("the recording cannot be read: {error}"), "")
}
