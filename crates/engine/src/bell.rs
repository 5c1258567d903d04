//! A room's bell: rung when a command is about to be asked for, so that the room wakes up while the request is still read.

use crate::Engine;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::write;
use std::os::fd::{AsRawFd, OwnedFd};
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
        // Who finds somebody at the rope need not pull it as well.
        if let Ok(rope) = self.rope.try_lock()
            && let Some(rope) = &*rope
        {
            // Nobody counts; one that cannot be rung is not heard.
            let _ = write(rope, &1u64.to_ne_bytes());
        }
    }
}

/// Whether what a guest has given is a bell that nobody waits at: in a request nothing may wait for a room.
pub(crate) fn is_bell(rope: &OwnedFd) -> bool {
    let own = format!("/proc/self/fd/{}", rope.as_raw_fd());
    let is_counter = std::fs::read_link(own).is_ok_and(|kind| kind.as_os_str() == "anon_inode:[eventfd]");
    is_counter && fcntl_getfl(rope).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
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
    fn what_could_keep_a_request_waiting_is_no_bell() {
        assert!(is_bell(&eventfd(0, EventfdFlags::NONBLOCK).unwrap()));
        assert!(!is_bell(&eventfd(0, EventfdFlags::empty()).unwrap()));
        let (_, pipe) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        assert!(!is_bell(&pipe));
    }

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
