//! What the store holds and what can be done to it: rows, filters, changes and their outcomes.

use crate::layers::{SessionStack, SnapshotRow};
use crate::secrets::SecretRow;
use serde_json::Value;
use workroom_types::{JournalEntry, Session, SessionState, Timestamp, TokenInfo};

/// A session with what only the engine knows of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow {
    pub session: Session,
    /// What find-or-create finds it by; unique among sessions that are not deleted.
    pub place: Option<String>,
    pub waiting: bool,
}

/// Which sessions to list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    pub owner: Option<String>,
    pub group: Option<String>,
    /// Empty: every state but deleted.
    pub states: Vec<SessionState>,
    /// A key, with any value or with this one.
    pub label: Option<(String, Option<String>)>,
    /// This session only.
    pub only: Option<String>,
    pub pool: InPool,
    /// Strictly older than this creation time (ms) and id: the last row of the page before.
    pub before: Option<(i64, String)>,
    pub limit: u32,
}

/// Which sessions, by the pools that they are slots of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum InPool {
    #[default]
    AnyOrNone,
    None,
    Any,
    Named(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    pub info: TokenInfo,
    pub secret_hash: String,
}

/// What is remembered under a caller's idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRow {
    pub fingerprint: String,
    /// What the request is making, known before its answer is.
    pub resource: Option<String>,
    /// Status, content type and body; absent while the request is under way.
    pub answer: Option<(u16, String, Vec<u8>)>,
    pub at: Timestamp,
}

/// One step of a commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// `Exists` when its id was ever used, or when its (owner, key) or its place belongs to a session that is
    /// not deleted: then nothing of the commit is applied, and its outcomes end there.
    InsertSession {
        row: SessionRow,
    },
    /// Replaces all but the owner and the time of creation, which never change. Nothing happens to a session
    /// that is deleted or gone: a late word does not bring it back.
    SaveSession {
        row: SessionRow,
    },
    /// Frees its key and its place; the row and the journal stay. Nothing happens if it is not there.
    DeleteSession {
        id: String,
        at: Timestamp,
    },
    /// Row, labels, journal, head and checkpoints: nothing is left.
    PurgeSession {
        id: String,
    },
    /// An entry in the journal of a session that is there, deleted or not.
    Journal {
        session: String,
        at: Timestamp,
        actor: String,
        kind: String,
        body: Value,
    },
    /// What a session that is there is made of.
    PutStack {
        session: String,
        stack: SessionStack,
    },
    /// A snapshot of a session that is there; one of that name is replaced.
    PutSnapshot {
        session: String,
        row: SnapshotRow,
    },
    /// How large a snapshot is, which is found out after it was made.
    MeasureSnapshot {
        session: String,
        name: String,
        size: u64,
        entries: u64,
    },
    DropSnapshot {
        session: String,
        name: String,
    },
    /// Something that belongs to a session that is there; what has this kind and id is replaced.
    PutPart {
        session: String,
        kind: String,
        id: String,
        doc: Value,
    },
    DropPart {
        session: String,
        kind: String,
        id: String,
    },
    /// A sealed secret; what has its place is replaced.
    PutSecret {
        row: SecretRow,
    },
    /// The same secret under another key.
    SealAgain {
        row: SecretRow,
    },
    PutToken {
        row: TokenRow,
    },
    DeleteToken {
        id: String,
    },
    /// Remembers a request that is under way; on one that is, sets what it is making.
    BeginIdempotent {
        scope: String,
        key: String,
        fingerprint: String,
        resource: Option<String>,
        at: Timestamp,
    },
    /// Remembers the answer. The first answer stays.
    FinishIdempotent {
        scope: String,
        key: String,
        fingerprint: String,
        status: u16,
        content_type: String,
        body: Vec<u8>,
        at: Timestamp,
    },
    /// Forgets a request that has no answer: nothing came of it.
    WithdrawIdempotent {
        scope: String,
        key: String,
    },
    ForgetIdempotent {
        before: Timestamp,
    },
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Done,
    Inserted,
    /// The id of the session that is there already.
    Exists(String),
    Entry(JournalEntry),
}

/// What the store did since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commits that were acknowledged.
    pub commits: u64,
    /// Commits that were refused, and attempts to write notes that failed.
    pub failures: u64,
    /// Journal entries written.
    pub entries: u64,
    /// Notes that were lost: too many waited, or they could never be applied.
    pub dropped: u64,
    /// Notes that are accepted and not yet durable.
    pub waiting: u64,
}
