//! What a secret may be called.

use serde::{Deserialize, Serialize};
use std::fmt;

const LONGEST: usize = 64;

/// The name of a secret: `[A-Za-z_][A-Za-z0-9_]{0,63}`. It is no secret itself, and appears in `[REDACTED:name]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "\"{}\" cannot be a secret's name; use 1 to {LONGEST} letters, digits and underscores, the first no digit",
        shown(.name)
    )]
    Malformed { name: String },
    #[error("the variable {name} cannot carry a secret: {reason}; use another name")]
    Reserved { name: String, reason: &'static str },
}

impl NameError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            NameError::Malformed { .. } => "secret_name_malformed",
            NameError::Reserved { .. } => "secret_name_reserved",
        }
    }
}

impl SecretName {
    pub fn new(name: impl Into<String>) -> Result<SecretName, NameError> {
        checked_name(name.into()).map(SecretName)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What holds for every name: letters, digits and underscores, the first no digit, not too many.
pub fn checked_name(name: String) -> Result<String, NameError> {
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let rest = bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if first && rest && name.len() <= LONGEST { Ok(name) } else { Err(NameError::Malformed { name }) }
}

/// Escaped and short: whoever mistakes the value for the name should not find all of it in a log.
fn shown(name: &str) -> String {
    const MOST: usize = 16;
    let start: String = name.chars().take(MOST).flat_map(char::escape_default).collect();
    if name.chars().count() > MOST { format!("{start}…") } else { start }
}

impl fmt::Display for SecretName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl TryFrom<String> for SecretName {
    type Error = NameError;
    fn try_from(name: String) -> Result<SecretName, NameError> {
        SecretName::new(name)
    }
}

impl std::str::FromStr for SecretName {
    type Err = NameError;
    fn from_str(name: &str) -> Result<SecretName, NameError> {
        SecretName::new(name)
    }
}

impl From<SecretName> for String {
    fn from(name: SecretName) -> String {
        name.0
    }
}
