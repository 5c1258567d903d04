//! Redaction: `[REDACTED:name]` instead of every secret, in whole texts and in streams.
//!
//! - [`SecretName`], [`SecretValue`]: what a secret is called, and its value in memory.
//! - [`Redactor`], [`SharedRedactor`]: a compiled set of secrets.
//! - [`RedactStream`]: a stream of bytes that comes in pieces.
//!
//! Apart from the vault because the guest, which writes output down, redacts it, and has no business with keys.
//! docs/decisions/0030-secrets-sealed-and-redacted.md says why it is as it is.
#![forbid(unsafe_code)]

mod cover;
mod finder;
mod forms;
mod json;
mod name;
mod redactor;
mod stream;
mod value;

pub use forms::SHORTEST;
pub use name::{NameError, SecretName, checked_name};
pub use redactor::{Redactor, SharedRedactor};
pub use stream::{Checkpoint, RedactStream};
pub use value::{LARGEST, SecretValue, ValueError};
