//! Who may do what: tokens and the callers they stand for.

use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// How far a token reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "scope")]
pub enum Scope {
    /// Everything, on anybody's behalf.
    Admin,
    /// The sessions of one owner.
    User { owner: String },
    /// One session.
    Session { session: String, owner: String },
}

/// Who calls: what a token or a socket's peer stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// What the journal calls it: `token:ID` or `local:UID`.
    pub name: String,
    pub scope: Scope,
    pub read_only: bool,
}

impl Caller {
    /// Whose sessions it makes.
    pub fn owner(&self) -> &str {
        match &self.scope {
            Scope::Admin => "admin",
            Scope::User { owner } | Scope::Session { owner, .. } => owner,
        }
    }

    pub fn is_admin(&self) -> bool {
        self.scope == Scope::Admin
    }

    pub fn may_see(&self, session: &str, owner: &str) -> bool {
        match &self.scope {
            Scope::Admin => true,
            Scope::User { owner: own } => own == owner,
            Scope::Session { session: own, .. } => own == session,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// `admin`, `user` or `session`.
    pub scope: TokenScope,
    /// For `user`: whose sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// For `session`: which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default)]
    pub read_only: bool,
    /// Seconds until it expires; never, without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// For people: up to 120 characters.
    #[serde(default)]
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TokenScope {
    Admin,
    User,
    Session,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenInfo {
    pub id: String,
    pub name: String,
    pub scope: TokenScope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub read_only: bool,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub expires: Option<Timestamp>,
}

/// A new token: the only time that its secret is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewToken {
    #[serde(flatten)]
    pub info: TokenInfo,
    /// What goes behind `Authorization: Bearer`. Absent when the answer is a repetition of an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenList {
    pub tokens: Vec<TokenInfo>,
}
