//! The one owner of a session: a task that holds its row and its room, and does one thing at a time to them.

mod ask;
mod commands;
mod disk;
mod expiry;
mod life;
mod limits;
mod mounts;
mod network;
mod past;
mod policy;
mod processes;
mod relatives;
mod secrets;
mod services;
mod squash;
mod usage;

pub(crate) use ask::{Ask, Live, Reply};
pub(crate) use life::room_spec;
pub(crate) use past::{Copying, Frozen, no_snapshot};
pub(crate) use processes::PART as PROCESS_PART;
pub(crate) use relatives::{ForkCost, Kept, MergePlan, NewForks};
pub(crate) use secrets::CallSecrets;
pub(crate) use squash::Squashed;

use crate::IdempotencyKey;
use crate::admission::Place;
use crate::bell::Bell;
use crate::exec::{Finished, Memo};
use crate::files::clerks::Clerks;
use crate::room::{Room, gone};
use crate::secrets::redactors::clean_session;
use crate::shared::Shared;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use workroom_store::{Change, SessionRow, SessionStack};
use workroom_types::{Problem, ProblemCode, Session, SessionState, Timestamp};
use workroom_vault::{Redactor, SharedRedactor};

/// How others reach a session's owner, and what they may see without asking.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) asks: mpsc::Sender<Ask>,
    /// Whose session it is, which never changes.
    pub(crate) owner: Arc<str>,
    pub(crate) snapshot: Arc<Mutex<Session>>,
    /// Whether a command is under way.
    pub(crate) working: Arc<AtomicBool>,
    pub(crate) bell: Arc<Bell>,
    /// What must not be seen of it.
    pub(crate) redactor: SharedRedactor,
}

impl Handle {
    pub(crate) fn session(&self) -> Session {
        crate::mounts::without_host_paths(self.session_for_its_owner())
    }

    pub(crate) fn session_for_its_owner(&self) -> Session {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A command under way.
struct Waiter {
    memo: Memo,
    started: Timestamp,
    live: Option<oneshot::Sender<Live>>,
    reply: Option<Reply<Finished>>,
    /// What must not be seen of it, if it was started here.
    redactor: Option<Arc<Redactor>>,
}

/// How an owner begins.
pub(crate) enum Beginning {
    /// As the row says, without a room.
    AsItIs,
    /// With a new room, which the place is for; the answer goes to whoever makes the session.
    Start { place: Place, reply: Reply<Session> },
    /// The same, with files that others have too.
    StartOn { stack: Box<SessionStack>, place: Place, reply: Reply<Session> },
    /// With the room that an earlier server left in this directory.
    Adopt { dir: PathBuf },
}

pub(crate) struct Actor {
    shared: Arc<Shared>,
    row: SessionRow,
    /// What its files are made of, once that was asked for.
    stack: Option<SessionStack>,
    /// Whether layers of it are being put together.
    squashing: bool,
    /// Whether its maker waits for its first room.
    being_made: bool,
    snapshot: Arc<Mutex<Session>>,
    working: Arc<AtomicBool>,
    asks: mpsc::Receiver<Ask>,
    room: Option<Room>,
    /// Of the room.
    bell: Arc<Bell>,
    /// Of the room, once somebody has asked for its files.
    clerks: Option<Arc<Clerks>>,
    place: Option<Place>,
    network: Option<network::Wired>,
    commands: HashMap<u32, Waiter>,
    table: processes::Table,
    services: services::Services,
    secrets: secrets::RoomSecrets,
    /// What must not be seen of what it and its rooms were given.
    redactor: SharedRedactor,
    next_command: u32,
    next_request: u32,
    /// Commands whose end is known here and still kept by the guest; some for a while longer.
    to_forget: Vec<commands::Known>,
    /// Ends of commands of an earlier server, for callers that come again under their key.
    adopted_ends: HashMap<IdempotencyKey, (Finished, Memo)>,
    adopted_waiters: HashMap<IdempotencyKey, Vec<Reply<(Finished, Memo)>>>,
    /// Commands of a room that is being taken up that were not asked about yet.
    unattached: Vec<u32>,
    /// Ends of commands that an earlier server recorded and may not have told the guest that it had: the number
    /// and the start of each.
    recorded: HashSet<(u64, String)>,
    /// When this owner began, and how old the session and its last sign of life were then: the wall clock is asked once.
    began: expiry::Began,
    last_active: Instant,
    /// CPU time of the room when its idleness was last judged.
    cpu_seen: u64,
    deleted: bool,
    looks: usage::Looks,
}

/// Starts the owner of a session and registers it; one that is there already stays.
pub(crate) fn spawn(shared: &Arc<Shared>, row: SessionRow, beginning: Beginning) -> Handle {
    let (sender, asks) = mpsc::channel(256);
    let snapshot = Arc::new(Mutex::new(row.session.clone()));
    let owner = row.session.owner.as_str().into();
    let redactor = SharedRedactor::new(Redactor::none());
    let handle = Handle {
        asks: sender,
        owner,
        snapshot: snapshot.clone(),
        working: Arc::default(),
        bell: Arc::default(),
        redactor: redactor.clone(),
    };
    if let Err(there) = shared.register(&row.session.id, &handle) {
        return there;
    }
    // A session that begins with a room is a new one.
    let stack = match &beginning {
        Beginning::Start { .. } => Some(SessionStack::new(&row.session.id)),
        Beginning::StartOn { stack, .. } => Some(SessionStack::clone(stack)),
        Beginning::AsItIs | Beginning::Adopt { .. } => None,
    };
    let is_new = stack.is_some();
    let began = expiry::Began::now(shared, &row.session);
    let actor = Actor {
        shared: shared.clone(),
        squashing: false,
        being_made: is_new,
        stack,
        row,
        snapshot,
        working: handle.working.clone(),
        asks,
        room: None,
        bell: handle.bell.clone(),
        clerks: None,
        place: None,
        network: None,
        commands: HashMap::new(),
        table: processes::Table::default(),
        services: services::Services::of(is_new),
        secrets: secrets::RoomSecrets::default(),
        redactor,
        next_command: 1,
        next_request: 1,
        to_forget: Vec::new(),
        adopted_ends: HashMap::new(),
        adopted_waiters: HashMap::new(),
        unattached: Vec::new(),
        recorded: HashSet::new(),
        began,
        last_active: Instant::now(),
        cpu_seen: 0,
        deleted: false,
        looks: usage::Looks::default(),
    };
    tokio::spawn(actor.run(beginning));
    handle
}

impl Actor {
    async fn run(mut self, beginning: Beginning) {
        match beginning {
            Beginning::AsItIs => {}
            Beginning::Start { place, reply } | Beginning::StartOn { place, reply, .. } => {
                let started = Box::pin(self.start(Some(place), "server")).await;
                self.being_made = false;
                let _ = reply.send(started.map(|()| self.seen()));
            }
            Beginning::Adopt { dir } => Box::pin(self.adopt(dir)).await,
        }
        loop {
            self.publish_activity();
            if self.deleted {
                self.shared.forget(&self.row.session.id);
                return;
            }
            let deadline = self.deadline();
            let event = async {
                match &self.room {
                    Some(room) => room.next().await,
                    None => std::future::pending().await,
                }
            };
            let timer = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                event = event => self.on_event(event).await,
                ask = self.asks.recv() => match ask {
                    Some(ask) => self.on_ask(ask).await,
                    None => return,
                },
                () = timer => {
                    if self.forgets_at().is_some_and(|at| at <= Instant::now()) {
                        self.let_guest_forget().await;
                        continue;
                    }
                    if self.looks_at().is_some_and(|at| at <= Instant::now()) {
                        Box::pin(self.look()).await;
                        continue;
                    }
                    if self.room.is_none() && self.expires_at().is_none_or(|at| at > Instant::now()) {
                        // Nobody asks any more. Whoever does next finds the row in the store.
                        if self.shared.retire(&self.row.session.id, &self.asks) {
                            return;
                        }
                        self.last_active = Instant::now();
                    } else {
                        Box::pin(self.expire()).await;
                    }
                }
            }
        }
    }

    // What is rare is boxed: what a task may do next is kept in its memory, for every session that has one.
    async fn on_ask(&mut self, ask: Ask) {
        let ask = match ask {
            // Who looks is no sign of life.
            Ask::Usage { query, reply } => return Box::pin(self.usage(query, reply)).await,
            Ask::NetworkAgain => return Box::pin(self.network_again()).await,
            ask => ask,
        };
        self.touch();
        match ask {
            Ask::Usage { .. } | Ask::NetworkAgain => {}
            Ask::Act { verb, place, actor, reply } => {
                let done = Box::pin(self.act(verb, place, &actor)).await;
                self.publish();
                let _ = reply.send(done.map(|()| self.seen()));
            }
            Ask::Exec { plan, live, reply } => self.exec(*plan, live, reply).await,
            Ask::Attach { key, reply } => {
                if let Some(end) = self.adopted_ends.remove(&key) {
                    let _ = reply.send(Ok(end));
                } else if let Some(waiters) = self.adopted_waiters.get_mut(&key) {
                    waiters.push(reply);
                } else {
                    let _ = reply.send(Err(Problem::new(
                        ProblemCode::OutcomeUnknown,
                        "the server ended while this command ran, and its room is gone",
                        "look at what the command left, then run it again under another key",
                    )));
                }
            }
            Ask::Policy { reply } => {
                let _ = reply.send(Ok(crate::policy::view(&self.shared, &self.row.session)));
            }
            Ask::Update { change, known, actor, reply } => {
                let done = Box::pin(self.update(*change, known, &actor)).await;
                self.publish();
                let _ = reply.send(done.map(|()| self.seen()));
            }
            Ask::Delete { actor, reply } => {
                let done = Box::pin(self.delete(&actor)).await;
                let _ = reply.send(done);
            }
            Ask::InRoom { reply } => {
                let listed = Box::pin(self.in_room()).await;
                let _ = reply.send(listed);
            }
            Ask::Spawn { plan, reply } => Box::pin(self.spawn_process(*plan, reply)).await,
            Ask::Processes { reply } => {
                let listed = Box::pin(self.all_processes()).await;
                let _ = reply.send(listed);
            }
            Ask::Process { id, reply } => {
                let found = Box::pin(self.process(&id)).await;
                let _ = reply.send(found);
            }
            Ask::KeepProcess { entry, reply } => {
                Box::pin(self.record(&entry)).await;
                let _ = reply.send(Ok(()));
            }
            Ask::RemoveProcess { id, actor, reply } => {
                let done = Box::pin(self.remove_process(&id, &actor)).await;
                let _ = reply.send(done);
            }
            Ask::Guest { question, reply } => {
                let answered = Box::pin(self.ask(question)).await;
                let _ = reply.send(answered);
            }
            Ask::TellGuest { message, reply } => {
                let told = match &self.room {
                    Some(room) => room.send(&message, &[]).await,
                    None => Err(gone("the session has no room")),
                };
                let _ = reply.send(told);
            }
            Ask::Services { reply } => {
                let board = Box::pin(self.board()).await;
                let _ = reply.send(board);
            }
            Ask::RoomForServices { actor, reply } => {
                let stands = Box::pin(self.room_for_work(&actor)).await;
                let _ = reply.send(stands);
            }
            Ask::IfRoom { room, ask } => {
                if self.is_room(room) {
                    Box::pin(self.on_ask(*ask)).await;
                }
            }
            Ask::Snapshot { name, actor, copying, intent, reply } => {
                let done = Box::pin(self.snapshot((&name, &actor), copying, intent)).await;
                let _ = reply.send(done);
            }
            Ask::DropSnapshot { name, actor, reply } => {
                let done = Box::pin(self.drop_snapshot(&name, &actor)).await;
                let _ = reply.send(done);
            }
            Ask::Reset { to, actor, intent, reply } => {
                Box::pin(self.reset((&to, &actor), intent, reply)).await;
            }
            Ask::SetBaseline { actor, reply } => {
                let done = Box::pin(self.set_baseline(&actor)).await;
                let _ = reply.send(done.map(|()| self.seen()));
            }
            Ask::BaselineDigest { digest, reply } => {
                let done = Box::pin(self.keep_baseline_digest(digest)).await;
                let _ = reply.send(done);
            }
            Ask::Fork { forks, actor, copying, reply } => {
                let done = Box::pin(self.fork(forks, &actor, copying)).await;
                let _ = reply.send(done);
            }
            Ask::Keep { copying, reply } => {
                let done = Box::pin(self.keep(copying)).await;
                let _ = reply.send(done);
            }
            Ask::Squashed { made } => Box::pin(self.squashed(made)).await,
            Ask::Merge { plan, actor, reply } => {
                let done = Box::pin(self.merge(*plan, &actor)).await;
                self.publish();
                let _ = reply.send(done);
            }
            Ask::Clerks { actor, reply } => {
                let clerks = Box::pin(self.clerks(&actor)).await;
                let _ = reply.send(clerks);
            }
            Ask::AddMounts { requests, actor, reply } => {
                let done = Box::pin(self.add_mounts(requests, &actor)).await;
                self.publish();
                let _ = reply.send(done);
            }
            Ask::RemoveMount { alias, actor, reply } => {
                let done = Box::pin(self.remove_mount(&alias, &actor)).await;
                self.publish();
                let _ = reply.send(done);
            }
            Ask::RefreshSecrets { reply } => {
                Box::pin(self.secrets_at_start()).await;
                let _ = reply.send(Ok(()));
            }
            Ask::Hide { command, values, reply } => {
                let done = Box::pin(self.hide(command, &values)).await;
                let _ = reply.send(done.map(drop));
            }
            Ask::Abandon { reply } => {
                self.end_room("the session was not made").await;
                self.deleted = true;
                self.shared.discard_private(&self.row.session.id);
                self.shared.discard_layer(&self.row.session.id);
                let _ = reply.send(Ok(()));
            }
        }
    }

    fn touch(&mut self) {
        self.last_active = Instant::now();
        self.began.touched = true;
        self.row.session.last_active = Timestamp::now();
        self.look_soon();
    }

    /// The session as callers see it.
    fn seen(&self) -> Session {
        crate::mounts::without_host_paths(self.seen_by_its_owner())
    }

    fn seen_by_its_owner(&self) -> Session {
        let mut session = self.row.session.clone();
        session.room_policy = None;
        session.room_binds = None;
        clean_session(&self.redactor.get(), &mut session);
        if session.state == SessionState::Running && self.row.waiting {
            session.state = SessionState::WaitingForInput;
        }
        session
    }

    fn publish(&self) {
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = self.seen_by_its_owner();
    }

    /// What every command changes, without the rest. Whoever changes more publishes it.
    fn publish_activity(&self) {
        self.working.store(!self.commands.is_empty(), Relaxed);
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let session = &self.row.session;
        snapshot.last_active = session.last_active;
        snapshot.counters = session.counters;
        if snapshot.state == SessionState::WaitingForInput && !self.row.waiting {
            snapshot.state = session.state;
        }
    }

    fn state(&self) -> SessionState {
        self.row.session.state
    }

    fn save(&self) -> Change {
        Change::SaveSession { row: self.row.clone() }
    }

    fn entry(&self, kind: &str, actor: &str, body: Value) -> Change {
        Change::Journal {
            session: self.row.session.id.clone(),
            at: Timestamp::now(),
            actor: actor.to_owned(),
            kind: kind.to_owned(),
            body,
        }
    }

    /// Records a change of state, a moment later than it happened.
    async fn note(&self, kind: &str, actor: &str, body: Value) {
        self.shared.store.note(self.save()).await;
        self.shared.store.note(self.entry(kind, actor, body)).await;
    }
}
