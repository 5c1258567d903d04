//! Making a recording: events are written as whole lines, within a budget of bytes.

use super::{CastError, EventKind, Header, event_line, micros};
use crate::utf8::Utf8Decoder;
use std::io::Write;
use std::time::Duration;

/// Lines are collected up to this size before they are written.
const BUFFER: usize = 32 << 10;

/// The text of one event; more is several events. A reader never meets a line that it must refuse.
const MAX_TEXT: usize = 16 << 10;

/// Kept free for the line that says that the budget is used up, and for the notes before and after it.
const RESERVE: u64 = 160 + 2 * MAX_NOTE as u64;

/// The longest note: with its beginning and its end.
const MAX_NOTE: usize = 256;

/// Where output comes from. A character that is cut at the end waits for its rest from the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Also a terminal.
    Stdout = 0,
    Stderr = 1,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Recorded {
    Kept,
    /// The budget is used up. The recording ends with a marker that says so, and this event is not in it.
    Stopped,
}

/// Writes a recording, event by event. Times are since its start and are the caller's; one that goes back counts as
/// the one before.
#[derive(Debug)]
pub struct Recorder<W: Write> {
    writer: W,
    lines: Vec<u8>,
    budget: u64,
    used: u64,
    last: u64,
    output: [Utf8Decoder; 2],
    input: Utf8Decoder,
    events: u64,
    state: State,
    dropped: u64,
}

#[derive(Debug, PartialEq)]
enum State {
    Recording,
    Stopped,
    /// A write failed, maybe in the middle of a line: what came after it would not be readable.
    GivenUp,
}

impl<W: Write> Recorder<W> {
    /// Begins a recording of at most `budget` bytes. The header, and the marker where the budget ends, are always
    /// there.
    pub fn new(writer: W, header: &Header, budget: u64) -> Result<Recorder<W>, CastError> {
        let mut recorder = Recorder::resume(writer, budget, 0, Duration::ZERO);
        let header = serde_json::to_string(header).map_err(std::io::Error::from)?;
        recorder.add(format!("{header}\n"))?;
        Ok(recorder)
    }

    /// Goes on with a recording that was broken off: `used` bytes of it are there
    /// ([`super::Reader::whole_bytes`]; the caller has cut the rest off), and its last event was at `last`
    /// ([`super::Reader::whole_time`]).
    pub fn resume(writer: W, budget: u64, used: u64, last: Duration) -> Recorder<W> {
        Recorder {
            writer,
            lines: Vec::new(),
            budget,
            used,
            last: micros(last),
            output: Default::default(),
            input: Utf8Decoder::default(),
            events: 0,
            state: State::Recording,
            dropped: 0,
        }
    }

    /// What the terminal showed. A character that is cut at the end waits for its rest in the next output.
    pub fn output(&mut self, at: Duration, source: Source, bytes: &[u8]) -> Result<Recorded, CastError> {
        let mut text = String::new();
        self.output[source as usize].decode(bytes, |part| text.push_str(part));
        self.text(at, &text, EventKind::Output)
    }

    /// What somebody typed.
    pub fn input(&mut self, at: Duration, bytes: &[u8]) -> Result<Recorded, CastError> {
        let mut text = String::new();
        self.input.decode(bytes, |part| text.push_str(part));
        self.text(at, &text, EventKind::Input)
    }

    /// How many bytes of a source's output wait for the rest of their character: they are in no event yet, and who
    /// goes on with the recording later has to give them once more.
    pub fn held(&self, source: Source) -> usize {
        self.output[source as usize].held()
    }

    /// The character that waits will never come to its end: it is recorded as U+FFFD. Before a gap.
    pub fn give_up(&mut self, at: Duration, source: Source) -> Result<Recorded, CastError> {
        let rest = self.output[source as usize].finish();
        self.text(at, rest.unwrap_or_default(), EventKind::Output)
    }

    /// Any other event. Labels of markers are as long as they are given.
    pub fn event(&mut self, at: Duration, kind: &EventKind) -> Result<Recorded, CastError> {
        self.line(at, kind.code(), &kind.data())
    }

    /// A line that players pass over, also at the end of a recording that is stopped. Longer ones are cut.
    pub fn note(&mut self, text: &str) -> Result<(), CastError> {
        if self.state == State::GivenUp {
            return Err(CastError::GivenUp);
        }
        let text = &text[..text.floor_char_boundary(MAX_NOTE - 3)];
        self.add(format!("# {}\n", text.replace('\n', " ")))
    }

    /// Stops the recording here, for a reason, which a marker says.
    pub fn stop(&mut self, at: Duration, reason: &str) -> Result<(), CastError> {
        if self.state != State::Recording {
            return Ok(());
        }
        self.state = State::Stopped;
        let now = micros(at).max(self.last);
        let line = event_line(now - self.last, "m", &format!("the recording stops here: {reason}"));
        self.last = now;
        self.events += 1;
        self.add(line)?;
        // Nothing follows that would push the marker out.
        self.flush()
    }

    /// Writes all lines that are complete, and has the writer pass them on.
    pub fn flush(&mut self) -> Result<(), CastError> {
        if self.state == State::GivenUp {
            return Err(CastError::GivenUp);
        }
        let written = self.writer.write_all(&self.lines).and_then(|()| self.writer.flush());
        self.lines.clear();
        if written.is_err() {
            self.state = State::GivenUp;
        }
        Ok(written?)
    }

    /// Ends the recording and gives the writer back. Characters that never came to their end are recorded as U+FFFD.
    pub fn finish(mut self, at: Duration) -> Result<W, CastError> {
        let _ = self.finish_text(at)?;
        self.flush()?;
        Ok(self.writer)
    }

    /// No more text comes. Characters that never came to their end are recorded as U+FFFD.
    pub fn finish_text(&mut self, at: Duration) -> Result<Recorded, CastError> {
        let [stdout, stderr] = &mut self.output;
        let rests = [
            (stdout.finish(), EventKind::Output as fn(String) -> EventKind),
            (stderr.finish(), EventKind::Output as fn(String) -> EventKind),
            (self.input.finish(), EventKind::Input as fn(String) -> EventKind),
        ];
        let mut recorded = Recorded::Kept;
        for (rest, kind) in rests {
            recorded = self.text(at, rest.unwrap_or_default(), kind)?;
        }
        Ok(recorded)
    }

    /// What the lines are written to.
    pub fn writer_mut(&mut self) -> &mut W {
        &mut self.writer
    }

    /// The time of the last event.
    pub fn last(&self) -> Duration {
        Duration::from_micros(self.last)
    }

    /// How many events were written since this was made.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The bytes of the recording so far, those included that wait to be written.
    pub fn used(&self) -> u64 {
        self.used
    }

    pub fn is_stopped(&self) -> bool {
        self.state == State::Stopped
    }

    /// How many events are not in the recording because its budget was used up.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn text(
        &mut self,
        at: Duration,
        mut text: &str,
        kind: fn(String) -> EventKind,
    ) -> Result<Recorded, CastError> {
        let mut recorded = if self.is_stopped() { Recorded::Stopped } else { Recorded::Kept };
        while !text.is_empty() {
            let (piece, rest) = text.split_at(text.floor_char_boundary(MAX_TEXT));
            recorded = self.event(at, &kind(piece.to_owned()))?;
            text = rest;
        }
        Ok(recorded)
    }

    fn line(&mut self, at: Duration, code: &str, data: &str) -> Result<Recorded, CastError> {
        match self.state {
            State::GivenUp => return Err(CastError::GivenUp),
            State::Stopped => {
                self.dropped += 1;
                return Ok(Recorded::Stopped);
            }
            State::Recording => {}
        }
        let now = micros(at).max(self.last);
        let line = event_line(now - self.last, code, data);
        if self.used + line.len() as u64 + RESERVE > self.budget {
            self.dropped += 1;
            self.stop(at, &format!("its budget of {} bytes is used up", self.budget))?;
            return Ok(Recorded::Stopped);
        }
        self.last = now;
        self.events += 1;
        self.add(line)?;
        Ok(Recorded::Kept)
    }

    fn add(&mut self, line: String) -> Result<(), CastError> {
        self.used += line.len() as u64;
        self.lines.extend_from_slice(line.as_bytes());
        if self.lines.len() >= BUFFER { self.flush() } else { Ok(()) }
    }
}
