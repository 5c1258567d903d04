//! Recordings: what a process showed, with times, sizes, markers and its end; bounded, listed, read, deleted.

mod recording;

use recording::{Cast, cast, get, recorded, stock_player, transcript};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use workroom_testkit::client::ReadRecording;
use workroom_testkit::types::{CastFormat, OutputStream, PtySize, RecordingState};
use workroom_testkit::{Server, Setup, User, eventually, for_each_user, run, within};

#[test]
fn a_terminal_is_recorded_with_sizes_markers_and_its_end() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let script =
            "stty -echo; printf 'begun \\033[32mé\\033[0m\\n'; read one; echo \"<$one>\"; read two; exit 3";
        let process = session
            .process(json!({
                "argv": ["bash", "--norc", "-c", script], "pty": {"cols": 100, "rows": 30},
                "record": true, "tag": "demo",
            }))
            .await;
        process.says("begun").await;
        let client = session.client();
        client.mark_recording(&session.id, &process.id, "the first \"marker\"\n").await.expect("marked");
        process.write("hello\n").await;
        process.says("<hello>").await;
        let smaller = PtySize { cols: Some(80), rows: Some(25) };
        client.resize_process(&session.id, &process.id, smaller).await.expect("resized");
        process.write("\n").await;
        process.ended().await;

        let bytes = get(&server, &session.path(&format!("/recordings/{}", process.id))).await;
        let whole = Cast::v3(&bytes);
        assert_eq!((&whole.header["term"]["cols"], &whole.header["term"]["rows"]), (&json!(100), &json!(30)));
        assert!(whole.header["command"].as_str().is_some_and(|command| command.contains("stty -echo")));
        assert_eq!(whole.header["title"], "demo");
        assert!(whole.header["timestamp"].as_u64().is_some_and(|time| time > 1_700_000_000));
        assert_eq!(whole.order(), "omorx", "{whole:?}");
        assert_eq!(whole.output(), "begun \x1b[32mé\x1b[0m\r\n<hello>\r\n");
        assert_eq!(whole.data("m"), ["the first \"marker\"\n"]);
        assert_eq!((whole.data("r"), whole.data("x")), (vec!["80x25"], vec!["3"]));

        let path = session.path(&format!("/recordings/{}?format=v2", process.id));
        let older = Cast::v2(&get(&server, &path).await);
        assert_eq!((&older.header["width"], &older.header["height"]), (&json!(100), &json!(30)));
        assert_eq!((older.order().as_str(), older.output()), ("omor", whole.output()));
        assert_eq!(transcript(&server, &session, &process.id).await, "begun é\n<hello>\n");

        let list = client.recordings(&session.id).await.expect("a list");
        assert_eq!(list.recordings.len(), 1, "{list:?}");
        let listed = &list.recordings[0];
        assert_eq!((listed.process.as_str(), listed.name.as_deref()), (process.id.as_str(), Some("demo")));
        assert_eq!((listed.state, listed.bytes), (RecordingState::Ended, bytes.len() as u64));
        assert_eq!((listed.cols, listed.rows, listed.missing), (80, 25, 0));
        assert_eq!(listed.events, whole.events.len() as u64);
        assert_eq!(listed.duration_ms, (whole.events.last().expect("events").0 * 1000.0) as u64);
        assert_eq!(list.bytes, listed.bytes);

        let late = server.http().json(&json!({"label": "late"}));
        late.post(&session.path(&format!("/recordings/{}/markers", process.id))).await.problem(409);

        // It stays when its process is forgotten, and goes when it is deleted.
        client.remove_process(&session.id, &process.id).await.expect("removed");
        assert_eq!(cast(&server, &session, &process.id).await, whole);
        let dir = server.state().join("recordings").join(&session.id);
        let file = dir.join(format!("{}.cast", process.id));
        let mode =
            |path: &std::path::Path| std::fs::metadata(path).expect("it is there").permissions().mode();
        assert_eq!((mode(&dir) & 0o7777, mode(&file) & 0o7777), (0o700, 0o600));
        client.delete_recording(&session.id, &process.id).await.expect("deleted");
        client.delete_recording(&session.id, &process.id).await.expect("deleted already");
        assert!(!file.exists());
        let gone = session.path(&format!("/recordings/{}", process.id));
        server.http().get(&gone).await.problem(404);
        assert_eq!(client.recordings(&session.id).await.expect("a list").recordings, []);
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_process_without_a_terminal_is_recorded_if_it_is_asked_for() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let command = "printf 'one\\ntwo \\377\\n'; printf 'err\\n' >&2; exit 4";
        let unasked = session.process(json!({"command": command})).await;
        unasked.ended().await;
        let path = |id: &str| session.path(&format!("/recordings/{id}"));
        server.http().get(&path(&unasked.id)).await.problem(404);
        let asked = session.process(json!({"command": command, "record": true})).await;
        asked.ended().await;
        let whole = cast(&server, &session, &asked.id).await;
        assert_eq!(whole.data("x"), ["4"]);
        let mut shown: Vec<String> = whole.output().split_inclusive("\r\n").map(str::to_owned).collect();
        shown.sort();
        assert_eq!(shown, ["err\r\n", "one\r\n", "two \u{fffd}\r\n"], "lines begin at the left");
        let silent = session.process(json!({"argv": ["true"], "record": true})).await;
        silent.ended().await;
        assert_eq!(cast(&server, &session, &silent.id).await.order(), "x");
        assert_eq!(transcript(&server, &session, &silent.id).await, "");
        // One that its room took with it has no status.
        let lost = session.process(json!({"command": "echo here; sleep 1000", "record": true})).await;
        lost.says("here").await;
        session.stop().await;
        let whole = cast(&server, &session, &lost.id).await;
        assert_eq!((whole.output().as_str(), whole.order().as_str()), ("here\r\n", "om"));
        assert!(whole.data("m")[0].starts_with("the process was lost: "), "{whole:?}");
        for wrong in ["/recordings/..", "/recordings/A", "/recordings/x%2Fy", "/recordings/x?format=v1"] {
            let status = server.http().get(&session.path(wrong)).await.status;
            assert!([400, 404].contains(&status), "{wrong}: {status}");
        }
    });
}

/// Where asciinema is installed it has the last word.
#[test]
fn a_stock_player_accepts_the_files() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let script = "printf '\\033]0;title\\007\\033[31m\"é\\\\\\377\\t\\001\\033[0m\\r\\n'; stty rows 20";
        let process =
            session.process(json!({"argv": ["bash", "-c", script], "pty": {}, "record": true})).await;
        process.ended().await;
        let shown = cast(&server, &session, &process.id).await.output();
        for name in ["v3", "v2"] {
            let path = session.path(&format!("/recordings/{}?format={name}", process.id));
            let file = user.make_file(&format!("{}.{name}.cast", process.id), get(&server, &path).await);
            match stock_player(&file) {
                // It sets the size of the terminal first.
                Some(played) => {
                    assert!(played.trim_end().ends_with(shown.trim_end()), "{name}: {played:?}, {shown:?}")
                }
                None => println!("there is no stock player for {name} here"),
            }
        }
    });
}

/// What is typed at a prompt that shows nothing is in no recording, unless that was asked for.
#[test]
fn what_is_typed_is_not_recorded_unless_told() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        for is_asked_for in [false, true] {
            let mut request = json!({
                "argv": ["bash", "--norc", "-c", "read -rsp 'Password: ' word; echo; echo ${#word} letters"],
                "pty": {}, "record": true,
            });
            if is_asked_for {
                request["record_input"] = json!(true);
            }
            let process = session.process(request).await;
            process.says("Password: ").await;
            process.write("open sesame\n").await;
            process.ended().await;
            let file =
                server.state().join("recordings").join(&session.id).join(format!("{}.cast", process.id));
            let whole = cast(&server, &session, &process.id).await;
            assert!(whole.output().contains("11 letters"), "{whole:?}");
            let bytes = std::fs::read_to_string(file).expect("the recording");
            assert_eq!(bytes.contains("open sesame"), is_asked_for, "{bytes}");
            let typed: &[&str] = if is_asked_for { &["open sesame\n"] } else { &[] };
            assert_eq!(whole.data("i"), typed);
            let order = if is_asked_for { "oiox" } else { "ox" };
            assert_eq!(whole.order(), order, "input is before what it is answered with: {whole:?}");
        }
        let refused = json!({"command": "true", "record": false, "record_input": true});
        server.http().json(&refused).post(&session.path("/processes")).await.problem(400);
    });
}

#[test]
fn a_recording_is_bounded_and_says_where_it_was_cut() {
    run(async {
        let user = User::running_the_tests();
        let config = "[serve.recordings]\nsize = \"64K\"\nsession_size = \"200K\"\ncount = 5\n";
        let server = Setup::of(&user).config(config).start();
        let session = server.session().await;
        let long = session.process(json!({"command": "seq 1 100000; echo over", "record": true})).await;
        assert!(long.says("over").await.ends_with("100000\nover\n"), "the process is not held up");
        long.ended().await;
        let bytes = get(&server, &session.path(&format!("/recordings/{}", long.id))).await;
        assert!(bytes.len() <= 64 << 10 && bytes.len() > 32 << 10, "{}", bytes.len());
        let whole = Cast::v3(&bytes);
        let last = whole.events.last().expect("events");
        assert_eq!(last.1, "m");
        assert!(last.2.contains("its budget of 65536 bytes is used up"), "{last:?}");
        let all: String = (1..=100_000).map(|number| format!("{number}\r\n")).collect();
        assert!(all.starts_with(&whole.output()), "what is there is the beginning of it");
        let list = session.client().recordings(&session.id).await.expect("a list");
        assert_eq!(list.recordings[0].state, RecordingState::Cut);

        // Those that ended first make room for others.
        let mut ids = vec![long.id.clone()];
        for _ in 0..4 {
            let next = session.process(json!({"command": "seq 1 100000", "record": true})).await;
            next.ended().await;
            cast(&server, &session, &next.id).await;
            ids.push(next.id);
        }
        let listed = session.client().recordings(&session.id).await.expect("a list");
        assert!(listed.bytes <= 200 << 10, "{listed:?}");
        let is_left = |id: &String| listed.recordings.iter().any(|one| one.process == *id);
        let left: Vec<bool> = ids.iter().map(is_left).collect();
        assert!(!left[0] && left[4] && left.is_sorted(), "the oldest went: {left:?}");
        for _ in 0..5 {
            session.process(json!({"command": "echo short", "record": true})).await.ended().await;
        }
        let short = session.client().recordings(&session.id).await.expect("a list");
        assert_eq!(short.recordings.len(), 5);
        assert!(short.recordings.iter().all(|one| one.command == "echo short"), "{short:?}");
        // What is being made stays; when there is nothing else that could go, it is cut.
        let mut running = Vec::new();
        for _ in 0..6 {
            running.push(session.process(json!({"command": "seq 1 5000; sleep 1000", "record": true})).await);
        }
        eventually(async || {
            let list = session.client().recordings(&session.id).await.map_err(|error| error.to_string())?;
            match list.recordings.iter().find(|one| one.state == RecordingState::Cut) {
                Some(_) => Ok(()),
                None => Err(format!("{list:?}")),
            }
        })
        .await;
        let list = session.client().recordings(&session.id).await.expect("a list");
        assert!(list.bytes < 300 << 10, "{list:?}");
        assert!(list.recordings.iter().filter(|one| one.state == RecordingState::Recording).count() >= 3);
        let cut = list.recordings.iter().find(|one| one.state == RecordingState::Cut).expect("one is cut");
        let whole = cast(&server, &session, &cut.process).await;
        assert!(whole.data("m")[0].contains("all recordings of the session take"), "{whole:?}");
    });
}

#[test]
fn a_recording_is_read_while_it_is_made_from_any_byte_on() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let process = session
            .process(json!({"command": "while read line; do echo \"é $line\"; done", "stdin": true, "record": true}))
            .await;
        let client = session.client();
        process.write("first\n").await;
        recorded(&server, &session, &process.id, "é first").await;
        let mut readers = Vec::new();
        for (format, offset) in
            [(CastFormat::V3, 0), (CastFormat::V3, 77), (CastFormat::V2, 0), (CastFormat::V2, 31)]
        {
            let wanted = ReadRecording { format, offset, follow: true };
            let reader = client.read_recording(&session.id, &process.id, wanted).await.expect("a reader");
            readers.push((format, offset, reader, Vec::new()));
        }
        for (format, offset, reader, read) in &mut readers {
            // The beginning comes at once, long before the end.
            while !String::from_utf8_lossy(read).contains("first") {
                let piece = within("a piece", reader.next()).await.expect("a piece").expect("more");
                read.extend_from_slice(&piece);
            }
            assert!(!read.is_empty(), "{format:?} from {offset}");
        }
        process.write("second\n").await;
        process.close_input().await;
        process.ended().await;
        for (format, offset, mut reader, mut read) in readers {
            while let Some(piece) = within("a piece", reader.next()).await.expect("a piece") {
                read.extend_from_slice(&piece);
            }
            let wanted = ReadRecording { format, offset: 0, follow: false };
            let mut whole = Vec::new();
            let mut reader = client.read_recording(&session.id, &process.id, wanted).await.expect("a reader");
            while let Some(piece) = within("a piece", reader.next()).await.expect("a piece") {
                whole.extend_from_slice(&piece);
            }
            assert_eq!(String::from_utf8_lossy(&read), String::from_utf8_lossy(&whole[offset as usize..]));
            let whole = if format == CastFormat::V3 { Cast::v3(&whole) } else { Cast::v2(&whole) };
            assert_eq!(whole.output(), "é first\r\né second\r\n");
        }
    });
}

#[test]
fn one_that_is_being_made_can_be_deleted_and_is_not_begun_again() {
    run(async {
        let user = User::running_the_tests();
        let mut server = Server::of(&user);
        let session = server.session().await;
        let process = session
            .process(
                json!({"command": "while read line; do echo \"$line\"; done", "stdin": true, "record": true}),
            )
            .await;
        process.write("first\n").await;
        recorded(&server, &session, &process.id, "first").await;
        session.client().delete_recording(&session.id, &process.id).await.expect("deleted");
        process.write("second\n").await;
        process.says("second").await;
        assert!(!process.show().await.record);
        let is_gone = async |server: &Server<'_>| {
            let list = server.http().get(&session.path("/recordings")).await.expect(200);
            assert_eq!(list["recordings"], json!([]), "{list}");
        };
        is_gone(&server).await;
        server.kill();
        server.restart();
        let again = workroom_testkit::TestSession::new(server.client(), session.id.clone());
        let process = again.known_process(&process.id);
        process.write("third\n").await;
        process.close_input().await;
        assert_eq!(process.all(OutputStream::Stdout).await, b"first\nsecond\nthird\n");
        is_gone(&server).await;
        assert_eq!(
            std::fs::read_dir(server.state().join("recordings").join(&session.id))
                .expect("a directory")
                .count(),
            0
        );
    });
}

#[test]
fn the_operator_says_what_is_recorded_that_does_not_say() {
    run(async {
        let user = User::running_the_tests();
        let server = Setup::of(&user).config("[serve.recordings]\nrecord = \"all\"\n").start();
        let session = server.session().await;
        let unsaid = session.process(json!({"command": "echo unsaid"})).await;
        unsaid.ended().await;
        assert_eq!(cast(&server, &session, &unsaid.id).await.output(), "unsaid\r\n");
        let not = session.process(json!({"command": "echo not", "record": false})).await;
        not.ended().await;
        server.http().get(&session.path(&format!("/recordings/{}", not.id))).await.problem(404);
    });
}
