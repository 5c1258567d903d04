//! Sealed values: they open where they belong, as they were written, with the key they were sealed under; else not.

mod support;

use support::{name, value};
use workroom_vault::{Keyring, LARGEST, MasterKey, Place, SealError, Sealed, SecretScope};

fn ring() -> Keyring {
    Keyring::new(MasterKey::generate().unwrap())
}

fn place(scope: SecretScope, label: &str, version: u64) -> Place {
    Place { scope, name: name(label), version }
}

fn here() -> Place {
    place(SecretScope::User("ada".into()), "API_KEY", 3)
}

/// The code of the refusal.
fn refused(ring: &Keyring, place: &Place, sealed: &[u8]) -> &'static str {
    let opened = Sealed::from_bytes(sealed).and_then(|sealed| ring.open(place, &sealed));
    match opened {
        Ok(_) => "opened",
        Err(error) => {
            assert!(!error.to_string().contains("hunter22"), "{error}");
            error.code()
        }
    }
}

#[test]
fn a_value_comes_back_as_it_was() {
    let ring = ring();
    for bytes in [vec![0], b"hunter22".to_vec(), (0..=255).cycle().take(LARGEST).collect()] {
        let sealed = ring.seal(&here(), &value(&bytes)).unwrap();
        let stored = Sealed::from_bytes(sealed.as_bytes()).unwrap();
        assert!(ring.open(&here(), &stored).unwrap().expose() == bytes);
    }
}

#[test]
fn a_sealed_value_shows_nothing_of_itself_and_is_never_the_same_twice() {
    let ring = ring();
    let sealed: Vec<Vec<u8>> =
        (0..100).map(|_| ring.seal(&here(), &value("hunter22")).unwrap().as_bytes().to_vec()).collect();
    for (number, one) in sealed.iter().enumerate() {
        assert!(!one.windows(4).any(|four| b"hunter22".windows(4).any(|piece| piece == four)));
        assert!(sealed[..number].iter().all(|other| other != one));
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let ring = ring();
    let sealed = ring.seal(&here(), &value("hunter22")).unwrap();
    for bit in 0..sealed.as_bytes().len() * 8 {
        let mut bytes = sealed.as_bytes().to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let expected = match bit / 8 {
            0 => "sealed_form_unknown",
            1..9 => "sealed_key_unknown",
            _ => "sealed_forged",
        };
        assert_eq!(refused(&ring, &here(), &bytes), expected, "bit {bit}");
    }
}

#[test]
fn nothing_can_be_cut_off_or_added() {
    let ring = ring();
    let sealed = ring.seal(&here(), &value("hunter22")).unwrap();
    let bytes = sealed.as_bytes();
    for length in 0..bytes.len() {
        let code = refused(&ring, &here(), &bytes[..length]);
        assert!(["sealed_truncated", "sealed_forged"].contains(&code), "{length}: {code}");
    }
    assert_eq!(refused(&ring, &here(), &[bytes, b"\0"].concat()), "sealed_forged");
}

#[test]
fn a_record_opens_in_no_other_place() {
    let ring = ring();
    let user = |owner: &str| SecretScope::User(owner.into());
    let session = |id: &str| SecretScope::Session(id.into());
    // Also places whose parts, put one behind the other, would read the same.
    let places = [
        place(SecretScope::Global, "API_KEY", 1),
        place(SecretScope::Global, "API_KEY", 2),
        place(SecretScope::Global, "API_KEY", 256),
        place(SecretScope::Global, "API_KE", 1),
        place(user("ada"), "API_KEY", 1),
        place(user(""), "API_KEY", 1),
        place(user("bob"), "API_KEY", 1),
        place(session("ada"), "API_KEY", 1),
        place(user("adaA"), "PI_KEY", 1),
        place(user("ada\0"), "API_KEY", 1),
        place(session("20260101-000000-0123abcd"), "API_KEY", 1),
        place(session("20260101-000000-0123abcd"), "API_KEY_2", 1),
    ];
    for (number, own) in places.iter().enumerate() {
        let sealed = ring.seal(own, &value("hunter22")).unwrap();
        for (other_number, other) in places.iter().enumerate() {
            let expected = if number == other_number { "opened" } else { "sealed_forged" };
            assert_eq!(refused(&ring, other, sealed.as_bytes()), expected, "{own:?} as {other:?}");
        }
    }
}

#[test]
fn another_key_does_not_open_it_also_under_its_name() {
    let (ring, other) = (ring(), self::ring());
    let sealed = ring.seal(&here(), &value("hunter22")).unwrap();
    assert_eq!(refused(&other, &here(), sealed.as_bytes()), "sealed_key_unknown");
    // Its id forged to that of the other key.
    let mut bytes = sealed.as_bytes().to_vec();
    let foreign = other.seal(&here(), &value("x")).unwrap();
    bytes[1..9].copy_from_slice(&foreign.as_bytes()[1..9]);
    assert_eq!(refused(&other, &here(), &bytes), "sealed_forged");
}

#[test]
fn what_is_wrong_is_said_with_the_name_and_what_to_do() {
    let (ring, other) = (ring(), self::ring());
    let sealed = ring.seal(&here(), &value("hunter22")).unwrap();
    let Err(error) = other.open(&here(), &sealed) else { panic!("another key opened it") };
    assert_eq!(error, SealError::UnknownKey { name: name("API_KEY"), key: ring.current().id() });
    let id = ring.current().id().to_string();
    assert!(error.to_string().contains(&id) && error.to_string().contains("API_KEY"), "{error}");
}

/// What was sealed by an earlier version is opened by each later one: this record is one that was stored.
#[test]
fn the_form_of_a_record_stays() {
    let ring = Keyring::parse(&"0f".repeat(32)).unwrap();
    assert_eq!(ring.current().id().to_string(), KEY_ID);
    let bytes: Vec<u8> =
        (0..RECORD.len()).step_by(2).map(|at| u8::from_str_radix(&RECORD[at..at + 2], 16).unwrap()).collect();
    let opened = ring.open(&here(), &Sealed::from_bytes(bytes).unwrap()).unwrap();
    assert!(opened.expose() == b"hunter22");
}

const KEY_ID: &str = "772319eab667adaa";
const RECORD: &str =
    "01772319eab667adaa687dd4c331e4204e07f2c76c4644d4df362c587665f20cf4b2fc0811a472724825a32419";
