//! A session as its callers see it: what they ask for, what they are told.

use crate::{Enforced, Policy, RoomBinds, SessionMount, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a session stands.
///
/// ```text
///            ┌──────── create ────────┐
///            ▼                        ▼
///         queued ──a place is free─▶ starting ──▶ running ⇄ paused
///            │                        ▲  │           │        │
///            │                  start │  │ fails     └─ stop ─┤
///            │                        │  ▼                    ▼
///            │                     stopped ◀────────────── stopping
///            │                        │  failed ── start ─▶ starting
///            └───────── delete ───────┴────┴──▶ deleted   (from every state)
/// ```
///
/// `waiting_for_input` is `running` with a word from the caller that the session waits for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    Queued,
    Starting,
    Running,
    WaitingForInput,
    Paused,
    Stopping,
    Stopped,
    Failed,
    Deleted,
}

impl SessionState {
    pub const ALL: [SessionState; 9] = [
        Self::Queued,
        Self::Starting,
        Self::Running,
        Self::WaitingForInput,
        Self::Paused,
        Self::Stopping,
        Self::Stopped,
        Self::Failed,
        Self::Deleted,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::WaitingForInput => "waiting_for_input",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Deleted => "deleted",
        }
    }

    pub fn from_name(name: &str) -> Option<SessionState> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether it has, or is about to have, a room.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::WaitingForInput | Self::Paused | Self::Stopping)
    }
}

/// Where messages of a chat come from. Opaque text of up to 256 bytes each.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Channel {
    pub channel_type: String,
    pub platform_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

/// What happens to a session whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    #[default]
    Stop,
    Pause,
    Delete,
}

/// What has happened in a session so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Counters {
    /// Commands that were started.
    pub execs: u64,
    /// Rooms that the session has had.
    pub starts: u64,
}

fn one() -> u64 {
    1
}

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Session {
    pub id: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub owner: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// What the room's file system starts from.
    pub template: String,
    pub policy: Policy,
    /// Counts the policy's changes, from 1.
    #[serde(default = "one")]
    pub policy_version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub policy_changed: Option<Timestamp>,
    /// The effective policy that the room was started with; only in records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub room_policy: Option<Box<Policy>>,
    /// Directories of the host that it has, or will have in its next room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<SessionMount>,
    /// How those of the room were made; only in records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub room_binds: Option<Box<RoomBinds>>,
    pub state: SessionState,
    /// Why it failed, or why it was stopped without being asked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created: Timestamp,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub last_active: Timestamp,
    /// Seconds after its creation at which it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    /// Seconds without a request and without work after which it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<u64>,
    pub on_expiry: OnExpiry,
    /// Whether a quiet process, such as a server that waits, counts as activity.
    pub keep_alive: bool,
    /// What is in force in its room: by layer, how. Empty without a room.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Object>))]
    pub enforced: Enforced,
    pub counters: Counters,
    /// How often its files were put back to an earlier moment.
    #[serde(default)]
    pub reset_count: u64,
    /// The session that it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The pool that it is a slot of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// What a caller says about a session to be.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CreateSession {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// With an admin token: on whose behalf. Else one's own name, which is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The caller's own: the same owner and key give the same session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_expiry: Option<OnExpiry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<bool>,
    /// False: the session is made stopped, and its room comes with the first call that needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<bool>,
}

/// What may be changed of a session; what is absent stays as it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct UpdateSession {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Replaces all labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Takes effect with the next room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// 0 takes it away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    /// 0 takes it away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_expiry: Option<OnExpiry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<bool>,
    /// Says that the session waits for a person, until something is next asked of its room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for_input: Option<bool>,
}

/// How a chat's place maps to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResolveMode {
    /// One for each group and channel, whatever the thread.
    Shared,
    PerThread,
    /// One for each group.
    GroupShared,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResolveSession {
    pub group: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    pub mode: ResolveMode,
    /// With an admin token: on whose behalf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What the session is made with, if it has to be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<CreateSession>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Resolved {
    pub session: Session,
    pub created: bool,
}

/// Which sessions to list, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct ListSessions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<SessionState>,
    /// `key=value`, or `key` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Those of the pool with this name; `*`: also those of pools. Without, those of no pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// 1 to 1000; 100 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    pub limit: Option<u32>,
    /// `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(pattern = "^[0-9]{1,18}[.][a-z0-9-]{1,64}$"))]
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionPage {
    pub sessions: Vec<Session>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
