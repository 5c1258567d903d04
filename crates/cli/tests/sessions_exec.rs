//! Commands of a session: what they get, what comes of them, and what becomes of what they leave.

use serde_json::{Value, json};
use workroom_testkit::client::ExecOutput;
use workroom_testkit::types::{ExecRequest, ExecResult, Layer, LayerState};
use workroom_testkit::{
    Server, Setup, TestSession, User, as_ordinary_user, as_root, eventually, for_each_user, run,
};

fn command(fields: Value) -> ExecRequest {
    serde_json::from_value(fields).expect("a command's fields")
}

#[test]
fn a_command_gets_a_shell_a_workspace_and_nothing_of_the_server() {
    for_each_user(async |user| {
        let server = Setup::of(user).environment("WORKROOM_TEST_CANARY", "of the server").start();
        let session = server.session().await;
        assert_eq!(
            session.says("pwd; echo ${BASH_VERSION:+bash}; shopt -q login_shell || echo plain").await,
            "/workspace\nbash\nplain\n"
        );
        let login =
            session.run(json!({"command": "shopt -q login_shell && echo login", "login": true})).await;
        assert_eq!(login.stdout, "login\n", "{login:?}");
        let environment = session.says("env").await;
        assert!(!environment.contains("CANARY"), "{environment}");
        let exact = session.run(json!({"argv": ["printf", "%s|", "a b", "$HOME", ""]})).await;
        assert_eq!(exact.stdout, "a b|$HOME||");
        assert_eq!(session.says("cat; echo end").await, "end\n", "without stdin there is nothing to read");
        let elsewhere = session.run(json!({"argv": ["pwd"], "cwd": "/tmp"})).await;
        assert_eq!(elsewhere.stdout, "/tmp\n");
        let both = session.sh("echo out; echo err >&2; exit 7").await;
        assert_eq!((both.exit_code, both.stdout.as_str(), both.stderr.as_str()), (7, "out\n", "err\n"));
        assert_eq!((both.stdout_bytes, both.stderr_bytes, both.signal), (4, 4, None));
        let killed = session.sh("kill -9 $$").await;
        assert_eq!((killed.exit_code, killed.signal), (137, Some(9)));
        let busy = session.sh("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done").await;
        assert!(busy.cpu_ms > 0 && busy.peak_memory > 0 && busy.duration_ms >= busy.cpu_ms / 2, "{busy:?}");
    });
}

#[test]
fn stdin_keeps_every_byte() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let text = session.run(json!({"argv": ["cat"], "stdin": "ä\n\u{0}\"\\"})).await;
        assert_eq!(text.stdout, "ä\n\u{0}\"\\");
        // 0 to 255, as base64 has them.
        let all = session.run(json!({"argv": ["sh", "-c", "for i in $(seq 0 255); do printf \"\\\\$(printf %03o $i)\"; done"], "encoding": "base64"})).await;
        assert_eq!((all.stdout_bytes, all.lossy), (256, false));
        let back = session.run(json!({"argv": ["cat"], "stdin": all.stdout, "stdin_encoding": "base64", "encoding": "base64"})).await;
        assert_eq!((&back.stdout, back.stdout_bytes), (&all.stdout, 256));
        let lossy = session.run(json!({"argv": ["cat"], "stdin": "Yf9i", "stdin_encoding": "base64"})).await;
        assert_eq!((lossy.stdout.as_str(), lossy.lossy, lossy.stdout_bytes), ("a\u{fffd}b", true, 3));
        let large = "x".repeat(3 << 20);
        let counted = session.run(json!({"argv": ["wc", "-c"], "stdin": large})).await;
        assert_eq!(counted.stdout.trim(), large.len().to_string());
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let mut wrong = vec![
            (json!({}), "invalid_argument"),
            (json!({"command": "a", "argv": ["a"]}), "invalid_argument"),
            (json!({"argv": []}), "invalid_argument"),
            (json!({"command": "a\u{0}b"}), "invalid_argument"),
            (json!({"command": "true", "cwd": "relative"}), "invalid_argument"),
            (json!({"command": "true", "cwd": "/nowhere"}), "invalid_argument"),
            (json!({"command": "true", "timeout_ms": 0}), "invalid_argument"),
            (json!({"command": "true", "timeout_ms": 1u64 << 40}), "invalid_argument"),
            (json!({"command": "true", "max_output": 1u64 << 40}), "invalid_argument"),
            (json!({"command": "true", "stdin": "?", "stdin_encoding": "base64"}), "invalid_argument"),
            (json!({"command": "true", "user": "nobody"}), "invalid_argument"),
            (json!({"command": "true", "colour": "red"}), "invalid_argument"),
            (json!({"command": "x".repeat(200_000)}), "invalid_argument"),
            (json!({"argv": ["no-such-program"]}), "command_not_found"),
            (json!({"argv": ["/etc/passwd"]}), "command_not_executable"),
        ];
        for name in ["", "1A", "A-B", "A=B", "A B", "ä", "A\n", &"x".repeat(65)] {
            wrong.push((json!({"command": "true", "env": {name: "x"}}), "invalid_argument"));
        }
        for (fields, code) in wrong {
            let answer = server.http().json(&fields).post(&session.path("/exec")).await;
            assert_eq!(answer.problem(400), code, "{fields}");
            // A stream may have begun when it turns out; then it says so itself.
            let streamed = server.http().header("Accept", "text/event-stream").json(&fields);
            let streamed = streamed.post(&session.path("/exec")).await.text();
            assert!(streamed.contains(&format!("\"code\":\"{code}\"")), "{fields}: {streamed}");
        }
        let longest = "x".repeat(64);
        let told = session.run(json!({"command": format!("echo $_A1 ${longest} $PATH"), "env": {"_A1": "a=b", &longest: "y", "PATH": "/usr/bin:/bin"}})).await;
        assert_eq!(told.stdout, "a=b y /usr/bin:/bin\n");
    });
}

#[test]
fn root_of_the_room_is_there_where_the_server_is_root() {
    as_root(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let root =
            session.run(json!({"command": "id -u; touch /etc/mine && rm /etc/mine", "user": "root"})).await;
        assert_eq!((root.stdout.as_str(), root.exit_code), ("0\n", 0), "{root:?}");
        assert_ne!(session.says("id -u").await, "0\n");
    });
    as_ordinary_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let fields = json!({"command": "id", "user": "root"});
        assert_eq!(
            server.http().json(&fields).post(&session.path("/exec")).await.problem(400),
            "invalid_argument"
        );
    });
}

async fn running(session: &TestSession) -> Vec<String> {
    let list = session.client().processes(&session.id).await.expect("a list").in_room;
    list.into_iter().filter(|process| process.state != "Z").map(|process| process.command).collect()
}

#[test]
fn a_time_out_kills_the_whole_tree_of_its_command_and_nothing_else() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.says("setsid -f sleep 1001").await;
        let tree = "echo begun; echo so far >&2; setsid -f sleep 1002; (setsid sh -c 'setsid sleep 1003 & exec sleep 1004' &) ; \
                    nohup sh -c 'trap \"\" TERM; while :; do sleep 1005; done' >/dev/null 2>&1 & sleep 1006";
        let ended = session.run(json!({"command": tree, "timeout_ms": 400})).await;
        assert_eq!((ended.exit_code, ended.timed_out, ended.signal), (124, true, None));
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("begun\n", "so far\n"));
        assert!(ended.duration_ms >= 400, "{ended:?}");
        let left: Vec<String> =
            running(&session).await.into_iter().filter(|command| command.contains("sleep")).collect();
        assert_eq!(left, ["sleep 1001"], "what another command left goes on");
        let finished = session.event("exec.finished").await;
        assert_eq!(finished.body["timed_out"], false);
        let all = session.journal().await;
        let last = all.last().expect("an entry");
        assert_eq!((&last.body["timed_out"], &last.body["exit_code"]), (&json!(true), &json!(124)));
    });
}

#[test]
fn what_a_command_leaves_running_is_listed_and_holds_nobody_up() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        // It keeps the pipes, and is not waited for.
        assert_eq!(session.says("sleep 1001 & echo left").await, "left\n");
        // Its shell has gone on before it became what it is now.
        let sleeper = async || {
            let list = session.client().processes(&session.id).await.expect("a list").in_room;
            list.into_iter()
                .find(|process| process.command == "sleep 1001")
                .ok_or("it is not listed".to_owned())
        };
        eventually(async || sleeper().await.map(drop)).await;
        let sleeper = sleeper().await.expect("it is listed");
        assert!(sleeper.pid > 1 && sleeper.memory > 0, "{sleeper:?}");
        assert_eq!(session.says(&format!("kill {} && echo gone", sleeper.pid)).await, "gone\n");
        settle_listed(&session).await;
    });
}

async fn settle_listed(session: &TestSession) {
    eventually(async || match running(session).await {
        left if left.iter().any(|command| command.contains("sleep")) => Err(format!("{left:?}")),
        _ => Ok(()),
    })
    .await;
}

#[test]
fn long_output_keeps_both_ends_and_says_how_much_is_missing() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let cut = session.run(json!({"command": "seq 10000; echo short >&2", "max_output": 100})).await;
        assert!(
            cut.truncated && cut.stdout.starts_with("1\n2\n3\n") && cut.stdout.ends_with("9999\n10000\n")
        );
        assert_eq!((cut.stdout_bytes, cut.stderr.as_str()), (48894, "short\n"));
        assert!(cut.stdout.contains("48794 bytes are missing"), "{}", cut.stdout);
        let flood =
            session.run(json!({"command": "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end"})).await;
        assert_eq!((flood.stdout_bytes, flood.truncated), (20_000_005, true));
        assert!(flood.stdout.ends_with("x\nend\n") && flood.stdout.len() < (1 << 20) + 100);
        let whole = session.run(json!({"command": "head -c 1048576 /dev/zero | tr '\\0' x"})).await;
        assert_eq!((whole.stdout.len(), whole.truncated), (1 << 20, false));
        let nothing = session.run(json!({"command": "echo 12345", "max_output": 0})).await;
        assert!(nothing.truncated && nothing.stdout_bytes == 6, "{nothing:?}");
    });
}

#[test]
fn commands_of_one_session_run_side_by_side_in_one_order_of_record() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        // Each waits for the other: one after the other they would never end.
        let meet = |own: &str, other: &str| {
            let script = format!("touch {own}; until [ -e {other} ]; do sleep 0.01; done; echo {own}");
            (session.client().clone(), session.id.clone(), command(json!({"command": script})))
        };
        let pairs = [meet("a", "b"), meet("b", "a")].map(|(client, id, request)| {
            tokio::spawn(async move { client.exec(&id, &request).await.expect("it ran").stdout })
        });
        let [a, b] = pairs;
        assert_eq!((a.await.expect("a"), b.await.expect("b")), ("a\n".to_owned(), "b\n".to_owned()));
        let many: Vec<_> = (0..30)
            .map(|number| {
                let (client, id) = (server.client(), session.id.clone());
                let request = command(json!({"argv": ["echo", number.to_string()]}));
                tokio::spawn(async move { client.exec(&id, &request).await.expect("it ran").stdout })
            })
            .collect();
        for (number, one) in many.into_iter().enumerate() {
            assert_eq!(one.await.expect("an answer"), format!("{number}\n"));
        }
        let journal = session.journal().await;
        assert!(journal.iter().zip(1..).all(|(entry, seq)| entry.seq == seq), "one order, without a gap");
        assert!(journal.is_sorted_by_key(|entry| entry.position));
        assert_eq!(journal.iter().filter(|entry| entry.kind == "exec.finished").count(), 32);
        assert_eq!(session.show().await.counters.execs, 32);
    });
}

async fn streamed(session: &TestSession, request: &ExecRequest) -> ([Vec<u8>; 2], ExecResult) {
    let mut stream = session.client().exec_stream(&session.id, request).await.expect("a stream");
    let mut output = [Vec::new(), Vec::new()];
    loop {
        let next = workroom_testkit::within("output", stream.next()).await.expect("output");
        let (place, chunk) = match next.expect("an exit at the end") {
            ExecOutput::Stdout(chunk) => (0, chunk),
            ExecOutput::Stderr(chunk) => (1, chunk),
            ExecOutput::Exit(result) => return (output, *result),
        };
        assert_eq!((chunk.offset, chunk.missing), (output[place].len() as u64, 0), "nothing is skipped");
        output[place].extend(chunk.data);
    }
}

#[test]
fn a_stream_carries_what_the_plain_answer_has() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        for fields in [
            json!({"command": "for i in 1 2 3; do echo $i; echo e$i >&2; sleep 0.02; done; exit 3"}),
            json!({"command": "seq 30000; printf 'ä\\377ö'", "encoding": "base64"}),
            json!({"command": "seq 30000; printf 'äöü'"}),
            json!({"command": "echo so far; sleep 1000", "timeout_ms": 200}),
            json!({"command": "true"}),
        ] {
            let request = command(fields.clone());
            let plain = session.exec(request.clone()).await;
            let ([stdout, stderr], end) = streamed(&session, &request).await;
            let same = |result: &ExecResult| {
                let ExecResult { exit_code, signal, timed_out, oom_killed, truncated, lossy, .. } = *result;
                let bytes = (result.stdout_bytes, result.stderr_bytes);
                let text = (result.stdout.clone(), result.stderr.clone());
                (exit_code, signal, timed_out, oom_killed, truncated, lossy, bytes, text)
            };
            assert_eq!(same(&end), same(&plain), "{fields}");
            assert_eq!((stdout.len() as u64, stderr.len() as u64), (plain.stdout_bytes, plain.stderr_bytes));
            if request.encoding.is_none() {
                assert_eq!(
                    (String::from_utf8(stdout), String::from_utf8(stderr)),
                    (Ok(plain.stdout), Ok(plain.stderr))
                );
            }
        }
        // On the wire: as it comes, not when it is over.
        let ask = server
            .http()
            .header("Accept", "text/event-stream")
            .json(&json!({"command": "echo first; until [ -e go ]; do sleep 0.01; done; echo second"}));
        let mut wire = ask.open("POST", &session.path("/exec")).await;
        let early = wire.until("first").await;
        assert!(
            early.to_lowercase().contains("content-type: text/event-stream") && !early.contains("second"),
            "{early}"
        );
        session.says("touch go").await;
        assert!(wire.until("event: exit").await.contains("second"));
    });
}

#[test]
fn a_client_that_goes_away_kills_nothing() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        for (accept, name) in [("application/json", "plain"), ("text/event-stream", "streamed")] {
            let script = format!(
                "echo begun; touch {name}-begun; until [ -e {name}-go ]; do sleep 0.01; done; echo on; touch {name}-done"
            );
            let ask = server.http().header("Accept", accept).json(&json!({"command": script}));
            let connection = ask.open("POST", &session.path("/exec")).await;
            server.await_file(&session, &format!("{name}-begun"));
            drop(connection);
            session.says(&format!("touch {name}-go")).await;
            server.await_file(&session, &format!("{name}-done"));
        }
        let ended = async || {
            let ends = session.journal().await.into_iter().filter(|entry| entry.kind == "exec.finished");
            match ends.count() {
                4 => Ok(()),
                other => Err(format!("{other} ends are on record")),
            }
        };
        eventually(ended).await;
    });
}

#[test]
fn a_command_whose_room_ends_is_told_so() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let (client, id) = (server.client(), session.id.clone());
        let request = command(json!({"command": "touch begun; sleep 1000", "timeout_ms": 100_000}));
        let caller = tokio::spawn(async move { client.exec(&id, &request).await });
        server.await_file(&session, "begun");
        session.stop().await;
        let told = caller.await.expect("an answer").expect_err("the room is gone");
        assert_eq!(told.code(), "room_gone", "{told}");
        assert_eq!(session.event("exec.lost").await.body["command"], "touch begun; sleep 1000");
    });
}

#[test]
fn a_command_that_takes_too_much_memory_is_told_so() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session_like(json!({"policy": {"memory": 48 << 20}})).await;
        let enforced = session.show().await.enforced;
        let limited = enforced
            .0
            .iter()
            .any(|(layer, state)| *layer == Layer::Memory && matches!(state, LayerState::Enforced(_)));
        if !limited {
            println!("skipped: memory is not limited here");
            return;
        }
        session.says("setsid -f sleep 1000").await;
        let ended = session
            .sh("echo begun; head -c 400000000 /dev/zero | tail -c 399999999 | wc -c; exit ${PIPESTATUS[1]}")
            .await;
        assert!(ended.oom_killed && ended.exit_code != 0 && ended.stdout.starts_with("begun\n"), "{ended:?}");
        let fine = session.sh("echo on").await;
        assert_eq!((fine.stdout.as_str(), fine.oom_killed), ("on\n", false), "the room goes on");
    });
}

#[test]
fn the_configuration_sets_what_a_command_may_have() {
    run(async {
        let user = User::running_the_tests();
        let server = Setup::of(&user)
            .config("[serve.exec]\ntimeout = \"300ms\"\nlongest_timeout = \"20s\"\noutput = \"10\"\nlargest_output = \"20\"\nconcurrent = 2")
            .start();
        let session = server.session().await;
        assert!(session.sh("sleep 1000").await.timed_out);
        assert!(!session.run(json!({"command": "sleep 0.4", "timeout_ms": 10_000})).await.timed_out);
        assert!(session.sh("echo 12345678901").await.truncated);
        assert!(!session.run(json!({"command": "echo 12345678901", "max_output": 20})).await.truncated);
        for over in
            [json!({"command": "true", "timeout_ms": 20_001}), json!({"command": "true", "max_output": 21})]
        {
            server.http().json(&over).post(&session.path("/exec")).await.problem(400);
        }
        let waits = |name: &str| {
            let script = format!("touch {name}; sleep 1000");
            let ask = server.http().json(&json!({"command": script, "timeout_ms": 20_000}));
            tokio::spawn(ask.send("POST", &session.path("/exec")))
        };
        let two = [waits("one"), waits("two")];
        server.await_file(&session, "one");
        server.await_file(&session, "two");
        let third = server.http().json(&json!({"command": "true"})).post(&session.path("/exec")).await;
        assert_eq!(
            (third.problem(429).as_str(), &third.json()["limit"]),
            ("limit_exceeded", &json!("concurrent"))
        );
        assert!(third.header("retry-after").is_some());
        session.stop().await;
        for one in two {
            assert_eq!(one.await.expect("an answer").problem(410), "room_gone");
        }
    });
}

/// How often a room's bell was rung: the count of its guest's first eventfd.
fn rings(guest: i32) -> u64 {
    let count = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let text = std::fs::read_to_string(entry.path()).ok()?;
        let hex = text.lines().find_map(|line| line.strip_prefix("eventfd-count:"))?.trim().to_owned();
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, u64::from_str_radix(&hex, 16).ok()?))
    };
    let descriptors = std::fs::read_dir(format!("/proc/{guest}/fdinfo")).expect("the guest's descriptors");
    descriptors.filter_map(count).min().expect("its bell").1
}

/// Time on a processor, in hundredths of a second.
fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().expect("ticks")).sum()
}

#[test]
fn a_room_is_woken_for_a_command_before_that_is_asked_for_and_sleeps_afterwards() {
    for_each_user(async |user| {
        for setting in ["always", "never"] {
            let config = format!("[serve]\nstay_awake = \"{setting}\"");
            let mut server = Setup::of(user).config(&config).start();
            let session = server.session().await;
            let guest = server
                .room_processes()
                .into_iter()
                .map(|process| process.pid)
                .find(|pid| {
                    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "guest\n")
                })
                .expect("the room's guest");
            for number in 0..20 {
                let command = format!("echo {number}; (sleep 1; echo late) & exit {number}");
                let result = session.sh(&command).await;
                assert_eq!(
                    (result.exit_code, result.stdout.as_str()),
                    (number, format!("{number}\n").as_str())
                );
            }
            // Longer than anybody stays awake, several at once, and one that closes its output long before it ends.
            let slow = "exec >&- 2>&-; sleep 0.1; exit 7";
            let (one, two, three) =
                tokio::join!(session.sh(slow), session.sh("sleep 0.05; echo two"), session.sh("echo three"));
            assert_eq!((one.exit_code, two.stdout.as_str(), three.stdout.as_str()), (7, "two\n", "three\n"));
            let process = session.process(json!({"command": "echo from a process"})).await;
            process.says("from a process").await;
            let rung = rings(guest);
            assert_eq!(rung, if setting == "always" { 24 } else { 0 });
            // A paused room is left alone, and a room that was found again still has its bell.
            session.pause().await;
            session.refuses(command(json!({"command": "true"}))).await;
            session.resume().await;
            server.kill();
            server.restart();
            let session = TestSession::new(server.client(), session.id);
            assert_eq!(session.says("echo again").await, "again\n");
            assert_eq!(rings(guest) > rung, setting == "always");
            // Nobody is awake who has nothing to do.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            let used = |server: &Server<'_>| ticks(guest) + ticks(server.pid());
            let before = used(&server);
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            assert!(used(&server) - before < 25, "{} ticks of 50", used(&server) - before);
            session.delete().await;
        }
    });
}
