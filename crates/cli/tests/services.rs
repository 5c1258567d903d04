//! Services of a session: ready by every kind of sign, stopped, restarted, given up, in the order that they need.

use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use workroom_testkit::client::{LogOptions, LogOutput};
use workroom_testkit::types::{OutputStream, ProcessKind, ProcessState, Service, ServiceState, StopReason};
use workroom_testkit::{Server, TestSession, User, eventually, for_each_user, run, within};

/// A server in a few words of Perl: takes connections on a port, and answers each with this status.
fn web(port: u16, status: &str) -> Value {
    let script = format!(
        "my $s = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => {port}, Listen => 5, ReuseAddr => 1) or die $!; \
         while (my $c = $s->accept) {{ while (my $l = <$c>) {{ print $l; STDOUT->flush; last if $l =~ /^\\r?$/ }} \
         print $c \"HTTP/1.0 {status}\\r\\nContent-Length: 2\\r\\n\\r\\nok\"; close $c }}"
    );
    json!(["perl", "-MIO::Socket::INET", "-MIO::Handle", "-e", script])
}

/// Something that runs until it is told to end, and then does.
const QUIET: &str = "exec sleep 1000";

#[track_caller]
fn is_up(service: &Service) {
    assert_eq!(service.state, ServiceState::Ready, "{service:?}");
    assert!(service.pid.is_some() && service.process.is_some(), "{service:?}");
    assert!(service.ready_at.is_some() && service.ready_at >= service.started_at, "{service:?}");
    assert_eq!((service.ended_at, service.exit_code, service.stop_reason), (None, None, None), "{service:?}");
}

#[track_caller]
fn failed(service: &Service, reason: StopReason) {
    assert_eq!((service.state, service.stop_reason), (ServiceState::Failed, Some(reason)), "{service:?}");
    assert!(service.pid.is_none() && service.ended_at.is_some(), "{service:?}");
}

async fn left_in_room(session: &TestSession) -> Vec<String> {
    let listed = session.client().processes(&session.id).await.expect("a list");
    listed.in_room.into_iter().filter(|one| one.state != "Z").map(|one| one.command).collect()
}

#[test]
fn a_service_is_ready_by_each_kind_of_sign() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let quick = |mut fields: Value| {
            fields["ready_interval_ms"] = json!(20);
            fields
        };
        is_up(&session.service("plain", json!({"command": QUIET})).await);
        let tcp = quick(json!({"argv": web(8001, "200 OK"), "readiness": {"tcp": 8001}}));
        is_up(&session.service("tcp", tcp).await);
        let readiness = json!({"http": {"port": 8002, "path": "/health?deep=1"}});
        is_up(
            &session
                .service("http", quick(json!({"argv": web(8002, "204 No"), "readiness": readiness})))
                .await,
        );
        // It may have answered before what it wrote has arrived.
        eventually(async || {
            let asked = session.client().service_logs(&session.id, "http", &LogOptions::default()).await;
            let asked = asked.expect("its lines").lines;
            match asked.first() {
                Some(line) if line.text == "GET /health?deep=1 HTTP/1.1" => Ok(()),
                _ => Err(format!("{asked:?}")),
            }
        })
        .await;
        let command = format!("touch /tmp/absolute sub/relative; {QUIET}");
        session.says("mkdir sub").await;
        let file = quick(json!({"command": command, "readiness": {"file": "/tmp/absolute"}}));
        is_up(&session.service("file", file).await);
        let relative =
            quick(json!({"command": QUIET, "cwd": "/workspace/sub", "readiness": {"file": "relative"}}));
        is_up(&session.service("relative", relative).await);
        let probe = quick(json!({
            "command": format!("echo $WORD > word; {QUIET}"), "env": {"WORD": "secret"},
            "readiness": {"command": "test \"$(cat word)\" = \"$WORD\""},
        }));
        is_up(&session.service("command", probe).await);

        let listed = session.client().services(&session.id).await.expect("a list").services;
        let names: Vec<&str> = listed.iter().map(|service| service.name.as_str()).collect();
        assert_eq!(names, ["command", "file", "http", "plain", "relative", "tcp"]);
        assert!(listed.iter().all(|service| service.definition.env.is_empty()), "an env is not shown");
        let kinds: Vec<String> = session.journal().await.into_iter().map(|entry| entry.kind).collect();
        assert!(!kinds.iter().any(|kind| kind == "exec.lost"), "looks are no part of the journal: {kinds:?}");
        let table = session.client().processes(&session.id).await.expect("a table").processes;
        assert!(table.iter().all(|process| process.kind == ProcessKind::Service), "{table:?}");
        assert_eq!(table.len(), 6);
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

/// What listens on the host's own loopback is nothing that a room is asked about.
#[test]
fn readiness_is_looked_for_in_the_rooms_network_and_files() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let host = std::net::TcpListener::bind("127.0.0.1:0").expect("a port of the host's");
        let port = host.local_addr().expect("its address").port();
        let file = user.make_file("on-the-host", "");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("for all to read");
        for readiness in [json!({"tcp": port}), json!({"http": {"port": port}}), json!({"file": file})] {
            let spec = json!({
                "command": QUIET, "readiness": readiness, "ready_timeout_ms": 300, "ready_interval_ms": 50,
            });
            let service = session.service("deceived", spec).await;
            failed(&service, StopReason::ReadinessTimeout);
        }
        host.set_nonblocking(true).expect("to look");
        assert!(host.accept().is_err(), "nobody has called on the host's port");
    });
}

#[test]
fn what_does_not_become_ready_has_failed() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let soon = json!({"ready_interval_ms": 20});
        let with = |fields: Value| {
            let mut all = soon.clone();
            all.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
            all
        };
        let early = session
            .service("early", with(json!({"command": "echo why; exit 7", "readiness": {"tcp": 1}})))
            .await;
        failed(&early, StopReason::ProcessExitedBeforeReady);
        assert_eq!(early.exit_code, Some(7));

        let fields = json!({"command": QUIET, "readiness": {"http": {"port": 80}}, "ready_timeout_ms": 200});
        let late = session.service("late", with(fields)).await;
        failed(&late, StopReason::ReadinessTimeout);
        assert!(late.detail.as_deref().is_some_and(|why| why.contains("port 80")), "{late:?}");
        let refusing = json!({"argv": web(81, "503 Not yet"), "readiness": {"http": {"port": 81}}, "ready_timeout_ms": 1500});
        let refusing = session.service("refusing", with(refusing)).await;
        failed(&refusing, StopReason::ReadinessTimeout);
        assert!(refusing.detail.as_deref().is_some_and(|why| why.contains("503")), "{refusing:?}");
        let slow = json!({"command": QUIET, "readiness": {"command": "sleep 1000"}, "ready_timeout_ms": 200});
        failed(&session.service("slow", with(slow)).await, StopReason::ReadinessTimeout);

        let none = session.service("none", with(json!({"argv": ["/nowhere/at/all"]}))).await;
        failed(&none, StopReason::NotStarted);
        assert!(none.detail.as_deref().is_some_and(|why| why.contains("/nowhere/at/all")), "{none:?}");
        eventually(async || match left_in_room(&session).await {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        })
        .await;
        assert_eq!(session.service_story("late").await, ["defined", "started", "failed"]);
    });
}

#[test]
fn a_service_is_stopped_and_says_what_it_took() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let polite = json!({"command": "trap 'echo bye; exit 3' TERM; setsid sleep 555 & touch polite; while :; do sleep 0.01; done", "readiness": {"file": "polite"}});
        is_up(&session.service("polite", polite).await);
        let stopped = session.stop_service("polite").await;
        assert_eq!((stopped.state, stopped.stop_reason), (ServiceState::Stopped, Some(StopReason::Sigterm)));
        assert_eq!((stopped.exit_code, stopped.pid), (Some(3), None), "{stopped:?}");

        let deaf = "trap '' TERM; setsid sleep 556 & echo deaf > deaf; while :; do sleep 0.01; done";
        let deaf = json!({"command": deaf, "stop_timeout_ms": 200, "readiness": {"file": "deaf"}, "ready_interval_ms": 20});
        is_up(&session.service("deaf", deaf).await);
        let killed = session.stop_service("deaf").await;
        assert_eq!((killed.state, killed.stop_reason), (ServiceState::Stopped, Some(StopReason::Sigkill)));
        assert_eq!(killed.exit_code, Some(137), "{killed:?}");
        assert_eq!(
            left_in_room(&session).await,
            Vec::<String>::new(),
            "all that they started is gone with them"
        );

        let again = session.stop_service("deaf").await;
        assert_eq!(again, killed, "what is stopped is");
        assert_eq!(session.service_story("polite").await, ["defined", "started", "ready", "stopped"]);
        let run = session.known_process(killed.process.as_deref().expect("a run")).show().await;
        assert_eq!((run.state, run.name.as_deref()), (ProcessState::Exited, Some("deaf")));
    });
}

#[test]
fn a_service_that_ends_is_restarted_by_its_policy() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let backoff = json!({"initial_ms": 10, "max_ms": 30, "most_restarts": 3});
        let with = |command: &str, restart: &str| json!({"command": command, "restart": restart, "backoff": backoff});

        session.service("loop", with("echo run >> runs; exit 4", "on_failure")).await;
        let given_up = session.service_is("loop", ServiceState::Failed).await;
        failed(&given_up, StopReason::CrashLoop);
        assert_eq!((given_up.exit_code, given_up.restarts), (Some(4), 3), "{given_up:?}");
        assert_eq!(session.says("wc -l < runs").await.trim(), "4", "once, and three times more");
        let waits: Vec<u64> = session
            .journal()
            .await
            .iter()
            .filter(|entry| entry.kind == "service.restarting")
            .filter_map(|entry| entry.body["in_ms"].as_u64())
            .collect();
        assert_eq!(waits, [10, 20, 30], "longer each time, up to the most");
        let logs = session.client().service_logs(&session.id, "loop", &LogOptions::default()).await;
        assert_eq!(logs.expect("lines").earlier.len(), 3, "each run is a process");

        session.service("once", with("exit 5", "never")).await;
        let exited = session.service_is("once", ServiceState::Exited).await;
        assert_eq!((exited.exit_code, exited.stop_reason, exited.restarts), (Some(5), None, 0));
        session.service("done", with("exit 0", "on_failure")).await;
        assert_eq!(session.service_is("done", ServiceState::Exited).await.exit_code, Some(0));
        session.service("ever", with("exit 0", "always")).await;
        failed(&session.service_is("ever", ServiceState::Failed).await, StopReason::CrashLoop);

        // Ready at its third try: the call waits for that.
        let mut third = with(
            "echo try >> tries; test $(wc -l < tries) -ge 3 || exit 1; touch third; exec sleep 1000",
            "on_failure",
        );
        third["readiness"] = json!({"file": "third"});
        third["ready_interval_ms"] = json!(20);
        let third = session.service("third", third).await;
        is_up(&third);
        assert_eq!(third.restarts, 2);
        let story = session.service_story("third").await;
        let expected = ["defined", "started", "restarting", "started", "restarting", "started", "ready"];
        assert_eq!(story, expected);

        // Started by somebody, counting begins anew.
        session.known_process(third.process.as_deref().expect("a run")).signal("KILL").await;
        eventually(async || match session.known_service("third").await {
            service if service.restarts == 3 && service.state == ServiceState::Ready => Ok(()),
            service => Err(format!("{service:?}")),
        })
        .await;
        let restarted =
            within("a restart", session.client().restart_service(&session.id, "third", true)).await;
        let restarted = restarted.expect("restarted");
        is_up(&restarted);
        assert_eq!(restarted.restarts, 0);
        assert_ne!(restarted.process, third.process);
    });
}

/// Also one that ends before its start is told.
#[test]
fn what_a_service_left_running_ends_with_it() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let leaves = "setsid sleep 100 >/dev/null 2>&1 & echo $! > /tmp/alive";
        for turn in 0..40 {
            let name = format!("s{turn}");
            session.service(&name, json!({"argv": ["/bin/sh", "-c", leaves], "restart": "never"})).await;
            session.service_is(&name, ServiceState::Exited).await;
            assert_eq!(left_in_room(&session).await, Vec::<String>::new(), "turn {turn}");
        }
    });
}

#[test]
fn services_start_after_those_that_they_depend_on() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let unknown = session.refuses_service("web", json!({"command": QUIET, "depends_on": ["db"]})).await;
        assert!(unknown.status == 400 && unknown.detail.contains("db"), "{unknown}");
        let slow = |name: &str, after: &[&str]| {
            json!({
                "command": format!("sleep 0.1; touch {name}-ready; exec sleep 1000"), "depends_on": after,
                "readiness": {"file": format!("{name}-ready")}, "ready_interval_ms": 20,
            })
        };
        is_up(&session.service("db", slow("db", &[])).await);
        is_up(&session.service("cache", slow("cache", &["db"])).await);
        is_up(&session.service("web", slow("web", &["db", "cache"])).await);
        for (name, depends_on, way) in [("db", json!(["web"]), "db → web → db"), ("x", json!(["x"]), "x → x")]
        {
            let refused =
                session.refuses_service(name, json!({"command": QUIET, "depends_on": depends_on})).await;
            assert!(refused.status == 400 && refused.detail.contains(way), "{refused}");
        }

        let refused = server.http().post(&session.path("/services/db/stop")).await;
        let words = refused.text();
        assert_eq!(refused.problem(409), "busy");
        assert!(words.contains("cache") && words.contains("web"), "{words}");
        assert_eq!(server.http().delete(&session.path("/services/cache")).await.problem(409), "busy");
        server.http().post(&session.path("/services/db/stop?cascade=1")).await.expect(200);
        let ended: Vec<String> = session
            .journal()
            .await
            .iter()
            .filter(|entry| entry.kind == "service.stopped")
            .filter_map(|entry| Some(entry.body["name"].as_str()?.to_owned()))
            .collect();
        assert_eq!(ended, ["web", "cache", "db"], "those that need others first");

        session.says("rm *-ready").await;
        is_up(&session.start_service("web").await);
        let story: Vec<(String, String)> = session
            .journal()
            .await
            .iter()
            .filter(|entry| matches!(entry.kind.as_str(), "service.started" | "service.ready"))
            .map(|entry| (entry.kind.clone(), entry.body["name"].as_str().unwrap_or_default().to_owned()))
            .collect();
        let last: Vec<(&str, &str)> =
            story[story.len() - 6..].iter().map(|(kind, name)| (kind.as_str(), name.as_str())).collect();
        let expected =
            ["db", "cache", "web"].map(|name| [("service.started", name), ("service.ready", name)]);
        assert_eq!(last, expected.concat(), "each when the one before is ready");

        session.service("broken", json!({"command": "exit 1", "readiness": {"tcp": 1}})).await;
        let spared =
            session.service("spared", json!({"command": "touch spared", "depends_on": ["broken"]})).await;
        failed(&spared, StopReason::DependencyFailed);
        assert!(spared.detail.as_deref().is_some_and(|why| why.contains("broken")), "{spared:?}");
        assert_eq!(session.sh("test -e spared").await.exit_code, 1, "it was not started");
        // One that does its work and ends is no obstacle.
        session.service("migrate", json!({"command": "echo done > migrated"})).await;
        let after = json!({"command": "cat migrated && exec sleep 1000", "depends_on": ["migrate"]});
        is_up(&session.service("after", after).await);
    });
}

#[test]
fn names_duplicates_and_definitions_are_checked() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let put = async |name: &str| {
            let path = session.path(&format!("/services/{name}"));
            server.http().json(&json!({"command": QUIET})).put(&path).await
        };
        let long = "x".repeat(65);
        for (name, why) in [
            ("-web", "begins with '-'"),
            ("a%20b", "' '"),
            ("a%2fb", "'/'"),
            ("caf%C3%A9", "'é'"),
            (long.as_str(), "65 characters"),
        ] {
            let refused = put(name).await;
            assert!(refused.text().contains(why), "{name}: {}", refused.text());
            refused.problem(400);
            server.http().get(&session.path(&format!("/services/{name}"))).await.problem(400);
        }
        assert_eq!(put("Web.1_a-b").await.expect(201)["state"], "ready");
        assert_eq!(put("Web.1_a-b").await.problem(409), "already_exists");
        session.stop_service("Web.1_a-b").await;
        assert_eq!(put("Web.1_a-b").await.expect(200)["state"], "ready");
        for wrong in [
            json!({}),
            json!({"command": "x", "argv": ["x"]}),
            json!({"command": "x", "readiness": {"tcp": 0}}),
            json!({"command": "x", "readiness": {"tcp": 65536}}),
            json!({"command": "x", "readiness": {"tcp": 1, "file": "x"}}),
            json!({"command": "x", "readiness": {"udp": 1}}),
            json!({"command": "x", "readiness": {"http": {"port": 80, "path": "no-slash"}}}),
            json!({"command": "x", "readiness": {"http": {"port": 80, "path": "/a b"}}}),
            json!({"command": "x", "readiness": {"http": {"port": 80, "path": "/\r\nX: y"}}}),
            json!({"command": "x", "readiness": {"file": ""}}),
            json!({"command": "x", "restart": "sometimes"}),
            json!({"command": "x", "backoff": {"factor": 0.5}}),
            json!({"command": "x", "backoff": {"initial_ms": 0}}),
            json!({"command": "x", "ready_timeout_ms": 0}),
            json!({"command": "x", "ready_interval_ms": 1}),
            json!({"command": "x", "stop_timeout_ms": 86_400_001}),
            json!({"command": "x", "cwd": "relative"}),
            json!({"command": "x", "keep_output": 1}),
            json!({"command": "x", "depends_on": ["a b"]}),
            json!({"command": "x", "tpyo": 1}),
        ] {
            let refused = server.http().json(&wrong).put(&session.path("/services/wrong")).await;
            assert_eq!(refused.status, 400, "{wrong}: {}", refused.text());
        }
        assert_eq!(server.http().get(&session.path("/services/wrong")).await.problem(404), "not_found");
        server.http().delete(&session.path("/services/wrong")).await.expect(204);
        server.http().delete(&session.path("/services/Web.1_a-b")).await.expect(204);
        server.http().get(&session.path("/services/Web.1_a-b")).await.problem(404);
        assert_eq!(left_in_room(&session).await, Vec::<String>::new());
        let repeated = async |key: &'static str| {
            let http = server.http().key(key).json(&json!({"command": "echo x >> count; exec sleep 1000"}));
            http.put(&session.path("/services/keyed")).await
        };
        let first = repeated("k1").await.expect(201);
        assert_eq!(repeated("k1").await.expect(201), first, "under its key it is the same answer");
    });
}

#[test]
fn what_a_service_writes_is_read_as_lines() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let command = "for i in $(seq 1 300); do echo line $i; done; echo oops >&2; printf half; touch up; \
                       while [ ! -e go ]; do sleep 0.02; done; echo ' whole'; exit 6";
        let spec = json!({"command": command, "readiness": {"file": "up"}, "ready_interval_ms": 20});
        is_up(&session.service("talker", spec).await);
        let logs = async |options: LogOptions| {
            let read = session.client().service_logs(&session.id, "talker", &options);
            within("lines", read).await.expect("lines")
        };
        let texts = |lines: &[workroom_testkit::types::LogLine], stream: OutputStream| {
            let of = lines.iter().filter(|line| line.stream == stream);
            of.map(|line| line.text.clone()).collect::<Vec<String>>()
        };
        let all = logs(LogOptions { cursor: Some("0.0".into()), ..LogOptions::default() }).await;
        let expected: Vec<String> = (1..=300).map(|number| format!("line {number}")).collect();
        assert_eq!(texts(&all.lines, OutputStream::Stdout), expected, "what has no end yet is no line");
        assert_eq!(texts(&all.lines, OutputStream::Stderr), ["oops"]);
        assert!(!all.end && all.missing == 0 && all.earlier.is_empty());
        let usual = logs(LogOptions::default()).await;
        // The beginning of a line that is not there yet is one of the hundred.
        assert_eq!(texts(&usual.lines, OutputStream::Stdout), expected[201..], "the last hundred");
        let tail = logs(LogOptions { tail: Some(3), cursor: None }).await;
        assert_eq!(texts(&tail.lines, OutputStream::Stdout), ["line 299", "line 300"]);

        let follow = session.client().follow_service(
            &session.id,
            "talker",
            &LogOptions { tail: Some(2), cursor: None },
        );
        let mut follow = within("a stream", follow).await.expect("a stream");
        session.says("touch go").await;
        let (mut text, mut end) = (String::new(), None);
        while let Some(said) = within("more", follow.next()).await.expect("more") {
            match said {
                LogOutput::Output { stream: OutputStream::Stdout, text: more } => text.push_str(&more),
                LogOutput::Output { .. } => {}
                LogOutput::Exit(process) => {
                    end = process.exit;
                    break;
                }
            }
        }
        assert_eq!(text, "line 300\nhalf whole\n");
        assert_eq!(end.expect("an end").code, 6);
        let rest = logs(LogOptions { cursor: Some(all.cursor), ..LogOptions::default() }).await;
        assert_eq!(texts(&rest.lines, OutputStream::Stdout), ["half whole"]);
        assert!(rest.end && rest.lines.len() == 1, "{rest:?}");
        assert_eq!(server.http().get(&session.path("/services/talker/logs?cursor=x")).await.status, 400);
        assert_eq!(server.http().get(&session.path("/services/talker/logs?tail=99999")).await.status, 400);
        let events = server.http().get(&session.path("/services/talker/logs?tail=1&follow=1")).await;
        assert_eq!(events.header("content-type"), Some("text/event-stream"));
        assert!(events.text().contains("event: exit"), "{}", events.text());
    });
}
