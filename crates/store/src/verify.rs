//! Reading journals back against their hashes and signatures, and naming what does not fit.

use crate::chain::{self, CHECKPOINT_EVERY, Link, Mark, NOTHING, Signer};
use crate::error::{StoreError, StoreErrorKind};
use crate::layout::Layout;
use crate::schema;
use crate::store::Store;
use sqlx::sqlite::SqliteRow;
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};
use std::path::Path;

/// Rows are read by pages of this many: memory stays the same however long the journals are.
const PAGE: i64 = 512;
/// An entry behind a faulty one is compared with this many hashes before it, so that it is not itself called
/// faulty only because its neighbour is.
const RECENT: usize = 16;

/// What was read, and what in it is not what was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    pub sessions: u64,
    pub entries: u64,
    pub faults: Vec<Fault>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub session: String,
    /// The entry, where one can be named.
    pub seq: Option<i64>,
    pub what: String,
}

impl Store {
    /// Checks one journal, or all of them, as they are at one moment.
    pub async fn verify(&self, session: Option<&str>) -> Result<Verification, StoreError> {
        let mut connection = self.readers.acquire().await?;
        verify(&mut connection, &self.signer, session).await
    }
}

/// Checks the journals of a state directory that no server has open. Changes nothing.
pub async fn verify_at(dir: &Path, session: Option<&str>) -> Result<Verification, StoreError> {
    let layout = Layout::new(dir);
    let database = layout.database();
    if !database.exists() {
        let what = format!("there is no store at {}", database.display());
        return Err(
            StoreError::new(StoreErrorKind::Other, what).with_hint("name the state directory of a server")
        );
    }
    let signer = layout.signer(false)?;
    let mut connection = schema::options(&database).read_only(true).connect().await?;
    let verification = verify(&mut connection, &signer, session).await;
    let _ = connection.close().await;
    verification
}

async fn verify(
    connection: &mut SqliteConnection,
    signer: &Signer,
    session: Option<&str>,
) -> Result<Verification, StoreError> {
    // One snapshot for all pages: entries that are written meanwhile are not part of it.
    let mut snapshot = connection.begin().await?;
    let mut found = Verification::default();
    check_entries(&mut snapshot, signer, session, &mut found).await?;
    check_heads_without_entries(&mut snapshot, signer, session, &mut found).await?;
    check_lost_checkpoints(&mut snapshot, session, &mut found).await?;
    snapshot.rollback().await?;
    Ok(found)
}

/// An entry as it is stored, with what is signed about it.
struct Stored {
    position: i64,
    session: String,
    seq: i64,
    owner: String,
    at: i64,
    actor: String,
    kind: String,
    body: String,
    hash: String,
    checkpoint: Option<(String, String)>,
    /// The owner that the session's own row names.
    session_owner: Option<String>,
}

impl Stored {
    fn read(row: &SqliteRow) -> Result<Stored, sqlx::Error> {
        let checkpoint = match row.try_get::<Option<String>, _>(9)? {
            Some(hash) => Some((hash, row.try_get(10)?)),
            None => None,
        };
        Ok(Stored {
            position: row.try_get(0)?,
            session: row.try_get(1)?,
            seq: row.try_get(2)?,
            owner: row.try_get(3)?,
            at: row.try_get(4)?,
            actor: row.try_get(5)?,
            kind: row.try_get(6)?,
            body: row.try_get(7)?,
            hash: row.try_get(8)?,
            checkpoint,
            session_owner: row.try_get(11)?,
        })
    }

    fn hash_behind(&self, previous: &str) -> String {
        let Stored { session, seq, at, actor, kind, body, .. } = self;
        chain::hash(previous, &Link { session, seq: *seq, at: *at, actor, kind, body })
    }
}

async fn check_entries(
    connection: &mut SqliteConnection,
    signer: &Signer,
    session: Option<&str>,
    found: &mut Verification,
) -> Result<(), StoreError> {
    let mut walk: Option<Walk> = None;
    let mut after = (session.unwrap_or_default().to_owned(), i64::MIN);
    loop {
        let rows = sqlx::query(
            "SELECT j.position, j.session, j.seq, j.owner, j.at, j.actor, j.kind, j.body, j.hash, \
             c.hash, c.signature, s.owner FROM journal j \
             LEFT JOIN checkpoints c ON c.session = j.session AND c.seq = j.seq \
             LEFT JOIN sessions s ON s.id = j.session \
             WHERE (j.session, j.seq) > ($1, $2) ORDER BY j.session, j.seq LIMIT $3",
        )
        .bind(after.0.as_str())
        .bind(after.1)
        .bind(PAGE)
        .fetch_all(&mut *connection)
        .await?;
        let last_page = rows.len() < PAGE as usize;
        for row in &rows {
            let entry = Stored::read(row)?;
            if session.is_some_and(|only| only != entry.session) {
                return finish_walk(connection, signer, walk, found).await;
            }
            if walk.as_ref().is_none_or(|walk| walk.session != entry.session) {
                finish_walk(connection, signer, walk.take(), found).await?;
                walk = Some(Walk::begin(&entry, found));
            }
            after = (entry.session.clone(), entry.seq);
            if let Some(walk) = &mut walk {
                walk.step(signer, entry, found);
            }
        }
        if last_page {
            return finish_walk(connection, signer, walk, found).await;
        }
    }
}

async fn finish_walk(
    connection: &mut SqliteConnection,
    signer: &Signer,
    walk: Option<Walk>,
    found: &mut Verification,
) -> Result<(), StoreError> {
    let Some(walk) = walk else { return Ok(()) };
    let head = sqlx::query("SELECT entries, hash, signature FROM heads WHERE session = $1")
        .bind(walk.session.as_str())
        .fetch_optional(connection)
        .await?;
    let head = match head {
        Some(row) => {
            Some(Head { entries: row.try_get(0)?, hash: row.try_get(1)?, signature: row.try_get(2)? })
        }
        None => None,
    };
    walk.end(signer, head, found);
    Ok(())
}

struct Head {
    entries: i64,
    hash: String,
    signature: String,
}

/// The way through one session's journal.
struct Walk {
    session: String,
    last_seq: i64,
    last_position: i64,
    /// Stored hashes of the last entries, newest last.
    recent: Vec<String>,
    /// The last entry up to which a checkpoint proves what was written.
    proven: i64,
    /// A fault was named behind `proven`, so that a wrong signature needs no second word.
    named: bool,
}

impl Walk {
    fn begin(first: &Stored, found: &mut Verification) -> Walk {
        found.sessions += 1;
        if first.session_owner.is_none() {
            let what = "the journal is there, its session is not: the session's row was removed".into();
            found.faults.push(Fault { session: first.session.clone(), seq: None, what });
        }
        Walk {
            session: first.session.clone(),
            last_seq: 0,
            last_position: 0,
            recent: vec![NOTHING.into()],
            proven: 0,
            named: false,
        }
    }

    fn fault(&mut self, found: &mut Verification, seq: Option<i64>, what: String) {
        self.named = true;
        found.faults.push(Fault { session: self.session.clone(), seq, what });
    }

    fn step(&mut self, signer: &Signer, entry: Stored, found: &mut Verification) {
        found.entries += 1;
        let seq = entry.seq;
        if seq < 1 {
            return self.fault(
                found,
                Some(seq),
                format!("entry {seq} was put there: a journal begins with 1"),
            );
        }
        let gap = seq > self.last_seq + 1;
        if gap {
            let (first, last) = (self.last_seq + 1, seq - 1);
            let what = match first == last {
                true => format!("entry {first} is missing: it was deleted"),
                false => format!("entries {first} to {last} are missing: they were deleted"),
            };
            self.fault(found, Some(first), what);
        }
        if entry.session_owner.as_ref().is_some_and(|owner| *owner != entry.owner) {
            self.fault(found, Some(seq), format!("entry {seq} was changed: it is filed under another owner"));
        }

        let previous = self.recent.last().map_or(NOTHING, String::as_str);
        if entry.position <= self.last_position {
            let what = format!("entry {seq} is out of order: it was written before the one in front of it");
            self.fault(found, Some(seq), what);
        } else if entry.hash_behind(previous) != entry.hash {
            // Behind a gap the hash that it was chained to is gone; behind a faulty entry it may be an older
            // one. Neither makes this entry a faulty one.
            let follows_another =
                self.named && self.recent.iter().any(|older| entry.hash_behind(older) == entry.hash);
            if !gap && !follows_another {
                let what = format!(
                    "entry {seq} was changed or put there: its hash does not follow from the one before"
                );
                self.fault(found, Some(seq), what);
            }
        }
        if seq % CHECKPOINT_EVERY == 0 {
            self.check_checkpoint(signer, &entry, found);
        }

        self.last_seq = seq;
        self.last_position = self.last_position.max(entry.position);
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push(entry.hash);
    }

    fn check_checkpoint(&mut self, signer: &Signer, entry: &Stored, found: &mut Verification) {
        let seq = entry.seq;
        match &entry.checkpoint {
            None => self.fault(found, Some(seq), format!("the signed checkpoint of entry {seq} was removed")),
            Some((hash, signature))
                if !signer.signed(Mark::Checkpoint, &entry.session, seq, hash, signature) =>
            {
                self.fault(
                    found,
                    Some(seq),
                    format!("the checkpoint of entry {seq} was forged: it is not signed by this store"),
                );
            }
            Some((hash, _)) if *hash != entry.hash => {
                if !self.named {
                    let (session, first) = (entry.session.clone(), self.proven + 1);
                    found.faults.push(Fault { session, seq: Some(first), what: rewritten(first, seq) });
                }
            }
            Some(_) => {}
        }
        self.proven = seq;
        self.named = false;
    }

    fn end(mut self, signer: &Signer, head: Option<Head>, found: &mut Verification) {
        let last = self.last_seq;
        let Some(head) = head else {
            let what = "the signed head of the journal was removed: entries may be missing at its end".into();
            return self.fault(found, None, what);
        };
        let Head { entries, hash, signature } = head;
        if !signer.signed(Mark::Head, &self.session, entries, &hash, &signature) {
            let what =
                format!("the head of the journal was forged: {entries} entries are not signed by this store");
            return self.fault(found, None, what);
        }
        if entries > last {
            self.fault(found, Some(last + 1), cut_off(entries, last));
        } else if entries < last {
            let what =
                format!("entry {} was put there: the signed head says that there are {entries}", entries + 1);
            self.fault(found, Some(entries + 1), what);
        } else if self.recent.last() != Some(&hash) && !self.named {
            let first = (self.proven + 1).min(last);
            self.fault(found, Some(first), rewritten(first, last));
        }
    }
}

fn cut_off(said: i64, there: i64) -> String {
    format!(
        "entry {} is missing: the signed head says {said} entries, the journal ends at {there}",
        there + 1
    )
}

fn rewritten(first: i64, last: i64) -> String {
    format!(
        "entries {first} to {last} were rewritten: their hashes follow, but are not those that were signed"
    )
}

/// Sessions whose journal is empty: either it is signed to be so, or it was taken away.
async fn check_heads_without_entries(
    connection: &mut SqliteConnection,
    signer: &Signer,
    session: Option<&str>,
    found: &mut Verification,
) -> Result<(), StoreError> {
    let mut after = String::new();
    loop {
        let rows = sqlx::query(
            "SELECT s.id, h.entries, h.hash, h.signature FROM sessions s LEFT JOIN heads h ON h.session = s.id \
             WHERE s.id > $1 AND (s.id = $2 OR $2 IS NULL) \
             AND NOT EXISTS (SELECT 1 FROM journal j WHERE j.session = s.id) ORDER BY s.id LIMIT $3",
        )
        .bind(after.as_str())
        .bind(session)
        .bind(PAGE)
        .fetch_all(&mut *connection)
        .await?;
        for row in &rows {
            let session: String = row.try_get(0)?;
            after.clone_from(&session);
            found.sessions += 1;
            let Some(entries) = row.try_get::<Option<i64>, _>(1)? else {
                let what = "the signed head of the journal was removed, and no entry is there".into();
                found.faults.push(Fault { session, seq: None, what });
                continue;
            };
            let (hash, signature): (&str, &str) = (row.try_get(2)?, row.try_get(3)?);
            if !signer.signed(Mark::Head, &session, entries, hash, signature) {
                let what = "the head of the journal was forged: it is not signed by this store".into();
                found.faults.push(Fault { session, seq: None, what });
            } else if entries > 0 {
                found.faults.push(Fault { session, seq: Some(1), what: cut_off(entries, 0) });
            }
        }
        if rows.len() < PAGE as usize {
            return Ok(());
        }
    }
}

/// Checkpoints of entries that are not there, where no head is left to say so.
async fn check_lost_checkpoints(
    connection: &mut SqliteConnection,
    session: Option<&str>,
    found: &mut Verification,
) -> Result<(), StoreError> {
    let rows = sqlx::query(
        "SELECT c.session, max(c.seq) FROM checkpoints c WHERE (c.session = $1 OR $1 IS NULL) \
         AND NOT EXISTS (SELECT 1 FROM journal j WHERE j.session = c.session AND j.seq = c.seq) \
         GROUP BY c.session ORDER BY c.session",
    )
    .bind(session)
    .fetch_all(connection)
    .await?;
    for row in &rows {
        let (session, seq): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        let what = format!("entry {seq} is missing: its checkpoint is there, the entry is not");
        found.faults.push(Fault { session, seq: Some(seq), what });
    }
    Ok(())
}
