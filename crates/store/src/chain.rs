//! The arithmetic of a journal: how entries are chained and how heads and checkpoints are signed.

use aws_lc_rs::{digest, hmac};

/// What is hashed of an entry. The body is its stored text, byte for byte.
pub(crate) struct Link<'a> {
    pub(crate) session: &'a str,
    pub(crate) seq: i64,
    pub(crate) at: i64,
    pub(crate) actor: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) body: &'a str,
}

/// The hash before the first entry.
pub(crate) const NOTHING: &str = "";

/// A checkpoint is signed each time this many entries were added.
pub(crate) const CHECKPOINT_EVERY: i64 = 256;

/// Hex of SHA-256 over the hash before and the entry. Each text goes with its length before it: no two
/// different entries have the same bytes.
pub(crate) fn hash(previous: &str, link: &Link<'_>) -> String {
    let mut bytes = Vec::with_capacity(256 + link.body.len());
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    };
    text(&mut bytes, previous);
    text(&mut bytes, link.session);
    bytes.extend_from_slice(&link.seq.to_be_bytes());
    bytes.extend_from_slice(&link.at.to_be_bytes());
    text(&mut bytes, link.actor);
    text(&mut bytes, link.kind);
    text(&mut bytes, link.body);
    hex(digest::digest(&digest::SHA256, &bytes).as_ref())
}

/// What a signature is about. Kept apart, so that a checkpoint in the middle of a journal cannot pass for the
/// head of a journal that was cut there.
#[derive(Clone, Copy)]
pub(crate) enum Mark {
    Head,
    Checkpoint,
}

/// Signs how long a journal is and with which hash it ends.
#[derive(Clone)]
pub(crate) struct Signer {
    key: hmac::Key,
}

impl Signer {
    pub(crate) fn new(secret: &[u8]) -> Signer {
        Signer { key: hmac::Key::new(hmac::HMAC_SHA256, secret) }
    }

    pub(crate) fn sign(&self, mark: Mark, session: &str, entries: i64, hash: &str) -> String {
        hex(hmac::sign(&self.key, &Self::statement(mark, session, entries, hash)).as_ref())
    }

    pub(crate) fn signed(
        &self,
        mark: Mark,
        session: &str,
        entries: i64,
        hash: &str,
        signature: &str,
    ) -> bool {
        unhex(signature).is_some_and(|tag| {
            hmac::verify(&self.key, &Self::statement(mark, session, entries, hash), &tag).is_ok()
        })
    }

    fn statement(mark: Mark, session: &str, entries: i64, hash: &str) -> Vec<u8> {
        let name: &[u8] = match mark {
            Mark::Head => b"workroom journal head 1",
            Mark::Checkpoint => b"workroom journal checkpoint 1",
        };
        let mut statement = Vec::with_capacity(160);
        for text in [name, session.as_bytes(), hash.as_bytes()] {
            statement.extend_from_slice(&(text.len() as u64).to_be_bytes());
            statement.extend_from_slice(text);
        }
        statement.extend_from_slice(&entries.to_be_bytes());
        statement
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link<'_> =
        Link { session: "s", seq: 1, at: 2, actor: "server", kind: "session.created", body: "{}" };

    #[test]
    fn a_hash_covers_every_field_and_the_one_before() {
        let first = hash(NOTHING, &LINK);
        assert_eq!(first.len(), 64);
        for other in [
            hash("x", &LINK),
            hash(NOTHING, &Link { session: "t", ..LINK }),
            hash(NOTHING, &Link { seq: 2, ..LINK }),
            hash(NOTHING, &Link { at: 3, ..LINK }),
            hash(NOTHING, &Link { actor: "serve", kind: "rsession.created", ..LINK }),
            hash(NOTHING, &Link { body: "{ }", ..LINK }),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn a_checkpoint_is_no_head_and_another_key_signs_nothing() {
        let signer = Signer::new(b"one");
        let signature = signer.sign(Mark::Checkpoint, "s", 256, "abc");
        assert!(signer.signed(Mark::Checkpoint, "s", 256, "abc", &signature));
        assert!(!signer.signed(Mark::Head, "s", 256, "abc", &signature));
        assert!(!signer.signed(Mark::Checkpoint, "s", 255, "abc", &signature));
        assert!(!Signer::new(b"two").signed(Mark::Checkpoint, "s", 256, "abc", &signature));
        assert!(!signer.signed(Mark::Head, "s", 256, "abc", "not hex"));
    }

    #[test]
    fn hex_goes_both_ways() {
        assert_eq!(hex(&[0, 0xaf, 0xff]), "00afff");
        assert_eq!(unhex("00afff"), Some(vec![0, 0xaf, 0xff]));
        assert_eq!(unhex("00a"), None);
        assert_eq!(unhex("zz"), None);
    }
}
