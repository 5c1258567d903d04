//! Slots: each is a session that is found again by its key, and a place that calls wait for in the order in which they
//! came.
//!
//! ```text
//!  available ──a call has its turn──▶ executing ──answered──▶ available
//! ```

use super::terminal::Terminal;
use futures_util::StreamExt;
use futures_util::stream::iter;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use workroom_engine::{Engine, Files, Verb};
use workroom_types::{
    Caller, CreateSession, ListSessions, NetworkMode, NetworkPolicy, Policy, Problem, ProblemCode,
    ResetSession, Scope, Session, WORKSPACE,
};

/// What the keys of slots' sessions begin with.
const KEY: &str = "compat/slots/";

/// Slots that are begun or ended at once.
const AT_ONCE: usize = 16;

/// The most that one page of sessions has.
const PAGE: u32 = 1000;

/// What slots are like.
#[derive(Debug, Clone, Default)]
pub struct SlotSettings {
    pub slots: usize,
    /// What commands and terminals have in their environment beside the usual.
    pub env: BTreeMap<String, String>,
    /// As `/health` shows them.
    pub data_dir: PathBuf,
    pub stateful_dir: PathBuf,
}

/// The slots of every caller of the main server that has asked for some.
pub(crate) struct Pools {
    engine: Engine,
    slots: usize,
    of: Mutex<HashMap<String, Pool>>,
}

impl Pools {
    pub(crate) fn new(engine: Engine, slots: usize) -> Pools {
        Pools { engine, slots, of: Mutex::default() }
    }

    /// Two tokens of one owner have the same slots, and no two owners have. What is done is done by whoever asks.
    pub(super) fn of(&self, caller: &Caller) -> Pool {
        let owner = caller.owner().to_owned();
        let scope = Scope::User { owner: owner.clone() };
        let caller = Caller { name: caller.name.clone(), scope, read_only: false };
        let made = || {
            let settings = SlotSettings { slots: self.slots, ..SlotSettings::default() };
            Pool::new(self.engine.clone(), caller.clone(), settings)
        };
        let pool = lock(&self.of).entry(owner).or_insert_with(made).clone();
        Pool { caller, ..pool }
    }
}

/// Slots, in the hands of whoever asks for something. Cheap to clone.
#[derive(Clone)]
pub(super) struct Pool {
    engine: Engine,
    /// Whose sessions the slots are, and who asks.
    caller: Caller,
    settings: Arc<SlotSettings>,
    slots: Arc<[Slot]>,
    is_closed: Arc<AtomicBool>,
}

pub(super) struct Slot {
    pub(super) name: String,
    /// Whose turn it is. In the order in which they came.
    desk: tokio::sync::Mutex<Desk>,
    /// What the call under way is called by its caller.
    executing: Mutex<Option<Value>>,
}

/// What is known of a slot from one call to the next.
#[derive(Default)]
pub(super) struct Desk {
    session: Option<String>,
    pub(super) terminal: Option<Terminal>,
    /// What the next terminal is to be: columns and rows, once somebody has said so.
    pub(super) size: Option<(u16, u16)>,
    /// Bytes of the terminal's recording that were streamed.
    pub(super) streamed: u64,
    /// What the last caller said of the network, and whether nothing is reached therefore.
    network: Option<(bool, bool)>,
}

/// A call that has a slot for itself.
pub(super) struct Turn<'p> {
    pub(super) pool: &'p Pool,
    pub(super) slot: &'p Slot,
    pub(super) desk: tokio::sync::MutexGuard<'p, Desk>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    pub(super) fn new(engine: Engine, caller: Caller, settings: SlotSettings) -> Pool {
        let slot = |number: usize| Slot {
            name: format!("slot_{number}"),
            desk: tokio::sync::Mutex::default(),
            executing: Mutex::default(),
        };
        let slots = (0..settings.slots).map(slot).collect();
        Pool { engine, caller, settings: Arc::new(settings), slots, is_closed: Arc::default() }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn settings(&self) -> &SlotSettings {
        &self.settings
    }

    pub(super) fn slot(&self, name: &str) -> Option<&Slot> {
        let number: usize = name.strip_prefix("slot_")?.parse().ok()?;
        self.slots.get(number).filter(|slot| slot.name == name)
    }

    /// Waits until all calls that came before are answered.
    pub(super) async fn turn<'p>(&'p self, slot: &'p Slot) -> Turn<'p> {
        Turn { pool: self, slot, desk: slot.desk.lock().await }
    }

    /// Whether commands really are in rooms here: one that cannot be walled off is not built at all.
    pub(super) async fn is_isolated(&self) -> bool {
        self.engine.capabilities().await.is_ok()
    }

    pub(super) async fn health(&self) -> Value {
        let executing = self.slots.iter().filter(|slot| lock(&slot.executing).is_some()).count();
        json!({
            "status": "ok",
            "slots": self.slots.len(),
            "available": self.slots.len() - executing,
            "executing": executing,
            "data_dir": self.settings.data_dir.to_string_lossy(),
            "bwrap_available": self.is_isolated().await,
            "stateful_dir": self.settings.stateful_dir.to_string_lossy(),
        })
    }

    pub(super) fn list(&self) -> Value {
        let slot = |slot: &Slot| {
            let executing = lock(&slot.executing).clone();
            json!({
                "slot_id": slot.name,
                "state": if executing.is_some() { "executing" } else { "available" },
                "workspace_dir": WORKSPACE,
                "current_execution_id": executing,
            })
        };
        json!({ "slots": self.slots.iter().map(slot).collect::<Vec<_>>() })
    }

    /// The sessions of slots, those of an earlier server too.
    async fn sessions(&self) -> Result<Vec<Session>, Problem> {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let query = ListSessions { limit: Some(PAGE), cursor, ..ListSessions::default() };
            let page = self.engine.list(&self.caller, query).await?;
            let is_ours = |session: &Session| session.key.as_deref().is_some_and(|key| key.starts_with(KEY));
            found.extend(page.sessions.into_iter().filter(is_ours));
            cursor = page.next;
            if cursor.is_none() {
                return Ok(found);
            }
        }
    }

    /// Ends what an earlier server's slots have left; those that are not wanted any more are deleted.
    pub(super) async fn take_up(&self) -> Result<(), Problem> {
        let sessions = self.sessions().await?;
        let wanted = |session: &Session| {
            let name = session.key.as_deref().and_then(|key| key.strip_prefix(KEY));
            name.is_some_and(|name| self.slot(name).is_some())
        };
        let ended = iter(sessions).map(async |session| match wanted(&session) {
            true => self.stop(&session).await,
            false => self.engine.delete(&self.caller, &session.id).await,
        });
        let ended: Vec<_> = ended.buffer_unordered(AT_ONCE).collect().await;
        ended.into_iter().collect()
    }

    async fn stop(&self, session: &Session) -> Result<(), Problem> {
        if !session.state.is_live() {
            return Ok(());
        }
        match self.engine.act(&self.caller, &session.id, Verb::Stop, None).await {
            Err(problem) if !matches!(problem.code, ProblemCode::WrongState | ProblemCode::NotFound) => {
                Err(problem)
            }
            _ => Ok(()),
        }
    }

    /// Ends all rooms, and lets no call make another.
    pub(super) async fn close(&self) {
        self.is_closed.store(true, SeqCst);
        let sessions = match self.sessions().await {
            Ok(sessions) => sessions,
            Err(problem) => return tracing::warn!(%problem, "the rooms of slots cannot be listed"),
        };
        let ended = iter(sessions).map(async |session| {
            if let Err(problem) = self.stop(&session).await {
                tracing::warn!(session = session.id, %problem, "the room of a slot goes on");
            }
        });
        ended.buffer_unordered(AT_ONCE).collect::<()>().await;
    }
}

impl Turn<'_> {
    /// A command is about to be asked for.
    pub(super) fn announce(&self) {
        if let Some(session) = &self.desk.session {
            self.engine().announce(self.caller(), session);
        }
    }

    /// The call is a tool's from here on, and is seen as this until the turn is over.
    pub(super) fn begin(&self, execution_id: &Value) {
        *lock(&self.slot.executing) = Some(execution_id.clone());
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.pool.engine
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.pool.caller
    }

    pub(super) fn files<'s>(&'s self, session: &'s str) -> Files<'s> {
        self.pool.engine.files(&self.pool.caller, session)
    }

    /// The session that the slot is; made, with its room, by the first call.
    pub(super) async fn session(&mut self) -> Result<String, Problem> {
        let (engine, caller) = (&self.pool.engine, &self.pool.caller);
        if self.pool.is_closed.load(SeqCst) {
            return Err(Problem::new(
                ProblemCode::ShuttingDown,
                "the server is on its way down",
                "try again",
            ));
        }
        if let Some(id) = &self.desk.session {
            match engine.get(caller, id).await {
                Ok(_) => return Ok(id.clone()),
                // Somebody has deleted it.
                Err(problem) if problem.code == ProblemCode::NotFound => {}
                Err(problem) => return Err(problem),
            }
        }
        *self.desk = Desk::default();
        let request = CreateSession {
            name: Some(self.slot.name.clone()),
            key: Some(format!("{KEY}{}", self.slot.name)),
            ..CreateSession::default()
        };
        let (session, is_new) = engine.create(caller, request, None, None).await?;
        if !is_new {
            // Of an earlier server: nobody waits for what it has begun, and its terminal is nobody's.
            self.pool.stop(&session).await?;
        }
        self.desk.session = Some(session.id.clone());
        Ok(session.id)
    }

    /// The slot's session, as it was left and with the network that is asked for, and whether it reaches nothing. It may
    /// have been deleted since: to ask takes longer than to find out.
    pub(super) async fn as_left(&mut self, allow_network: bool) -> Result<(String, bool), Problem> {
        match (&self.desk.session, self.desk.network) {
            (Some(session), Some((allowed, isolated)))
                if allowed == allow_network && !self.pool.is_closed.load(SeqCst) =>
            {
                Ok((session.clone(), isolated))
            }
            _ => {
                let isolated = self.isolate(allow_network).await?;
                Ok((self.session().await?, isolated))
            }
        }
    }

    /// The slot's session is there no more.
    pub(super) fn forget_session(&mut self) {
        *self.desk = Desk::default();
    }

    /// Lets the slot reach what rooms may by the server's policy, or nothing. Says whether it reaches nothing.
    pub(super) async fn isolate(&mut self, allow_network: bool) -> Result<bool, Problem> {
        let session = self.session().await?;
        if let Some((allowed, isolated)) = self.desk.network
            && allowed == allow_network
        {
            return Ok(isolated);
        }
        let network = (!allow_network).then(NetworkPolicy::default);
        let policy = Policy { network, ..Policy::default() };
        let view = self.engine().set_policy(self.caller(), &session, policy, None).await?;
        // A way out that could not be made in the room that runs waits for the next one.
        let isolated = view.effective.network.is_none_or(|network| network.mode == NetworkMode::Off)
            || view.pending.iter().any(|part| part == "network");
        self.desk.network = Some((allow_network, isolated));
        Ok(isolated)
    }

    /// Ends everything in the slot, and takes everything away that was written.
    pub(super) async fn reset(&mut self) -> Result<(), Problem> {
        let session = self.session().await?;
        // Whatever comes of it, the terminal is not to be relied on.
        let Desk { terminal, network, .. } = std::mem::take(&mut *self.desk);
        (self.desk.session, self.desk.network) = (Some(session.clone()), network);
        self.engine().reset(self.caller(), &session, ResetSession::default(), None).await?;
        if let Some(terminal) = terminal {
            terminal.forget_recording(self).await;
        }
        Ok(())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.slot.executing).take();
    }
}
