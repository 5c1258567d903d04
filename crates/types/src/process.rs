//! A session's processes, as their caller asks for them and is told about them: plain ones, terminals, shells, services.

use crate::{Encoding, RoomUser, TerminalSize, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a process is for. All are in one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProcessKind {
    #[default]
    Process,
    /// A shell on a PTY.
    Terminal,
    /// A shell that commands are given to one after the other.
    Shell,
    /// A long-running command with readiness.
    Service,
}

/// A process's life.
///
/// ```text
///  running ──its end──▶ exited
///     └──its room's end──▶ lost
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    #[default]
    Running,
    Exited,
    /// Its room ended, and it with it.
    Lost,
}

/// What a process reads from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum ProcessStdin {
    /// True: what is written to it later. False: nothing.
    Open(bool),
    /// This, and then the end.
    Text(String),
}

/// The size of a terminal; what is left out is 120 columns and 40 rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PtySize {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
}

/// A process to start: `command` for a shell, or `argv` as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct StartProcess {
    /// Given to `/bin/bash -c`, or `/bin/sh -c` where there is no bash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// A directory of the room; `/workspace` unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Environment variable to secret, by name: of the session, of its owner, or of all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_env: BTreeMap<String, String>,
    /// Further values that must not be seen in its output, each of at least four bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redact_values: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub user: Option<RoomUser>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<ProcessStdin>,
    /// Gives it a terminal, which is then all of its stdio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pty: Option<PtySize>,
    /// After so long it is ended, with everything that it started. Without, it may run for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The caller's own word for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Whether its output is recorded with times; a terminal's is unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<bool>,
    /// Whether what is written to it is recorded too: also what it does not show, such as passwords. Not unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_input: Option<bool>,
    /// Bytes of output that are kept: the last ones. 16 MiB unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_output: Option<u64>,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessExit {
    /// The process's own; 128 + n for signal n; 124 after a time-out.
    pub code: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub timed_out: bool,
    /// Whether the kernel killed a process of the room for want of memory while this one ran.
    pub oom_killed: bool,
    pub duration_ms: u64,
    pub cpu_ms: u64,
    /// Bytes: of the largest process of the command.
    pub peak_memory: u64,
}

/// One stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamCount {
    /// Bytes that were ever written to it.
    pub written: u64,
    /// Of these, the first ones, which are not kept any more.
    pub dropped: u64,
}

/// An entry of a session's process table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Process {
    pub id: String,
    pub kind: ProcessKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// As the room numbers it.
    pub pid: i32,
    /// What runs, as far as it is kept.
    pub command: String,
    pub cwd: String,
    pub user: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<PtySize>))]
    pub pty: Option<TerminalSize>,
    /// Whether it can be written to.
    pub stdin: bool,
    pub state: ProcessState,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub started: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub ended: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ProcessExit>,
    /// Why it was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub stdout: StreamCount,
    /// Of a terminal nothing: all that it writes is stdout.
    pub stderr: StreamCount,
    /// Bytes of output that are kept.
    pub keep_output: u64,
    /// Whether its output is recorded with times.
    #[serde(default)]
    pub record: bool,
    /// Whether what is written to it is recorded too.
    #[serde(default)]
    pub record_input: bool,
}

/// A session's process table, and what is in its room.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessTable {
    /// Those that were started through the API, the newest first.
    pub processes: Vec<Process>,
    /// All that are in the room now, whoever started them.
    pub in_room: Vec<crate::ProcessInfo>,
}

/// Which stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    #[default]
    Stdout,
    Stderr,
}

/// A part of a process's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutputPage {
    pub stream: OutputStream,
    /// Where `data` begins: behind the cursor that was asked for, if bytes there are not kept any more.
    pub cursor: u64,
    /// Where to go on.
    pub next_cursor: u64,
    /// Bytes between the cursor that was asked for and `cursor`, which are not kept any more.
    pub missing: u64,
    /// Whether `missing` is more than nothing.
    pub truncated: bool,
    pub data: String,
    pub encoding: Encoding,
    /// Whether bytes that are no UTF-8 were replaced; ask for `base64` to have them.
    pub lossy: bool,
    /// Whether there will never be more behind `next_cursor`.
    pub end: bool,
}

/// What became of input for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InputTaken {
    /// Bytes that the process's input had space for, the first ones.
    pub written: u64,
    /// Whether that was all.
    pub complete: bool,
}

/// Who gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SignalTo {
    /// The process and those of its group.
    #[default]
    Group,
    Process,
    /// The process and everything that it started, wherever that is: with KILL only.
    Tree,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SendSignal {
    /// HUP INT QUIT TERM KILL USR1 USR2 WINCH STOP CONT, with or without SIG.
    pub signal: String,
    #[serde(default)]
    pub to: SignalTo,
}

/// A port that something in a room listens on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListeningPort {
    pub port: u16,
    /// The address that it listens on.
    pub address: String,
    /// Who listens, as the room numbers it, and its name; unknown for one that hides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}
