//! What this machine allows: how many rooms at once, and by which limit.

use crate::guard;
use crate::report::say;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use workroom_types::Limits;

/// Processes and namespaces that the rest of this machine needs.
const SPARE: u64 = 512;

/// Descriptors of this program besides rooms.
const SPARE_FILES: u64 = 64;

/// Descriptors that whoever holds a room has open for it.
const FILES_PER_ROOM: u64 = 2;

pub(crate) struct Limit {
    pub(crate) name: String,
    pub(crate) value: u64,
    /// How many rooms it allows.
    pub(crate) rooms: u64,
}

/// Reads what this machine allows; raises what may be raised, to be put back at the end.
pub(crate) fn prepare(wanted: u64, raise: bool) -> Vec<Limit> {
    let mut limits = Vec::new();
    // A room has two processes.
    let mut system = vec![("kernel/pid_max".to_owned(), 2), ("kernel/threads-max".to_owned(), 2)];
    for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        system.push((format!("user/max_{kind}_namespaces"), 1));
    }
    for (name, each) in system {
        let path = format!("/proc/sys/{name}");
        let Some(mut value) = read_number(&path) else { continue };
        let needed = wanted * each + SPARE;
        if raise && value < needed && fs::write(&path, needed.to_string()).is_ok() {
            let old = value;
            say!("{name} is raised from {old} to {needed} until the end of this run");
            guard::undo_later(move || drop(fs::write(path, old.to_string())));
            value = needed;
        }
        limits.push(Limit { name, value, rooms: value.saturating_sub(SPARE) / each });
    }
    limits
}

/// How many rooms one process can hold, once its open files are raised as far as they go, for its children too.
pub(crate) fn rooms_per_process(wanted: u64) -> u64 {
    // Commands of a room are given so many, which can be no more than its spawner has.
    let needed = (wanted * FILES_PER_ROOM + SPARE_FILES).max(Limits::default().open_files);
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    if limit.current.unwrap_or(u64::MAX) < needed {
        let raised = Rlimit { current: Some(needed), maximum: Some(most.max(needed)) };
        let within = Rlimit { current: Some(most.min(needed)), maximum: limit.maximum };
        let _ = setrlimit(Resource::Nofile, raised).or_else(|_| setrlimit(Resource::Nofile, within));
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (files.saturating_sub(SPARE_FILES) / FILES_PER_ROOM).max(1)
}

fn read_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
