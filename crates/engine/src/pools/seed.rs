//! The files that every slot of a pool begins with: layers of a moment of another session, and their digest.

use crate::actor::no_snapshot;
use crate::layers::Hold;
use crate::shared::Shared;
use crate::workers::{Worker, broken};
use crate::{Engine, sessions, storage};
use std::sync::Arc;
use workroom_proto::{FromWorker, LayerTask};
use workroom_types::{BASELINE, Caller, NOW, PoolSeed, Problem, ProblemCode};

pub(super) struct Seed {
    pub(super) layers: Vec<String>,
    pub(super) digest: String,
    /// Until the pool is recorded.
    _hold: Hold,
}

pub(super) async fn take(
    engine: &Engine,
    caller: &Caller,
    owner: &str,
    seed: &PoolSeed,
) -> Result<Seed, Problem> {
    let shared = &engine.shared;
    let session = sessions::get(shared, caller, &seed.session).await?;
    if session.owner != owner {
        return Err(Problem::new(
            ProblemCode::Forbidden,
            format!("session {} is not {owner}'s, whose pool this is", session.id),
            "seed a pool from a session of its owner",
        ));
    }
    let (layers, hold) = match seed.snapshot.as_deref() {
        None | Some(NOW) => {
            let kept = engine.keep(caller, &seed.session).await?;
            let hold = shared.hold(kept.layers.clone());
            (kept.layers.clone(), hold)
        }
        Some(name) => {
            let layers = named(shared, &seed.session, name).await?;
            let hold = shared.hold(layers.clone());
            // Held from here on, if it was there until here.
            if named(shared, &seed.session, name).await? != layers {
                return Err(no_snapshot(name));
            }
            (layers, hold)
        }
    };
    let digest = digest(shared, &layers).await?;
    Ok(Seed { layers, digest, _hold: hold })
}

async fn named(shared: &Arc<Shared>, session: &str, name: &str) -> Result<Vec<String>, Problem> {
    if name == BASELINE {
        return Ok(shared.stack_of(session).await?.baseline);
    }
    let row = shared.store.snapshot(session, name).await.map_err(storage)?;
    row.map(|row| row.layers).ok_or_else(|| no_snapshot(name))
}

/// Of what is in layers.
pub(super) async fn digest(shared: &Arc<Shared>, layers: &[String]) -> Result<String, Problem> {
    let task = LayerTask::Content { stack: shared.layer_dirs(layers) };
    match Worker::run(&shared.spawners, task, Vec::new()).await? {
        FromWorker::Digest { digest, .. } => Ok(digest),
        _ => Err(broken("it answered something else")),
    }
}
