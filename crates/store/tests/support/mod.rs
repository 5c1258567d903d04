//! A state directory of a test's own, and sessions to put into it.
#![allow(dead_code, unreachable_pub)]

use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use workroom_store::{Change, Outcome, SessionRow, Store};
use workroom_types::{Counters, Enforced, OnExpiry, Policy, Session, SessionState, Timestamp};

pub struct Dir(PathBuf);

impl Dir {
    pub fn new() -> Dir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("workroom-store-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Dir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub async fn open(dir: &Dir) -> Store {
    Store::open(dir.path()).await.expect("the store opens")
}

/// A second way into the database, as somebody has who can write the file.
pub async fn intruder(dir: &Dir) -> sqlx::SqliteConnection {
    use sqlx::ConnectOptions;
    sqlx::sqlite::SqliteConnectOptions::new()
        .filename(dir.path().join("store.db"))
        .foreign_keys(false)
        .connect()
        .await
        .expect("the database opens")
}

pub fn session(id: &str) -> SessionRow {
    let session = Session {
        id: id.into(),
        name: format!("session {id}"),
        labels: BTreeMap::new(),
        owner: "ada".into(),
        key: None,
        group: None,
        channel: None,
        thread: None,
        template: "host".into(),
        policy: Policy::default(),
        policy_version: 1,
        policy_changed: None,
        room_policy: None,
        mounts: Vec::new(),
        room_binds: None,
        state: SessionState::Running,
        reason: None,
        created: Timestamp(1_767_225_599_042),
        last_active: Timestamp(1_767_225_599_042),
        ttl: None,
        idle_timeout: Some(600),
        on_expiry: OnExpiry::Stop,
        keep_alive: false,
        enforced: Enforced::default(),
        counters: Counters::default(),
        reset_count: 0,
        parent: None,
        pool: None,
    };
    SessionRow { session, place: None, waiting: false }
}

pub fn insert(row: SessionRow) -> Change {
    Change::InsertSession { row }
}

pub fn entry(session: &str, number: i64) -> Change {
    Change::Journal {
        session: session.into(),
        at: Timestamp(1_767_225_600_000 + number),
        actor: "server".into(),
        kind: "test.entry".into(),
        body: json!({ "number": number, "text": "snow ☃ and \"quotes\"" }),
    }
}

/// A session with that many entries.
pub async fn with_entries(store: &Store, id: &str, entries: i64) {
    let mut changes = vec![insert(session(id))];
    changes.extend((1..=entries).map(|number| entry(id, number)));
    let outcomes = store.commit(changes).await.expect("a commit");
    assert_eq!(outcomes[0], Outcome::Inserted);
}

pub async fn numbers(store: &Store, session: &str) -> Vec<i64> {
    let entries = store.journal(session, 0, u32::MAX).await.expect("a journal");
    for (index, entry) in entries.iter().enumerate() {
        assert_eq!(entry.seq, index as i64 + 1);
    }
    entries.iter().map(|entry| entry.body["number"].as_i64().expect("a number")).collect()
}
