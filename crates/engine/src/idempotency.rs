//! One effect for each key: concurrent repetitions wait, later ones get the answer of the first.

use crate::shared::Shared;
use crate::{Attempt, IdempotencyKey, Permit, StoredAnswer, storage};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use workroom_store::Change;
use workroom_types::{Problem, ProblemCode, Timestamp};

/// Milliseconds for which an answer is remembered: a day is promised, two are kept.
pub(crate) const REMEMBERED_FOR: i64 = 48 * 3600 * 1000;

type Keys = Arc<Mutex<HashMap<(String, String), Arc<Notify>>>>;

/// Keys whose requests are under way.
#[derive(Default)]
pub(crate) struct Inflight {
    keys: Keys,
}

/// Frees a key when it is dropped.
pub(crate) struct Held {
    keys: Keys,
    key: (String, String),
}

impl Drop for Held {
    fn drop(&mut self) {
        let freed = self.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        if let Some(waiters) = freed {
            waiters.notify_waiters();
        }
    }
}

impl Inflight {
    /// Waits until nobody else acts under the key, and takes it.
    async fn hold(&self, key: (String, String)) -> Held {
        loop {
            let notify = {
                let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
                match keys.get(&key) {
                    None => {
                        keys.insert(key.clone(), Arc::new(Notify::new()));
                        return Held { keys: self.keys.clone(), key };
                    }
                    Some(notify) => notify.clone(),
                }
            };
            let freed = notify.notified();
            tokio::pin!(freed);
            // From here on no word is missed; before, the key may have been freed already.
            freed.as_mut().enable();
            let taken = self.keys.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&key);
            if taken {
                freed.await;
            }
        }
    }
}

pub(crate) async fn begin(shared: &Shared, key: IdempotencyKey) -> Result<Attempt, Problem> {
    let held = shared.inflight.hold((key.scope.clone(), key.key.clone())).await;
    let known = shared.store.idempotency(&key.scope, &key.key).await.map_err(storage)?;
    let fresh = shared.clock.now().0 - REMEMBERED_FOR;
    let Some(row) = known.filter(|row| row.at.0 > fresh) else {
        return Ok(Attempt::Ours(Permit { key, resource: None, _held: held }));
    };
    if row.fingerprint != key.fingerprint {
        return Err(Problem::new(
            ProblemCode::IdempotencyMismatch,
            format!(
                "the idempotency key \"{}\" was used for another request",
                crate::validate::shown(&key.key)
            ),
            "use a new key for a new request",
        ));
    }
    match row.answer {
        Some((status, content_type, body)) => {
            Ok(Attempt::Replay(StoredAnswer { status, content_type, body }))
        }
        None => Ok(Attempt::Ours(Permit { key, resource: row.resource, _held: held })),
    }
}

pub(crate) async fn finish(shared: &Shared, permit: Permit, answer: StoredAnswer) -> Result<(), Problem> {
    let IdempotencyKey { scope, key, fingerprint } = permit.key.clone();
    let StoredAnswer { status, content_type, body } = answer;
    let at = Timestamp::now();
    let change = Change::FinishIdempotent { scope, key, fingerprint, status, content_type, body, at };
    shared.store.commit(vec![change]).await.map_err(storage)?;
    Ok(())
}

/// Takes back what was recorded of a request that was refused before it had an effect: its repetition is a first
/// attempt again.
pub(crate) async fn withdraw(shared: &Shared, permit: Permit, problem: &Problem) {
    let untouched = matches!(
        problem.code,
        ProblemCode::LimitExceeded | ProblemCode::RoomSetup | ProblemCode::LayerMissing
    );
    if untouched {
        let IdempotencyKey { scope, key, .. } = permit.key.clone();
        if let Err(error) = shared.store.commit(vec![Change::WithdrawIdempotent { scope, key }]).await {
            tracing::warn!(%error, "a refused request keeps its idempotency key");
        }
    }
}

/// What is recorded with an effect, so that a repetition after a crash finds it.
pub(crate) fn intent(permit: &Permit, resource: &str) -> Change {
    let IdempotencyKey { scope, key, fingerprint } = permit.key.clone();
    let resource = Some(resource.to_owned());
    Change::BeginIdempotent { scope, key, fingerprint, resource, at: Timestamp::now() }
}
