//! A process that is killed at any moment has lost nothing that it acknowledged, and doubled nothing.

mod support;

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Dir, entry, insert, open, session};
use workroom_store::{Change, SessionFilter, Store};
use workroom_types::Timestamp;

const CHILD: &str = "WORKROOM_STORE_CRASH_CHILD";
const CALLERS: i64 = 4;

/// The child: commits from several tasks, printing each number once it was acknowledged, until it is killed.
async fn commit_until_killed(dir: PathBuf, round: i64) {
    let store = Store::open(&dir).await.expect("the store opens");
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let store = store.clone();
        callers.spawn(async move {
            for step in 0.. {
                let number = (round * CALLERS + caller) * 1_000_000 + step + 1;
                let id = format!("s{number}");
                store.note(entry("shared", -number)).await;
                store
                    .commit(vec![insert(session(&id)), entry(&id, number), entry("shared", number)])
                    .await
                    .expect("a commit");
                println!("made {number}");
                if step % 3 == 0 {
                    let at = Timestamp(number);
                    store
                        .commit(vec![Change::DeleteSession { id, at }, entry("shared", number + 500_000)])
                        .await
                        .expect("a commit");
                    println!("gone {number}");
                }
            }
        });
    }
    callers.join_all().await;
}

/// A small generator with a seed of its own: the same moments in every run.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_lose_nothing_and_double_nothing() {
    if let Ok(arguments) = std::env::var(CHILD) {
        let (round, dir) = arguments.split_once(' ').expect("round and directory");
        return commit_until_killed(dir.into(), round.parse().expect("a number")).await;
    }
    let dir = Dir::new();
    let store = open(&dir).await;
    store.commit(vec![insert(session("shared"))]).await.unwrap();
    store.close().await;

    let mut seed = 0x5eed_0000_0000_0003;
    let (mut made, mut gone) = (HashSet::new(), HashSet::new());
    for round in 0..20 {
        let mut child = Command::new(std::env::current_exe().expect("this test's own binary"))
            .args(["--exact", "twenty_kills_lose_nothing_and_double_nothing", "--nocapture"])
            .env(CHILD, format!("{round} {}", dir.path().display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("a child");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        // From the first word on, so that the moment falls into the work and not into its beginning.
        let mut words = Vec::new();
        for line in lines.by_ref() {
            words.push(line.expect("a line"));
            if words.last().is_some_and(|line| line.contains("made")) {
                break;
            }
        }
        std::thread::sleep(Duration::from_micros(next(&mut seed) % 60_000));
        child.kill().expect("a kill");
        child.wait().expect("its end");
        words.extend(lines.map(|line| line.expect("a line")));
        for word in words {
            if let Some((_, number)) = word.split_once("made ") {
                assert!(made.insert(number.parse::<i64>().expect("a whole line")));
            } else if let Some((_, number)) = word.split_once("gone ") {
                assert!(gone.insert(number.parse::<i64>().expect("a whole line")));
            }
        }

        let store = open(&dir).await;
        let verification = store.verify(None).await.expect("a verification");
        assert_eq!(verification.faults, [], "round {round}");
        store.close().await;
    }

    let store = open(&dir).await;
    let mut shared = HashSet::new();
    for entry in store.journal("shared", 0, u32::MAX).await.unwrap() {
        assert!(shared.insert(entry.body["number"].as_i64().expect("a number")), "doubled: {entry:?}");
    }
    for number in &made {
        assert!(shared.contains(number), "lost: {number}");
        assert!(shared.contains(&-number), "a note before an acknowledged commit is lost: {number}");
        let journal = store.journal(&format!("s{number}"), 0, 10).await.unwrap();
        assert_eq!(journal.len(), 1, "all of a commit or nothing: {number}");
    }
    for number in &gone {
        assert!(shared.contains(&(number + 500_000)), "lost: the end of {number}");
    }
    let filter = SessionFilter { limit: u32::MAX, ..Default::default() };
    let listed: HashSet<String> =
        store.sessions(&filter).await.unwrap().into_iter().map(|row| row.session.id).collect();
    assert!(gone.iter().all(|number| !listed.contains(&format!("s{number}"))), "a deleted one is back");
    println!("{} made, {} deleted, over 20 kills", made.len(), gone.len());
    assert!(made.len() > 20);
}
