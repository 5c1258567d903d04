//! Values at rest: sealed under a master key, and bound to the one place where they belong.
//!
//! ```text
//!  0         1         9          21                     end-16   end
//!  │ form: 1 │ key id  │ nonce    │ ciphertext           │ tag    │
//! ```
//!
//! The place (scope, whose it is, name, version) and the first nine bytes are associated data: not stored here, but
//! a record opens under no other. AES-256-GCM-SIV, because a nonce that comes twice, after a restored snapshot of a
//! machine say, then tells no more than whether two values are equal.

use crate::key::{KeyId, Keyring, random};
use aws_lc_rs::aead::{Aad, NONCE_LEN, Nonce};
use workroom_redact::{SecretName, SecretValue};
use zeroize::Zeroizing;

const FORM: u8 = 1;
const HEADER: usize = 1 + KeyId::LENGTH;
const TAG: usize = 16;

/// Who may use a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretScope {
    Global,
    /// Of one owner, by the name that tokens know.
    User(String),
    /// Of one session, by its id.
    Session(String),
}

/// The one place where a sealed value can be opened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub scope: SecretScope,
    pub name: SecretName,
    /// Counts up with each new value.
    pub version: u64,
}

impl Place {
    /// Everything with its length before it: no two places have the same bytes.
    fn associated_data(&self, header: &[u8]) -> Vec<u8> {
        let (kind, whose): (&str, &str) = match &self.scope {
            SecretScope::Global => ("global", ""),
            SecretScope::User(owner) => ("user", owner),
            SecretScope::Session(id) => ("session", id),
        };
        let fields =
            [b"workroom vault", header, kind.as_bytes(), whose.as_bytes(), self.name.as_str().as_bytes()];
        let mut bytes = Vec::new();
        for field in fields {
            bytes.extend((field.len() as u64).to_le_bytes());
            bytes.extend(field);
        }
        bytes.extend(self.version.to_le_bytes());
        bytes
    }
}

/// A sealed value: what is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed(Vec<u8>);

impl Sealed {
    /// What was stored. Whether it is what was sealed turns out when it is opened.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Sealed, SealError> {
        let bytes = bytes.into();
        match bytes.first() {
            Some(&FORM) if bytes.len() > HEADER + NONCE_LEN + TAG => Ok(Sealed(bytes)),
            Some(&form) if form != FORM && bytes.len() > HEADER => Err(SealError::UnknownForm { form }),
            _ => Err(SealError::Truncated { length: bytes.len() }),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key that it is sealed under.
    pub fn key_id(&self) -> KeyId {
        let mut id = [0; KeyId::LENGTH];
        id.copy_from_slice(&self.0[1..HEADER]);
        KeyId::from_bytes(id)
    }
}

/// Why a value was not sealed or opened. Never says anything of the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("a sealed secret has only {length} bytes; restore the store from a backup")]
    Truncated { length: usize },
    #[error(
        "a sealed secret is of form {form}, which this version does not know; use the version that wrote it"
    )]
    UnknownForm { form: u8 },
    #[error(
        "the secret {name} is sealed under the key {key}, which is not here; add that key behind the current one"
    )]
    UnknownKey { name: SecretName, key: KeyId },
    #[error(
        "the secret {name} does not open: its record was changed, or belongs elsewhere; set the secret again"
    )]
    Forged { name: SecretName },
    #[error("the system gave no random bytes to seal the secret {name} with; try again")]
    NoRandomness { name: SecretName },
}

impl SealError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            SealError::Truncated { .. } => "sealed_truncated",
            SealError::UnknownForm { .. } => "sealed_form_unknown",
            SealError::UnknownKey { .. } => "sealed_key_unknown",
            SealError::Forged { .. } => "sealed_forged",
            SealError::NoRandomness { .. } => "key_no_randomness",
        }
    }
}

impl Keyring {
    pub fn seal(&self, place: &Place, value: &SecretValue) -> Result<Sealed, SealError> {
        let key = self.current();
        let mut nonce = [0; NONCE_LEN];
        let no_randomness = || SealError::NoRandomness { name: place.name.clone() };
        random(&mut nonce).ok_or_else(no_randomness)?;
        let mut record = Vec::with_capacity(HEADER + NONCE_LEN + value.expose().len() + TAG);
        record.push(FORM);
        record.extend(key.id().as_bytes());
        let data = Aad::from(place.associated_data(&record));
        record.extend(nonce);
        record.extend(value.expose());
        let nonce = Nonce::assume_unique_for_key(nonce);
        // In place: the plain value is overwritten by the sealed one.
        let tag = key
            .sealing()
            .seal_in_place_separate_tag(nonce, data, &mut record[HEADER + NONCE_LEN..])
            .expect("a value of at most 64 KiB");
        record.extend(tag.as_ref());
        Ok(Sealed(record))
    }

    pub fn open(&self, place: &Place, sealed: &Sealed) -> Result<SecretValue, SealError> {
        let id = sealed.key_id();
        let unknown = || SealError::UnknownKey { name: place.name.clone(), key: id };
        let key = self.key(id).ok_or_else(unknown)?;
        let forged = || SealError::Forged { name: place.name.clone() };
        let (header, rest) = sealed.0.split_at(HEADER);
        let (nonce, ciphertext) = rest.split_at(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| forged())?;
        let mut bytes = Zeroizing::new(ciphertext.to_vec());
        let data = Aad::from(place.associated_data(header));
        let length = key.sealing().open_in_place(nonce, data, &mut bytes).map_err(|_| forged())?.len();
        bytes.truncate(length);
        SecretValue::new(std::mem::take(&mut *bytes)).map_err(|_| forged())
    }

    /// The same value under the key that seals now; nothing if that is the one already. Replace the stored record by
    /// it in one step: either can be opened as long as both keys are there.
    pub fn reseal(&self, place: &Place, sealed: &Sealed) -> Result<Option<Sealed>, SealError> {
        if sealed.key_id() == self.current().id() {
            return Ok(None);
        }
        self.open(place, sealed).and_then(|value| self.seal(place, &value)).map(Some)
    }
}
