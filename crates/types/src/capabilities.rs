//! What a server can do on the machine that it is on.

use crate::Enforced;
use serde::{Deserialize, Serialize};

/// Found by building a room once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Capabilities {
    pub version: String,
    /// `root` or `rootless`.
    pub privilege: String,
    /// By layer, how it is enforced in a room of the default policy.
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::BTreeMap<String, Object>))]
    pub enforced: Enforced,
    /// How a command's tree is ended: `label`.
    pub tree_kill: String,
    /// How a session is paused: `cgroup` or `signals`.
    pub freezer: String,
    /// How a new session's disk is limited if its policy asks for it: `project quota`, `quota of a btrfs subvolume`,
    /// `ext4 image of the layer's own`, or `advisory` and why.
    #[serde(default)]
    pub session_disk: String,
}
