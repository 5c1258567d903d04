//! What a room and a command are asked to be.

use crate::{LayerSet, LayerState};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The uid and gid of `agent` inside every room.
pub const AGENT_ID: u32 = 1000;

/// Where, on the disk of a host that is root, the ids of a session's files begin: the room's root is this one. Nobody
/// has it, so a file that is setuid to its owner would make nobody of whoever could execute it there.
pub const LAYER_ID: u32 = 0x7fff_0000;

/// Who a command runs as, inside the room. Neither has any capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoomUser {
    Root,
    #[default]
    Agent,
}

impl RoomUser {
    pub fn id(self) -> u32 {
        match self {
            RoomUser::Root => 0,
            RoomUser::Agent => AGENT_ID,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            RoomUser::Root => "root",
            RoomUser::Agent => "agent",
        }
    }

    pub fn home(self) -> &'static str {
        match self {
            RoomUser::Root => "/root",
            RoomUser::Agent => "/home/agent",
        }
    }
}

/// Characters are those of UTF-8; all else of a language is C's. Programs that ask for their language read one file for
/// it. With `LANG=C.UTF-8`, which means the same, they read twelve.
const CHARACTERS: (&str, &str) = ("LC_CTYPE", "C.UTF-8");

/// The environment that every command begins with; nothing of the host's is in it.
pub fn base_environment(user: RoomUser) -> Vec<(String, String)> {
    [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", user.home()),
        ("USER", user.name()),
        ("LOGNAME", user.name()),
        // Without it bash looks for itself in the table of users, which takes a quarter of its start.
        ("SHELL", "/bin/bash"),
        ("LANG", "C"),
        CHARACTERS,
        ("TERM", "dumb"),
        ("TZ", ":/etc/localtime"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

/// Sets a variable that the caller names. Another language is another one in all, characters too.
pub fn set_variable(environment: &mut Vec<(String, String)>, name: String, value: String) {
    environment.retain(|(known, before)| {
        *known != name && (name != "LANG" || (known.as_str(), before.as_str()) != CHARACTERS)
    });
    environment.push((name, value));
}

/// What a room may reach. Only nothing, for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    #[default]
    None,
}

/// Hard limits of a room. `None` means that the kernel's own limits are the only ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes, swap included. The room's disk, where it lives in memory, counts too.
    pub memory: Option<u64>,
    /// Thousandths of a CPU.
    pub cpus_milli: Option<u64>,
    pub pids: Option<u64>,
    /// Bytes that a room in memory may write outside its mounts. What a layer holds is limited by its maker.
    pub disk: u64,
    /// Files and directories that it may make; 0 is one for each 4 KiB of `disk`.
    pub inodes: u64,
    /// Bytes of `/dev/shm`.
    pub shm: u64,
    pub open_files: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: Some(2 << 30),
            cpus_milli: None,
            pids: Some(1024),
            disk: 1 << 30,
            inodes: 0,
            shm: 64 << 20,
            open_files: 16384,
        }
    }
}

/// A host directory that becomes `/workspace`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    pub source: PathBuf,
    pub read_only: bool,
}

/// A host path made visible read-only, such as a toolchain outside `/usr`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMount {
    pub source: PathBuf,
    pub target: PathBuf,
}

/// A directory of the host that the operator grants a room.
///
/// Whoever builds the room looks for it itself, from the operator's own directory downwards and over no link, and takes
/// it only if it is the very directory that was judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// As the operator wrote it. Links in it are the operator's, and followed.
    pub anchor: PathBuf,
    /// From there on. May be empty.
    pub beneath: PathBuf,
    /// The device and the inode of the directory that was judged.
    pub judged: (u64, u64),
    /// In the room, absolute.
    pub target: PathBuf,
    pub read_only: bool,
    /// Paths in it that stay as they are although it is writable; a directory's ends with `/`.
    pub protect: Vec<String>,
    /// Names in it that are not shown.
    pub hide: Vec<String>,
}

/// How the granted directories of a room were made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoomBinds {
    pub binds: Vec<Bind>,
    /// Whether its commands are kept from making setuid files: only then may it get writable ones while it runs.
    pub writes_to_host: bool,
}

/// What ends a room, besides being told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// The end of its first command, and the end of whoever holds its control socket.
    #[default]
    FirstCommand,
    /// The end of whoever holds its control socket.
    Connection,
    /// Nothing else: it goes on without its host, and listens for the next one.
    Durable,
}

/// Everything needed to build a room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomSpec {
    /// `[a-z0-9-]{1,64}`; names the room's cgroup.
    pub id: String,
    /// Who commands run as by default, and, without privileges, the only id the room has.
    pub user: RoomUser,
    pub limits: Limits,
    pub network: Network,
    pub workspace: Option<Workspace>,
    /// A directory of the host with `fs/` and `work/` in it, to which everything that the room writes goes; in
    /// memory, without.
    pub layer: Option<PathBuf>,
    /// What the room writes is in memory although it has a layer, which is then one more of those below.
    pub in_memory: bool,
    /// What it writes to `layer` need not outlive the machine: nothing in the room, nor its end, waits for the disk.
    pub volatile: bool,
    /// Layers between the template and `layer`, the lowest first; each a directory of the host with `fs/` in it. Only
    /// with `layer`.
    pub lowers: Vec<PathBuf>,
    /// How the size of `layer` is limited, in the words of whoever made it.
    pub disk: Option<LayerState>,
    pub mounts: Vec<HostMount>,
    /// Directories of the host that the operator grants it.
    pub binds: Vec<Bind>,
    /// Whether it writes, or may come to write, to directories of the host: its commands make no setuid files then.
    pub writes_to_host: bool,
    /// Whether it has a place for secrets from the start. As root any other gets one with its first.
    pub secret_files: bool,
    pub lifetime: Lifetime,
    /// Layers that must hold although they are not required by default.
    pub require: LayerSet,
    /// Layers that may be missing although they are required by default.
    pub allow_missing: LayerSet,
    /// Layers left out on purpose, to see that something goes red without them. Never for real work.
    pub without: LayerSet,
}

impl RoomSpec {
    /// With nothing of the host's but the template, no network, and every layer that is required by default.
    pub fn new(id: String, user: RoomUser, limits: Limits, lifetime: Lifetime) -> RoomSpec {
        RoomSpec {
            id,
            user,
            limits,
            network: Network::None,
            workspace: None,
            layer: None,
            in_memory: false,
            volatile: false,
            lowers: Vec::new(),
            disk: None,
            mounts: Vec::new(),
            binds: Vec::new(),
            writes_to_host: false,
            secret_files: false,
            lifetime,
            require: LayerSet::EMPTY,
            allow_missing: LayerSet::EMPTY,
            without: LayerSet::EMPTY,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub cols: u16,
}

/// One command in a room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSpec {
    pub argv: Vec<Vec<u8>>,
    /// The whole environment: nothing is added to it.
    pub env: Vec<Vec<u8>>,
    pub cwd: Vec<u8>,
    pub user: RoomUser,
    /// With a terminal the command gets a PTY of the room as its stdio.
    pub terminal: Option<TerminalSize>,
}
