//! What an environment variable that carries a secret may be called.

use crate::reserved;
use serde::{Deserialize, Serialize};
use std::fmt;
use workroom_redact::{NameError, checked_name};

/// The name of an environment variable that carries a secret: a name as a secret's, and none that a shell, the loader
/// or an interpreter takes for its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EnvironmentName(String);

impl EnvironmentName {
    pub fn new(name: impl Into<String>) -> Result<EnvironmentName, NameError> {
        let name = checked_name(name.into())?;
        match reserved::reason(&name) {
            Some(reason) => Err(NameError::Reserved { name, reason }),
            None => Ok(EnvironmentName(name)),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EnvironmentName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl TryFrom<String> for EnvironmentName {
    type Error = NameError;
    fn try_from(name: String) -> Result<EnvironmentName, NameError> {
        EnvironmentName::new(name)
    }
}

impl std::str::FromStr for EnvironmentName {
    type Err = NameError;
    fn from_str(name: &str) -> Result<EnvironmentName, NameError> {
        EnvironmentName::new(name)
    }
}

impl From<EnvironmentName> for String {
    fn from(name: EnvironmentName) -> String {
        name.0
    }
}
