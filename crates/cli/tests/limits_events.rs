//! Limits that a room runs into while it lives: each is told of with its name, and the session goes on.

use serde_json::json;
use workroom_testkit::types::{Layer, Policy, SessionState, UpdateSession, UsageQuery};
use workroom_testkit::{Server, TestSession, User, eventually, for_each_user};

const MIB: u64 = 1 << 20;

async fn limited(server: &Server<'_>, policy: serde_json::Value) -> TestSession {
    server.session_like(json!({ "policy": policy })).await
}

fn has_perl() -> bool {
    std::path::Path::new("/usr/bin/perl").exists()
}

/// Takes memory until it is killed, or refused.
const HOG: &str = "perl -e '$x .= \"x\" x 10000000 for 1..100'";

/// Starts children until it cannot, and says how many there were.
const FORKS: &str = "perl -e 'while ($n < 300) { my $p = fork; last unless defined $p; \
    if (!$p) { sleep 30; exit } $n++ } print $n; kill 9, -getpgrp() if 0; exit 3'";

#[test]
fn a_process_that_is_killed_for_want_of_memory_is_named() {
    for_each_user(async |user| {
        if !has_perl() {
            return;
        }
        let server = Server::of(user);
        let session = limited(&server, json!({ "memory": 64 * MIB })).await;
        let result = session.sh(HOG).await;
        assert_ne!(result.exit_code, 0, "{result:?}");
        assert_eq!(session.says("echo on").await, "on\n", "the room goes on");
        if !session.show().await.enforced.holds(Layer::Memory) {
            return without_a_group(&session).await;
        }
        let entry = session.event("limit.memory").await;
        assert_eq!(entry.body["limit"], 64 * MIB, "{entry:?}");
        assert!(entry.body["count"].as_u64().is_some_and(|count| count > 0), "{entry:?}");
        let named = entry.body["process"]["command"].as_str().unwrap_or_default();
        assert!(named.contains("perl"), "{entry:?}");
        let usage = session.client().usage(&session.id, UsageQuery::default()).await.expect("usage");
        assert!(usage.hits.memory > 0, "{usage:?}");
        assert!(usage.peak.memory.is_some_and(|peak| peak > 48 * MIB), "{usage:?}");
    });
}

/// What is not known is said.
async fn without_a_group(session: &TestSession) {
    let usage = session.client().usage(&session.id, UsageQuery::default()).await.expect("usage");
    assert!(usage.unknown.contains_key("hits.memory"), "{usage:?}");
}

#[test]
fn processes_that_are_not_made_are_told_of() {
    for_each_user(async |user| {
        if !has_perl() {
            return;
        }
        let server = Server::of(user);
        let session = limited(&server, json!({ "pids": 32 })).await;
        let made = session.sh(FORKS).await;
        let count: u64 = made.stdout.parse().expect("a count");
        assert!((20..=32).contains(&count), "{made:?}");
        let usage = session.client().usage(&session.id, UsageQuery::default()).await.expect("usage");
        if usage.unknown.contains_key("hits.pids") {
            return;
        }
        let entry = session.event("limit.pids").await;
        assert_eq!(entry.body["limit"], 32, "{entry:?}");
        let usage = session.client().usage(&session.id, UsageQuery::default()).await.expect("usage");
        assert!(usage.hits.pids > 0 && usage.peak.pids.is_some_and(|peak| peak > 16), "{usage:?}");
    });
}

#[test]
fn open_files_and_shared_memory_end_where_the_policy_says() {
    for_each_user(async |user| {
        if !has_perl() {
            return;
        }
        let server = Server::of(user);
        let session = limited(&server, json!({ "open_files": 64, "shm": 2 * MIB })).await;
        assert_eq!(session.says("ulimit -n").await, "64\n");
        let opened = "perl -e 'while ($n < 200 && open($f[$n], \"<\", \"/dev/null\")) { $n++ } print $n'";
        let count: u64 = session.says(opened).await.parse().expect("a count");
        assert!((50..64).contains(&count), "{count} files");
        let filled = session.sh("head -c 5000000 /dev/zero > /dev/shm/f; stat -c %s /dev/shm/f").await;
        assert!(filled.stderr.contains("No space left"), "{filled:?}");
        assert_eq!(filled.stdout.trim(), (2 * MIB).to_string());
    });
}

async fn change(session: &TestSession, policy: Policy) -> Vec<String> {
    session.update(UpdateSession { policy: Some(policy), ..UpdateSession::default() }).await;
    session.client().policy(&session.id).await.expect("a policy").pending
}

#[test]
fn limits_change_in_a_room_that_runs_or_wait_for_the_next() {
    for_each_user(async |user| {
        if !has_perl() {
            return;
        }
        let server = Server::of(user);
        let session = limited(&server, json!({ "pids": 24, "memory": 256 * MIB })).await;
        let by = |enforced: &workroom_testkit::types::Enforced| {
            serde_json::to_value(enforced).expect("JSON")["pids"]["by"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let is_by_group = by(&session.show().await.enforced).starts_with("cgroup");
        let started = session.show().await.counters.starts;
        let wanted =
            Policy { pids: Some(64), memory: Some(128 * MIB), shm: Some(8 * MIB), ..Policy::default() };
        let pending = change(&session, wanted).await;
        assert!(pending.contains(&"shm".to_owned()), "{pending:?}");
        assert_eq!(pending.contains(&"pids".to_owned()), !is_by_group, "{pending:?}");
        let count = async || session.sh(FORKS).await.stdout.parse::<u64>().expect("a count");
        if is_by_group {
            assert!((40..=64).contains(&count().await), "more than there were");
            assert_eq!(session.show().await.counters.starts, started, "in the same room");
            kill_all(&session).await;
            let lower = Policy { pids: Some(12), memory: Some(128 * MIB), ..Policy::default() };
            change(&session, lower).await;
            assert!(count().await <= 12);
            kill_all(&session).await;
        }
        session.stop().await;
        let wanted = Policy { pids: Some(64), shm: Some(8 * MIB), ..Policy::default() };
        change(&session, wanted).await;
        session.start().await;
        assert!((40..=64).contains(&count().await));
        let pending = session.client().policy(&session.id).await.expect("a policy").pending;
        assert_eq!(pending, Vec::<String>::new());
    });
}

/// Children of the last count sleep on.
async fn kill_all(session: &TestSession) {
    session.sh("pkill perl").await;
    eventually(async || match session.sh("pgrep -c perl").await.stdout.trim() {
        "0" => Ok(()),
        left => Err(format!("{left} are left")),
    })
    .await;
}

#[test]
fn a_room_that_was_told_of_is_not_told_of_again_by_the_next_server() {
    for_each_user(async |user: &User| {
        if !has_perl() {
            return;
        }
        let mut server = Server::of(user);
        let session = limited(&server, json!({ "pids": 16 })).await;
        session.sh(FORKS).await;
        let usage = session.client().usage(&session.id, UsageQuery::default()).await.expect("usage");
        if usage.unknown.contains_key("hits.pids") {
            return;
        }
        session.event("limit.pids").await;
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id);
        assert_eq!(session.state().await, SessionState::Running);
        session.client().usage(&session.id, UsageQuery::default()).await.expect("usage");
        session.stop().await;
        let told = session.journal().await.into_iter().filter(|entry| entry.kind == "limit.pids").count();
        assert_eq!(told, 1);
    });
}
