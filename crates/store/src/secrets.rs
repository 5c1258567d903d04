//! Sealed secrets: by scope, holder and name. What is in them only the engine knows.

use crate::error::StoreError;
use crate::script::{Script, Statement};
use crate::store::Store;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use workroom_types::Timestamp;

/// The scope whose secrets go with their session.
const OF_SESSION: &str = "session";

/// A secret as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRow {
    /// `global`, `user` or `session`.
    pub scope: String,
    /// The user or the session; empty for global ones.
    pub holder: String,
    pub name: String,
    /// Counts up with each value, also over a removal.
    pub version: u64,
    pub created: Timestamp,
    /// The key that it is sealed under, by its id.
    pub key: String,
    /// Nothing if it was removed.
    pub sealed: Option<Vec<u8>>,
}

/// Replaces what has its place. One of a session that is deleted or gone is not put: a late word brings nothing back.
pub(crate) fn put(script: &mut Script, row: &SecretRow) {
    let put = Statement::new(
        "INSERT INTO secrets (scope, holder, name, version, created, key_id, sealed) \
         SELECT $1, $2, $3, $4, $5, $6, $7 \
         WHERE $1 <> 'session' OR EXISTS (SELECT 1 FROM sessions WHERE id = $2 AND gone = 0) \
         ON CONFLICT (scope, holder, name) DO UPDATE SET version = excluded.version, \
         created = excluded.created, key_id = excluded.key_id, sealed = excluded.sealed",
    );
    let put = put.bind(row.scope.as_str()).bind(row.holder.as_str()).bind(row.name.as_str());
    let put = put.bind(row.version as i64).bind(row.created.0).bind(row.key.as_str());
    script.say(put.bind(row.sealed.as_deref()));
}

/// Puts the same value under another key. Nothing happens if it has another version by now.
pub(crate) fn seal_again(script: &mut Script, row: &SecretRow) {
    let seal = Statement::new(
        "UPDATE secrets SET key_id = $5, sealed = $6 \
         WHERE scope = $1 AND holder = $2 AND name = $3 AND version = $4 AND sealed IS NOT NULL",
    );
    let seal = seal.bind(row.scope.as_str()).bind(row.holder.as_str()).bind(row.name.as_str());
    script.say(seal.bind(row.version as i64).bind(row.key.as_str()).bind(row.sealed.as_deref()));
}

/// Of a session that is deleted.
pub(crate) fn drop_all(script: &mut Script, session: &str) {
    let drop = Statement::new("DELETE FROM secrets WHERE scope = $1 AND holder = $2");
    script.say(drop.bind(OF_SESSION).bind(session));
}

fn read(row: &SqliteRow) -> Result<SecretRow, sqlx::Error> {
    Ok(SecretRow {
        scope: row.try_get(0)?,
        holder: row.try_get(1)?,
        name: row.try_get(2)?,
        version: row.try_get::<i64, _>(3)? as u64,
        created: Timestamp(row.try_get(4)?),
        key: row.try_get(5)?,
        sealed: row.try_get(6)?,
    })
}

const COLUMNS: &str = "SELECT scope, holder, name, version, created, key_id, sealed FROM secrets";

impl Store {
    /// One, removed or not.
    pub async fn secret(
        &self,
        (scope, holder, name): (&str, &str, &str),
    ) -> Result<Option<SecretRow>, StoreError> {
        let query = format!("{COLUMNS} WHERE scope = $1 AND holder = $2 AND name = $3");
        let row = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(scope)
            .bind(holder)
            .bind(name)
            .fetch_optional(&self.readers)
            .await?;
        Ok(row.as_ref().map(read).transpose()?)
    }

    /// Those of a holder that have a value, by name.
    pub async fn secrets(&self, scope: &str, holder: &str) -> Result<Vec<SecretRow>, StoreError> {
        let query =
            format!("{COLUMNS} WHERE scope = $1 AND holder = $2 AND sealed IS NOT NULL ORDER BY name");
        let rows =
            sqlx::query(sqlx::AssertSqlSafe(query)).bind(scope).bind(holder).fetch_all(&self.readers).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    /// Some of all that have a value and are not sealed under this key.
    pub async fn secrets_under_other_keys(&self, key: &str, most: u32) -> Result<Vec<SecretRow>, StoreError> {
        let query = format!(
            "{COLUMNS} WHERE sealed IS NOT NULL AND key_id <> $1 ORDER BY scope, holder, name LIMIT $2"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(key)
            .bind(i64::from(most))
            .fetch_all(&self.readers)
            .await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    /// The keys that secrets are sealed under, and whether one was ever sealed.
    pub async fn secret_keys(&self) -> Result<(Vec<String>, bool), StoreError> {
        let keys = sqlx::query_scalar("SELECT DISTINCT key_id FROM secrets WHERE sealed IS NOT NULL")
            .fetch_all(&self.readers)
            .await?;
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM secrets").fetch_one(&self.readers).await?;
        Ok((keys, count > 0))
    }
}
