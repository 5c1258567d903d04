//! The messages themselves. Append variants; never reorder or reuse them.

use crate::secrets::{Gift, Secret};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use workroom_types::{
    CommandSpec, Enforced, ExitReport, Gauge, ListeningPort, ProcessInfo, RoomError, RoomSpec, RunReport,
    TerminalSize,
};

/// Host to spawner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToSpawner {
    /// Build a room. Beside it: the guest's end of the control socket and, for a durable room, a bound socket
    /// for the guest to listen on.
    Create(Box<RoomSpec>),
    /// Delete a directory that rooms have written to, in a process that can do no other harm.
    Remove { job: u64, path: PathBuf },
    /// Remove what rooms that are gone have left among the machine's cgroups.
    Sweep,
    /// Look into layers. Beside it: the worker's end of a channel, then what the task says. A worker that cannot be
    /// made is one that hangs up.
    Work(Box<crate::LayerTask>),
    /// See to directories of the host in a room that runs, or that is gone. Beside it: a channel for the answer, then
    /// what the task says. One that cannot be begun hangs up.
    Mounts(Box<crate::MountTask>),
}

/// Spawner to host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromSpawner {
    /// The room's process exists. Beside it: its pidfd.
    Cloned {
        room: String,
        pid: i32,
    },
    Refused {
        room: String,
        error: RoomError,
    },
    /// The room's last process is gone and what it had on the host is removed.
    Gone {
        room: String,
    },
    /// The directory is gone, or why it is not.
    Removed {
        job: u64,
        error: Option<String>,
    },
}

/// Host to guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToGuest {
    /// Start a command. Beside it, without a terminal: its stdin, stdout and stderr.
    Start {
        command: u32,
        spec: CommandSpec,
    },
    Signal {
        command: u32,
        signal: i32,
    },
    Resize {
        command: u32,
        size: TerminalSize,
    },
    End,
    /// In a durable room: start a command whose output the guest keeps. Beside it: its stdin, or nothing.
    Run {
        command: u32,
        spec: CommandSpec,
        output: OutputRule,
        timeout_ms: Option<u64>,
        /// What the host wants to be told of the command should it have forgotten.
        memo: Vec<u8>,
        /// Whether what the command leaves running ends with it.
        alone: bool,
        /// Commands that ended, of which the host has what it wanted to know. Here, so that nobody wakes up for it.
        forget: Vec<u32>,
    },
    /// The host has what it wanted to know of a command that ended.
    Forget {
        command: u32,
    },
    Ask {
        request: u32,
        question: Question,
    },
    /// Start a clerk for the host's file work. Beside it: the clerk's end of a channel. A clerk that cannot be started
    /// is one that hangs up.
    Clerk,
    /// In a durable room: start a command that is watched, written to and read from while it runs. Beside it: the file
    /// that its output goes to, then its stdin if that is given.
    Spawn(Box<Spawn>),
    /// There is no more input for a command; one that reads is told so.
    CloseInput {
        command: u32,
    },
    /// What must not be seen in the output of one command, beside what the room was given. Said before the command is
    /// started, or while it runs.
    Redact {
        command: u32,
        values: Vec<Secret>,
    },
}

/// A command that is read from and written to while it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spawn {
    pub command: u32,
    /// With a terminal, that is its stdio.
    pub spec: CommandSpec,
    pub output: OutputRule,
    pub input: Input,
    /// Whether it gets a socket as descriptor 3, of which the host has the other end.
    pub channel: bool,
    pub timeout_ms: Option<u64>,
    /// What the host wants to be told of the command should it have forgotten.
    pub memo: Vec<u8>,
}

/// Where a command without a terminal reads from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    Nothing,
    /// A descriptor beside the message.
    Given,
    /// A pipe whose other end the host gets.
    Pipe,
}

/// Who gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whom {
    Group,
    Process,
}

/// How much of a command's output is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRule {
    /// Bytes from the beginning of each stream that are kept for good.
    pub head: u64,
    /// Bytes of the rest of each stream: the last ones.
    pub ring: u64,
    /// Whether the host wants to read along.
    pub live: bool,
}

/// What a host may want to know of a durable room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Who are you, and what is under way?
    Hello,
    /// Let me read along with this command, or have its end once more.
    Attach {
        command: u32,
    },
    /// End a command and everything that it started.
    KillTree {
        command: u32,
    },
    /// Stop every process where it is, or let it go on.
    Freeze {
        on: bool,
    },
    Processes,
    Usage,
    /// Hold every process still for this host's work, or let them go on. They go on by themselves when the host hangs
    /// up.
    Hold {
        on: bool,
    },
    /// Send a signal to a command.
    Signal {
        command: u32,
        signal: i32,
        whom: Whom,
    },
    /// Read what a command has written until now, and say how much that is.
    Settle {
        command: u32,
    },
    /// Connect to a port of the room's loopback.
    Connect {
        port: u16,
        v6: bool,
    },
    /// What listens in the room?
    Ports,
    /// A shell is about to get its next command, which `mark` stands for. From here on its output is counted, what it
    /// starts is told from what was there, and its time runs.
    BeginRun {
        command: u32,
        mark: u64,
        timeout_ms: u64,
    },
    /// Is a shell still at this command?
    Run {
        command: u32,
        mark: u64,
    },
    /// A shell is done with a command. What that has written until now is read.
    EndRun {
        command: u32,
        mark: u64,
    },
    /// Mount a directory of the host. Beside it: the detached tree. Only where the guest has authority over the room's
    /// mounts, which it has not where the host is root.
    Mount {
        target: PathBuf,
    },
    /// Take it off again, and with `remove_place` the empty directory too.
    Unmount {
        target: PathBuf,
        remove_place: bool,
    },
    /// What is used now, of all that is counted?
    Gauge,
    /// Show me the room's user and network namespaces, to make its way out in.
    Namespaces,
    /// Secrets for the room. Beside it, for a room that has said [`Answer::NoPlace`]: the place for files.
    Give(Box<Gift>),
    /// What is looked for in output? For a host that comes after the one that gave it.
    Redacted,
}

/// The signal that makes a shell's driver leave the command that it is at. No program uses it.
pub const LEAVE_COMMAND: i32 = 16;

/// How far a command of a shell was helped to its end.
///
/// ```text
///  Running ──its time is over──▶ Interrupted ──a while──▶ Killed ──a while──▶ ShellKilled
///  INT to all that it started, LEAVE_COMMAND to the shell    KILL to the same   KILL to the shell
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RunStage {
    Running,
    Interrupted,
    Killed,
    ShellKilled,
}

/// What the guest says to a [`Question`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Beside it: the room's bell and its root directory, as with [`FromGuest::Ready`].
    Here {
        enforced: Enforced,
        frozen: bool,
        freezes_by_group: bool,
        commands: Vec<u32>,
    },
    /// Beside it: the spool and a counter that grows with it. If the command has ended, its end follows.
    Attached {
        memo: Vec<u8>,
    },
    Done,
    /// There is no such command.
    Unknown,
    Processes(Vec<ProcessInfo>),
    Usage {
        cpu_micros: u64,
        memory: u64,
        processes: u32,
    },
    /// It could not be done, and why.
    Failed {
        why: String,
    },
    /// To [`Question::Attach`] of a spawned command. Beside it: the counter, the end of its input that is written to if
    /// it has one, the host's end of its channel if it has one. If it has ended, its end follows.
    AttachedSpawned {
        memo: Vec<u8>,
        pid: i32,
        has_input: bool,
        has_channel: bool,
    },
    /// Bytes of each stream that are in the file now.
    Settled {
        written: [u64; 2],
    },
    /// Beside it: a connection that stands or is on its way.
    Connected,
    Ports(Vec<ListeningPort>),
    /// To [`Question::BeginRun`], and [`Question::Run`] while it runs: bytes of each stream that are not the command's.
    RunBegun {
        began: [u64; 2],
    },
    /// To [`Question::BeginRun`] of a shell that is still at another command.
    RunUnderway {
        mark: u64,
    },
    RunEnded {
        began: [u64; 2],
        written: [u64; 2],
        stage: RunStage,
    },
    /// To [`Question::Mount`]: something of the room's own is at that place.
    Occupied,
    Gauge(Gauge),
    /// Beside it: the room's user namespace, then its network namespace.
    Namespaces,
    Redacted(Vec<Secret>),
    /// To [`Question::Give`]: there is no place for files. What is not to be seen is looked for by now.
    NoPlace,
}

/// Guest to host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromGuest {
    /// The room stands, and this is what is in force. Beside it, in a durable room: its bell, which the host rings when it is
    /// about to ask for a command, and its root directory.
    Ready {
        enforced: Enforced,
    },
    /// The room could not be built; nothing of it is left.
    Failed {
        error: RoomError,
    },
    /// Beside it, with a terminal: the master side of the PTY.
    Started {
        command: u32,
        pid: i32,
    },
    NotStarted {
        command: u32,
        error: RoomError,
    },
    Exited {
        command: u32,
        report: ExitReport,
    },
    /// A command of a durable room ended. All that it wrote, if that was little; else beside it: the spool.
    Finished {
        command: u32,
        report: RunReport,
        output: Option<[Vec<u8>; 2]>,
    },
    Answer {
        request: u32,
        answer: Answer,
    },
    /// A spawned command runs. Beside it: the counter, the end of its input that is written to if it has one, the host's
    /// end of its channel if it has one.
    Spawned {
        command: u32,
        pid: i32,
    },
}

/// Guest to launcher. Beside it: stdin, stdout, stderr, and what is to be descriptor 3 if there is something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToLauncher {
    Launch {
        command: u32,
        spec: CommandSpec,
    },
    /// Beside it, in place of the stdio: the clerk's channel.
    Clerk,
    /// Something else comes in a moment, and is worth staying awake for.
    Soon,
}

/// Launcher to guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromLauncher {
    /// The launcher stands behind its walls.
    Ready,
    /// The launcher could not enter its walls; the room must not be used.
    WallFailed {
        wall: String,
        errno: i32,
    },
    Launched {
        command: u32,
        pid: i32,
        /// The inode of its own UTS namespace, which all that it starts shares; 0 without one.
        label: u64,
    },
    NotLaunched {
        command: u32,
        error: LaunchError,
    },
    /// A clerk runs, and is none of the room's own processes; 0 when it could not be started.
    Clerk {
        pid: i32,
    },
}

/// The last thing a command's process did before it became the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaunchStage {
    Clone,
    Identity,
    WorkingDirectory,
    Walls,
    Execute,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchError {
    pub stage: LaunchStage,
    pub errno: i32,
}
