//! A room's bell: rung when a command is about to be asked for, so that the room wakes up while the request is still read.

use crate::Engine;
use rustix::io::write;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use workroom_types::Caller;

/// The host's end of it, in the place where everybody finds it who knows the session.
#[derive(Default)]
pub(crate) struct Bell {
    rope: Mutex<Option<OwnedFd>>,
}

impl Bell {
    /// Of the room that stands now, if there is one and it has a bell.
    pub(crate) fn hang(&self, rope: Option<OwnedFd>) {
        *self.rope.lock().unwrap_or_else(PoisonError::into_inner) = rope;
    }

    fn ring(&self) {
        if let Some(rope) = &*self.rope.lock().unwrap_or_else(PoisonError::into_inner) {
            // Nobody counts; one that cannot be rung is not heard.
            let _ = write(rope, &1u64.to_ne_bytes());
        }
    }
}

impl Engine {
    /// Whether anybody ever stays awake for what is about to happen.
    pub fn stays_awake(&self) -> bool {
        self.shared.awake_for > 0
    }

    /// A command is about to be asked for. Changes nothing but how soon it begins.
    pub fn announce(&self, caller: &Caller, id: &str) {
        let shared = &self.shared;
        if shared.metrics.execs_running.load(Relaxed) < shared.awake_for
            && let Some(handle) = shared.owner_of(id)
            && caller.may_see(id, &handle.owner)
        {
            handle.bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn only_the_bell_of_the_room_that_stands_is_rung() {
        let bell = Bell::default();
        bell.ring();
        let room = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        bell.hang(Some(room.try_clone().unwrap()));
        bell.ring();
        bell.ring();
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(&room, &mut count), Ok(8));
        assert_eq!(u64::from_ne_bytes(count), 2);
        bell.hang(None);
        bell.ring();
        assert_eq!(rustix::io::read(&room, &mut count), Err(rustix::io::Errno::AGAIN));
    }
}
