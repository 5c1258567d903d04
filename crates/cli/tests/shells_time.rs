//! The end of a command's time in a stateful shell: the command goes, the shell and its earlier jobs stay.

use serde_json::json;
use workroom_testkit::types::{ShellState, UpdateSession};
use workroom_testkit::{Server, TestSession, User, eventually, for_each_user, run};

/// What still runs in the room, by its command line.
async fn in_room(session: &TestSession) -> Vec<String> {
    let listed = session.client().processes(&session.id).await.expect("a table");
    listed.in_room.into_iter().filter(|one| one.state != "Z").map(|one| one.command).collect()
}

/// Waits until nothing of this command line runs: what was killed is there for a moment more.
async fn is_gone(session: &TestSession, command: &str) {
    eventually(async || {
        let left = in_room(session).await;
        if left.iter().any(|one| one == command) { Err(format!("{left:?}")) } else { Ok(()) }
    })
    .await;
}

#[test]
fn a_command_that_takes_too_long_ends_and_its_shell_does_not() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        for kind in ["bash", "sh"] {
            let shell = session.shell(json!({"shell": kind})).await;
            shell.says("kept=yes; sleep 7777 & job=$!; mkfifo -m 666 /tmp/fifo 2>/dev/null; true").await;
            for command in [
                "sleep 1000; echo never",
                "sleep 1000 | cat; echo never",
                "(while :; do :; done); echo never",
                "while :; do :; done; echo never",
                "while :; do sleep 0.01; done; echo never",
                "until false; do x=1; done; echo never",
                "x=$(sleep 1000; echo x); echo never",
                "sleep 1000 & wait; echo never",
                "eval 'while :; do eval :; done'; echo never",
                "if while :; do :; done; then echo never; fi; echo never",
                "cat < /tmp/fifo; echo never",
                "trap '' INT; sh -c 'trap \"\" INT; while :; do sleep 0.1; done'; trap - INT; echo never",
                "setsid sleep 1000; echo never",
                "kill -STOP $$; echo never",
            ] {
                let result = shell.run_within(150, &format!("echo begun; {command}")).await;
                assert_eq!((result.exit_code, result.timed_out), (124, true), "{kind} {command}: {result:?}");
                assert_eq!(result.output, "begun\n", "{kind} {command}");
                assert!(!result.shell.ended, "{kind} {command}: {result:?}");
                is_gone(&session, "sleep 1000").await;
                let left = in_room(&session).await;
                assert!(left.contains(&"sleep 7777".to_owned()), "{kind} {command}: {left:?}");
                let next = shell.run("echo $kept").await;
                assert_eq!((next.output.as_str(), next.shell.replaced), ("yes\n", false), "{kind} {command}");
            }
            assert_eq!(shell.run("kill -0 $job").await.exit_code, 0, "{kind}: its job goes on");
            session.client().remove_shell(&session.id, &shell.id).await.expect("removed");
        }
    });
}

#[test]
fn functions_are_left_too_and_traps_are_as_they_were() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let shell = session.shell(json!({})).await;
        shell
            .says(
                "f() { while :; do :; done; echo in-f; }; g() { while :; do f; echo in-g; done; }; kept=yes",
            )
            .await;
        shell.says("trap 'echo interrupted' INT; set -E").await;
        for command in [
            "f; echo never",
            "for i in 1 2; do g; echo in-for; done; echo never",
            "g | cat; echo never",
            "source /dev/stdin <<< 'while :; do :; done; echo never'; echo never",
            "case x in x) f;; esac; [[ $(f) ]]; echo never",
            "while ((1)); do ((1)); done; for ((;;)); do [[ 1 ]]; done",
        ] {
            let result = shell.run_within(150, command).await;
            assert_eq!(
                (result.exit_code, result.timed_out, result.output.as_str()),
                (124, true, ""),
                "{command}"
            );
            assert!(!result.shell.ended, "{command}: {result:?}");
            assert_eq!(shell.says("echo $kept").await, "yes\n", "{command}");
        }
        assert_eq!(
            shell.says("kill -INT $$; trap -p DEBUG; case $- in *E*) echo E;; esac").await,
            "interrupted\nE\n"
        );
    });
}

#[test]
fn a_shell_that_cannot_be_saved_is_replaced() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let shell = session.shell(json!({})).await;
        shell.says("kept=yes; sleep 7777 &").await;
        let result =
            shell.run_within(100, "echo begun; trap '' STKFLT; sleep 1000 & while :; do :; done").await;
        assert_eq!(
            (result.exit_code, result.timed_out, result.output.as_str()),
            (124, true, "begun\n"),
            "{result:?}"
        );
        assert!(result.shell.ended, "{result:?}");
        assert!(result.shell.reason.as_deref().is_some_and(|reason| reason.contains("could not be saved")));
        is_gone(&session, "sleep 1000").await;
        let left = in_room(&session).await;
        assert!(left.contains(&"sleep 7777".to_owned()), "a job of an earlier command goes on: {left:?}");
        let next = shell.run("echo [$kept]").await;
        assert_eq!((next.output.as_str(), next.shell.replaced), ("[]\n", true), "{next:?}");
    });
}

#[test]
fn a_fork_bomb_ends_with_its_command() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session_like(json!({"policy": {"pids": 60}})).await;
        let shell = session.shell(json!({})).await;
        shell.says("kept=yes; sleep 7777 &").await;
        let result = shell.run_within(300, "b() { b | b & }; b; sleep 1000").await;
        assert!(result.timed_out, "{result:?}");
        let next = shell.run("echo $kept").await;
        assert_eq!((next.output.as_str(), next.shell.replaced), ("yes\n", false), "{next:?}");
        assert!(in_room(&session).await.contains(&"sleep 7777".to_owned()));
    });
}

/// An earlier command's job may start what it likes meanwhile: that is no part of the command whose time is over.
#[test]
fn what_earlier_jobs_start_is_theirs() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let shell = session.shell(json!({})).await;
        shell.says("mkfifo /workspace/go; (read x < /workspace/go; sleep 7777; echo no) &").await;
        let result = shell.run_within(300, "echo > /workspace/go; (sleep 1000 &) ; sleep 1000").await;
        assert!(result.timed_out, "{result:?}");
        let left = in_room(&session).await;
        assert!(left.contains(&"sleep 7777".to_owned()), "{left:?}");
        is_gone(&session, "sleep 1000").await;
    });
}

#[test]
fn a_command_under_way_keeps_its_session() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let shell = session.shell(json!({})).await;
        session.update(UpdateSession { idle_timeout: Some(1), ..UpdateSession::default() }).await;
        let slept = shell.run_within(20_000, "sleep 2.5; echo awake").await;
        assert_eq!((slept.output.as_str(), slept.exit_code), ("awake\n", 0), "{slept:?}");
    });
}

/// While all stands still, so does a command's time; what is asked for meanwhile is refused.
#[test]
fn a_pause_takes_nothing_of_a_commands_time() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let shell = session.shell(json!({})).await;
        shell.says("mkfifo /workspace/go").await;
        let (path, http) = (shell.path("/run"), server.http());
        let command = json!({"command": "read x < /workspace/go; echo went on", "timeout_ms": 3000});
        let running = tokio::spawn(async move { http.json(&command).post(&path).await });
        eventually(async || match shell.show().await.state {
            ShellState::Busy => Ok(()),
            state => Err(format!("{state:?}")),
        })
        .await;
        session.pause().await;
        server
            .http()
            .json(&json!({"command": "true"}))
            .post(&session.path("/shells/default/run"))
            .await
            .problem(409);
        tokio::time::sleep(std::time::Duration::from_millis(3200)).await;
        session.resume().await;
        session.sh("echo > /workspace/go").await;
        let answer = running.await.expect("an answer").expect(200);
        assert_eq!(
            (answer["output"].as_str(), answer["timed_out"].as_bool()),
            (Some("went on\n"), Some(false))
        );
    });
}
