//! Services and what happens around them: a server that is killed, a session that is stopped, paused, reset, deleted.

use serde_json::{Value, json};
use workroom_testkit::types::{OutputStream, ProcessState, Service, ServiceState, SessionState, StopReason};
use workroom_testkit::{
    Server, TestSession, User, eventually, for_each_user, processes, run, settle, within,
};

const QUIET: &str = "exec sleep 1000";

async fn all(session: &TestSession) -> Vec<Service> {
    within("the services", session.client().services(&session.id)).await.expect("the services").services
}

/// What tells a run from another: its process, its number in the room, when it was ready.
fn runs(services: &[Service]) -> Vec<Value> {
    let run = |service: &Service| {
        assert_eq!(service.state, ServiceState::Ready, "{service:?}");
        json!([service.name, service.process, service.pid, service.started_at, service.ready_at])
    };
    services.iter().map(run).collect()
}

#[test]
fn services_outlive_the_host() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        for number in 1..=5 {
            let restart = ["never", "on_failure", "always"][number % 3];
            let mut spec = json!({
                "command": format!("touch up{number}; i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done"),
                "readiness": {"file": format!("up{number}")}, "ready_interval_ms": 20,
                "restart": restart,
            });
            if number > 1 {
                spec["depends_on"] = json!([format!("s{}", number - 1)]);
            }
            session.service(&format!("s{number}"), spec).await;
        }
        let before = runs(&all(&session).await);
        assert_eq!(before.len(), 5);
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        assert_eq!(runs(&all(&session).await), before, "the same runs, still ready");
        // They are kept by this server as they were by the last: output goes on, and an end is seen.
        let third = session.known_service("s3").await;
        let process = session.known_process(third.process.as_deref().expect("a run"));
        let so_far = process.show().await.stdout.written;
        eventually(async || match process.show().await.stdout.written > so_far {
            true => Ok(()),
            false => Err("nothing is written any more".into()),
        })
        .await;
        let counted = process.reads_numbers().await;
        assert!(counted.iter().zip(1..).all(|(said, number)| *said == number), "no line lost or repeated");
        let stopped = session.stop_service("s5").await;
        assert_eq!(stopped.stop_reason, Some(StopReason::Sigterm), "{stopped:?}");
        process.signal("KILL").await;
        eventually(async || match session.known_service("s3").await {
            service if service.state == ServiceState::Exited => Ok(()),
            service => Err(format!("{service:?}")),
        })
        .await;
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

/// The numbers that a process has written, a line each.
trait Numbers {
    async fn reads_numbers(&self) -> Vec<u64>;
}

impl Numbers for workroom_testkit::TestProcess<'_> {
    async fn reads_numbers(&self) -> Vec<u64> {
        let text = self.says("\n20\n").await;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole).to_owned();
        whole.lines().map(|line| line.parse().expect("a number")).collect()
    }
}

/// Kills a process of a room, as the host sees it, by a word among its arguments; returns when it is gone.
fn kill_by_word(word: &str) {
    let has_word = |pid: &i32| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    let found = || processes().into_iter().map(|process| process.pid).find(has_word);
    let pid = found().unwrap_or_else(|| panic!("nothing runs with {word}"));
    let pid = rustix::process::Pid::from_raw(pid).expect("a number");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    settle(|| if found().is_none() { Ok(()) } else { Err(format!("{word} still runs")) });
}

/// What ends while nobody looks has ended all the same, and its policy holds.
#[test]
fn a_crash_while_no_host_is_there_is_seen_by_the_next() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let words = ["kept", "left"].map(|name| format!("{name}-{}", session.id));
        let mortal = |word: &str, restart: &str| {
            let script = "echo run >> $0-runs; setsid sleep 600 & sleep 1000; :";
            json!({"argv": ["bash", "-c", script, word], "restart": restart, "backoff": {"initial_ms": 10}})
        };
        let kept = session.service("kept", mortal(&words[0], "on_failure")).await;
        session.service("left", mortal(&words[1], "never")).await;
        let spared = session.service("spared", json!({"command": QUIET})).await;
        server.kill();
        words.iter().for_each(|word| kill_by_word(word));
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let left = session.service_is("left", ServiceState::Exited).await;
        assert_eq!((left.exit_code, left.restarts), (Some(137), 0), "{left:?}");
        eventually(async || match session.known_service("kept").await {
            service if service.state == ServiceState::Ready && service.restarts == 1 => Ok(()),
            service => Err(format!("{service:?}")),
        })
        .await;
        assert_ne!(session.known_service("kept").await.process, kept.process);
        assert_eq!(session.says(&format!("cat {}-runs", words[0])).await, "run\nrun\n");
        assert_eq!(session.says(&format!("cat {}-runs", words[1])).await, "run\n");
        assert_eq!(session.known_service("spared").await, spared);
        // What they had left running went before they were started again: only the new one's is there.
        let listed = session.client().processes(&session.id).await.expect("a list").in_room;
        let left: Vec<_> =
            listed.iter().filter(|one| one.state != "Z" && one.command == "sleep 600").collect();
        assert_eq!(left.len(), 1, "{listed:?}");
    });
}

#[test]
fn services_end_with_the_room_and_come_back_with_the_next_if_they_ask_to() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let spec = |after: &[&str], autostart: bool| {
            json!({
                "command": QUIET, "depends_on": after, "autostart": autostart,
            })
        };
        session.service("db", spec(&[], true)).await;
        session.service("web", spec(&["db"], true)).await;
        session.service("transient", spec(&[], false)).await;
        session.service("unwanted", spec(&[], true)).await;
        session.stop_service("unwanted").await;
        session.service("over", json!({"command": "exit 0", "autostart": true})).await;
        session.service_is("over", ServiceState::Exited).await;
        session.stop().await;
        for name in ["db", "web", "transient"] {
            let service = session.service_is(name, ServiceState::Stopped).await;
            assert_eq!(service.stop_reason, Some(StopReason::SessionStopped), "{service:?}");
            assert!(service.ended_at.is_some() && service.pid.is_none(), "{service:?}");
        }
        assert_eq!(session.state().await, SessionState::Stopped, "no keeper starts a room");

        // Any call that needs a room brings them back, and does not wait for them.
        let came_back = async |session: &TestSession, times: usize| {
            for name in ["db", "web"] {
                session.service_is(name, ServiceState::Ready).await;
            }
            let order: Vec<String> = session
                .journal()
                .await
                .into_iter()
                .filter(|entry| matches!(entry.kind.as_str(), "service.started" | "service.ready"))
                .filter(|entry| ["db", "web"].iter().any(|name| entry.body["name"] == *name))
                .map(|entry| format!("{} {}", entry.body["name"].as_str().unwrap_or_default(), entry.kind))
                .collect();
            let once = ["db service.started", "db service.ready", "web service.started", "web service.ready"];
            assert_eq!(order, once.repeat(times), "in the order of their dependencies");
            for (name, state) in [
                ("transient", ServiceState::Stopped),
                ("unwanted", ServiceState::Stopped),
                ("over", ServiceState::Exited),
            ] {
                assert_eq!(session.known_service(name).await.state, state, "{name}");
            }
        };
        session.says("echo").await;
        came_back(&session, 2).await;

        // Also those of a server that is gone with the room, by a start as such.
        session.stop().await;
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        assert_eq!(session.known_service("db").await.state, ServiceState::Stopped);
        session.start().await;
        came_back(&session, 3).await;

        // A room that is lost, and a server that finds that out.
        let room = server.room_processes().into_iter().map(|process| process.pid).min().expect("a guest");
        server.kill();
        let guest = rustix::process::Pid::from_raw(room).expect("a number");
        rustix::process::kill_process(guest, rustix::process::Signal::KILL).expect("killed");
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let lost = session.known_service("web").await;
        assert_eq!((lost.state, lost.stop_reason), (ServiceState::Stopped, Some(StopReason::SessionStopped)));
        // One that waits to come back, and is stopped, does not.
        session.stop_service("web").await;
        session.says("echo").await;
        session.service_is("db", ServiceState::Ready).await;
        assert_eq!(session.known_service("web").await.state, ServiceState::Stopped);
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_pause_kills_nothing_and_no_time_passes_in_it() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let up = session.service("up", json!({"command": QUIET})).await;
        let spec = json!({
            "command": QUIET, "readiness": {"file": "go"}, "ready_timeout_ms": 2000, "ready_interval_ms": 20,
        });
        session.service_at_once("waits", spec).await;
        session.service_is("waits", ServiceState::Running).await;
        session.pause().await;
        // Longer than it may take to be ready.
        tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
        assert_eq!(session.known_service("waits").await.state, ServiceState::Running);
        assert_eq!(session.known_service("up").await, up);
        let refused = server.http().post(&session.path("/services/up/stop")).await;
        assert_eq!(refused.problem(409), "wrong_state");
        let refused =
            server.http().json(&json!({"command": QUIET})).put(&session.path("/services/new")).await;
        assert_eq!(refused.problem(409), "wrong_state");
        server.http().get(&session.path("/services/new")).await.problem(404);
        session.resume().await;
        session.says("touch go").await;
        let ready = session.service_is("waits", ServiceState::Ready).await;
        assert_eq!(ready.restarts, 0);
        assert_eq!(session.known_service("up").await, up, "the same run");
    });
}

#[test]
fn a_reset_brings_services_back_and_a_snapshot_changes_none() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let before = session.service("kept", json!({"command": QUIET, "autostart": true})).await;
        let other = session.service("other", json!({"command": QUIET})).await;
        within("a snapshot", session.client().take_snapshot(&session.id, &Default::default()))
            .await
            .expect("taken");
        assert_eq!(session.known_service("kept").await, before);
        assert_eq!(session.known_service("other").await, other);
        within("a reset", session.client().reset(&session.id, &Default::default())).await.expect("reset");
        eventually(async || match session.known_service("kept").await {
            service if service.state == ServiceState::Ready && service.process != before.process => Ok(()),
            service => Err(format!("{service:?}")),
        })
        .await;
        let other = session.service_is("other", ServiceState::Stopped).await;
        assert_eq!(other.stop_reason, Some(StopReason::SessionStopped));
    });
}

#[test]
fn the_command_line_defines_lists_follows_and_removes() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let id = session.id.as_str();
        let cli = |arguments: &[&str]| {
            let arguments: Vec<&str> = ["service", id].iter().chain(arguments).copied().collect();
            server.cli(&arguments).output().expect("workroom service")
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let put = cli(&[
            "put",
            "web",
            "-c",
            "echo hello; echo oops >&2; touch up; exec sleep 1000",
            "--ready-file",
            "up",
        ]);
        assert!(put.status.success() && text(&put.stdout).starts_with("web  ready"), "{put:?}");
        let file =
            user.make_file("service.toml", "command = 'exit 3'\nreadiness.tcp = 1\ndepends_on = ['web']\n");
        let failed = cli(&["put", "sick", "--file", file.to_str().expect("a path")]);
        assert_eq!(failed.status.code(), Some(1), "{failed:?}");
        assert!(text(&failed.stdout).contains("process_exited_before_ready"), "{failed:?}");
        let listed = text(&cli(&["ls"]).stdout);
        assert!(
            listed.lines().count() == 3 && listed.contains("sick") && listed.contains("ready"),
            "{listed}"
        );
        let listed: Value = serde_json::from_slice(&cli(&["ls", "--json"]).stdout).expect("JSON");
        assert_eq!(listed["services"][1]["definition"]["readiness"]["file"], "up");
        let logs = cli(&["logs", "web"]);
        assert_eq!((text(&logs.stdout), text(&logs.stderr)), ("hello\n".into(), "oops\n".into()));
        let restarted: Value =
            serde_json::from_slice(&cli(&["restart", "web", "--json"]).stdout).expect("JSON");
        assert_eq!(restarted["state"], "ready");
        assert!(text(&cli(&["show", "web"]).stdout).contains("echo hello"));
        assert!(text(&cli(&["stop", "web"]).stdout).contains("stopped  sigterm"));
        assert_eq!(cli(&["rm", "web"]).status.code(), Some(125), "another depends on it");
        assert!(cli(&["rm", "sick"]).status.success() && cli(&["rm", "web"]).status.success());
        assert_eq!(text(&cli(&["ls", "--json"]).stdout).trim(), "{\"services\":[]}");
        let nothing = session.client().processes(&session.id).await.expect("a table");
        assert!(nothing.processes.iter().all(|run| run.state == ProcessState::Exited));
        let read = session.known_process(&nothing.processes[0].id).all(OutputStream::Stdout).await;
        assert!(!read.is_empty() || nothing.processes.len() > 1, "its runs are still there");
    });
}
