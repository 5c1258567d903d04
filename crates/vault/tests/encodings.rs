//! Secrets are found in the forms that programs give them. Encoders here are written anew, bit by bit.

mod support;

use support::{STANDARD, URL_SAFE, base64, redactor, shared, streamed, text};

/// What is left of the base64 of a text with a secret in it: how many bits of the secret, at most?
fn bits_left(encoded: &str, redacted: &str, secret: std::ops::Range<usize>) -> usize {
    let (before, after) = redacted.split_once("[REDACTED:S]").expect("the secret is redacted");
    assert!(encoded.starts_with(before) && encoded.ends_with(after), "{encoded} became {redacted}");
    let shown_before = 0..before.len() * 6;
    let shown_after = (encoded.len() - after.len()) * 6..encoded.len() * 6;
    let secret = secret.start * 8..secret.end * 8;
    secret.filter(|bit| shown_before.contains(bit) || shown_after.contains(bit)).count()
}

#[test]
fn base64_of_a_text_around_a_secret_keeps_at_most_a_few_bits_at_its_borders() {
    let secret = b"\xfb\xef\xbe?>correct~horse\xff";
    let redactor = redactor(&[("S", secret)]);
    for before in 0..7 {
        for after in 0..7 {
            for alphabet in [STANDARD, URL_SAFE] {
                for padded in [true, false] {
                    let whole = [&b"user:pw"[..before], secret, &b"~follow"[..after]].concat();
                    let encoded = base64(&whole, alphabet, padded);
                    let redacted = redactor.redact_text(&encoded).into_owned();
                    let left = bits_left(&encoded, &redacted, before..before + secret.len());
                    assert!(left <= 8, "{left} bits of the secret in {redacted}");
                }
            }
        }
    }
}

#[test]
fn base64_at_the_end_of_a_text_goes_with_its_padding() {
    for secret in ["four", "hunter22", "correct horse battery"] {
        let redactor = redactor(&[("S", secret)]);
        for alphabet in [STANDARD, URL_SAFE] {
            for padded in [true, false] {
                let encoded = base64(secret.as_bytes(), alphabet, padded);
                assert_eq!(redactor.redact_text(&format!("<{encoded}>")), "<[REDACTED:S]>", "{encoded}");
            }
        }
    }
    let basic = base64(b"admin:hunter22!", STANDARD, true);
    let redacted = redactor(&[("S", "hunter22!")]).redact_text(&basic).into_owned();
    assert_eq!(redacted, "YWRtaW46[REDACTED:S]");
}

#[test]
fn a_long_secret_is_found_in_lines_of_base64_and_hex() {
    let secret: Vec<u8> = (0..300u32).map(|number| (number * 7 % 251) as u8 | 1).collect();
    let redactor = redactor(&[("KEY", &secret)]);
    let encoded = base64(&secret, STANDARD, true);
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    for (encoded, width) in [(&encoded, 76), (&encoded, 64), (&hex, 60)] {
        for end in ["\n", "\r\n"] {
            let lines: Vec<&str> =
                encoded.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
            let redacted = redactor.redact_text(&lines.join(end)).into_owned();
            assert_eq!(redacted, "[REDACTED:KEY]", "lines of {width}");
        }
    }
}

#[test]
fn hex_in_either_case() {
    let redactor = redactor(&[("S", "jam\u{fe}\u{3ff}")]);
    let bytes = "jam\u{fe}\u{3ff}".bytes();
    let lower: String = bytes.clone().map(|byte| format!("{byte:02x}")).collect();
    let upper: String = bytes.map(|byte| format!("{byte:02X}")).collect();
    assert_eq!(redactor.redact_text(&format!("{lower} {upper}")), "[REDACTED:S] [REDACTED:S]");
}

/// As the encoders of common languages were seen to write this value.
#[test]
fn url_encodings_of_common_libraries() {
    let redactor = redactor(&[("S", "p@ss w/rd~é!*'()+=&$")]);
    for (whose, encoded) in [
        ("encodeURIComponent", "p%40ss%20w%2Frd~%C3%A9!*'()%2B%3D%26%24"),
        ("encodeURI", "p@ss%20w/rd~%C3%A9!*'()+=&$"),
        ("URLSearchParams", "p%40ss+w%2Frd%7E%C3%A9%21*%27%28%29%2B%3D%26%24"),
        ("Python quote", "p%40ss%20w/rd~%C3%A9%21%2A%27%28%29%2B%3D%26%24"),
        ("Python quote_plus", "p%40ss+w%2Frd~%C3%A9%21%2A%27%28%29%2B%3D%26%24"),
        ("PHP urlencode", "p%40ss+w%2Frd%7E%C3%A9%21%2A%27%28%29%2B%3D%26%24"),
        ("curl", "p%40ss%20w%2Frd~%C3%A9%21%2A%27%28%29%2B%3D%26%24"),
        (".NET, lower case", "p%40ss+w%2frd~%c3%a9%21%2a%27%28%29%2b%3d%26%24"),
        ("Go PathEscape", "p@ss%20w%2Frd~%C3%A9%21%2A%27%28%29+=&$"),
    ] {
        let redacted = redactor.redact_text(&format!("?q={encoded};")).into_owned();
        assert_eq!(redacted, "?q=[REDACTED:S];", "{whose}");
    }
}

#[test]
fn inside_of_json_strings() {
    let secret = "-----BEGIN-----\nä\"</\\😀\u{1}>&\n-----END-----";
    let redactor = redactor(&[("S", secret)]);
    for (whose, inside) in [
        ("the least", r#"-----BEGIN-----\nä\"</\\😀\u0001>&\n-----END-----"#),
        ("Python", r#"-----BEGIN-----\n\u00e4\"</\\\ud83d\ude00\u0001>&\n-----END-----"#),
        ("Go", r#"-----BEGIN-----\nä\"\u003c/\\😀\u0001\u003e\u0026\n-----END-----"#),
        ("PHP", r#"-----BEGIN-----\n\u00e4\"<\/\\\ud83d\ude00\u0001>&\n-----END-----"#),
    ] {
        let redacted = redactor.redact_text(&format!("{{\"key\":\"{inside}\"}}")).into_owned();
        assert_eq!(redacted, "{\"key\":\"[REDACTED:S]\"}", "{whose}");
        // And these are what a parser reads as the secret.
        assert_eq!(serde_json::from_str::<String>(&format!("\"{inside}\"")).unwrap(), secret, "{whose}");
    }
}

#[test]
fn a_terminals_line_ends() {
    let redactor = shared(&[("KEY", "first line\nsecond line\n")]);
    let shown = streamed(&redactor, b"$ cat key\r\nfirst line\r\nsecond line\r\n$ ", &[30]);
    assert_eq!(text(&shown), "$ cat key\r\n[REDACTED:KEY]\r\n$ ");
}

#[test]
fn white_space_around_a_value_is_no_part_of_it() {
    let redactor = redactor(&[("S", "  hunter22\n")]);
    assert_eq!(redactor.redact_text("<hunter22>"), "<[REDACTED:S]>");
}

#[test]
fn what_is_too_short_is_left_alone_and_named() {
    let redactor = redactor(&[("PIN", "123"), ("BLANK", "   \n"), ("CODE", "1234")]);
    let named: Vec<&str> = redactor.too_short().iter().map(|name| name.as_str()).collect();
    assert_eq!(named, ["BLANK", "PIN"]);
    assert_eq!(redactor.redact_text("123 1234"), "123 [REDACTED:CODE]");
}
