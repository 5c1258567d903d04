//! What the host says about directories of its own in rooms, and what the spawner's clone that sees to them answers.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use workroom_types::{Bind, RoomError};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum MountTask {
    /// Mount directories into a room that runs: all, or none. Beside it: the room's pidfd. As root answered by `Done`.
    /// Elsewhere the guest has to attach them: by one `Tree` for each, in their order, then `Done`.
    Attach {
        binds: Vec<Bind>,
        /// Of the room's ids, the one that the directories' owners are shown as.
        user: u32,
    },
    /// As root: take directories off. Beside it: the room's pidfd. Answered by `Done`.
    Detach { targets: Vec<PathBuf>, remove_places: bool },
    /// Remove what was made in directories of the host to protect names that were not there. Answered by `Done`.
    Tidy { binds: Vec<Bind> },
    /// As root: give a room that runs a place for secrets. Beside it: the room's pidfd. Answered by one `Tree`, the place, which is
    /// attached by then, and `Done`.
    Secrets,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromMounter {
    Done,
    /// Beside it: a detached tree.
    Tree,
    /// Nothing was mounted.
    Failed {
        error: RoomError,
        /// Whether something of the room's own is at the place.
        occupied: bool,
    },
}
