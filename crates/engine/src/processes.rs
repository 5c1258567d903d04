//! Processes of a session, as callers use them: started, read from, written to, signalled, waited for, removed.
//!
//! ```text
//!  server ──▶ Processes ──asks──▶ actor/processes.rs ──▶ guest: starts it, reads its pipes, reaps it
//!                │ holds                │ keeps                │ appends
//!                ▼                      ▼                      ▼
//!             ProcessHandle ───────▶ entry.rs ◀── follow.rs ── output/SESSION/ID (a ring)
//! ```

pub(crate) mod entry;
mod follow;
mod input;
pub(crate) mod notes;
pub(crate) mod plan;
pub(crate) mod sizes;

pub use entry::Viewer;
pub use follow::{Followed, Follower};

use crate::actor::{Ask, Handle};
use crate::idempotency::intent;
use crate::{Engine, Permit, blocking, filters, sessions, storage, validate};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use entry::Entry;
use rustix::termios::Winsize;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use workroom_proto::{Answer, Question, Stream, ToGuest, Whom};
use workroom_types::{
    Caller, Encoding, InputTaken, OutputPage, OutputStream, Problem, ProblemCode, Process, ProcessKind,
    ProcessState, ProcessTable, PtySize, SendSignal, SignalTo, StartProcess,
};

/// The most bytes of one page of output, and what one has that says nothing of it.
pub const LARGEST_PAGE: u64 = 8 << 20;
const USUAL_PAGE: u64 = 64 << 10;

/// The longest that a read or a wait waits.
pub const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// What part of a process's output is wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct OutputQuery {
    pub stream: OutputStream,
    pub cursor: u64,
    pub max: Option<u64>,
    /// How long to wait if there is nothing yet.
    pub wait: Duration,
    pub encoding: Encoding,
}

/// The signals that may be sent, by their names.
pub const SIGNALS: [(&str, i32); 10] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
    ("WINCH", 28),
];

/// A process of a session, in the hands of a caller who may have it.
#[derive(Clone)]
pub struct ProcessHandle {
    pub(crate) session: String,
    pub(crate) handle: Handle,
    pub(crate) entry: Arc<Entry>,
    /// Who acts.
    pub(crate) actor: String,
}

impl Engine {
    /// Starts a process: known by its id, and running, when this returns.
    pub async fn start_process(
        &self,
        caller: &Caller,
        id: &str,
        request: StartProcess,
        permit: Option<&Permit>,
    ) -> Result<Process, Problem> {
        self.open_for_work()?;
        let shared = &self.shared;
        let handle = sessions::handle(shared, caller, id).await?;
        let made = permit.and_then(|permit| permit.resource.clone());
        if let Some(made) = &made {
            // By an attempt that was cut short by the server's end, if it came that far.
            match self.process(caller, id, made).await {
                Ok(process) => return Ok(process.info()),
                Err(problem) if problem.code == ProblemCode::NotFound => {}
                Err(problem) => return Err(problem),
            }
        }
        let process_id = made.map_or_else(|| plan::new_id(ProcessKind::Process), Ok)?;
        let limits = &shared.config.processes;
        let text = filters::text_of(request.command.as_deref(), request.argv.as_deref());
        shared.filter_command((id, &handle.owner), caller, &text).await?;
        let plan = plan::plan(
            request,
            ProcessKind::Process,
            process_id.clone(),
            limits,
            shared.machine,
            &caller.name,
        )?;
        if let Some(permit) = permit {
            shared.store.commit(vec![intent(permit, &process_id)]).await.map_err(storage)?;
        }
        let plan = Box::new(plan);
        let entry = sessions::ask(&handle, id, |reply| Ask::Spawn { plan, reply }).await?;
        Ok(entry.info())
    }

    /// A process of a session, by its id or, while it runs, by its number in the room.
    pub async fn process(&self, caller: &Caller, id: &str, process: &str) -> Result<ProcessHandle, Problem> {
        validate::id(process)?;
        let handle = sessions::handle(&self.shared, caller, id).await?;
        let wanted = process.to_owned();
        let entry = sessions::ask(&handle, id, |reply| Ask::Process { id: wanted, reply }).await?;
        Ok(ProcessHandle { session: id.to_owned(), handle, entry, actor: caller.name.clone() })
    }

    /// Ends a process, with everything that it started, and forgets it and its output. Removing what is gone succeeds.
    pub async fn remove_process(&self, caller: &Caller, id: &str, process: &str) -> Result<(), Problem> {
        validate::id(process)?;
        sessions::handle(&self.shared, caller, id).await?;
        let removed = async { self.process(caller, id, process).await?.remove().await };
        match removed.await {
            Err(problem) if problem.code == ProblemCode::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// The process table, the newest first, and all that is in the room.
    pub async fn processes(&self, caller: &Caller, id: &str) -> Result<ProcessTable, Problem> {
        let in_room = self.ask(caller, id, |reply| Ask::InRoom { reply }).await?;
        let entries = self.ask(caller, id, |reply| Ask::Processes { reply }).await?;
        let mut processes: Vec<Process> =
            blocking(move || Ok(entries.iter().map(|entry| entry.info()).collect())).await?;
        processes.sort_by(|one, other| (other.started, &other.id).cmp(&(one.started, &one.id)));
        Ok(ProcessTable { processes, in_room })
    }
}

impl ProcessHandle {
    pub fn info(&self) -> Process {
        self.entry.info()
    }

    /// A part of its output; waits if there is nothing yet and the query says so.
    pub async fn output(&self, query: OutputQuery) -> Result<OutputPage, Problem> {
        let most = query.max.unwrap_or(USUAL_PAGE);
        if most == 0 || most > LARGEST_PAGE {
            return Err(Problem::invalid(format!("max {most} is outside 1 to {LARGEST_PAGE}"), ""));
        }
        let until = Instant::now() + query.wait.min(LONGEST_WAIT);
        let mut changes = self.entry.changes();
        loop {
            changes.mark_unchanged();
            let runs = self.entry.is_running();
            let entry = self.entry.clone();
            let page = blocking(move || read_page(&entry, query, most, runs)).await?;
            let is_over = !page.data.is_empty() || page.end || Instant::now() >= until;
            if is_over || tokio::time::timeout_at(until, changes.changed()).await.is_err() {
                return Ok(page);
            }
        }
    }

    /// Its output from these cursors on, as it comes; `None` for a stream that is not wanted.
    pub fn follow(&self, cursors: [Option<u64>; 2]) -> Result<Follower, Problem> {
        Follower::new(&self.entry, cursors).map_err(|error| unreadable(&error))
    }

    /// Writes to it, as much as it takes in this time.
    pub async fn write(&self, data: &[u8], wait: Duration) -> Result<InputTaken, Problem> {
        let input = self.entry.input().ok_or_else(|| self.takes_no_input())?;
        let until = Instant::now() + wait.min(LONGEST_WAIT);
        match input.write(data, until).await {
            Ok(written) => Ok(InputTaken { written: written as u64, complete: written == data.len() }),
            Err(_) => Err(self.takes_no_input()),
        }
    }

    /// Tells it that there is no more input.
    pub async fn close_input(&self) -> Result<(), Problem> {
        if self.entry.info().pty.is_some() {
            return Err(Problem::invalid("a terminal's input has no end", "send it the key C-d instead"));
        }
        let Some(command) = self.entry.command() else { return Ok(()) };
        self.entry.drop_input();
        self.tell(ToGuest::CloseInput { command }).await
    }

    pub async fn signal(&self, request: SendSignal) -> Result<(), Problem> {
        let name = request.signal.to_ascii_uppercase();
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        let Some((_, signal)) = SIGNALS.iter().find(|(known, _)| *known == name) else {
            return Err(Problem::invalid(
                format!("there is no signal \"{}\" here", validate::shown(&request.signal)),
                "use HUP, INT, QUIT, TERM, KILL, USR1, USR2, WINCH, STOP or CONT",
            ));
        };
        let Some(command) = self.entry.command() else { return Err(self.has_ended()) };
        let question = match request.to {
            SignalTo::Group => Question::Signal { command, signal: *signal, whom: Whom::Group },
            SignalTo::Process => Question::Signal { command, signal: *signal, whom: Whom::Process },
            SignalTo::Tree if name == "KILL" => Question::KillTree { command },
            SignalTo::Tree => {
                return Err(Problem::invalid(
                    format!("{name} cannot be sent to a whole tree"),
                    "send KILL, or send it to the group",
                ));
            }
        };
        match self.ask_guest(question).await? {
            Answer::Done => Ok(()),
            _ => Err(self.has_ended()),
        }
    }

    pub async fn resize(&self, size: PtySize) -> Result<Process, Problem> {
        let Some(now) = self.entry.info().pty else {
            return Err(Problem::new(
                ProblemCode::WrongState,
                format!("process {} has no terminal", self.entry.id()),
                "start it with a pty",
            ));
        };
        let size = PtySize { cols: size.cols.or(Some(now.cols)), rows: size.rows.or(Some(now.rows)) };
        let size = plan::terminal_size(size)?;
        let input = self.entry.input().ok_or_else(|| self.has_ended())?;
        // What was written until now was written for the size until now.
        let written = self.settled().await;
        self.entry.sizes().change(written, size);
        let winsize = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(input.fd(), winsize).map_err(|_| self.has_ended())?;
        self.entry.update(|info| info.pty = Some(size));
        let entry = self.entry.clone();
        sessions::ask(&self.handle, &self.session, |reply| Ask::KeepProcess { entry, reply }).await?;
        Ok(self.info())
    }

    /// Bytes of stdout, with those that were still on their way.
    async fn settled(&self) -> u64 {
        if let Some(command) = self.entry.command()
            && let Ok(Answer::Settled { written }) = self.ask_guest(Question::Settle { command }).await
        {
            return written[0];
        }
        self.entry.info().stdout.written
    }

    /// Somebody attaches with a terminal to write to it.
    pub fn viewer(&self) -> Viewer {
        Viewer::of(&self.entry)
    }

    /// Waits for its end, for so long: how it is then.
    pub async fn wait(&self, wait: Duration) -> Process {
        let _ = tokio::time::timeout(wait.min(LONGEST_WAIT), self.entry.end()).await;
        self.info()
    }

    /// Ends it, with everything that it started, if it runs; then forgets it and its output.
    pub async fn remove(&self) -> Result<(), Problem> {
        if let Some(command) = self.entry.command() {
            self.ask_guest(Question::KillTree { command }).await?;
            self.entry.end().await;
        }
        let (id, actor) = (self.entry.id(), self.actor.clone());
        sessions::ask(&self.handle, &self.session, |reply| Ask::RemoveProcess { id, actor, reply }).await
    }

    pub(crate) async fn ask_guest(&self, question: Question) -> Result<Answer, Problem> {
        let asked = sessions::ask(&self.handle, &self.session, |reply| Ask::Guest { question, reply });
        Ok(asked.await?.0)
    }

    pub(crate) async fn tell(&self, message: ToGuest) -> Result<(), Problem> {
        sessions::ask(&self.handle, &self.session, |reply| Ask::TellGuest { message, reply }).await
    }

    fn has_ended(&self) -> Problem {
        Problem::new(
            ProblemCode::WrongState,
            format!("process {} has ended", self.entry.id()),
            "its record says how",
        )
    }

    fn takes_no_input(&self) -> Problem {
        let info = self.entry.info();
        if info.state != ProcessState::Running {
            return self.has_ended();
        }
        Problem::new(
            ProblemCode::WrongState,
            format!("process {} takes no input", info.id),
            "start it with `stdin: true` or with a pty; what was closed stays closed",
        )
    }
}

pub(crate) fn unreadable(error: &io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::NotFound => {
            Problem::new(ProblemCode::NotFound, "the output of this process is not kept any more", "")
        }
        _ => Problem::new(ProblemCode::Internal, format!("the output cannot be read: {error}"), ""),
    }
}

fn read_page(entry: &Entry, query: OutputQuery, most: u64, runs: bool) -> Result<OutputPage, Problem> {
    let reader = entry.reader().map_err(|error| unreadable(&error))?;
    let stream = match query.stream {
        OutputStream::Stdout => Stream::Stdout,
        OutputStream::Stderr => Stream::Stderr,
    };
    let (mut first, mut data) = (None, Vec::new());
    // A ring's end is not the output's: two pieces may be one page.
    while (data.len() as u64) < most {
        let from = first.map_or(query.cursor, |first: u64| first + data.len() as u64);
        let piece = reader
            .read(stream, from, (most - data.len() as u64) as usize)
            .map_err(|error| unreadable(&error))?;
        if piece.data.is_empty() {
            first = first.or(Some(piece.offset));
            break;
        }
        // What was overwritten meanwhile is a gap, and belongs to the next page.
        if first.is_some() && piece.offset != from {
            break;
        }
        first = first.or(Some(piece.offset));
        data.extend_from_slice(&piece.data);
    }
    let cursor = first.unwrap_or(query.cursor);
    let written = reader.written(stream).map_err(|error| unreadable(&error))?;
    if query.encoding == Encoding::Text && (runs || (data.len() as u64) < written.saturating_sub(cursor)) {
        keep_whole_characters(&mut data);
    }
    let next_cursor = cursor + data.len() as u64;
    let (text, lossy) = match query.encoding {
        Encoding::Base64 => (STANDARD.encode(&data), false),
        Encoding::Text => match String::from_utf8(data) {
            Ok(text) => (text, false),
            Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
        },
    };
    let missing = cursor.saturating_sub(query.cursor);
    Ok(OutputPage {
        stream: query.stream,
        cursor,
        next_cursor,
        missing,
        truncated: missing > 0,
        data: text,
        encoding: query.encoding,
        lossy,
        end: !runs && next_cursor >= written,
    })
}

/// Leaves a character that is cut off at the end for the next page, unless there is nothing else.
fn keep_whole_characters(data: &mut Vec<u8>) {
    if let Err(error) = str::from_utf8(data)
        && error.error_len().is_none()
        && error.valid_up_to() > 0
    {
        data.truncate(error.valid_up_to());
    }
}
