//! One spelling for each host: a hostile corpus, and what must hold for every text.

use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use workroom_egress::{Host, HostError, Target};

#[test]
fn names_have_one_spelling() {
    for (text, name) in [
        ("example.com", "example.com"),
        ("EXAMPLE.Com", "example.com"),
        ("example.com.", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.EXAMPLE", "xn--bcher-kva.example"),
        // Full-width letters and ideographic dots.
        ("ｅｘａｍｐｌｅ。ｃｏｍ", "example.com"),
        ("_dmarc.example.com", "_dmarc.example.com"),
        ("localhost", "localhost"),
        ("1.2.3.4.example", "1.2.3.4.example"),
        ("a1", "a1"),
        ("0x7g", "0x7g"),
    ] {
        assert_eq!(Host::parse(text).map(|host| host.to_string()), Ok(name.to_owned()), "{text}");
        assert!(Host::parse(text).unwrap().name().is_some(), "{text} is a name");
    }
}

#[test]
fn addresses_have_one_spelling() {
    for (text, address) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("１２７.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("[2001:DB8:0:0::1]", "2001:db8::1"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("::FFFF:7f00:1", "127.0.0.1"),
        ("[::ffff:a9fe:a9fe]", "169.254.169.254"),
    ] {
        assert_eq!(Host::parse(text), Ok(Host::Address(address.parse().unwrap())), "{text}");
    }
}

#[test]
fn other_spellings_of_addresses_are_refused_with_the_right_one() {
    for (text, meaning) in [
        ("2130706433", Some("127.0.0.1")),
        ("0x7f000001", Some("127.0.0.1")),
        ("0X7F.1", Some("127.0.0.1")),
        ("017700000001", Some("127.0.0.1")),
        ("0177.0.0.01", Some("127.0.0.1")),
        ("127.1", Some("127.0.0.1")),
        ("127.0.1", Some("127.0.0.1")),
        ("0", Some("0.0.0.0")),
        ("0x", Some("0.0.0.0")),
        ("169.254.43518", Some("169.254.169.254")),
        ("127.0.0.01", Some("127.0.0.1")),
        ("127.0.0.1.5", None),
        ("256.0.0.1", None),
        ("1.2.3.08", None),
        ("4294967296", None),
        ("example.1", None),
        ("example.0x1f", None),
        ("99999999999999999999999", None),
        ("①②⑦.0.0.0x1", Some("127.0.0.1")),
    ] {
        let meaning = meaning.map(|address| address.parse::<Ipv4Addr>().unwrap());
        match Host::parse(text) {
            Err(HostError::UnusualAddress { meaning: found, .. }) => assert_eq!(found, meaning, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn what_has_two_readings_is_no_host() {
    let long_label = format!("{}.example", "a".repeat(64));
    let long_name = format!("{}example", "abcdefg.".repeat(32));
    let refused: Vec<&[u8]> = vec![
        b"",
        b".",
        b"..",
        b"example..com",
        b".example.com",
        b"example.com..",
        b"exa mple.com",
        b" example.com",
        b"example.com\n",
        b"example.com\0",
        b"\0",
        b"allowed.example\0.evil.example",
        b"allowed.example@evil.example",
        b"user:password@evil.example",
        b"example.com/",
        b"example.com/../evil",
        b"example.com#evil",
        b"example.com?evil",
        b"example.com\\evil.example",
        b"example.com:80",
        b"example.com%00",
        b"exa%6dple.com",
        b"%31%32%37.0.0.1",
        b"[::1",
        b"::1]",
        b"[::1]x",
        b"[[::1]]",
        b"[]",
        b"[127.0.0.1]",
        b"[example.com]",
        b"[::1%lo]",
        b"[fe80::1%25eth0]",
        b"fe80::1%eth0",
        b"::ffff:127.1",
        b"1::2::3",
        b":",
        b"::1::",
        b"*.example.com",
        b"a.*.com",
        b"-a.example",
        b"a-.example",
        b"exa`mple.com",
        b"exa;mple.com",
        b"exa,mple.com",
        b"(example.com)",
        b"'example.com'",
        b"\xff\xfe",
        b"\xc3\x28.example",
        b"xn--.example",
        b"xn--a.example",
        b"xn--zzzzzzzzzzzzzz99999.example",
        "a\u{2028}b.example".as_bytes(),
        "exa\u{202e}mple.com".as_bytes(),
        // Characters that become delimiters when they are mapped.
        "evil.example\u{2100}".as_bytes(),
        "evil.example\u{ff0f}x".as_bytes(),
        "evil.example\u{ff20}x".as_bytes(),
        "evil.example\u{ff1a}80".as_bytes(),
        "evil\u{fe6a}00.example".as_bytes(),
        "example\u{3002}\u{3002}com".as_bytes(),
        long_label.as_bytes(),
        long_name.as_bytes(),
    ];
    for text in refused {
        let answer = Host::parse(text);
        assert!(answer.is_err(), "{:?} became {answer:?}", text.escape_ascii().to_string());
        let sentence = answer.unwrap_err().to_string();
        assert!(sentence.bytes().all(|byte| (b' '..=b'~').contains(&byte) || byte > 127), "{sentence}");
    }
    let endless = vec![b'a'; 1 << 20];
    assert!(matches!(Host::parse(&endless), Err(HostError::TooLong(shown)) if shown.len() < 200));
}

#[test]
fn ports_are_plain_numbers() {
    let target = |text: &str| Target::parse(text, None).map(|target| target.to_string());
    assert_eq!(target("Example.com:443"), Ok("example.com:443".into()));
    assert_eq!(target("[::1]:443"), Ok("[::1]:443".into()));
    assert_eq!(target("[::ffff:10.0.0.1]:443"), Ok("10.0.0.1:443".into()));
    for text in [
        "example.com",
        "example.com:",
        "example.com:0",
        "example.com:65536",
        "example.com:+80",
        "example.com:80:80",
        "example.com:0x50",
        "example.com: 80",
        "example.com:８０",
        "::1:80",
        "[::1]",
        "[::1]80",
        ":80",
        "user@example.com:80",
        "[::1]@example.com:80",
        "example.com:80@evil.example:80",
    ] {
        assert!(target(text).is_err(), "{text} became {:?}", target(text));
    }
    assert_eq!(Target::parse("example.com", Some(80)).unwrap().port, 80);
}

fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-zA-Z0-9_-]{0,8}",
        Just(".".to_owned()),
        Just("。".to_owned()),
        Just("xn--".to_owned()),
        Just("0x".to_owned()),
        Just("::".to_owned()),
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just("%".to_owned()),
        Just("@".to_owned()),
        Just(":".to_owned()),
        Just("127".to_owned()),
        Just("ffff".to_owned()),
        "\\PC{0,3}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_taken_is_taken_the_same_way_again(text in pieces()) {
        if let Ok(host) = Host::parse(&text) {
            let spelled = host.to_string();
            prop_assert_eq!(Host::parse(&spelled), Ok(host.clone()));
            prop_assert!(spelled.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b':')));
            prop_assert!(spelled.len() <= 253);
            match host {
                // Nobody's C library may take a name for an address.
                Host::Name(name) => {
                    let last = name.as_str().rsplit('.').next().unwrap();
                    prop_assert!(!last.bytes().all(|byte| byte.is_ascii_digit()), "{}", name);
                    prop_assert!(name.as_str().parse::<IpAddr>().is_err());
                }
                Host::Address(address) => prop_assert_eq!(address, address.to_canonical()),
            }
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Host::parse(&bytes);
        let _ = Target::parse(&bytes, Some(80));
    }

    #[test]
    fn targets_are_read_back(text in pieces(), port in 1u16..) {
        if let Ok(target) = Target::parse(format!("{text}:{port}"), None) {
            prop_assert_eq!(Target::parse(target.to_string(), None), Ok(target.clone()));
            prop_assert_eq!(target.port, port);
        }
    }

    #[test]
    fn every_address_is_taken_for_itself(bits in any::<u128>(), small in any::<u32>()) {
        let v6 = IpAddr::V6(Ipv6Addr::from_bits(bits));
        prop_assert_eq!(Host::parse(format!("[{v6}]")), Ok(Host::Address(v6.to_canonical())));
        let v4 = IpAddr::V4(Ipv4Addr::from_bits(small));
        prop_assert_eq!(Host::parse(v4.to_string()), Ok(Host::Address(v4)));
        if small >= 256 {
            prop_assert!(Host::parse(small.to_string()).is_err());
        }
    }
}
