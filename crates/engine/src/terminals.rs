//! Terminals of a session: shells on PTYs that are typed into, looked at, waited for and closed. Each is a process of
//! the one table; what is special about it is here.
//!
//! ```text
//!  server ──▶ TerminalHandle ──▶ ProcessHandle: output, input, signals, size
//!                  │ looks at
//!                  ▼
//!             models.rs: the screens of those that are in use ── view.rs, wait.rs, plain.rs
//! ```

mod models;
mod plain;
mod view;
mod wait;

pub(crate) use models::Models;
pub use view::ScreenQuery;

use crate::actor::Ask;
use crate::idempotency::intent;
use crate::processes::entry::Entry;
use crate::processes::{LARGEST_PAGE, ProcessHandle, plan};
use crate::{Engine, Permit, blocking, filters, sessions, storage, validate};
use models::InUse;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use workroom_proto::Question;
use workroom_terminal::keys::{self, Entry as KeyEntry};
use workroom_terminal::{KeyError, KeyModes};
use workroom_types::{
    Caller, EndedBy, InputTaken, OpenTerminal, PlainPage, Problem, ProblemCode, Process, ProcessKind,
    ProcessState, PtySize, SendSignal, SignalTo, StartProcess, TerminalClosed, TerminalInput, TerminalKey,
    TerminalKeys, TerminalList, TerminalScreen, TerminalShell,
};

/// What every terminal's shell is told, unless its caller says otherwise: no file of the room's decides how it behaves.
const ENVIRONMENT: [(&str, &str); 4] =
    [("TERM", "xterm-256color"), ("PS1", "$ "), ("HISTFILE", ""), ("INPUTRC", "/dev/null")];

/// How long somebody who looks at a screen waits for it to be drawn. Of a ring that is full this takes seconds.
const DRAWING_PATIENCE: Duration = Duration::from_secs(20);

/// The most bytes of output that a page of plain text is made of, if nothing is said.
const USUAL_PAGE: u64 = 256 << 10;

/// The longest time that a terminal may be given to end.
const LONGEST_GRACE: Duration = Duration::from_secs(3600);

/// When a shell that was asked to end is asked again.
const ASKED_AGAIN: Duration = Duration::from_millis(300);

/// What part of a terminal's output is wanted as text.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainQuery {
    pub cursor: u64,
    /// Bytes of output, not of text.
    pub max: Option<u64>,
    /// Columns of a line, of which what is beyond is left out; 16,384 unless told.
    pub max_line: Option<usize>,
}

/// A terminal of a session, in the hands of a caller who may have it.
#[derive(Clone)]
pub struct TerminalHandle {
    process: ProcessHandle,
    models: Arc<Models>,
}

impl Engine {
    /// Opens a terminal: its shell runs when this returns.
    pub async fn open_terminal(
        &self,
        caller: &Caller,
        id: &str,
        request: OpenTerminal,
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
        let terminal_id = made.map_or_else(|| plan::new_id(ProcessKind::Terminal), Ok)?;
        let name = request.name.clone();
        if let Some(name) = &name {
            validate::terminal_name(name)?;
        }
        let kind = ProcessKind::Terminal;
        let limits = &shared.config.processes;
        let request = shell(request, shared.machine.has_bash)?;
        let text = filters::text_of(request.command.as_deref(), request.argv.as_deref());
        shared.filter_command((id, &handle.owner), caller, &text).await?;
        let mut plan = plan::plan(request, kind, terminal_id, limits, shared.machine, &caller.name)?;
        plan.memo.process.name = name;
        if let Some(permit) = permit {
            let intent = intent(permit, &plan.memo.process.id);
            shared.store.commit(vec![intent]).await.map_err(storage)?;
        }
        let plan = Box::new(plan);
        let entry = sessions::ask(&handle, id, |reply| Ask::Spawn { plan, reply }).await?;
        Ok(entry.info())
    }

    /// The terminals of a session, the newest first.
    pub async fn terminals(&self, caller: &Caller, id: &str) -> Result<TerminalList, Problem> {
        let entries = self.ask(caller, id, |reply| Ask::Processes { reply }).await?;
        blocking(move || {
            let infos = entries.iter().map(|entry| entry.info());
            let mut terminals: Vec<Process> =
                infos.filter(|info| info.kind == ProcessKind::Terminal).collect();
            terminals.sort_by(|one, other| (other.started, &other.id).cmp(&(one.started, &one.id)));
            Ok(TerminalList { terminals })
        })
        .await
    }

    /// A terminal by its id or its name: of several by that name the one that runs, else the newest. A process that was
    /// started with a PTY is one too, by its id.
    pub async fn terminal(&self, caller: &Caller, id: &str, wanted: &str) -> Result<TerminalHandle, Problem> {
        self.find_terminal(caller, id, wanted).await?.ok_or_else(|| {
            Problem::new(
                ProblemCode::NotFound,
                format!("there is no terminal \"{wanted}\" in this session"),
                "`workroom terminal ls`, or `GET …/terminals`, lists those that there are",
            )
        })
    }

    /// Ends a terminal's shell: by force if it takes longer than this. `None` of one that is not there any more.
    pub async fn close_terminal(
        &self,
        caller: &Caller,
        id: &str,
        wanted: &str,
        grace: Duration,
    ) -> Result<Option<TerminalClosed>, Problem> {
        match self.find_terminal(caller, id, wanted).await? {
            Some(terminal) => terminal.close(grace).await.map(Some),
            None => Ok(None),
        }
    }

    async fn find_terminal(
        &self,
        caller: &Caller,
        id: &str,
        wanted: &str,
    ) -> Result<Option<TerminalHandle>, Problem> {
        validate::terminal_name(wanted)?;
        let handle = sessions::handle(&self.shared, caller, id).await?;
        let entries = sessions::ask(&handle, id, |reply| Ask::Processes { reply }).await?;
        let Some(entry) = find(&entries, wanted) else { return Ok(None) };
        if entry.info().pty.is_none() {
            return Err(Problem::new(
                ProblemCode::NotFound,
                format!("process {wanted} has no terminal"),
                "`workroom terminal ls`, or `GET …/terminals`, lists those that there are",
            ));
        }
        let process = ProcessHandle { session: id.to_owned(), handle, entry, actor: caller.name.clone() };
        Ok(Some(TerminalHandle { process, models: self.shared.models.clone() }))
    }
}

fn find(entries: &[Arc<Entry>], wanted: &str) -> Option<Arc<Entry>> {
    if let Some(entry) = entries.iter().find(|entry| entry.id() == wanted) {
        return Some(entry.clone());
    }
    let infos = entries.iter().map(|entry| (entry.info(), entry));
    let named =
        infos.filter(|(info, _)| info.kind == ProcessKind::Terminal && info.name.as_deref() == Some(wanted));
    named
        .max_by_key(|(info, _)| (info.state == ProcessState::Running, info.started))
        .map(|(_, entry)| entry.clone())
}

/// The process that a terminal is.
fn shell(request: OpenTerminal, has_bash: bool) -> Result<StartProcess, Problem> {
    let usual = if has_bash { TerminalShell::Bash } else { TerminalShell::Sh };
    let argv: &[&str] = match request.shell.unwrap_or(usual) {
        TerminalShell::Bash if !has_bash => {
            return Err(Problem::invalid("there is no bash on this machine", "use the shell sh"));
        }
        TerminalShell::Bash => &["/bin/bash", "--noprofile", "--norc"],
        TerminalShell::Sh => &["/bin/sh"],
    };
    let mut env = request.env;
    for (name, value) in ENVIRONMENT {
        env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    Ok(StartProcess {
        argv: Some(argv.iter().map(|&word| word.to_owned()).collect()),
        cwd: request.cwd,
        env,
        secret_env: request.secret_env,
        redact_values: request.redact_values,
        user: request.user,
        pty: Some(PtySize { cols: request.cols, rows: request.rows }),
        record: request.record,
        keep_output: request.keep_output,
        ..StartProcess::default()
    })
}

impl TerminalHandle {
    pub fn info(&self) -> Process {
        self.process.info()
    }

    /// The process that it is.
    pub fn process(&self) -> &ProcessHandle {
        &self.process
    }

    fn entry(&self) -> &Arc<Entry> {
        &self.process.entry
    }

    /// Its screen, which is drawn from now on if it was not.
    fn model(&self) -> Result<InUse, Problem> {
        self.models.of(&self.process.session, self.entry())
    }

    /// Its screen with all on it that was written until now.
    async fn drawn_model(&self, until: Instant) -> Result<InUse, Problem> {
        let model = self.model()?;
        model.0.caught_up(self.info().stdout.written, until).await;
        Ok(model)
    }

    pub async fn screen(&self, query: ScreenQuery) -> Result<TerminalScreen, Problem> {
        let model = self.drawn_model(Instant::now() + DRAWING_PATIENCE).await?;
        let state = self.info().state;
        blocking(move || Ok(view::view(&model.0.drawn(), query, state))).await
    }

    /// What was written from a cursor on, as plain text.
    pub async fn plain(&self, query: PlainQuery) -> Result<PlainPage, Problem> {
        let most = query.max.unwrap_or(USUAL_PAGE);
        if most == 0 || most > LARGEST_PAGE {
            return Err(Problem::invalid(format!("max {most} is outside 1 to {LARGEST_PAGE}"), ""));
        }
        check_cursor(Some(query.cursor))?;
        // Who looks here first knows of every byte that was written by its end.
        let runs = self.info().state == ProcessState::Running;
        let model = self.drawn_model(Instant::now() + DRAWING_PATIENCE).await?;
        let entry = self.entry().clone();
        blocking(move || {
            let was_alternate = Box::new(move |offset| model.0.drawn().was_alternate(offset));
            let (cursor, most, max_line) = (query.cursor, most as usize, query.max_line);
            plain::page(&entry, plain::From { cursor, most, max_line, runs, was_alternate })
        })
        .await
    }

    /// Types: text, keys or pasted text; as much as is taken in this time.
    pub async fn input(&self, request: TerminalInput, wait: Duration) -> Result<InputTaken, Problem> {
        // Before anything is typed: what a program asks its terminal because of it is answered.
        let model = self.model()?;
        let bytes = match request {
            TerminalInput { text: Some(mut text), enter, keys: None, paste: None } => {
                if enter != Some(false) {
                    text.push('\r');
                }
                text.into_bytes()
            }
            TerminalInput { text: None, enter: None, keys: Some(keys), paste: None } => {
                let entries = match keys {
                    TerminalKeys::One(key) => vec![KeyEntry::Key(key)],
                    TerminalKeys::Many(keys) => keys.into_iter().map(key_entry).collect(),
                };
                let modes = self.key_modes(&model).await?;
                keys::entries(&entries, modes)
                    .map_err(|error| Problem::invalid(error.to_string(), hint(&error)))?
            }
            TerminalInput { text: None, enter: None, keys: None, paste: Some(text) } => {
                keys::paste(&text, self.key_modes(&model).await?)
            }
            _ => {
                return Err(Problem::invalid(
                    "the input is not one of text, keys and paste",
                    "send one of them; enter goes with text",
                ));
            }
        };
        if bytes.len() > keys::MAX_BYTES {
            let detail =
                format!("{} bytes are more than can be typed at once ({})", bytes.len(), keys::MAX_BYTES);
            return Err(Problem::invalid(detail, "write them to a file of the session instead"));
        }
        self.process.write(&bytes, wait).await
    }

    async fn key_modes(&self, model: &InUse) -> Result<KeyModes, Problem> {
        model.0.caught_up(self.info().stdout.written, Instant::now() + DRAWING_PATIENCE).await;
        let model = model.0.clone();
        blocking(move || Ok(model.drawn().screen.key_modes())).await
    }

    /// Ends its shell: asks it to, waits for so long, and kills it with everything that it started. What has left the
    /// shell by then, and was not asked, goes on.
    pub async fn close(&self, grace: Duration) -> Result<TerminalClosed, Problem> {
        if grace > LONGEST_GRACE {
            return Err(Problem::invalid(
                format!("grace_ms {} is more than {}", grace.as_millis(), LONGEST_GRACE.as_millis()),
                "",
            ));
        }
        let Some(command) = self.entry().command() else {
            return Ok(TerminalClosed { ended_by: EndedBy::Itself, process: self.info() });
        };
        // A shell that is asked while it begins may miss it, and is asked once more.
        let first = ASKED_AGAIN.min(grace / 2);
        for patience in [first, grace - first] {
            self.ask_to_end().await?;
            let process = self.process.wait(patience).await;
            if process.state != ProcessState::Running {
                return Ok(TerminalClosed { ended_by: EndedBy::Hup, process });
            }
        }
        self.process.ask_guest(Question::KillTree { command }).await?;
        let process = self.process.wait(LONGEST_GRACE).await;
        Ok(TerminalClosed { ended_by: EndedBy::Kill, process })
    }
}

impl TerminalHandle {
    /// One that is stopped hears of it only when it goes on.
    async fn ask_to_end(&self) -> Result<(), Problem> {
        for signal in ["HUP", "CONT"] {
            let asked = self.process.signal(SendSignal { signal: signal.to_owned(), to: SignalTo::Group });
            match asked.await {
                Err(problem) if problem.code != ProblemCode::WrongState => return Err(problem),
                _ => {}
            }
        }
        Ok(())
    }
}

/// No output is as long as this; what is beyond is a mistake.
fn check_cursor(cursor: Option<u64>) -> Result<(), Problem> {
    match cursor.filter(|cursor| i64::try_from(*cursor).is_err()) {
        Some(cursor) => Err(Problem::invalid(
            format!("cursor {cursor} is no place in any output"),
            "take next_cursor of what was read before",
        )),
        None => Ok(()),
    }
}

fn key_entry(key: TerminalKey) -> KeyEntry {
    match key {
        TerminalKey::Key(name) => KeyEntry::Key(name),
        TerminalKey::Text { text } => KeyEntry::Text { text },
        TerminalKey::Paste { paste } => KeyEntry::Paste { paste },
    }
}

fn hint(error: &KeyError) -> &'static str {
    match error {
        KeyError::Unknown { .. } | KeyError::NoBytes { .. } => {
            "keys are written like Enter, C-c, M-x, Up, F5; single characters are keys too"
        }
        KeyError::TooMuch { .. } => "",
    }
}
