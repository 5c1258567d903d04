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

/// Where a directory of the host in a room comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MountKind {
    /// Of the operator, at `/workspace/external/…`.
    External,
    /// The owner's own, at `/workspace/persistent`.
    Persistent,
    /// Asked for, at `/workspace/<alias>`.
    Dynamic,
    /// At the place that it has on the host.
    Original,
}

/// What has become of a directory that a session was granted.
///
/// ```text
///  (granted) ──▶ Waiting ──the room starts──▶ Mounted ──the room ends──▶ Waiting
///                   └──── what it names is not there, or not allowed any more ──▶ Missing ──next start──▶ …
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MountState {
    /// It will be there in the next room.
    #[default]
    Waiting,
    Mounted,
    /// The room does without it; `reason` says why.
    Missing,
}

/// A directory of the host that a session has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionMount {
    /// In the room.
    pub place: String,
    pub kind: MountKind,
    /// The alias, or the operator's name for it; empty for what has neither.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Of a dynamic one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subpath: String,
    pub mode: MountMode,
    pub state: MountState,
    /// Why it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<DenialCode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// On the host. Only for the session's owner, and for admins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
}

/// Why a directory of the host is not given to a room. Programs may match on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DenialCode {
    /// The operator offers no mounts.
    FeatureDisabled,
    BaseNotFound,
    NotAuthorized,
    /// Something in the path that paths do not have, such as `..`, or that the operator has forbidden.
    DangerousPattern,
    InvalidCharacters,
    MaxDepthExceeded,
    /// The operator blocks it in every base.
    GlobalBlocked,
    NotInAllowlist,
    BlockedByBase,
    ModeExceedsMax,
    PathNotFound,
    /// A link on the way: it is not followed, wherever it leads.
    PathEscape,
    ResolutionFailed,
    TooMany,
    DuplicateAlias,
    ReservedAlias,
    /// The session has a mount of that alias, or its room has something of its own at that place.
    AlreadyExists,
}

impl DenialCode {
    pub const ALL: [DenialCode; 17] = [
        Self::FeatureDisabled,
        Self::BaseNotFound,
        Self::NotAuthorized,
        Self::DangerousPattern,
        Self::InvalidCharacters,
        Self::MaxDepthExceeded,
        Self::GlobalBlocked,
        Self::NotInAllowlist,
        Self::BlockedByBase,
        Self::ModeExceedsMax,
        Self::PathNotFound,
        Self::PathEscape,
        Self::ResolutionFailed,
        Self::TooMany,
        Self::DuplicateAlias,
        Self::ReservedAlias,
        Self::AlreadyExists,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::FeatureDisabled => "feature_disabled",
            Self::BaseNotFound => "base_not_found",
            Self::NotAuthorized => "not_authorized",
            Self::DangerousPattern => "dangerous_pattern",
            Self::InvalidCharacters => "invalid_characters",
            Self::MaxDepthExceeded => "max_depth_exceeded",
            Self::GlobalBlocked => "global_blocked",
            Self::NotInAllowlist => "not_in_allowlist",
            Self::BlockedByBase => "blocked_by_base",
            Self::ModeExceedsMax => "mode_exceeds_max",
            Self::PathNotFound => "path_not_found",
            Self::PathEscape => "path_escape",
            Self::ResolutionFailed => "resolution_failed",
            Self::TooMany => "too_many",
            Self::DuplicateAlias => "duplicate_alias",
            Self::ReservedAlias => "reserved_alias",
            Self::AlreadyExists => "already_exists",
        }
    }
}

/// One request that was denied, in the `report` of the problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MountDenial {
    pub code: DenialCode,
    pub alias: String,
    /// What is wrong with it, and what to do.
    pub detail: String,
}

/// Directories to be mounted into a session: all of them, or none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AddMounts {
    pub mounts: Vec<MountRequest>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionMounts {
    pub mounts: Vec<SessionMount>,
}

/// What a caller's sessions are given, and may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MountOffer {
    pub enabled: bool,
    /// What may be asked for.
    pub bases: Vec<OfferedBase>,
    /// What every session of the caller gets.
    pub given: Vec<OfferedMount>,
    /// Dynamic mounts that one session may have.
    pub max_per_session: u64,
    pub max_depth: u64,
    pub reserved_aliases: Vec<String>,
    /// What stays read-only in writable directories, unless the session's policy unprotects it.
    pub protected: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OfferedBase {
    pub name: String,
    pub max_mode: MountMode,
    /// Patterns of sub-paths that may be asked for; all, without.
    pub allow: Vec<String>,
    pub block: Vec<String>,
    /// What may be asked for although it is blocked.
    pub except: Vec<String>,
    /// On the host. Not for a session's own token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OfferedMount {
    pub place: String,
    pub kind: MountKind,
    pub mode: MountMode,
    /// Whether a session does not start without it.
    pub required: bool,
    /// On the host. Not for a session's own token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_written_as_it_is_called() {
        for code in DenialCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
