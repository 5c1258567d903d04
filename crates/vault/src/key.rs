//! Master keys: what they look like as text, and the ring of those that are in use.

use aws_lc_rs::aead::{AES_256_GCM_SIV, LessSafeKey, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use std::fmt;
use zeroize::Zeroizing;

const LENGTH: usize = 32;

/// More keys than this in one source are a mistake.
const MOST_KEYS: usize = 64;

/// Names a master key without giving anything of it away.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId([u8; KeyId::LENGTH]);

impl KeyId {
    pub(crate) const LENGTH: usize = 8;

    pub(crate) fn from_bytes(bytes: [u8; KeyId::LENGTH]) -> KeyId {
        KeyId(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; KeyId::LENGTH] {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyId({self})")
    }
}

/// A key that secrets are sealed under. What seals and what names it are derived from it apart: the id tells
/// nothing of the key, and the key itself is never used for anything else.
pub struct MasterKey {
    secret: Zeroizing<[u8; LENGTH]>,
    id: KeyId,
    sealing: LessSafeKey,
}

impl MasterKey {
    /// A new one, of the system's randomness.
    pub fn generate() -> Result<MasterKey, KeyError> {
        let mut secret = Zeroizing::new([0; LENGTH]);
        random(&mut *secret).ok_or(KeyError::NoRandomness)?;
        Ok(MasterKey::new(secret))
    }

    fn new(secret: Zeroizing<[u8; LENGTH]>) -> MasterKey {
        let derive = Prk::new_less_safe(HKDF_SHA256, &*secret);
        let (mut id, mut key) = ([0; KeyId::LENGTH], Zeroizing::new([0; LENGTH]));
        fill(&derive, b"workroom vault: key id, 1", &mut id);
        fill(&derive, b"workroom vault: sealing, 1", &mut *key);
        // It fails for keys of another length only.
        let sealing = UnboundKey::new(&AES_256_GCM_SIV, &*key).expect("a key of 32 bytes");
        MasterKey { secret, id: KeyId(id), sealing: LessSafeKey::new(sealing) }
    }

    pub fn id(&self) -> KeyId {
        self.id
    }

    pub(crate) fn sealing(&self) -> &LessSafeKey {
        &self.sealing
    }

    /// 64 hex digits, or 32 bytes in base64 of either alphabet. Errors say nothing of the text: it is a key, nearly.
    fn parse(text: &str) -> Option<MasterKey> {
        let bytes = Zeroizing::new(if text.len() == LENGTH * 2 {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let pair = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
            text.as_bytes().chunks_exact(2).map(pair).collect::<Option<Vec<u8>>>()?
        } else {
            let engines = [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD];
            engines.iter().find_map(|engine| engine.decode(text).ok())?
        });
        let secret: [u8; LENGTH] = bytes.as_slice().try_into().ok()?;
        Some(MasterKey::new(Zeroizing::new(secret)))
    }

    fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(LENGTH * 2));
        for byte in self.secret.iter() {
            for nibble in [byte >> 4, byte & 15] {
                text.extend(char::from_digit(nibble.into(), 16));
            }
        }
        text
    }
}

/// Fills it from the kernel: the library's own generator takes tens of milliseconds to set up.
pub(crate) fn random(bytes: &mut [u8]) -> Option<()> {
    let filled = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    // Up to 256 bytes come whole.
    (filled == bytes.len()).then_some(())
}

struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

fn fill(derive: &Prk, purpose: &[u8], out: &mut [u8]) {
    // HKDF gives up to 255 hashes; these are one.
    derive
        .expand(&[purpose], Bytes(out.len()))
        .and_then(|material| material.fill(out))
        .expect("a key of at most 32 bytes");
}

/// The key that seals, and older ones that only open.
///
/// ```text
///  key file      [A]         ──rotate──▶  [B A]       ──retire──▶  [B]
///  records       a a a a                  a a a a ─▶ b b b b        b b b b
///                                         reseal, one by one
/// ```
///
/// At each moment in between every record can be opened, so a crash anywhere costs nothing but doing the rest again.
pub struct Keyring {
    /// The first one seals.
    keys: Vec<MasterKey>,
}

impl Keyring {
    pub fn new(current: MasterKey) -> Keyring {
        Keyring { keys: vec![current] }
    }

    /// Keys as text: separated by white space or commas, the first one seals. Lines that begin with `#` are comments.
    pub fn parse(text: &str) -> Result<Keyring, KeyError> {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let words = lines.flat_map(|line| line.split([' ', '\t', ',', '\r'])).filter(|word| !word.is_empty());
        let mut ring = Keyring { keys: Vec::new() };
        for (place, word) in words.enumerate() {
            let key = MasterKey::parse(word).ok_or(KeyError::Malformed { place: place + 1 })?;
            if ring.key(key.id).is_none() {
                ring.keys.push(key);
            }
            if ring.keys.len() > MOST_KEYS {
                return Err(KeyError::TooMany);
            }
        }
        if ring.keys.is_empty() { Err(KeyError::None) } else { Ok(ring) }
    }

    pub(crate) fn to_text(&self) -> Zeroizing<String> {
        let header = "# Keys of the vault: the first one seals, the others only open. Whoever reads this reads all secrets.\n";
        let mut text =
            Zeroizing::new(String::with_capacity(header.len() + self.keys.len() * (LENGTH * 2 + 1)));
        text.push_str(header);
        for key in &self.keys {
            text.push_str(&key.to_hex());
            text.push('\n');
        }
        text
    }

    /// The key that seals.
    pub fn current(&self) -> &MasterKey {
        &self.keys[0]
    }

    /// All keys that open, the one that seals first.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> + '_ {
        self.keys.iter().map(MasterKey::id)
    }

    pub(crate) fn key(&self, id: KeyId) -> Option<&MasterKey> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// `key` seals from now on; those before it still open.
    pub(crate) fn put_first(&mut self, key: MasterKey) {
        self.keys.retain(|old| old.id != key.id);
        self.keys.insert(0, key);
    }

    /// Forgets keys that no record needs any more; never the one that seals. Says how many went.
    pub(crate) fn retire(&mut self, in_use: impl Fn(KeyId) -> bool) -> usize {
        let (before, current) = (self.keys.len(), self.keys[0].id);
        self.keys.retain(|key| key.id == current || in_use(key.id));
        before - self.keys.len()
    }
}

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the system gave no random bytes for a key; try again")]
    NoRandomness,
    #[error("there is no key in it; give 32 random bytes as 64 hex digits or in base64")]
    None,
    #[error("key {place} is not one; give 32 random bytes as 64 hex digits or in base64")]
    Malformed { place: usize },
    #[error("there are more than {MOST_KEYS} keys; take out those that no secret is sealed under any more")]
    TooMany,
    #[error("{source_of_key}: {cause}")]
    In { source_of_key: String, cause: Box<KeyError> },
    #[error(
        "the key file {path} is missing, and secrets are sealed under it; restore it from a backup: they cannot be read without"
    )]
    Missing { path: String },
    #[error("the key file {path} {what}; {hint}")]
    Unsafe { path: String, what: String, hint: String },
    #[error("cannot {doing} the key file {path}: {error}; look at the path and at who may use it")]
    File { doing: &'static str, path: String, error: String },
    #[error("the environment variable {name} holds no key; set it, or choose another source for the key")]
    NoVariable { name: String },
    #[error("the key command {program:?} {what}; run it by hand: it must print the key and exit with 0")]
    Command { program: String, what: String },
    #[error(
        "the keys come from {source_of_key}, which is not ours to change; put the new key before the old ones there"
    )]
    NotOurs { source_of_key: String },
}

impl KeyError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            KeyError::NoRandomness => "key_no_randomness",
            KeyError::None => "key_none",
            KeyError::Malformed { .. } => "key_malformed",
            KeyError::TooMany => "key_too_many",
            KeyError::In { cause, .. } => cause.code(),
            KeyError::Missing { .. } => "key_file_missing",
            KeyError::Unsafe { .. } => "key_file_unsafe",
            KeyError::File { .. } => "key_file_failed",
            KeyError::NoVariable { .. } => "key_variable_missing",
            KeyError::Command { .. } => "key_command_failed",
            KeyError::NotOurs { .. } => "key_source_read_only",
        }
    }
}
