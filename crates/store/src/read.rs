//! What can be asked of the store. Readers have connections of their own and never wait behind a write.

use crate::chain::unhex;
use crate::error::{StoreError, StoreErrorKind};
use crate::list::{Value, questions};
use crate::rows::{IdempotencyRow, SessionFilter, SessionRow, TokenRow};
use crate::store::Store;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row};
use workroom_types::{JournalEntry, Session, SessionState, Timestamp};

impl Store {
    /// In whatever state it is, deleted too.
    pub async fn session(&self, id: &str) -> Result<Option<SessionRow>, StoreError> {
        let row = sqlx::query("SELECT doc, place, waiting, id, deleted_at FROM sessions WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.readers)
            .await?;
        row.as_ref().map(session_row).transpose()
    }

    /// The same, of this owner if one is named. What belongs to somebody else is not read at all: for
    /// whoever asks it takes the same time as nothing.
    pub async fn session_of(&self, id: &str, owner: Option<&str>) -> Result<Option<SessionRow>, StoreError> {
        let row = sqlx::query(
            "SELECT doc, place, waiting, id, deleted_at FROM sessions WHERE id = $1 AND (owner = $2 OR $2 IS NULL)",
        )
        .bind(id)
        .bind(owner)
        .fetch_optional(&self.readers)
        .await?;
        row.as_ref().map(session_row).transpose()
    }

    /// The session that an owner calls by this key. Deleted ones have none.
    pub async fn session_by_key(&self, owner: &str, key: &str) -> Result<Option<SessionRow>, StoreError> {
        let row = sqlx::query(
            "SELECT doc, place, waiting, id, deleted_at FROM sessions WHERE owner = $1 AND key = $2",
        )
        .bind(owner)
        .bind(key)
        .fetch_optional(&self.readers)
        .await?;
        row.as_ref().map(session_row).transpose()
    }

    /// The session of this place. Deleted ones have none.
    pub async fn session_by_place(&self, place: &str) -> Result<Option<SessionRow>, StoreError> {
        let row = sqlx::query("SELECT doc, place, waiting, id, deleted_at FROM sessions WHERE place = $1")
            .bind(place)
            .fetch_optional(&self.readers)
            .await?;
        row.as_ref().map(session_row).transpose()
    }

    /// Newest first. A page that begins `before` the last row of another neither repeats nor skips a session,
    /// whatever was made or deleted in between.
    pub async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        let mut found: Vec<SessionRow> = Vec::new();
        for question in questions(filter) {
            let mut query = sqlx::query(AssertSqlSafe(question.sql));
            for value in question.values {
                query = match value {
                    Value::Text(text) => query.bind(text),
                    Value::Number(number) => query.bind(number),
                };
            }
            for row in query.fetch_all(&self.readers).await? {
                found.push(session_row(&row)?);
            }
        }
        found.sort_by(|a, b| (b.session.created, &b.session.id).cmp(&(a.session.created, &a.session.id)));
        found.truncate(filter.limit as usize);
        Ok(found)
    }

    /// How many sessions an owner made since then; those that are deleted by now count.
    pub async fn created_since(&self, owner: &str, since: Timestamp) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM sessions WHERE owner = $1 AND gone IN (0, 1) AND created >= $2 \
             AND pool IS NULL",
        )
        .bind(owner)
        .bind(since.0)
        .fetch_one(&self.readers)
        .await?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    /// Sessions that were deleted before then, and pools' slots before another time: the oldest of them.
    pub async fn deleted_before(
        &self,
        sessions: Timestamp,
        slots: Timestamp,
        limit: u32,
    ) -> Result<Vec<String>, StoreError> {
        let ids = sqlx::query_scalar(
            "SELECT id FROM sessions WHERE deleted_at IS NOT NULL AND deleted_at < $3 \
             AND (deleted_at < $1 AND pool IS NULL OR deleted_at < $2 AND pool IS NOT NULL) \
             ORDER BY deleted_at, id LIMIT $4",
        )
        .bind(sessions.0)
        .bind(slots.0)
        .bind(sessions.0.max(slots.0))
        .bind(i64::from(limit))
        .fetch_all(&self.readers)
        .await?;
        Ok(ids)
    }

    /// Every session that is not deleted, with its state.
    pub async fn all_ids(&self) -> Result<Vec<(String, SessionState)>, StoreError> {
        let rows = sqlx::query("SELECT id, state FROM sessions WHERE gone = 0 ORDER BY created, id")
            .fetch_all(&self.readers)
            .await?;
        rows.iter()
            .map(|row| {
                let (id, name): (String, String) = (row.try_get(0)?, row.try_get(1)?);
                let state = SessionState::from_name(&name).ok_or_else(|| {
                    corrupt(format!("session {id} is stored in state \"{name}\", which there is not"))
                })?;
                Ok((id, state))
            })
            .collect()
    }

    /// A session's journal behind `after_seq`, oldest first.
    pub async fn journal(
        &self,
        session: &str,
        after_seq: i64,
        limit: u32,
    ) -> Result<Vec<JournalEntry>, StoreError> {
        let rows = sqlx::query(
            "SELECT position, session, seq, at, actor, kind, body, hash FROM journal \
             WHERE session = $1 AND seq > $2 ORDER BY seq LIMIT $3",
        )
        .bind(session)
        .bind(after_seq)
        .bind(i64::from(limit))
        .fetch_all(&self.readers)
        .await?;
        rows.iter().map(journal_entry).collect()
    }

    /// The last entries of one kind in a session's journal, the newest first.
    pub async fn journal_last(
        &self,
        session: &str,
        kind: &str,
        limit: u32,
    ) -> Result<Vec<JournalEntry>, StoreError> {
        let rows = sqlx::query(
            "SELECT position, session, seq, at, actor, kind, body, hash FROM journal \
             WHERE session = $1 AND kind = $2 ORDER BY seq DESC LIMIT $3",
        )
        .bind(session)
        .bind(kind)
        .bind(i64::from(limit))
        .fetch_all(&self.readers)
        .await?;
        rows.iter().map(journal_entry).collect()
    }

    /// All journals, or those of one owner's sessions, behind `after_position`, in the order of writing.
    pub async fn journal_all(
        &self,
        owner: Option<&str>,
        after_position: i64,
        limit: u32,
    ) -> Result<Vec<JournalEntry>, StoreError> {
        let query = match owner {
            None => sqlx::query(
                "SELECT position, session, seq, at, actor, kind, body, hash FROM journal \
                 WHERE position > $1 ORDER BY position LIMIT $2",
            ),
            Some(_) => sqlx::query(
                "SELECT position, session, seq, at, actor, kind, body, hash FROM journal \
                 WHERE position > $1 AND owner = $3 ORDER BY position LIMIT $2",
            ),
        };
        let query = query.bind(after_position).bind(i64::from(limit));
        let query = match owner {
            None => query,
            Some(owner) => query.bind(owner),
        };
        query.fetch_all(&self.readers).await?.iter().map(journal_entry).collect()
    }

    /// The position of the newest entry; 0 when there is none.
    pub async fn last_position(&self) -> Result<i64, StoreError> {
        let last: Option<i64> =
            sqlx::query_scalar("SELECT max(position) FROM journal").fetch_one(&self.readers).await?;
        Ok(last.unwrap_or_default())
    }

    pub async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        let rows = sqlx::query("SELECT id, secret_hash, doc FROM tokens ORDER BY created, id")
            .fetch_all(&self.readers)
            .await?;
        rows.iter()
            .map(|row| {
                let (id, secret_hash, doc): (String, String, String) =
                    (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                let info = serde_json::from_str(&doc)
                    .map_err(|error| corrupt(format!("token {id} cannot be read: {error}")))?;
                Ok(TokenRow { info, secret_hash })
            })
            .collect()
    }

    pub async fn idempotency(&self, scope: &str, key: &str) -> Result<Option<IdempotencyRow>, StoreError> {
        let row = sqlx::query(
            "SELECT fingerprint, resource, status, content_type, encoding, body, at FROM idempotency \
             WHERE scope = $1 AND key = $2",
        )
        .bind(scope)
        .bind(key)
        .fetch_optional(&self.readers)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let answer = match row.try_get::<Option<i64>, _>(2)? {
            None => None,
            Some(status) => {
                let text: String = row.try_get(5)?;
                let body = match row.try_get::<&str, _>(4)? {
                    "hex" => unhex(&text),
                    _ => Some(text.into_bytes()),
                };
                let answer = u16::try_from(status).ok().zip(body);
                let (status, body) = answer.ok_or_else(|| {
                    corrupt(format!("the answer remembered under idempotency key \"{key}\" cannot be read"))
                })?;
                Some((status, row.try_get(3)?, body))
            }
        };
        Ok(Some(IdempotencyRow {
            fingerprint: row.try_get(0)?,
            resource: row.try_get(1)?,
            answer,
            at: Timestamp(row.try_get(6)?),
        }))
    }
}

fn corrupt(what: String) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, what)
}

fn session_row(row: &SqliteRow) -> Result<SessionRow, StoreError> {
    let doc: &str = row.try_get(0)?;
    let mut session: Session = serde_json::from_str(doc).map_err(|error| {
        let id: String = row.try_get(3).unwrap_or_default();
        corrupt(format!("session {id} cannot be read: {error}"))
    })?;
    if let Some(at) = row.try_get(4)? {
        session = Session { state: SessionState::Deleted, key: None, last_active: Timestamp(at), ..session };
    }
    let waiting: i64 = row.try_get(2)?;
    Ok(SessionRow { session, place: row.try_get(1)?, waiting: waiting != 0 })
}

fn journal_entry(row: &SqliteRow) -> Result<JournalEntry, StoreError> {
    let text: String = row.try_get(6)?;
    Ok(JournalEntry {
        position: row.try_get(0)?,
        session: row.try_get(1)?,
        seq: row.try_get(2)?,
        at: Timestamp(row.try_get(3)?),
        actor: row.try_get(4)?,
        kind: row.try_get(5)?,
        // Only a hand in the database makes a body that is no JSON. Every other entry must stay readable;
        // it is for `verify` to name this one.
        body: serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text)),
        hash: row.try_get(7)?,
    })
}
