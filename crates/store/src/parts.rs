//! What else belongs to a session, as documents of a kind: entries of its process table, services, published ports.

use crate::error::{StoreError, StoreErrorKind};
use crate::script::{Script, Statement};
use crate::store::Store;
use serde_json::Value;
use sqlx::Row;

/// Nothing happens to a session that is deleted or gone: a late word does not bring a part of it back.
pub(crate) fn put(script: &mut Script, (session, kind, id): (&str, &str, &str), doc: &Value) {
    let put = Statement::new(
        "INSERT INTO parts (session, kind, id, doc) SELECT $1, $2, $3, $4 \
         WHERE EXISTS (SELECT 1 FROM sessions WHERE id = $1 AND gone = 0) \
         ON CONFLICT (session, kind, id) DO UPDATE SET doc = excluded.doc",
    );
    script.say(put.bind(session).bind(kind).bind(id).bind(doc.to_string()));
}

pub(crate) fn drop_one(script: &mut Script, (session, kind, id): (&str, &str, &str)) {
    let drop = Statement::new("DELETE FROM parts WHERE session = $1 AND kind = $2 AND id = $3");
    script.say(drop.bind(session).bind(kind).bind(id));
}

/// Of a session that is deleted.
pub(crate) fn drop_all(script: &mut Script, session: &str) {
    script.say(Statement::new("DELETE FROM parts WHERE session = $1").bind(session));
}

impl Store {
    /// All parts of a kind that a session has, by their ids.
    pub async fn parts(&self, session: &str, kind: &str) -> Result<Vec<(String, Value)>, StoreError> {
        let rows = sqlx::query("SELECT id, doc FROM parts WHERE session = $1 AND kind = $2 ORDER BY id")
            .bind(session)
            .bind(kind)
            .fetch_all(&self.readers)
            .await?;
        rows.iter()
            .map(|row| {
                let (id, doc): (String, &str) = (row.try_get(0)?, row.try_get(1)?);
                let doc = serde_json::from_str(doc).map_err(|error| {
                    StoreError::new(
                        StoreErrorKind::Corrupt,
                        format!("the {kind} {id} of session {session} cannot be read: {error}"),
                    )
                })?;
                Ok((id, doc))
            })
            .collect()
    }

    /// The sessions that have a part of a kind.
    pub async fn sessions_with(&self, kind: &str) -> Result<Vec<String>, StoreError> {
        Ok(sqlx::query_scalar("SELECT DISTINCT session FROM parts WHERE kind = $1 ORDER BY session")
            .bind(kind)
            .fetch_all(&self.readers)
            .await?)
    }
}
