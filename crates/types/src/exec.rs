//! One command of a session, as its caller asks for it and is told about it.

use crate::RoomUser;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// UTF-8; bytes that are not become U+FFFD, and `lossy` says so.
    #[default]
    Text,
    Base64,
}

/// A command to run: `command` for a shell, or `argv` as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ExecRequest {
    /// Given to `/bin/bash -c`, or `/bin/sh -c` where there is no bash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// A login shell, with `command`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<bool>,
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
    pub stdin: Option<String>,
    /// How `stdin` is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin_encoding: Option<Encoding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub user: Option<RoomUser>,
    /// Bytes kept of each stream: the first and the last half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// How `stdout` and `stderr` are written in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecResult {
    /// The command's own; 128 + n for signal n; 124 after a time-out.
    pub exit_code: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub oom_killed: bool,
    pub stdout: String,
    pub stderr: String,
    pub encoding: Encoding,
    /// Whether something of either stream is missing; a line in its middle says how much.
    pub truncated: bool,
    /// Whether bytes that are no UTF-8 were replaced; ask for `base64` to have them.
    pub lossy: bool,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub duration_ms: u64,
    pub cpu_ms: u64,
    /// Bytes: of the largest process of the command.
    pub peak_memory: u64,
}

/// What an event stream of a command carries, beside chunks of `stdout` and `stderr`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecChunk {
    /// Where in the stream the chunk begins.
    pub offset: u64,
    pub data: String,
    pub encoding: Encoding,
    /// Bytes before this chunk that were dropped because the reader was too slow.
    #[serde(default)]
    pub missing: u64,
}

/// A process that is in a room now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessInfo {
    /// As the room numbers it.
    pub pid: i32,
    pub parent: i32,
    pub user: u32,
    /// R, S, D, T, Z, as `ps` has it.
    pub state: String,
    pub command: String,
    pub cpu_ms: u64,
    /// Bytes in memory now.
    pub memory: u64,
}
