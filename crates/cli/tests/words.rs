//! What the command line says when something is not as it was meant: the right thing, once, and in its own words.

use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use workroom_testkit::{Server, User, as_ordinary_user, eventually, for_each_user, run};

/// Status, stdout and stderr of a verb.
fn told(server: &Server<'_>, words: &[&str]) -> (Option<i32>, String, String) {
    let done = server.cli(words).stdin(Stdio::null()).output().expect("the program");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

/// What a verb says that cannot be done: one sentence, and nothing else.
#[track_caller]
fn refused(server: &Server<'_>, words: &[&str], status: i32) -> String {
    let (code, out, sentence) = told(server, words);
    assert_eq!((code, out.as_str()), (Some(status), ""), "{words:?}: {sentence}");
    assert!(sentence.starts_with("workroom: ") && sentence.lines().count() == 1, "{words:?}: {sentence}");
    sentence
}

#[test]
fn a_journal_that_is_not_there_is_not_verified() {
    as_ordinary_user(async |user| {
        let server = Server::of(user);
        let session = server.session_like(json!({"name": "build"})).await;
        let (code, out, _) = told(&server, &["journal", "verify", &session.id]);
        assert!(code == Some(0) && out.contains("of 1 session:"), "{out}");
        for name in ["build", "nope", "20261116-132701-ffffffff"] {
            let sentence = refused(&server, &["journal", "verify", name], 125);
            assert!(sentence.contains(name) && sentence.contains("whole id"), "{sentence}");
            let (code, out, _) = told(&server, &["journal", "verify", "--json", name]);
            let document: Value = serde_json::from_str(&out).expect("JSON");
            assert_eq!((code, document["error"]["code"].as_str()), (Some(125), Some("not_found")), "{out}");
        }
    });
}

#[test]
fn logs_have_both_streams_each_in_its_place() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let process = session.process(json!({"command": "echo out; echo why >&2; exit 2"})).await;
        let id = process.ended().await.id;
        let logs = |more: &[&str]| told(&server, &[&["logs", &session.id, &id], more].concat());
        let both = (Some(0), "out\n".to_owned(), "why\n".to_owned());
        assert_eq!(logs(&[]), both);
        assert_eq!(logs(&["--follow"]), both);
        assert_eq!(logs(&["--stdout"]), (Some(0), "out\n".to_owned(), String::new()));
        assert_eq!(logs(&["--stderr"]), (Some(0), String::new(), "why\n".to_owned()));
        assert_eq!(logs(&["--cursor", "1"]), (Some(0), "ut\n".to_owned(), String::new()));
        assert_eq!(logs(&["--stderr", "--cursor", "1"]), (Some(0), String::new(), "hy\n".to_owned()));
        // One that has a terminal writes to that alone.
        let process = session.process(json!({"command": "echo out; echo why >&2", "pty": {}})).await;
        let id = process.ended().await.id;
        let (code, out, err) = told(&server, &["logs", &session.id, &id, "--follow"]);
        assert_eq!((code, out.replace('\r', ""), err), (Some(0), "out\nwhy\n".to_owned(), String::new()));
    });
}

/// Others may write to the same stderr: what is said in pieces would be said between theirs.
#[test]
fn a_sentence_is_written_at_once() {
    let user = User::running_the_tests();
    let nowhere = user.make_dir("nowhere");
    for words in [&["ls"][..], &["exec", "x", "--timeout", "soon", "-c", "true"], &["no-such-verb"]] {
        let (ours, theirs) = UnixDatagram::pair().expect("a pair");
        let mut command = user.command(user.program());
        command.env("WORKROOM_STATE", &nowhere).args(words).stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.stderr(OwnedFd::from(theirs)).status().expect("the program");
        drop(command);
        assert_eq!(status.code(), Some(125), "{words:?}");
        // Each write is a message of its own.
        ours.set_nonblocking(true).expect("a socket");
        let mut buffer = [0; 4096];
        let mut messages = Vec::new();
        while let Ok(length @ 1..) = ours.recv(&mut buffer) {
            messages.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        let [sentence] = messages.as_slice() else { panic!("{words:?}: {messages:?}") };
        assert!(sentence.starts_with("workroom: ") && sentence.ends_with('\n'), "{sentence:?}");
    }
}

#[test]
fn a_number_below_zero_is_refused_by_the_option_that_it_is_for() {
    let user = User::running_the_tests();
    let table: [(&[&str], &str); 10] = [
        (&["exec", "x", "--timeout", "-5", "-c", "true"], "--timeout"),
        (&["exec", "x", "--max-output", "-5k", "-c", "true"], "--max-output"),
        (&["sh", "x", "--timeout", "-5s", "--", "true"], "--timeout"),
        (&["create", "--cpus", "-1"], "--cpus"),
        (&["create", "--memory", "-5"], "--memory"),
        (&["create", "--pids", "-5"], "--pids"),
        (&["ls", "--limit", "-1"], "--limit"),
        (&["pool", "set", "p", "--max", "-1"], "--max"),
        (&["run", "--pids", "-1", "--", "true"], "--pids"),
        (&["run", "--memory", "-1", "--", "true"], "--memory"),
    ];
    for (words, option) in table {
        let done = user.command(user.program()).args(words).output().expect("the program");
        let sentence = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(125), "{words:?}: {sentence}");
        assert!(sentence.contains(option) && !sentence.contains("unexpected"), "{words:?}: {sentence}");
    }
}

#[test]
fn hints_are_of_the_command_lines_world() {
    as_ordinary_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let id = session.id.as_str();
        let refused = |words: &[&str]| refused(&server, words, 125);
        let (code, _, sentence) = told(&server, &["exec", id, "--", "nosuchprog"]);
        assert!(code == Some(127) && sentence.contains("server's configuration"), "{sentence}");
        let sentence = refused(&["exec", id, "--max-output", "1T", "-c", "true"]);
        assert!(sentence.contains("1 TiB") && !sentence.contains("event-stream"), "{sentence}");
        let sentence = refused(&["exec", id, "--timeout", "5d", "-c", "true"]);
        assert!(sentence.contains("432000s") && sentence.contains("longest"), "{sentence}");
        for (words, verb) in [
            (&["replay", id, "nope"][..], "`workroom recordings`"),
            (&["reset", id, "--to", "nope"], "`workroom snapshot --list`"),
            (&["logs", id, "p-ffffffff"], "`workroom ps --all`"),
            (&["pool", "acquire", "none", "t"], "`workroom pool ls`"),
            (&["show", "20261116-132701-ffffffff"], "`workroom ls`"),
        ] {
            let sentence = refused(words);
            assert!(sentence.contains(verb), "{words:?}: {sentence}");
        }
        let (code, _, words) = told(&server, &["pool", "set", "p", "--max", "1"]);
        assert_eq!(code, Some(0), "{words}");
        let sentence = refused(&["pool", "acquire", "p", ""]);
        assert!(sentence.contains("empty") && !sentence.contains("leave it out"), "{sentence}");
        let (_, _, sentence) = told(&server, &["grep", "(", id]);
        assert!(sentence.contains("unclosed group") && !sentence.contains("\\n"), "{sentence}");
    });
}

#[test]
fn a_batch_that_cannot_be_done_says_so_as_other_verbs_do() {
    as_ordinary_user(async |user| {
        let server = Server::of(user);
        let file = user.make_file("batch.json", "[{\"tool\": 7}]");
        let file = file.to_str().expect("a plain path");
        let sentence = refused(&server, &["batch", file], 125);
        assert!(sentence.contains("no list of items"), "{sentence}");
        let (code, out, _) = told(&server, &["batch", "--json", file]);
        let document: Value = serde_json::from_str(&out).expect("JSON");
        assert!(code == Some(125) && document["error"]["detail"].is_string(), "{out}");
    });
}

#[test]
fn the_log_tells_of_rooms_that_end_by_themselves_and_of_those_that_are_taken_up() {
    run(async {
        let user = User::running_the_tests();
        let mut server = Server::of(&user);
        let [kept, lost] = [server.session().await, server.session().await];
        server.end_room_of(&lost.id);
        let log_has = async |server: &Server<'_>, id: &str, words: &str| {
            eventually(async || {
                let log = server.log();
                match log.lines().any(|line| line.contains(words) && line.contains(id)) {
                    true => Ok(()),
                    false => Err(log),
                }
            })
            .await;
        };
        log_has(&server, &lost.id, "a room ended by itself").await;
        server.restart();
        log_has(&server, &kept.id, "its room is taken up again").await;
    });
}
