//! Streams against the plain model, for secrets and texts that are as entangled as can be, however they are cut.

mod support;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use support::{forms, model, redactor, streamed, text};
use workroom_vault::{RedactStream, SharedRedactor};

/// A set of secrets, and a text made of their forms, of pieces of these, and of what they are made of.
#[derive(Debug, Clone)]
struct Case {
    secrets: Vec<(&'static str, String)>,
    text: Vec<u8>,
    cuts: Vec<usize>,
}

const NAMES: [&str; 4] = ["A", "B", "C", "D"];

impl Case {
    fn redactor(&self) -> SharedRedactor {
        SharedRedactor::new(redactor(&self.secrets))
    }

    fn patterns(&self) -> Vec<(Vec<u8>, String)> {
        let of_one = |(name, secret): &(&str, String)| {
            forms(secret.as_bytes()).into_iter().map(|form| (form, (*name).to_owned())).collect::<Vec<_>>()
        };
        self.secrets.iter().flat_map(of_one).collect()
    }
}

/// Few letters, so that secrets overlap with themselves and with each other; now and then one of another kind.
fn secret() -> impl Strategy<Value = String> {
    let of = |letters: &'static str, lengths: std::ops::Range<usize>| {
        prop::collection::vec(prop::sample::select(letters.as_bytes()), lengths)
            .prop_map(|bytes| String::from_utf8(bytes).unwrap())
    };
    prop_oneof![4 => of("ab", 4..12), 2 => of("abz7-", 4..40), 1 => of("ABZabz09.-", 12..90)]
}

/// A piece of the text: of which secret, which of its forms, from where to where of it; or letters.
type Scrap = (Index, Index, Index, Index, bool, String);

fn scrap() -> impl Strategy<Value = Scrap> {
    let letters = prop::collection::vec(prop::sample::select(&b"ab7z=-Y6"[..]), 0..5)
        .prop_map(|bytes| String::from_utf8(bytes).unwrap());
    (any::<Index>(), any::<Index>(), any::<Index>(), any::<Index>(), any::<bool>(), letters)
}

fn case() -> impl Strategy<Value = Case> {
    let secrets = prop::collection::vec(secret(), 1..=NAMES.len());
    let scraps = prop::collection::vec(scrap(), 0..12);
    let cuts = prop::collection::vec(any::<Index>(), 0..8);
    (secrets, scraps, cuts).prop_map(|(secrets, scraps, cuts)| {
        let mut written = Vec::new();
        for (which, form, from, to, whole, letters) in scraps {
            let forms = forms(which.get(&secrets).as_bytes());
            // The value itself as often as all its encodings.
            let form = forms.get(form.index(forms.len() * 2)).unwrap_or(&forms[0]);
            let (from, to) = (from.index(form.len() + 1), to.index(form.len() + 1));
            written.extend(if whole { &form[..] } else { &form[from.min(to)..from.max(to)] });
            written.extend(letters.bytes());
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(written.len() + 1)).collect();
        cuts.sort_unstable();
        Case { secrets: NAMES.into_iter().zip(secrets).collect(), text: written, cuts }
    })
}

fn agrees_with_the_model(case: Case) -> Result<(), TestCaseError> {
    let (redactor, patterns) = (case.redactor(), case.patterns());
    let whole = redactor.get().redact_bytes(&case.text).into_owned();
    prop_assert_eq!(text(&whole), text(&model(&patterns, &case.text, false)), "as a whole text");
    let expected = text(&model(&patterns, &case.text, true));
    prop_assert_eq!(text(&streamed(&redactor, &case.text, &case.cuts)), expected.as_str(), "in pieces");
    let every: Vec<usize> = (0..case.text.len()).collect();
    prop_assert_eq!(text(&streamed(&redactor, &case.text, &every)), expected.as_str(), "byte by byte");
    for cut in every {
        prop_assert_eq!(text(&streamed(&redactor, &case.text, &[cut])), expected.as_str(), "cut at {}", cut);
    }
    goes_on_elsewhere(&case, &redactor, &expected)
}

/// At each cut another process takes over from a checkpoint.
fn goes_on_elsewhere(case: &Case, redactor: &SharedRedactor, expected: &str) -> Result<(), TestCaseError> {
    let (mut stream, mut out) = (RedactStream::new(redactor), Vec::new());
    for &cut in case.cuts.iter().chain([&case.text.len()]) {
        let from = stream.checkpoint().raw as usize;
        stream = RedactStream::resume(redactor, &stream.checkpoint());
        stream.push(&case.text[from..cut.max(from)], &mut out);
    }
    stream.finish(&mut out);
    prop_assert_eq!(text(&out), expected, "with checkpoints");
    Ok(())
}

/// Whole secrets and what is between them; the stream is idle at every cut.
fn idle_times_show_little(case: Case) -> Result<(), TestCaseError> {
    let redactor = case.redactor();
    let mut written = Vec::new();
    for &cut in &case.cuts {
        let (_, secret) = &case.secrets[cut % case.secrets.len()];
        written.extend(format!("{secret} ").bytes());
    }
    let (mut stream, mut out) = (RedactStream::new(&redactor), Vec::new());
    let step = case.text.len() % 7 + 1;
    for chunk in written.chunks(step) {
        stream.push(chunk, &mut out);
        stream.idle(&mut out);
    }
    stream.finish(&mut out);
    let shown = text(&out);
    let words: Vec<&str> = shown.split(' ').collect();
    prop_assert_eq!(words.len(), case.cuts.len() + 1);
    for (word, cut) in words.iter().zip(&case.cuts) {
        let (_, secret) = &case.secrets[cut % case.secrets.len()];
        let before = word.split("[REDACTED").next().unwrap_or_default();
        prop_assert!(word.contains("[REDACTED:"), "{secret} became {word}");
        prop_assert!(before.len() <= (secret.len() / 4).min(8), "{secret} became {word}");
        prop_assert!(word.ends_with(']'), "{secret} became {word}");
    }
    Ok(())
}

fn run(cases: u32, check: fn(Case) -> Result<(), TestCaseError>) {
    // Nothing is written into the source tree; a failure prints its smallest case.
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    if let Err(failure) = TestRunner::new(config).run(&case(), check) {
        panic!("{failure}");
    }
}

#[test]
fn whatever_the_secrets_and_the_text_are_every_cutting_gives_what_the_model_says() {
    run(400, agrees_with_the_model);
}

#[test]
fn whenever_a_stream_is_idle_it_shows_a_quarter_of_a_secret_at_most() {
    run(2000, idle_times_show_little);
}

#[test]
#[ignore = "takes minutes"]
fn soak_every_cutting_gives_what_the_model_says() {
    run(60_000, agrees_with_the_model);
}

#[test]
#[ignore = "takes minutes"]
fn soak_idle_streams_show_little() {
    run(500_000, idle_times_show_little);
}
