//! Hostile probes that are run inside a room, one process each, and say whether the wall held.
//!
//! A probe really tries what it names, as an attacker would, and is bounded in time (a few seconds) and in
//! damage, because it is also run outside a room to see that it can fail. It never trusts a claim of the room:
//! the facts that it cannot know (a canary, a port, a limit) come in a [`Context`].

pub mod bait;
mod files;
mod host_files;
mod identity;
mod ipc;
mod limits;
mod memory;
mod mounts;
mod namespaces;
mod network;
mod proc_fs;
mod processes;
mod sockets;
mod sweep;
mod sys;
mod syscalls;
mod terminal;

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};

/// One attack: what it tries, and which layers would stop it.
pub struct Case {
    /// Kebab-case, unique: `workroom attack-probe NAME`.
    pub name: &'static str,
    /// The kind of escape, for grouping in tables.
    pub class: &'static str,
    /// One sentence.
    pub tries: &'static str,
    /// The layers that stop it, most important first; see [`LAYERS`]. For those of `golden/mutations.txt` a test wants them
    /// to be the same.
    pub guards: &'static [&'static str],
    pub probe: fn(&Context) -> Outcome,
}

/// The names that `guards` may use.
pub const LAYERS: &[&str] = &[
    "userns", "mountns", "pidns", "netns", "ipcns", "utsns", "cgroupns", "uidrange", "seccomp", "landlock",
    "scope", "caps", "nnp", "proc", "dumpable", "fds", "env", "session", "memory", "pids", "cpu", "disk",
    "rlimits", "guest", "output",
];

/// What came of an attack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// How it was refused, for example `EPERM`.
    Held(String),
    /// What was got.
    Breached(String),
    /// Why it cannot be tried here.
    Skipped(String),
}

impl Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(how) => write!(out, "held: {how}"),
            Self::Breached(what) => write!(out, "BREACHED: {what}"),
            Self::Skipped(why) => write!(out, "skipped: {why}"),
        }
    }
}

/// What the runner arranged outside the room. Hand it to the probe on its standard input: a canary in an
/// argument or a variable of the probe would be found there by the probe itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// A text in the launcher's environment, and in the command line of the process `host_pid`.
    pub canary: String,
    /// A text in the neighbour's files, and in the command line of the process `neighbour_pid`.
    pub neighbour_canary: Option<String>,
    /// Whether the room has a network, by which whoever made it decides what gets through.
    pub has_network: bool,
    /// A TCP server on the host's 127.0.0.1.
    pub host_tcp_port: Option<u16>,
    /// A UDP server on the host's 127.0.0.1 that answers every datagram.
    pub host_udp_port: Option<u16>,
    /// The path of a unix socket on the host that listens as a stream.
    pub host_socket: Option<String>,
    /// Abstract unix sockets (names without the leading zero) that listen as streams.
    pub host_abstract: Option<String>,
    pub neighbour_abstract: Option<String>,
    /// The key of a segment on the host; a semaphore set and a message queue may have the same key.
    pub host_sysv_shm_key: Option<i32>,
    /// The same in another room.
    pub neighbour_sysv_key: Option<i32>,
    /// Names as for `shm_open` and `mq_open`, with or without the leading slash.
    pub host_posix_shm: Option<String>,
    pub host_mq: Option<String>,
    pub neighbour_posix_shm: Option<String>,
    pub neighbour_mq: Option<String>,
    /// A folder with a program that is setuid root and one that has a capability, as the probe sees it.
    pub programs: Option<String>,
    /// A process of the host under the room's own uid, if possible; it may be attacked.
    pub host_pid: Option<i32>,
    /// The same in another room, by its number on the host.
    pub neighbour_pid: Option<i32>,
    /// The launcher's number inside the room; found by its name unless told.
    pub launcher_pid: Option<i32>,
    /// The file that `daemon-left-behind` writes two seconds later if it survives.
    pub daemon_marker: Option<String>,
    /// What the room was promised: bytes, processes, bytes, files, thousandths of a processor, descriptors.
    pub memory_limit: Option<u64>,
    pub pids_limit: Option<u64>,
    pub disk_limit: Option<u64>,
    pub inode_limit: Option<u64>,
    pub cpus_milli: Option<u64>,
    pub open_files: Option<u64>,
}

static TABLES: &[&[Case]] = &[
    identity::CASES,
    host_files::CASES,
    proc_fs::CASES,
    processes::CASES,
    namespaces::CASES,
    mounts::CASES,
    syscalls::CASES,
    sweep::CASES,
    terminal::CASES,
    files::CASES,
    ipc::CASES,
    sockets::CASES,
    network::CASES,
    memory::CASES,
    limits::CASES,
];

/// Every case, in the order of the table.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// Runs one probe in this process, which should do nothing else: probes fork and change limits.
pub fn run_probe(name: &str, context: &Context) -> Option<Outcome> {
    cases().find(|case| case.name == name).map(|case| (case.probe)(context))
}

/// A row of a table, without the field names that would make it ten lines.
const fn case(
    name: &'static str,
    class: &'static str,
    tries: &'static str,
    guards: &'static [&'static str],
    probe: fn(&Context) -> Outcome,
) -> Case {
    Case { name, class, tries, guards, probe }
}

/// Held when nothing was found, with the reason; otherwise breached with what was found, cut to a readable length.
fn none_found(found: Vec<String>, reason: impl Into<String>) -> Outcome {
    const SHOWN: usize = 12;
    if found.is_empty() {
        return Outcome::Held(reason.into());
    }
    let more = found.len().saturating_sub(SHOWN);
    let mut text = found.into_iter().take(SHOWN).collect::<Vec<_>>().join("; ");
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    Outcome::Breached(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_kebab_case() {
        let mut seen = HashSet::new();
        for case in cases() {
            assert!(seen.insert(case.name), "{} is there twice", case.name);
            assert!(
                case.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
                "{} is not kebab-case",
                case.name
            );
        }
    }

    #[test]
    fn every_case_names_a_known_layer() {
        for case in cases() {
            assert!(!case.guards.is_empty(), "{} names no layer", case.name);
            for guard in case.guards {
                assert!(LAYERS.contains(guard), "{}: {guard} is not a layer", case.name);
            }
        }
    }

    #[test]
    fn an_unknown_case_is_none() {
        assert!(run_probe("no-such-case", &Context::default()).is_none());
    }
}
