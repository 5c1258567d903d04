//! Where the master key comes from.

use crate::key::{KeyError, KeyId, Keyring, MasterKey};
use crate::{key_command, key_file};
use std::path::PathBuf;
use std::time::Duration;
use zeroize::Zeroizing;

/// A key command that takes longer is taken for one that hangs.
const COMMAND_TIME: Duration = Duration::from_secs(30);

/// All sources hold the same text: keys as 64 hex digits or in base64, separated by white space or commas; the
/// first one seals, the others only open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file that nobody else can read. The only source that we can write to.
    File(PathBuf),
    /// An environment variable, by name.
    Environment(String),
    /// A program and its arguments, run without a shell: what it prints is the key. For a KMS.
    Command(Vec<String>),
}

/// Whether there may be no key yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Secrets are sealed: a key file that is missing is an error, because a new key would open none of them.
    Sealed,
    /// No secret was ever sealed: a missing key file is made.
    Nothing,
}

impl KeySource {
    /// Reads the keys.
    pub fn load(&self, existing: Existing) -> Result<Keyring, KeyError> {
        match self {
            KeySource::File(path) => {
                if let Some(text) = key_file::read(path)? {
                    return self.parse(&text);
                }
                match existing {
                    Existing::Sealed => Err(KeyError::Missing { path: path.display().to_string() }),
                    Existing::Nothing => {
                        key_file::create(path, &Keyring::new(MasterKey::generate()?).to_text())?;
                        // Not the one just made: somebody else may have been quicker.
                        let missing = || KeyError::Missing { path: path.display().to_string() };
                        self.parse(&key_file::read(path)?.ok_or_else(missing)?)
                    }
                }
            }
            KeySource::Environment(name) => {
                let value = std::env::var(name).map(Zeroizing::new);
                self.parse(&value.map_err(|_| KeyError::NoVariable { name: name.clone() })?)
            }
            KeySource::Command(command) => self.parse(&key_command::output(command, COMMAND_TIME)?),
        }
    }

    /// Makes a new key the one that seals. The others stay until [`retire`](Self::retire): re-seal every record
    /// meanwhile, with [`Keyring::reseal`]. To be called by one process at a time.
    pub fn rotate(&self) -> Result<Keyring, KeyError> {
        let path = self.own_file()?;
        let mut ring = self.load(Existing::Sealed)?;
        ring.put_first(MasterKey::generate()?);
        key_file::replace(path, &ring.to_text())?;
        Ok(ring)
    }

    /// Forgets the keys that no record is sealed under any more. `in_use` is asked for each key but the current one;
    /// ask the store, and count what cannot be opened too.
    pub fn retire(&self, in_use: impl Fn(KeyId) -> bool) -> Result<Keyring, KeyError> {
        let path = self.own_file()?;
        let mut ring = self.load(Existing::Sealed)?;
        if ring.retire(in_use) > 0 {
            key_file::replace(path, &ring.to_text())?;
        }
        Ok(ring)
    }

    fn own_file(&self) -> Result<&PathBuf, KeyError> {
        match self {
            KeySource::File(path) => Ok(path),
            _ => Err(KeyError::NotOurs { source_of_key: self.to_string() }),
        }
    }

    fn parse(&self, text: &str) -> Result<Keyring, KeyError> {
        Keyring::parse(text)
            .map_err(|cause| KeyError::In { source_of_key: self.to_string(), cause: Box::new(cause) })
    }
}

impl std::fmt::Display for KeySource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeySource::File(path) => write!(formatter, "the key file {}", path.display()),
            KeySource::Environment(name) => write!(formatter, "the environment variable {name}"),
            // Its arguments may be nobody's business.
            KeySource::Command(command) => {
                write!(formatter, "the key command {:?}", command.first().map_or("", |program| program))
            }
        }
    }
}
