//! `workroom recordings` and `workroom replay`, as a person uses them.

mod recording;
mod support;

use recording::Cast;
use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};
use support::pty::Pty;
use workroom_testkit::{Server, User, for_each_user, run};

fn output(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().expect("workroom runs")
}

fn said(command: Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_recording_is_listed_played_printed_saved_and_deleted() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let script = "printf 'one\\n'; sleep 0.2; printf '\\033[1mtwo\\033[0m\\n'";
        let process = session
            .process(json!({"argv": ["sh", "-c", script], "pty": {}, "record": true, "tag": "demo"}))
            .await;
        process.ended().await;
        let (id, process) = (session.id.as_str(), process.id.as_str());
        let table = said(server.cli(&["recordings", id]));
        assert!(
            table.starts_with("PROCESS ") && table.contains(process) && table.contains("demo"),
            "{table}"
        );
        let listed: Value =
            serde_json::from_str(&said(server.cli(&["recordings", id, "--json"]))).expect("JSON");
        assert_eq!(listed["recordings"][0]["state"], "ended", "{listed}");

        let shown = "one\r\n\x1b[1mtwo\x1b[0m\r\n";
        assert_eq!(said(server.cli(&["replay", id, process, "--raw"])), shown);
        assert_eq!(said(server.cli(&["replay", id, process, "--speed", "100"])), shown);
        assert_eq!(said(server.cli(&["replay", id, process, "--idle-limit", "1ms", "--from", "1h"])), shown);
        assert_eq!(said(server.cli(&["replay", id, process, "--transcript"])), "one\ntwo\n");

        let file = user.make_dir("saved").join("demo.cast");
        let name = file.to_str().expect("a name");
        assert_eq!(said(server.cli(&["replay", id, process, "--output", name])), "");
        let saved = Cast::v3(&std::fs::read(&file).expect("saved"));
        assert_eq!(saved.output(), shown);
        let older = said(server.cli(&["replay", id, process, "--output", "-", "--format", "v2"]));
        assert_eq!(Cast::v2(older.as_bytes()).output(), shown);

        // Without a server, from the file.
        let alone = |arguments: &[&str]| {
            let mut command = user.command(user.program());
            command.env("WORKROOM_STATE", "/nonexistent").args(arguments);
            command
        };
        assert_eq!(said(alone(&["replay", name, "--raw"])), shown);
        assert_eq!(said(alone(&["replay", name, "--transcript"])), "one\ntwo\n");
        assert_eq!(said(alone(&["replay", name, "--output", "-", "--format", "v2"])), older);

        assert_eq!(said(server.cli(&["recordings", id, "--delete", process])), "");
        let gone = output(server.cli(&["replay", id, process]));
        assert_eq!(gone.status.code(), Some(125));
        let words = String::from_utf8_lossy(&gone.stderr).into_owned();
        assert!(words.contains("there is no recording of"), "{words}");
    });
}

#[test]
fn what_cannot_be_played_is_said_in_a_sentence() {
    run(async {
        let user = User::running_the_tests();
        let none = user.make_file("none.cast", "hello\n");
        let older = user.make_file("older.cast", "{\"version\": 2, \"width\": 80, \"height\": 24}\n");
        let cast = "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}}\n[0.1,\"o\",\"x\"]\nnonsense\n";
        let broken = user.make_file("broken.cast", cast);
        let cases = [
            (vec!["/nonexistent/x.cast"], "cannot be read"),
            (vec![none.to_str().expect("a name")], "this is no recording"),
            (vec![older.to_str().expect("a name")], "asciicast of version 2"),
            (vec![broken.to_str().expect("a name"), "--raw"], "line 3 of the recording is not an event"),
            (vec![broken.to_str().expect("a name"), "--speed", "0"], "cannot be played at 0 times"),
            (vec![broken.to_str().expect("a name"), "--from", "soon"], "soon"),
        ];
        for (arguments, words) in cases {
            let mut command = user.command(user.program());
            command.arg("replay").args(&arguments);
            let ended = output(command);
            let sentence = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert_eq!(ended.status.code(), Some(125), "{sentence}");
            assert!(sentence.starts_with("workroom: ") && sentence.contains(words), "{sentence}");
        }
    });
}

/// A recording that asks the terminal questions, hides its cursor and goes to its other screen.
#[test]
fn a_terminal_is_given_back_as_it_was_and_its_answers_are_nobodys_input() {
    run(async {
        let user = User::running_the_tests();
        let cast = "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}}\n\
                    [0.1,\"o\",\"\\u001b[?1049h\\u001b[?25lASKED\\u001b[6n\"]\n[600.0,\"o\",\"never\"]\n";
        let file = user.make_file("asking.cast", cast);
        for ends_by in ["control-C", "its end"] {
            let pty = Pty::new(24, 80);
            let before = pty.modes();
            let mut command = user.command("setsid");
            command.args(["--ctty", "--wait"]).arg(user.program()).arg("replay").arg(&file);
            if ends_by == "its end" {
                command.args(["--idle-limit", "300ms"]);
            }
            let (mut child, mut out) = pty.start(&mut command);
            out.wait_for("ASKED\x1b[6n");
            // What a terminal answers, and what a hostile recording would have typed for it.
            pty.send(b"\x1b[1;1Rrm -rf x\n");
            if ends_by == "control-C" {
                pty.send(b"\x03");
            } else {
                out.wait_for("never");
            }
            let rest = out.wait_for("\x1b[?25h");
            assert!(rest.contains("\x1b[?1049l"), "{rest:?}");
            assert!(support::wait(&mut child).success());
            let rest = out.now();
            assert!(!rest.contains("rm -rf"), "nothing of it is shown: {rest:?}");
            let after = pty.modes();
            assert_eq!(
                (after.local_modes, after.input_modes, after.output_modes),
                (before.local_modes, before.input_modes, before.output_modes),
                "{ends_by}"
            );
            assert_eq!(pty.unread(), 0, "{ends_by}: what was typed meanwhile is thrown away");
        }
    });
}
