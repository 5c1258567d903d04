//! What all owners of sessions share: the store, the spawner, the books of who is here.

use crate::access::Access;
use crate::actor::{Ask, Handle};
use crate::admission::Admission;
use crate::clock::Clock;
use crate::config::EngineConfig;
use crate::disk::Disks;
use crate::exec::Machine;
use crate::idempotency::Inflight;
use crate::layers::Held;
use crate::network::Networks;
use crate::operator::Operator;
use crate::pools::Pools;
use crate::ports::Ports;
use crate::recordings::Recordings;
use crate::secrets::records::Records;
use crate::secrets::redactors::Redactors;
use crate::secrets::safe::Safe;
use crate::shells::Shells;
use crate::spawner::Spawners;
use crate::state_dir::StateDir;
use crate::terminals::Models;
use crate::usage::UsageBook;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};
use workroom_store::Store;
use workroom_types::{Problem, ProblemCode};
use workroom_vault::KeySource;

pub(crate) struct Shared {
    pub(crate) config: EngineConfig,
    /// Where the server itself listens.
    listeners: Vec<SocketAddr>,
    pub(crate) state: StateDir,
    /// What is written to it is redacted first.
    pub(crate) store: Records,
    pub(crate) safe: Safe,
    pub(crate) redactors: Arc<Redactors>,
    pub(crate) spawners: Spawners,
    pub(crate) admission: Admission,
    pub(crate) access: Access,
    pub(crate) operator: Operator,
    pub(crate) clock: Clock,
    pub(crate) inflight: Inflight,
    pub(crate) held: Held,
    pub(crate) disks: Disks,
    pub(crate) usage: UsageBook,
    pub(crate) recordings: Recordings,
    pub(crate) machine: Machine,
    pub(crate) shells: Shells,
    pub(crate) models: Arc<Models>,
    pub(crate) ports: Ports,
    pub(crate) host_directories: crate::mounts::tidy::HostDirectories,
    pub(crate) networks: Arc<Networks>,
    pub(crate) pools: Pools,
    pub(crate) metrics: Counts,
    /// While fewer commands than this are under way, rooms are woken for another one before it is asked for.
    pub(crate) awake_for: u64,
    /// Rings when there is something in the trash.
    pub(crate) trash: Notify,
    pub(crate) shutting_down: AtomicBool,
    pub(crate) capabilities: tokio::sync::OnceCell<workroom_types::Capabilities>,
    /// Makers of sessions under the same key wait for each other here.
    makers: [tokio::sync::Mutex<()>; 64],
    owners: Mutex<HashMap<String, Handle>>,
}

/// Running counts, for `/metrics`.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) sessions_created: AtomicU64,
    pub(crate) rooms_started: AtomicU64,
    pub(crate) rooms_failed: AtomicU64,
    pub(crate) rooms_lost: AtomicU64,
    pub(crate) rooms_adopted: AtomicU64,
    pub(crate) execs_started: AtomicU64,
    pub(crate) execs_running: AtomicU64,
    pub(crate) execs_timed_out: AtomicU64,
    pub(crate) output_bytes: AtomicU64,
    pub(crate) limits_memory: AtomicU64,
    pub(crate) limits_pids: AtomicU64,
    pub(crate) limits_disk: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        config: EngineConfig,
        listeners: Vec<SocketAddr>,
        state: StateDir,
        store: Store,
        spawners: Spawners,
        access: Access,
        operator: Operator,
    ) -> Shared {
        let redactors = Redactors::of_log();
        let store = Records::new(store, redactors.clone());
        let machine = Machine::find();
        let awake_for = config.stay_awake.most_commands();
        let key_file = state.root().join("master.key");
        Shared {
            admission: Admission::new(config.quotas),
            recordings: Recordings::new(state.recordings(), config.recordings),
            ports: Ports::new(config.ports),
            networks: Networks::new(store.clone(), config.network.clone(), listeners.clone()),
            listeners,
            safe: Safe::new(config.master_key.clone().unwrap_or(KeySource::File(key_file))),
            config,
            disks: Disks::new(&state, machine.is_root),
            machine,
            state,
            store,
            redactors,
            spawners,
            access,
            operator,
            clock: Clock::new(),
            inflight: Inflight::default(),
            held: Held::default(),
            usage: UsageBook::default(),
            shells: Shells::default(),
            models: Arc::default(),
            host_directories: Default::default(),
            pools: Pools::default(),
            metrics: Counts::default(),
            awake_for,
            trash: Notify::new(),
            shutting_down: AtomicBool::new(false),
            capabilities: tokio::sync::OnceCell::new(),
            makers: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
            owners: Mutex::default(),
        }
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, Handle>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn owner_of(&self, id: &str) -> Option<Handle> {
        self.owners().get(id).cloned()
    }

    /// Sessions that have a room.
    pub(crate) fn live_sessions(&self) -> Vec<workroom_types::Session> {
        let handles: Vec<Handle> = self.owners().values().cloned().collect();
        handles.iter().map(Handle::session).filter(|session| session.state.is_live()).collect()
    }

    /// Whether a session is this user's; `None` where that is not known without asking the store.
    pub(crate) fn is_of(&self, id: &str, user: &str) -> Option<bool> {
        let owners = self.owners();
        let snapshot = owners.get(id)?.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        Some(snapshot.owner == user)
    }

    /// Those of sessions that have a room, by id and owner.
    pub(crate) fn live_owners(&self, is_wanted: impl Fn(&str, &str) -> bool) -> Vec<(String, Handle)> {
        let owners = self.owners();
        let wanted = owners.iter().filter(|(id, handle)| is_wanted(id, &handle.owner));
        let live = wanted.filter(|(_, handle)| handle.session().state.is_live());
        live.map(|(id, handle)| (id.clone(), handle.clone())).collect()
    }

    /// Registers an owner, unless there is one.
    pub(crate) fn register(&self, id: &str, handle: &Handle) -> Result<(), Handle> {
        let mut owners = self.owners();
        match owners.get(id) {
            Some(there) => Err(there.clone()),
            None => {
                owners.insert(id.to_owned(), handle.clone());
                Ok(())
            }
        }
    }

    pub(crate) fn forget(&self, id: &str) {
        self.owners().remove(id);
        self.shells.forget(id);
        self.redactors.forget(id);
    }

    /// Lets an owner go that nobody has anything to ask of. Under the lock, so that nobody begins to meanwhile.
    pub(crate) fn retire(&self, id: &str, asks: &mpsc::Receiver<Ask>) -> bool {
        let mut owners = self.owners();
        let unwanted = asks.sender_strong_count() <= 1 && asks.is_empty();
        if unwanted {
            owners.remove(id);
            self.shells.forget(id);
            self.redactors.forget(id);
        }
        unwanted
    }

    /// Returns once all that rooms have written is on the disk, and how many milliseconds that took.
    pub(crate) async fn flush_layers(&self) -> Result<f64, Problem> {
        let layers = self.state.layers();
        let since = std::time::Instant::now();
        let flushed = tokio::task::spawn_blocking(move || {
            let dir = std::fs::File::open(layers)?;
            Ok::<_, std::io::Error>(rustix::fs::syncfs(&dir)?)
        });
        let failed = |why: String| {
            Problem::new(ProblemCode::StorageUnavailable, format!("files cannot be flushed: {why}"), "")
                .retry_after(1)
        };
        match flushed.await {
            Ok(Ok(())) => Ok(since.elapsed().as_secs_f64() * 1000.0),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// No room reaches what the server listens on, for itself or for other rooms.
    pub(crate) async fn protect_listeners(&self) {
        let mut addresses = self.listeners.clone();
        addresses.extend(self.ports.listeners());
        self.networks.protect(addresses).await;
    }

    pub(crate) async fn maker(&self, key: &str) -> tokio::sync::MutexGuard<'_, ()> {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        self.makers[(hasher.finish() % self.makers.len() as u64) as usize].lock().await
    }

    /// Moves what is kept beside a session out of sight; it is deleted at leisure.
    pub(crate) fn discard_private(&self, id: &str) {
        self.recordings.close(id);
        for (dir, what) in [
            (self.state.private(), "private"),
            (self.state.output(), "output"),
            (self.state.recordings(), "recordings"),
        ] {
            if let Err(error) = self.state.discard(&dir.join(id), &format!("{what}-{id}")) {
                tracing::error!(session = id, %error, what, "files of a deleted session stay for now");
            }
        }
        self.trash.notify_one();
    }
}
