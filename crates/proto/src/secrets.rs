//! Secrets on their way to a guest: what commands are given as files, and what must not be seen in output.

use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::Zeroize;

/// A name and a value. It cannot be printed by accident, and is wiped when it goes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    pub name: String,
    pub value: Vec<u8>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({}, {} bytes)", self.name, self.value.len())
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

/// What a room is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gift {
    /// Looked for in all output from now on, beside what was before: a room never forgets what it has seen.
    pub redact: Vec<Secret>,
    /// All files under `/run/secrets` from now on, by name; without, they stay as they are.
    pub files: Option<Vec<Secret>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_not_printed() {
        let secret = Secret { name: "TOKEN".into(), value: b"hunter22".to_vec() };
        let gift = Gift { redact: vec![secret.clone()], files: Some(vec![secret]) };
        let printed = format!("{gift:?}");
        assert!(printed.contains("TOKEN") && !printed.contains("hunter22") && !printed.contains("104"));
    }
}
