//! Everything that the store can do, done once at least. What is left behind belongs to the session `one`.

use crate::support::{Dir, entry, insert, intruder, session};
use serde_json::json;
use workroom_store::{
    Change, InPool, Outcome, SecretRow, SessionFilter, SessionRow, SessionStack, SnapshotRow, Store,
    TokenRow, verify_at,
};
use workroom_types::{SessionState, Snapshot, Timestamp, TokenInfo, TokenScope};

const AT: Timestamp = Timestamp(1_767_225_600_000);

pub(crate) async fn all(store: &Store, dir: &Dir) {
    sessions(store).await;
    journals(store, dir).await;
    what_belongs_to_sessions(store).await;
    secrets(store).await;
    tokens_and_answers(store).await;
    lists(store).await;
    store.writable().await.expect("a pulse");
}

/// With something of everything that is looked for.
fn full(id: &str) -> SessionRow {
    let mut row = session(id);
    row.session.key = Some(format!("key of {id}"));
    row.session.group = Some("one".into());
    row.session.labels = [("one".to_owned(), "one".to_owned())].into();
    row.session.pool = (id == "slot").then(|| "one".to_owned());
    row.place = Some(format!("place of {id}"));
    row
}

async fn commit(store: &Store, changes: Vec<Change>) -> Vec<Outcome> {
    store.commit(changes).await.expect("a commit")
}

async fn sessions(store: &Store) {
    for id in ["one", "slot", "deleted", "purged"] {
        assert_eq!(commit(store, vec![insert(full(id))]).await, [Outcome::Inserted]);
    }
    let mut in_the_way = full("another");
    in_the_way.session.key = full("one").session.key;
    assert_eq!(commit(store, vec![insert(in_the_way)]).await, [Outcome::Exists("one".into())]);
    let mut in_the_way = full("another");
    in_the_way.place = full("one").place;
    assert_eq!(commit(store, vec![insert(in_the_way)]).await, [Outcome::Exists("one".into())]);

    let mut saved = full("one");
    saved.session.state = SessionState::Paused;
    saved.session.labels.insert("two".into(), "it's \"quoted\" ☃".into());
    commit(store, vec![Change::SaveSession { row: saved.clone() }]).await;
    saved.session.owner = "eve".into();
    store.commit(vec![Change::SaveSession { row: saved }]).await.expect_err("owners never change");

    let purge = |id: &str| Change::PurgeSession { id: id.into() };
    let delete = |id: &str| Change::DeleteSession { id: id.into(), at: AT };
    commit(store, vec![delete("deleted"), entry("purged", 1), purge("purged")]).await;
    assert!(store.session("one").await.expect("a row").is_some());
    for (owner, sees) in [(None, true), (Some("ada"), true), (Some("eve"), false)] {
        assert_eq!(store.session_of("one", owner).await.expect("an answer").is_some(), sees);
        assert_eq!(store.session_of("deleted", owner).await.expect("an answer").is_some(), sees);
    }
    assert!(store.session_by_key("ada", "key of one").await.expect("a row").is_some());
    assert!(store.session_by_place("place of one").await.expect("a row").is_some());
    assert_eq!(store.created_since("ada", Timestamp(0)).await.expect("a count"), 2);
    assert_eq!(store.all_ids().await.expect("ids").len(), 2);
    let later = Timestamp(AT.0 + 1);
    assert_eq!(store.deleted_before(later, AT, 10).await.expect("ids"), ["deleted"]);
    assert!(store.deleted_before(AT, later, 10).await.expect("ids").is_empty());
}

async fn journals(store: &Store, dir: &Dir) {
    // Enough for a checkpoint, and for each size that statements come in.
    commit(store, (1..=265).map(|number| entry("one", number)).collect()).await;
    store.note(entry("slot", 1)).await;
    commit(store, Vec::new()).await;
    assert_eq!(store.journal("one", 0, 10).await.expect("a journal").len(), 10);
    assert_eq!(store.journal_last("one", "test.entry", 1).await.expect("a journal").len(), 1);
    assert_eq!(store.journal_all(None, 0, 10).await.expect("journals").len(), 10);
    assert_eq!(store.journal_all(Some("ada"), 0, 10).await.expect("journals").len(), 10);
    assert!(store.last_position().await.expect("a position") > 265);
    for session in [None, Some("one")] {
        assert_eq!(store.verify(session).await.expect("a verification").faults, []);
        assert_eq!(verify_at(dir.path(), session).await.expect("a verification").faults, []);
    }
    // A journal whose head somebody has removed goes on, in the next server.
    sqlx::query("DELETE FROM heads WHERE session = 'slot'")
        .execute(&mut intruder(dir).await)
        .await
        .expect("a head less");
    let next = Store::open(dir.path()).await.expect("the store opens");
    commit(&next, vec![entry("slot", 2)]).await;
    next.close().await;
}

async fn what_belongs_to_sessions(store: &Store) {
    let snapshot = Snapshot {
        name: "one".into(),
        created: AT,
        parent: None,
        size: None,
        entries: None,
        layers: 1,
        pause_ms: 0.5,
        sync_ms: 0.5,
    };
    let row = SnapshotRow { snapshot, layers: vec!["one".into()] };
    let session = || "one".to_owned();
    let mut dropped = row.clone();
    dropped.snapshot.name = "dropped".into();
    let part = |id: &str| Change::PutPart {
        session: session(),
        kind: "one".into(),
        id: id.into(),
        doc: json!({ "nothing": "\0" }),
    };
    commit(
        store,
        vec![
            Change::PutStack { session: session(), stack: SessionStack::new("one") },
            Change::PutSnapshot { session: session(), row },
            Change::PutSnapshot { session: session(), row: dropped },
            Change::MeasureSnapshot { session: session(), name: "one".into(), size: 1, entries: 2 },
            Change::DropSnapshot { session: session(), name: "dropped".into() },
            part("one"),
            part("dropped"),
            Change::DropPart { session: session(), kind: "one".into(), id: "dropped".into() },
        ],
    )
    .await;
    assert!(store.stack("one").await.expect("a stack").is_some());
    assert_eq!(store.family("one").await.expect("a family").len(), 1);
    assert_eq!(store.snapshots("one").await.expect("snapshots").len(), 1);
    assert!(store.snapshot("one", "one").await.expect("a snapshot").is_some());
    assert_eq!(store.used_layers().await.expect("layers").len(), 1);
    assert!(store.is_layer_used("one").await.expect("an answer"));
    assert!(!store.is_layer_used("another").await.expect("an answer"));
    assert_eq!(store.parts("one", "one").await.expect("parts").len(), 1);
    assert_eq!(store.sessions_with("one").await.expect("sessions"), ["one"]);
}

async fn secrets(store: &Store) {
    let mut row = SecretRow {
        scope: "session".into(),
        holder: "one".into(),
        name: "one".into(),
        version: 1,
        created: AT,
        key: "a key".into(),
        sealed: Some(vec![0, 39, 92, 255]),
    };
    commit(store, vec![Change::PutSecret { row: row.clone() }]).await;
    assert_eq!(store.secrets_under_other_keys("one", 10).await.expect("secrets").len(), 1);
    row.key = "one".into();
    commit(store, vec![Change::SealAgain { row: row.clone() }]).await;
    assert_eq!(store.secret(("session", "one", "one")).await.expect("a secret"), Some(row.clone()));
    assert_eq!(store.secrets("session", "one").await.expect("secrets"), [row]);
    assert_eq!(store.secret_keys().await.expect("keys"), (vec!["one".into()], true));
}

async fn tokens_and_answers(store: &Store) {
    for id in ["one", "dropped"] {
        let info = TokenInfo {
            id: id.into(),
            name: String::new(),
            scope: TokenScope::Admin,
            owner: None,
            session: None,
            read_only: false,
            created: AT,
            expires: None,
        };
        commit(store, vec![Change::PutToken { row: TokenRow { info, secret_hash: "abcd".into() } }]).await;
    }
    commit(store, vec![Change::DeleteToken { id: "dropped".into() }]).await;
    assert_eq!(store.tokens().await.expect("tokens").len(), 1);

    for key in ["one", "withdrawn"] {
        let (scope, key, fingerprint) = ("one".to_owned(), key.to_owned(), "f".to_owned());
        commit(store, vec![Change::BeginIdempotent { scope, key, fingerprint, resource: None, at: AT }])
            .await;
    }
    let finish = Change::FinishIdempotent {
        scope: "one".into(),
        key: "one".into(),
        fingerprint: "f".into(),
        status: 200,
        content_type: "application/octet-stream".into(),
        body: vec![0, 255],
        at: AT,
    };
    let withdraw = Change::WithdrawIdempotent { scope: "one".into(), key: "withdrawn".into() };
    commit(store, vec![finish, withdraw, Change::ForgetIdempotent { before: Timestamp(1) }]).await;
    assert!(store.idempotency("one", "one").await.expect("an answer").is_some());
}

/// Every combination of filters, as each is a statement of its own.
async fn lists(store: &Store) {
    let pools = [InPool::AnyOrNone, InPool::None, InPool::Any, InPool::Named("one".into())];
    let states = [vec![], vec![SessionState::Running, SessionState::Paused], vec![SessionState::Deleted]];
    let labels = [None, Some(("one".to_owned(), None)), Some(("one".to_owned(), Some("one".to_owned())))];
    let mut found = 0;
    for bits in 0..16u32 {
        let has = |bit: u32| bits & (1 << bit) != 0;
        for (pool, states, label) in pools.iter().flat_map(|pool| {
            let labels = &labels;
            states.iter().flat_map(move |states| labels.iter().map(move |label| (pool, states, label)))
        }) {
            let filter = SessionFilter {
                owner: has(0).then(|| "ada".into()),
                group: has(1).then(|| "one".into()),
                only: has(2).then(|| "one".into()),
                before: has(3).then(|| (i64::MAX, "one".into())),
                states: states.clone(),
                label: label.clone(),
                pool: pool.clone(),
                limit: 10,
            };
            found += store.sessions(&filter).await.expect("a list").len();
        }
    }
    assert!(found > 100, "{found}");
}
