//! Whoever writes the database behind the store's back is found out, and what they touched is named.

mod support;

use sqlx::SqliteConnection;
use support::{Dir, entry, intruder, open, with_entries};
use workroom_store::{Fault, Store, verify_at};

/// Two journals, one of which is then changed by these statements; what `verify` says, online and offline.
async fn faults_after(statements: &[&'static str]) -> Vec<Fault> {
    let dir = Dir::new();
    let store = prepared(&dir).await;
    run(&mut intruder(&dir).await, statements).await;
    let online = store.verify(None).await.expect("a verification");
    assert_eq!(store.verify(Some("innocent")).await.unwrap().faults, []);
    assert_eq!(store.verify(Some("s")).await.unwrap().faults, online.faults);
    store.close().await;
    let offline = verify_at(dir.path(), None).await.expect("a verification");
    assert_eq!(offline, online);
    online.faults
}

async fn prepared(dir: &Dir) -> Store {
    let store = open(dir).await;
    with_entries(&store, "innocent", 20).await;
    with_entries(&store, "s", 300).await;
    let clean = store.verify(None).await.expect("a verification");
    assert_eq!((clean.sessions, clean.entries, clean.faults), (2, 320, vec![]));
    store
}

async fn run(connection: &mut SqliteConnection, statements: &[&'static str]) {
    for statement in statements {
        let done = sqlx::query(*statement).execute(&mut *connection).await.expect(statement);
        assert!(done.rows_affected() > 0, "{statement}");
    }
}

fn named(faults: &[Fault]) -> Vec<Option<i64>> {
    assert!(faults.iter().all(|fault| fault.session == "s"), "{faults:?}");
    faults.iter().map(|fault| fault.seq).collect()
}

#[tokio::test]
async fn an_edited_entry() {
    for edit in [
        "UPDATE journal SET body = '{}' WHERE session = 's' AND seq = 7",
        "UPDATE journal SET actor = 'eve' WHERE session = 's' AND seq = 7",
        "UPDATE journal SET kind = 'x' WHERE session = 's' AND seq = 7",
        "UPDATE journal SET at = at + 1 WHERE session = 's' AND seq = 7",
        "UPDATE journal SET owner = 'eve' WHERE session = 's' AND seq = 7",
    ] {
        let faults = faults_after(&[edit]).await;
        assert_eq!(named(&faults), [Some(7)], "{edit}: {faults:?}");
        assert!(faults[0].what.contains("entry 7 was changed"), "{faults:?}");
    }
}

#[tokio::test]
async fn the_last_entry_edited() {
    let faults = faults_after(&["UPDATE journal SET body = '{}' WHERE session = 's' AND seq = 300"]).await;
    assert_eq!(named(&faults), [Some(300)]);
}

#[tokio::test]
async fn a_deleted_entry_and_several() {
    let faults = faults_after(&["DELETE FROM journal WHERE session = 's' AND seq = 7"]).await;
    assert_eq!(named(&faults), [Some(7)]);
    assert!(faults[0].what.contains("entry 7 is missing"), "{faults:?}");
    let faults = faults_after(&["DELETE FROM journal WHERE session = 's' AND seq < 4"]).await;
    assert_eq!(named(&faults), [Some(1)]);
    assert!(faults[0].what.contains("entries 1 to 3 are missing"), "{faults:?}");
}

#[tokio::test]
async fn deleting_and_closing_the_gap() {
    let faults = faults_after(&[
        "DELETE FROM journal WHERE session = 's' AND seq = 290",
        "UPDATE journal SET seq = seq - 1000 WHERE session = 's' AND seq > 290",
        "UPDATE journal SET seq = seq + 999 WHERE session = 's' AND seq < 0",
    ])
    .await;
    assert_eq!(named(&faults).first(), Some(&Some(290)));
    assert_eq!(named(&faults).last(), Some(&Some(300)), "and the count is short: {faults:?}");
}

#[tokio::test]
async fn two_entries_swapped() {
    let faults = faults_after(&[
        "UPDATE journal SET seq = -1 WHERE session = 's' AND seq = 7",
        "UPDATE journal SET seq = 7 WHERE session = 's' AND seq = 8",
        "UPDATE journal SET seq = 8 WHERE session = 's' AND seq = -1",
    ])
    .await;
    assert_eq!(named(&faults), [Some(7), Some(8)], "{faults:?}");
    assert!(faults[1].what.contains("out of order"), "{faults:?}");
}

#[tokio::test]
async fn an_inserted_entry() {
    let faults = faults_after(&["INSERT INTO journal (session, seq, owner, at, actor, kind, body, hash) \
         VALUES ('s', 301, 'ada', 1, 'eve', 'x', '{}', 'abc')"])
    .await;
    assert_eq!(named(&faults), [Some(301), Some(301)], "{faults:?}");
    assert!(faults[1].what.contains("was put there"), "{faults:?}");
}

#[tokio::test]
async fn a_tail_cut_off() {
    let faults = faults_after(&["DELETE FROM journal WHERE session = 's' AND seq > 290"]).await;
    assert_eq!(named(&faults), [Some(291)]);
    assert!(faults[0].what.contains("says 300 entries, the journal ends at 290"), "{faults:?}");
    let faults = faults_after(&["DELETE FROM journal WHERE session = 's'"]).await;
    assert_eq!(named(&faults), [Some(1), Some(256)], "{faults:?}");
}

#[tokio::test]
async fn a_tail_cut_off_with_the_head_made_to_fit() {
    // Back to the checkpoint, whose signature is a real one: but it is no head's.
    let faults = faults_after(&[
        "DELETE FROM journal WHERE session = 's' AND seq > 256",
        "UPDATE heads SET entries = 256, \
         hash = (SELECT hash FROM checkpoints WHERE session = 's' AND seq = 256), \
         signature = (SELECT signature FROM checkpoints WHERE session = 's' AND seq = 256) WHERE session = 's'",
    ])
    .await;
    assert_eq!(named(&faults), [None]);
    assert!(faults[0].what.contains("forged"), "{faults:?}");
    let faults = faults_after(&[
        "DELETE FROM journal WHERE session = 's' AND seq > 100",
        "UPDATE heads SET entries = 100 WHERE session = 's'",
    ])
    .await;
    assert_eq!(named(&faults), [None, Some(256)], "{faults:?}");
}

#[tokio::test]
async fn a_head_taken_away_or_a_whole_journal() {
    let faults = faults_after(&["DELETE FROM heads WHERE session = 's'"]).await;
    assert_eq!(named(&faults), [None]);
    assert!(faults[0].what.contains("head of the journal was removed"), "{faults:?}");
    let faults = faults_after(&[
        "DELETE FROM heads WHERE session = 's'",
        "DELETE FROM journal WHERE session = 's'",
        "DELETE FROM checkpoints WHERE session = 's'",
    ])
    .await;
    assert_eq!(named(&faults), [None]);
    let faults = faults_after(&["DELETE FROM sessions WHERE id = 's'"]).await;
    assert_eq!(named(&faults), [None]);
    let faults = faults_after(&["DELETE FROM checkpoints WHERE session = 's'"]).await;
    assert_eq!(named(&faults), [Some(256)]);
}

/// The journal of another store, whose hashes all follow: only the key tells them apart.
#[tokio::test]
async fn a_replaced_chain() {
    let (dir, other) = (Dir::new(), Dir::new());
    let store = prepared(&dir).await;
    let forger = open(&other).await;
    with_entries(&forger, "s", 0).await;
    forger.commit((1..=300).map(|number| entry("s", number + 1)).collect()).await.unwrap();
    forger.close().await;

    let mut connection = intruder(&dir).await;
    let attach = format!("ATTACH '{}' AS other", other.path().join("store.db").display());
    sqlx::query(sqlx::AssertSqlSafe(attach)).execute(&mut connection).await.unwrap();
    run(
        &mut connection,
        &["UPDATE journal SET (at, body, hash) = (SELECT at, body, hash FROM other.journal o \
           WHERE o.session = journal.session AND o.seq = journal.seq) WHERE session = 's'"],
    )
    .await;
    let faults = store.verify(None).await.unwrap().faults;
    assert_eq!(named(&faults), [Some(1), Some(257)], "{faults:?}");
    assert!(faults[0].what.contains("entries 1 to 256 were rewritten"), "{faults:?}");

    for table in ["heads", "checkpoints"] {
        let take_over = format!(
            "UPDATE {table} SET (hash, signature) = (SELECT hash, signature FROM other.{table} o \
             WHERE o.session = {table}.session) WHERE session = 's'"
        );
        sqlx::query(sqlx::AssertSqlSafe(take_over)).execute(&mut connection).await.unwrap();
    }
    let faults = store.verify(None).await.unwrap().faults;
    assert_eq!(named(&faults), [Some(256), None], "{faults:?}");
    assert!(faults.iter().all(|fault| fault.what.contains("forged")), "{faults:?}");
}

/// Going on with a journal that was tampered with works, and does not wash it clean.
#[tokio::test]
async fn what_follows_does_not_hide_it() {
    for (statements, first) in [
        (
            &[
                "DELETE FROM heads WHERE session = 's'",
                "DELETE FROM journal WHERE session = 's' AND seq > 290",
            ][..],
            None,
        ),
        (&["DELETE FROM journal WHERE session = 's' AND seq > 290"][..], Some(291)),
        (
            &["INSERT INTO journal (session, seq, owner, at, actor, kind, body, hash) \
               VALUES ('s', 301, 'ada', 1, 'eve', 'x', '{}', 'abc')"][..],
            Some(301),
        ),
    ] {
        let dir = Dir::new();
        prepared(&dir).await.close().await;
        run(&mut intruder(&dir).await, statements).await;
        let store = open(&dir).await;
        store.commit(vec![entry("s", 400)]).await.expect("the journal goes on");
        store.commit(vec![entry("s", 401)]).await.expect("the journal goes on");
        let faults = store.verify(None).await.unwrap().faults;
        assert_eq!(named(&faults).first(), Some(&first), "{faults:?}");
    }
}
