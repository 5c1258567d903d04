//! Builds rooms: the spawner, and every wall of a room, one file each.
//!
//! ```text
//!  host.rs      Spawner, Room: what the rest of the program holds
//!  durable.rs   finding rooms again that have outlived their host
//!  spawner.rs   the process that clones itself into rooms
//!  template.rs  the file system that rooms start from; skeleton.rs: its own part
//!  build.rs     a room, step by step, in the clone that becomes its PID 1
//!  identity.rs cgroup.rs mounts.rs landlock.rs seccomp.rs    the walls
//!  wire.rs      a way out for a room that stands, made in its network namespace
//!  work.rs      clones that look into what rooms have written
//!  probe.rs     what this machine offers
//! ```
#![forbid(unsafe_code)]

mod binds;
mod build;
mod cgroup;
mod durable;
mod host;
mod identity;
mod landlock;
mod live_mounts;
mod mounts;
mod probe;
mod seccomp;
mod spawner;
mod step;
mod template;
mod wire;
mod work;

pub use cgroup::LiveLimits;
pub use durable::{bind_guest_socket, call_guest, change_limits, remove_groups};
pub use host::{Room, Spawner};
pub use identity::Privilege;
pub use probe::{Fact, facts};
pub use spawner::run_if_spawner;
pub use template::check_host_mount;
pub use wire::{Wires, Wish, run_if_wirer, wire};
