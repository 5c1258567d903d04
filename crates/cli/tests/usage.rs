//! What sessions use: now, at most and over time; for one, for all, and in the terminal.

use serde_json::Value;
use workroom_testkit::types::{CreateSession, ListUsage, SessionUsage, UsageQuery, UsageSort};
use workroom_testkit::{Server, TestSession, User, eventually, for_each_user};

async fn usage(session: &TestSession) -> SessionUsage {
    session.client().usage(&session.id, UsageQuery::default()).await.expect("usage")
}

#[test]
fn what_a_session_does_is_seen_and_stays_known_when_it_stops() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let quiet = usage(&session).await.now.expect("a room");
        session
            .says("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; head -c 3000000 /dev/urandom > f")
            .await;
        session.sh("head -c 70000 /dev/zero").await;
        session.says("sleep 300 > /dev/null 2>&1 &").await;
        let busy = usage(&session).await;
        let now = busy.now.expect("a room");
        assert!(now.cpu_ms > quiet.cpu_ms, "{quiet:?} {now:?}");
        assert!(now.output >= 70_000, "{now:?}");
        assert!(now.pids.is_some_and(|pids| pids >= 1) && now.memory.is_some(), "{now:?}");
        assert!(!busy.recent.is_empty() && !busy.day.is_empty(), "{busy:?}");
        assert!(busy.unknown.contains_key("network"), "{busy:?}");

        // It may have been measured a moment before.
        eventually(async || match usage(&session).await.now {
            Some(now) if now.disk >= Some(3_000_000) && now.inodes >= Some(1) => Ok(()),
            now => Err(format!("{now:?}")),
        })
        .await;
        session.stop().await;
        let stopped = usage(&session).await;
        assert_eq!(stopped.now, None);
        assert!(stopped.peak.disk >= Some(3_000_000) && stopped.peak.memory >= now.memory, "{stopped:?}");
        assert!(!stopped.recent.is_empty(), "its points stay for a while");
        let session = {
            server.stop();
            server.restart();
            TestSession::new(server.client(), session.id)
        };
        let again = usage(&session).await;
        assert_eq!(again.peak, stopped.peak, "its peaks stay for good");
        session.start().await;
        let now = usage(&session).await.now.expect("a room");
        assert!(now.cpu_ms >= busy.now.expect("a room").cpu_ms, "what was used is counted on");
    });
}

/// What is asked of a server once in a while for ever must not keep sessions alive, nor wake what sleeps.
#[test]
fn who_looks_is_no_sign_of_life() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.says("true").await;
        let before = session.show().await.last_active;
        for _ in 0..3 {
            usage(&session).await;
        }
        assert_eq!(session.show().await.last_active, before);
        session.stop().await;
        assert_eq!(usage(&session).await.now, None, "and makes no room");
    });
}

#[test]
fn sessions_are_listed_by_what_they_use_to_those_who_may_see_them() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let quiet = server.session().await;
        let large = server.session().await;
        let others = server
            .session_with(CreateSession { owner: Some("ann".into()), ..CreateSession::default() })
            .await;
        large.says("head -c 900000 /dev/zero | tr '\\0' x").await;
        let query = ListUsage { sort: Some(UsageSort::Output), limit: None };
        let list = server.client().usage_list(query).await.expect("a list");
        assert_eq!(list.live, 3);
        assert_eq!(list.sessions[0].session, large.id, "{list:?}");
        assert!(list.sessions.iter().all(|row| row.now.is_some()), "{list:?}");
        let of_ann = server.http().json(&serde_json::json!({ "scope": "user", "owner": "ann" }));
        let token =
            of_ann.post("/v1/tokens").await.expect(201)["token"].as_str().expect("a token").to_owned();
        let seen = server.client_with(&token).usage_list(ListUsage::default()).await.expect("a list");
        assert_eq!(seen.sessions.iter().map(|row| &row.session).collect::<Vec<_>>(), [&others.id]);
        quiet.stop().await;
        assert_eq!(server.client().usage_list(ListUsage::default()).await.expect("a list").live, 2);
        for (query, status) in [("?limit=0", 400), ("?sort=size", 400), ("?what=1", 400), ("?limit=1", 200)] {
            let answer = server.http().get(&format!("/v1/usage{query}")).await;
            assert_eq!(answer.status, status, "{query}");
        }
    });
}

fn top(server: &Server<'_>, arguments: &[&str]) -> String {
    let output = server.cli(&[&["top"], arguments].concat()).output().expect("workroom top");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn top_shows_a_table_or_json() {
    for_each_user(async |user: &User| {
        let server = Server::of(user);
        assert_eq!(top(&server, &["--once"]), "no session has a room\n");
        let session = server.session().await;
        session.says("true").await;
        let page = top(&server, &["--sort", "memory"]);
        assert!(page.contains("SESSION") && page.contains(&session.id), "{page}");
        let document: Value = serde_json::from_str(&top(&server, &["--once", "--json"])).expect("JSON");
        assert_eq!(document["sessions"][0]["session"], session.id.as_str());
    });
}

#[test]
fn sums_over_all_rooms_are_metrics() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.says("sleep 300 > /dev/null 2>&1 &").await;
        eventually(async || {
            usage(&session).await;
            let text = server.http().get("/metrics").await.text();
            let value = |name: &str| {
                let line = text.lines().find(|line| line.starts_with(&format!("workroom_{name} ")));
                line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or(-1.0)
            };
            let good = value("rooms_pids") >= 1.0 && value("limit_disk_full_total") == 0.0;
            if good { Ok(()) } else { Err(text) }
        })
        .await;
        session.delete().await;
        server.expect_no_leaks().await;
    });
}
