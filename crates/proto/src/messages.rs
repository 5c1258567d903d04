//! The messages themselves. Append variants; never reorder or reuse them.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use workroom_types::{
    CommandSpec, Enforced, ExitReport, ProcessInfo, RoomError, RoomSpec, RunReport, TerminalSize,
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
}

/// What the guest says to a [`Question`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Beside it: the room's root directory.
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
}

/// Guest to host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromGuest {
    /// The room stands, and this is what is in force.
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
}

/// Guest to launcher. Beside it: stdin, stdout, stderr.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToLauncher {
    Launch {
        command: u32,
        spec: CommandSpec,
    },
    /// Beside it, in place of the stdio: the clerk's channel.
    Clerk,
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
