//! Stateful shells: commands are given to one after the other, and what each leaves behind is there for the next.

use crate::{Encoding, ProcessExit, RoomUser, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which program reads the commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ShellKind {
    Bash,
    Sh,
}

impl ShellKind {
    pub fn name(self) -> &'static str {
        match self {
            ShellKind::Bash => "bash",
            ShellKind::Sh => "sh",
        }
    }
}

/// A shell to make.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CreateShell {
    /// bash where the room has one, else sh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellKind>,
    /// Where it begins, and where its replacement would; `/workspace` unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Environment variable to secret, by name: of the session, of its owner, or of all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub user: Option<RoomUser>,
    /// Stands for its id wherever that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether its output is recorded with times, with a marker for each command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<bool>,
}

/// A shell's life.
///
/// ```text
///  ready ◀──▶ busy      with each command
///    └──▶ ended ◀──┘    by itself, by a command, or because it could not be saved
///          └──▶ ready   by the next command, which says `replaced`
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ShellState {
    #[default]
    Ready,
    Busy,
    Ended,
}

/// A shell of a session. Its process is in the process table under the same id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Shell {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub shell: ShellKind,
    pub state: ShellState,
    /// Where its last command left it, as far as this server knows; where it began before there was one.
    pub cwd: String,
    pub user: String,
    /// As the room numbers it.
    pub pid: i32,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub started: Timestamp,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ProcessExit>,
    /// Why, where it did not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub record: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShellList {
    /// The newest first.
    pub shells: Vec<Shell>,
}

/// A command for a shell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RunInShell {
    /// As it would be typed: any number of lines.
    pub command: String,
    /// After so long the command is interrupted, then killed; the shell stays if that can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Bytes given of each stream: the first and the last half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// How `output` and `stderr` are written in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// Further values that must not be seen in the output of the shell from now on, each of at least four bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact_values: Vec<String>,
}

/// What one command did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShellResult {
    /// What was written to stdout while it ran, by it and by what runs in the shell's background.
    pub output: String,
    pub stderr: String,
    pub encoding: Encoding,
    /// The command's own; the shell's if that ended; 128 + n for signal n; 124 after a time-out.
    pub exit_code: i32,
    /// Where the shell is afterwards.
    pub cwd: String,
    pub duration_ms: u64,
    pub timed_out: bool,
    /// Whether something of either stream is missing; a line in its place says how much.
    pub truncated: bool,
    /// Whether bytes that are no UTF-8 were replaced; ask for `base64` to have them.
    pub lossy: bool,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub shell: ShellOutcome,
}

/// What became of the shell that a command was given to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShellOutcome {
    pub id: String,
    /// It ended with this command; the next command gets a new one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ended: bool,
    /// The one before had ended: this command had a new one, without the state of that.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replaced: bool,
    /// Why it ended, or why the one before did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}
