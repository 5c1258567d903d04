//! One change as SQL, inside a transaction that its caller began and will end.

use crate::batch::Trouble;
use crate::chain::hex;
use crate::error::StoreError;
use crate::heads::{Draft, Heads};
use crate::layers;
use crate::parts;
use crate::rows::{Change, Outcome, SessionRow, TokenRow};
use crate::script::{Expects, Script, Statement};
use crate::secrets;
use sqlx::SqliteConnection;
use workroom_types::{Session, SessionState, Timestamp};

/// Whoever writes one transaction, and what with.
pub(crate) struct Pen<'a> {
    pub(crate) connection: &'a mut SqliteConnection,
    pub(crate) heads: &'a mut Heads,
    pub(crate) script: Script,
    /// Whether each session that is inserted is looked for at once. Else, if one was there already, nothing of the
    /// transaction counts, and it is to be written again by somebody who looks.
    pub(crate) looks: bool,
}

impl Pen<'_> {
    /// Sends what has been said, and looks into what did not do as it was told.
    pub(crate) async fn send(&mut self) -> Result<(), Trouble> {
        self.script.send(self.connection).await?;
        for unmet in std::mem::take(&mut self.script.unmet) {
            match unmet {
                Expects::Insert => return Err(Trouble::Contested),
                Expects::Save(id) => check_origin(self.connection, &id).await?,
                Expects::Nothing => {}
            }
        }
        Ok(())
    }
}

pub(crate) async fn apply(pen: &mut Pen<'_>, change: &Change) -> Result<Outcome, Trouble> {
    let script = &mut pen.script;
    match change {
        Change::InsertSession { row } => return insert_session(pen, row).await,
        Change::SaveSession { row } => save_session(script, row)?,
        Change::DeleteSession { id, at } => {
            drop_all(script, id);
            delete_session(script, id, *at);
        }
        Change::PurgeSession { id } => {
            // What this transaction has appended so far goes with it.
            pen.heads.write(script);
            pen.heads.forget(id);
            drop_all(script, id);
            for statement in [
                "DELETE FROM checkpoints WHERE session = $1",
                "DELETE FROM heads WHERE session = $1",
                "DELETE FROM journal WHERE session = $1",
                "DELETE FROM labels WHERE session = $1",
                "DELETE FROM sessions WHERE id = $1",
            ] {
                script.say(Statement::new(statement).bind(id.as_str()));
            }
        }
        Change::Journal { session, at, actor, kind, body } => {
            if !pen.heads.knows(session) {
                pen.send().await?;
                pen.heads.learn(pen.connection, session).await?;
            }
            let draft = Draft { session, at: *at, actor, kind, body };
            return Ok(Outcome::Entry(pen.heads.append(draft)?));
        }
        Change::PutStack { session, stack } => layers::put_stack(script, session, stack)?,
        Change::PutSnapshot { session, row } => layers::put_snapshot(script, session, row)?,
        Change::MeasureSnapshot { session, name, size, entries } => {
            pen.send().await?;
            layers::measure_snapshot(pen.connection, session, name, (*size, *entries)).await?
        }
        Change::DropSnapshot { session, name } => layers::drop_snapshot(script, session, name),
        Change::PutPart { session, kind, id, doc } => parts::put(script, (session, kind, id), doc),
        Change::DropPart { session, kind, id } => parts::drop_one(script, (session, kind, id)),
        Change::PutSecret { row } => secrets::put(script, row),
        Change::SealAgain { row } => secrets::seal_again(script, row),
        Change::PutToken { row } => put_token(script, row)?,
        Change::DeleteToken { id } => {
            script.say(Statement::new("DELETE FROM tokens WHERE id = $1").bind(id.as_str()));
        }
        Change::BeginIdempotent { scope, key, fingerprint, resource, at } => {
            let begin = Statement::new(
                "INSERT INTO idempotency (scope, key, fingerprint, resource, at) VALUES ($1, $2, $3, $4, $5) \
                 ON CONFLICT (scope, key) DO UPDATE \
                 SET resource = COALESCE(excluded.resource, idempotency.resource) \
                 WHERE idempotency.status IS NULL",
            );
            let begin = begin.bind(scope.as_str()).bind(key.as_str()).bind(fingerprint.as_str());
            script.say(begin.bind(resource.as_deref()).bind(at.0));
        }
        Change::FinishIdempotent { scope, key, fingerprint, status, content_type, body, at } => {
            let (encoding, text) = body_as_text(body);
            let finish = Statement::new(
                "INSERT INTO idempotency (scope, key, fingerprint, status, content_type, encoding, body, at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (scope, key) DO UPDATE \
                 SET status = excluded.status, content_type = excluded.content_type, \
                 encoding = excluded.encoding, body = excluded.body, at = excluded.at \
                 WHERE idempotency.status IS NULL",
            );
            let finish = finish.bind(scope.as_str()).bind(key.as_str()).bind(fingerprint.as_str());
            let finish = finish.bind(i64::from(*status)).bind(content_type.as_str()).bind(encoding);
            script.say(finish.bind(text).bind(at.0));
        }
        Change::WithdrawIdempotent { scope, key } => {
            let withdraw =
                Statement::new("DELETE FROM idempotency WHERE scope = $1 AND key = $2 AND status IS NULL");
            script.say(withdraw.bind(scope.as_str()).bind(key.as_str()));
        }
        Change::ForgetIdempotent { before } => {
            script.say(Statement::new("DELETE FROM idempotency WHERE at < $1").bind(before.0));
        }
    }
    Ok(Outcome::Done)
}

/// What goes with a session that is deleted.
fn drop_all(script: &mut Script, session: &str) {
    layers::drop_all(script, session);
    parts::drop_all(script, session);
    secrets::drop_all(script, session);
}

/// A write that changes nothing but must reach the disk.
pub(crate) fn pulse(script: &mut Script) {
    let pulse = Statement::new(
        "INSERT INTO pulse (id, at) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET at = excluded.at",
    );
    script.say(pulse.bind(Timestamp::now().0));
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

async fn insert_session(pen: &mut Pen<'_>, row: &SessionRow) -> Result<Outcome, Trouble> {
    let session = &row.session;
    let insert = Statement::new(
        "INSERT INTO sessions (id, owner, key, place, state, grp, created, gone, waiting, doc, pool) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING",
    );
    let insert = insert.bind(session.id.as_str()).bind(session.owner.as_str()).bind(session.key.as_deref());
    let insert =
        insert.bind(row.place.as_deref()).bind(session.state.as_str()).bind(session.group.as_deref());
    let insert = insert.bind(session.created.0).bind(gone(session.state)).bind(i64::from(row.waiting));
    let insert = insert.bind(as_json(session)?).bind(session.pool.as_deref());
    if !pen.looks {
        pen.script.say(insert.expecting(Expects::Insert));
    } else if !pen.script.send_with(pen.connection, insert).await? {
        return Ok(Outcome::Exists(who_has_it(pen.connection, row).await?));
    }
    put_labels(&mut pen.script, session);
    pen.heads.begin(&session.id, &session.owner);
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

fn save_session(script: &mut Script, row: &SessionRow) -> Result<(), StoreError> {
    let session = &row.session;
    let deleted = session.state == SessionState::Deleted;
    let save = Statement::new(
        "UPDATE sessions SET key = $4, place = $5, state = $6, grp = $7, gone = $8, waiting = $9, \
         doc = $10, pool = $11, deleted_at = $12 WHERE id = $1 AND owner = $2 AND created = $3 AND gone = 0",
    );
    let save = save.bind(session.id.as_str()).bind(session.owner.as_str()).bind(session.created.0);
    let save = save.bind(session.key.as_deref().filter(|_| !deleted));
    let save = save.bind(row.place.as_deref().filter(|_| !deleted));
    let save = save.bind(session.state.as_str()).bind(session.group.as_deref()).bind(gone(session.state));
    let save = save.bind(i64::from(row.waiting)).bind(as_json(session)?).bind(session.pool.as_deref());
    let save = save.bind(deleted.then_some(session.last_active.0));
    script.say(save.expecting(Expects::Save(session.id.clone())));
    let others: Vec<String> = (0..session.labels.len()).map(|number| format!("${}", number + 2)).collect();
    let mut drop = match others.is_empty() {
        true => Statement::new("DELETE FROM labels WHERE session = $1 AND gone = 0"),
        false => Statement::new(format!(
            "DELETE FROM labels WHERE session = $1 AND gone = 0 AND key NOT IN ({})",
            others.join(", ")
        )),
    };
    drop = drop.bind(session.id.as_str());
    for key in session.labels.keys() {
        drop = drop.bind(key.as_str());
    }
    script.say(drop);
    put_labels(script, session);
    Ok(())
}

/// Of a session that an update did not find: it is deleted or gone, and nothing happens to it; or it is another's.
async fn check_origin(connection: &mut SqliteConnection, id: &str) -> Result<(), StoreError> {
    let found: Option<i64> = sqlx::query_scalar("SELECT created FROM sessions WHERE id = $1 AND gone = 0")
        .bind(id)
        .fetch_optional(connection)
        .await?;
    match found {
        Some(_) => Err(StoreError::unfit(
            format!("the owner or the creation time of session {id} was to be changed"),
            "make a new session: these two never change",
        )),
        None => Ok(()),
    }
}

/// The document stays as it was: what deleting changes in it is known from the columns.
fn delete_session(script: &mut Script, id: &str, at: Timestamp) {
    let state = SessionState::Deleted.as_str();
    let delete = Statement::new(
        "UPDATE sessions SET key = NULL, place = NULL, state = $2, gone = 1, deleted_at = $3, waiting = 0 \
         WHERE id = $1 AND gone = 0",
    );
    script.say(delete.bind(id).bind(state).bind(at.0));
    let labels = Statement::new("UPDATE labels SET state = $2, gone = 1 WHERE session = $1");
    script.say(labels.bind(id).bind(state));
}

/// Labels seldom change and sessions are saved often: what is right already is not written again.
fn put_labels(script: &mut Script, session: &Session) {
    for (key, value) in &session.labels {
        let put = Statement::new(
            "INSERT INTO labels (session, key, value, owner, grp, state, gone, created) \
             SELECT $1, $2, $3, $4, $5, $6, $7, $8 \
             WHERE EXISTS (SELECT 1 FROM sessions WHERE id = $1 AND owner = $4 AND gone = $7) \
             ON CONFLICT (session, key) DO UPDATE SET value = excluded.value, grp = excluded.grp, \
             state = excluded.state, gone = excluded.gone \
             WHERE labels.value <> excluded.value OR labels.state <> excluded.state \
             OR labels.grp IS DISTINCT FROM excluded.grp",
        );
        let put = put.bind(session.id.as_str()).bind(key.as_str()).bind(value.as_str());
        let put = put.bind(session.owner.as_str()).bind(session.group.as_deref());
        let put = put.bind(session.state.as_str()).bind(gone(session.state)).bind(session.created.0);
        script.say(put);
    }
}

fn put_token(script: &mut Script, row: &TokenRow) -> Result<(), StoreError> {
    let put = Statement::new(
        "INSERT INTO tokens (id, secret_hash, created, doc) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE \
         SET secret_hash = excluded.secret_hash, created = excluded.created, doc = excluded.doc",
    );
    let put = put.bind(row.info.id.as_str()).bind(row.secret_hash.as_str()).bind(row.info.created.0);
    script.say(put.bind(as_json(&row.info)?));
    Ok(())
}

fn gone(state: SessionState) -> i64 {
    i64::from(state == SessionState::Deleted)
}
