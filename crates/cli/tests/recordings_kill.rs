//! Recordings when the host is killed: each goes on where it stopped, and no byte is lost or there twice.

mod recording;

use recording::{cast, recorded, transcript};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use workroom_testkit::types::{OutputStream, PtySize, RecordingState};
use workroom_testkit::{Server, TestSession, eventually, for_each_user, settle};

fn file_of(server: &Server<'_>, session: &TestSession, process: &str) -> PathBuf {
    server.state().join("recordings").join(&session.id).join(format!("{process}.cast"))
}

/// Characters of several bytes, and bytes that are none: what is cut between two of them is put together again.
const COUNTING: &str = "for round in $(seq 1 60); do \
      for i in $(seq 1 100); do printf '%s.%s é 界 🦀 \\377\\347\\225 \\n' $round $i; done; sleep 0.02; \
    done; printf 'over \\360\\237'";

#[test]
fn the_whole_output_is_there_once_however_often_the_host_is_killed() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let mut session = server.session().await;
        let piped = session.process(json!({"command": COUNTING, "record": true})).await.id;
        let shown = session.process(json!({"command": COUNTING, "pty": {}, "record": true})).await.id;
        for round in [2, 9, 20, 31, 45] {
            let wanted = format!("\n{round}.1 ");
            recorded(&server, &session, &piped, &wanted).await;
            recorded(&server, &session, &shown, &wanted).await;
            server.kill();
            // What a host leaves that is killed in the middle of a write: events without a checkpoint behind them.
            let mut file = std::fs::OpenOptions::new()
                .append(true)
                .open(file_of(&server, &session, &piped))
                .expect("the recording");
            file.write_all(b"[0.1, \"o\", \"TORN\"]\n[0.2, \"o\", \"TORN half of").expect("written");
            server.restart();
            session = TestSession::new(server.client(), session.id.clone());
        }
        for (id, has_terminal) in [(&piped, false), (&shown, true)] {
            let process = session.known_process(id);
            assert_eq!(process.ended().await.exit.expect("an end").code, 0);
            let written = process.all(OutputStream::Stdout).await;
            let mut expected = String::from_utf8_lossy(&written).into_owned();
            assert!(expected.starts_with("1.1 é 界 🦀 \u{fffd}\u{fffd} ") && expected.contains("60.100 "));
            if !has_terminal {
                expected = expected.replace('\n', "\r\n");
            }
            let whole = cast(&server, &session, id).await;
            assert!(whole.output() == expected, "{} bytes and {}", whole.output().len(), expected.len());
            assert_eq!(whole.data("x"), ["0"]);
            assert!(whole.events.is_sorted_by(|one, next| one.0 <= next.0));
            let mut text = expected.replace("\r\n", "\n");
            text.push('\n');
            assert!(transcript(&server, &session, id).await == text);
        }
        let list = session.client().recordings(&session.id).await.expect("a list");
        for recording in list.recordings {
            assert_eq!((recording.state, recording.missing), (RecordingState::Ended, 0), "{recording:?}");
            let file =
                std::fs::metadata(file_of(&server, &session, &recording.process)).expect("the recording");
            assert_eq!(recording.bytes, file.len());
        }
    });
}

/// A character whose first bytes came before the host was killed, and the last ones after.
#[test]
fn a_character_that_is_half_written_when_the_host_is_killed_is_whole() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let command = "printf 'a\\360\\237'; read go; printf '\\246\\200b'; read go; printf '\\303\\n'";
        let request = json!({"command": command, "stdin": true, "record": true});
        let process = session.process(request).await.id;
        recorded(&server, &session, &process, "a").await;
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        session.known_process(&process).write("\n").await;
        recorded(&server, &session, &process, "a🦀b").await;
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        session.known_process(&process).write("\n").await;
        session.known_process(&process).ended().await;
        assert_eq!(cast(&server, &session, &process).await.output(), "a🦀b\u{fffd}\r\n");
    });
}

/// What happens while there is no host is in the recording all the same.
#[test]
fn an_end_that_nobody_saw_is_recorded() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let ending = session
            .process(json!({"command": "echo before; sleep 0.3; echo after; exit 7", "record": true}))
            .await;
        let staying = session
            .process(json!({
                "argv": ["bash", "--norc", "-c", "stty -echo; echo ready; read x; stty size"],
                "pty": {"cols": 90, "rows": 20}, "record": true,
            }))
            .await;
        let lost = session.process(json!({"command": "echo here; sleep 1000", "record": true})).await;
        staying.says("ready").await;
        lost.says("here").await;
        recorded(&server, &session, &ending.id, "before").await;
        let client = session.client();
        let larger = PtySize { cols: Some(132), rows: Some(50) };
        client.resize_process(&session.id, &staying.id, larger).await.expect("resized");
        session.event("process.started").await;
        eventually(async || match cast(&server, &session, &staying.id).await.data("r") {
            sizes if sizes == ["132x50"] => Ok(()),
            sizes => Err(format!("{sizes:?}")),
        })
        .await;
        server.kill();
        let ring = server.state().join("output").join(&session.id).join(&ending.id);
        settle(|| {
            let ring = std::fs::read(&ring).map_err(|error| error.to_string())?;
            match ring.windows(6).any(|window| window == b"after\n") {
                true => Ok(()),
                false => Err("it has not ended".into()),
            }
        });
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        session.known_process(&ending.id).ended().await;
        let whole = cast(&server, &session, &ending.id).await;
        assert_eq!((whole.output().as_str(), whole.data("x")), ("before\r\nafter\r\n", vec!["7"]));
        let staying = session.known_process(&staying.id);
        staying.write("\n").await;
        staying.ended().await;
        let whole = cast(&server, &session, &staying.id).await;
        assert_eq!(whole.data("r"), ["132x50"], "a size that is known is not told twice");
        assert_eq!(whole.output(), "ready\r\n50 132\r\n");

        // The room ends while there is no host, and the process in it.
        server.kill();
        for process in server.room_processes() {
            let pid = rustix::process::Pid::from_raw(process.pid).expect("a pid");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let whole = cast(&server, &session, &lost.id).await;
        assert_eq!((whole.output().as_str(), whole.order().as_str()), ("here\r\n", "om"));
        assert!(whole.data("m")[0].starts_with("the process was lost"), "{whole:?}");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

/// A ring that is smaller than what is written at once has dropped it before anybody could look.
#[test]
fn what_was_dropped_before_it_could_be_recorded_is_said() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let command = "read line; seq 1 20000; read line";
        let process = session
            .process(json!({"command": command, "stdin": true, "keep_output": 8192, "record": true}))
            .await;
        // Written while there is no host at all: what it had of its input is what it goes on with.
        process.write("go\n").await;
        server.kill();
        let all: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
        let ring = server.state().join("output").join(&session.id).join(&process.id);
        settle(|| {
            let ring = std::fs::read(&ring).map_err(|error| error.to_string())?;
            let written = ring.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
            if written == Some(all.len() as u64) { Ok(()) } else { Err(format!("{written:?}")) }
        });
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let process = session.known_process(&process.id);
        process.close_input().await;
        process.ended().await;
        let whole = cast(&server, &session, &process.id).await;
        let list = session.client().recordings(&session.id).await.expect("a list");
        let missing = list.recordings[0].missing;
        let shown = whole.output().replace("\r\n", "\n");
        assert_eq!(missing + shown.len() as u64, all.len() as u64, "every byte is there or counted");
        assert!(all.ends_with(&shown[shown.len() - 4000..]), "the end is there");
        assert!(
            missing > 0 && whole.data("m").iter().any(|label| label.contains("bytes of output are not here"))
        );
    });
}
