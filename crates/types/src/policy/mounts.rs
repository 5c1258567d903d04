//! The mounts part of a policy: which of the operator's directories a room sees.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MountMode {
    #[default]
    Ro,
    Rw,
}

/// Which directories of the host a room sees, of those that the operator offers to its owner.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct MountPolicy {
    /// Whether the room has `/workspace/external`; yes, unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<bool>,
    /// Whether the room has its owner's `/workspace/persistent`; yes, where the operator has set one up, unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
    /// Asked for by the session; all of them are granted, or none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dynamic: Vec<MountRequest>,
    /// Protected files of writable host directories that the room may change after all, such as `.git/config`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unprotect: Vec<String>,
}

/// A directory beneath one of the operator's bases, at `/workspace/<alias>`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MountRequest {
    pub alias: String,
    pub base: String,
    /// Beneath the base; the base itself without it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subpath: String,
    #[serde(default)]
    pub mode: MountMode,
}
