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

