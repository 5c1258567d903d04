//! Layers by name: making names, finding directories, and throwing away what nobody needs.

use crate::shared::Shared;
use crate::state_dir::random_u32;
use crate::storage;
use crate::workers::Worker;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use workroom_proto::{FromWorker, LayerTask, Stack};
use workroom_store::SessionStack;
use workroom_types::{Garbage, Problem, ProblemCode, SessionState};

/// Layers that somebody works with although the store may not know it yet, or any more.
#[derive(Default)]
pub(crate) struct Held {
    grips: Mutex<HashMap<String, Grip>>,
}

/// By how many a layer is held.
#[derive(Default)]
struct Grip {
    count: usize,
    /// Somebody would have thrown it away meanwhile: whoever lets go last does.
    is_unwanted: bool,
}

/// Keeps layers from being thrown away.
pub(crate) struct Hold {
    shared: Arc<Shared>,
    pub(crate) layers: Vec<String>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut grips = self.shared.held.grips.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unwanted = Vec::new();
        for layer in &self.layers {
            let Some(grip) = grips.get_mut(layer) else { continue };
            grip.count -= 1;
            if grip.count == 0 && grips.remove(layer).is_some_and(|grip| grip.is_unwanted) {
                unwanted.push(layer.clone());
            }
        }
        drop(grips);
        // Where nothing runs any more the server is about to end; the next look for garbage finds them.
        if let (false, Ok(runtime)) = (unwanted.is_empty(), tokio::runtime::Handle::try_current()) {
            let shared = self.shared.clone();
            runtime.spawn(async move { shared.discard_unused(unwanted).await });
        }
    }
}

impl Held {
    fn contains(&self, layer: &str) -> bool {
        self.grips.lock().unwrap_or_else(PoisonError::into_inner).contains_key(layer)
    }

    /// Whether nobody holds a layer that is to be thrown away. Else it will be when it is let go of.
    fn let_go_of(&self, layer: &str) -> bool {
        let mut grips = self.grips.lock().unwrap_or_else(PoisonError::into_inner);
        match grips.get_mut(layer) {
            Some(grip) => grip.is_unwanted = true,
            None => return true,
        }
        false
    }
}

impl Shared {
    pub(crate) fn hold(self: &Arc<Shared>, layers: Vec<String>) -> Hold {
        let mut grips = self.held.grips.lock().unwrap_or_else(PoisonError::into_inner);
        for layer in &layers {
            grips.entry(layer.clone()).or_default().count += 1;
        }
        drop(grips);
        Hold { shared: self.clone(), layers }
    }

    /// The same, and those of them that nobody needs in the end are thrown away: copies that were made for this alone.
    pub(crate) fn borrow(self: &Arc<Shared>, layers: Vec<String>) -> Hold {
        let hold = self.hold(layers);
        for layer in &hold.layers {
            self.held.let_go_of(layer);
        }
        hold
    }

    /// A name for a layer that there is not yet, held.
    pub(crate) fn new_layer(self: &Arc<Shared>) -> Result<Hold, Problem> {
        let random = || {
            random_u32()
                .map_err(|error| Problem::new(ProblemCode::Internal, format!("no randomness: {error}"), ""))
        };
        Ok(self.hold(vec![format!("layer-{:08x}{:08x}", random()?, random()?)]))
    }

    pub(crate) fn layer_dirs(&self, layers: &[String]) -> Stack {
        layers.iter().map(|layer| self.layer_dir(layer)).collect()
    }

    pub(crate) fn layer_dir(&self, layer: &str) -> PathBuf {
        self.state.layers().join(layer)
    }

    /// The layers that a session is made of now. The top of one that never had a room is not there yet.
    pub(crate) fn layers_now(&self, stack: &SessionStack) -> Vec<String> {
        let is_there = self.layer_dir(&stack.top).exists();
        if is_there { stack.whole() } else { stack.frozen.clone() }
    }

    pub(crate) async fn stack_of(&self, session: &str) -> Result<SessionStack, Problem> {
        let stack = self.store.stack(session).await.map_err(storage)?;
        Ok(stack.unwrap_or_else(|| SessionStack::new(session)))
    }

    /// Throws away those of these layers that nobody needs.
    ///
    /// Who holds them is asked first: a new layer is held until the record names it, so one that is not held is named by
    /// now, or by nobody. The other way round it could be recorded, and let go of, between the two questions.
    pub(crate) async fn discard_unused(&self, layers: impl IntoIterator<Item = String>) {
        for layer in layers {
            if !self.held.let_go_of(&layer) {
                continue;
            }
            match self.store.is_layer_used(&layer).await {
                Ok(false) if self.held.let_go_of(&layer) => self.discard_layer(&layer),
                Ok(_) => {}
                // It would not say of the others either. The next look for garbage finds them.
                Err(error) => {
                    tracing::warn!(layer, %error, "layers that may not be needed stay for now");
                    break;
                }
            }
        }
        self.trash.notify_one();
    }

    /// Moves a layer out of sight; it is deleted at leisure.
    pub(crate) fn discard_layer(&self, layer: &str) {
        self.disks.forget(&self.layer_dir(layer));
        if let Err(error) = self.state.discard(&self.layer_dir(layer), layer) {
            tracing::error!(layer, %error, "a layer that nobody needs stays for now");
        }
    }

    /// Layers that no session and no snapshot is made of, and that nobody works with.
    pub(crate) async fn unused_layers(&self) -> Result<Vec<String>, Problem> {
        let entries = std::fs::read_dir(self.state.layers()).into_iter().flatten().flatten();
        let there: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        // Before the store is asked who needs them: one that is let go of after this is known there by then. So is a first
        // layer that another is put on after this.
        let mut free = Vec::new();
        for layer in there {
            if !self.held.contains(&layer) && !self.is_first(&layer).await? {
                free.push(layer);
            }
        }
        let used = self.store.used_layers().await.map_err(storage)?;
        let mut unused = Vec::new();
        for layer in free.into_iter().filter(|layer| !used.contains(layer)) {
            // Of a session that was made meanwhile.
            if !self.is_first(&layer).await? {
                unused.push(layer);
            }
        }
        Ok(unused)
    }

    /// Whether it is the first layer of a session that has no other. The store knows nothing of those; once the session
    /// stands on something else, its first layer is like any other.
    async fn is_first(&self, layer: &str) -> Result<bool, Problem> {
        if self.store.stack(layer).await.map_err(storage)?.is_some() {
            return Ok(false);
        }
        let is_owned = self.owner_of(layer).is_some();
        let row = self.store.session(layer).await.map_err(storage)?;
        Ok(is_owned || row.is_some_and(|row| row.session.state != SessionState::Deleted))
    }

    pub(crate) async fn collect_garbage(&self, dry_run: bool) -> Result<Garbage, Problem> {
        let mut layers = self.unused_layers().await?;
        layers.sort();
        let mut bytes = 0;
        for layer in &layers {
            let task = LayerTask::Measure { layer: self.layer_dir(layer) };
            if let Ok(FromWorker::Measured { bytes: size, .. }) =
                Worker::run(&self.spawners, task, Vec::new()).await
            {
                bytes += size;
            }
            if !dry_run {
                self.discard_layer(layer);
            }
        }
        self.trash.notify_one();
        Ok(Garbage { dry_run, layers, bytes })
    }
}
