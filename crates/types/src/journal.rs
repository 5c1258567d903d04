//! What is kept about a session beside its room: its journal and its private files.

use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// One line of a session's journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JournalEntry {
    /// Its place among all entries of this server; the id of its event.
    pub position: i64,
    pub session: String,
    /// Its place in the session's journal, from 1.
    pub seq: i64,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: Timestamp,
    /// Who: a token's id, a local user, or `server`.
    pub actor: String,
    /// `session.created`, `exec.finished`, `caller.NAME`, …
    pub kind: String,
    pub body: serde_json::Value,
    /// Over this entry and the hash before it.
    pub hash: String,
}

/// What a caller adds to a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AppendEvent {
    /// `[a-z0-9][a-z0-9._-]{0,63}`; the journal has it as `caller.KIND`.
    pub kind: String,
    #[serde(default)]
    pub body: serde_json::Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JournalPage {
    pub entries: Vec<JournalEntry>,
    /// `after` of the next page; absent when there is nothing more yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// A private file of a session: kept beside it, out of its room's reach, deleted with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrivateFile {
    pub name: String,
    pub size: u64,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub modified: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrivateFiles {
    pub files: Vec<PrivateFile>,
}
