//! Stacks that have grown deep are made shallow again: looking a file up costs by the layers.

use super::{Actor, Ask};
use crate::disk::is_subvolume;
use crate::layers::Hold;
use crate::shared::Shared;
use crate::storage;
use crate::workers::{Worker, broken};
use std::sync::Arc;
use workroom_proto::{FromWorker, LayerTask};
use workroom_store::{Change, SessionStack};
use workroom_types::Problem;

/// Layers above the baseline from which on they are put together, in the background.
const DEEP: usize = 16;

/// Layers of a whole stack from which on it is put together before it grows: a room takes no more than 64.
const TOO_DEEP: usize = 48;

/// Several layers that one takes the place of.
pub(crate) struct Squashed {
    pub(crate) below: Vec<String>,
    pub(crate) layers: Vec<String>,
    pub(crate) into: Hold,
}

impl Squashed {
    /// The stack with the one in the place of the several, if they are still where they were.
    fn put_into(&self, frozen: &[String]) -> Option<Vec<String>> {
        let rest = frozen.strip_prefix(self.below.as_slice())?.strip_prefix(self.layers.as_slice())?;
        Some([&self.below, &self.into.layers, rest].concat())
    }
}

async fn squash(shared: &Arc<Shared>, below: Vec<String>, layers: Vec<String>) -> Result<Squashed, Problem> {
    let into = shared.new_layer()?;
    let task = LayerTask::Squash {
        below: shared.layer_dirs(&below),
        layers: shared.layer_dirs(&layers),
        into: shared.layer_dir(&into.layers[0]),
    };
    match Worker::run(&shared.spawners, task, Vec::new()).await? {
        FromWorker::Measured { .. } => Ok(Squashed { below, layers, into }),
        _ => Err(broken("it answered something else")),
    }
}

impl Actor {
    /// Layers that a session is to stand on, as one if they are too many. What is new among them is held.
    pub(super) async fn shallow(&self, layers: Vec<String>) -> Result<(Vec<String>, Option<Hold>), Problem> {
        if layers.len() < TOO_DEEP {
            return Ok((layers, None));
        }
        let squashed = squash(&self.shared, Vec::new(), layers).await?;
        Ok((squashed.into.layers.clone(), Some(squashed.into)))
    }

    /// The same of layers that are about to be frozen: one that cannot be, as it is, is not among them any more.
    pub(super) async fn freezable(
        &self,
        layers: Vec<String>,
    ) -> Result<(Vec<String>, Option<Hold>), Problem> {
        if !layers.iter().any(|layer| is_subvolume(&self.shared.layer_dir(layer))) {
            return self.shallow(layers).await;
        }
        let squashed = squash(&self.shared, Vec::new(), layers).await?;
        Ok((squashed.into.layers.clone(), Some(squashed.into)))
    }

    /// The session stands on another stack: throws away those layers of the one before that nobody needs any more.
    pub(super) fn move_to(&mut self, next: SessionStack) {
        let layers = self.stack.take().map_or_else(Vec::new, |before| before.whole());
        let left = layers.into_iter().filter(|layer| !next.whole().contains(layer)).collect();
        self.stack = Some(next);
        self.discard_replaced(left);
    }

    /// Throws layers away that others have taken the place of, unless somebody needs them.
    pub(super) fn discard_replaced(&self, layers: Vec<String>) {
        if !layers.is_empty() {
            let shared = self.shared.clone();
            tokio::spawn(async move { shared.discard_unused(layers).await });
        }
    }

    /// Begins to put layers together if there are many, while the session goes on.
    pub(super) fn squash_later(&mut self) {
        let Some(stack) = &self.stack else { return };
        let Some(layers) = stack.frozen.strip_prefix(stack.baseline.as_slice()) else { return };
        if layers.len() <= DEEP || std::mem::replace(&mut self.squashing, true) {
            return;
        }
        let (shared, id) = (self.shared.clone(), self.row.session.id.clone());
        let (below, layers) = (stack.baseline.clone(), layers.to_vec());
        tokio::spawn(async move {
            let _hold = shared.hold([below.as_slice(), layers.as_slice()].concat());
            let made = squash(&shared, below, layers).await.map_err(|problem| {
                tracing::warn!(session = id, %problem, "a deep stack stays as it is for now");
            });
            // An owner that is gone had nothing to do any more: the next one finds the stack as deep as it is.
            if let Some(handle) = shared.owner_of(&id) {
                let _ = handle.asks.send(Ask::Squashed { made: made.ok() }).await;
            }
        });
    }

    /// Puts the one layer in the place of the several, unless somebody would notice.
    pub(super) async fn squashed(&mut self, made: Option<Squashed>) {
        self.squashing = false;
        let Some(made) = made else { return };
        if let Err(problem) = self.stand_on(&made).await {
            tracing::warn!(session = %self.row.session.id, %problem, "a deep stack stays as it is for now");
        }
        // Nobody's, if it did not take their place.
        self.discard_replaced(made.into.layers.clone());
    }

    async fn stand_on(&mut self, made: &Squashed) -> Result<(), Problem> {
        let stack = self.stack().await?;
        let Some(mut frozen) = made.put_into(&stack.frozen) else { return Ok(()) };
        if self.room.is_none() {
            let next = SessionStack { frozen, ..stack };
            let put = Change::PutStack { session: self.row.session.id.clone(), stack: next.clone() };
            self.shared.store.commit(vec![put]).await.map_err(storage)?;
            self.move_to(next);
            return Ok(());
        }
        if !self.is_quiet().await? {
            return Ok(());
        }
        // Two rooms do not write to one layer, not even for a moment.
        let new = self.shared.new_layer()?;
        frozen.push(stack.top.clone());
        let next = SessionStack { frozen, top: new.layers[0].clone(), ..stack };
        self.switch(next, Vec::new(), (true, "the session's room was replaced")).await.map(drop)
    }
}
