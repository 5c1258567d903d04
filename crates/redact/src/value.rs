//! A secret's value in memory: it cannot be printed, written or copied by accident, and is wiped when it goes.

use zeroize::Zeroizing;

/// The largest value.
pub const LARGEST: usize = 64 * 1024;

/// A secret's value. It has no `Debug`, `Display`, `Clone` or `Serialize`, so whatever holds it must say each time
/// that it means to look.
pub struct SecretValue(Zeroizing<Vec<u8>>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("the secret is empty; give it a value, or delete it")]
    Empty,
    #[error("the secret has {length} bytes, and the most is {LARGEST}; keep larger things in a file")]
    TooLarge { length: usize },
}

impl ValueError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            ValueError::Empty => "secret_empty",
            ValueError::TooLarge { .. } => "secret_too_large",
        }
    }
}

impl SecretValue {
    /// Takes the bytes where they are: there is no second copy to be wiped. They are wiped if they are refused, too.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<SecretValue, ValueError> {
        let bytes = Zeroizing::new(bytes.into());
        match bytes.len() {
            0 => Err(ValueError::Empty),
            length if length > LARGEST => Err(ValueError::TooLarge { length }),
            _ => Ok(SecretValue(bytes)),
        }
    }

    /// The bytes, for whoever really needs them: to seal, to hand to a room, to know what to redact.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}
