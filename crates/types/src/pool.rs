//! Pools of slots: sessions that are handed to trajectories one after the other, each as if it were new.

use crate::{Policy, Timestamp};
use serde::{Deserialize, Serialize};

/// What a pool is to be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// What the rooms' file system starts from; `host` unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// What the rooms may reach and use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// The files that every trajectory finds; none of its own, without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<PoolSeed>,
    /// Slots that are there whether anybody wants them or not; 0 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// The most slots that there are at once.
    pub max: u32,
    /// Seconds after which a slot beyond `min` that nobody wanted goes; 300 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<PoolReset>,
}

/// A moment of a session of the same owner. What becomes of that session later changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PoolSeed {
    pub session: String,
    /// The snapshot, or `baseline`; without, as it is when the pool is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// How a slot is made as new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PoolReset {
    /// What is looked at before a room is given to anybody.
    pub check: PoolCheck,
    /// Rooms that are kept ready beside the slots, for those that are released; a quarter of `max`, from 2 to
    /// 16, unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spares: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PoolCheck {
    /// That the room stands on the seed's layers, and that nothing was written over them.
    #[default]
    Layers,
    /// The same, and that what is in those layers has the digest that it had when the pool was set. Takes as long as
    /// there are files.
    Digest,
}

/// Where a slot stands.
///
/// ```text
///              ┌──────────────── a room is made, and found to be new ─┐
///              │                                                      │
///          resetting ──cannot be made──▶ error ──tried again──▶ resetting
///              │  ▲
///   it is new  │  │ released, or its lease is over, or it was asked for
///              ▼  │
///          available ──acquire──▶ acquired ⇄ executing   (while a command runs in it)
///              │                      │
///              └── found not to be as it should ──▶ resetting
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SlotState {
    Available,
    Acquired,
    Executing,
    Resetting,
    Error,
}

impl SlotState {
    pub const ALL: [SlotState; 5] =
        [Self::Available, Self::Acquired, Self::Executing, Self::Resetting, Self::Error];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Acquired => "acquired",
            Self::Executing => "executing",
            Self::Resetting => "resetting",
            Self::Error => "error",
        }
    }
}

/// One slot of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Slot {
    pub slot: u32,
    pub state: SlotState,
    /// The session that it is now. Another one after every reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Who has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trajectory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub lease_end: Option<Timestamp>,
    /// How often it was handed out.
    pub uses: u64,
    /// What went wrong, of one in `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How many slots are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SlotCounts {
    pub available: u32,
    pub acquired: u32,
    pub executing: u32,
    pub resetting: u32,
    pub error: u32,
}

impl SlotCounts {
    pub fn count(&mut self, state: SlotState) {
        *match state {
            SlotState::Available => &mut self.available,
            SlotState::Acquired => &mut self.acquired,
            SlotState::Executing => &mut self.executing,
            SlotState::Resetting => &mut self.resetting,
            SlotState::Error => &mut self.error,
        } += 1;
    }

    pub fn all(&self) -> u32 {
        self.available + self.acquired + self.executing + self.resetting + self.error
    }
}

/// What a pool has done since the server started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PoolMetrics {
    /// Leases that began.
    pub acquired: u64,
    /// Leases that were given back, and leases that ended by themselves.
    pub released: u64,
    pub expired: u64,
    /// Calls that got no slot in the time that they had.
    pub refused: u64,
    /// Slots that were made as new, and rooms that could not be made or were not as they should be.
    pub resets: u64,
    pub failures: u64,
    /// Milliseconds of the last thousand waits, until a slot was answered; and of the last thousand resets, until a slot had
    /// another room that can be handed out.
    pub wait_ms_p50: f64,
    pub wait_ms_p99: f64,
    pub reset_ms_p50: f64,
    pub reset_ms_p99: f64,
    /// The share of slots that somebody has now.
    pub utilisation: f64,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PoolSummary {
    pub name: String,
    pub owner: String,
    pub spec: PoolSpec,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created: Timestamp,
    pub states: SlotCounts,
    /// Rooms that are ready beside the slots.
    pub spares: u32,
    /// Calls that wait for a slot.
    pub waiting: u32,
    pub metrics: PoolMetrics,
}

/// A pool, with all its slots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pool {
    #[serde(flatten)]
    pub summary: PoolSummary,
    pub slots: Vec<Slot>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PoolList {
    /// By name.
    pub pools: Vec<PoolSummary>,
}

/// Whose pool is meant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct PoolOwner {
    /// With an admin token: whose pool. Else one's own name, which is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(min_length = 1, max_length = 256, pattern = "^[^\\u0000]*$"))]
    pub owner: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AcquireSlot {
    /// The caller's own: who has a slot is given the same one again.
    pub trajectory: String,
    /// Milliseconds to wait for one; 10000 unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Milliseconds that the slot is its own for; 600000 unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReleaseSlot {
    pub trajectory: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Released {
    /// False: the trajectory had no slot, or no longer.
    pub released: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExtendLease {
    pub trajectory: String,
    /// Milliseconds from now on.
    pub lease_ms: u64,
}

/// A slot that a trajectory has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lease {
    pub pool: String,
    pub slot: u32,
    /// The session to work in. Nobody else has had it before, and nobody has it afterwards.
    pub session: String,
    pub trajectory: String,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub lease_end: Timestamp,
    /// How long it was waited for.
    pub waited_ms: f64,
}
