//! PID 1 of a room: starts commands behind the room's inner walls and tells the host how they end.
//!
//! Two processes, both clones of the spawner and neither ever executing a program:
//!
//! ```text
//!  host ── control ── guest (PID 1) ── launcher ── commands
//!                     reaps all        Landlock, seccomp,
//!                                      no_new_privs, few capabilities
//! ```
//!
//! The guest stays outside the commands' Landlock domain and out of their limits, so that nothing they do
//! reaches it. The launcher enters the walls once; every command is born behind them and gives up the last
//! capabilities, which only starting it took. Commands are made
//! siblings of the launcher, so the guest alone reaps.
#![forbid(unsafe_code)]

mod census;
mod clerk;
mod freezer;
mod host;
mod launch;
mod launcher;
mod output;
mod pid1;
mod ports;
mod redaction;
mod runs;
mod secret_files;
mod since;
mod terminal;
mod usage;
mod vigil;

use rustix::process::Resource;
use std::io;
use std::os::fd::OwnedFd;
use workroom_proto::Channel;
use workroom_sys::seccomp::{Instruction, LauncherKey};
use workroom_types::{Enforced, Lifetime};

pub use usage::Meters;

/// What the room's builder hands over when the outer walls stand.
pub struct Guest {
    pub control: Channel,
    /// In a durable room: a bound socket, out of the room's sight, on which the next host will call.
    pub listener: Option<OwnedFd>,
    pub lifetime: Lifetime,
    /// What is in force, told to the host once the launcher stands behind the inner walls.
    pub enforced: Enforced,
    pub walls: Walls,
    pub work: WorkGroup,
    pub meters: Meters,
    /// Whether commands can be given another uid than the guest's own.
    pub switches_users: bool,
    pub resource_limits: Vec<(Resource, u64)>,
    /// An empty file system in memory that `/run/secrets` leads to, where there is one.
    pub secrets: Option<OwnedFd>,
}

/// The inner walls: entered once by the launcher and inherited by every command.
pub struct Walls {
    pub landlock: Option<Box<dyn Fn() -> io::Result<()>>>,
    pub seccomp: Option<Vec<Instruction>>,
    /// With it the filter lets the launcher do what starting commands takes.
    pub launcher_key: LauncherKey,
    pub no_new_privs: bool,
    pub drop_capabilities: bool,
    /// Ids mean nobody outside the room: rights over all files of its ids are rights over its own files only.
    pub own_ids: bool,
    /// Entered by each command, in the group that it was born in: a launcher in such a namespace could not
    /// place commands outside its own group.
    pub cgroup_namespace: bool,
    /// Each command gets a UTS namespace of its own, which all that it starts shares and cannot leave: its tree.
    pub labels: bool,
}

/// Where commands are limited.
#[derive(Default)]
pub struct WorkGroup {
    /// cgroup v2: commands are born in this group.
    pub birth: Option<OwnedFd>,
    /// cgroup v1: the launcher joins by writing to these `tasks`, opened by the privileged builder.
    pub join: Vec<OwnedFd>,
    /// `cgroup.freeze` and `cgroup.events` of the group that all commands are in, where there is one.
    pub freezer: Option<(OwnedFd, OwnedFd)>,
}

/// Runs until the room ends; returns the status that PID 1 ends with.
pub fn run(guest: Guest) -> i32 {
    match pid1::run(guest) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}
