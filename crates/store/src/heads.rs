//! Appending to journals: the head of each chain, kept in memory by the one task that writes.

use crate::chain::{self, CHECKPOINT_EVERY, Link, Mark, NOTHING, Signer};
use crate::error::{StoreError, StoreErrorKind};
use crate::script::{Script, Statement};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};
use std::collections::HashMap;
use workroom_types::{JournalEntry, Timestamp};

/// Beyond this many the cache begins anew: an entry is a few hundred bytes and is read back in a moment.
const KEPT: usize = 4096;

struct Head {
    owner: String,
    entries: i64,
    hash: String,
    /// False when the stored head was not the one that we signed. The journal goes on, but nothing that
    /// follows is signed: a repair of ours would hide what `verify` must find.
    trusted: bool,
    /// Changed in the transaction under way and not yet written.
    changed: bool,
}

pub(crate) struct Heads {
    signer: Signer,
    known: HashMap<String, Head>,
    /// Entries of the transaction under way that are not yet written, in order.
    drafted: Vec<Drafted>,
    /// Those that are, by their sessions and numbers, in the same order; one list for each statement.
    written: Vec<Vec<(String, i64)>>,
}

struct Drafted {
    session: String,
    seq: i64,
    owner: String,
    at: i64,
    actor: String,
    kind: String,
    body: String,
    hash: String,
    /// The checkpoint's signature, where this entry is one.
    signature: Option<String>,
}

/// What a caller says of an entry; the rest is given by its place.
pub(crate) struct Draft<'a> {
    pub(crate) session: &'a str,
    pub(crate) at: Timestamp,
    pub(crate) actor: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) body: &'a serde_json::Value,
}

impl Heads {
    pub(crate) fn new(signer: Signer) -> Heads {
        Heads { signer, known: HashMap::new(), drafted: Vec::new(), written: Vec::new() }
    }

    /// After a failure what is here may be ahead of what is stored.
    pub(crate) fn forget_all(&mut self) {
        self.known.clear();
        self.drafted.clear();
        self.written.clear();
    }

    pub(crate) fn forget(&mut self, session: &str) {
        self.known.remove(session);
    }

    /// A new session has a signed head from the start: one whose journal was taken away whole is then
    /// different from one that never had any.
    pub(crate) fn begin(&mut self, session: &str, owner: &str) {
        let head =
            Head { owner: owner.into(), entries: 0, hash: NOTHING.into(), trusted: true, changed: true };
        self.known.insert(session.into(), head);
    }

    pub(crate) fn knows(&self, session: &str) -> bool {
        self.known.contains_key(session)
    }

    /// Reads the head of a journal that was not written to for a while.
    pub(crate) async fn learn(
        &mut self,
        connection: &mut SqliteConnection,
        session: &str,
    ) -> Result<(), StoreError> {
        let head = self.load(connection, session).await?;
        self.known.insert(session.into(), head);
        Ok(())
    }

    /// Gives an entry its place in its journal, whose head is known. It is written, and gets its position, with `write`.
    pub(crate) fn append(&mut self, draft: Draft<'_>) -> Result<JournalEntry, StoreError> {
        let Draft { session, at, actor, kind, body } = draft;
        let Some(head) = self.known.get_mut(session) else { return Err(no_session(session)) };

        let text = body.to_string();
        let seq = head.entries + 1;
        let hash = chain::hash(&head.hash, &Link { session, seq, at: at.0, actor, kind, body: &text });
        head.entries = seq;
        head.hash.clone_from(&hash);
        head.changed = true;
        let is_checkpoint = seq % CHECKPOINT_EVERY == 0 && head.trusted;
        self.drafted.push(Drafted {
            session: session.into(),
            seq,
            owner: head.owner.clone(),
            at: at.0,
            actor: actor.into(),
            kind: kind.into(),
            body: text,
            hash: hash.clone(),
            signature: is_checkpoint.then(|| self.signer.sign(Mark::Checkpoint, session, seq, &hash)),
        });
        Ok(JournalEntry {
            position: 0,
            session: session.into(),
            seq,
            at,
            actor: actor.into(),
            kind: kind.into(),
            body: body.clone(),
            hash,
        })
    }

    /// Writes the entries that were appended, several with one statement, and the heads that changed: once for each
    /// session, however many entries it gained.
    pub(crate) fn write(&mut self, script: &mut Script) {
        let drafted = std::mem::take(&mut self.drafted);
        for rows in few_sizes(&drafted) {
            let mut insert = Statement::new(format!(
                "INSERT INTO journal (session, seq, owner, at, actor, kind, body, hash) VALUES {} \
                 RETURNING position, session, seq",
                holes(rows.len(), 8)
            ));
            for row in rows {
                insert =
                    insert.bind(row.session.as_str()).bind(row.seq).bind(row.owner.as_str()).bind(row.at);
                insert = insert.bind(row.actor.as_str()).bind(row.kind.as_str());
                insert = insert.bind(row.body.as_str()).bind(row.hash.as_str());
            }
            script.say(insert);
            self.written.push(rows.iter().map(|row| (row.session.clone(), row.seq)).collect());
        }
        for Drafted { session, seq, hash, signature, .. } in &drafted {
            let Some(signature) = signature else { continue };
            let insert = Statement::new(
                "INSERT INTO checkpoints (session, seq, hash, signature) VALUES ($1, $2, $3, $4)",
            );
            script.say(insert.bind(session.as_str()).bind(*seq).bind(hash.as_str()).bind(signature.as_str()));
        }
        let mut changed: Vec<_> = self.known.iter_mut().filter(|(_, head)| head.changed).collect();
        for heads in few_sizes(&changed) {
            let mut put = Statement::new(format!(
                "INSERT INTO heads (session, entries, hash, signature) VALUES {} \
                 ON CONFLICT (session) DO UPDATE SET entries = excluded.entries, hash = excluded.hash, \
                 signature = excluded.signature",
                holes(heads.len(), 4)
            ));
            for (session, head) in heads {
                let signature = match head.trusted {
                    true => self.signer.sign(Mark::Head, session, head.entries, &head.hash),
                    false => String::new(),
                };
                put = put.bind(session.as_str()).bind(head.entries).bind(head.hash.as_str()).bind(signature);
            }
            script.say(put);
        }
        changed.iter_mut().for_each(|(_, head)| head.changed = false);
    }

    /// The positions of all entries of the transaction, which has been sent, in their order.
    pub(crate) fn positions(&mut self, returned: &[SqliteRow]) -> Result<Vec<i64>, StoreError> {
        if self.known.len() > KEPT {
            self.known.clear();
        }
        let mut returned = returned.iter();
        let mut all = Vec::new();
        for entries in std::mem::take(&mut self.written) {
            // SQL promises no order of what RETURNING returns.
            let mut positions = HashMap::with_capacity(entries.len());
            for row in returned.by_ref().take(entries.len()) {
                let entry = (row.try_get::<&str, _>(1)?, row.try_get::<i64, _>(2)?);
                positions.insert(entry, row.try_get::<i64, _>(0)?);
            }
            for (session, seq) in &entries {
                let position = positions.get(&(session.as_str(), *seq)).ok_or_else(|| {
                    let what = format!("entry {seq} of session {session} was not written");
                    StoreError::new(StoreErrorKind::Other, what)
                })?;
                all.push(*position);
            }
        }
        Ok(all)
    }

    async fn load(&self, connection: &mut SqliteConnection, session: &str) -> Result<Head, StoreError> {
        let row = sqlx::query(
            "SELECT s.owner, h.entries, h.hash, h.signature, \
             (SELECT max(j.seq) FROM journal j WHERE j.session = s.id) \
             FROM sessions s LEFT JOIN heads h ON h.session = s.id WHERE s.id = $1",
        )
        .bind(session)
        .fetch_optional(&mut *connection)
        .await?
        .ok_or_else(|| no_session(session))?;
        let owner: String = row.try_get(0)?;
        let last: i64 = row.try_get::<Option<i64>, _>(4)?.unwrap_or_default();
        let stored = match row.try_get::<Option<i64>, _>(1)? {
            Some(entries) => Some((entries, row.try_get::<String, _>(2)?, row.try_get::<String, _>(3)?)),
            None => None,
        };
        match stored {
            Some((entries, hash, signature)) if entries >= last => {
                let trusted = self.signer.signed(Mark::Head, session, entries, &hash, &signature);
                Ok(Head { owner, entries, hash, trusted, changed: false })
            }
            // The head is gone, or entries were put behind it: go on behind the last one there is.
            _ => {
                let hash = sqlx::query_scalar("SELECT hash FROM journal WHERE session = $1 AND seq = $2")
                    .bind(session)
                    .bind(last)
                    .fetch_optional(connection)
                    .await?
                    .unwrap_or_default();
                Ok(Head { owner, entries: last, hash, trusted: false, changed: false })
            }
        }
    }
}

/// Cuts into pieces of 8 and 1: SQLite looks for the name of each hole among those before it.
fn few_sizes<T>(mut rows: &[T]) -> Vec<&[T]> {
    let mut pieces = Vec::new();
    for size in [8, 1] {
        while let Some((piece, rest)) = rows.split_at_checked(size) {
            pieces.push(piece);
            rows = rest;
        }
    }
    pieces
}

/// `($1, $2), ($3, $4)`
fn holes(rows: usize, columns: usize) -> String {
    let row = |row: usize| {
        let holes: Vec<String> = (1..=columns).map(|column| format!("${}", row * columns + column)).collect();
        format!("({})", holes.join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

fn no_session(session: &str) -> StoreError {
    StoreError::unfit(
        format!("there is no session {session} to write a journal for"),
        "insert the session before or with its first entry",
    )
}
