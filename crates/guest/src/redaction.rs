//! What must not be seen in output: the secrets that the room was given, and further values of single commands.
//!
//! Output is redacted here, before it is written anywhere: all readers then see the same bytes at the same offsets.
//! A room without secrets has none of this: its output is not looked at.

use std::collections::HashMap;
use std::time::{Duration, Instant};
use workroom_proto::{Secret, Stream};
use workroom_redact::{RedactStream, Redactor, SecretName, SecretValue, SharedRedactor};

/// How long an output must be silent before what is harmless of a secret's possible start is shown.
const IDLE: Duration = Duration::from_millis(50);

/// Values of commands that are about to be started, of which the host told before: more than it ever does.
const MOST_AWAITED: usize = 1024;

/// The room's set.
pub(crate) struct Redaction {
    given: Vec<Secret>,
    room: SharedRedactor,
    /// Further values of commands that have not been started yet.
    awaited: HashMap<u32, Vec<Secret>>,
}

impl Redaction {
    pub(crate) fn new() -> Redaction {
        Redaction { given: Vec::new(), room: SharedRedactor::new(Redactor::none()), awaited: HashMap::new() }
    }

    /// Adds to what is looked for; says whether there was something new.
    pub(crate) fn add(&mut self, secrets: Vec<Secret>) -> bool {
        let before = self.given.len();
        for secret in secrets {
            if !self.given.contains(&secret) {
                self.given.push(secret);
            }
        }
        let grew = self.given.len() > before;
        if grew {
            self.room.set(compile(&self.given, &[]));
        }
        grew
    }

    pub(crate) fn given(&self) -> &[Secret] {
        &self.given
    }

    /// Further values of a command that is about to be started.
    pub(crate) fn await_command(&mut self, command: u32, values: Vec<Secret>) {
        if self.awaited.len() < MOST_AWAITED {
            self.awaited.entry(command).or_default().extend(values);
        }
    }

    /// For the output of a command that is being started; nothing where there is nothing to look for.
    pub(crate) fn of_command(&mut self, command: u32) -> Option<Box<Redacting>> {
        let own = match self.awaited.is_empty() {
            true => Vec::new(),
            false => self.awaited.remove(&command).unwrap_or_default(),
        };
        (!own.is_empty() || !self.given.is_empty()).then(|| Box::new(Redacting::new(self, own)))
    }
}

fn compile(given: &[Secret], own: &[Secret]) -> Redactor {
    let known = |secret: &Secret| {
        // Who gives them has checked them.
        let name = SecretName::new(secret.name.clone()).ok()?;
        Some((name, SecretValue::new(secret.value.clone()).ok()?))
    };
    let secrets: Vec<_> = given.iter().chain(own).filter_map(known).collect();
    Redactor::new(secrets.iter().map(|(name, value)| (name, value)))
}

/// The output of one command on its way through redaction.
pub(crate) struct Redacting {
    streams: [RedactStream; 2],
    redactor: SharedRedactor,
    /// Values that are looked for in this command's output alone.
    own: Vec<Secret>,
    /// When what is held back was held for long enough.
    idle_at: Option<Instant>,
    shown: Vec<u8>,
}

impl Redacting {
    fn new(redaction: &Redaction, own: Vec<Secret>) -> Redacting {
        let redactor = match own.is_empty() {
            true => redaction.room.clone(),
            false => SharedRedactor::new(compile(&redaction.given, &own)),
        };
        Redacting {
            streams: [RedactStream::new(&redactor), RedactStream::new(&redactor)],
            redactor,
            own,
            idle_at: None,
            shown: Vec::new(),
        }
    }

    /// The room's set has grown, or this command's values have.
    pub(crate) fn renew(&mut self, redaction: &Redaction, more: Vec<Secret>) {
        if self.own.is_empty() && more.is_empty() {
            // The room's own set, which has changed already.
            return;
        }
        if self.own.is_empty() {
            // What is held back may begin what only the others know: it goes on with them.
            let mut own = Redacting::new(redaction, more);
            std::mem::swap(self, &mut own);
            for (stream, before) in self.streams.iter_mut().zip(own.streams) {
                stream.take_over(before);
            }
            self.idle_at = own.idle_at;
            return;
        }
        self.own.extend(more);
        self.redactor.set(compile(&redaction.given, &self.own));
    }

    /// What can be shown of these bytes and those held back before.
    pub(crate) fn push(&mut self, stream: Stream, data: &[u8]) -> &[u8] {
        self.shown.clear();
        self.streams[stream as usize].push(data, &mut self.shown);
        let waits = self.streams.iter().any(RedactStream::is_waiting);
        self.idle_at = waits.then(|| Instant::now() + IDLE);
        &self.shown
    }

    pub(crate) fn idle_at(&self) -> Option<Instant> {
        self.idle_at
    }

    /// Nothing has come for a while: what is harmless of what is held back.
    pub(crate) fn idle(&mut self, stream: Stream) -> &[u8] {
        self.idle_at = None;
        self.shown.clear();
        self.streams[stream as usize].idle(&mut self.shown);
        &self.shown
    }

    /// It ends here, or what follows is somebody else's.
    pub(crate) fn finish(&mut self, stream: Stream) -> &[u8] {
        self.idle_at = None;
        self.shown.clear();
        self.streams[stream as usize].finish(&mut self.shown);
        &self.shown
    }
}
