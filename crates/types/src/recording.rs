//! Recordings of a session's processes, as their caller is told about them.

use crate::{ProcessKind, Timestamp};
use serde::{Deserialize, Serialize};

/// A recording's life.
///
/// ```text
///  recording ──the process's end──▶ ended
///      ├──a limit on its size──▶ cut
///      └──the server's end, and nobody has gone on with it──▶ unfinished
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RecordingState {
    #[default]
    Recording,
    Ended,
    /// A limit was reached; the last event is a marker that says which. The process went on without it.
    Cut,
    /// What came after its last event is lost.
    Unfinished,
}

/// What a process showed, with times.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Recording {
    /// The id of the process, which may be forgotten by now.
    pub process: String,
    pub kind: ProcessKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub command: String,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub started: Timestamp,
    pub state: RecordingState,
    /// From the process's start to the last event.
    pub duration_ms: u64,
    pub bytes: u64,
    pub events: u64,
    /// Bytes of output that were dropped before they could be recorded; markers are where they are missing.
    pub missing: u64,
    /// The terminal's size at the end; of a process without a terminal, what a player is to have.
    pub cols: u16,
    pub rows: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecordingList {
    /// The newest first.
    pub recordings: Vec<Recording>,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// A version of asciicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum CastFormat {
    #[default]
    V3,
    /// For older players. It has no place for how the process ended.
    V2,
}

/// A place of interest in a recording.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AddMarker {
    /// Up to 1000 bytes.
    pub label: String,
}
