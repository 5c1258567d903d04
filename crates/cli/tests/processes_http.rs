//! Processes of a session: started at once, read by cursors, written to, signalled, waited for, removed.

use serde_json::json;
use workroom_testkit::client::{AttachOptions, Attached};
use workroom_testkit::types::{OutputStream, ProcessState};
use workroom_testkit::{Server, TestSession, User, eventually, for_each_user, run, within};

#[test]
fn a_process_runs_on_its_own_and_its_output_is_read_by_cursors() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let process = session
            .process(json!({"command": "echo one; echo err >&2; read line; echo \"got $line\"; exit 3", "stdin": true, "tag": "mine"}))
            .await;
        let shown = process.show().await;
        assert_eq!((shown.state, shown.tag.as_deref()), (ProcessState::Running, Some("mine")));
        assert!(shown.pid > 1 && shown.stdin, "{shown:?}");
        assert_eq!(process.says("one").await, "one\n");
        process.write("hello\n").await;
        let ended = process.ended().await;
        let exit = ended.exit.clone().expect("how it ended");
        assert_eq!((exit.code, exit.signal, exit.timed_out), (3, None, false), "{ended:?}");
        assert_eq!(process.all(OutputStream::Stdout).await, b"one\ngot hello\n");
        assert_eq!(process.all(OutputStream::Stderr).await, b"err\n");
        assert_eq!((ended.stdout.written, ended.stdout.dropped, ended.stderr.written), (14, 0, 4));
        let page = server.http().get(&process.path("/output?cursor=4&max=3")).await.expect(200);
        assert_eq!((page["data"].as_str(), page["next_cursor"].as_u64()), (Some("got"), Some(7)));
        assert_eq!((page["end"].as_bool(), page["truncated"].as_bool()), (Some(false), Some(false)));
        let listed = session.client().processes(&session.id).await.expect("a list");
        assert_eq!(listed.processes.len(), 1, "{listed:?}");
        session.client().remove_process(&session.id, &process.id).await.expect("removed");
        assert_eq!(server.http().get(&process.path("")).await.status, 404);
        assert_eq!(server.http().get(&process.path("/output")).await.status, 404);
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_process_is_signalled_timed_out_and_killed_with_all_that_it_started() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let trapped =
            session.process(json!({"command": "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.01; done"})).await;
        trapped.says("ready").await;
        trapped.signal("SIGTERM").await;
        assert_eq!(trapped.ended().await.exit.expect("an end").code, 9);
        assert_eq!(trapped.all(OutputStream::Stdout).await, b"ready\ncaught\n");

        let slow = session.process(json!({"command": "echo begun; sleep 1000", "timeout_ms": 300})).await;
        let exit = slow.ended().await.exit.expect("an end");
        assert_eq!((exit.code, exit.timed_out), (124, true), "{exit:?}");
        assert_eq!(slow.all(OutputStream::Stdout).await, b"begun\n");

        let tree = session.process(json!({"command": "setsid sleep 777 & echo made; wait"})).await;
        tree.says("made").await;
        session.client().remove_process(&session.id, &tree.id).await.expect("removed");
        eventually(async || {
            let listed = session.client().processes(&session.id).await.map_err(|error| error.to_string())?;
            let left: Vec<_> =
                listed.in_room.iter().filter(|one| one.state != "Z").map(|one| &one.command).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        let refused = server.http().json(&json!({"signal": "SEGV"})).post(&trapped.path("/signal")).await;
        refused.problem(400);
        let ended = server.http().json(&json!({"signal": "TERM"})).post(&trapped.path("/signal")).await;
        ended.problem(409);
    });
}

#[test]
fn input_that_is_not_read_waits_and_its_end_is_told() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let deaf = session.process(json!({"command": "sleep 1000", "stdin": true})).await;
        let much = vec![b'x'; 1 << 20];
        let taken = server.http().body(much.clone()).post(&deaf.path("/input?wait_ms=50")).await.expect(200);
        let written = taken["written"].as_u64().expect("a number");
        assert!(written > 0 && written < much.len() as u64 && taken["complete"] == false, "{taken}");
        let none = session.process(json!({"command": "cat; echo over"})).await;
        assert_eq!(none.all(OutputStream::Stdout).await, b"over\n", "without stdin there is nothing to read");
        let counted = session.process(json!({"argv": ["wc", "-c"], "stdin": true})).await;
        counted.write(much).await;
        counted.close_input().await;
        assert_eq!(counted.all(OutputStream::Stdout).await.trim_ascii(), b"1048576");
        let given = session.process(json!({"argv": ["cat"], "stdin": "given"})).await;
        assert_eq!(given.all(OutputStream::Stdout).await, b"given");
    });
}

#[test]
fn a_ring_keeps_the_end_and_counts_what_it_drops() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let flood =
            session.process(json!({"command": "seq 1 100000; echo end >&2", "keep_output": 8192})).await;
        let ended = flood.ended().await;
        let all: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
        assert_eq!(ended.stdout.written, all.len() as u64);
        assert_eq!(ended.stdout.dropped, all.len() as u64 - 4096);
        let page = server.http().get(&flood.path("/output?cursor=10&max=8192")).await.expect(200);
        assert_eq!(page["truncated"], true);
        assert_eq!(page["missing"].as_u64(), Some(all.len() as u64 - 4096 - 10));
        assert_eq!(page["data"].as_str(), Some(&all[all.len() - 4096..]));
        assert_eq!(flood.all(OutputStream::Stderr).await, b"end\n");
    });
}

/// Several viewers, one of them from the middle on, one that only watches; and a terminal, written to and resized.
#[test]
fn a_process_is_attached_to_by_many() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let process = session
            .process(json!({"argv": ["bash", "--norc", "-c", "stty -echo; echo ready; while read line; do echo \"<$line>\"; stty size; done"], "pty": {"cols": 100, "rows": 30}}))
            .await;
        process.says("ready").await;
        let client = session.client();
        let mut first = client
            .attach_process(&session.id, &process.id, AttachOptions { cursor: Some(0), ..Default::default() })
            .await
            .expect("attached");
        let mut watcher = client
            .attach_process(
                &session.id,
                &process.id,
                AttachOptions { cursor: Some(7), read_only: true, ..Default::default() },
            )
            .await
            .expect("attached");
        watcher.write("refused\n").await.expect("sent");
        first.resize(80, 25).await.expect("resized");
        first.write("hello\n").await.expect("sent");
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("25 80") {
            if let Attached::Output { offset, data, .. } =
                within("output", first.next()).await.expect("a line").expect("more")
            {
                assert_eq!(offset, seen.len() as u64);
                seen.extend_from_slice(&data);
            }
        }
        assert_eq!(String::from_utf8_lossy(&seen), "ready\r\n<hello>\r\n25 80\r\n");
        let (mut watched, mut was_refused) = (Vec::new(), false);
        while watched.len() < seen.len() - 7 || !was_refused {
            match within("output", watcher.next()).await.expect("a line").expect("more") {
                Attached::Output { data, .. } => watched.extend_from_slice(&data),
                Attached::Error(_) => was_refused = true,
                _ => {}
            }
        }
        assert_eq!(watched, seen[7..]);
        first.signal("KILL").await.expect("sent");
        let end = loop {
            match within("the end", first.next()).await.expect("a line") {
                Some(Attached::Exit(process)) => break process,
                Some(_) => {}
                None => panic!("the line ended without the process's end"),
            }
        };
        assert_eq!(end.exit.expect("an end").signal, Some(9));
    });
}

/// The guest has the pipes and the terminals: a host that is killed takes nothing with it, loses nothing and repeats
/// nothing.
#[test]
fn processes_outlive_the_host() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let counting = session
            .process(json!({"command": "for i in $(seq 1 200000); do echo $i; done; read line; echo \"got $line\"; exit 5", "stdin": true}))
            .await;
        let terminal = session
            .process(json!({"argv": ["bash", "--norc", "-c", "stty -echo; read line; echo \"<$line>\"; sleep 1000"], "pty": {}}))
            .await;
        counting.says("1\n2\n").await;
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let counting = session.known_process(&counting.id);
        assert_eq!(counting.show().await.state, ProcessState::Running);
        counting.write("after\n").await;
        let exit = counting.ended().await.exit.expect("an end");
        assert_eq!(exit.code, 5);
        let expected: String =
            (1..=200_000).map(|number| format!("{number}\n")).collect::<String>() + "got after\n";
        assert_eq!(String::from_utf8(counting.all(OutputStream::Stdout).await).expect("text"), expected);
        let terminal = session.known_process(&terminal.id);
        terminal.write("again\n").await;
        terminal.says("<again>").await;
        // An end that is recorded is still there when the next host has forgotten it.
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        assert_eq!(session.known_process(&counting.id).show().await.exit.expect("an end").code, 5);
        session.stop().await;
        let lost = session.known_process(&terminal.id).show().await;
        assert_eq!(lost.state, ProcessState::Lost, "{lost:?}");
        session.known_process(&terminal.id).says("<again>").await;
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn an_event_stream_resumes_where_it_was_left() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let process = session.process(json!({"command": "printf 'a€b'; printf err >&2; exit 2"})).await;
        process.ended().await;
        let all = server.http().header("Accept", "text/event-stream").get(&process.path("/output")).await;
        let text = String::from_utf8(all.body).expect("text");
        assert!(text.contains("\"data\":\"a€b\"") && text.contains("id: 5."), "{text}");
        assert!(text.contains("event: exit\n") && text.contains("\"code\":2"), "{text}");
        let rest = server
            .http()
            .header("Accept", "text/event-stream")
            .header("Last-Event-ID", "4.3")
            .get(&process.path("/output"))
            .await;
        let text = String::from_utf8(rest.body).expect("text");
        assert!(text.contains("\"offset\":4,\"data\":\"b\"") && !text.contains("event: stderr"), "{text}");
        let wrong = server
            .http()
            .header("Accept", "text/event-stream")
            .header("Last-Event-ID", "x")
            .get(&process.path("/output"))
            .await;
        wrong.problem(400);
    });
}
