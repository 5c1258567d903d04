//! How a command ended and what it used.

use serde::{Deserialize, Serialize};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// The status a shell would report: the code, or 128 + the signal.
    pub fn status(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

/// What was used, with how far the figure reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub cpu_micros: u64,
    /// Bytes: of the room's cgroup where there is one, else of the largest process.
    pub peak_memory: u64,
    /// How many processes the kernel killed because the room was out of memory.
    pub oom_kills: u64,
}

/// The guest's account of a command that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReport {
    pub exit: Exit,
    pub duration_micros: u64,
    pub usage: Usage,
}

/// The guest's account of a command of a durable room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReport {
    pub exit: Exit,
    pub timed_out: bool,
    /// Whether the kernel killed a process of the room for want of memory while the command ran.
    pub oom_killed: bool,
    pub duration_micros: u64,
    pub cpu_micros: u64,
    /// Bytes: of the largest process of the command.
    pub peak_memory: u64,
    /// Bytes that came out: of stdout, of stderr.
    pub written: [u64; 2],
}
