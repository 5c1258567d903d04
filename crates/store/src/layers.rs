//! What sessions' files are made of: stacks of layers, snapshots of them, and who needs which layer.

use crate::error::{StoreError, StoreErrorKind};
use crate::script::{Script, Statement};
use crate::store::Store;
use serde::{Deserialize, Serialize};
use sqlx::{Row, SqliteConnection};
use std::collections::HashSet;
use workroom_types::Snapshot;

/// The layers of a session by their names, the lowest first. Frozen ones may be shared; the top one never is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionStack {
    /// What the session was after it was seeded. Never changes once there is a snapshot or a fork.
    pub baseline: Vec<String>,
    pub frozen: Vec<String>,
    /// What the room writes to.
    pub top: String,
    /// The snapshot that the session stands on.
    pub on: Option<String>,
    /// The content of `baseline`, once it was asked for.
    pub baseline_digest: Option<String>,
    /// The first ancestor.
    pub family: String,
    /// Of a fork: the session that it comes from, the snapshot if it was made from one, and the files at that moment.
    pub parent: Option<String>,
    pub parent_at: Option<String>,
    pub fork_base: Vec<String>,
}

impl SessionStack {
    /// Of a session that nothing was done to yet.
    pub fn new(session: &str) -> SessionStack {
        SessionStack { top: session.into(), family: session.into(), ..SessionStack::default() }
    }

    /// All layers that make up the files as they are.
    pub fn whole(&self) -> Vec<String> {
        self.frozen.iter().chain([&self.top]).cloned().collect()
    }

    fn uses(&self) -> HashSet<&str> {
        let own = self.baseline.iter().chain(&self.frozen).chain(&self.fork_base).chain([&self.top]);
        own.map(String::as_str).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotRow {
    pub snapshot: Snapshot,
    pub layers: Vec<String>,
}

fn as_json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value)
        .map_err(|error| StoreError::unfit(format!("it cannot be written as JSON: {error}"), ""))
}

fn replace_uses(script: &mut Script, (session, holder): (&str, &str), layers: HashSet<&str>) {
    let drop = Statement::new("DELETE FROM layer_uses WHERE session = $1 AND holder = $2");
    script.say(drop.bind(session).bind(holder));
    for layer in layers {
        let put = Statement::new("INSERT INTO layer_uses (session, holder, layer) VALUES ($1, $2, $3)");
        script.say(put.bind(session).bind(holder).bind(layer));
    }
}

pub(crate) fn put_stack(script: &mut Script, session: &str, stack: &SessionStack) -> Result<(), StoreError> {
    let put = Statement::new(
        "INSERT INTO stacks (session, family, doc) VALUES ($1, $2, $3) ON CONFLICT (session) DO UPDATE \
         SET family = excluded.family, doc = excluded.doc",
    );
    script.say(put.bind(session).bind(stack.family.as_str()).bind(as_json(stack)?));
    replace_uses(script, (session, ""), stack.uses());
    Ok(())
}

pub(crate) fn put_snapshot(script: &mut Script, session: &str, row: &SnapshotRow) -> Result<(), StoreError> {
    let put = Statement::new(
        "INSERT INTO snapshots (session, name, created, doc) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (session, name) DO UPDATE SET created = excluded.created, doc = excluded.doc",
    );
    let name = row.snapshot.name.as_str();
    script.say(put.bind(session).bind(name).bind(row.snapshot.created.0).bind(as_json(row)?));
    replace_uses(script, (session, name), row.layers.iter().map(String::as_str).collect());
    Ok(())
}

/// What was found out about a snapshot later; nothing if it is gone by now.
pub(crate) async fn measure_snapshot(
    connection: &mut SqliteConnection,
    session: &str,
    name: &str,
    (size, entries): (u64, u64),
) -> Result<(), StoreError> {
    let doc: Option<String> =
        sqlx::query_scalar("SELECT doc FROM snapshots WHERE session = $1 AND name = $2")
            .bind(session)
            .bind(name)
            .fetch_optional(&mut *connection)
            .await?;
    let Some(mut row) = doc.and_then(|doc| serde_json::from_str::<SnapshotRow>(&doc).ok()) else {
        return Ok(());
    };
    row.snapshot.size = Some(size);
    row.snapshot.entries = Some(entries);
    sqlx::query("UPDATE snapshots SET doc = $3 WHERE session = $1 AND name = $2")
        .bind(session)
        .bind(name)
        .bind(as_json(&row)?)
        .execute(connection)
        .await?;
    Ok(())
}

pub(crate) fn drop_snapshot(script: &mut Script, session: &str, name: &str) {
    let drop = Statement::new("DELETE FROM snapshots WHERE session = $1 AND name = $2");
    script.say(drop.bind(session).bind(name));
    replace_uses(script, (session, name), HashSet::new());
}

/// Of a session that is deleted.
pub(crate) fn drop_all(script: &mut Script, session: &str) {
    for statement in [
        "DELETE FROM layer_uses WHERE session = $1",
        "DELETE FROM snapshots WHERE session = $1",
        "DELETE FROM stacks WHERE session = $1",
    ] {
        script.say(Statement::new(statement).bind(session));
    }
}

impl Store {
    /// `None` for a session that has one layer, of its own name.
    pub async fn stack(&self, session: &str) -> Result<Option<SessionStack>, StoreError> {
        let doc: Option<String> = sqlx::query_scalar("SELECT doc FROM stacks WHERE session = $1")
            .bind(session)
            .fetch_optional(&self.readers)
            .await?;
        doc.map(|doc| read(&doc, "the layers of session", session)).transpose()
    }

    /// The stacks of all relatives that are not deleted, by session.
    pub async fn family(&self, family: &str) -> Result<Vec<(String, SessionStack)>, StoreError> {
        let rows = sqlx::query("SELECT session, doc FROM stacks WHERE family = $1 ORDER BY session")
            .bind(family)
            .fetch_all(&self.readers)
            .await?;
        rows.iter()
            .map(|row| {
                let (session, doc): (String, &str) = (row.try_get(0)?, row.try_get(1)?);
                let stack = read(doc, "the layers of session", &session)?;
                Ok((session, stack))
            })
            .collect()
    }

    /// The oldest first.
    pub async fn snapshots(&self, session: &str) -> Result<Vec<SnapshotRow>, StoreError> {
        let docs: Vec<String> =
            sqlx::query_scalar("SELECT doc FROM snapshots WHERE session = $1 ORDER BY created, name")
                .bind(session)
                .fetch_all(&self.readers)
                .await?;
        docs.iter().map(|doc| read(doc, "a snapshot of session", session)).collect()
    }

    pub async fn snapshot(&self, session: &str, name: &str) -> Result<Option<SnapshotRow>, StoreError> {
        let doc: Option<String> =
            sqlx::query_scalar("SELECT doc FROM snapshots WHERE session = $1 AND name = $2")
                .bind(session)
                .bind(name)
                .fetch_optional(&self.readers)
                .await?;
        doc.map(|doc| read(&doc, "a snapshot of session", session)).transpose()
    }

    /// Every layer that a stack or a snapshot is made of.
    pub async fn used_layers(&self) -> Result<HashSet<String>, StoreError> {
        let layers: Vec<String> =
            sqlx::query_scalar("SELECT DISTINCT layer FROM layer_uses").fetch_all(&self.readers).await?;
        Ok(layers.into_iter().collect())
    }

    pub async fn is_layer_used(&self, layer: &str) -> Result<bool, StoreError> {
        let used: Option<String> =
            sqlx::query_scalar("SELECT layer FROM layer_uses WHERE layer = $1 LIMIT 1")
                .bind(layer)
                .fetch_optional(&self.readers)
                .await?;
        Ok(used.is_some())
    }
}

fn read<T: for<'a> Deserialize<'a>>(doc: &str, what: &str, of: &str) -> Result<T, StoreError> {
    serde_json::from_str(doc).map_err(|error| {
        StoreError::new(StoreErrorKind::Corrupt, format!("{what} {of} cannot be read: {error}"))
    })
}
