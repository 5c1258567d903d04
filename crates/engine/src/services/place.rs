//! Where a service belongs, and how the rest of its session is reached from there.

use super::board::{Board, Command, Doc};
use crate::actor::{Ask, Reply};
use crate::room::gone;
use crate::sessions;
use crate::shared::Shared;
use std::sync::{Arc, Weak};
use workroom_types::{Problem, Service, ServiceState, SessionState};

#[derive(Clone)]
pub(super) struct Place {
    pub(super) shared: Arc<Shared>,
    pub(super) session: String,
    pub(super) name: String,
    pub(super) board: Weak<Board>,
}

impl Place {
    /// Asks the session's owner, if this room still stands.
    pub(super) async fn ask<T>(&self, room: u64, ask: impl FnOnce(Reply<T>) -> Ask) -> Result<T, Problem> {
        // Not held: a session that nobody uses leaves memory, and its services' keepers with it.
        let handle = self.shared.owner_of(&self.session).ok_or_else(|| gone("the session is not in use"))?;
        sessions::ask(&handle, &self.session, |reply| Ask::IfRoom { room, ask: Box::new(ask(reply)) }).await
    }

    pub(super) fn actor(&self) -> String {
        format!("service:{}", self.name)
    }

    pub(super) fn is_paused(&self) -> bool {
        let handle = self.shared.owner_of(&self.session);
        handle.is_some_and(|handle| handle.session().state == SessionState::Paused)
    }

    /// Waits until all that it depends on are ready; starts those that are not up.
    pub(super) async fn dependencies(&self, names: &[String]) -> Result<(), String> {
        for name in names {
            let Some(slot) = self.board.upgrade().and_then(|board| board.slot(name)) else {
                return Err(format!("there is no service {name} any more"));
            };
            let actor = self.actor();
            let started = slot.ask(|reply| Command::Start { actor, reply }).await;
            started.map_err(|problem| format!("{name}: {}", problem.detail))?;
            let mut watch = slot.watch();
            let is_decided =
                |doc: &Doc| !matches!(doc.service.state, ServiceState::Starting | ServiceState::Running);
            let Ok(doc) = watch.wait_for(is_decided).await else {
                return Err(format!("the service {name} was removed"));
            };
            let Service { state, ready_at, exit_code, .. } = &doc.service;
            match state {
                ServiceState::Ready => {}
                // One that does its work and ends has done it.
                ServiceState::Exited if ready_at.is_some() && *exit_code == Some(0) => {}
                other => return Err(format!("the service {name} is {}", other.as_str())),
            }
        }
        Ok(())
    }
}
