//! What must not be seen of each session on this side of its room: in records, errors and the log.
//!
//! Output is redacted by the guest. Here it is about what callers themselves send and is kept or repeated: the text of
//! a command, a name, an event of their own, an error that quotes.

use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use workroom_store::Change;
use workroom_types::{Problem, Process, Session};
use workroom_vault::{Redactor, SharedRedactor};

/// Where the text of a command was cut short.
const CUT: char = '…';

/// Fields of a record that hold words; the others are read again by programs, and are what they are.
const WORDS: [&str; 8] = ["command", "argv", "detail", "reason", "cwd", "tag", "title", "host"];

/// The sets of all sessions that have seen secrets.
#[derive(Default)]
pub(crate) struct Redactors {
    /// So that it costs nothing where there are none.
    count: AtomicUsize,
    sets: RwLock<HashMap<String, SharedRedactor>>,
}

/// Those of this process's server, for its log.
static OF_LOG: OnceLock<Arc<Redactors>> = OnceLock::new();

/// A line of the log without secrets.
pub fn redact_log(line: &[u8]) -> Cow<'_, [u8]> {
    match OF_LOG.get() {
        Some(redactors) => redactors.all(line),
        None => Cow::Borrowed(line),
    }
}

impl Redactors {
    /// Those that the log of this process looks at.
    pub(crate) fn of_log() -> Arc<Redactors> {
        OF_LOG.get_or_init(Arc::default).clone()
    }

    pub(crate) fn put(&self, session: &str, set: &SharedRedactor) {
        let mut sets = self.sets.write().unwrap_or_else(PoisonError::into_inner);
        sets.insert(session.to_owned(), set.clone());
        self.count.store(sets.len(), Relaxed);
    }

    pub(crate) fn forget(&self, session: &str) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let mut sets = self.sets.write().unwrap_or_else(PoisonError::into_inner);
        sets.remove(session);
        self.count.store(sets.len(), Relaxed);
    }

    fn of(&self, session: &str) -> Option<Arc<Redactor>> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        let sets = self.sets.read().unwrap_or_else(PoisonError::into_inner);
        sets.get(session).map(SharedRedactor::get)
    }

    fn all<'l>(&self, line: &'l [u8]) -> Cow<'l, [u8]> {
        if self.count.load(Relaxed) == 0 {
            return Cow::Borrowed(line);
        }
        let sets: Vec<SharedRedactor> =
            self.sets.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let mut clean = Cow::Borrowed(line);
        for set in sets {
            if let Cow::Owned(redacted) = set.get().redact_bytes(&clean) {
                clean = Cow::Owned(redacted);
            }
        }
        clean
    }

    /// A change without secrets, before it is written.
    pub(crate) fn clean(&self, change: &mut Change) {
        match change {
            Change::Journal { session, kind, body, .. } => {
                let Some(redactor) = self.of(session) else { return };
                match kind.starts_with("caller.") {
                    // All of it is a caller's: also what is a number or a key.
                    true => redactor.redact_json(body),
                    false => texts(&redactor, body),
                }
            }
            Change::PutPart { session, doc, .. } => {
                if let Some(redactor) = self.of(session) {
                    words(&redactor, doc);
                }
            }
            Change::SaveSession { row } | Change::InsertSession { row } => {
                if let Some(redactor) = self.of(&row.session.id) {
                    clean_session(&redactor, &mut row.session);
                }
            }
            _ => {}
        }
    }
}

/// Every string of it, wherever it is.
fn texts(redactor: &Redactor, value: &mut Value) {
    match value {
        Value::String(text) => clean_text(redactor, text),
        Value::Array(items) => items.iter_mut().for_each(|item| texts(redactor, item)),
        Value::Object(fields) => fields.values_mut().for_each(|field| texts(redactor, field)),
        _ => {}
    }
}

/// The strings of fields that hold words.
fn words(redactor: &Redactor, value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| words(redactor, item)),
        Value::Object(fields) => {
            for (name, field) in fields {
                match WORDS.contains(&name.as_str()) {
                    true => texts(redactor, field),
                    false => words(redactor, field),
                }
            }
        }
        _ => {}
    }
}

/// Of a text that was cut short, a secret's start at the cut counts as one.
pub(crate) fn clean_text(redactor: &Redactor, text: &mut String) {
    if redactor.is_empty() {
        return;
    }
    let redacted = match text.strip_suffix(CUT) {
        Some(start) => {
            let mut shown = redactor.redact_start(start).into_owned();
            shown.push(CUT);
            Cow::Owned(shown)
        }
        None => redactor.redact_text(text),
    };
    if let Cow::Owned(redacted) = redacted {
        *text = redacted;
    }
}

pub(crate) fn clean_session(redactor: &Redactor, session: &mut Session) {
    if redactor.is_empty() {
        return;
    }
    clean_text(redactor, &mut session.name);
    session.labels.values_mut().for_each(|value| clean_text(redactor, value));
    session.reason.iter_mut().for_each(|reason| clean_text(redactor, reason));
}

pub(crate) fn clean_process(redactor: &Redactor, process: &mut Process) {
    if redactor.is_empty() {
        return;
    }
    for text in [&mut process.command, &mut process.cwd].into_iter().chain(process.tag.as_mut()) {
        clean_text(redactor, text);
    }
}

pub(crate) fn clean_problem(redactor: &Redactor, mut problem: Problem) -> Problem {
    if !redactor.is_empty() {
        clean_text(redactor, &mut problem.detail);
        clean_text(redactor, &mut problem.hint);
        problem.report.iter_mut().for_each(|report| texts(redactor, report));
    }
    problem
}

/// What is kept as it is, to be used again, must not hold a secret: with it redacted it would be of no use.
pub(crate) fn refuse_secrets(redactor: &Redactor, kept: &impl Serialize, what: &str) -> Result<(), Problem> {
    if redactor.is_empty() {
        return Ok(());
    }
    let before = serde_json::to_value(kept).unwrap_or_default();
    let mut after = before.clone();
    texts(redactor, &mut after);
    match before == after {
        true => Ok(()),
        false => Err(Problem::invalid(
            format!("{what} holds the value of a secret"),
            "name the secret in secret_env, and use the variable",
        )),
    }
}
