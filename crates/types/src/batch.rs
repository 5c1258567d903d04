//! Many things asked at once, of any sessions: each answered as its own route would answer it.

use crate::{Encoding, Problem};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What can be asked in a batch. `args` are those of the route that does the same, with what that route has in its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum BatchTool {
    /// ExecRequest, to ExecResult.
    Exec,
    /// RunInShell with `shell`, which is `default` unless told, to ShellResult.
    Shell,
    /// ReadFile with `path`, to FileContent; `encoding` is `text` unless told.
    Read,
    /// WriteText, to FileInfo.
    Write,
    /// ListFiles, to FileList.
    List,
    /// EditFile, to Edited.
    Edit,
    /// ApplyPatch, to Patched.
    Patch,
    /// SearchFiles, to SearchResult.
    Search,
    /// TerminalInput with `terminal` and `wait_ms`, to InputTaken.
    Keys,
    /// `terminal`, `scrollback` and `attributes`, to TerminalScreen.
    Screen,
}

impl BatchTool {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Shell => "shell",
            Self::Read => "read",
            Self::Write => "write",
            Self::List => "list",
            Self::Edit => "edit",
            Self::Patch => "patch",
            Self::Search => "search",
            Self::Keys => "keys",
            Self::Screen => "screen",
        }
    }
}

/// One thing to do: in a session, or in the slot that a trajectory has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchItem {
    /// The caller's own, and told again with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<SlotOf>,
    pub tool: BatchTool,
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub args: Map<String, Value>,
    /// For a command, its time-out, unless `args` have one; for anything else, how long it is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The slot that a trajectory has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SlotOf {
    pub pool: String,
    pub trajectory: String,
    /// With an admin token: whose pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// A file to write, as JSON has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WriteText {
    pub path: String,
    pub content: String,
    /// How `content` is written.
    #[serde(default)]
    pub encoding: Encoding,
    /// Add to the end of what is there.
    #[serde(default)]
    pub append: bool,
    /// Permissions in octal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Only over the file with this etag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_match: Option<String>,
    /// Only where there is none.
    #[serde(default)]
    pub if_none: bool,
    #[serde(default)]
    pub sync: bool,
    /// The path is of the whole room, not of the workspace.
    #[serde(default)]
    pub root: bool,
}

/// What became of one item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchResult {
    /// Its place in the request, from 0.
    pub index: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub ok: bool,
    /// What its own route would have answered.
    pub status: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub result: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchResults {
    /// In the order of the request.
    pub results: Vec<BatchResult>,
}
