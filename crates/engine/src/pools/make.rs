//! A session for a slot to be: made with its room, and proven to be as new before anybody gets it.

use crate::actor::{Beginning, spawn};
use crate::pools::record::Definition;
use crate::pools::seed;
use crate::sessions::{abandon, new_row, unmake};
use crate::shared::Shared;
use crate::state_dir::is_empty_dir;
use crate::storage;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::oneshot;
use workroom_store::{Change, SessionStack};
use workroom_types::{CreateSession, PoolCheck, Problem, ProblemCode, SessionState, Timestamp};

/// How long to wait for a place: rooms that are being ended give theirs back.
const PLACE_WITHIN: Duration = Duration::from_secs(10);

/// A session that nobody has touched.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) session: String,
    pub(super) generation: u64,
}

/// Until the session is recorded and found to be new, nobody but the keeper may use it; nor afterwards, until it is leased.
pub(super) async fn make(shared: Arc<Shared>, pool: Arc<Definition>) -> Result<Prepared, Problem> {
    let place = shared.admission.enter_within(&pool.owner, PLACE_WITHIN).await?;
    let request = CreateSession {
        name: Some(pool.name.clone()),
        template: pool.spec.template.clone(),
        policy: pool.spec.policy.clone(),
        ..CreateSession::default()
    };
    let mut row = new_row(pool.owner.clone(), request, None)?;
    row.session.pool = Some(pool.name.clone());
    row.session.mounts = crate::mounts::check_new(&shared, "pool", &row).await?;
    row.session.state = SessionState::Starting;
    let id = row.session.id.clone();
    let stack = SessionStack {
        baseline: pool.layers.clone(),
        frozen: pool.layers.clone(),
        baseline_digest: pool.digest.clone(),
        ..SessionStack::new(&id)
    };
    let changes = vec![
        Change::InsertSession { row: row.clone() },
        Change::Journal {
            session: id.clone(),
            at: row.session.created,
            actor: "pool".into(),
            kind: "session.created".into(),
            body: json!({ "owner": pool.owner, "pool": pool.name, "generation": pool.generation }),
        },
        Change::PutStack { session: id.clone(), stack: stack.clone() },
    ];
    shared.pools.close(&id);
    let (reply, started) = oneshot::channel();
    let handle = spawn(&shared, row, Beginning::StartOn { stack: Box::new(stack.clone()), place, reply });
    // Both take a while.
    let (recorded, started) = tokio::join!(shared.store.commit(changes), started);
    let started = started.unwrap_or_else(|_| Err(Problem::no_session(&id)));
    let made = match (recorded.map_err(storage), started) {
        (Ok(_), Ok(_)) => prove(&shared, &pool, &id, &stack).await,
        (Err(problem), _) | (_, Err(problem)) => Err(problem),
    };
    if let Err(problem) = made {
        abandon(&handle, &id).await;
        unmake(&shared, &id).await;
        shared.pools.open(&id);
        return Err(problem);
    }
    shared.metrics.sessions_created.fetch_add(1, Relaxed);
    Ok(Prepared { session: id, generation: pool.generation })
}

/// That the session stands on the seed's layers and on nothing else, that these are as they were, and that nothing was
/// written over them.
async fn prove(
    shared: &Arc<Shared>,
    pool: &Definition,
    id: &str,
    stack: &SessionStack,
) -> Result<(), Problem> {
    if shared.stack_of(id).await? != *stack {
        return Err(not_new(id, "it does not stand on the seed's layers"));
    }
    if pool.spec.reset.unwrap_or_default().check == PoolCheck::Digest
        && let Some(expected) = &pool.digest
    {
        let digest = seed::digest(shared, &pool.layers).await?;
        if digest != *expected {
            return Err(not_new(id, &format!("the seed's digest is {digest}, and was {expected}")));
        }
    }
    match trace_in(shared, id) {
        None => Ok(()),
        Some(trace) => Err(not_new(id, trace)),
    }
}

fn not_new(id: &str, why: &str) -> Problem {
    Problem::new(
        ProblemCode::Internal,
        format!("the room of session {id} is not as new: {why}"),
        "the pool makes another; if none is, look at the server's log and set the pool anew",
    )
}

/// What shows that somebody, or something, was in a session that nobody is to have been in. Takes microseconds, and is
/// asked each time that one is handed out.
pub(super) fn trace_in(shared: &Shared, id: &str) -> Option<&'static str> {
    let Some(handle) = shared.owner_of(id) else { return Some("it has no room any more") };
    let session = handle.session();
    if session.state != SessionState::Running {
        return Some("its room does not run");
    }
    if session.counters.execs > 0 || session.counters.starts > 1 || session.reset_count > 0 {
        return Some("something was done in it");
    }
    // The top layer of a session that was never reset has the session's name.
    if !is_empty_dir(&shared.layer_dir(id).join("fs")) {
        return Some("something was written in it");
    }
    None
}

/// Word of who has it, in its own journal.
pub(super) fn acquired(session: &str, actor: &str, trajectory: &str, lease_end: Timestamp) -> Change {
    Change::Journal {
        session: session.to_owned(),
        at: Timestamp::now(),
        actor: actor.to_owned(),
        kind: "slot.acquired".into(),
        body: json!({ "trajectory": trajectory, "lease_end": lease_end }),
    }
}
