//! The policy document: what a room may see, reach, use and know.
//!
//! A session has its own, in which a field that is not there takes the operator's default. What holds is the
//! *effective* policy: the session's fields over the defaults, none above the ceiling of the session's owner.

mod mounts;
mod network;
mod secrets;

pub use mounts::{
    AddMounts, DenialCode, MountDenial, MountKind, MountMode, MountOffer, MountPolicy, MountRequest,
    MountState, OfferedBase, OfferedMount, SessionMount, SessionMounts,
};
pub use network::{NetworkMode, NetworkPolicy, PortRule};
pub use secrets::{SecretPolicy, SecretScope};

use crate::{Enforced, Timestamp};
use serde::{Deserialize, Serialize};

/// What a room may see, reach, use and know.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Bytes, swap included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Thousandths of a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_milli: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Bytes that the room may write outside its mounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    /// Files and directories that the room may make outside its mounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// What the room writes is in memory, and gone with the room; `disk` and `inodes` hold there without any privilege.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<bool>,
    /// Bytes of `/dev/shm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm: Option<u64>,
    /// Layers that must be in force, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<String>,
    /// Layers that may be missing although they are required by default, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_missing: Vec<String>,
    /// Nothing is reached without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mounts: Option<MountPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretPolicy>,
}

impl Policy {
    /// This policy's fields, and the defaults' where it has none.
    pub fn over(&self, defaults: &Policy) -> Policy {
        let list = |own: &Vec<String>, default: &Vec<String>| {
            if own.is_empty() { default.clone() } else { own.clone() }
        };
        Policy {
            memory: self.memory.or(defaults.memory),
            cpus_milli: self.cpus_milli.or(defaults.cpus_milli),
            pids: self.pids.or(defaults.pids),
            open_files: self.open_files.or(defaults.open_files),
            disk: self.disk.or(defaults.disk),
            inodes: self.inodes.or(defaults.inodes),
            ephemeral: self.ephemeral.or(defaults.ephemeral),
            shm: self.shm.or(defaults.shm),
            require: list(&self.require, &defaults.require),
            allow_missing: list(&self.allow_missing, &defaults.allow_missing),
            network: self.network.clone().or_else(|| defaults.network.clone()),
            mounts: self.mounts.clone().or_else(|| defaults.mounts.clone()),
            secrets: self.secrets.clone().or_else(|| defaults.secrets.clone()),
        }
    }
}

/// The most that a user's sessions may be given. A field that is not there sets no bound.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Ceiling {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_milli: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm: Option<u64>,
    /// The widest mode; `off` is narrower than `allow`, `allow` than `open`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkMode>,
    /// Special addresses (private, loopback, link-local, metadata) that a policy may name, as ranges. None without it:
    /// a user who could name any would reach what listens on the host's loopback.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cidrs: Vec<String>,
    /// Layers that a policy may allow to be missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_missing: Vec<String>,
}

/// A session's policy, as it was set, as it holds, and what is really in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyView {
    /// Counts the changes, from 1.
    pub version: u64,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub changed: Timestamp,
    /// What the session's own document says.
    pub policy: Policy,
    /// With the operator's defaults, under the owner's ceiling.
    pub effective: Policy,
    /// What the owner's sessions may have at most. Not there for whom there is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Ceiling>,
    /// What is in force in the room: by layer, how. Empty without a room.
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::BTreeMap<String, Object>))]
    pub enforced: Enforced,
    /// Parts of the effective policy that the room does not have yet, and has after its next start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
}

/// What a caller's sessions are given unless they say otherwise, and the most that they may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerPolicy {
    pub defaults: Policy,
    /// Not there for whom there is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Ceiling>,
    /// Where it comes from; for admins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<OperatorStatus>,
}

/// The operator's file as it was last read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperatorStatus {
    pub path: String,
    pub exists: bool,
    /// When what holds was read.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub loaded: Timestamp,
    /// Why what is in the file now does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_not_there_takes_the_default() {
        let own = Policy { memory: Some(1), require: vec!["disk".into()], ..Policy::default() };
        let defaults =
            Policy { memory: Some(2), pids: Some(3), require: vec!["pids".into()], ..Policy::default() };
        let both = own.over(&defaults);
        assert_eq!((both.memory, both.pids), (Some(1), Some(3)));
        assert_eq!(both.require, ["disk"]);
        assert_eq!(Policy::default().over(&defaults), defaults);
    }
}
