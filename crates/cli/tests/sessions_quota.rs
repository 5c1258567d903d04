//! How much one may have: live sessions, sessions a day, and a queue that is fair.

use serde_json::{Value, json};
use workroom_testkit::{Response, Server, Setup, TestSession, User, eventually, for_each_user, run};

fn limit_of(refused: &Response) -> String {
    assert_eq!(refused.problem(429), "limit_exceeded");
    let problem = refused.json();
    let seconds: u64 = refused.header("retry-after").and_then(|text| text.parse().ok()).expect("a time");
    assert_eq!(problem["retry_after"], seconds);
    assert!(problem["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{problem}");
    problem["limit"].as_str().expect("a limit").to_owned()
}

async fn ask(server: &Server<'_>, query: &str, fields: Value) -> Response {
    server.http().json(&fields).post(&format!("/v1/sessions{query}")).await
}

fn session_of(server: &Server<'_>, made: &Value) -> TestSession {
    TestSession::new(server.client(), made["id"].as_str().expect("an id").to_owned())
}

#[test]
fn live_sessions_are_counted_in_all_and_for_each_user() {
    for_each_user(async |user| {
        let server = Setup::of(user).config("[serve.quotas]\nlive = 3\nlive_per_user = 2").start();
        let mut ada = Vec::new();
        for _ in 0..2 {
            ada.push(session_of(&server, &ask(&server, "", json!({"owner": "ada"})).await.expect(201)));
        }
        assert_eq!(limit_of(&ask(&server, "", json!({"owner": "ada"})).await), "live_per_user");
        let bob = session_of(&server, &ask(&server, "", json!({"owner": "bob"})).await.expect(201));
        assert_eq!(limit_of(&ask(&server, "", json!({"owner": "cay"})).await), "live");
        // One without a room takes no place, until it gets one.
        let stopped =
            session_of(&server, &ask(&server, "", json!({"owner": "cay", "start": false})).await.expect(201));
        let exec = json!({"command": "echo in"});
        assert_eq!(limit_of(&server.http().post(&stopped.path("/start")).await), "live");
        assert_eq!(limit_of(&server.http().json(&exec).post(&stopped.path("/exec")).await), "live");
        // A paused one keeps its place; a stopped or deleted one gives it back.
        bob.pause().await;
        assert_eq!(limit_of(&server.http().post(&stopped.path("/start")).await), "live");
        bob.stop().await;
        assert_eq!(stopped.says("echo in").await, "in\n");
        ada.pop().expect("one").delete().await;
        ask(&server, "", json!({"owner": "ada"})).await.expect(201);
    });
}

#[test]
fn sessions_of_a_day_are_counted_also_when_they_are_gone_and_across_a_restart() {
    run(async {
        let user = User::running_the_tests();
        let config = "[serve.quotas]\ncreated_per_user_per_day = 2";
        let mut server = Setup::of(&user).config(config).start();
        let fields = json!({"owner": "ada", "start": false, "key": "k"});
        let first = ask(&server, "", fields.clone()).await.expect(201);
        session_of(&server, &first).delete().await;
        ask(&server, "", fields.clone()).await.expect(201);
        server.restart();
        ask(&server, "", fields.clone()).await.expect(200);
        let another = json!({"owner": "ada", "start": false});
        assert_eq!(limit_of(&ask(&server, "", another).await), "created_per_user_per_day");
        ask(&server, "", json!({"owner": "bob", "start": false})).await.expect(201);
    });
}

async fn queued(server: &Server<'_>) -> usize {
    let list = server.http().get("/v1/sessions?state=queued").await.expect(200);
    list["sessions"].as_array().expect("a list").len()
}

async fn await_queue(server: &Server<'_>, length: usize) {
    eventually(async || match queued(server).await {
        now if now == length => Ok(()),
        now => Err(format!("{now} are queued, not {length}")),
    })
    .await;
}

#[test]
fn who_waits_gets_the_next_place_and_who_waits_too_long_is_told() {
    for_each_user(async |user| {
        let server = Setup::of(user).config("[serve.quotas]\nlive = 1\nqueue = 1").start();
        let first = server.session().await;
        let waits = server.http().json(&json!({"name": "second"}));
        let waiting = tokio::spawn(waits.send("POST", "/v1/sessions?wait=25"));
        await_queue(&server, 1).await;
        assert_eq!(limit_of(&ask(&server, "?wait=25", json!({})).await), "queue");
        first.delete().await;
        let second = waiting.await.expect("an answer").expect(201);
        assert_eq!((&second["name"], &second["state"]), (&json!("second"), &json!("running")));
        assert_eq!(limit_of(&ask(&server, "?wait=0.05", json!({"key": "late"})).await), "live");
        assert_eq!(queued(&server).await, 0, "who gave up is gone");
        let stopped = session_of(&server, &ask(&server, "", json!({"start": false})).await.expect(201));
        let start = tokio::spawn(server.http().send("POST", &stopped.path("/start?wait=25")));
        let second = session_of(&server, &second);
        // Whether it waits already or comes in a moment, the place that is freed is for it.
        second.stop().await;
        assert_eq!(start.await.expect("an answer").expect(200)["state"], "running");
        for wrong in ["?wait=-1", "?wait=x", "?wait=1e9", "?wait=NaN"] {
            ask(&server, wrong, json!({})).await.problem(400);
        }
        stopped.delete().await;
        second.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn the_queue_takes_owners_in_turn() {
    run(async {
        let user = User::running_the_tests();
        let server = Setup::of(&user).config("[serve.quotas]\nlive = 1").start();
        let mut last = server.session().await;
        let (told, mut made) = tokio::sync::mpsc::unbounded_channel();
        for (ahead, owner) in ["ada", "ada", "ada", "bob"].into_iter().enumerate() {
            let ask = server.http().json(&json!({"owner": owner})).send("POST", "/v1/sessions?wait=25");
            let told = told.clone();
            tokio::spawn(async move { told.send(ask.await.expect(201)) });
            await_queue(&server, ahead + 1).await;
        }
        let mut order = Vec::new();
        for _ in 0..4 {
            last.delete().await;
            let next = workroom_testkit::within("the next one", made.recv()).await.expect("an answer");
            order.push(next["owner"].as_str().expect("an owner").to_owned());
            last = session_of(&server, &next);
        }
        assert_eq!(order, ["ada", "bob", "ada", "ada"], "one owner's queue is not before everybody else");
    });
}

#[test]
fn a_server_that_is_killed_forgets_nobody_s_place_and_nobody_who_waits() {
    for_each_user(async |user| {
        let mut server = Setup::of(user).config("[serve.quotas]\nlive = 2").start();
        let kept = [server.session().await, server.session().await];
        let waits = server.http().open("POST", "/v1/sessions?wait=25").await;
        await_queue(&server, 1).await;
        server.restart();
        drop(waits);
        assert_eq!(queued(&server).await, 0, "whoever waited is not there any more");
        assert_eq!(
            limit_of(&ask(&server, "", json!({})).await),
            "live",
            "rooms that go on have their places"
        );
        for session in &kept {
            TestSession::new(server.client(), session.id.clone()).delete().await;
        }
        let list = server.http().get("/v1/sessions").await.expect(200);
        for session in list["sessions"].as_array().expect("a list") {
            assert_eq!(session["state"], "stopped", "what was never started has no room");
            session_of(&server, session).delete().await;
        }
        ask(&server, "", json!({})).await.expect(201);
    });
}
