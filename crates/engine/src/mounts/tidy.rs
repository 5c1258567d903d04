//! Which writable directories of the host rooms use, so that what was made in them for a room's sake goes with the last.

use super::mounter::Mounter;
use crate::shared::Shared;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{RwLock, RwLockReadGuard};
use workroom_proto::MountTask;
use workroom_types::{Bind, MountState, Session};

#[derive(Default)]
pub(crate) struct HostDirectories {
    /// Of each session that has, or is about to have, a room.
    used: Mutex<HashMap<String, Vec<Bind>>>,
    /// Held shared while something is mounted, and alone while something is tidied: what was made for one room may be
    /// what the next one finds.
    mounting: RwLock<()>,
}

impl HostDirectories {
    fn used<T>(&self, look: impl FnOnce(&mut HashMap<String, Vec<Bind>>) -> T) -> T {
        look(&mut self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Held for as long as directories are being mounted.
    pub(crate) async fn mounting(&self) -> RwLockReadGuard<'_, ()> {
        self.mounting.read().await
    }

    /// A session's room uses these too, or is about to.
    pub(crate) fn add(&self, session: &str, binds: &[Bind]) {
        let writable: Vec<Bind> = binds.iter().filter(|bind| !bind.read_only).cloned().collect();
        if !writable.is_empty() {
            self.used(|used| used.entry(session.to_owned()).or_default().extend(writable));
        }
    }

    /// A session's room uses these alone. Answers what it no longer does.
    fn replace(&self, session: &str, binds: &[Bind]) -> Vec<Bind> {
        self.used(|used| {
            let mut before = used.remove(session).unwrap_or_default();
            let writable: Vec<Bind> = binds.iter().filter(|bind| !bind.read_only).cloned().collect();
            before.retain(|bind| !writable.contains(bind));
            if !writable.is_empty() {
                used.insert(session.to_owned(), writable);
            }
            before
        })
    }

    fn is_used(&self, bind: &Bind) -> bool {
        self.used(|used| used.values().flatten().any(|other| other.judged == bind.judged))
    }
}

/// A session's room uses these writable directories and no others: what was made in those that nobody uses any more
/// goes, if nobody has put anything into it.
pub(crate) async fn uses_only(shared: &Arc<Shared>, session: &str, binds: &[Bind]) {
    let left = shared.host_directories.replace(session, binds);
    if left.is_empty() {
        return;
    }
    let _alone = shared.host_directories.mounting.write().await;
    let binds: Vec<Bind> = left.into_iter().filter(|bind| !shared.host_directories.is_used(bind)).collect();
    if binds.is_empty() {
        return;
    }
    if let Err(problem) = Mounter::run(shared, MountTask::Tidy { binds }, None).await {
        tracing::warn!(session, %problem, "what protected a directory of the host stays in it");
    }
}

/// A session's room is gone, and with it what it had of the host.
pub(crate) async fn room_is_gone(shared: &Arc<Shared>, session: &mut Session) {
    for mount in &mut session.mounts {
        if mount.state == MountState::Mounted {
            mount.state = MountState::Waiting;
        }
    }
    session.room_binds = None;
    uses_only(shared, &session.id, &[]).await;
}
