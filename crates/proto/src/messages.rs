//! The messages themselves. Append variants; never reorder or reuse them.

use serde::{Deserialize, Serialize};
use workroom_types::{CommandSpec, Enforced, ExitReport, RoomError, RoomSpec, TerminalSize};

/// Host to spawner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToSpawner {
    /// Build a room. Beside it: the guest's end of the control socket.
    Create(Box<RoomSpec>),
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
}

/// Guest to launcher. Beside it: stdin, stdout, stderr.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToLauncher {
    Launch { command: u32, spec: CommandSpec },
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
    },
    NotLaunched {
        command: u32,
        error: LaunchError,
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
