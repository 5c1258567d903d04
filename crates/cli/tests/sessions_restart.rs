//! Callers that wait while the server is killed and another is started: they get what the room has done, once.

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Duration;
use workroom_testkit::client::{Client, ClientError, ExecOutput};
use workroom_testkit::types::{ExecRequest, ExecResult};
use workroom_testkit::{Server, TestSession, User, for_each_user, run, within};

/// Says something, waits to be let on, and says more.
const HALVES: &str = "echo run >> /workspace/runs; echo first; touch /workspace/begun; \
                      until [ -e /workspace/go ]; do sleep 0.01; done; echo second; exit 7";

/// The same where an exit would be the shell's own.
const HALVES_IN_A_SHELL: &str = "echo run >> /workspace/runs; echo first; touch /workspace/begun; \
                                 until [ -e /workspace/go ]; do sleep 0.01; done; echo second; (exit 7)";

fn start(server: &Server<'_>, words: &[&str]) -> Child {
    let mut command = server.cli(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program")
}

#[test]
fn verbs_that_wait_outlive_their_server() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let verbs: [&[&str]; 5] = [
            &["exec", "S", "--json", "-c", HALVES],
            &["exec", "S", "-c", HALVES],
            &["sh", "S", "--json", "--", HALVES_IN_A_SHELL],
            &["sh", "S", "--", HALVES_IN_A_SHELL],
            &["logs", "S", "P", "--follow"],
        ];
        for verb in verbs {
            let session = server.session().await;
            let process = match verb[0] {
                "logs" => session.process(json!({"command": HALVES})).await.show().await.id,
                _ => String::new(),
            };
            let meant = |&word: &&'static str| match word {
                "S" => session.id.clone(),
                "P" => process.clone(),
                word => word.to_owned(),
            };
            let words: Vec<String> = verb.iter().map(meant).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let mut caller = start(&server, &words);
            server.await_file(&session, "begun");
            let mut out = String::new();
            if verb[0] == "logs" {
                // It has asked once, and asks again or is about to.
                let mut first = [0; 6];
                caller.stdout.as_mut().expect("stdout").read_exact(&mut first).expect("a line");
                out.push_str(std::str::from_utf8(&first).expect("text"));
            }
            server.kill();
            server.restart();
            let again = TestSession::new(server.client(), session.id.clone());
            again.says("touch go").await;
            let done = caller.wait_with_output().expect("its end");
            out.push_str(&String::from_utf8_lossy(&done.stdout));
            let said = match serde_json::from_str::<Value>(&out) {
                Ok(result) => result.get("stdout").unwrap_or(&result["output"]).as_str().unwrap_or("").into(),
                Err(_) => out,
            };
            let words = String::from_utf8_lossy(&done.stderr);
            let status = if verb[0] == "logs" { 0 } else { 7 };
            assert_eq!(
                (done.status.code(), said.as_str()),
                (Some(status), "first\nsecond\n"),
                "{verb:?}: {words}"
            );
            assert_eq!(again.says("cat runs").await, "run\n", "{verb:?}");
            again.delete().await;
        }
    });
}

fn command(request: Value) -> ExecRequest {
    serde_json::from_value(request).expect("a command")
}

/// The server takes what it is asked, and is killed before it says a word.
#[test]
fn what_was_asked_and_never_answered_is_asked_again() {
    run(async {
        let user = User::running_the_tests();
        let mut server = Server::of(&user);
        let session = server.session().await;
        let (id, client) = (session.id.clone(), server.local_client());
        let process = session.process(json!({"command": "until [ -e go ]; do sleep 0.01; done"})).await;
        let process = process.show().await.id;
        for kept in [true, false] {
            let client = || match kept {
                true => client.clone(),
                false => server.local_client(),
            };
            // A connection of an earlier call, which is taken for the next.
            client().session(&id).await.expect("the session");
            let stop = Pid::from_raw(server.pid()).expect("a server");
            rustix::process::kill_process(stop, Signal::STOP).expect("stopped");
            let whole = tokio::spawn({
                let (client, id) = (client(), id.clone());
                async move { client.exec(&id, &command(json!({"command": "echo whole >> whole"}))).await }
            });
            let streamed = tokio::spawn({
                let (client, id) = (server.local_client(), id.clone());
                async move {
                    let request = command(json!({"command": "echo streamed >> streamed; echo out"}));
                    seen(&client, &id, &request).await
                }
            });
            let waited = tokio::spawn({
                let (client, id, process) = (server.local_client(), id.clone(), process.clone());
                async move { client.wait_for_process(&id, &process, Duration::from_millis(50)).await }
            });
            // Long enough for all of them to have asked.
            tokio::time::sleep(Duration::from_millis(500)).await;
            server.kill();
            server.restart();
            assert_eq!(within("a result", whole).await.expect("no panic").expect("a result").exit_code, 0);
            let (out, result) = within("output", streamed).await.expect("no panic").expect("output");
            assert_eq!((String::from_utf8_lossy(&out).as_ref(), result.exit_code), ("out\n", 0));
            within("a process", waited).await.expect("no panic").expect("a process");
        }
        let again = TestSession::new(server.client(), id);
        assert_eq!(again.says("cat whole streamed").await, "whole\nwhole\nstreamed\nstreamed\n");
    });
}

async fn seen(
    client: &Client,
    id: &str,
    request: &ExecRequest,
) -> Result<(Vec<u8>, ExecResult), ClientError> {
    let mut stream = client.exec_stream(id, request).await?;
    let mut out = Vec::new();
    loop {
        match stream.next().await?.expect("an end") {
            ExecOutput::Stdout(chunk) => out.extend(chunk.data),
            ExecOutput::Stderr(_) => {}
            ExecOutput::Exit(result) => return Ok((out, *result)),
        }
    }
}

/// Killed at any moment of a command's life: it is answered, or it is said that nothing is known of it, and it was run
/// no more than once.
#[test]
fn a_server_that_is_killed_at_any_moment_loses_no_caller() {
    run(async {
        let user = User::running_the_tests();
        let mut server = Server::of(&user);
        let session = server.session().await;
        let id = session.id.clone();
        for round in 0..8u64 {
            let client = server.local_client();
            client.session(&id).await.expect("the session");
            let request = command(json!({"command": format!("echo run >> runs-{round}; echo out")}));
            let caller = tokio::spawn({
                let id = id.clone();
                async move {
                    match round % 2 {
                        0 => client.exec(&id, &request).await.map(|result| result.stdout.into_bytes()),
                        _ => seen(&client, &id, &request).await.map(|(out, _)| out),
                    }
                }
            });
            tokio::time::sleep(Duration::from_millis(round * round)).await;
            server.restart();
            let told = within("an answer", caller).await.expect("no panic");
            let again = TestSession::new(server.client(), id.clone());
            let runs = again.says(&format!("cat runs-{round} 2>/dev/null || :")).await;
            match told {
                Ok(out) => assert_eq!((out.as_slice(), runs.as_str()), (&b"out\n"[..], "run\n"), "{round}"),
                Err(error) => {
                    assert_eq!(error.code(), "outcome_unknown", "round {round}: {error}");
                    assert!(runs.is_empty() || runs == "run\n", "round {round}: {runs}");
                }
            }
        }
    });
}

#[test]
fn without_a_server_nothing_is_waited_for() {
    run(async {
        let user = User::running_the_tests();
        let mut server = Server::of(&user);
        let session = server.session().await;
        server.kill();
        for verb in
            [&["exec", session.id.as_str(), "-c", "true"][..], &["ls"], &["sh", &session.id, "--", "true"]]
        {
            let done = start(&server, verb).wait_with_output().expect("its end");
            let words = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(125), "{verb:?}");
            assert!(words.contains("no server is running") && words.contains("workroom serve"), "{words}");
        }
    });
}
