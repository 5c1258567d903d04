//! The recorder of one process: follows its output from the first byte on, and writes what it sees with times.
//!
//! It takes what is in the ring, never more often than people can see, on a thread that may wait for the disk; what it
//! does not get to in time is dropped by the ring, and a marker says how much. The process never waits for it.

use super::book::{Book, Live};
use super::file::{Checkpoint, Reached, Standing, reached};
use super::line_breaks::LineBreaks;
use crate::processes::entry::Entry;
use crate::processes::notes::{Moment, Note};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use workroom_proto::{SpoolReader, Stream};
use workroom_terminal::cast::{CastError, EventKind, Header, Recorded, Recorder, Source};
use workroom_types::{Process, ProcessKind, ProcessState, TerminalSize, Timestamp};
use workroom_vault::RedactStream;

/// Output is looked at this often at most: no eye sees more, and many recorders stay cheap.
const PACE: Duration = Duration::from_millis(20);

/// A ring below this size may be overwritten within a pace.
const SMALL_RING: u64 = 1 << 20;

/// What is recorded is in its file this much later at most, or when it is this much.
const WRITTEN_WITHIN: Duration = Duration::from_millis(100);
const LARGE_BATCH: u64 = 64 << 10;

/// Bytes of output that are taken in one go; others have the thread in between.
const TAKEN_AT_ONCE: u64 = 1 << 20;
const PIECE: usize = 64 << 10;

/// How long a disk that fails is left alone, and how often it is tried for a process that has ended.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(1);
const MOST_TRIES: u32 = 30;

/// What a player is to have for output that was written to no terminal.
const WITHOUT_TERMINAL: TerminalSize = TerminalSize { cols: 120, rows: 40 };

/// What is to be done next.
enum Next {
    /// There is more already.
    GoOn,
    /// For a change, or for the time to write.
    Wait {
        is_unwritten: bool,
    },
    Over,
}

/// Records a process until it ends, the recording is cut, or it is deleted. `is_new`: also if there is no file yet.
pub(super) async fn record(book: Arc<Book>, live: Arc<Live>, is_new: bool) {
    let entry = live.entry.clone();
    let id = entry.id();
    let mut changes = entry.changes();
    let opened = {
        let (book, live) = (book.clone(), live.clone());
        tokio::task::spawn_blocking(move || Taker::open(book, live, is_new)).await
    };
    match opened {
        Ok(Ok(Some(taker))) => follow(taker, &mut changes).await,
        Ok(Err(error)) => tracing::warn!(process = id, %error, "this process is not recorded"),
        // Over already, or the server is.
        Ok(Ok(None)) | Err(_) => {}
    }
    entry.notes().set_wanted(false);
    book.end(&id, &live);
}

async fn follow(mut taker: Taker, changes: &mut watch::Receiver<u64>) {
    let paced = taker.entry.known().keep_output >= SMALL_RING;
    let mut tries = 0;
    loop {
        // In this order: what comes after the look has told of a change.
        changes.mark_unchanged();
        let begun = tokio::time::Instant::now();
        let passed = tokio::task::spawn_blocking(move || {
            let next = taker.pass();
            (taker, next)
        });
        // Otherwise the server is on its way down; the next one goes on from the last checkpoint.
        let Ok((back, next)) = passed.await else { return };
        taker = back;
        match next {
            Ok(Next::Over) => return,
            Ok(Next::GoOn) => tries = 0,
            Ok(Next::Wait { is_unwritten }) => {
                tries = 0;
                let is_due = is_unwritten
                    && tokio::time::timeout_at(begun + WRITTEN_WITHIN, changes.changed()).await.is_err();
                if !is_unwritten && changes.changed().await.is_err() {
                    return;
                }
                if paced && !is_due {
                    tokio::time::sleep_until(begun + PACE).await;
                }
            }
            Err(error) => {
                tries += 1;
                if tries == 1 {
                    tracing::warn!(process = taker.entry.id(), %error, "a recording cannot be written");
                }
                if tries >= MOST_TRIES && !taker.entry.is_running() {
                    return;
                }
                tokio::time::sleep(TRIED_AGAIN_AFTER).await;
            }
        }
    }
}

/// Takes a process's output and writes it.
struct Taker {
    entry: Arc<Entry>,
    book: Arc<Book>,
    live: Arc<Live>,
    id: String,
    /// None if the output is not kept any more.
    reader: Option<SpoolReader>,
    /// What happened beside the output, and was not recorded yet.
    notes: VecDeque<(Moment, Note)>,
    file: File,
    /// Writes into memory; from there whole batches go to the file.
    recorder: Recorder<Vec<u8>>,
    /// Of the file, up to the last checkpoint.
    written: Reached,
    /// Up to where what is recorded has a checkpoint behind it, written or not.
    closed: u64,
    /// What the next checkpoint says, but for what the recorder knows.
    next: Checkpoint,
    /// Events of earlier servers.
    earlier_events: u64,
    /// The process's start.
    since: Instant,
    /// Of a process without a terminal.
    line_breaks: Option<[LineBreaks; 2]>,
    last_written: Instant,
    /// What was typed, where there are secrets.
    typing: Option<RedactStream>,
}

impl Taker {
    /// Nothing if the recording is over, or was deleted meanwhile.
    fn open(book: Arc<Book>, live: Arc<Live>, is_new: bool) -> io::Result<Option<Taker>> {
        let entry = live.entry.clone();
        let info = entry.known();
        let file = match book.open(&info.id, is_new) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_new => return Ok(None),
            Err(error) => return Err(error),
        };
        let found = reached(&file)?;
        let written = found.unwrap_or_default();
        live.reached.send_replace(written);
        if written.checkpoint.state != Standing::Recording {
            return Ok(None);
        }
        let reader = match entry.reader() {
            Ok(reader) => Some(reader),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !entry.is_running() => None,
            Err(error) => return Err(error),
        };
        // What was torn, and what a file has that came to no checkpoint.
        file.set_len(written.bytes)?;
        let size = info.pty.unwrap_or(WITHOUT_TERMINAL);
        let budget = book.limits().size;
        let (recorder, next) = match found {
            Some(Reached { bytes, checkpoint }) => {
                let last = Duration::from_micros(checkpoint.micros);
                (Recorder::resume(Vec::new(), budget, bytes, last), checkpoint)
            }
            None => {
                let next = Checkpoint { cols: size.cols, rows: size.rows, ..Checkpoint::default() };
                (Recorder::new(Vec::new(), &header(&info, size), budget).map_err(plain)?, next)
            }
        };
        let age = u64::try_from(Timestamp::now().0.saturating_sub(info.started.0)).unwrap_or(0);
        let now = Instant::now();
        let mut taker = Taker {
            id: info.id,
            book,
            live,
            reader,
            file,
            notes: VecDeque::new(),
            recorder,
            closed: written.bytes,
            written,
            next,
            earlier_events: next.events,
            since: now.checked_sub(Duration::from_millis(age)).unwrap_or(now),
            line_breaks: info.pty.is_none().then(Default::default),
            last_written: now,
            typing: None,
            entry,
        };
        // Resized while nobody recorded.
        if info.pty.is_some() {
            taker.resized(taker.now(), size).map_err(plain)?;
        }
        taker.write()?;
        Ok(Some(taker))
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    /// Takes all that is there. An error is the file's: what could not be written is kept, and tried again.
    fn pass(&mut self) -> io::Result<Next> {
        if self.live.is_dropped() {
            return Ok(Next::Over);
        }
        if !self.recorder.writer_mut().is_empty() {
            self.write()?;
        }
        if self.next.state != Standing::Recording {
            return Ok(Next::Over);
        }
        let runs = self.entry.is_running();
        let is_all = self.take().map_err(plain)?;
        if self.recorder.is_stopped() {
            self.next.state = Standing::Cut;
        } else if is_all && !runs {
            self.finish().map_err(plain)?;
        }
        let is_over = self.next.state != Standing::Recording;
        let unwritten = self.recorder.used() - self.written.bytes;
        let is_old = self.last_written.elapsed() >= WRITTEN_WITHIN;
        let is_due = unwritten >= LARGE_BATCH || is_old || self.live.take_wait();
        if is_over || unwritten > 0 && is_due {
            self.write()?;
        }
        Ok(match (is_over, is_all) {
            (true, _) => Next::Over,
            (false, false) => Next::GoOn,
            (false, true) => Next::Wait { is_unwritten: self.recorder.used() > self.written.bytes },
        })
    }

    /// Whether all is taken that there is.
    fn take(&mut self) -> Result<bool, CastError> {
        let (notes, dropped) = self.entry.notes().take();
        self.notes.extend(notes);
        let mut most = TAKEN_AT_ONCE;
        while let Some((moment, _)) = self.notes.front() {
            if !self.output_up_to(moment.written, &mut most)? {
                return Ok(false);
            }
            if let Some((moment, note)) = self.notes.pop_front() {
                self.note(moment, note)?;
            }
        }
        if dropped > 0 {
            self.mark(format!("{dropped} events are not here: they came too fast to be recorded"))?;
        }
        self.output_up_to([u64::MAX; 2], &mut most)
    }

    /// Takes output up to these offsets, of both streams in turns, and not more than so much: whether that was all.
    fn output_up_to(&mut self, ends: [u64; 2], most: &mut u64) -> Result<bool, CastError> {
        loop {
            let mut is_all = true;
            for stream in Stream::BOTH {
                let cursor = self.cursor(stream);
                let wanted = ends[stream as usize].saturating_sub(cursor).min(PIECE as u64);
                let Some(reader) = &self.reader else { continue };
                if wanted == 0 || self.recorder.is_stopped() {
                    continue;
                }
                let piece = reader.read(stream, cursor, wanted as usize)?;
                if !piece.data.is_empty() {
                    is_all = false;
                    *most = most.saturating_sub(piece.data.len() as u64);
                    self.output(stream, piece.offset, &piece.data)?;
                }
            }
            if is_all || *most == 0 {
                return Ok(is_all);
            }
        }
    }

    fn cursor(&self, stream: Stream) -> u64 {
        let recorded = [self.next.stdout, self.next.stderr][stream as usize];
        recorded + self.recorder.held(source(stream)) as u64
    }

    /// Output as it is in the ring: what must not be seen was taken out before it got there.
    fn output(&mut self, stream: Stream, offset: u64, data: &[u8]) -> Result<(), CastError> {
        let (now, source) = (self.now(), source(stream));
        let missing = offset.saturating_sub(self.cursor(stream));
        if missing > 0 {
            let _ = self.recorder.give_up(now, source)?;
            self.next.missing += missing;
            self.mark(format!("{missing} bytes of output are not here: they came too fast to be recorded"))?;
        }
        let _ = match &mut self.line_breaks {
            None => self.recorder.output(now, source, data)?,
            Some(breaks) => self.recorder.output(now, source, &breaks[stream as usize].for_terminal(data))?,
        };
        let recorded = offset + data.len() as u64 - self.recorder.held(source) as u64;
        match stream {
            Stream::Stdout => self.next.stdout = recorded,
            Stream::Stderr => self.next.stderr = recorded,
        }
        Ok(())
    }

    fn note(&mut self, moment: Moment, note: Note) -> Result<(), CastError> {
        let at = moment.at.saturating_duration_since(self.since);
        match note {
            Note::Resized(size) => self.resized(at, size)?,
            Note::Typed(data) => self.typed(at, &data)?,
            Note::Marked(label) => drop_kept(self.recorder.event(at, &EventKind::Marker(label))?),
        }
        Ok(())
    }

    /// What was typed, without secrets: one that comes key by key is held back until it is whole.
    fn typed(&mut self, at: Duration, data: &[u8]) -> Result<(), CastError> {
        let Some(redactor) = self.entry.redactor().filter(|redactor| !redactor.get().is_empty()) else {
            drop_kept(self.recorder.input(at, data)?);
            return Ok(());
        };
        let mut shown = Vec::new();
        self.typing.get_or_insert_with(|| RedactStream::new(redactor)).push(data, &mut shown);
        if !shown.is_empty() {
            drop_kept(self.recorder.input(at, &shown)?);
        }
        Ok(())
    }

    fn mark(&mut self, label: String) -> Result<(), CastError> {
        drop_kept(self.recorder.event(self.now(), &EventKind::Marker(label))?);
        Ok(())
    }

    fn resized(&mut self, at: Duration, size: TerminalSize) -> Result<(), CastError> {
        let TerminalSize { cols, rows } = size;
        if (self.next.cols, self.next.rows) != (cols, rows) {
            drop_kept(self.recorder.event(at, &EventKind::Resize { cols, rows })?);
            (self.next.cols, self.next.rows) = (cols, rows);
        }
        Ok(())
    }

    /// The process has ended, and all that it wrote is taken.
    fn finish(&mut self) -> Result<(), CastError> {
        let now = self.now();
        if let Some(mut typing) = self.typing.take() {
            let mut shown = Vec::new();
            typing.finish(&mut shown);
            drop_kept(self.recorder.input(now, &shown)?);
        }
        drop_kept(self.recorder.finish_text(now)?);
        if self.reader.is_none() {
            self.mark("the rest of the output is not here: it was not kept".into())?;
        }
        let info = self.entry.known();
        match info.exit {
            Some(exit) if info.state == ProcessState::Exited => {
                drop_kept(self.recorder.event(now, &EventKind::Exit(exit.code))?);
            }
            _ => {
                let reason = info.reason.unwrap_or_else(|| "its end was not seen".into());
                self.mark(format!("the process was lost: {reason}"))?;
            }
        }
        self.next.state = if self.recorder.is_stopped() { Standing::Cut } else { Standing::Ended };
        Ok(())
    }

    /// Writes what is recorded, with a checkpoint behind it.
    fn write(&mut self) -> io::Result<()> {
        if self.recorder.used() > self.closed {
            let events = self.earlier_events + self.recorder.events();
            self.next = Checkpoint { events, micros: self.recorder.last().as_micros() as u64, ..self.next };
            let text = serde_json::to_string(&self.next)?;
            self.recorder.note(&text).and_then(|()| self.recorder.flush()).map_err(plain)?;
            self.closed = self.recorder.used();
        }
        let bytes = self.closed;
        if let Err(error) = self.file.write_all_at(self.recorder.writer_mut(), self.written.bytes) {
            // Nobody is to find a part of it.
            let _ = self.file.set_len(self.written.bytes);
            return Err(error);
        }
        self.recorder.writer_mut().clear();
        self.written = Reached { bytes, checkpoint: self.next };
        self.last_written = Instant::now();
        let has_room = self.book.grew(&self.id, bytes);
        if !has_room && self.next.state == Standing::Recording && !self.recorder.is_stopped() {
            let most = self.book.limits().session_size;
            let reason = format!("all recordings of the session take {most} bytes, which is the most");
            self.recorder.stop(self.now(), &reason).map_err(plain)?;
            self.next.state = Standing::Cut;
            return self.write();
        }
        self.live.reached.send_replace(self.written);
        Ok(())
    }
}

/// Whether an event was kept is asked once for all: the recorder knows whether it has stopped.
fn drop_kept(_: Recorded) {}

fn source(stream: Stream) -> Source {
    match stream {
        Stream::Stdout => Source::Stdout,
        Stream::Stderr => Source::Stderr,
    }
}

fn plain(error: CastError) -> io::Error {
    match error {
        CastError::Io(error) => error,
        other => io::Error::other(other),
    }
}

fn header(info: &Process, size: TerminalSize) -> Header {
    let mut header = Header::new(size.cols, size.rows);
    header.timestamp = u64::try_from(info.started.0 / 1000).ok();
    header.command = Some(info.command.clone());
    header.title = info.name.clone().or_else(|| info.tag.clone());
    let has_screen = matches!(info.kind, ProcessKind::Terminal | ProcessKind::Shell);
    header.term.kind = (has_screen && info.pty.is_some()).then(|| "xterm-256color".to_owned());
    header.tags = vec![super::kind_name(info.kind).to_owned()];
    header
}
