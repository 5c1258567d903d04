//! One change as SQL, inside a transaction that its caller began and will end.

use crate::chain::hex;
use crate::error::StoreError;
use crate::heads::{Draft, Heads};
use crate::layers;
use crate::parts;
use crate::rows::{Change, Outcome, SessionRow, TokenRow};
use crate::secrets;
use sqlx::{Row, SqliteConnection};
use std::collections::BTreeMap;
use workroom_types::{Session, SessionState, Timestamp};

pub(crate) async fn apply(
    connection: &mut SqliteConnection,
    heads: &mut Heads,
    change: &Change,
) -> Result<Outcome, StoreError> {
    match change {
        Change::InsertSession { row } => return insert_session(connection, heads, row).await,
        Change::SaveSession { row } => save_session(connection, row).await?,
        Change::DeleteSession { id, at } => {
            layers::drop_all(connection, id).await?;
            parts::drop_all(connection, id).await?;
            secrets::drop_all(connection, id).await?;
            delete_session(connection, id, *at).await?;
        }
        Change::PurgeSession { id } => {
            // What this transaction has appended so far goes with it.
            heads.write(connection).await?;
            heads.forget(id);
            layers::drop_all(connection, id).await?;
            parts::drop_all(connection, id).await?;
            secrets::drop_all(connection, id).await?;
            for statement in [
                "DELETE FROM checkpoints WHERE session = $1",
                "DELETE FROM heads WHERE session = $1",
                "DELETE FROM journal WHERE session = $1",
                "DELETE FROM labels WHERE session = $1",
                "DELETE FROM sessions WHERE id = $1",
            ] {
                sqlx::query(statement).bind(id.as_str()).execute(&mut *connection).await?;
            }
        }
        Change::Journal { session, at, actor, kind, body } => {
            let draft = Draft { session, at: *at, actor, kind, body };
            return Ok(Outcome::Entry(heads.append(connection, draft).await?));
        }
        Change::PutStack { session, stack } => layers::put_stack(connection, session, stack).await?,
        Change::PutSnapshot { session, row } => layers::put_snapshot(connection, session, row).await?,
        Change::MeasureSnapshot { session, name, size, entries } => {
            layers::measure_snapshot(connection, session, name, (*size, *entries)).await?
        }
        Change::DropSnapshot { session, name } => layers::drop_snapshot(connection, session, name).await?,
        Change::PutPart { session, kind, id, doc } => {
            parts::put(connection, (session, kind, id), doc).await?
        }
        Change::DropPart { session, kind, id } => parts::drop_one(connection, (session, kind, id)).await?,
        Change::PutSecret { row } => secrets::put(connection, row).await?,
        Change::SealAgain { row } => secrets::seal_again(connection, row).await?,
        Change::PutToken { row } => put_token(connection, row).await?,
        Change::DeleteToken { id } => {
            sqlx::query("DELETE FROM tokens WHERE id = $1").bind(id.as_str()).execute(connection).await?;
        }
        Change::BeginIdempotent { scope, key, fingerprint, resource, at } => {
            sqlx::query(
                "INSERT INTO idempotency (scope, key, fingerprint, resource, at) VALUES ($1, $2, $3, $4, $5) \
                 ON CONFLICT (scope, key) DO UPDATE \
                 SET resource = COALESCE(excluded.resource, idempotency.resource) \
                 WHERE idempotency.status IS NULL",
            )
            .bind(scope.as_str())
            .bind(key.as_str())
            .bind(fingerprint.as_str())
            .bind(resource.as_deref())
            .bind(at.0)
            .execute(connection)
            .await?;
        }
        Change::FinishIdempotent { scope, key, fingerprint, status, content_type, body, at } => {
            let (encoding, text) = body_as_text(body);
            sqlx::query(
                "INSERT INTO idempotency (scope, key, fingerprint, status, content_type, encoding, body, at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (scope, key) DO UPDATE \
                 SET status = excluded.status, content_type = excluded.content_type, \
                 encoding = excluded.encoding, body = excluded.body, at = excluded.at \
                 WHERE idempotency.status IS NULL",
            )
            .bind(scope.as_str())
            .bind(key.as_str())
            .bind(fingerprint.as_str())
            .bind(i64::from(*status))
            .bind(content_type.as_str())
            .bind(encoding)
            .bind(text)
            .bind(at.0)
            .execute(connection)
            .await?;
        }
        Change::WithdrawIdempotent { scope, key } => {
            sqlx::query("DELETE FROM idempotency WHERE scope = $1 AND key = $2 AND status IS NULL")
                .bind(scope.as_str())
                .bind(key.as_str())
                .execute(connection)
                .await?;
        }
        Change::ForgetIdempotent { before } => {
            sqlx::query("DELETE FROM idempotency WHERE at < $1").bind(before.0).execute(connection).await?;
        }
    }
    Ok(Outcome::Done)
}

/// A write that changes nothing but must reach the disk.
pub(crate) async fn pulse(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO pulse (id, at) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET at = excluded.at")
        .bind(Timestamp::now().0)
        .execute(connection)
        .await?;
    Ok(())
}

/// Answers are JSON nearly always: kept as they are, so that a person can read the table; else as hex.
fn body_as_text(body: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(body) {
        Ok(text) if !text.contains('\0') => ("text", text.into()),
        _ => ("hex", hex(body)),
    }
}

fn as_json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| {
        StoreError::unfit(format!("it cannot be written as JSON: {error}"), "report it with the server's log")
    })
}

async fn insert_session(
    connection: &mut SqliteConnection,
    heads: &mut Heads,
    row: &SessionRow,
) -> Result<Outcome, StoreError> {
    let session = &row.session;
    let inserted = sqlx::query(
        "INSERT INTO sessions (id, owner, key, place, state, grp, created, gone, waiting, doc, pool) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING",
    )
    .bind(session.id.as_str())
    .bind(session.owner.as_str())
    .bind(session.key.as_deref())
    .bind(row.place.as_deref())
    .bind(session.state.as_str())
    .bind(session.group.as_deref())
    .bind(session.created.0)
    .bind(gone(session.state))
    .bind(i64::from(row.waiting))
    .bind(as_json(session)?)
    .bind(session.pool.as_deref())
    .execute(&mut *connection)
    .await?;
    if inserted.rows_affected() == 0 {
        return Ok(Outcome::Exists(who_has_it(connection, row).await?));
    }
    insert_labels(connection, session).await?;
    heads.begin(&session.id, &session.owner);
    Ok(Outcome::Inserted)
}

/// The session in the way of a new one. The caller's own key says most about what was meant.
async fn who_has_it(connection: &mut SqliteConnection, row: &SessionRow) -> Result<String, StoreError> {
    let by_key: Option<String> = sqlx::query_scalar("SELECT id FROM sessions WHERE owner = $1 AND key = $2")
        .bind(row.session.owner.as_str())
        .bind(row.session.key.as_deref())
        .fetch_optional(&mut *connection)
        .await?;
    if let Some(id) = by_key {
        return Ok(id);
    }
    let by_place: Option<String> = sqlx::query_scalar("SELECT id FROM sessions WHERE place = $1")
        .bind(row.place.as_deref())
        .fetch_optional(connection)
        .await?;
    Ok(by_place.unwrap_or_else(|| row.session.id.clone()))
}

async fn save_session(connection: &mut SqliteConnection, row: &SessionRow) -> Result<(), StoreError> {
    let session = &row.session;
    let deleted = session.state == SessionState::Deleted;
    let saved = sqlx::query(
        "UPDATE sessions SET key = $4, place = $5, state = $6, grp = $7, gone = $8, waiting = $9, \
         doc = $10, pool = $11 WHERE id = $1 AND owner = $2 AND created = $3 AND gone = 0",
    )
    .bind(session.id.as_str())
    .bind(session.owner.as_str())
    .bind(session.created.0)
    .bind(session.key.as_deref().filter(|_| !deleted))
    .bind(row.place.as_deref().filter(|_| !deleted))
    .bind(session.state.as_str())
    .bind(session.group.as_deref())
    .bind(gone(session.state))
    .bind(i64::from(row.waiting))
    .bind(as_json(session)?)
    .bind(session.pool.as_deref())
    .execute(&mut *connection)
    .await?;
    if saved.rows_affected() == 0 {
        return match there_with_other_origin(connection, &session.id).await? {
            true => Err(StoreError::unfit(
                format!("the owner or the creation time of session {} was to be changed", session.id),
                "make a new session: these two never change",
            )),
            false => Ok(()),
        };
    }
    refresh_labels(connection, session).await
}

/// Whether an update found nothing although the session is there, not deleted.
async fn there_with_other_origin(connection: &mut SqliteConnection, id: &str) -> Result<bool, StoreError> {
    let found: Option<i64> = sqlx::query_scalar("SELECT created FROM sessions WHERE id = $1 AND gone = 0")
        .bind(id)
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

async fn delete_session(
    connection: &mut SqliteConnection,
    id: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    let doc: Option<String> = sqlx::query_scalar("SELECT doc FROM sessions WHERE id = $1 AND gone = 0")
        .bind(id)
        .fetch_optional(&mut *connection)
        .await?;
    let Some(doc) = doc else { return Ok(()) };
    // A document that cannot be read must not be in the way of deleting it.
    let doc = match serde_json::from_str::<Session>(&doc) {
        Ok(session) => {
            as_json(&Session { state: SessionState::Deleted, key: None, last_active: at, ..session })?
        }
        Err(_) => doc,
    };
    let state = SessionState::Deleted.as_str();
    sqlx::query(
        "UPDATE sessions SET key = NULL, place = NULL, state = $2, gone = 1, deleted_at = $3, waiting = 0, \
         doc = $4 WHERE id = $1",
    )
    .bind(id)
    .bind(state)
    .bind(at.0)
    .bind(doc)
    .execute(&mut *connection)
    .await?;
    sqlx::query("UPDATE labels SET state = $2, gone = 1 WHERE session = $1")
        .bind(id)
        .bind(state)
        .execute(connection)
        .await?;
    Ok(())
}

async fn insert_labels(connection: &mut SqliteConnection, session: &Session) -> Result<(), StoreError> {
    for (key, value) in &session.labels {
        sqlx::query(
            "INSERT INTO labels (session, key, value, owner, grp, state, gone, created) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(session.id.as_str())
        .bind(key.as_str())
        .bind(value.as_str())
        .bind(session.owner.as_str())
        .bind(session.group.as_deref())
        .bind(session.state.as_str())
        .bind(gone(session.state))
        .bind(session.created.0)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Labels seldom change and sessions are saved often: what is right already is not written again.
async fn refresh_labels(connection: &mut SqliteConnection, session: &Session) -> Result<(), StoreError> {
    let rows = sqlx::query("SELECT key, value, state, grp FROM labels WHERE session = $1")
        .bind(session.id.as_str())
        .fetch_all(&mut *connection)
        .await?;
    let mut stored = BTreeMap::new();
    let mut fresh = true;
    for row in rows {
        stored.insert(row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?);
        fresh &= row.try_get::<String, _>(2)? == session.state.as_str();
        fresh &= row.try_get::<Option<String>, _>(3)? == session.group;
    }
    if fresh && stored == session.labels {
        return Ok(());
    }
    sqlx::query("DELETE FROM labels WHERE session = $1")
        .bind(session.id.as_str())
        .execute(&mut *connection)
        .await?;
    insert_labels(connection, session).await
}

async fn put_token(connection: &mut SqliteConnection, row: &TokenRow) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO tokens (id, secret_hash, created, doc) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE \
         SET secret_hash = excluded.secret_hash, created = excluded.created, doc = excluded.doc",
    )
    .bind(row.info.id.as_str())
    .bind(row.secret_hash.as_str())
    .bind(row.info.created.0)
    .bind(as_json(&row.info)?)
    .execute(connection)
    .await?;
    Ok(())
}

fn gone(state: SessionState) -> i64 {
    i64::from(state == SessionState::Deleted)
}
