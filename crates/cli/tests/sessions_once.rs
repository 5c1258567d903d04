//! One effect for each `Idempotency-Key`: repeated, at once, after a restart, and across a server that is killed.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use workroom_testkit::client::ExecOutput;
use workroom_testkit::{
    Http, Response, Server, Setup, TestSession, User, eventually, for_each_user, run, within,
};

const REPLAYED: &str = "idempotency-replayed";

/// A request that changes something: method, path, body.
type Change = (&'static str, String, Option<Value>);

fn ask(http: Http, key: &str, (method, path, body): &Change) -> impl Future<Output = Response> + use<> {
    let http = http.key(key);
    let http = match body {
        Some(body) => http.json(body),
        None => http,
    };
    http.send(method, path)
}

/// One of each, in an order in which each can be done.
fn changes(session: &TestSession, token: &str) -> Vec<Change> {
    let at = |rest: &str| session.path(rest);
    vec![
        ("POST", "/v1/sessions".into(), Some(json!({"start": false}))),
        ("POST", "/v1/sessions".into(), None),
        (
            "POST",
            "/v1/sessions/resolve".into(),
            Some(json!({"group": "g", "mode": "shared", "create": {"start": false}})),
        ),
        ("PATCH", at(""), Some(json!({"name": "named"}))),
        ("POST", at("/exec"), Some(json!({"command": "echo line >> lines; echo $RANDOM$RANDOM"}))),
        ("POST", at("/pause"), None),
        ("POST", at("/resume"), None),
        ("POST", at("/stop"), None),
        ("POST", at("/start"), None),
        ("POST", at("/events"), Some(json!({"kind": "note", "body": 1}))),
        ("PUT", at("/private/file"), Some(json!("content"))),
        ("DELETE", at("/private/file"), None),
        ("DELETE", format!("/v1/tokens/{token}"), None),
        ("POST", at("/exec"), Some(json!({"argv": ["no-such-program"]}))),
        ("POST", at("/exec"), Some(json!({"command": 7}))),
    ]
}

#[test]
fn a_repetition_is_answered_and_not_done_again() {
    run(async {
        let user = User::running_the_tests();
        let mut server = Server::of(&user);
        let session = server.session().await;
        let fields = json!({"scope": "user", "owner": "ada"});
        let token = server.http().json(&fields).post("/v1/tokens").await.expect(201);
        let token = token["id"].as_str().expect("an id");
        let mut answers = Vec::new();
        for (number, change) in changes(&session, token).into_iter().enumerate() {
            let key = format!("key-{number}");
            let first = ask(server.http(), &key, &change).await;
            assert_eq!(first.header(REPLAYED), None, "{change:?}: {first:?}");
            let again = ask(server.http(), &key, &change).await;
            assert_eq!((again.status, &again.body), (first.status, &first.body), "{change:?}");
            if first.status != 400 || first.text().contains("command_not_found") {
                assert_eq!(again.header(REPLAYED), Some("true"), "{change:?}: {again:?}");
                if change.2.is_some() {
                    let other: Change = (change.0, change.1.clone(), Some(json!({"another": "body"})));
                    let mismatch = ask(server.http(), &key, &other).await;
                    // What is wrong by itself may be said first.
                    assert!(matches!(mismatch.status, 400 | 422), "{change:?}: {mismatch:?}");
                }
            }
            answers.push((key, change, first));
        }
        assert_eq!(session.says("cat lines").await, "line\n");
        let sessions = server.http().get("/v1/sessions").await.expect(200);
        assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(4));
        let notes = session.journal().await.into_iter().filter(|entry| entry.kind == "caller.note").count();
        assert_eq!(notes, 1);
        // Another path or body under a used key is another request.
        let stop: Change = ("POST", session.path("/stop"), None);
        assert_eq!(ask(server.http(), "key-5", &stop).await.problem(422), "idempotency_mismatch");
        let other: Change = ("POST", "/v1/sessions".into(), Some(json!({"start": false, "name": "x"})));
        assert_eq!(ask(server.http(), "key-0", &other).await.problem(422), "idempotency_mismatch");
        for ending in ["stop", "kill"] {
            if ending == "stop" {
                server.stop();
            }
            server.restart();
            for (key, change, first) in &answers {
                let again = ask(server.http(), key, change).await;
                assert_eq!(
                    (again.status, &again.body),
                    (first.status, &first.body),
                    "after {ending}: {change:?}"
                );
            }
        }
        assert_eq!(TestSession::new(server.client(), session.id).says("cat lines").await, "line\n");
    });
}

#[test]
fn deleting_is_repeated_and_keys_are_each_caller_s_own() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let delete: Change = ("DELETE", session.path(""), None);
        ask(server.http(), "d", &delete).await.expect(204);
        let again = ask(server.http(), "d", &delete).await;
        assert_eq!((again.status, again.header(REPLAYED)), (204, Some("true")));

        let fields = json!({"scope": "user", "owner": "ada"});
        let make_token: Change = ("POST", "/v1/tokens".into(), Some(fields));
        let made = ask(server.http(), "t", &make_token).await.expect(201);
        let repeated = ask(server.http(), "t", &make_token).await.expect(201);
        assert_eq!((&repeated["id"], repeated.get("token")), (&made["id"], None), "a secret is told once");
        let ada = made["token"].as_str().expect("a token");
        let create: Change = ("POST", "/v1/sessions".into(), Some(json!({"start": false})));
        let own = ask(server.http(), "same", &create).await.expect(201);
        let hers = ask(server.http().token(ada), "same", &create).await.expect(201);
        assert_ne!(own["id"], hers["id"]);
        assert_eq!(hers["owner"], "ada");

        for wrong in ["", "a b", &"x".repeat(257), "ä"] {
            ask(server.http(), wrong, &create).await.problem(400);
        }
        let two = server.http().key("a").key("b").json(&json!({})).post("/v1/sessions").await;
        two.problem(400);
    });
}

#[test]
fn what_passes_is_not_remembered() {
    run(async {
        let user = User::running_the_tests();
        let server = Setup::of(&user).config("[serve.quotas]\nlive = 1").start();
        let first = server.session().await;
        let create: Change = ("POST", "/v1/sessions".into(), None);
        assert_eq!(ask(server.http(), "k", &create).await.problem(429), "limit_exceeded");
        first.delete().await;
        let made = ask(server.http(), "k", &create).await;
        assert_eq!((made.status, made.header(REPLAYED)), (201, None));
    });
}

#[test]
fn many_at_once_under_one_key_are_one() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let together = async |key: &str, change: Change| {
            let calls: Vec<_> = (0..20).map(|_| tokio::spawn(ask(server.http(), key, &change))).collect();
            let (mut bodies, mut firsts) = (BTreeSet::new(), 0);
            for call in calls {
                let answer = call.await.expect("an answer");
                firsts += usize::from(answer.header(REPLAYED).is_none());
                bodies.insert((answer.status, answer.body));
            }
            assert_eq!((bodies.len(), firsts), (1, 1), "{change:?}: {bodies:?}");
        };
        together("create", ("POST", "/v1/sessions".into(), None)).await;
        together(
            "exec",
            (
                "POST",
                session.path("/exec"),
                Some(json!({"command": "sleep 0.1; echo line >> lines; echo $$"})),
            ),
        )
        .await;
        together("append", ("POST", session.path("/events"), Some(json!({"kind": "note"})))).await;
        together("delete", ("DELETE", session.path("/private/x"), None)).await;
        assert_eq!(session.says("cat lines").await, "line\n");
        let sessions = server.http().get("/v1/sessions").await.expect(200);
        assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(2));
        let notes = session.journal().await.into_iter().filter(|entry| entry.kind == "caller.note").count();
        assert_eq!(notes, 1);
    });
}

/// Says a line, waits to be let on, and says the rest: across the server's end.
const HALVES: &str = "echo run >> runs; seq 20000; echo first; echo err >&2; touch begun; \
                      until [ -e go ]; do sleep 0.01; done; seq 20000; echo second";

fn whole() -> String {
    let numbers: String = (1..=20000).map(|number| format!("{number}\n")).collect();
    format!("{numbers}first\n{numbers}second\n")
}

#[test]
fn a_command_runs_on_while_its_server_is_killed_and_is_answered_by_the_next() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let exec: Change = ("POST", session.path("/exec"), Some(json!({"command": HALVES})));
        let mut streamed = server
            .http()
            .key("stream")
            .header("Accept", "text/event-stream")
            .json(&json!({"command": "echo on; touch on; until [ -e go ]; do sleep 0.01; done; echo over"}))
            .open("POST", &session.path("/exec"))
            .await;
        streamed.until("event: stdout").await;
        let lost = server
            .http()
            .key("k")
            .json(&json!({"command": HALVES}))
            .open("POST", &session.path("/exec"))
            .await;
        server.await_file(&session, "begun");
        server.kill();
        drop((lost, streamed));
        server.restart();
        let again = TestSession::new(server.client(), session.id.clone());
        let asked = tokio::spawn(ask(server.http(), "k", &exec));
        again.says("touch go").await;
        let answer = asked.await.expect("an answer").expect(200);
        assert_eq!((&answer["exit_code"], &answer["truncated"]), (&json!(0), &json!(false)));
        assert!(answer["stdout"] == whole(), "every byte once: {} bytes", answer["stdout_bytes"]);
        assert_eq!(answer["stderr"], "err\n");
        let replayed = ask(server.http(), "k", &exec).await;
        assert_eq!((replayed.header(REPLAYED), replayed.json()), (Some("true"), answer));
        assert_eq!(again.says("cat runs").await, "run\n");
        let stream: Change = (
            "POST",
            session.path("/exec"),
            Some(json!({"command": "echo on; touch on; until [ -e go ]; do sleep 0.01; done; echo over"})),
        );
        assert_eq!(ask(server.http(), "stream", &stream).await.expect(200)["stdout"], "on\nover\n");
        again.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_stream_goes_on_at_the_right_byte_across_a_killed_server() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        // The socket has the same name for the next server.
        let client = server.local_client();
        let request = serde_json::from_value(json!({"command": HALVES})).expect("a command");
        let mut stream = client.exec_stream(&session.id, &request).await.expect("a stream");
        let mut stdout = Vec::new();
        while !stdout.ends_with(b"first\n") {
            match within("output", stream.next()).await.expect("output").expect("more") {
                ExecOutput::Stdout(chunk) => stdout.extend(chunk.data),
                ExecOutput::Stderr(_) => {}
                ExecOutput::Exit(result) => panic!("it was not let on: {result:?}"),
            }
        }
        server.kill();
        server.restart();
        TestSession::new(server.client(), session.id.clone()).says("touch go").await;
        loop {
            match within("output", stream.next()).await.expect("output").expect("an exit at the end") {
                ExecOutput::Stdout(chunk) => {
                    assert_eq!((chunk.offset, chunk.missing), (stdout.len() as u64, 0));
                    stdout.extend(chunk.data);
                }
                ExecOutput::Stderr(_) => {}
                ExecOutput::Exit(result) => {
                    assert_eq!(result.exit_code, 0);
                    break;
                }
            }
        }
        assert!(stdout == whole().into_bytes(), "every byte once, {} in all", stdout.len());
    });
}

#[test]
fn a_command_that_ended_while_no_server_ran_is_answered_too() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let script = "touch begun; sleep 0.3; echo run >> runs; echo over; touch over; exit 5";
        let exec: Change = ("POST", session.path("/exec"), Some(json!({"command": script})));
        let lost = server
            .http()
            .key("k")
            .json(&json!({"command": script}))
            .open("POST", &session.path("/exec"))
            .await;
        server.await_file(&session, "begun");
        server.kill();
        drop(lost);
        server.await_file(&session, "over");
        server.restart();
        let answer = ask(server.http(), "k", &exec).await.expect(200);
        assert_eq!((&answer["exit_code"], &answer["stdout"]), (&json!(5), &json!("over\n")));
        let again = TestSession::new(server.client(), session.id.clone());
        assert_eq!(again.says("cat runs").await, "run\n");
        let finished = again.event("exec.finished").await;
        assert_eq!(finished.body["exit_code"], 5, "and it is on record");
    });
}

#[test]
fn a_command_whose_room_did_not_outlive_the_server_is_not_run_twice() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let script = "echo run >> runs; touch begun; sleep 1000";
        let exec: Change = ("POST", session.path("/exec"), Some(json!({"command": script})));
        let lost = server
            .http()
            .key("k")
            .json(&json!({"command": script}))
            .open("POST", &session.path("/exec"))
            .await;
        server.await_file(&session, "begun");
        server.kill();
        drop(lost);
        for process in server.room_processes() {
            let pid = rustix::process::Pid::from_raw(process.pid).expect("a process");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        server.restart();
        let told = ask(server.http(), "k", &exec).await;
        assert_eq!(told.problem(409), "outcome_unknown", "{told:?}");
        let again = TestSession::new(server.client(), session.id);
        assert_eq!(again.says("cat runs").await, "run\n");
    });
}

/// Killed at once, and asked again: whatever had come of the first try, there is one of each.
#[test]
fn making_things_while_the_server_is_killed_makes_them_once() {
    run(async {
        let user = User::running_the_tests();
        let mut server = Server::of(&user);
        let session = server.session().await;
        for round in 0..6u64 {
            let (create, append) = (format!("create-{round}"), format!("append-{round}"));
            let make: Change = ("POST", "/v1/sessions".into(), Some(json!({"name": create})));
            let note: Change = ("POST", session.path("/events"), Some(json!({"kind": append})));
            let asked = [
                server.http().key(&create).json(&json!({"name": create})).open("POST", "/v1/sessions").await,
                server
                    .http()
                    .key(&append)
                    .json(&json!({"kind": append}))
                    .open("POST", &session.path("/events"))
                    .await,
            ];
            tokio::time::sleep(std::time::Duration::from_millis(round * 3)).await;
            server.restart();
            drop(asked);
            ask(server.http(), &create, &make).await.expect(201);
            ask(server.http(), &append, &note).await.expect(201);
            let list = server.http().get("/v1/sessions").await.expect(200);
            let made = list["sessions"].as_array().expect("a list").iter();
            assert_eq!(made.filter(|session| session["name"] == create.as_str()).count(), 1, "round {round}");
            let journal = TestSession::new(server.client(), session.id.clone()).journal().await;
            let kind = format!("caller.{append}");
            assert_eq!(journal.iter().filter(|entry| entry.kind == kind).count(), 1, "round {round}");
        }
    });
}

/// What a guest keeps for a server that may come after this one takes no place from the commands that follow.
#[test]
fn commands_under_keys_follow_each_other_and_keep_their_output() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let ask = |key: String, body: Value| server.http().key(&key).json(&body);
        for number in 0..300 {
            let http = ask(format!("row-{number}"), json!({"argv": ["seq", "1000"]}));
            let answer = http.post(&session.path("/exec")).await.expect(200);
            let stdout = answer["stdout"].as_str().expect("text");
            assert_eq!((stdout.len(), &answer["truncated"]), (3893, &json!(false)), "command {number}");
        }
        for number in 0..100 {
            let http =
                ask(format!("stream-{number}"), json!({"argv": ["echo", "here"], "max_output": 64 << 20}));
            let stream = http.header("Accept", "text/event-stream").post(&session.path("/exec")).await;
            assert_eq!(stream.status, 200, "command {number}: {stream:?}");
            assert!(stream.text().contains("here"), "command {number}: {stream:?}");
        }
    });
}

#[test]
fn much_output_under_keys_is_let_go_before_it_is_too_much() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        // All together more than a guest has place for, and nobody reads any of it.
        let mut unread = Vec::new();
        for number in 0..8 {
            let script = format!("yes | head -c 50000000; touch over-{number}");
            let body = json!({"command": script, "max_output": 64 << 20});
            let http = server.http().key(&format!("much-{number}")).json(&body);
            let http = http.header("Accept", "text/event-stream");
            unread.push(http.open("POST", &session.path("/exec")).await);
        }
        for number in 0..8 {
            server.await_file(&session, &format!("over-{number}"));
        }
        eventually(async || {
            let journal = session.journal().await;
            match journal.iter().filter(|entry| entry.kind == "exec.finished").count() {
                8 => Ok(()),
                some => Err(format!("{some} have ended")),
            }
        })
        .await;
        let body = json!({"argv": ["seq", "100000"]});
        let after = server.http().key("after").json(&body).post(&session.path("/exec")).await.expect(200);
        assert_eq!(
            (&after["stdout_bytes"], &after["truncated"]),
            (&json!(588_895), &json!(false)),
            "{after}"
        );
    });
}
