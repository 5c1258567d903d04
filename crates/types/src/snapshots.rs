//! A session's past and its relatives: snapshots, forks, differences, merges.

use crate::{FileKind, NewToken, Session, Timestamp};
use serde::{Deserialize, Serialize};

/// The name of what a session was after it was seeded.
pub const BASELINE: &str = "baseline";
/// What a session is at this moment, where a name of a snapshot could be.
pub const NOW: &str = "now";

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TakeSnapshot {
    /// `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`; made up unless given. `baseline` and `now` are taken.
    pub name: Option<String>,
}

/// A moment of a session's files that can be gone back to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Snapshot {
    pub name: String,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created: Timestamp,
    /// The snapshot that the session stood on when this one was taken.
    pub parent: Option<String>,
    /// Bytes and entries that it has beyond what the session stood on; null until they are counted, a moment later.
    pub size: Option<u64>,
    pub entries: Option<u64>,
    /// Layers that it is made of.
    pub layers: u32,
    /// How long the processes of the room stood still for it.
    pub pause_ms: f64,
    /// How long it took to be on the disk.
    pub sync_ms: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SnapshotList {
    pub snapshots: Vec<Snapshot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ResetSession {
    /// The name of a snapshot; `baseline` unless told. `last` is the newest snapshot, or `baseline`.
    pub to: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ForkSession {
    /// 1 to 100; 1 unless told.
    pub count: Option<u32>,
    /// The forks' name; with more than one, `-1`, `-2` and so on follow it.
    pub name: Option<String>,
    /// `now`, `baseline` or a snapshot's name; `now` unless told.
    pub from: Option<String>,
    /// Start their rooms at once; else each starts with its first call.
    pub start: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fork {
    pub session: Session,
    /// For this session alone. Shown once.
    pub token: NewToken,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Forks {
    pub forks: Vec<Fork>,
    /// How long the processes of the source stood still for it.
    pub pause_ms: f64,
    pub sync_ms: f64,
}

/// Which difference.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct DiffQuery {
    /// `baseline`, `now`, a snapshot's name, or `SESSION:` and one of these for another session of the same lineage.
    /// `baseline` unless told.
    pub from: Option<String>,
    /// `now` unless told.
    pub to: Option<String>,
    /// Only below this path.
    pub path: String,
    /// With unified patches of text files.
    pub patch: bool,
    /// A directory that is wholly new is one entry.
    pub collapse: bool,
    /// The most entries; 1,000 unless told, 100,000 at most.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 100_000))]
    pub limit: Option<u32>,
    /// The whole room, not only the workspace.
    pub root: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DiffKind {
    Added,
    Modified,
    Deleted,
    TypeChanged,
    /// Only the permissions.
    Mode,
}

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DiffEntry {
    pub path: String,
    pub change: DiffKind,
    /// What it is now; of something deleted, what it was.
    #[serde(rename = "type")]
    pub kind: FileKind,
    pub old_size: Option<u64>,
    pub new_size: Option<u64>,
    pub old_mode: Option<String>,
    pub new_mode: Option<String>,
    /// A unified diff, if it was asked for and both sides are text that is small enough.
    pub patch: Option<String>,
    /// Entries below a directory that is given as one.
    pub below: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Diff {
    pub from: String,
    pub to: String,
    /// Sorted by path.
    pub entries: Vec<DiffEntry>,
    /// Entries beyond the limit: how many more there are.
    pub remainder: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MergeSide {
    /// As it is in the session that is merged into.
    Ours,
    /// As it is in the fork.
    Theirs,
}

/// Takes over what a relative has changed since the two parted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MergeSession {
    /// The other session.
    pub from: String,
    /// Say what would happen, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// What to do with a conflict at these paths.
    #[serde(default)]
    pub choices: std::collections::BTreeMap<String, MergeSide>,
    /// What to do with every other conflict; without, one conflict refuses the merge.
    pub prefer: Option<MergeSide>,
    /// End the processes of this session if any run; else that refuses the merge.
    #[serde(default)]
    pub restart: bool,
}

/// A path that both sides have changed, each in its own way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MergeConflict {
    pub path: String,
    /// What each side did to it.
    pub ours: DiffKind,
    pub theirs: DiffKind,
    /// Both sides between conflict marks, of text that is small enough.
    pub merged: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Merged {
    pub applied: bool,
    /// What changes in this session.
    pub changes: Vec<DiffEntry>,
    /// Conflicts that nothing was said about; none once it is applied.
    pub conflicts: Vec<MergeConflict>,
    /// Changes and conflicts beyond what one answer holds: how many more there are. They are merged all the same.
    pub remainder: u64,
}

/// Whether a session's files are what they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Digest {
    /// Of the files as they are: SHA-256 in hex.
    pub digest: String,
    /// Of the baseline.
    pub baseline: String,
    pub pristine: bool,
    /// Paths that differ from the baseline.
    pub changes: u64,
}

/// One session in the tree of its relatives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LineageNode {
    pub session: String,
    pub name: String,
    /// The session that it was forked from, and at which snapshot if at one.
    pub parent: Option<String>,
    pub at: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created: Timestamp,
    pub snapshots: Vec<String>,
}

/// Relatives that the caller may see; parents before children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lineage {
    pub nodes: Vec<LineageNode>,
}

/// What is no longer of use to any session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Garbage {
    pub dry_run: bool,
    /// Layers that no session and no snapshot is made of.
    pub layers: Vec<String>,
    pub bytes: u64,
}
