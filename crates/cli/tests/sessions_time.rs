//! When a session's time is over, what counts as work, and what happens then.

use serde_json::{Value, json};
use workroom_testkit::types::SessionState;
use workroom_testkit::{Server, TestSession, User, eventually, for_each_user, run};

async fn reason(session: &TestSession) -> String {
    session.show().await.reason.unwrap_or_default()
}

#[test]
fn a_session_that_has_lived_its_time_is_stopped_paused_or_deleted_as_it_says() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let with = |fields: Value| server.session_like(fields);
        let stops = with(json!({"ttl": 1})).await;
        let pauses = with(json!({"ttl": 1, "on_expiry": "pause"})).await;
        let deletes = with(json!({"ttl": 1, "on_expiry": "delete"})).await;
        let stays = server.session().await;
        // Work does not make it longer.
        let busy = with(json!({"ttl": 1})).await;
        busy.says("echo kept > file; setsid -f sh -c 'while :; do :; done'").await;

        let stopped = stops.event("session.stopped").await;
        assert_eq!(stopped.actor, "server");
        assert!(
            stopped.body["reason"].as_str().is_some_and(|why| why.contains("time to live")),
            "{stopped:?}"
        );
        assert!(reason(&stops).await.contains("time to live"));
        pauses.event("session.paused").await;
        assert_eq!(pauses.state().await, SessionState::Paused);
        let gone = async || match server.http().get(&deletes.path("")).await.status {
            404 => Ok(()),
            status => Err(format!("{status}")),
        };
        eventually(gone).await;
        busy.event("session.stopped").await;
        assert_eq!(stays.state().await, SessionState::Running);
        stays.says("true").await;
        for session in [stops, pauses, stays, busy] {
            session.delete().await;
        }
        server.expect_no_leaks().await;
    });
}

#[test]
fn work_keeps_a_session_awake_and_a_quiet_server_does_not() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let idle = server.session_like(json!({"idle_timeout": 1})).await;
        let busy = server.session_like(json!({"idle_timeout": 1})).await;
        let quiet = server.session_like(json!({"idle_timeout": 1})).await;
        let kept = server.session_like(json!({"idle_timeout": 1, "keep_alive": true})).await;
        let left = server.session_like(json!({"idle_timeout": 1, "keep_alive": true})).await;
        busy.says("setsid -f sh -c 'echo $$ > pid; while :; do :; done'").await;
        for session in [&quiet, &kept] {
            session.says("setsid -f sleep 1000").await;
        }
        for session in [&idle, &quiet, &left] {
            let stopped = session.event("session.stopped").await;
            assert!(stopped.body["reason"].as_str().is_some_and(|why| why.contains("idle")), "{stopped:?}");
        }
        // They were asked for last before the others, and have not been since.
        assert_eq!(busy.state().await, SessionState::Running, "a build that runs is work");
        assert_eq!(kept.state().await, SessionState::Running, "this one says that its server is");
        busy.says("kill $(cat pid)").await;
        busy.event("session.stopped").await;
    });
}

#[test]
fn a_command_under_way_is_activity() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session_like(json!({"idle_timeout": 1})).await;
        assert_eq!(session.says("sleep 2.2; echo done").await, "done\n");
        session.event("session.stopped").await;
    });
}

#[test]
fn an_idle_session_can_be_paused_or_deleted_and_a_change_counts_at_once() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let pauses = server.session_like(json!({"idle_timeout": 1, "on_expiry": "pause"})).await;
        let deletes = server.session_like(json!({"idle_timeout": 1, "on_expiry": "delete"})).await;
        let changed = server.session_like(json!({"idle_timeout": 1000})).await;
        let freed = server.session_like(json!({"idle_timeout": 1})).await;
        server.http().json(&json!({"idle_timeout": 1})).patch(&changed.path("")).await.expect(200);
        server.http().json(&json!({"idle_timeout": 0})).patch(&freed.path("")).await.expect(200);
        pauses.event("session.paused").await;
        changed.event("session.stopped").await;
        eventually(async || match server.http().get(&deletes.path("")).await.status {
            404 => Ok(()),
            status => Err(format!("{status}")),
        })
        .await;
        assert_eq!(freed.state().await, SessionState::Running);
        // What was paused goes on when it is asked to.
        pauses.resume().await;
        pauses.says("true").await;
    });
}

#[test]
fn time_goes_on_while_no_server_runs() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session_like(json!({"ttl": 1})).await;
        let deleted = server.session_like(json!({"ttl": 1, "on_expiry": "delete"})).await;
        session.says("echo kept > file").await;
        server.kill();
        std::thread::sleep(std::time::Duration::from_millis(1100));
        server.restart();
        let session = TestSession::new(server.client(), session.id);
        session.event("session.stopped").await;
        eventually(async || match server.http().get(&deleted.path("")).await.status {
            404 => Ok(()),
            status => Err(format!("{status}")),
        })
        .await;
        session.delete().await;
        server.expect_no_leaks().await;
    });
}
