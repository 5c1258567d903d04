//! Snapshots and resets: a session's files go back to any moment that was kept, and to no other.

use serde_json::{Value, json};
use workroom_testkit::types::{ResetSession, SessionState, Snapshot, TakeSnapshot};
use workroom_testkit::{Server, TestSession, User, eventually, for_each_user, run};

async fn snapshot(session: &TestSession, name: &str) -> Snapshot {
    let request = TakeSnapshot { name: Some(name.into()) };
    session.client().take_snapshot(&session.id, &request).await.expect("a snapshot")
}

async fn reset(session: &TestSession, to: &str) {
    let request = ResetSession { to: Some(to.into()) };
    session.client().reset(&session.id, &request).await.expect("reset");
}

/// Everything below the workspace and what it holds.
async fn tree(session: &TestSession) -> String {
    session.says("find . -mindepth 1 -printf '%P %y %m %l ' -a \\( -type f -exec md5sum {} + -o -printf '\\n' \\) | sort").await
}

#[test]
fn files_go_back_to_what_they_were() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let pristine = tree(&session).await;
        session
            .says("mkdir -p a/b && echo one > a/b/f && ln -s f a/b/l && echo x > gone && chmod 600 gone")
            .await;
        let first = (snapshot(&session, "first").await, tree(&session).await);
        session
            .says("rm gone && echo two > a/b/f && mkdir a/c && echo n > a/c/new && rm a/b/l && mkdir a/b/l")
            .await;
        let second = (snapshot(&session, "second").await, tree(&session).await);
        session.says("rm -r a && echo a file > a").await;
        let third = tree(&session).await;
        assert_eq!((first.0.parent, second.0.parent.as_deref()), (None, Some("first")));
        // Nothing ran: nothing had to stand still.
        assert_eq!((first.0.pause_ms, second.0.pause_ms), (0.0, 0.0));

        for (to, expected) in [
            ("first", &first.1),
            ("second", &second.1),
            ("baseline", &pristine),
            ("second", &second.1),
            ("last", &second.1),
            ("first", &first.1),
        ] {
            reset(&session, to).await;
            assert_eq!(&tree(&session).await, expected, "after a reset to {to}");
            session.says("echo spoilt > a-new-file").await;
        }
        assert_ne!(third, second.1);
        assert_eq!(session.show().await.reset_count, 6);

        let listed = session.client().snapshots(&session.id).await.expect("a list");
        let names: Vec<&str> = listed.snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_session_without_a_room_has_a_past_too() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.says("echo one > f").await;
        session.stop().await;
        snapshot(&session, "s").await;
        assert_eq!(session.state().await, SessionState::Stopped);
        session.says("echo two > f").await;
        session.stop().await;
        reset(&session, "s").await;
        assert_eq!(session.state().await, SessionState::Stopped);
        assert_eq!(session.says("cat f").await, "one\n");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn what_runs_goes_on_through_a_snapshot_and_ends_with_a_reset() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.says("echo kept > f; (while :; do date +%N > ticking; sleep 0.01; done) >/dev/null 2>&1 & echo $! > pid").await;
        let taken = snapshot(&session, "s").await;
        assert!(taken.pause_ms > 0.0, "{taken:?}");
        session.says("kill -0 $(cat pid) && echo changed > f").await;
        let before = session.says("cat ticking").await;
        eventually(async || match session.says("cat ticking").await {
            now if now != before && !now.is_empty() => Ok(()),
            now => Err(format!("it stands still at {now}")),
        })
        .await;
        reset(&session, "s").await;
        assert_eq!(session.says("cat f; ps -e -o comm= | grep -c sleep || true").await, "kept\n0\n");
        assert!(session.says("stat -c %s ticking").await.trim().parse::<u64>().is_ok());
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn the_past_outlives_the_server() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let id = server.session().await.id;
        let again = |server: &Server<'_>| TestSession::new(server.client(), id.clone());
        let session = again(&server);
        session.says("echo one > f").await;
        snapshot(&session, "s").await;
        session.says("echo two > f").await;
        server.kill();
        server.restart();
        let session = again(&server);
        // The room that was replaced is not the one that is taken up.
        assert_eq!(session.says("cat f").await, "two\n");
        reset(&session, "s").await;
        server.kill();
        server.restart();
        let session = again(&server);
        assert_eq!(session.says("cat f").await, "one\n");
        assert_eq!(session.show().await.reset_count, 1);
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn space_comes_back_when_a_snapshot_is_deleted() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let layers = || std::fs::read_dir(server.state().join("layers")).map_or(0, Iterator::count);
        session.says("head -c 3000000 /dev/zero > big").await;
        snapshot(&session, "big").await;
        session.says("rm big").await;
        assert_eq!(layers(), 2);
        eventually(async || {
            let list = session.client().snapshots(&session.id).await.expect("a list");
            match list.snapshots[0].size {
                Some(3_000_000..) => Ok(()),
                size => Err(format!("{size:?}")),
            }
        })
        .await;
        reset(&session, "baseline").await;
        // It is not the session's any more, and still the snapshot's.
        assert_eq!(session.says("ls").await, "");
        session.client().delete_snapshot(&session.id, "big").await.expect("deleted");
        session.client().delete_snapshot(&session.id, "big").await.expect("deleted again");
        eventually(async || if layers() == 1 { Ok(()) } else { Err(format!("{} layers", layers())) }).await;
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        session.says("echo kept > f").await;
        let (snapshots, resets) = (session.path("/snapshots"), session.path("/reset"));
        for name in ["", "baseline", "now", "last", "-x", "a/b", "..", &"x".repeat(65), "a b", "ä"] {
            let code = server.http().json(&json!({"name": name})).post(&snapshots).await.problem(400);
            assert_eq!(code, "invalid_argument", "{name}");
        }
        server.http().json(&json!({"unknown": 1})).post(&snapshots).await.problem(400);
        snapshot(&session, "s").await;
        let twice = server.http().json(&json!({"name": "s"})).post(&snapshots).await.problem(409);
        assert_eq!(twice, "already_exists");
        assert_eq!(server.http().json(&json!({"to": "nope"})).post(&resets).await.problem(404), "not_found");
        assert_eq!(
            server.http().delete(&session.path("/snapshots/now")).await.problem(400),
            "invalid_argument"
        );
        assert_eq!(session.says("cat f").await, "kept\n");
        // Another's session is none.
        let token = server.http().json(&json!({"scope": "user", "owner": "eve"})).post("/v1/tokens").await;
        let eve = token.expect(201)["token"].as_str().expect("a token").to_owned();
        for path in [&snapshots, &resets, &session.path("/fork"), &session.path("/baseline")] {
            assert_eq!(server.http().token(&eve).post(path).await.problem(404), "not_found", "{path}");
        }
        for path in ["/snapshots", "/diff", "/digest", "/lineage"] {
            assert_eq!(server.http().token(&eve).get(&session.path(path)).await.problem(404), "not_found");
        }
        assert_eq!(server.http().token(&eve).post("/v1/gc").await.problem(403), "forbidden");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn under_one_key_there_is_one_effect() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let keyed = async |path: &str, body: Value| {
            server.http().header("Idempotency-Key", "k-1").json(&body).post(&session.path(path)).await
        };
        session.says("echo one > f").await;
        let first = keyed("/snapshots", json!({})).await.expect(201);
        assert_eq!(keyed("/snapshots", json!({})).await.expect(201), first);
        assert_eq!(session.client().snapshots(&session.id).await.expect("a list").snapshots.len(), 1);
        let again = async || {
            let http = server.http().header("Idempotency-Key", "k-2").json(&json!({}));
            http.post(&session.path("/reset")).await.expect(200)
        };
        assert_eq!(again().await, again().await);
        assert_eq!(session.show().await.reset_count, 1);
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_past_of_many_moments_stays_whole_and_its_stack_shallow() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.says("mkdir seeded && echo seed > seeded/f && echo x > seeded/gone").await;
        session.client().set_baseline(&session.id).await.expect("a baseline");
        session.says("rm seeded/gone").await;
        const MOMENTS: usize = 70;
        for number in 0..MOMENTS {
            session
                .says(&format!(
                    "echo {number} > count; mkdir d{number}; echo {number} > d{number}/f; rm -rf d{}",
                    number as i64 - 3
                ))
                .await;
            snapshot(&session, &format!("s{number}")).await;
        }
        let listed = session.client().snapshots(&session.id).await.expect("a list").snapshots;
        let deepest = listed.iter().map(|snapshot| snapshot.layers).max();
        assert!(deepest < Some(60), "{deepest:?}");
        for number in [0, 1, 20, 40, 47, 48, 49, 50, MOMENTS - 1] {
            reset(&session, &format!("s{number}")).await;
            let there: Vec<String> = (number.saturating_sub(2)..=number).map(|n| format!("d{n}")).collect();
            let mut expected = there.clone();
            expected.extend(["count".into(), "seeded".into()]);
            expected.sort();
            let said = session.says("ls | LC_ALL=C sort; cat count seeded/f; ls seeded").await;
            assert_eq!(said, format!("{}\n{number}\nseed\nf\n", expected.join("\n")), "s{number}");
        }
        session.delete().await;
        server.expect_no_leaks().await;
    });
}
