//! Pools of slots: who gets one, for how long, what becomes of it, and what outlives a server.

use serde_json::{Value, json};
use workroom_testkit::types::{ExtendLease, ListSessions, ProblemCode, SlotState};
use workroom_testkit::{
    Server, TestPool, TestSession, User, as_ordinary_user, eventually, for_each_user, run, within,
};

async fn pool(server: &Server<'_>, spec: Value) -> TestPool {
    TestPool::set(server.client(), "p", spec).await
}

/// Nobody finds a session any more.
async fn is_gone(server: &Server<'_>, session: &str) {
    eventually(async || {
        let answer = server.http().get(&format!("/v1/sessions/{session}")).await;
        if answer.status == 404 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
}

#[test]
fn a_trajectory_has_one_slot_and_the_next_finds_nothing_of_it() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let pool = pool(&server, json!({"min": 1, "max": 2})).await;
        let odd = format!("run/7 ☃ \"x\"\n{}", "é".repeat(100));
        let first = pool.acquire(&odd).await;
        assert_eq!(first.session.says("echo mine > note; pwd").await, "/workspace\n");
        let again = pool.acquire(&odd).await;
        assert_eq!((again.lease.slot, &again.lease.session), (first.lease.slot, &first.lease.session));
        let other = pool.acquire("other").await;
        assert_ne!(other.lease.slot, first.lease.slot);
        assert_eq!(other.session.says("ls -A").await, "");
        let refused = pool.refuses("third", 20).await;
        assert_eq!((refused.status, refused.limit.as_deref()), (429, Some("pool")));

        assert!(pool.release(&odd).await);
        assert!(!pool.release(&odd).await, "it is released already");
        is_gone(&server, &first.lease.session).await;
        let third = pool.acquire("third").await;
        assert_eq!(third.lease.slot, first.lease.slot, "there are two");
        assert_ne!(third.lease.session, first.lease.session);
        assert_eq!(third.session.says("ls -A").await, "");

        let too_long = json!({"trajectory": "x".repeat(257)});
        assert_eq!(
            server.http().json(&too_long).post("/v1/pools/p/acquire").await.problem(400),
            "invalid_argument"
        );
        let nowhere = server.http().json(&json!({"trajectory": "x"})).post("/v1/pools/q/acquire").await;
        assert_eq!(nowhere.problem(404), "not_found");

        pool.delete().await;
        pool.delete().await;
        assert_eq!(server.http().get("/v1/pools/p").await.problem(404), "not_found");
        server.expect_no_leaks().await;
    });
}

#[test]
fn those_who_wait_are_served_in_the_order_in_which_they_came() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let pool = pool(&server, json!({"max": 1})).await;
        pool.acquire("holder").await;
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..4 {
            let mine = TestPool::of(server.client(), "p");
            waiting.spawn(async move {
                mine.acquire(&format!("t{number}")).await;
                number
            });
            pool.until(|pool| pool.summary.waiting == number + 1).await;
        }
        // One that waits and goes away is not served.
        let gone = tokio::spawn({
            let mine = TestPool::of(server.client(), "p");
            async move { mine.acquire("gone").await.lease }
        });
        pool.until(|pool| pool.summary.waiting == 5).await;
        gone.abort();
        pool.until(|pool| pool.summary.waiting <= 5).await;
        pool.release("holder").await;
        for expected in 0..4 {
            let served = within("somebody", waiting.join_next()).await.expect("one").expect("served");
            assert_eq!(served, expected);
            pool.release(&format!("t{served}")).await;
        }
        pool.until(|pool| pool.summary.states.available == 1 && pool.summary.waiting == 0).await;
        assert_eq!(pool.show().await.summary.metrics.acquired, 5);
    });
}

#[test]
fn a_lease_ends_by_itself_unless_it_is_extended() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let pool = pool(&server, json!({"max": 2})).await;
        let short = pool.acquire_for("short", 300).await;
        let long = pool.acquire_for("long", 300).await;
        let longer = ExtendLease { trajectory: "long".into(), lease_ms: 600_000 };
        let extended = within("more time", server.client().extend("p", &longer)).await.expect("extended");
        assert!(extended.lease_end > long.lease.lease_end);
        short.session.says("echo left > behind").await;
        is_gone(&server, &short.lease.session).await;
        assert_eq!(long.session.says("echo still").await, "still\n");
        pool.until(|pool| pool.summary.metrics.expired == 1 && pool.summary.states.available == 1).await;
        let late = ExtendLease { trajectory: "short".into(), lease_ms: 600_000 };
        let refused = within("an answer", server.client().extend("p", &late)).await.expect_err("it is over");
        assert_eq!(refused.problem().expect("a problem").status, 404);
        assert_eq!(pool.acquire("short").await.session.says("ls -A").await, "");
    });
}

#[test]
fn a_slot_is_reset_for_whoever_has_it_and_stays_theirs() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let pool = pool(&server, json!({"max": 1})).await;
        let before = pool.acquire("t").await;
        before.session.says("echo x > x").await;
        let after = within("a reset", server.client().reset_slot("p", "t")).await.expect("reset");
        assert_eq!((after.slot, after.lease_end), (before.lease.slot, before.lease.lease_end));
        let session = TestSession::new(server.client(), after.session);
        assert_eq!(session.says("ls -A").await, "");
        is_gone(&server, &before.lease.session).await;
        let none = within("an answer", server.client().reset_slot("p", "nobody")).await;
        assert_eq!(none.expect_err("nobody has one").problem().expect("a problem").status, 404);
    });
}

#[test]
fn a_command_is_seen_from_outside() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let pool = pool(&server, json!({"min": 2, "max": 2})).await;
        pool.until(|pool| pool.summary.states.available == 2).await;
        let held = pool.acquire("t").await;
        let state = async || pool.slots().await[held.lease.slot as usize].state;
        assert_eq!(state().await, SlotState::Acquired);
        let command = tokio::spawn({
            let session = held.session.clone();
            async move { session.says("while [ ! -e go ]; do sleep 0.01; done; echo went").await }
        });
        pool.until(|pool| pool.summary.states.executing == 1).await;
        assert_eq!(state().await, SlotState::Executing);
        let metrics = server.http().get("/metrics").await.text();
        for (state, count) in [("available", 1), ("acquired", 0), ("executing", 1)] {
            let line = format!(r#"workroom_pool_slots{{owner="admin",pool="p",state="{state}"}} {count}"#);
            assert!(metrics.contains(&line), "{line} in {metrics}");
        }
        held.session.says("touch go").await;
        assert_eq!(within("its end", command).await.expect("it ran"), "went\n");
        pool.until(|pool| pool.summary.states.acquired == 1 && pool.summary.states.executing == 0).await;
        let metrics = server.http().get("/metrics").await.text();
        for line in [
            r#"workroom_pool_slots{owner="admin",pool="p",state="acquired"} 1"#,
            r#"workroom_pool_utilisation{owner="admin",pool="p"} 0.5"#,
            r#"workroom_pool_wait_seconds_count{owner="admin",pool="p"} 1"#,
            r#"workroom_pool_failures_total{owner="admin",pool="p"} 0"#,
        ] {
            assert!(metrics.contains(line), "{line} in {metrics}");
        }
    });
}

#[test]
fn a_pool_grows_when_it_is_wanted_and_shrinks_when_it_is_not() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let pool = pool(&server, json!({"min": 1, "max": 4, "idle": 1})).await;
        pool.until(|pool| pool.slots.len() == 1).await;
        for number in 0..4 {
            pool.acquire(&number.to_string()).await;
        }
        assert_eq!(pool.slots().await.len(), 4);
        for number in 0..4 {
            pool.release(&number.to_string()).await;
        }
        pool.until(|pool| pool.slots.len() == 1 && pool.summary.states.available == 1).await;
        // Fewer, at once; and whoever has one keeps it.
        for number in 0..3 {
            pool.acquire(&number.to_string()).await;
        }
        pool.change(json!({"max": 1, "idle": 600})).await;
        assert_eq!(pool.states().await.acquired, 3);
        pool.release("1").await;
        pool.release("2").await;
        pool.until(|pool| pool.slots.len() == 1).await;
        assert_eq!(pool.refuses("another", 20).await.status, 429);
    });
}

#[test]
fn every_trajectory_finds_the_seed_as_it_was() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let source = server.session().await;
        source
            .says("mkdir -p src/deep; echo one > src/deep/file; chmod 500 src/deep; ln -s deep src/link")
            .await;
        server.http().json(&json!({"name": "ready"})).post(&source.path("/snapshots")).await.expect(201);
        source.says("chmod 700 src/deep; echo two > src/deep/file").await;
        let seed = json!({"session": source.id, "snapshot": "ready"});
        let pool = pool(&server, json!({"max": 1, "seed": seed, "reset": {"check": "digest"}})).await;
        source.delete().await;
        for round in 0..3 {
            let lease = pool.acquire(&format!("t{round}")).await;
            assert_eq!(lease.session.says("cat src/link/file; ls -A").await, "one\nsrc\n");
            let digest = server.http().get(&lease.session.path("/digest")).await.expect(200);
            assert_eq!(digest["pristine"], true, "{digest}");
            lease.session.says("chmod -R u+w src; rm -r src; echo x > y").await;
            pool.release(&format!("t{round}")).await;
        }
        // Set again as it is, it is the same; set otherwise, it is another.
        pool.change(json!({"max": 1, "seed": seed, "reset": {"check": "digest"}})).await;
        assert_eq!(pool.acquire("a").await.session.says("ls -A").await, "src\n");
        pool.change(json!({"max": 1})).await;
        pool.release("a").await;
        assert_eq!(pool.acquire("b").await.session.says("ls -A").await, "");
        pool.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn leases_slots_and_pools_outlive_a_server_that_is_killed() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let before = pool(&server, json!({"min": 3, "max": 4})).await;
        before.until(|pool| pool.summary.states.available == 3).await;
        let kept = before.acquire("kept").await;
        kept.session.says("echo here > file; sleep 1000 > /dev/null 2>&1 &").await;
        let late = before.acquire_for("late", 200).await;
        late.session.says("echo late > file").await;
        let there: Vec<_> = before.slots().await;
        server.kill();
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        server.restart();

        let after = TestPool::of(server.client(), "p");
        let again = after.acquire("kept").await;
        assert_eq!((again.lease.slot, &again.lease.session), (kept.lease.slot, &kept.lease.session));
        assert_eq!(again.session.says("cat file; pgrep -c sleep || true").await, "here\n1\n");
        is_gone(&server, &late.lease.session).await;
        after.until(|pool| pool.summary.states.available == 2).await;
        let third = after.acquire("third").await;
        assert_eq!(third.session.says("ls -A").await, "");
        // What nobody had is still there, and was not made again.
        let untouched = there.iter().find(|slot| slot.state == SlotState::Available).expect("one");
        let now = after.slots().await;
        assert_eq!(now[untouched.slot as usize].session, untouched.session);
        after.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn what_is_not_right_is_replaced_and_never_handed_out() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let pool = pool(&server, json!({"min": 2, "max": 2, "reset": {"spares": 0}})).await;
        pool.until(|pool| pool.summary.states.available == 2).await;
        // A room ends by itself.
        let lost = pool.slots().await[0].session.clone().expect("a session");
        let (_, guest) = room_of(&server, &lost);
        rustix::process::pidfd_send_signal(&guest, rustix::process::Signal::KILL).expect("killed");
        eventually(async || {
            let answer = server.http().get(&format!("/v1/sessions/{lost}")).await;
            let is_over = answer.status == 404 || answer.json()["state"] == "stopped";
            if is_over { Ok(()) } else { Err(answer.text()) }
        })
        .await;
        let given = pool.acquire("t").await;
        assert_ne!(given.lease.session, lost);
        is_gone(&server, &lost).await;
        // Whoever has a session may delete it, and has no slot then.
        given.session.delete().await;
        assert_eq!(pool.acquire("t").await.session.says("echo fine").await, "fine\n");
        // Something is written where nobody should have been.
        pool.release("t").await;
        pool.until(|pool| pool.summary.states.available == 2).await;
        let spoilt = pool.slots().await[0].session.clone().expect("a session");
        std::fs::write(server.state().join("layers").join(&spoilt).join("fs/trace"), "x").expect("written");
        let next = pool.acquire("u").await;
        assert_ne!(next.lease.session, spoilt);
        assert_eq!(next.session.says("ls /trace 2>/dev/null || echo none").await, "none\n");
        let failures = pool.show().await.summary.metrics.failures;
        assert!(failures >= 3, "{failures}");
    });
}

fn room_of(server: &Server<'_>, session: &str) -> (std::path::PathBuf, std::os::fd::OwnedFd) {
    let rooms = std::fs::read_dir(server.state().join("rooms")).expect("rooms").flatten();
    let mut of_session =
        rooms.map(|room| room.path()).filter(|path| path.to_string_lossy().contains(session));
    let path = of_session.next().expect("a room");
    let (_, guest) = workroom_room::call_guest(&path).expect("its guest");
    (path, guest)
}

#[test]
fn a_pool_whose_rooms_cannot_be_made_says_why() {
    as_ordinary_user(async |user| {
        let server = Server::of(user);
        // Without privileges the disk of a session is not limited.
        let pool = pool(&server, json!({"min": 1, "max": 2, "policy": {"require": ["disk"]}})).await;
        pool.until(|pool| pool.summary.states.error == 1).await;
        let slot = &pool.slots().await[0];
        assert!(slot.reason.as_deref().is_some_and(|reason| reason.contains("disk")), "{slot:?}");
        let refused = pool.refuses("t", 50).await;
        assert_eq!((refused.status, refused.code), (422, ProblemCode::LayerMissing), "{refused}");
        pool.change(json!({"min": 1, "max": 2})).await;
        assert_eq!(pool.acquire("t").await.session.says("echo now").await, "now\n");
    });
}

#[test]
fn a_seed_that_is_not_as_it_was_is_handed_to_nobody() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let source = server.session().await;
        source.says("echo one > seed").await;
        let spec = json!({
            "min": 1, "max": 1, "seed": {"session": source.id}, "reset": {"check": "digest", "spares": 0},
        });
        let pool = pool(&server, spec).await;
        assert_eq!(pool.acquire("t").await.session.says("cat seed").await, "one\n");
        // Rooms cannot write to frozen layers; somebody on the host can.
        let layers = std::fs::read_dir(server.state().join("layers")).expect("layers").flatten();
        let seeds: Vec<_> =
            layers.map(|layer| layer.path().join("fs/workspace/seed")).filter(|seed| seed.exists()).collect();
        assert_eq!(seeds.len(), 1, "{seeds:?}");
        std::fs::write(&seeds[0], "two\n").expect("written");
        pool.release("t").await;
        pool.until(|pool| pool.summary.states.error == 1).await;
        let slot = &pool.slots().await[0];
        assert!(slot.reason.as_deref().is_some_and(|reason| reason.contains("digest")), "{slot:?}");
        assert_eq!(pool.refuses("u", 50).await.status, 500);
        std::fs::write(&seeds[0], "one\n").expect("written");
        assert_eq!(pool.acquire("u").await.session.says("cat seed").await, "one\n");
    });
}

#[test]
fn a_slot_is_its_owners_and_nobodys_while_nobody_has_it() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let token = async |fields: Value| {
            let made = server.http().json(&fields).post("/v1/tokens").await.expect(201);
            made["token"].as_str().expect("told once").to_owned()
        };
        let (ada, bob) = (
            token(json!({"scope": "user", "owner": "ada"})).await,
            token(json!({"scope": "user", "owner": "bob"})).await,
        );
        let mine = TestPool::set(server.client_with(&ada), "p", json!({"min": 1, "max": 1})).await;
        mine.until(|pool| pool.summary.states.available == 1).await;

        // Before anybody has it: its owner sees it and can do nothing with it.
        let session = mine.slots().await[0].session.clone().expect("a session");
        let path = |rest: &str| format!("/v1/sessions/{session}{rest}");
        let as_ada = || server.http().token(&ada);
        as_ada().get(&path("")).await.expect(200);
        let exec = json!({"command": "true"});
        assert_eq!(as_ada().json(&exec).post(&path("/exec")).await.problem(409), "wrong_state");
        assert_eq!(as_ada().body("x").put(&path("/files/x")).await.problem(409), "wrong_state");
        assert_eq!(as_ada().body("x").put(&path("/private/x")).await.problem(409), "wrong_state");
        let event = json!({"kind": "x", "body": {}});
        assert_eq!(as_ada().json(&event).post(&path("/events")).await.problem(409), "wrong_state");
        assert_eq!(as_ada().json(&json!({"name": "x"})).patch(&path("")).await.problem(409), "wrong_state");
        assert_eq!(as_ada().delete(&path("")).await.problem(409), "wrong_state");
        let port = json!({"port": 80});
        assert_eq!(as_ada().json(&port).post(&path("/ports")).await.problem(409), "wrong_state");

        // Others know nothing of it.
        let as_bob = || server.http().token(&bob);
        assert_eq!(as_bob().get("/v1/pools/p").await.problem(404), "not_found");
        assert_eq!(as_bob().get("/v1/pools/p?owner=ada").await.problem(403), "forbidden");
        assert_eq!(as_bob().get("/v1/pools").await.expect(200)["pools"], json!([]));
        let wish = json!({"trajectory": "t"});
        assert_eq!(as_bob().json(&wish).post("/v1/pools/p/acquire").await.problem(404), "not_found");
        let lease = mine.acquire("t").await.lease;
        assert_eq!(as_bob().json(&exec).post(&path("/exec")).await.problem(404), "not_found");
        as_ada().json(&exec).post(&path("/exec")).await.expect(200);
        assert_eq!(server.http().get("/v1/pools/p?owner=ada").await.expect(200)["states"]["acquired"], 1);
        let single = token(json!({"scope": "session", "session": lease.session})).await;
        server.http().token(&single).json(&exec).post(&path("/exec")).await.expect(200);
        assert_eq!(server.http().token(&single).get("/v1/pools/p").await.problem(403), "forbidden");

        // Lists of sessions are of those that somebody made, unless slots are asked for.
        let listed = async |filter: ListSessions| {
            let page = within("a list", server.client_with(&ada).list(&filter)).await.expect("a list");
            page.sessions.into_iter().map(|session| session.id).collect::<Vec<_>>()
        };
        assert_eq!(listed(ListSessions::default()).await, Vec::<String>::new());
        let of_pool = listed(ListSessions { pool: Some("p".into()), ..ListSessions::default() }).await;
        assert!(of_pool.contains(&lease.session), "{of_pool:?}");
        let of_none = listed(ListSessions { pool: Some("q".into()), ..ListSessions::default() }).await;
        assert_eq!(of_none, Vec::<String>::new());
    });
}

#[test]
fn pools_are_worked_with_on_the_command_line() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let says = |arguments: &[&str]| {
            let told = server.cli(arguments).output().expect("workroom");
            assert!(told.status.success(), "{arguments:?}: {told:?}");
            String::from_utf8(told.stdout).expect("text").trim_end().to_owned()
        };
        let source = server.session().await;
        source.says("echo seed > seed").await;
        assert_eq!(
            says(&["pool", "set", "p", "--max", "2", "--idle", "10m", "--seed", &source.id]),
            "p  made"
        );
        assert_eq!(says(&["pool", "set", "p", "--max", "3", "--min", "1", "--memory", "256M"]), "p  set");
        let session = says(&["pool", "acquire", "p", "run 7", "--lease", "30m"]);
        assert_eq!(says(&["pool", "acquire", "p", "run 7"]), session);
        assert_eq!(says(&["exec", &session, "--", "pwd"]), "/workspace");
        assert_eq!(says(&["pool", "extend", "p", "run 7", "1h"]), session);
        let shown = says(&["pool", "show", "p"]);
        assert!(shown.contains("run 7") && shown.contains(&session) && shown.contains("acquired"), "{shown}");
        let listed = says(&["pool", "ls"]);
        assert!(listed.contains("p") && listed.contains("/3"), "{listed}");
        assert!(says(&["ls", "--pool", "p"]).contains(&session));
        assert!(!says(&["ls"]).contains(&session));
        let another = says(&["pool", "reset", "p", "run 7"]);
        assert_ne!(another, session);
        assert_eq!(says(&["pool", "release", "p", "run 7"]), "run 7  released");
        assert_eq!(says(&["pool", "release", "p", "run 7", "--json"]), "{\"released\":false}");
        assert_eq!(says(&["pool", "rm", "p"]), "p  deleted");
        let none = server.cli(&["pool", "show", "p"]).output().expect("workroom");
        assert!(String::from_utf8_lossy(&none.stderr).contains("there is no pool p"), "{none:?}");
    });
}
