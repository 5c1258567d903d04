//! The secrets part of a policy: which secrets a room is given, and as what.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whose a secret is. A name is looked for in the session's, then in its owner's, then in the global ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SecretScope {
    Global,
    User,
    Session,
}

/// Which secrets every command of a session is given, by name; values are nowhere in a policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct SecretPolicy {
    /// Environment variable to secret.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// File under `/run/secrets/` to secret.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Scopes all of whose secrets are injected as environment, each under its own name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inject: Vec<SecretScope>,
}
