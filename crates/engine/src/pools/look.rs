//! What may happen to slots without their keeper being asked: rooms end, sessions are deleted.

use crate::pools::keeper::Keeper;
use crate::pools::make::trace_in;
use std::collections::VecDeque;
use std::mem::take;
use tokio::time::Instant;
use workroom_types::SessionState;

impl Keeper {
    /// Rooms that wait for somebody may end by themselves; a session that is leased may be deleted by whoever has it.
    pub(super) async fn look_after(&mut self) {
        self.looked = Instant::now();
        let (mut available, mut held) = (Vec::new(), Vec::new());
        for (number, slot) in self.slots.iter() {
            match &slot.record.session {
                Some(_) if slot.is_available() => available.push(number),
                Some(session) => held.push((number, session.clone())),
                None => {}
            }
        }
        for number in available {
            self.is_new(number);
        }
        for (number, session) in held {
            let is_there = match self.shared.owner_of(&session) {
                Some(handle) => handle.session().state != SessionState::Deleted,
                None => match self.shared.store.session(&session).await {
                    Ok(row) => row.is_some_and(|row| row.session.state != SessionState::Deleted),
                    Err(_) => true,
                },
            };
            if !is_there {
                self.failed("the session of a slot was deleted");
                self.give_back(number);
            }
        }
        let (spoilt, sound): (VecDeque<_>, _) = take(&mut self.stock)
            .into_iter()
            .partition(|prepared| trace_in(&self.shared, &prepared.session).is_some());
        self.stock = sound;
        for prepared in spoilt {
            self.failed("a spare room ended");
            self.end(prepared.session);
        }
    }
}
