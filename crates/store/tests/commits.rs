//! What a commit promises: all or nothing, durable, exactly once, and no failure but its own.

mod support;

use std::time::{Duration, Instant};
use support::{Dir, entry, insert, numbers, open, session, with_entries};
use tokio::task::JoinSet;
use workroom_store::{Change, IdempotencyRow, Outcome, SessionFilter, SessionRow, Store, TokenRow};
use workroom_types::{SessionState, Timestamp, TokenInfo, TokenScope};

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_store_that_was_never_closed() {
    let dir = Dir::new();
    let mut row = session("one");
    row.session.key = Some("my key".into());
    row.session.labels.insert("env".into(), "prod".into());
    row.place = Some("group/channel".into());
    row.waiting = true;
    let token = TokenRow {
        info: TokenInfo {
            id: "t1".into(),
            name: "laptop".into(),
            scope: TokenScope::User,
            owner: Some("ada".into()),
            session: None,
            read_only: false,
            created: Timestamp(5),
            expires: None,
        },
        secret_hash: "abcd".into(),
    };
    let store = open(&dir).await;
    store
        .commit(vec![insert(row.clone()), entry("one", 1), Change::PutToken { row: token.clone() }])
        .await
        .expect("a commit");
    // The files stay as they are now: the scribe of the first store is not asked to end.
    let again = open(&dir).await;
    assert_eq!(again.session("one").await.unwrap(), Some(row.clone()));
    assert_eq!(again.session_by_key("ada", "my key").await.unwrap(), Some(row.clone()));
    assert_eq!(again.session_by_key("bob", "my key").await.unwrap(), None);
    assert_eq!(again.session_by_place("group/channel").await.unwrap(), Some(row));
    assert_eq!(again.tokens().await.unwrap(), vec![token]);
    assert_eq!(numbers(&again, "one").await, [1]);
    assert_eq!(again.last_position().await.unwrap(), 1);
    assert_eq!(again.verify(None).await.unwrap().faults, []);

    again.commit(vec![Change::DeleteToken { id: "t1".into() }]).await.unwrap();
    assert_eq!(store.tokens().await.unwrap(), vec![]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_that_want_one_place_one_gets_it() {
    let dir = Dir::new();
    let store = open(&dir).await;
    let mut callers = JoinSet::new();
    for number in 0..100 {
        let store = store.clone();
        callers.spawn(async move {
            let id = format!("s{number}");
            let mut row = session(&id);
            row.place = Some("the place".into());
            // For half of them something else comes first, and must be undone again.
            let first = Change::DeleteToken { id: "none".into() };
            let mut changes = vec![insert(row), entry(&id, 1)];
            if number % 2 == 0 {
                changes.insert(0, first);
            }
            (id, store.commit(changes).await.expect("an answer"))
        });
    }
    let answers = callers.join_all().await;
    let winners: Vec<_> =
        answers.iter().filter(|(_, outcomes)| outcomes.contains(&Outcome::Inserted)).collect();
    assert_eq!(winners.len(), 1);
    let (winner, _) = winners[0];
    for (id, outcomes) in &answers {
        if id != winner {
            assert_eq!(outcomes.last(), Some(&Outcome::Exists(winner.clone())));
        }
    }
    let all = store.sessions(&SessionFilter { limit: 1000, ..Default::default() }).await.unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(store.last_position().await.unwrap(), 1);
    assert_eq!(store.verify(None).await.unwrap().faults, []);
}

#[tokio::test]
async fn nothing_of_a_commit_stays_when_its_session_is_there_already() {
    let dir = Dir::new();
    let store = open(&dir).await;
    with_entries(&store, "old", 1).await;
    let mut row = session("new");
    row.session.key = Some("k".into());
    store.commit(vec![insert(row)]).await.unwrap();
    let mut again = session("other");
    again.session.key = Some("k".into());
    let outcomes =
        store.commit(vec![entry("old", 2), insert(again), entry("old", 3)]).await.expect("an answer");
    assert!(matches!(&outcomes[..], [Outcome::Entry(_), Outcome::Exists(id)] if id == "new"), "{outcomes:?}");
    assert_eq!(numbers(&store, "old").await, [1]);
    assert_eq!(store.session("other").await.unwrap(), None);
    let outcomes = store.commit(vec![insert(session("old"))]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Exists("old".into())]);
    // The chain goes on as if nothing had been.
    store.commit(vec![entry("old", 2)]).await.unwrap();
    assert_eq!(numbers(&store, "old").await, [1, 2]);
    assert_eq!(store.verify(None).await.unwrap().faults, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_fails_touches_no_other_of_its_batch() {
    let dir = Dir::new();
    let store = open(&dir).await;
    with_entries(&store, "s", 0).await;
    let mut callers = JoinSet::new();
    for number in 0..60 {
        let store = store.clone();
        callers.spawn(async move {
            let changes = match number % 3 {
                0 => vec![entry("s", number), entry("nobody", number)],
                _ => vec![entry("s", number)],
            };
            (number, store.commit(changes).await)
        });
    }
    for (number, answer) in callers.join_all().await {
        assert_eq!(answer.is_ok(), number % 3 != 0, "{answer:?}");
        if let Err(error) = answer {
            assert!(error.to_string().contains("there is no session nobody"), "{error}");
            assert!(!error.is_full() && !error.is_io() && !error.is_corrupt());
        }
    }
    let mut written = numbers(&store, "s").await;
    written.sort();
    let expected: Vec<i64> = (0..60).filter(|number| number % 3 != 0).collect();
    assert_eq!(written, expected);
    assert_eq!(store.verify(None).await.unwrap().faults, []);
    assert_eq!(store.counters().failures, 20);
}

#[tokio::test]
async fn notes_and_commits_of_one_caller_keep_their_order_and_notes_are_durable_in_time() {
    let dir = Dir::new();
    let store = open(&dir).await;
    with_entries(&store, "s", 0).await;
    for number in 0..200 {
        match number % 5 {
            4 => drop(store.commit(vec![entry("s", number)]).await.unwrap()),
            _ => store.note(entry("s", number)).await,
        }
    }
    assert_eq!(numbers(&store, "s").await, (0..200).collect::<Vec<_>>(), "a commit takes the notes along");

    // A note that no commit follows is written by itself.
    let mut entries = store.subscribe();
    store.note(entry("s", 200)).await;
    let told = tokio::time::timeout(Duration::from_secs(10), entries.recv()).await.unwrap().unwrap();
    assert_eq!(told.body["number"], 200);
    assert_eq!(numbers(&open(&dir).await, "s").await.last(), Some(&200));

    // And one that can never be written is counted, and in nobody's way.
    store.note(entry("nobody", 1)).await;
    store.note(entry("s", 201)).await;
    store.close().await;
    let counters = store.counters();
    assert_eq!((counters.dropped, counters.waiting, counters.entries), (1, 0, 202));
    assert!(store.commit(vec![entry("s", 202)]).await.unwrap_err().to_string().contains("closed"));
    assert_eq!(numbers(&open(&dir).await, "s").await.len(), 202);
}

#[tokio::test]
async fn a_commit_of_nothing_waits_for_what_was_noted_before() {
    let dir = Dir::new();
    let store = open(&dir).await;
    store.commit(vec![insert(session("s"))]).await.unwrap();
    for number in 1..=20 {
        store.note(entry("s", number)).await;
        store.commit(Vec::new()).await.unwrap();
        assert_eq!(numbers(&store, "s").await, (1..=number).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_store_that_is_dropped_still_writes_what_was_noted() {
    let dir = Dir::new();
    let store = open(&dir).await;
    with_entries(&store, "s", 0).await;
    store.note(entry("s", 1)).await;
    drop(store);
    let again = open(&dir).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while numbers(&again, "s").await != [1] {
        assert!(Instant::now() < deadline, "the note was not written");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_hear_every_entry_in_the_order_of_positions() {
    let dir = Dir::new();
    let store = open(&dir).await;
    for id in ["a", "b"] {
        with_entries(&store, id, 0).await;
    }
    let mut entries = store.subscribe();
    let mut callers = JoinSet::new();
    for number in 0..100 {
        let store = store.clone();
        callers.spawn(async move {
            let id = if number % 2 == 0 { "a" } else { "b" };
            store.commit(vec![entry(id, number)]).await.unwrap()
        });
    }
    callers.join_all().await;
    let mut heard = Vec::new();
    while heard.len() < 100 {
        heard.push((*entries.recv().await.unwrap()).clone());
    }
    assert_eq!(heard, store.journal_all(None, 0, 1000).await.unwrap());
    assert_eq!(store.journal_all(Some("ada"), 40, 10).await.unwrap(), heard[40..50]);
    assert_eq!(store.journal_all(Some("bob"), 0, 10).await.unwrap(), []);
    assert_eq!(store.journal("a", 45, 3).await.unwrap().first().unwrap().seq, 46);
}

#[tokio::test]
async fn deleting_frees_key_and_place_and_a_late_word_does_not_bring_it_back() {
    let dir = Dir::new();
    let store = open(&dir).await;
    let with_names = |id: &str| {
        let mut row = session(id);
        row.session.key = Some("k".into());
        row.session.labels.insert("env".into(), "prod".into());
        row.place = Some("p".into());
        row
    };
    store.commit(vec![insert(with_names("one")), entry("one", 1)]).await.unwrap();
    let delete = || Change::DeleteSession { id: "one".into(), at: Timestamp(9) };
    store.commit(vec![delete(), entry("one", 2)]).await.unwrap();
    store.commit(vec![Change::SaveSession { row: with_names("one") }, delete()]).await.unwrap();

    let gone = store.session("one").await.unwrap().expect("the row stays");
    assert_eq!((gone.session.state, gone.place), (SessionState::Deleted, None));
    assert_eq!(store.session_by_key("ada", "k").await.unwrap(), None);
    assert_eq!(store.session_by_place("p").await.unwrap(), None);
    assert_eq!(numbers(&store, "one").await, [1, 2]);
    assert_eq!(store.all_ids().await.unwrap(), []);
    assert_eq!(store.created_since("ada", Timestamp(0)).await.unwrap(), 1);
    assert_eq!(store.created_since("ada", Timestamp(i64::MAX)).await.unwrap(), 0);
    // It was deleted at 9, and is not of a pool.
    for (sessions, slots, old) in [(10, 0, vec!["one"]), (9, 99, vec![]), (9, 0, vec![])] {
        let found = store.deleted_before(Timestamp(sessions), Timestamp(slots), 10).await.unwrap();
        assert_eq!(found, old, "{sessions} {slots}");
    }

    assert_eq!(store.commit(vec![insert(with_names("two"))]).await.unwrap(), [Outcome::Inserted]);
    assert_eq!(store.all_ids().await.unwrap(), [("two".into(), SessionState::Running)]);

    store.commit(vec![Change::PurgeSession { id: "one".into() }]).await.unwrap();
    assert_eq!(store.session("one").await.unwrap(), None);
    assert_eq!(store.journal("one", 0, 10).await.unwrap(), []);
    assert_eq!(store.verify(None).await.unwrap().faults, []);
    // Positions are never used twice: a listener's place stays valid.
    let outcomes = store.commit(vec![entry("two", 1)]).await.unwrap();
    assert!(matches!(&outcomes[..], [Outcome::Entry(entry)] if entry.position == 3), "{outcomes:?}");
}

#[tokio::test]
async fn saving_replaces_all_but_owner_and_birth() {
    let dir = Dir::new();
    let store = open(&dir).await;
    let mut row = session("one");
    row.session.labels.insert("env".into(), "prod".into());
    store.commit(vec![insert(row.clone())]).await.unwrap();
    row.session.state = SessionState::Stopped;
    row.session.labels.insert("team".into(), "x".into());
    row.session.group = Some("g".into());
    row.session.key = Some("late".into());
    row.waiting = true;
    store.commit(vec![Change::SaveSession { row: row.clone() }]).await.unwrap();
    assert_eq!(store.session_by_key("ada", "late").await.unwrap(), Some(row.clone()));
    let by_label = |key: &str, states: Vec<SessionState>| SessionFilter {
        label: Some((key.into(), None)),
        states,
        limit: 10,
        ..Default::default()
    };
    let found = |filter| {
        let store = store.clone();
        async move { store.sessions(&filter).await.unwrap().len() }
    };
    assert_eq!(found(by_label("team", vec![])).await, 1);
    assert_eq!(found(by_label("env", vec![SessionState::Stopped])).await, 1);
    assert_eq!(found(by_label("env", vec![SessionState::Running])).await, 0);
    let mut stolen: SessionRow = row.clone();
    stolen.session.owner = "eve".into();
    let error = store.commit(vec![Change::SaveSession { row: stolen }]).await.unwrap_err();
    assert!(error.to_string().contains("never change"), "{error}");
    store.commit(vec![Change::SaveSession { row: session("unknown") }]).await.unwrap();
    assert_eq!(store.session("unknown").await.unwrap(), None);
}

#[tokio::test]
async fn answers_are_remembered_and_the_first_stays() {
    let dir = Dir::new();
    let store = open(&dir).await;
    let begin = |resource: Option<&str>| Change::BeginIdempotent {
        scope: "ada".into(),
        key: "k".into(),
        fingerprint: "f".into(),
        resource: resource.map(Into::into),
        at: Timestamp(10),
    };
    let finish = |status: u16, body: &[u8]| Change::FinishIdempotent {
        scope: "ada".into(),
        key: "k".into(),
        fingerprint: "f".into(),
        status,
        content_type: "application/json".into(),
        body: body.into(),
        at: Timestamp(20),
    };
    store.commit(vec![begin(None)]).await.unwrap();
    store.commit(vec![begin(Some("session 7")), begin(None)]).await.unwrap();
    let pending = IdempotencyRow {
        fingerprint: "f".into(),
        resource: Some("session 7".into()),
        answer: None,
        at: Timestamp(10),
    };
    assert_eq!(store.idempotency("ada", "k").await.unwrap(), Some(pending.clone()));
    let bytes = b"\xff\x00 not text";
    store.commit(vec![finish(201, bytes), finish(500, b"{}"), begin(Some("other"))]).await.unwrap();
    let answer = Some((201, "application/json".into(), bytes.to_vec()));
    let done = IdempotencyRow { answer, at: Timestamp(20), ..pending };
    assert_eq!(store.idempotency("ada", "k").await.unwrap(), Some(done));
    assert_eq!(store.idempotency("bob", "k").await.unwrap(), None);
    store.commit(vec![Change::ForgetIdempotent { before: Timestamp(20) }]).await.unwrap();
    assert!(store.idempotency("ada", "k").await.unwrap().is_some());
    store.commit(vec![Change::ForgetIdempotent { before: Timestamp(21) }]).await.unwrap();
    assert_eq!(store.idempotency("ada", "k").await.unwrap(), None);
}

#[tokio::test]
async fn an_old_store_without_its_key_is_refused() {
    let dir = Dir::new();
    open(&dir).await.close().await;
    std::fs::remove_file(dir.path().join("journal.key")).unwrap();
    let Err(error) = Store::open(dir.path()).await else { panic!("it opened") };
    assert!(error.is_corrupt() && error.to_string().contains("journal.key is missing"), "{error}");
}
