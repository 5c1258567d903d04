//! A compiled set of secrets, and whole texts without them.

use crate::cover::{Cover, Ending};
use crate::finder::Finder;
use crate::forms::{Pattern, patterns};
use crate::{SecretName, SecretValue};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

/// Knows every form of a set of secrets. Made once for a set and shared; wiped when the last one lets go.
///
/// What it replaces: the value without whitespace around it, as it is, with a terminal's line ends, as the inside
/// of a JSON string, in hex (either case), in base64 (wherever it lies in what was encoded; both alphabets; with
/// and without padding; alone also over lines of 64 and 76), and url-encoded as common libraries do it. Where
/// several begin at one place the longest counts; two secrets with one form in common share the name that comes
/// first in the alphabet. A form of more than 1 KiB is found section by section, so a part of it is found too.
///
/// What it cannot see: values that were split by anything else, compressed, encrypted, reversed, or encoded in
/// any other way. It is against accidents; a program that knows a secret can always write it so that nobody
/// finds it.
pub struct Redactor {
    finder: Finder,
    /// What is known of each pattern.
    labels: Vec<Label>,
    too_short: Vec<SecretName>,
}

/// Whose a pattern is.
pub(crate) struct Label {
    pub(crate) name: Arc<str>,
    pub(crate) length: usize,
    /// See [`Pattern::continues`].
    pub(crate) continues: bool,
}

impl Redactor {
    /// A set without secrets: everything passes as it is.
    pub fn none() -> Redactor {
        Redactor::new(std::iter::empty())
    }

    /// Several secrets may have one name, such as those of several versions: whoever may still show an old value
    /// needs it in the set.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a SecretName, &'a SecretValue)>) -> Redactor {
        let mut all: Vec<(Pattern, Arc<str>)> = Vec::new();
        let mut too_short = BTreeSet::new();
        for (name, value) in secrets {
            let own = patterns(value.expose());
            if own.is_empty() {
                too_short.insert(name.clone());
            }
            let name: Arc<str> = name.as_str().into();
            all.extend(own.into_iter().map(|pattern| (pattern, Arc::clone(&name))));
        }
        all.sort_unstable_by(|(one, name), (other, other_name)| {
            (one.bytes.as_slice(), name, one.continues).cmp(&(&other.bytes, other_name, other.continues))
        });
        all.dedup_by(|(next, _), (first, _)| next.bytes == first.bytes);
        let label = |(pattern, name): &(Pattern, Arc<str>)| Label {
            name: Arc::clone(name),
            length: pattern.bytes.len(),
            continues: pattern.continues,
        };
        Redactor {
            finder: Finder::new(all.iter().map(|(pattern, _)| pattern.bytes.as_slice())),
            labels: all.iter().map(label).collect(),
            too_short: too_short.into_iter().collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Names of secrets that are not looked for, because there is too little of them: see
    /// [`SHORTEST`](crate::SHORTEST).
    pub fn too_short(&self) -> &[SecretName] {
        &self.too_short
    }

    pub(crate) fn finder(&self) -> &Finder {
        &self.finder
    }

    pub(crate) fn label(&self, number: usize) -> &Label {
        &self.labels[number]
    }

    /// The text without secrets; itself if there is none in it. Redact first and shorten then: of a secret that
    /// was cut through, this knows nothing.
    pub fn redact_bytes<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let mut hits = Vec::new();
        self.finder.find(text, &mut hits);
        if hits.iter().all(|hit| hit.whole.is_none()) {
            return Cow::Borrowed(text);
        }
        let mut out = Vec::with_capacity(text.len());
        Cover::default().walk(self, text, &hits, Ending::Whole, &mut out);
        Cow::Owned(out)
    }

    /// The same for a text that was cut short, perhaps in the middle of a secret: the start of one at its end is
    /// covered, if it is more than a harmless one.
    pub fn redact_start<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut hits = Vec::new();
        self.finder.find(text.as_bytes(), &mut hits);
        if hits.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut out = Vec::with_capacity(text.len());
        Cover::default().walk(self, text.as_bytes(), &hits, Ending::Cut, &mut out);
        Cow::Owned(String::from_utf8_lossy(&out).into_owned())
    }

    /// The same for text. Where a secret that is no text began or ended inside of a character, what is left of
    /// the character becomes U+FFFD.
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redact_bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => Cow::Owned(
                String::from_utf8(bytes)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
            ),
        }
    }
}

/// The set that is in force. Streams look here at each push, so a new set holds for what comes from then on, and
/// for what they hold back.
#[derive(Clone)]
pub struct SharedRedactor(Arc<RwLock<Arc<Redactor>>>);

impl SharedRedactor {
    pub fn new(redactor: Redactor) -> SharedRedactor {
        SharedRedactor(Arc::new(RwLock::new(Arc::new(redactor))))
    }

    pub fn get(&self) -> Arc<Redactor> {
        // Nobody panics while holding it, and what is in it is whole at any time.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn set(&self, redactor: Redactor) {
        let new = Arc::new(redactor);
        let old = std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), new);
        // Wiped outside of the lock.
        drop(old);
    }
}
