//! The network of rooms: who has one, the process that carries it, and what came of it.
//!
//! ```text
//!  actor ── serve, rules, stop ──▶ Networks ── line.rs ──▶ network process ◀── wires ── rooms
//!                                    │  keeps every room's wires: a process that dies is replaced, and goes on with them
//!  Engine::network ── view ────────▶ │
//!                                    └──▶ record.rs: totals, denials, connections, as a part of the session
//! ```
//!
//! A room's wires are a listener and a TUN device in its own network namespace, made by a process that goes in
//! (`workroom_room::wire`). They are held here and by the network process, and by nobody else: if this server ends, they
//! are gone, and the room has loopback alone until the next server has made others.

mod api;
mod check;
mod environment;
mod line;
mod record;

pub(crate) use check::{capped, check_ceiling, check_document, check_ranges};
pub(crate) use environment::give_proxy;

use crate::secrets::records::Records;
use line::Line;
use record::Record;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use workroom_egress::process::{FromEgress, Seen, Settings, ToEgress, Wanted};
use workroom_egress::transparent::{MTU, ROOM};
use workroom_room::{Wires, Wish};
use workroom_store::Change;
use workroom_types::{NetworkPolicy, NetworkProposal, NetworkTotals, Problem, ProblemCode, Timestamp};

/// Where the proxy is on a room's loopback, unless something else is there.
const PROXY_PORT: u16 = 3128;

/// How often what has changed is written down. A server that is killed loses no more of its counts.
const RECORD_EVERY: Duration = Duration::from_secs(5);

/// The pause before a network process that has died is replaced: the first time, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What rooms get: an address for programs that know of no proxy, and a proxy.
pub(crate) const WISH: Wish = Wish { address: ROOM, mtu: MTU, port: PROXY_PORT };

pub(crate) struct Networks {
    store: Records,
    settings: Settings,
    /// The process, once somebody needed it.
    line: tokio::sync::Mutex<Option<Arc<Line>>>,
    served: Mutex<HashMap<String, Served>>,
    /// Where the server listens.
    protected: Mutex<Vec<SocketAddr>>,
    /// What networks did that are served no more.
    past: Mutex<NetworkTotals>,
    restarts: AtomicU64,
    is_recording: AtomicBool,
}

/// One session's network.
struct Served {
    policy: String,
    wires: Arc<Wires>,
    /// What it had done before the process of this moment served it.
    before: Record,
    /// What that process counts.
    now: NetworkTotals,
    /// Whether that was written down.
    is_recorded: bool,
    /// What was written down last.
    recorded: Option<Box<Record>>,
}

/// Numbers for `/metrics`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NetworkNumbers {
    pub(crate) totals: NetworkTotals,
    pub(crate) rooms: u64,
    pub(crate) restarts: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A holder that panicked has left it as it was between two operations.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken(why: &str) -> Problem {
    Problem::new(ProblemCode::Internal, format!("the network process cannot be used: {why}"), "try again")
}

impl Networks {
    pub(crate) fn new(store: Records, settings: Settings, listeners: Vec<SocketAddr>) -> Arc<Networks> {
        Arc::new(Networks {
            store,
            settings,
            line: tokio::sync::Mutex::default(),
            served: Mutex::default(),
            protected: Mutex::new(listeners),
            past: Mutex::default(),
            restarts: AtomicU64::new(0),
            is_recording: AtomicBool::new(false),
        })
    }

    /// Serves a room's network from here on; one of the same session that was served before is not any more.
    pub(crate) async fn serve(
        self: &Arc<Self>,
        session: &str,
        policy: &NetworkPolicy,
        wires: Wires,
    ) -> Result<(), Problem> {
        let before = record::read(&self.store, session).await;
        let policy = written(policy);
        let served = Served {
            policy,
            wires: Arc::new(wires),
            before,
            now: NetworkTotals::default(),
            is_recorded: true,
            recorded: None,
        };
        lock(&self.served).insert(session.to_owned(), served);
        match self.line().await {
            // One that is about to be found dead is replaced, and the next is told of all.
            Ok((line, false)) => drop(self.hand_over(&line, session).await),
            Ok((_, true)) => {}
            Err(problem) => {
                lock(&self.served).remove(session);
                return Err(problem);
            }
        }
        Ok(())
    }

    /// Puts other rules in force: when this returns, new connections are judged by them.
    pub(crate) async fn rules(self: &Arc<Self>, session: &str, policy: &NetworkPolicy) {
        let policy = written(policy);
        match lock(&self.served).get_mut(session) {
            Some(served) => served.policy.clone_from(&policy),
            None => return,
        }
        // A process that is not there is told when it is.
        let Some(line) = self.line.lock().await.clone() else { return };
        let _ = line.send(&ToEgress::Rules { session: session.to_owned(), policy }, &[]).await;
        // What was said before is done before this is answered.
        let _ = line.ask(session, Wanted::View { connections: 0 }).await;
    }

    /// Ends a session's network and writes down what it did.
    pub(crate) async fn stop(&self, session: &str) {
        if !lock(&self.served).contains_key(session) {
            return;
        }
        let recorded = self.record(session).await;
        let line = self.line.lock().await.clone();
        if let Some(line) = line {
            let _ = line.send(&ToEgress::Stop { session: session.to_owned() }, &[]).await;
        }
        let Some(served) = lock(&self.served).remove(session) else { return };
        let totals = recorded.map_or(served.before.totals.and(served.now), |record| record.totals);
        let mut past = lock(&self.past);
        *past = past.and(NetworkTotals { open: 0, ..totals });
    }

    /// Where the server listens, which no policy opens.
    pub(crate) async fn protect(&self, addresses: Vec<SocketAddr>) {
        lock(&self.protected).clone_from(&addresses);
        let line = self.line.lock().await.clone();
        if let Some(line) = line {
            let _ = line.send(&ToEgress::Protect { addresses }, &[]).await;
        }
    }

    /// Those that have a network now.
    pub(crate) fn sessions(&self) -> Vec<String> {
        lock(&self.served).keys().cloned().collect()
    }

    pub(crate) fn numbers(&self) -> NetworkNumbers {
        let served = lock(&self.served);
        let totals = served.values().fold(*lock(&self.past), |all, one| {
            let one = one.before.totals.and(one.now);
            NetworkTotals { open: all.open + one.open, ..all.and(one) }
        });
        let restarts = self.restarts.load(Ordering::Relaxed);
        NetworkNumbers { totals, rooms: served.len() as u64, restarts }
    }

    /// What a session's network did, until now; `None` if it has none at this moment.
    async fn seen(&self, session: &str, connections: usize) -> Option<(Record, Arc<Wires>)> {
        let line = self.line.lock().await.clone();
        let mut seen = Seen::default();
        let mut proposal = NetworkProposal::default();
        if let Some(line) = &line {
            seen = line.read(session, Wanted::View { connections }).await.unwrap_or_default();
            proposal = line.read(session, Wanted::Proposal).await.unwrap_or_default();
        }
        let mut served = lock(&self.served);
        let one = served.get_mut(session)?;
        if seen == Seen::default() {
            // A process that died a moment ago has told its totals before.
            seen.totals = one.now;
        } else if line.is_some_and(|line| !line.is_dead()) {
            // What somebody was shown is not taken back if it dies now.
            one.now = seen.totals;
        }
        Some((one.before.clone().and(seen, proposal), one.wires.clone()))
    }

    /// Bytes that a session has received and sent, if it has a network at this moment.
    pub(crate) async fn bytes(&self, session: &str) -> Option<(u64, u64)> {
        // Most have none, and nobody is to be asked about those.
        lock(&self.served).get(session)?;
        let (record, _) = self.seen(session, 0).await?;
        Some((record.totals.received, record.totals.sent))
    }

    /// Writes down what a session's network did.
    async fn record(&self, session: &str) -> Option<Record> {
        let (record, _) = self.seen(session, record::MOST_CONNECTIONS).await?;
        if let Some(served) = lock(&self.served).get_mut(session) {
            served.is_recorded = true;
            served.recorded = Some(Box::new(record.clone()));
        }
        self.store.note(record.put(session)).await;
        Some(record)
    }

    async fn record_changes(self: Arc<Self>) {
        loop {
            tokio::time::sleep(RECORD_EVERY).await;
            let is_changed = |one: &Served| !one.is_recorded;
            self.record_those(is_changed).await;
        }
    }

    /// The server is on its way down, and the networks with it.
    pub(crate) async fn record_all(&self) {
        self.record_those(|_| true).await;
    }

    async fn record_those(&self, which: impl Fn(&Served) -> bool) {
        let those: Vec<String> = {
            let served = lock(&self.served);
            served.iter().filter(|(_, one)| which(one)).map(|(id, _)| id.clone()).collect()
        };
        for session in those {
            self.record(&session).await;
        }
    }

    /// The process, started if there is none; and whether it was. A new one knows all that is to be served.
    async fn line(self: &Arc<Self>) -> Result<(Arc<Line>, bool), Problem> {
        let mut current = self.line.lock().await;
        if let Some(line) = current.as_ref().filter(|line| !line.is_dead()) {
            return Ok((line.clone(), false));
        }
        let line = Line::start(self).await.map_err(|error| broken(&error.to_string()))?;
        *current = Some(line.clone());
        let known: Vec<String> = lock(&self.served).keys().cloned().collect();
        let addresses = lock(&self.protected).clone();
        let begun = async {
            line.send(&ToEgress::Settings(self.settings.clone()), &[]).await?;
            line.send(&ToEgress::Protect { addresses }, &[]).await?;
            for session in known {
                self.hand_over(&line, &session).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        begun.await.map_err(|error| broken(&error.to_string()))?;
        if !self.is_recording.swap(true, Ordering::Relaxed) {
            tokio::spawn(self.clone().record_changes());
        }
        Ok((line, true))
    }

    async fn hand_over(&self, line: &Line, session: &str) -> std::io::Result<()> {
        let found = lock(&self.served).get(session).map(|one| (one.policy.clone(), one.wires.clone()));
        let Some((policy, wires)) = found else { return Ok(()) };
        let mut fds: Vec<BorrowedFd<'_>> = vec![wires.listener.as_fd()];
        fds.extend(wires.tun.as_ref().ok().map(AsFd::as_fd));
        line.send(&ToEgress::Serve { session: session.to_owned(), policy }, &fds).await
    }

    /// What the process says by itself.
    async fn heard(&self, word: FromEgress) {
        match word {
            FromEgress::Denied { session, denial } => {
                let body = serde_json::from_str(&denial).unwrap_or_default();
                let (at, actor, kind) = (Timestamp::now(), "server".to_owned(), "network.denied".to_owned());
                self.store.note(Change::Journal { session, at, actor, kind, body }).await;
            }
            FromEgress::Totals { session, totals } => {
                if let Some(served) = lock(&self.served).get_mut(&session) {
                    served.now = serde_json::from_str(&totals).unwrap_or(served.now);
                    served.is_recorded = false;
                }
            }
            FromEgress::Ready | FromEgress::Answer { .. } => {}
        }
    }

    /// The process is gone. What it served has no network until another has taken its place, which is now.
    async fn died(self: Arc<Self>) {
        for served in lock(&self.served).values_mut() {
            let totals = served.before.totals.and(std::mem::take(&mut served.now));
            // Its log is gone but for what was written down.
            if let Some(recorded) = served.recorded.take() {
                served.before = *recorded;
            }
            served.before.totals = totals;
            served.before.settle();
        }
        let mut pause = FIRST_PAUSE;
        while !lock(&self.served).is_empty() {
            tracing::warn!("the network process is gone; starting another");
            self.restarts.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(pause).await;
            match self.line().await {
                Ok(_) => return,
                Err(problem) => tracing::error!(%problem, "rooms have no network for now"),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// As the network process reads it.
fn written(policy: &NetworkPolicy) -> String {
    serde_json::to_string(policy).unwrap_or_default()
}
