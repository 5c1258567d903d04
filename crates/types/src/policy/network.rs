//! The network part of a policy: `off`, `allow` what is named, or `open` to every public address.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode {
    #[default]
    Off,
    /// What is named, and nothing else.
    Allow,
    /// Every public address.
    Open,
}

/// What a room may reach. Private, loopback, link-local and metadata addresses are denied in every mode unless
/// `cidrs` names them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NetworkPolicy {
    pub mode: NetworkMode,
    /// With `allow`: names, exact or `*.example.org` for all below one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
    /// Ports that may be dialled; every port without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<PortRule>>,
    /// Addresses that may be dialled by number, and special addresses that names may lead to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cidrs: Vec<String>,
}

/// `443`, or `"8000-8100"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum PortRule {
    Number(u16),
    Range(String),
}
