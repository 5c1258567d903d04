//! Streams: overlapping secrets, borders, idle times, ends, changes of the set, and going on elsewhere.

mod support;

use support::{name, redactor, shared, streamed, text, value};
use workroom_vault::{Checkpoint, RedactStream, Redactor, SharedRedactor};

/// In one piece, byte by byte, and cut once at each place: always the same.
fn always(secrets: &[(&str, &str)], input: &str, expected: &str) {
    let redactor = shared(secrets);
    let bytes = input.as_bytes();
    assert_eq!(text(&redactor.get().redact_bytes(bytes)), expected, "{input} as a whole");
    assert_eq!(text(&streamed(&redactor, bytes, &[])), expected, "{input} in one piece");
    let every: Vec<usize> = (1..bytes.len()).collect();
    assert_eq!(text(&streamed(&redactor, bytes, &every)), expected, "{input} byte by byte");
    for cut in every {
        assert_eq!(text(&streamed(&redactor, bytes, &[cut])), expected, "{input} cut at {cut}");
    }
}

#[test]
fn every_occurrence_is_replaced_and_nothing_else() {
    always(&[("A", "hunter22")], "a hunter2 hunter22hunter22 b", "a hunter2 [REDACTED:A][REDACTED:A] b");
}

#[test]
fn of_secrets_with_a_common_start_the_longest_counts() {
    let secrets = [("SHORT", "password"), ("LONG", "password-and-more")];
    always(&secrets, "x password-and-more x", "x [REDACTED:LONG] x");
    always(&secrets, "x password-and-less x", "x [REDACTED:SHORT]-and-less x");
}

#[test]
fn a_secret_inside_of_another_does_not_show() {
    let secrets = [("INNER", "battery"), ("OUTER", "horse-battery-staple")];
    always(&secrets, "<horse-battery-staple battery>", "<[REDACTED:OUTER] [REDACTED:INNER]>");
}

#[test]
fn where_secrets_overlap_no_byte_of_either_is_left() {
    always(&[("A", "abcdefgh"), ("B", "efghijkl")], "-abcdefghijkl-", "-[REDACTED:A][REDACTED:B]-");
    always(&[("A", "abab")], "ab ababababa ab.", "ab [REDACTED:A]a ab.");
    always(&[("A", "aaaa")], "aaaaaaaaaaa.", "[REDACTED:A].");
    always(&[("A", "abab"), ("B", "baba")], "abababababab.", "[REDACTED:A][REDACTED:B].");
}

#[test]
fn a_secret_that_looks_like_a_replacement_is_one_and_replacements_are_not_looked_at() {
    let secrets = [("A", "hunter22"), ("B", "[REDACTED:A]"), ("C", "REDACTED")];
    always(&secrets, "hunter22 [REDACTED:A] REDACTED", "[REDACTED:A] [REDACTED:B] [REDACTED:C]");
}

#[test]
fn one_value_under_two_names_has_the_first_of_them() {
    always(&[("ZEBRA", "hunter22"), ("APE", "hunter22")], "hunter22.", "[REDACTED:APE].");
    always(&[("APE", "hunter22"), ("ZEBRA", "hunter22")], "hunter22.", "[REDACTED:APE].");
}

#[test]
fn ordinary_output_is_not_held_back() {
    let redactor = shared(&[("A", "hunter22"), ("KEY", &"k".repeat(60_000))]);
    let (mut stream, mut out) = (RedactStream::new(&redactor), Vec::new());
    stream.push(b"login: ", &mut out);
    assert_eq!(text(&out), "login: ");
    assert!(!stream.is_waiting());
}

#[test]
fn an_idle_stream_shows_a_harmless_piece_and_covers_the_rest_of_the_secret() {
    let redactor = shared(&[("TOKEN", "sesame-open-the-door-now")]);
    let (mut stream, mut out) = (RedactStream::new(&redactor), Vec::new());
    let mut seen = Vec::new();
    for byte in b"sesame-open-the-door-now" {
        stream.push(&[*byte], &mut out);
        stream.idle(&mut out);
        seen.push(out.len());
    }
    // A quarter of 24 bytes, one by one as they came; then nothing until it is known to be the secret.
    assert_eq!(seen[..8], [1, 2, 3, 4, 5, 6, 6, 6]);
    assert_eq!(seen[22], 6);
    assert_eq!(text(&out), "sesame[REDACTED:TOKEN]");
    stream.push(b"!\n", &mut out);
    assert_eq!(text(&out), "sesame[REDACTED:TOKEN]!\n");
}

#[test]
fn a_piece_that_turns_out_harmless_is_shown_whole_and_once() {
    let redactor = shared(&[("TOKEN", "sesame-open-the-door-now")]);
    let (mut stream, mut out) = (RedactStream::new(&redactor), Vec::new());
    stream.push(b"> sesame-op", &mut out);
    stream.idle(&mut out);
    stream.idle(&mut out);
    assert_eq!(text(&out), "> sesame");
    assert!(stream.is_waiting());
    stream.push(b"tional", &mut out);
    assert_eq!(text(&out), "> sesame-optional");
}

#[test]
fn an_idle_stream_shows_a_whole_secret_as_such_though_a_longer_one_may_follow() {
    let redactor = shared(&[("SHORT", "password"), ("LONG", "password-and-more")]);
    let (mut stream, mut out) = (RedactStream::new(&redactor), Vec::new());
    stream.push(b"password", &mut out);
    assert_eq!(text(&out), "");
    stream.idle(&mut out);
    assert_eq!(text(&out), "[REDACTED:SHORT]");
    stream.push(b"-and-more.", &mut out);
    assert_eq!(text(&out), "[REDACTED:SHORT][REDACTED:LONG].");
}

#[test]
fn a_stream_that_is_cut_off_in_a_secret_does_not_show_its_start() {
    let redactor = shared(&[("TOKEN", "0123456789abcdefghij")]);
    assert_eq!(text(&streamed(&redactor, b"> 0123456789abcdefghi", &[])), "> [REDACTED:TOKEN]");
    assert_eq!(text(&streamed(&redactor, b"> 012345", &[4])), "> [REDACTED:TOKEN]");
    // A quarter of it is harmless, and may be anything.
    assert_eq!(text(&streamed(&redactor, b"> 01234", &[4])), "> 01234");
    // So is what is shorter than any secret.
    assert_eq!(text(&streamed(&shared(&[("PIN", "4711")]), b"> 471", &[4])), "> 471");
    // A whole text is not cut off.
    assert_eq!(redactor.get().redact_text("> 0123456789abcdefghi"), "> 0123456789abcdefghi");
}

#[test]
fn after_its_end_a_stream_begins_anew() {
    let redactor = shared(&[("A", "hunter22")]);
    let (mut stream, mut out) = (RedactStream::new(&redactor), Vec::new());
    stream.push(b"hu", &mut out);
    stream.finish(&mut out);
    stream.push(b"nter22 hunter22", &mut out);
    stream.finish(&mut out);
    assert_eq!(text(&out), "hunter22 [REDACTED:A]");
}

#[test]
fn a_new_set_holds_at_once_also_for_what_was_held_back() {
    let redactor = shared(&[("OLD", "hunter22-the-old-one")]);
    let (mut stream, mut out) = (RedactStream::new(&redactor), Vec::new());
    stream.push(b"one hunter22-th", &mut out);
    assert_eq!(text(&out), "one ");
    redactor.set(support::redactor(&[("NEW", "22-this")]));
    stream.push(b"is and hunter22-the-old-one", &mut out);
    stream.finish(&mut out);
    assert_eq!(text(&out), "one hunter[REDACTED:NEW] and hunter22-the-old-one");
}

#[test]
fn old_and_new_values_of_a_secret_share_its_name() {
    let (token, old, new) = (name("TOKEN"), value("hunter21"), value("hunter22"));
    let redactor = Redactor::new([(&token, &old), (&token, &new)]);
    assert_eq!(redactor.redact_text("hunter21 hunter22"), "[REDACTED:TOKEN] [REDACTED:TOKEN]");
}

#[test]
fn without_secrets_everything_passes() {
    let redactor = SharedRedactor::new(Redactor::none());
    assert_eq!(streamed(&redactor, b"\xff[REDACTED:A]\0", &[1, 2]), b"\xff[REDACTED:A]\0");
}

#[test]
fn another_process_goes_on_from_a_checkpoint_at_any_place() {
    let secrets = [("A", "abcdefgh"), ("B", "efghijkl"), ("C", "cccc-cccc-cccc-cccc")];
    let redactor = shared(&secrets);
    let raw = b"-abcdefghijkl-cccc-cccc-cc abcdefghefghijklabcdefgh cccc-cccc-cccc-cccc-".repeat(2);
    let expected = text(&streamed(&redactor, &raw, &[]));
    for cut in 0..raw.len() {
        let (mut stream, mut out) = (RedactStream::new(&redactor), Vec::new());
        stream.push(&raw[..cut], &mut out);
        let kept = serde_json::to_string(&stream.checkpoint()).unwrap();
        let checkpoint: Checkpoint = serde_json::from_str(&kept).unwrap();
        assert_eq!(checkpoint.redacted, out.len() as u64);
        let mut stream = RedactStream::resume(&redactor, &checkpoint);
        // In small pieces: what is pushed again may come in several.
        for chunk in raw[checkpoint.raw as usize..].chunks(3) {
            stream.push(chunk, &mut out);
        }
        stream.finish(&mut out);
        assert_eq!(text(&out), expected, "cut at {cut}");
        assert_eq!(stream.written(), out.len() as u64);
    }
}

#[test]
fn a_checkpoint_after_an_idle_time_shows_nothing_twice() {
    let redactor = shared(&[("TOKEN", "sesame-open-the-door-now")]);
    for (end, expected) in [("-open-the-door-now.", "sesame[REDACTED:TOKEN]."), ("-street", "sesame-street")]
    {
        let (mut stream, mut out) = (RedactStream::new(&redactor), Vec::new());
        stream.push(b"sesame", &mut out);
        stream.idle(&mut out);
        let checkpoint = stream.checkpoint();
        assert_eq!((checkpoint.raw, checkpoint.redacted), (0, 6));
        let mut stream = RedactStream::resume(&redactor, &checkpoint);
        stream.push(b"ses", &mut out);
        stream.push(b"ame", &mut out);
        stream.push(end.as_bytes(), &mut out);
        stream.finish(&mut out);
        assert_eq!(text(&out), expected);
    }
}

#[test]
fn no_more_than_a_kibibyte_is_held_back() {
    for secret in ["a".repeat(1000) + "b", "a".repeat(60_000), "a".repeat(60_000) + "b"] {
        let redactor = shared(&[("A", &secret)]);
        let (mut stream, mut out, mut pushed) = (RedactStream::new(&redactor), Vec::new(), 0);
        while pushed < 5_000 {
            stream.push(&[b'a'; 100], &mut out);
            pushed += 100;
            let Checkpoint { raw, .. } = stream.checkpoint();
            assert!(pushed - raw <= 1024, "{} of {pushed}", pushed - raw);
        }
    }
}

/// Long, and nowhere the same.
fn long_secret(length: usize) -> Vec<u8> {
    let scrambled = |at: u64| {
        (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes().wrapping_mul(0xd6e8_feb8_6659_fd93)
    };
    (0..length as u64).map(|at| b'!' + (scrambled(at) >> 40) as u8 % 90).collect()
}

#[test]
fn a_long_secret_is_replaced_once_in_every_form() {
    for length in [1023, 1024, 1025, 2048, 5000, workroom_vault::LARGEST] {
        let secret = long_secret(length);
        let redactor = shared(&[("KEY", &secret)]);
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let base64 = support::base64(&secret, support::STANDARD, true);
        for form in [&secret[..], hex.as_bytes(), base64.as_bytes()] {
            let whole = [b"<", form, b">"].concat();
            for cuts in [vec![], vec![500], (0..whole.len()).step_by(997).collect()] {
                assert_eq!(text(&streamed(&redactor, &whole, &cuts)), "<[REDACTED:KEY]>", "{length}");
            }
        }
        let twice = [&b"<"[..], &secret, &secret, b">"].concat();
        assert_eq!(text(&streamed(&redactor, &twice, &[700])), "<[REDACTED:KEY][REDACTED:KEY]>", "{length}");
    }
}

#[test]
fn a_part_of_a_long_secret_is_recognised_by_its_sections() {
    let secret = long_secret(5000);
    let redactor = shared(&[("KEY", &secret)]);
    let shown = text(&streamed(&redactor, &[b"<", &secret[500..4000], b">"].concat(), &[]));
    let (before, after) = (text(&secret[500..1024]), text(&secret[3072..4000]));
    assert_eq!(shown, format!("<{before}[REDACTED:KEY]{after}>"));
}

#[test]
fn json_values_keys_and_numbers_are_redacted() {
    let redactor = redactor(&[("TOKEN", "hunter22"), ("CODE", "12345678")]);
    let mut value = serde_json::json!({
        "hunter22": [1, "x hunter22 aHVudGVyMjI=", null, true, 12345678, 1.5],
        "[REDACTED:TOKEN]": { "deep": { "hunter22-key": { "hunter22": "fine" } } },
    });
    redactor.redact_json(&mut value);
    assert_eq!(
        value,
        serde_json::json!({
            "[REDACTED:TOKEN]": { "deep": { "[REDACTED:TOKEN]-key": { "[REDACTED:TOKEN]": "fine" } } },
            "[REDACTED:TOKEN]~2": [1, "x [REDACTED:TOKEN] [REDACTED:TOKEN]", null, true, "[REDACTED:CODE]", 1.5],
        })
    );
}

#[test]
fn text_stays_text_around_a_secret_that_is_none() {
    let redactor = redactor(&[("RAW", b"\x82\xac123")]);
    assert_eq!(redactor.redact_text("€123 €"), "\u{fffd}[REDACTED:RAW] €");
}
