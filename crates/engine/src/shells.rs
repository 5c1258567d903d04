//! Stateful shells of a session: made, found, given commands, replaced when they have ended, removed.
//!
//! ```text
//!  server ──▶ Engine::run_in_shell ──▶ line.rs: one command after the other ──▶ run.rs: one command
//!                  │ has ended: a new process under the same id                      │
//!                  ▼                                                                 ▼
//!             processes: an entry of kind `shell`, with a channel           driver.rs: what is said on it
//! ```
//!
//! Which shells a session has is recorded, with what each is made from: so one that ended with its room, or by a
//! command, is made again for the next command.

mod driver;
mod line;
mod run;

use crate::actor::{Ask, CallSecrets, Handle};
use crate::idempotency::intent;
use crate::processes::entry::Entry;
use crate::processes::plan;
use crate::room::gone;
use crate::secrets::redactors::{clean_text, refuse_secrets};
use crate::secrets::resolve::{self, compile};
use crate::shared::Shared;
use crate::state_dir::random_u32;
use crate::{Engine, Permit, policy, sessions, storage, validate};
use line::{Line, ShellRecord, Wire};
use run::{Begun, RunPlan};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use workroom_proto::RunStage;
use workroom_store::Change;
use workroom_types::{
    Caller, CreateShell, Problem, ProblemCode, ProcessKind, RunInShell, SessionState, Shell, ShellKind,
    ShellList, ShellResult, ShellState, StartProcess, Timestamp,
};

/// As much of a command as a recording's marker shows.
const MOST_LABEL: usize = 200;

/// What kind of part of a session a shell's record is, in the store.
const PART: &str = "shell";

/// The shell that is made when somebody first has a command for it.
const DEFAULT: &str = "default";

/// Shells of one session.
const MOST_SHELLS: usize = 256;

/// As much of a command as a journal keeps.
const MOST_TEXT: usize = 4096;

/// A longer command is a file.
const LONGEST_COMMAND: usize = 4 << 20;

/// The shells of all sessions in use.
#[derive(Default)]
pub(crate) struct Shells {
    books: Mutex<HashMap<String, Arc<Book>>>,
}

/// The shells of one session.
#[derive(Default)]
struct Book {
    is_read: tokio::sync::OnceCell<()>,
    lines: Mutex<HashMap<String, Arc<Line>>>,
    /// Held by whoever makes one: two of a name are not.
    making: tokio::sync::Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shells {
    /// Whether a shell of a session is at a command.
    pub(crate) fn at_work(&self, session: &str) -> bool {
        let book = lock(&self.books).get(session).cloned();
        book.is_some_and(|book| lock(&book.lines).values().any(|line| line.is_busy()))
    }

    /// Nobody uses the session any more; the store has what is to be known.
    pub(crate) fn forget(&self, session: &str) {
        lock(&self.books).remove(session);
    }

    async fn book(&self, shared: &Shared, session: &str) -> Result<Arc<Book>, Problem> {
        let book = lock(&self.books).entry(session.to_owned()).or_default().clone();
        book.is_read
            .get_or_try_init(async || {
                let parts = shared.store.parts(session, PART).await.map_err(storage)?;
                let mut lines = lock(&book.lines);
                for (id, doc) in parts {
                    match serde_json::from_value::<ShellRecord>(doc) {
                        Ok(record) => drop(lines.insert(id, Line::new(record))),
                        Err(error) => tracing::warn!(session, id, %error, "a shell's record cannot be read"),
                    }
                }
                Ok::<_, Problem>(())
            })
            .await?;
        Ok(book)
    }
}

impl Book {
    /// By its id or its name.
    fn find(&self, shell: &str) -> Option<Arc<Line>> {
        let lines = lock(&self.lines);
        let is_it = |line: &&Arc<Line>| line.record.name.as_deref() == Some(shell);
        lines.get(shell).or_else(|| lines.values().find(is_it)).cloned()
    }
}

fn no_shell(shell: &str) -> Problem {
    Problem::new(
        ProblemCode::NotFound,
        format!("there is no shell \"{shell}\" in this session"),
        "`workroom sh --list`, or `GET …/shells`, lists those that there are; the one named \"default\" is made by its first command",
    )
}

/// A shell of a session, in the hands of a caller who may have it.
struct Found<'e> {
    shared: &'e Arc<Shared>,
    session: &'e str,
    handle: Handle,
    /// Who acts.
    actor: &'e str,
}

impl Engine {
    /// Makes a shell: it runs when this returns.
    pub async fn create_shell(
        &self,
        caller: &Caller,
        id: &str,
        request: CreateShell,
        permit: Option<&Permit>,
    ) -> Result<Shell, Problem> {
        self.open_for_work()?;
        let found = self.found(caller, id).await?;
        let book = self.shared.shells.book(&self.shared, id).await?;
        let made = permit.and_then(|permit| permit.resource.clone());
        if let Some(line) = made.as_deref().and_then(|made| book.find(made)) {
            // By an attempt that was cut short by the server's end.
            return found.shown(&line).await;
        }
        let line = found.make(&book, request, made, permit).await?;
        found.shown(&line).await
    }

    pub async fn shells(&self, caller: &Caller, id: &str) -> Result<ShellList, Problem> {
        let found = self.found(caller, id).await?;
        let book = self.shared.shells.book(&self.shared, id).await?;
        let lines: Vec<Arc<Line>> = lock(&book.lines).values().cloned().collect();
        let mut shells = Vec::with_capacity(lines.len());
        for line in lines {
            shells.push(found.shown(&line).await?);
        }
        shells.sort_by(|one, other| (other.started, &other.id).cmp(&(one.started, &one.id)));
        Ok(ShellList { shells })
    }

    pub async fn shell(&self, caller: &Caller, id: &str, shell: &str) -> Result<Shell, Problem> {
        validate::id(shell)?;
        let found = self.found(caller, id).await?;
        let book = self.shared.shells.book(&self.shared, id).await?;
        let line = book.find(shell).ok_or_else(|| no_shell(shell))?;
        found.shown(&line).await
    }

    /// Ends a shell, with everything that was started in it, and forgets it. Removing what is gone succeeds.
    pub async fn remove_shell(&self, caller: &Caller, id: &str, shell: &str) -> Result<(), Problem> {
        validate::id(shell)?;
        let found = self.found(caller, id).await?;
        let book = self.shared.shells.book(&self.shared, id).await?;
        let Some(line) = book.find(shell) else { return Ok(()) };
        let shell = line.record.id.clone();
        // First: nobody makes it again.
        lock(&book.lines).remove(&shell);
        found.drop_record(&shell).await?;
        self.remove_process(caller, id, &shell).await
    }

    /// Gives a shell a command and waits for its end. A shell that has ended is made again first.
    pub async fn run_in_shell(
        &self,
        caller: &Caller,
        id: &str,
        shell: &str,
        request: RunInShell,
        permit: Option<&Permit>,
    ) -> Result<ShellResult, Problem> {
        self.open_for_work()?;
        validate::id(shell)?;
        let text = request.command.clone();
        let mut plan = self.run_plan(request)?;
        let found = self.found(caller, id).await?;
        let book = self.shared.shells.book(&self.shared, id).await?;
        let line = match book.find(shell) {
            Some(line) => line,
            None if shell == DEFAULT => {
                let request = CreateShell { name: Some(DEFAULT.to_owned()), ..CreateShell::default() };
                match found.make(&book, request, None, None).await {
                    // Somebody else was first.
                    Err(problem) if problem.code == ProblemCode::AlreadyExists => {
                        book.find(DEFAULT).ok_or(problem)?
                    }
                    made => made?,
                }
            }
            None => return Err(no_shell(shell)),
        };
        if let Some(mark) = permit.and_then(|permit| permit.resource.as_deref()) {
            plan.mark = mark.parse().unwrap_or(0);
            return found.take_up(&line, &plan).await;
        }
        self.shared.filter_command((id, &found.handle.owner), caller, &text).await?;
        if let Some(permit) = permit {
            // Recorded before it has an effect: a repetition after a crash must not run it twice.
            let intent = intent(permit, &plan.mark.to_string());
            self.shared.store.commit(vec![intent]).await.map_err(storage)?;
        }
        found.run(&line, &plan).await
    }

    async fn found<'e>(&'e self, caller: &'e Caller, id: &'e str) -> Result<Found<'e>, Problem> {
        let handle = sessions::handle(&self.shared, caller, id).await?;
        Ok(Found { shared: &self.shared, session: id, handle, actor: &caller.name })
    }

    fn run_plan(&self, request: RunInShell) -> Result<RunPlan, Problem> {
        let defaults = &self.shared.config.exec;
        if request.command.contains('\0') {
            return Err(Problem::invalid("a command cannot contain a NUL character", ""));
        }
        if request.command.len() > LONGEST_COMMAND {
            return Err(Problem::invalid(
                format!("a command of {} bytes is more than {LONGEST_COMMAND}", request.command.len()),
                "write it to a file, and let the command read that",
            ));
        }
        let timeout = request.timeout_ms.map_or(defaults.timeout, Duration::from_millis);
        let longest = defaults.longest_timeout;
        if timeout.is_zero() || timeout > longest {
            return Err(Problem::invalid(
                format!("timeout_ms {} is outside 1 to {}", timeout.as_millis(), longest.as_millis()),
                "",
            ));
        }
        let max_output = request.max_output.unwrap_or(defaults.output);
        if max_output > defaults.largest_output {
            return Err(Problem::invalid(
                format!("max_output {max_output} is more than {}", defaults.largest_output),
                "read the output of the shell's process by cursor instead",
            ));
        }
        let encoding = request.encoding.unwrap_or_default();
        let CallSecrets { redact, .. } =
            CallSecrets::new(BTreeMap::new(), &BTreeMap::new(), request.redact_values)?;
        let redactor = compile(resolve::values(&redact).iter());
        let mark = new_mark()?;
        Ok(RunPlan { command: request.command, timeout, max_output, encoding, redact, redactor, mark })
    }
}

/// A number that no other command of the shell has, whichever server gave it.
fn new_mark() -> Result<u64, Problem> {
    let no_randomness =
        |error| Problem::new(ProblemCode::Internal, format!("this machine gives no randomness: {error}"), "");
    let (high, low) = (random_u32().map_err(no_randomness)?, random_u32().map_err(no_randomness)?);
    Ok(u64::from(high) << 32 | u64::from(low))
}

impl Found<'_> {
    async fn make(
        &self,
        book: &Book,
        request: CreateShell,
        made: Option<String>,
        permit: Option<&Permit>,
    ) -> Result<Arc<Line>, Problem> {
        if let Some(name) = &request.name {
            validate::id(name)?;
        }
        let machine = self.shared.machine;
        let shell = request.shell.unwrap_or(if machine.has_bash { ShellKind::Bash } else { ShellKind::Sh });
        if shell == ShellKind::Bash && !machine.has_bash {
            return Err(Problem::invalid("there is no bash in the room", "leave `shell` out, or say sh"));
        }
        let _making = book.making.lock().await;
        if let Some(name) = request.name.as_ref().filter(|name| book.find(name).is_some()) {
            return Err(Problem::new(
                ProblemCode::AlreadyExists,
                format!("there is a shell by the name \"{name}\" already"),
                "give it commands, remove it, or choose another name",
            ));
        }
        if lock(&book.lines).len() >= MOST_SHELLS {
            let detail = format!("the session has {MOST_SHELLS} shells, which is the most");
            return Err(Problem::limit("shells", detail, "remove one"));
        }
        let id = made.map_or_else(|| plan::new_id(ProcessKind::Shell), Ok)?;
        let CreateShell { cwd, env, secret_env, user, name, record, .. } = request;
        let record = ShellRecord { id: id.clone(), name, shell, cwd, env, secret_env, user, record };
        let line = Line::new(record);
        if let Some(permit) = permit {
            self.shared.store.commit(vec![intent(permit, &id)]).await.map_err(storage)?;
        }
        if policy::effective(self.shared, &self.handle.session()).secrets.is_some() {
            // With a room it is known what must not be in a record, which is kept.
            let actor = self.actor.to_owned();
            sessions::ask(&self.handle, self.session, |reply| Ask::RoomForServices { actor, reply }).await?;
        }
        refuse_secrets(&self.handle.redactor.get(), &line.record.env, "the shell's environment")?;
        self.start(&line).await?;
        let change = Change::PutPart {
            session: self.session.to_owned(),
            kind: PART.to_owned(),
            id: id.clone(),
            doc: serde_json::to_value(&line.record).unwrap_or_default(),
        };
        self.shared.store.commit(vec![change]).await.map_err(storage)?;
        lock(&book.lines).insert(id, line.clone());
        Ok(line)
    }

    /// A process for a shell, which runs when this returns.
    async fn start(&self, line: &Line) -> Result<Arc<Wire>, Problem> {
        let ShellRecord { id, name, shell, cwd, env, secret_env, user, record } = line.record.clone();
        let request = StartProcess {
            argv: Some(driver::argv(shell)),
            cwd,
            env,
            secret_env,
            user,
            record,
            ..StartProcess::default()
        };
        let limits = &self.shared.config.processes;
        let machine = self.shared.machine;
        let mut plan = plan::plan(request, ProcessKind::Shell, id, limits, machine, self.actor)?;
        plan.channel = true;
        plan.memo.process.name = name;
        plan.memo.process.command = shell.name().to_owned();
        let plan = Box::new(plan);
        let entry = sessions::ask(&self.handle, self.session, |reply| Ask::Spawn { plan, reply }).await?;
        line.set_cwd(None);
        line.connect(entry).map_err(|_| gone("the shell ended as soon as it began"))
    }

    /// The shell's process, as the session's owner has it.
    async fn entry(&self, id: &str) -> Result<Option<Arc<Entry>>, Problem> {
        let id = id.to_owned();
        match sessions::ask(&self.handle, self.session, |reply| Ask::Process { id, reply }).await {
            Ok(entry) => Ok(Some(entry)),
            Err(problem) if problem.code == ProblemCode::NotFound => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// The way to a shell that runs.
    async fn wire(&self, line: &Line) -> Result<Result<Arc<Wire>, String>, Problem> {
        if let Some(wire) = line.wire() {
            return Ok(Ok(wire));
        }
        let Some(entry) = self.entry(&line.record.id).await? else {
            return Ok(Err("the shell was removed from the process table".to_owned()));
        };
        if !entry.is_running() {
            return Ok(Err(run::reason(&entry, RunStage::Running)));
        }
        Ok(line.connect(entry).map_err(|_| "the shell has no channel any more".to_owned()))
    }

    async fn run(&self, line: &Line, plan: &RunPlan) -> Result<ShellResult, Problem> {
        let _turn = line.turn().await?;
        if self.handle.session().state == SessionState::Paused {
            let problem = Problem::wrong_state(SessionState::Paused, "worked in");
            return Err(Problem { hint: "resume it first".into(), ..problem });
        }
        let place = (&self.handle, self.session);
        let mut replaced = None;
        let wire = loop {
            let wire = match self.wire(line).await? {
                Ok(wire) => wire,
                Err(reason) if replaced.is_none() => {
                    replaced = Some(reason);
                    self.start(line).await?
                }
                Err(reason) => return Err(gone(&reason)),
            };
            self.hide(&wire, plan).await?;
            match run::begin(place, &wire, plan).await? {
                Begun::Yes => break wire,
                Begun::Ended => {}
            }
        };
        self.mark_recording(&wire, plan);
        run::give(line, &wire, plan).await;
        let mut result = run::finish(place, (line, &wire), plan).await?;
        if let Some(reason) = replaced {
            result.shell.replaced = true;
            result.shell.reason.get_or_insert(reason);
        }
        self.journal(line, plan, &result).await;
        Ok(result)
    }

    /// Has the guest look for what the call names, from now on.
    async fn hide(&self, wire: &Wire, plan: &RunPlan) -> Result<(), Problem> {
        let Some(command) = wire.entry.command().filter(|_| !plan.redact.is_empty()) else { return Ok(()) };
        let values = plan.redact.clone();
        sessions::ask(&self.handle, self.session, |reply| Ask::Hide { command, values, reply }).await
    }

    /// Waits for a command that a server before this one has given.
    async fn take_up(&self, line: &Line, plan: &RunPlan) -> Result<ShellResult, Problem> {
        let place = (&self.handle, self.session);
        let _turn = line.turn().await?;
        if let Ok(wire) = self.wire(line).await?
            && run::is_underway(place, &wire, plan.mark).await?
        {
            let result = run::finish(place, (line, &wire), plan).await?;
            self.journal(line, plan, &result).await;
            return Ok(result);
        }
        Err(Problem::new(
            ProblemCode::OutcomeUnknown,
            "the server ended while this command ran, and what became of it is not known",
            "look at what the command left, then run it again under another key",
        ))
    }

    /// Redacted first and shortened then: of a secret that was cut through nothing is known.
    fn clean(&self, plan: &RunPlan) -> String {
        let mut text = plan.command.clone();
        clean_text(&self.handle.redactor.get(), &mut text);
        clean_text(&plan.redactor, &mut text);
        text
    }

    /// Tells the shell's recording, if there is one, that a command begins.
    fn mark_recording(&self, wire: &Wire, plan: &RunPlan) {
        let label: String = self.clean(plan).chars().take(MOST_LABEL).collect();
        self.shared.recordings.mark(self.session, &wire.entry.id(), &label);
    }

    async fn journal(&self, line: &Line, plan: &RunPlan, result: &ShellResult) {
        let command = self.clean(plan);
        let end = command.floor_char_boundary(MOST_TEXT);
        let body = json!({
            "shell": line.record.id,
            "name": line.record.name,
            "command": command[..end],
            "exit_code": result.exit_code,
            "timed_out": result.timed_out,
            "ended": result.shell.ended,
            "replaced": result.shell.replaced,
            "duration_ms": result.duration_ms,
            "stdout_bytes": result.stdout_bytes,
            "stderr_bytes": result.stderr_bytes,
        });
        let change = Change::Journal {
            session: self.session.to_owned(),
            at: Timestamp::now(),
            actor: self.actor.to_owned(),
            kind: "shell.ran".to_owned(),
            body,
        };
        self.shared.store.note(change).await;
    }

    async fn drop_record(&self, shell: &str) -> Result<(), Problem> {
        let (session, kind) = (self.session.to_owned(), PART.to_owned());
        let change = Change::DropPart { session, kind, id: shell.to_owned() };
        self.shared.store.commit(vec![change]).await.map_err(storage)?;
        Ok(())
    }

    async fn shown(&self, line: &Line) -> Result<Shell, Problem> {
        let record = &line.record;
        let process = self.entry(&record.id).await?.map(|entry| (entry.is_running(), entry.info()));
        let (runs, process) = process.unwrap_or_default();
        let state = match (runs, line.is_busy()) {
            (false, _) => ShellState::Ended,
            (true, true) => ShellState::Busy,
            (true, false) => ShellState::Ready,
        };
        Ok(Shell {
            id: record.id.clone(),
            name: record.name.clone(),
            shell: record.shell,
            state,
            cwd: line.cwd().unwrap_or(process.cwd),
            user: process.user,
            pid: process.pid,
            started: process.started,
            exit: process.exit,
            reason: process.reason,
            record: process.record,
        })
    }
}
