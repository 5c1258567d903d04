//! The end of a session that a slot was: its room, its files, all that belongs to it.

use crate::actor::{Ask, Beginning, spawn};
use crate::sessions;
use crate::shared::Shared;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use workroom_store::Change;
use workroom_types::{ProblemCode, SessionState};

/// How soon a session that could not be deleted is tried again, at first and at most.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
const AGAIN_AFTER_AT_MOST: Duration = Duration::from_secs(30);

/// Deleted sessions of pools whose records are kept; older ones are forgotten for good. Those of other sessions are kept
/// for a month, which a pool that is used would fill the disk with.
const RECORDS_KEPT: usize = 1000;

/// Those that ended last.
#[derive(Default)]
pub(super) struct Ended(Mutex<VecDeque<String>>);

impl Ended {
    /// One more; what is to be forgotten for it.
    fn push(&self, id: String) -> Option<String> {
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ended.push_back(id);
        if ended.len() > RECORDS_KEPT { ended.pop_front() } else { None }
    }
}

/// Deletes a session, however long that takes.
pub(super) async fn end(shared: Arc<Shared>, id: String) {
    let mut again_after = AGAIN_AFTER;
    loop {
        match delete(&shared, &id).await {
            Ok(()) => break,
            Err(problem) => tracing::warn!(session = id, %problem, "a slot's session is not deleted yet"),
        }
        tokio::time::sleep(again_after).await;
        again_after = (again_after * 2).min(AGAIN_AFTER_AT_MOST);
    }
    shared.pools.open(&id);
    if let Some(id) = shared.pools.ended.push(id) {
        shared.store.note(Change::PurgeSession { id }).await;
    }
}

async fn delete(shared: &Arc<Shared>, id: &str) -> Result<(), workroom_types::Problem> {
    let handle = match shared.owner_of(id) {
        Some(handle) => handle,
        None => match shared.store.session(id).await.map_err(crate::storage)? {
            Some(row) if row.session.state != SessionState::Deleted => spawn(shared, row, Beginning::AsItIs),
            _ => return Ok(()),
        },
    };
    let actor = "pool".to_owned();
    match sessions::ask(&handle, id, |reply| Ask::Delete { actor, reply }).await {
        Err(problem) if problem.code == ProblemCode::NotFound => Ok(()),
        other => other,
    }
}
