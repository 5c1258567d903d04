//! What the redaction tests share: secrets by hand, streams in pieces, and a plain model of what must come out.
#![allow(dead_code)]

use workroom_vault::{RedactStream, Redactor, SecretName, SecretValue, SharedRedactor};

pub(crate) fn name(text: &str) -> SecretName {
    SecretName::new(text).expect("a name")
}

pub(crate) fn value(bytes: impl AsRef<[u8]>) -> SecretValue {
    SecretValue::new(bytes.as_ref()).expect("a value")
}

pub(crate) fn redactor<V: AsRef<[u8]>>(secrets: &[(&str, V)]) -> Redactor {
    let secrets: Vec<_> = secrets.iter().map(|(label, bytes)| (name(label), value(bytes))).collect();
    Redactor::new(secrets.iter().map(|(name, value)| (name, value)))
}

pub(crate) fn shared<V: AsRef<[u8]>>(secrets: &[(&str, V)]) -> SharedRedactor {
    SharedRedactor::new(redactor(secrets))
}

/// A stream through its whole life, cut before each of `cuts`.
pub(crate) fn streamed(redactor: &SharedRedactor, text: &[u8], cuts: &[usize]) -> Vec<u8> {
    let (mut stream, mut out, mut from) = (RedactStream::new(redactor), Vec::new(), 0);
    for &cut in cuts.iter().chain([&text.len()]) {
        let cut = cut.clamp(from, text.len());
        stream.push(&text[from..cut], &mut out);
        from = cut;
    }
    stream.finish(&mut out);
    assert_eq!(stream.written(), out.len() as u64);
    out
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
pub(crate) const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Written anew, bit by bit.
pub(crate) fn base64(bytes: &[u8], alphabet: &[u8; 64], padded: bool) -> String {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let mut encoded: String = bits
        .chunks(6)
        .map(|six| {
            let number = (0..6).fold(0, |number, bit| number << 1 | six.get(bit).copied().unwrap_or(0));
            char::from(alphabet[usize::from(number)])
        })
        .collect();
    while padded && !encoded.len().is_multiple_of(4) {
        encoded.push('=');
    }
    encoded
}

/// Every form of a secret of letters, digits, `.` and `-`, which only base64 and hex change, by the rules: the value;
/// hex in either case; what base64 has of it at each of three places, at least six characters, with or without the
/// end of the text; alone at any length.
pub(crate) fn forms(secret: &[u8]) -> Vec<Vec<u8>> {
    let hex = |byte: &u8| format!("{byte:02x}").into_bytes();
    let lower: Vec<u8> = secret.iter().flat_map(hex).collect();
    let mut forms = vec![secret.to_vec(), lower.to_ascii_uppercase(), lower];
    for before in 0..3 {
        let padding = [&[0; 2][..before], secret].concat();
        for alphabet in [STANDARD, URL_SAFE] {
            let (bare, padded) = (base64(&padding, alphabet, false), base64(&padding, alphabet, true));
            let first = [0, 2, 3][before];
            let determined = padding.len() * 8 / 6;
            let ends = [
                (&bare[first..determined], true),
                (&bare[first..], before > 0),
                (&padded[first..], before > 0),
            ];
            let long_enough = |(text, partly): &&(&str, bool)| text.len() >= 6 || !partly;
            forms.extend(ends.iter().filter(long_enough).map(|(text, _)| text.as_bytes().to_vec()));
        }
    }
    forms
}

/// What must come out, said as plainly as possible: mark every byte of every occurrence of every pattern, and give
/// the names of those that are the longest at their start and reach further than all before them.
pub(crate) fn model(patterns: &[(Vec<u8>, String)], text: &[u8], ends_here: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut covered_to, mut names): (usize, Vec<&str>) = (0, Vec::new());
    for start in 0..=text.len() {
        let rest = &text[start..];
        let mut longest: Option<(usize, &str)> = None;
        for (pattern, name) in patterns {
            let better =
                longest.is_none_or(|(length, other)| (pattern.len(), other) > (length, name.as_str()));
            if rest.starts_with(pattern) && better {
                longest = Some((pattern.len(), name));
            }
        }
        if ends_here {
            let pieces: Vec<&(Vec<u8>, String)> = patterns
                .iter()
                .filter(|(pattern, _)| pattern.len() > rest.len() && pattern.starts_with(rest))
                .collect();
            let harmless = pieces.iter().map(|(pattern, _)| (pattern.len() / 4).min(8)).min();
            if harmless.is_some_and(|harmless| rest.len() > harmless.max(3))
                && longest.is_none_or(|(length, _)| length < rest.len())
            {
                longest = pieces.iter().map(|(_, name)| (rest.len(), name.as_str())).min();
            }
        }
        if let Some((length, name)) = longest.filter(|(length, _)| start + length > covered_to) {
            if start >= covered_to {
                names.clear();
            }
            if !names.contains(&name) {
                out.extend(format!("[REDACTED:{name}]").bytes());
                names.push(name);
            }
            covered_to = start + length;
        }
        if start >= covered_to {
            out.extend(rest.first());
        }
    }
    out
}

/// A directory of its own, gone at the end.
pub(crate) struct Scratch(std::path::PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("workroom-vault-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a scratch directory");
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
