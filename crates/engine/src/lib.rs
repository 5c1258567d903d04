//! The domain: sessions, each owned by one actor, over a durable store and a spawner of rooms.
//!
//! ```text
//!  Engine ──asks──▶ actor.rs (one task for each session in use) ──▶ room.rs ──▶ guest
//!     │                │ admission.rs: who may have a room
//!     │                │ exec.rs: a command, from request to answer; files.rs: file work
//!     ▼                ▼
//!  sessions.rs, access.rs, events.rs, idempotency.rs, private_files.rs ──▶ store
//!  reconcile.rs: what is there agrees with what is recorded
//! ```
#![forbid(unsafe_code)]

mod access;
mod actor;
mod admission;
mod bell;
mod clock;
mod config;
mod disk;
mod events;
mod exec;
mod files;
mod filters;
mod idempotency;
mod layers;
mod metrics;
mod mounts;
mod network;
mod operator;
mod past;
mod pipes;
mod policy;
mod pools;
mod ports;
mod private_files;
mod processes;
mod reconcile;
mod recordings;
mod room;
mod secrets;
mod services;
mod sessions;
mod shared;
mod shells;
mod spawner;
mod state_dir;
mod stream;
mod terminals;
mod transfer;
mod usage;
mod validate;
mod workers;

pub use transfer::SessionExport;

pub use config::{
    EngineConfig, ExecDefaults, NetworkSettings, PortLimits, ProcessLimits, Quotas, RecordWhat,
    RecordingLimits, StayAwake,
};
pub use files::archives::Export;
pub use files::contents::Source;
pub use files::{Files, Written};
pub use metrics::Metrics;
pub use operator::read_trusted;
pub use policy::policy_from_toml;
pub use pools::{PoolNumbers, Spread};
pub use ports::{Cut, PortHandle, RoomConnection};
pub use processes::{
    Followed, Follower, LARGEST_PAGE, LONGEST_WAIT, OutputQuery, ProcessHandle, SIGNALS, Viewer,
};
pub use recordings::{RecordingQuery, RecordingStream};
pub use secrets::{Whose, redact_log};
pub use services::LogQuery;
pub use terminals::{PlainQuery, ScreenQuery, TerminalHandle};
pub use usage::Totals;
pub use workroom_proto::NewFile;
pub use workroom_vault::KeySource;

use crate::access::Access;
use crate::actor::Ask;
use crate::events::Which;
use crate::idempotency::{Held, intent};
use crate::operator::Operator;
use crate::shared::Shared;
use crate::spawner::Spawners;
use crate::state_dir::StateDir;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use workroom_room::Spawner;
use workroom_store::{Change, Outcome, Store, StoreError};
use workroom_types::{
    AppendEvent, Caller, Capabilities, CreateSession, ExecRequest, ExecResult, JournalEntry, JournalPage,
    ListSessions, Policy, PolicyView, Problem, ProblemCode, ResolveSession, Resolved, ServerPolicy, Session,
    SessionPage, Timestamp, UpdateSession,
};

/// The server's one way to everything below it. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// What is wanted of a session's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Start,
    Stop,
    Pause,
    Resume,
}

impl Verb {
    /// What a session cannot be that is in the wrong state for it.
    fn participle(self) -> &'static str {
        match self {
            Verb::Start => "started",
            Verb::Stop => "stopped",
            Verb::Pause => "paused",
            Verb::Resume => "resumed",
        }
    }
}

/// A request's idempotency key, as the store remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct IdempotencyKey {
    /// Whose key it is: the caller's name.
    pub scope: String,
    pub key: String,
    /// Of method, path and body.
    pub fingerprint: String,
}

/// An answer as it was given the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    pub status: u16,
    pub content_type: String,
    pub body: Vec<u8>,
}

/// What is to be done under an idempotency key.
pub enum Attempt {
    /// It was done: this was the answer.
    Replay(StoredAnswer),
    /// It is ours to do; until the permit is finished or dropped, others under the same key wait.
    Ours(Permit),
}

/// The right to act under an idempotency key. Pass it to the call that it is for, then to [`Engine::finish`].
pub struct Permit {
    pub key: IdempotencyKey,
    /// What an earlier attempt, cut short by the server's end, had made or begun to make.
    pub resource: Option<String>,
    _held: Held,
}

/// What comes out of a command under way.
pub enum ExecEvent {
    Stdout {
        offset: u64,
        data: Vec<u8>,
        missing: u64,
    },
    Stderr {
        offset: u64,
        data: Vec<u8>,
        missing: u64,
    },
    /// The last event.
    Exit(Box<ExecResult>),
    /// The last event.
    Failed(Problem),
}

/// The most entries in one page of a journal.
const MOST_ENTRIES: u32 = 1000;

/// The most bytes of an appended event.
const LARGEST_EVENT: usize = 256 << 10;

fn storage(error: StoreError) -> Problem {
    Problem::new(ProblemCode::StorageUnavailable, error.to_string(), "").retry_after(1)
}

impl Engine {
    /// Opens the state directory, takes up the rooms that an earlier server left, and is ready. No room reaches the server at
    /// `listeners`, whatever its policy says.
    pub async fn open(
        config: EngineConfig,
        listeners: Vec<SocketAddr>,
        spawner: Spawner,
    ) -> Result<Engine, Problem> {
        validate::policy(&config.policy)?;
        let state = StateDir::open(&config.state)?;
        let store = Store::open(state.root()).await.map_err(storage)?;
        let access = Access::open(&store, state.root()).await?;
        let spawners = Spawners::new(spawner).map_err(|error| {
            Problem::new(ProblemCode::RoomSetup, format!("the spawner cannot be used: {error}"), "")
        })?;
        let policy_file = config.policy_file.clone().unwrap_or_else(|| config.state.join("policy.toml"));
        let operator = Operator::open(policy_file, config.policy.clone())?;
        let shared = Arc::new(Shared::new(config, listeners, state, store, spawners, access, operator));
        tokio::spawn(reconcile::empty_trash(shared.clone()));
        reconcile::at_start(&shared).await?;
        ports::at_start(&shared).await?;
        shared.protect_listeners().await;
        pools::at_start(&shared).await?;
        tokio::spawn(reconcile::run(shared.clone()));
        let for_secrets = shared.clone();
        tokio::spawn(async move {
            // Not waited for: where the key comes from may be slow.
            if let Err(problem) = for_secrets.safe.finish_rotation(&for_secrets.store).await {
                tracing::warn!(%problem, "whether a rotation of the master key is to be finished is not known");
            }
        });
        Ok(Engine { shared })
    }

    /// Who a bearer token stands for; `None` for one that is not known, expired or revoked.
    pub fn authenticate(&self, token: &str) -> Option<Caller> {
        self.shared.access.authenticate(token)
    }

    /// Who a process of this machine stands for, on the unix socket.
    pub fn local_caller(&self, uid: u32) -> Caller {
        self.shared.access.local_caller(uid)
    }

    /// Decides what a request under a key is: the first of its kind, or a repetition.
    pub async fn begin(&self, key: IdempotencyKey) -> Result<Attempt, Problem> {
        idempotency::begin(&self.shared, key).await
    }

    /// Remembers the answer, durably, before it is given.
    pub async fn finish(&self, permit: Permit, answer: StoredAnswer) -> Result<(), Problem> {
        idempotency::finish(&self.shared, permit, answer).await
    }

    /// Gives the permit back after a failure that is not remembered. What was refused before anything was done
    /// can be tried again under its key.
    pub async fn withdraw(&self, permit: Permit, problem: &Problem) {
        idempotency::withdraw(&self.shared, permit, problem).await;
    }

    /// For work of many parts: it is begun once, and whoever asks again after a server's end is told that nobody knows how
    /// far it came.
    pub async fn begin_once(&self, permit: Option<&Permit>, what: &str) -> Result<(), Problem> {
        self.open_for_work()?;
        let Some(permit) = permit else { return Ok(()) };
        if permit.resource.is_some() {
            return Err(Problem::new(
                ProblemCode::OutcomeUnknown,
                "the server ended while it was at this",
                "look at what is there, then ask again under another key",
            ));
        }
        self.shared.store.commit(vec![intent(permit, what)]).await.map_err(storage)?;
        Ok(())
    }

    /// The session, and whether it was made now (201) or there already under its key (200). `wait`: how long to
    /// queue when a quota is reached; without, that is refused at once.
    pub async fn create(
        &self,
        caller: &Caller,
        request: CreateSession,
        wait: Option<Duration>,
        permit: Option<&Permit>,
    ) -> Result<(Session, bool), Problem> {
        self.open_for_work()?;
        sessions::create(&self.shared, caller, request, None, wait, permit).await
    }

    pub async fn resolve(
        &self,
        caller: &Caller,
        request: ResolveSession,
        permit: Option<&Permit>,
    ) -> Result<Resolved, Problem> {
        self.open_for_work()?;
        sessions::resolve(&self.shared, caller, request, permit).await
    }

    pub async fn get(&self, caller: &Caller, id: &str) -> Result<Session, Problem> {
        sessions::get(&self.shared, caller, id).await
    }

    pub async fn list(&self, caller: &Caller, filter: ListSessions) -> Result<SessionPage, Problem> {
        sessions::list(&self.shared, caller, filter).await
    }

    pub async fn update(&self, caller: &Caller, id: &str, change: UpdateSession) -> Result<Session, Problem> {
        let actor = caller.name.clone();
        mounts::check_change(caller, &sessions::get(&self.shared, caller, id).await?, &change)?;
        self.ask(caller, id, |reply| Ask::Update { change: Box::new(change), known: None, actor, reply })
            .await
    }

    /// What a session may see, reach, use and know.
    pub async fn policy(&self, caller: &Caller, id: &str) -> Result<PolicyView, Problem> {
        self.ask(caller, id, |reply| Ask::Policy { reply }).await
    }

    /// A new policy document. `known`: the version that it replaces, if it is to replace no other.
    pub async fn set_policy(
        &self,
        caller: &Caller,
        id: &str,
        policy: Policy,
        known: Option<u64>,
    ) -> Result<PolicyView, Problem> {
        let actor = caller.name.clone();
        let change = Box::new(UpdateSession { policy: Some(policy), ..UpdateSession::default() });
        mounts::check_change(caller, &sessions::get(&self.shared, caller, id).await?, &change)?;
        self.ask(caller, id, |reply| Ask::Update { change, known, actor, reply }).await?;
        self.policy(caller, id).await
    }

    /// What this caller's sessions are given, and may have.
    pub fn server_policy(&self, caller: &Caller) -> ServerPolicy {
        policy::server_policy(&self.shared, caller.owner(), caller.is_admin())
    }

    /// Deleting what this caller deleted before succeeds again.
    pub async fn delete(&self, caller: &Caller, id: &str) -> Result<(), Problem> {
        let actor = caller.name.clone();
        let deleted = self.ask(caller, id, |reply| Ask::Delete { actor, reply }).await;
        match deleted {
            Err(problem) if problem.code == ProblemCode::NotFound => {
                if sessions::was_deleted(&self.shared, caller, id).await? { Ok(()) } else { Err(problem) }
            }
            other => other,
        }
    }

    pub async fn act(
        &self,
        caller: &Caller,
        id: &str,
        verb: Verb,
        wait: Option<Duration>,
    ) -> Result<Session, Problem> {
        self.open_for_work()?;
        let handle = sessions::handle(&self.shared, caller, id).await?;
        let place = match (verb, wait) {
            (Verb::Start, Some(wait)) if !handle.session().state.is_live() => {
                Some(self.shared.admission.enter_within(&handle.owner, wait).await?)
            }
            _ => None,
        };
        let actor = caller.name.clone();
        sessions::ask(&handle, id, |reply| Ask::Act { verb, place, actor, reply }).await
    }

    pub async fn exec(
        &self,
        caller: &Caller,
        id: &str,
        request: ExecRequest,
        permit: Option<&Permit>,
    ) -> Result<ExecResult, Problem> {
        self.open_for_work()?;
        let shared = &self.shared;
        let handle = sessions::handle(shared, caller, id).await?;
        let text = filters::text_of(request.command.as_deref(), request.argv.as_deref());
        let mut plan = exec::plan(request, &shared.config.exec, shared.machine, &caller.name, false)?;
        if let Some(permit) = permit {
            let key = permit.key.clone();
            if permit.resource.is_some() {
                let (end, memo) = sessions::ask(&handle, id, |reply| Ask::Attach { key, reply }).await?;
                return result_of(end, memo).await;
            }
            shared.filter_command((id, &handle.owner), caller, &text).await?;
            // Recorded before it has an effect: a repetition after a crash must not run it twice.
            shared.store.commit(vec![intent(permit, id)]).await.map_err(storage)?;
            plan.memo.key = Some(key);
        } else {
            shared.filter_command((id, &handle.owner), caller, &text).await?;
        }
        let memo = plan.memo.clone();
        let plan = Box::new(plan);
        let end = sessions::ask(&handle, id, |reply| Ask::Exec { plan, live: None, reply }).await?;
        result_of(end, memo).await
    }

    /// Runs a command and ends with it, when it ends, everything that it has left running.
    pub async fn exec_alone(
        &self,
        caller: &Caller,
        id: &str,
        request: ExecRequest,
    ) -> Result<ExecResult, Problem> {
        self.open_for_work()?;
        let shared = &self.shared;
        let handle = sessions::handle(shared, caller, id).await?;
        let mut plan = exec::plan(request, &shared.config.exec, shared.machine, &caller.name, false)?;
        plan.alone = true;
        let memo = plan.memo.clone();
        let plan = Box::new(plan);
        let end = sessions::ask(&handle, id, |reply| Ask::Exec { plan, live: None, reply }).await?;
        result_of(end, memo).await
    }

    /// The same, as it happens. The command goes on when the receiver is dropped.
    pub async fn exec_stream(
        &self,
        caller: &Caller,
        id: &str,
        request: ExecRequest,
        permit: Option<&Permit>,
    ) -> Result<mpsc::Receiver<ExecEvent>, Problem> {
        if permit.is_some_and(|permit| permit.resource.is_some()) {
            let end = self.exec(caller, id, request, permit).await?;
            let (events, receiver) = mpsc::channel(1);
            let _ = events.send(ExecEvent::Exit(Box::new(end))).await;
            return Ok(receiver);
        }
        self.open_for_work()?;
        let shared = &self.shared;
        let handle = sessions::handle(shared, caller, id).await?;
        let text = filters::text_of(request.command.as_deref(), request.argv.as_deref());
        let mut plan = exec::plan(request, &shared.config.exec, shared.machine, &caller.name, true)?;
        shared.filter_command((id, &handle.owner), caller, &text).await?;
        if let Some(permit) = permit {
            shared.store.commit(vec![intent(permit, id)]).await.map_err(storage)?;
            plan.memo.key = Some(permit.key.clone());
        }
        stream::start(&handle, plan).await
    }

    pub async fn append(
        &self,
        caller: &Caller,
        id: &str,
        event: AppendEvent,
        permit: Option<&Permit>,
    ) -> Result<JournalEntry, Problem> {
        sessions::get(&self.shared, caller, id).await?;
        self.shared.pools.check_open(id)?;
        validate::event_kind(&event.kind)?;
        let kind = format!("caller.{}", event.kind);
        if let Some(at) = permit.and_then(|permit| permit.resource.as_deref()) {
            return events::find(&self.shared, id, at, &kind, &caller.name).await;
        }
        let size = serde_json::to_vec(&event.body).map_or(usize::MAX, |body| body.len());
        if size > LARGEST_EVENT {
            return Err(Problem::new(
                ProblemCode::BodyTooLarge,
                format!("an event of {size} bytes is larger than {LARGEST_EVENT}"),
                "keep it as a private file and append its name",
            ));
        }
        let at = Timestamp::now();
        let (session, actor) = (id.to_owned(), caller.name.clone());
        let mut changes = vec![Change::Journal { session, at, actor, kind, body: event.body }];
        changes.extend(permit.map(|permit| intent(permit, &at.to_rfc3339())));
        match self.shared.store.commit(changes).await.map_err(storage)?.into_iter().next() {
            Some(Outcome::Entry(entry)) => Ok(entry),
            _ => Err(Problem::no_session(id)),
        }
    }

    /// Entries after a place: of one session (by `seq`), or of all that the caller may see (by `position`).
    pub async fn history(
        &self,
        caller: &Caller,
        session: Option<&str>,
        after: i64,
        limit: u32,
    ) -> Result<JournalPage, Problem> {
        let (which, by_position) = self.which(caller, session).await?;
        let limit = limit.clamp(1, MOST_ENTRIES);
        // What was done a moment ago is on its way to the store: it goes first.
        self.shared.store.commit(Vec::new()).await.ok();
        events::history(&self.shared, &which, by_position, after, limit).await
    }

    /// Entries after a place, then those to come. Ends when the receiver is dropped or the session is deleted.
    pub async fn follow(
        &self,
        caller: &Caller,
        session: Option<&str>,
        after: i64,
    ) -> Result<mpsc::Receiver<JournalEntry>, Problem> {
        let (which, by_position) = self.which(caller, session).await?;
        let (sender, receiver) = mpsc::channel(64);
        tokio::spawn(events::follow(self.shared.clone(), which, by_position, after, sender));
        Ok(receiver)
    }

    async fn which(&self, caller: &Caller, session: Option<&str>) -> Result<(Which, bool), Problem> {
        match session {
            Some(id) => {
                sessions::get(&self.shared, caller, id).await?;
                Ok((Which::Session(id.to_owned()), false))
            }
            None => {
                let which = Which::all_of(caller);
                let by_position = matches!(which, Which::Owner(_));
                Ok((which, by_position))
            }
        }
    }

    /// What is really enforced here, found by building a room once.
    pub async fn capabilities(&self) -> Result<Capabilities, Problem> {
        self.shared.capabilities.get_or_try_init(|| sessions::find_capabilities(&self.shared)).await.cloned()
    }

    /// What a command gets, and the most that a caller may ask for.
    pub fn exec_limits(&self) -> ExecDefaults {
        self.shared.config.exec
    }

    /// Whether calls can be served: the store writes and the server is not on its way down.
    pub async fn ready(&self) -> Result<(), Problem> {
        self.open_for_work()?;
        self.shared.store.writable().await.map_err(storage)
    }

    /// Stops taking work, writes what is to be written; rooms go on.
    pub async fn shut_down(&self) {
        self.shared.shutting_down.store(true, SeqCst);
        self.shared.networks.record_all().await;
        self.shared.store.close().await;
    }

    fn open_for_work(&self) -> Result<(), Problem> {
        if self.shared.shutting_down.load(SeqCst) {
            return Err(Problem::new(
                ProblemCode::ShuttingDown,
                "the server is on its way down",
                "try again",
            ));
        }
        Ok(())
    }

    async fn ask<T>(
        &self,
        caller: &Caller,
        id: &str,
        ask: impl FnOnce(oneshot::Sender<Result<T, Problem>>) -> Ask,
    ) -> Result<T, Problem> {
        let handle = sessions::handle(&self.shared, caller, id).await?;
        sessions::ask(&handle, id, ask).await
    }
}

/// Bytes of output from which on an answer is put together on another thread.
const LARGE_OUTPUT: u64 = 256 << 10;

/// The answer, without holding up others while it is put together.
async fn result_of(end: exec::Finished, memo: exec::Memo) -> Result<ExecResult, Problem> {
    if end.report.written.iter().sum::<u64>() < LARGE_OUTPUT {
        return result(&end, &memo);
    }
    blocking(move || result(&end, &memo)).await
}

fn result(end: &exec::Finished, memo: &exec::Memo) -> Result<ExecResult, Problem> {
    end.result(memo).map_err(|error| {
        Problem::new(ProblemCode::Internal, format!("the output cannot be read: {error}"), "")
    })
}

/// Does something that waits for the disk where it holds nobody up.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(Problem::new(ProblemCode::ShuttingDown, "the server is on its way down", "try again")),
    }
}
