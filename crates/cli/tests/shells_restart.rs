//! Stateful shells and the end of the host: a shell goes on, and no answer is taken for another's.

use serde_json::json;
use workroom_testkit::types::ShellState;
use workroom_testkit::{Server, TestSession, User, eventually, for_each_user, run};

/// Gives a shell a command, under a key, without waiting for the answer, and returns once the command runs.
async fn begin(
    server: &Server<'_>,
    session: &TestSession,
    shell: &str,
    key: &str,
    command: serde_json::Value,
) {
    let (http, path) = (server.http(), session.path(&format!("/shells/{shell}/run")));
    let key = key.to_owned();
    tokio::spawn(async move { http.key(&key).json(&command).send("POST", &path).await });
    eventually(async || match session.sh("test -e /workspace/begun").await.exit_code {
        0 => Ok(()),
        _ => Err("it has not begun".to_owned()),
    })
    .await;
}

#[test]
fn a_shell_outlives_the_host_and_an_old_command_is_no_answer_to_a_new_one() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let shell = session.shell(json!({"name": "mine"})).await;
        shell.says("kept=yes; cd /usr; mkfifo /workspace/go; f() { echo f; }").await;
        let slow = json!({"command": "touch /workspace/begun; read x < /workspace/go; echo old; false"});
        begin(&server, &session, "mine", "first", slow).await;
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let shell = session.known_shell("mine");
        // The old one is under way still; the new one waits for it.
        let (http, path) = (server.http(), shell.path("/run"));
        let new = json!({"command": "echo new $kept; f; pwd"});
        let waiting = tokio::spawn(async move { http.json(&new).post(&path).await });
        eventually(async || match shell.show().await.state {
            ShellState::Busy => Ok(()),
            state => Err(format!("{state:?}")),
        })
        .await;
        session.sh("echo > /workspace/go").await;
        let answer = waiting.await.expect("an answer").expect(200);
        assert_eq!(answer["output"].as_str(), Some("new yes\nf\n/usr\n"), "{answer}");
        assert_eq!(
            (answer["exit_code"].as_i64(), answer["cwd"].as_str()),
            (Some(0), Some("/usr")),
            "{answer}"
        );
        assert!(answer["shell"]["replaced"].is_null(), "{answer}");
        // Killed between two commands, with one's end said to nobody.
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        assert_eq!(session.known_shell("mine").says("echo $kept").await, "yes\n");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_command_that_was_under_way_can_be_asked_for_again_under_its_key() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        session.shell(json!({"name": "mine"})).await.says("mkfifo /workspace/go").await;
        let slow = json!({"command": "touch /workspace/begun; echo one; read x < /workspace/go; echo two; cd /usr; (exit 5)"});
        begin(&server, &session, "mine", "again", slow.clone()).await;
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let path = session.path("/shells/mine/run");
        let ask = || server.http().key("again").json(&slow);
        let asked = ask();
        let again = tokio::spawn({
            let path = path.clone();
            async move { asked.post(&path).await }
        });
        session.sh("echo > /workspace/go").await;
        let answer = again.await.expect("an answer").expect(200);
        assert_eq!(answer["output"].as_str(), Some("one\ntwo\n"), "{answer}");
        assert_eq!(
            (answer["exit_code"].as_i64(), answer["cwd"].as_str()),
            (Some(5), Some("/usr")),
            "{answer}"
        );
        assert_eq!(ask().post(&path).await.expect(200), answer, "and it is remembered");
        session.sh("rm /workspace/begun").await;
        // One whose end nobody heard of is not run twice.
        let quick = json!({"command": "touch /workspace/begun; read x < /workspace/go"});
        begin(&server, &session, "mine", "lost", quick.clone()).await;
        server.kill();
        session_goes_on(&mut server, &session.id).await;
        let session = TestSession::new(server.client(), session.id.clone());
        session.known_shell("mine").run("true").await;
        let lost = server.http().key("lost").json(&quick).post(&path).await;
        assert_eq!(lost.problem(409), "outcome_unknown");
    });
}

/// Lets the command that waits go on, and does not ask for its answer.
async fn session_goes_on(server: &mut Server<'_>, id: &str) {
    server.restart();
    let session = TestSession::new(server.client(), id.to_owned());
    session.sh("echo > /workspace/go").await;
}

/// The guest has the time: a command's is over although the host that gave it is gone.
#[test]
fn a_commands_time_is_over_though_its_host_is_gone() {
    run(async {
        let user = User::running_the_tests();
        let mut server = Server::of(&user);
        let session = server.session().await;
        session.shell(json!({"name": "mine"})).await.says("kept=yes").await;
        let slow = json!({"command": "touch /workspace/begun; sleep 1000", "timeout_ms": 1500});
        begin(&server, &session, "mine", "slow", slow).await;
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let next = session.known_shell("mine").run("echo $kept").await;
        assert_eq!(
            (next.output.as_str(), next.timed_out, next.shell.replaced),
            ("yes\n", false, false),
            "{next:?}"
        );
    });
}
