//! A pool as the store has it: parts of a session that never has a room, so that all of it comes and goes at once.
//!
//! That session holds the seed's layers too, which are thus kept for as long as there is the pool.

use crate::clock;
use crate::shared::Shared;
use crate::storage;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::Instant;
use workroom_store::{Change, SessionStack};
use workroom_types::{PoolSpec, Problem, Timestamp};

/// The kinds of parts: the one definition, and the slots by their numbers.
pub(super) const POOL: &str = "pool";
pub(super) const SLOT: &str = "slot";

/// What a pool is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Definition {
    /// The session that holds all this.
    pub(super) session: String,
    pub(super) owner: String,
    pub(super) name: String,
    pub(super) spec: PoolSpec,
    pub(super) created: Timestamp,
    /// Of what rooms are made: a room of an earlier one is given to nobody.
    pub(super) generation: u64,
    /// The seed's, the lowest first.
    pub(super) layers: Vec<String>,
    /// Of what is in them.
    pub(super) digest: Option<String>,
}

/// What is known of a slot. Without a session it is to get one; with one and without a holder it is available.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct SlotRecord {
    pub(super) session: Option<String>,
    pub(super) generation: u64,
    pub(super) held: Option<Held>,
    pub(super) uses: u64,
    /// Since which start of the machine it has its session, whose files need not outlive that. Records from before do not
    /// have it: theirs do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) boot: Option<String>,
}

impl SlotRecord {
    /// Takes its session and its lease away if the machine was restarted since: what was flushed in such a session did not
    /// wait for the disk, and who has it is to know. Whether it has lost them.
    pub(super) fn outlive(&mut self, boot: &str) -> bool {
        if self.session.is_none() || self.boot.as_deref().is_none_or(|since| since == boot) {
            return false;
        }
        (self.session, self.held) = (None, None);
        true
    }
}

/// What tells one start of the machine from another.
pub(super) fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()).trim()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) trajectory: String,
    pub(super) lease_end: Timestamp,
    /// How long it lasts from when it was last asked for. A server that finds it lets it last no longer, whatever the clock says
    /// by then; records from before do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lease_ms: Option<u64>,
}

/// A lease from now on: as it is recorded and told, and as it is kept in a server that lives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Term {
    pub(super) lease_ms: u64,
    pub(super) end: Timestamp,
    pub(super) until: Instant,
}

impl Term {
    pub(super) fn of(lease_ms: u64) -> Term {
        let end = Timestamp::now().0.saturating_add(i64::try_from(lease_ms).unwrap_or(i64::MAX));
        let until = clock::end(Instant::now(), Duration::ZERO, Duration::from_millis(lease_ms));
        Term { lease_ms, end: Timestamp(end), until }
    }
}

impl Held {
    pub(super) fn new(trajectory: String, term: Term) -> Held {
        Held { trajectory, lease_end: term.end, lease_ms: Some(term.lease_ms) }
    }

    /// When the lease is over, found when it is this time.
    pub(super) fn until(&self, now: Timestamp) -> Instant {
        let left = u64::try_from(self.lease_end.0.saturating_sub(now.0)).unwrap_or(0);
        let left = left.min(self.lease_ms.unwrap_or(u64::MAX));
        clock::end(Instant::now(), Duration::ZERO, Duration::from_millis(left))
    }
}

pub(super) struct FoundSlot {
    pub(super) number: u32,
    pub(super) record: SlotRecord,
}

pub(super) struct Found {
    pub(super) definition: Definition,
    pub(super) slots: Vec<FoundSlot>,
}

/// What a pool's session is found by: no two pools are written alike, whatever their owners are called.
pub(super) fn place(owner: &str, name: &str) -> String {
    json!(["pool", owner, name]).to_string()
}

/// Writes down what a pool is, and that its layers are used.
pub(super) fn put(definition: &Definition) -> [Change; 2] {
    let session = &definition.session;
    let stack = SessionStack {
        baseline: definition.layers.clone(),
        frozen: definition.layers.clone(),
        ..SessionStack::new(session)
    };
    [
        Change::PutPart {
            session: session.clone(),
            kind: POOL.into(),
            id: "definition".into(),
            doc: serde_json::to_value(definition).unwrap_or_default(),
        },
        Change::PutStack { session: session.clone(), stack },
    ]
}

pub(super) fn put_slot(pool: &str, number: u32, slot: Option<&SlotRecord>) -> Change {
    let (session, kind, id) = (pool.to_owned(), SLOT.to_owned(), number.to_string());
    match slot {
        Some(slot) => {
            Change::PutPart { session, kind, id, doc: serde_json::to_value(slot).unwrap_or_default() }
        }
        None => Change::DropPart { session, kind, id },
    }
}

pub(super) async fn read(shared: &Shared, session: &str) -> Result<Option<Found>, Problem> {
    let definition = shared.store.parts(session, POOL).await.map_err(storage)?.into_iter().next();
    let Some((_, doc)) = definition else { return Ok(None) };
    let definition = match serde_json::from_value::<Definition>(doc) {
        Ok(definition) => definition,
        Err(error) => {
            tracing::error!(session, %error, "a pool cannot be read");
            return Ok(None);
        }
    };
    let mut slots = Vec::new();
    for (id, doc) in shared.store.parts(session, SLOT).await.map_err(storage)? {
        match (id.parse(), serde_json::from_value(doc)) {
            (Ok(number), Ok(record)) => slots.push(FoundSlot { number, record }),
            // Its session is nobody's then, and ends.
            _ => tracing::error!(session, id, "a slot cannot be read"),
        }
    }
    Ok(Some(Found { definition, slots }))
}
