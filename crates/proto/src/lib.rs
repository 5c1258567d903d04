//! What the host, the spawner and the guest say to each other: versioned messages on packet sockets.
//!
//! A message is one `SOCK_SEQPACKET` packet: a version byte, then the message in postcard, with file descriptors
//! beside it; a large one travels as a memfd. Enum variants are only ever appended, so an older guest understands
//! all that it knows of a newer host; a test pins the bytes.
#![forbid(unsafe_code)]

mod channel;
mod files;
mod layers;
mod messages;
mod mounts;
mod secrets;
mod spool;

pub use channel::{Channel, MAX_FDS, MAX_MESSAGE, Received, try_receive_on, try_send_on};
pub use files::{Failure, FromClerk, NewFile, ToClerk};
pub use layers::{DiffRule, FromWorker, LayerTask, Stack, ToWorker};
pub use messages::{
    Answer, FromGuest, FromLauncher, FromSpawner, Input, LEAVE_COMMAND, LaunchError, LaunchStage, OutputRule,
    Question, RunStage, Spawn, ToGuest, ToLauncher, ToSpawner, Whom,
};
pub use mounts::{FromMounter, MountTask};
pub use secrets::{Gift, Secret};
pub use spool::{Piece, Spool, SpoolReader, Stream};

/// Bumped when a message changes its meaning; a packet of another version is refused.
pub const VERSION: u8 = 1;
