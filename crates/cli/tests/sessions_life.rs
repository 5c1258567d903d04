//! A session's life: made, shown, changed, started, stopped, frozen, deleted, and nothing left.

use serde_json::{Value, json};
use std::fs;
use std::time::Duration;
use workroom_testkit::types::{LayerState, SessionState};
use workroom_testkit::{PATIENCE, Server, Setup, TestSession, User, eventually, for_each_user, run, settle};

#[test]
fn a_session_is_made_shown_listed_changed_and_deleted() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let asked = json!({
            "name": "build", "labels": {"team": "a", "Z.9_-": ""}, "owner": "ada", "key": "k/1",
            "group": "g", "channel": {"channel_type": "chat", "platform_id": "C 1"}, "thread": "t",
            "policy": {"memory": 1u64 << 30, "pids": 64}, "ttl": 3600, "idle_timeout": 600,
            "on_expiry": "delete", "keep_alive": true,
        });
        let made = server.http().json(&asked).post("/v1/sessions").await.expect(201);
        for (field, value) in asked.as_object().expect("fields") {
            assert_eq!(&made[field], value, "{field}");
        }
        assert_eq!((&made["state"], &made["template"]), (&json!("running"), &json!("host")));
        assert_eq!(made["enforced"]["seccomp"]["state"], "enforced", "{made}");
        let session = TestSession::new(server.client(), made["id"].as_str().expect("an id").into());
        assert_eq!(server.http().get(&session.path("")).await.expect(200), made);
        let listed = server.http().get("/v1/sessions").await.expect(200);
        assert_eq!(listed, json!({"sessions": [made]}));

        let change = json!({"name": "nightly", "labels": {"b": "2"}, "ttl": 0, "on_expiry": "stop", "keep_alive": false});
        let changed = server.http().json(&change).patch(&session.path("")).await.expect(200);
        assert_eq!((&changed["name"], &changed["labels"]), (&json!("nightly"), &json!({"b": "2"})));
        assert_eq!((changed.get("ttl"), &changed["idle_timeout"]), (None, &json!(600)));
        assert_eq!((&changed["key"], &changed["owner"]), (&json!("k/1"), &json!("ada")));

        server.http().delete(&session.path("")).await.expect(204);
        assert_eq!(server.http().get(&session.path("")).await.problem(404), "not_found");
        assert_eq!(server.http().get("/v1/sessions").await.expect(200), json!({"sessions": []}));
        server.http().delete(&session.path("")).await.expect(204);
        server.expect_no_leaks().await;
    });
}

#[test]
fn what_makes_no_sense_is_refused_and_makes_nothing() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let long = "x".repeat(257);
        for wrong in [
            json!({"name": "x".repeat(121)}),
            json!({"name": "a\nb"}),
            json!({"labels": {"": "x"}}),
            json!({"labels": {"-a": "x"}}),
            json!({"labels": {"a b": "x"}}),
            json!({"labels": {"x".repeat(65): ""}}),
            json!({"labels": {"a": "x".repeat(121)}}),
            json!({"labels": {"a": 1}}),
            json!({"key": ""}),
            json!({"key": long}),
            json!({"group": long}),
            json!({"channel": {"channel_type": "chat"}}),
            json!({"channel": {"channel_type": "chat", "platform_id": "1", "thread_id": "a"}, "thread": "b"}),
            json!({"template": "windows"}),
            json!({"policy": {"memory": 1}}),
            json!({"policy": {"pids": 0}}),
            json!({"policy": {"require": ["nonsense"]}}),
            json!({"ttl": 0}),
            json!({"idle_timeout": -1}),
            json!({"on_expiry": "explode"}),
            json!({"unknown": true}),
            json!([]),
            json!(null),
        ] {
            assert_eq!(
                server.http().json(&wrong).post("/v1/sessions").await.problem(400),
                "invalid_argument",
                "{wrong}"
            );
        }
        assert_eq!(server.http().get("/v1/sessions").await.expect(200), json!({"sessions": []}));
        let longest = json!({"name": "ä".repeat(120), "labels": {"x".repeat(64): "ä".repeat(120)}, "key": "x".repeat(256), "start": false});
        server.http().json(&longest).post("/v1/sessions").await.expect(201);
    });
}

/// What a verb brings in a state: the state that follows, or nothing where it is refused.
const TRANSITIONS: [(&str, [Option<&str>; 4]); 4] = [
    // start, stop, pause, resume
    ("running", [Some("running"), Some("stopped"), Some("paused"), Some("running")]),
    ("paused", [Some("paused"), Some("stopped"), Some("paused"), Some("running")]),
    ("stopped", [Some("running"), Some("stopped"), None, None]),
    ("failed", [None, None, None, None]),
];

/// A layer that this server cannot have, if there is one.
async fn missing_layer(server: &Server<'_>) -> Option<String> {
    let capabilities = server.client().capabilities().await.expect("capabilities");
    let lacks = |state: &LayerState| !matches!(state, LayerState::Enforced(_));
    capabilities.enforced.0.iter().find(|(_, state)| lacks(state)).map(|(layer, _)| layer.name().to_owned())
}

async fn bring_to(server: &Server<'_>, session: &TestSession, state: &str) -> bool {
    match state {
        "running" => drop(session.start().await),
        "paused" => drop(session.pause().await),
        "stopped" => drop(session.stop().await),
        _ => {
            let Some(layer) = missing_layer(server).await else { return false };
            session.stop().await;
            let change = json!({"policy": {"require": [layer]}});
            server.http().json(&change).patch(&session.path("")).await.expect(200);
            let refused = server.http().post(&session.path("/start")).await;
            assert_eq!(refused.problem(422), "layer_missing");
            assert!(session.show().await.reason.is_some_and(|reason| reason.contains(&layer)));
        }
    }
    session.show().await.state.as_str() == state
}

#[test]
fn every_transition_is_legal_or_refused_with_the_state_and_may_be_repeated() {
    for_each_user(async |user| {
        let server = Server::of(user);
        for (state, outcomes) in TRANSITIONS {
            for (verb, outcome) in ["start", "stop", "pause", "resume"].into_iter().zip(outcomes) {
                let session = server.session().await;
                if !bring_to(&server, &session, state).await {
                    println!("skipped: every layer is enforced here, nothing fails");
                    continue;
                }
                let path = session.path(&format!("/{verb}"));
                match outcome {
                    Some(next) => {
                        for _ in 0..2 {
                            let now = server.http().post(&path).await.expect(200);
                            assert_eq!(now["state"], next, "{verb} of a session that is {state}");
                        }
                    }
                    // Not for its state, but for want of the layer.
                    None if (state, verb) == ("failed", "start") => {
                        assert_eq!(server.http().post(&path).await.problem(422), "layer_missing");
                    }
                    None => {
                        let refused = server.http().post(&path).await;
                        assert_eq!(refused.problem(409), "wrong_state");
                        assert_eq!(refused.json()["state"], state, "{verb} of a session that is {state}");
                        assert_eq!(session.show().await.state.as_str(), state);
                    }
                }
                session.delete().await;
            }
        }
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_failed_session_starts_when_what_it_lacked_is_no_longer_asked_for() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        session.says("echo kept > file").await;
        if !bring_to(&server, &session, "failed").await {
            return;
        }
        server.http().json(&json!({"policy": {}})).patch(&session.path("")).await.expect(200);
        assert_eq!(session.start().await.reason, None);
        assert_eq!(session.says("cat file").await, "kept\n");
    });
}

#[test]
fn a_session_whose_room_cannot_be_had_is_not_made() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let Some(layer) = missing_layer(&server).await else { return };
        let asked = json!({"key": "k", "policy": {"require": [layer]}});
        let refused = server.http().json(&asked).post("/v1/sessions").await;
        assert_eq!(refused.problem(422), "layer_missing");
        assert_eq!(server.http().get("/v1/sessions").await.expect(200), json!({"sessions": []}));
        server.expect_no_leaks().await;
        // Its key is free again.
        server.http().json(&json!({"key": "k", "start": false})).post("/v1/sessions").await.expect(201);
    });
}

#[test]
fn a_queued_session_can_only_be_deleted_or_get_its_turn() {
    run(async {
        let user = User::running_the_tests();
        let server = Setup::of(&user).config("[serve.quotas]\nlive = 1").start();
        let first = server.session().await;
        let client = server.client();
        let waiting = tokio::spawn(async move {
            client.create(&Default::default(), Some(PATIENCE)).await.map(|(session, _)| session.id)
        });
        let queued = async || {
            let list = server.http().get("/v1/sessions?state=queued").await.expect(200);
            list["sessions"][0]["id"].as_str().map(str::to_owned).ok_or("nothing is queued".to_owned())
        };
        eventually(async || queued().await.map(drop)).await;
        let second = TestSession::new(server.client(), queued().await.expect("it is queued"));
        for verb in ["stop", "pause", "resume"] {
            let refused = server.http().post(&second.path(&format!("/{verb}"))).await;
            assert_eq!(
                (refused.problem(409).as_str(), &refused.json()["state"]),
                ("wrong_state", &json!("queued"))
            );
        }
        assert_eq!(server.http().post(&second.path("/start")).await.problem(429), "limit_exceeded");
        second.delete().await;
        first.stop().await;
        let told = waiting.await.expect("an answer").expect_err("it was deleted while it waited");
        assert_eq!(told.code(), "not_found");
        first.start().await;
    });
}

#[test]
fn the_journal_tells_every_change_of_state() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.pause().await;
        session.resume().await;
        session.stop().await;
        session.says("true").await;
        server.http().json(&json!({"waiting_for_input": true})).patch(&session.path("")).await.expect(200);
        assert_eq!(session.state().await, SessionState::WaitingForInput);
        session.says("true").await;
        assert_eq!(session.state().await, SessionState::Running, "work is no waiting");
        let journal = session.journal().await;
        let kinds: Vec<&str> = journal.iter().map(|entry| entry.kind.as_str()).collect();
        let told = [
            "session.created",
            "session.running",
            "session.paused",
            "session.resumed",
            "session.stopped",
            "session.running",
            "exec.finished",
            "session.updated",
            "exec.finished",
        ];
        assert_eq!(kinds, told);
        assert!(journal.iter().zip(1..).all(|(entry, seq)| entry.seq == seq), "without a gap");
        assert!(journal[2].actor.starts_with("token:"), "{:?}", journal[2]);
    });
}

#[test]
fn stopping_keeps_files_and_starting_brings_them_back() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.says("mkdir -p a/b; echo kept > a/b/file; ln -s a/b/file link; setsid -f sleep 1000").await;
        session.stop().await;
        assert_eq!(session.state().await, SessionState::Stopped);
        settle(|| match server.room_processes() {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        });
        assert_eq!(session.start().await.state, SessionState::Running);
        assert_eq!(session.says("cat a/b/file link").await, "kept\nkept\n");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn whatever_needs_a_room_brings_one() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session_like(json!({"start": false})).await;
        let stopped = session.show().await;
        assert_eq!((stopped.state, stopped.counters.starts), (SessionState::Stopped, 0));
        assert_eq!(server.room_processes(), []);
        let looked = server.client().processes(&session.id).await.expect("a list");
        assert_eq!(looked.processes, [], "looking is no reason for a room");
        assert_eq!(session.says("echo here").await, "here\n");
        let running = session.show().await;
        assert_eq!((running.state, running.counters.starts), (SessionState::Running, 1));
        assert_eq!(running.counters.execs, 1);
    });
}

/// The numbers that a counter has written, which must be all of them up to the last.
fn counted(server: &Server<'_>, session: &TestSession) -> u64 {
    let text = fs::read_to_string(server.file_of(session, "counter")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let numbers: Vec<u64> = whole.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(numbers.iter().zip(1..).all(|(number, place)| *number == place), "{numbers:?}");
    numbers.len() as u64
}

#[test]
fn a_paused_session_stands_still_and_goes_on_exactly() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let counter = "i=0; while :; do i=$((i+1)); echo $i >> counter; sleep 0.002; done";
        session.says(&format!("setsid -f sh -c '{counter}'; setsid -f sleep 1000")).await;
        let client = server.client();
        let (id, slow) = (session.id.clone(), json!({"command": "echo > begun; sleep 0.2; echo done"}));
        let under_way =
            tokio::spawn(
                async move { client.exec(&id, &serde_json::from_value(slow).expect("a command")).await },
            );
        server.await_file(&session, "begun");
        for _ in 0..4 {
            let before = counted(&server, &session);
            settle(|| if counted(&server, &session) > before { Ok(()) } else { Err("it stands".into()) });
            assert_eq!(session.pause().await.state, SessionState::Paused);
            let at = counted(&server, &session);
            // Long enough for a counter that is not frozen to be seen.
            tokio::time::sleep(Duration::from_millis(60)).await;
            assert_eq!(counted(&server, &session), at, "a paused session does nothing");
            let refused = server.http().json(&json!({"command": "true"})).post(&session.path("/exec")).await;
            assert_eq!(
                (refused.problem(409).as_str(), &refused.json()["state"]),
                ("wrong_state", &json!("paused"))
            );
            assert_eq!(session.resume().await.state, SessionState::Running);
        }
        let ended = under_way.await.expect("an answer").expect("a command that ran");
        assert_eq!((ended.exit_code, ended.stdout.as_str()), (0, "done\n"), "{ended:?}");
        session.pause().await;
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn many_turns_lose_no_byte() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let sum = session.says("head -c 3000000 /dev/urandom > data; sha256sum < data").await;
        for turn in 0..12 {
            if turn % 4 == 0 {
                session.stop().await;
                session.start().await;
            } else {
                session.pause().await;
                session.resume().await;
            }
        }
        assert_eq!(session.says("sha256sum < data").await, sum);
        assert_eq!(session.show().await.counters.starts, 4);
    });
}

#[test]
fn a_room_that_ends_by_itself_leaves_a_stopped_session_that_works_again() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.says("echo kept > file").await;
        let spawner = server.room_processes();
        // The guest is the oldest: its launcher is its child.
        let guest = spawner.iter().min_by_key(|process| process.pid).expect("a guest");
        let pid = rustix::process::Pid::from_raw(guest.pid).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
        session.event("session.stopped").await;
        let stopped = session.show().await;
        assert_eq!((stopped.state, stopped.reason.is_some()), (SessionState::Stopped, true));
        assert_eq!(session.says("cat file").await, "kept\n");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

/// Trees that do not want to be deleted, and one that would take others with it.
fn hostile(outside: &str) -> String {
    format!(
        "mkdir closed; echo x > closed/file; chmod 000 closed/file closed
         mkdir -p ro/a/b; echo x > ro/a/b/file; chmod -R a-w ro
         far=$(printf 'dddddd/%.0s' $(seq 300)); for i in 1 2; do mkdir -p $far; cd $far; done; echo deep > file; cd /workspace
         mkfifo pipe; ln -s {outside} link; ln -s {outside} closed2; ln -s . loop; touch \"$(printf 'a\\nb\\377')\" ./-rf
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")' 2>/dev/null
         mkdir many; cd many; seq 300 | xargs touch; cd ..
         setsid -f sh -c 'trap \"\" TERM HUP; cd /workspace/ro; while :; do sleep 1; done'; true"
    )
}

#[test]
fn deleting_leaves_nothing_whatever_was_made_and_touches_nothing_else() {
    for_each_user(async |user| {
        let server = Server::of(user);
        user.make_dir("outside");
        let canary = user.make_file("outside/canary", "alive");
        for stopped_first in [false, true] {
            let session = server.session().await;
            session.says(&hostile(&user.path("outside").display().to_string())).await;
            if stopped_first {
                session.stop().await;
            }
            server.http().body("secret").put(&session.path("/private/note")).await.expect(204);
            session.delete().await;
            server.expect_no_leaks().await;
            assert_eq!(fs::read_to_string(&canary).expect("it is there"), "alive");
        }
    });
}

#[test]
fn deleting_while_commands_run_ends_them_and_tells_their_callers() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let client = server.client();
        let id = session.id.clone();
        let request: Value = json!({"command": "echo begun > begun; sleep 1000", "timeout_ms": 600_000});
        let caller = tokio::spawn(async move {
            client.exec(&id, &serde_json::from_value(request).expect("a command")).await
        });
        server.await_file(&session, "begun");
        session.delete().await;
        let told = caller.await.expect("an answer").expect_err("the room is gone");
        assert_eq!(told.code(), "room_gone");
        server.expect_no_leaks().await;
    });
}

/// A host that was killed while it replaced a room leaves one whose start it could not record. The next room must not
/// be taken for it: it would be ended in its place.
#[test]
fn a_room_that_is_ended_late_takes_no_other_with_it() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        session.says("echo kept > file").await;
        server.kill();
        let rooms = server.state().join("rooms");
        let stray = rooms.join(format!("{}-7", session.id));
        fs::rename(rooms.join(format!("{}-1", session.id)), &stray).expect("a room of another number");
        fs::write(stray.join("layer"), "layer-0000000000000000").expect("a layer that is not the session's");
        server.restart();
        let session = TestSession::new(server.client(), session.id);
        assert_eq!(session.says("cat file; (sleep 1000 >/dev/null 2>&1 &)").await, "kept\n");
        settle(|| if stray.exists() { Err("the stray room is still there".into()) } else { Ok(()) });
        assert!(rooms.join(format!("{}-8", session.id)).join("guest.sock").exists(), "no number comes twice");
        assert_eq!(session.says("pgrep -c sleep").await, "1\n");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

/// A table of descriptors that grows under several threads keeps them all waiting, for longer than a room takes to be made.
#[test]
fn there_is_a_place_for_thousands_of_descriptors_before_there_are_threads() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let read = |file: &str| {
            fs::read_to_string(format!("/proc/{}/{file}", server.pid())).expect("the server's process")
        };
        let (status, limits) = (read("status"), read("limits"));
        let size: u64 = status
            .lines()
            .find_map(|line| line.strip_prefix("FDSize:"))
            .and_then(|size| size.trim().parse().ok())
            .expect("the size of its table");
        let most: u64 = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"))
            .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
            .expect("the most that it may have");
        assert!(size >= most.min(1 << 16), "{size} of {most}");
    });
}
