//! What can be asked of a pool, and what its keeper has to answer.

use crate::pools::seed::Seed;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use workroom_types::{Lease, Pool, PoolSeed, PoolSpec, Problem};

pub(super) type Reply<T> = oneshot::Sender<Result<T, Problem>>;

/// What can be asked of a pool.
pub(super) enum Ask {
    Show {
        reply: Reply<Pool>,
    },
    /// What it was seeded from.
    Seed {
        reply: Reply<Option<PoolSeed>>,
    },
    Set {
        spec: Box<PoolSpec>,
        /// If it is another than before.
        seed: Option<Seed>,
        actor: String,
        reply: Reply<Pool>,
    },
    Delete {
        actor: String,
        reply: Reply<()>,
    },
    Acquire {
        trajectory: String,
        wait: Duration,
        lease_ms: u64,
        actor: String,
        reply: Reply<Lease>,
    },
    Release {
        trajectory: String,
        reply: Reply<bool>,
    },
    Extend {
        trajectory: String,
        lease_ms: u64,
        reply: Reply<Lease>,
    },
    /// The slot that a trajectory has.
    Find {
        trajectory: String,
        reply: Reply<Lease>,
    },
    Reset {
        trajectory: String,
        reply: Reply<Lease>,
    },
}

/// Somebody who wants a slot.
pub(super) struct Waiter {
    pub(super) trajectory: String,
    pub(super) lease_ms: u64,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
    pub(super) actor: String,
    pub(super) reply: Reply<Lease>,
}

/// What is answered once it is written down.
pub(super) enum Answer {
    Lease(Reply<Lease>, Lease),
    Released(Reply<bool>, bool),
}
