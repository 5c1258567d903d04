//! How SQLite is opened and brought up to date. The one file that a second database would need a twin of.

use crate::error::StoreError;
use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, SqliteConnection};
use std::path::Path;
use std::time::Duration;

/// Every version that there ever was, oldest first. What is here is never edited, only added to.
const MIGRATIONS: [(i64, &str, &str); 6] = [
    (1, "store", include_str!("../migrations/sqlite/0001_store.sql")),
    (2, "layers", include_str!("../migrations/sqlite/0002_layers.sql")),
    (3, "parts", include_str!("../migrations/sqlite/0003_parts.sql")),
    (4, "secrets", include_str!("../migrations/sqlite/0004_secrets.sql")),
    (5, "pools", include_str!("../migrations/sqlite/0005_pools.sql")),
    (6, "deleted", include_str!("../migrations/sqlite/0006_deleted.sql")),
];

const READERS: u32 = 4;

pub(crate) fn options(database: &Path) -> SqliteConnectOptions {
    let options = SqliteConnectOptions::new()
        .filename(database)
        // It is made by us, privately, or it is not there.
        .create_if_missing(false)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(5))
        .synchronous(SqliteSynchronous::Full)
        // What is purged is overwritten where that costs no further writes.
        .pragma("secure_delete", "FAST")
        // After a burst the write-ahead log gives its space back.
        .pragma("journal_size_limit", "16777216")
        .statement_cache_capacity(256);
    // Each statement would ask whether somebody listens. Who wants to see them all says so before the store is opened.
    match tracing::enabled!(target: "sqlx::query", tracing::Level::TRACE) {
        true => options,
        false => options.disable_statement_logging(),
    }
}

pub(crate) async fn writer(options: &SqliteConnectOptions) -> Result<SqliteConnection, StoreError> {
    Ok(options.clone().journal_mode(SqliteJournalMode::Wal).connect().await?)
}

pub(crate) async fn migrate(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let migrations = MIGRATIONS.map(|(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    Migrator::with_migrations(migrations.to_vec()).run(connection).await?;
    Ok(())
}

/// Readers have connections of their own: in WAL mode they see the last commit and wait for nobody.
pub(crate) async fn readers(options: &SqliteConnectOptions) -> Result<SqlitePool, StoreError> {
    let pool = SqlitePoolOptions::new()
        .max_connections(READERS)
        .idle_timeout(None)
        .max_lifetime(None)
        // There is no network in between that could have broken it.
        .test_before_acquire(false)
        .acquire_timeout(Duration::from_secs(30))
        .connect_with(options.clone().pragma("query_only", "ON"))
        .await?;
    Ok(pool)
}
