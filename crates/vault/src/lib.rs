//! Secrets: what they may be called, how they are kept, and how what rooms put out is rid of them.
//!
//! - [`SecretName`], [`EnvironmentName`]: names, and which of them may be environment variables.
//! - [`SecretValue`]: a value in memory.
//! - [`KeySource`], [`Keyring`]: where the master key comes from, and the keys that are still read.
//! - [`Sealed`], [`Place`]: a value at rest, and the one place where it can be opened.
//! - [`Redactor`], [`RedactStream`]: `[REDACTED:name]` instead of every secret; of `workroom-redact`, which guests use too.
//!
//! Nothing here knows sessions, stores or rooms. docs/decisions/0030-secrets-sealed-and-redacted.md says why it is
//! as it is.
#![forbid(unsafe_code)]

mod key;
mod key_command;
mod key_file;
mod name;
mod reserved;
mod seal;
mod source;

pub use key::{KeyError, KeyId, Keyring, MasterKey};
pub use name::EnvironmentName;
pub use seal::{Place, SealError, Sealed, SecretScope};
pub use source::{Existing, KeySource};
pub use workroom_redact::{
    Checkpoint, LARGEST, NameError, RedactStream, Redactor, SHORTEST, SecretName, SecretValue,
    SharedRedactor, ValueError,
};
