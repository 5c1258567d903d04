//! A session's services, from its owner's side: the board that they are on, and which room they may run in.

use super::{Actor, Ask};
use crate::services::board::{Board, Doc, PART};
use crate::{sessions, storage};
use std::sync::Arc;
use workroom_types::Problem;

/// What an owner has of its session's services.
pub(super) struct Services {
    /// Once somebody has asked for them, or they have come back.
    board: Option<Arc<Board>>,
    /// Whether the session is so new that it has none: then its rooms need not look for them.
    are_none: bool,
}

impl Services {
    pub(super) fn of(is_new_session: bool) -> Services {
        Services { board: None, are_none: is_new_session }
    }
}

impl Actor {
    /// The number of the room that stands; 0 for none.
    fn room_number(&self) -> u64 {
        if self.room.is_some() { self.row.session.counters.starts } else { 0 }
    }

    pub(super) fn is_room(&self, room: u64) -> bool {
        room > 0 && self.room_number() == room
    }

    /// All services, each with its keeper, which takes up what runs and deals with what has ended meanwhile.
    pub(super) async fn board(&mut self) -> Result<Arc<Board>, Problem> {
        if let Some(board) = &self.services.board {
            return Ok(board.clone());
        }
        let id = self.row.session.id.clone();
        // What was noted a moment ago goes first. Without a store that writes, what is there is still to be read.
        self.shared.store.commit(Vec::new()).await.ok();
        let parts = self.shared.store.parts(&id, PART).await.map_err(storage)?;
        let entries = if parts.is_empty() { Vec::new() } else { self.all_processes().await? };
        let mut docs = Vec::new();
        for (name, doc) in parts {
            match serde_json::from_value::<Doc>(doc) {
                Ok(doc) => docs.push(doc),
                Err(error) => tracing::warn!(session = %id, name, %error, "a service cannot be read"),
            }
        }
        let board = Board::new(&self.shared, &id, self.room_number(), docs, &entries);
        Ok(self.services.board.insert(board).clone())
    }

    /// Tells services which room stands now. Those that ask for it come back in a new one, and nobody waits for them.
    pub(super) fn tell_services(&self) {
        let room = self.room_number();
        if let Some(board) = &self.services.board {
            board.room_is(room);
            return;
        }
        if self.services.are_none || room == 0 {
            return;
        }
        let (shared, id) = (self.shared.clone(), self.row.session.id.clone());
        tokio::spawn(async move {
            match shared.store.parts(&id, PART).await {
                Ok(parts) if parts.is_empty() => {}
                Ok(_) => {
                    let Some(handle) = shared.owner_of(&id) else { return };
                    let board = sessions::ask(&handle, &id, |reply| Ask::Services { reply }).await;
                    if let Err(problem) = board {
                        tracing::warn!(session = id, %problem, "services do not come back");
                    }
                }
                Err(error) => tracing::warn!(session = id, %error, "services do not come back"),
            }
        });
    }
}
