//! Secrets, as callers set them and see them: everything but their values.

use crate::{Encoding, SecretScope, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A value to keep. It is never given back.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// Up to 64 KiB.
    pub value: String,
    /// How `value` is written; text, unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
}

impl fmt::Debug for SetSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SetSecret({} bytes)", self.value.len())
    }
}

/// What is known of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecretInfo {
    pub name: String,
    pub scope: SecretScope,
    /// With the scope `user`: whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// With the scope `session`: of which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Counts the values that it has had, from 1.
    pub version: u64,
    /// When this version was set.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created: Timestamp,
    /// When it is set: whether it is looked for in output. What has less than four bytes is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecretList {
    /// By scope and name.
    pub secrets: Vec<SecretInfo>,
}

/// What a rotation of the master key came to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Rotated {
    /// The id of the key that seals now; it tells nothing of the key.
    pub key: String,
    /// Secrets that were sealed again.
    pub resealed: u64,
    /// Secrets that do not open, and stay as they are.
    pub unreadable: u64,
}
