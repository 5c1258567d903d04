//! Recordings of processes: made beside them, kept outside the room, listed, read, and deleted.
//!
//! ```text
//!  actor/processes.rs ──start──▶ Recordings ──▶ book.rs: those of one session, and their bounds
//!                                                 │ a task for each that is being made
//!   output/SESSION/ID (a ring) ──────────────▶ recorder.rs ──▶ file.rs: recordings/SESSION/ID.cast
//!   entry.rs: sizes, markers, input ─────────────┘                │
//!                                    server ◀── stream.rs ◀───────┘
//! ```

mod book;
mod file;
mod line_breaks;
mod recorder;
mod stream;

pub use stream::RecordingStream;

use crate::actor::{Ask, PROCESS_PART};
use crate::config::RecordingLimits;
use crate::processes::entry::Entry;
use crate::processes::notes::Note;
use crate::secrets::redactors::clean_text;
use crate::{Engine, blocking, sessions, storage, validate};
use book::{Book, Live, is_over};
use file::{Reached, Standing};
use serde_json::json;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stream::{End, Form, unreadable};
use workroom_store::Change;
use workroom_types::{
    Caller, CastFormat, Problem, ProblemCode, ProcessKind, Recording, RecordingList, RecordingState,
    Timestamp,
};

/// How long a reader waits for the last of a process that has ended to be recorded.
const LAST_WITHIN: Duration = Duration::from_secs(10);

/// The longest label of a marker.
const LONGEST_LABEL: usize = 1000;

/// What of a recording is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordingQuery {
    Cast {
        format: CastFormat,
        /// Bytes of it that the reader has already.
        offset: u64,
        /// Whether to go on while it is being made.
        follow: bool,
    },
    Transcript,
}

/// All recordings that are being made, and where they are kept.
pub(crate) struct Recordings {
    root: PathBuf,
    limits: RecordingLimits,
    books: Mutex<HashMap<String, Arc<Book>>>,
}

impl Recordings {
    pub(crate) fn new(root: PathBuf, limits: RecordingLimits) -> Recordings {
        Recordings { root, limits, books: Mutex::default() }
    }

    fn books(&self) -> MutexGuard<'_, HashMap<String, Arc<Book>>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn book(&self, session: &str) -> Arc<Book> {
        let made = || Arc::new(Book::new(self.root.join(session), self.limits));
        self.books().entry(session.to_owned()).or_insert_with(made).clone()
    }

    /// Records a process from where its recording stands, if it is to be recorded.
    pub(crate) fn start(&self, session: &str, entry: &Arc<Entry>) {
        if let Some((book, live)) = self.begin(session, entry) {
            tokio::spawn(recorder::record(book, live, true));
        }
    }

    fn begin(&self, session: &str, entry: &Arc<Entry>) -> Option<(Arc<Book>, Arc<Live>)> {
        if !entry.is_recorded() {
            return None;
        }
        let book = self.book(session);
        let live = book.begin(&entry.id(), entry)?;
        entry.notes().set_wanted(true);
        Some((book, live))
    }

    /// Goes on with recordings of processes that ended while nobody recorded them.
    pub(crate) fn finish(self: &Recordings, session: &str, ended: Vec<Arc<Entry>>) {
        let begun: Vec<_> = ended.iter().filter_map(|entry| self.begin(session, entry)).collect();
        if begun.is_empty() {
            return;
        }
        tokio::spawn(async move {
            for (book, live) in begun {
                recorder::record(book, live, false).await;
            }
        });
    }

    /// Puts a marker into the recording of a process, behind all that it has written by now: whether there is one
    /// that is being made. Does not wait for it to be written.
    pub(crate) fn mark(&self, session: &str, process: &str, label: &str) -> bool {
        let Some(book) = self.books().get(session).cloned() else { return false };
        let Some(live) = book.find(process) else { return false };
        let mut label = label.to_owned();
        if let Some(redactor) = live.entry.redactor() {
            clean_text(&redactor.get(), &mut label);
        }
        let label = &label[..label.floor_char_boundary(LONGEST_LABEL)];
        live.entry.note(live.entry.moment(), Note::Marked(label.to_owned()))
    }

    /// The session is gone: nothing more is made for it.
    pub(crate) fn close(&self, session: &str) {
        let book = self.books().remove(session);
        if let Some(book) = book {
            book.close();
        }
    }
}

impl Engine {
    /// The recordings of a session, the newest first: those of processes that are forgotten too.
    pub async fn recordings(&self, caller: &Caller, id: &str) -> Result<RecordingList, Problem> {
        let book = self.recording_book(caller, id).await?;
        for id in book.live_ids() {
            settled(&book, &id).await;
        }
        blocking(move || {
            let ids = book.ids().map_err(|error| unreadable(&error))?;
            let mut recordings: Vec<Recording> =
                ids.iter().filter_map(|id| describe(&book, id).ok().flatten()).collect();
            recordings
                .sort_by(|one, other| (other.started, &other.process).cmp(&(one.started, &one.process)));
            let bytes = recordings.iter().map(|recording| recording.bytes).sum();
            Ok(RecordingList { recordings, bytes })
        })
        .await
    }

    /// A recording, as the query wants it.
    pub async fn read_recording(
        &self,
        caller: &Caller,
        id: &str,
        process: &str,
        query: RecordingQuery,
    ) -> Result<RecordingStream, Problem> {
        validate::id(process)?;
        let book = self.recording_book(caller, id).await?;
        settled(&book, process).await;
        let process = process.to_owned();
        blocking(move || {
            // In this order: one that ends in between has come to its end in the file.
            let live = book.find(&process);
            let file = match file::open_to_read(&book.path(&process)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(none(&process)),
                other => other.map_err(|error| unreadable(&error))?,
            };
            let reached = file::reached(&file).map_err(|error| unreadable(&error))?;
            let reached = reached.ok_or_else(|| none(&process))?;
            let (form, at, follow) = match query {
                RecordingQuery::Cast { format: CastFormat::V3, offset, follow } => {
                    (Form::AsItIs, offset, follow)
                }
                RecordingQuery::Cast { format: CastFormat::V2, offset, follow } => {
                    (Form::v2(offset), 0, follow)
                }
                RecordingQuery::Transcript => (Form::transcript(), 0, false),
            };
            let end = match live {
                Some(live) if follow && !is_over(&reached) => End::Moving(live.reached.subscribe()),
                _ => End::Fixed(reached.bytes),
            };
            Ok(RecordingStream::new(file, at, end, form))
        })
        .await
    }

    /// Waits until so many bytes of a process's output are in its recording, for so long at most.
    pub async fn recorded_up_to(
        &self,
        caller: &Caller,
        id: &str,
        (process, written): (&str, u64),
        patience: Duration,
    ) -> Result<(), Problem> {
        let book = self.recording_book(caller, id).await?;
        let Some(live) = book.find(process) else { return Ok(()) };
        let mut reached = live.reached.subscribe();
        if reached.borrow().checkpoint.stdout < written {
            live.wait_for();
        }
        drop(live);
        let enough = async {
            while reached.borrow_and_update().checkpoint.stdout < written && reached.changed().await.is_ok() {
            }
        };
        let _ = tokio::time::timeout(patience, enough).await;
        Ok(())
    }

    /// Deletes a recording; one that is being made is not made any more.
    pub async fn delete_recording(&self, caller: &Caller, id: &str, process: &str) -> Result<(), Problem> {
        validate::id(process)?;
        let book = self.recording_book(caller, id).await?;
        let mut changes = vec![Change::Journal {
            session: id.to_owned(),
            at: Timestamp::now(),
            actor: caller.name.clone(),
            kind: "recording.deleted".into(),
            body: json!({ "process": process }),
        }];
        // Otherwise the next server would begin it anew.
        match self.process(caller, id, process).await {
            Ok(handle) => {
                handle.entry.update(|info| info.record = false);
                let doc = serde_json::to_value(handle.entry.info()).unwrap_or_default();
                let kind = PROCESS_PART.to_owned();
                changes.push(Change::PutPart { session: id.to_owned(), kind, id: handle.entry.id(), doc });
            }
            Err(problem) if problem.code == ProblemCode::NotFound => {}
            Err(problem) => return Err(problem),
        }
        self.shared.store.commit(changes).await.map_err(storage)?;
        let process = process.to_owned();
        blocking(move || book.remove(&process).map_err(|error| unreadable(&error))).await
    }

    /// Puts a marker into a recording that is being made.
    pub async fn mark_recording(
        &self,
        caller: &Caller,
        id: &str,
        process: &str,
        label: &str,
    ) -> Result<(), Problem> {
        validate::id(process)?;
        if label.len() > LONGEST_LABEL {
            return Err(Problem::invalid(
                format!("a label of {} bytes is more than {LONGEST_LABEL}", label.len()),
                "use less",
            ));
        }
        let book = self.recording_book(caller, id).await?;
        if self.shared.recordings.mark(id, process, label) {
            return Ok(());
        }
        let path = book.path(process);
        let is_there = blocking(move || Ok(path.symlink_metadata().is_ok())).await?;
        match is_there {
            true => Err(Problem::new(
                ProblemCode::WrongState,
                format!("the recording of {process} is over"),
                "a marker needs one that is being made",
            )),
            false => Err(none(process)),
        }
    }

    /// Of a session that the caller may see, once its process table is known here.
    async fn recording_book(&self, caller: &Caller, id: &str) -> Result<Arc<Book>, Problem> {
        let handle = sessions::handle(&self.shared, caller, id).await?;
        sessions::ask(&handle, id, |reply| Ask::Processes { reply }).await?;
        Ok(self.shared.recordings.book(id))
    }
}

/// Waits until a recording has begun and, of a process that has ended, until all that it wrote is in it.
async fn settled(book: &Book, id: &str) {
    let Some(live) = book.find(id) else { return };
    let (mut reached, entry) = (live.reached.subscribe(), live.entry.clone());
    // Who waits does not keep it from being over.
    drop(live);
    let is_enough = |now: &Reached| now.bytes > 0 && (entry.is_running() || is_over(now));
    let enough =
        async { while !is_enough(&reached.borrow_and_update()) && reached.changed().await.is_ok() {} };
    let _ = tokio::time::timeout(LAST_WITHIN, enough).await;
}

/// What is said of a recording; nothing of one that is gone, or has not begun.
fn describe(book: &Book, id: &str) -> io::Result<Option<Recording>> {
    let live = book.find(id);
    let file = file::open_to_read(&book.path(id))?;
    let Some(Reached { bytes, checkpoint }) = file::reached(&file)? else { return Ok(None) };
    let header = file::header(&file).map_err(io::Error::other)?;
    let state = match (checkpoint.state, live.is_some()) {
        (Standing::Ended, _) => RecordingState::Ended,
        (Standing::Cut, _) => RecordingState::Cut,
        (Standing::Recording, true) => RecordingState::Recording,
        (Standing::Recording, false) => RecordingState::Unfinished,
    };
    let seconds = i64::try_from(header.timestamp.unwrap_or(0)).unwrap_or(0);
    Ok(Some(Recording {
        process: id.to_owned(),
        kind: header.tags.first().map_or(ProcessKind::Process, |name| kind_named(name)),
        name: header.title,
        command: header.command.unwrap_or_default(),
        started: Timestamp(seconds.saturating_mul(1000)),
        state,
        duration_ms: checkpoint.micros / 1000,
        bytes,
        events: checkpoint.events,
        missing: checkpoint.missing,
        cols: checkpoint.cols,
        rows: checkpoint.rows,
    }))
}

const KINDS: [(&str, ProcessKind); 4] = [
    ("process", ProcessKind::Process),
    ("terminal", ProcessKind::Terminal),
    ("shell", ProcessKind::Shell),
    ("service", ProcessKind::Service),
];

fn kind_name(kind: ProcessKind) -> &'static str {
    KINDS.iter().find(|(_, known)| *known == kind).map_or("process", |(name, _)| name)
}

fn kind_named(name: &str) -> ProcessKind {
    KINDS.iter().find(|(known, _)| *known == name).map_or(ProcessKind::Process, |(_, kind)| *kind)
}

fn none(process: &str) -> Problem {
    Problem::new(
        ProblemCode::NotFound,
        format!("there is no recording of \"{process}\" in this session"),
        "`workroom recordings`, or `GET …/recordings`, lists those that there are; a process is recorded with `spawn --record`, or `record: true`",
    )
}
