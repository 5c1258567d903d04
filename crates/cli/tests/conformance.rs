//! The server does what `openapi/v1.json` says, whatever is asked of it: schemathesis makes up requests that follow
//! the document and requests that break it, and judges the answers.
//!
//! Without a Python that can run it this test says so and is skipped. `WORKROOM_CONFORMANCE=skip` skips it where
//! there is one that cannot be used, as on a machine that does not reach PyPI.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use workroom_testkit::{Server, Setup, User, run};

/// What `conformance/run` exits with where it cannot run.
const NO_PYTHON: i32 = 77;
const NO_PACKAGES: i32 = 78;

#[test]
fn the_server_does_what_its_document_says() {
    if std::env::var_os("WORKROOM_CONFORMANCE").is_some_and(|choice| choice == "skip") {
        return skipped("WORKROOM_CONFORMANCE=skip");
    }
    run(async {
        let user = User::running_the_tests();
        // Nobody waits for a place for longer than schemathesis waits for an answer.
        let server = Setup::of(&user).config("[serve.quotas]\nlongest_wait = \"2s\"\n").start();
        let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/run"))
            .env("WORKROOM_URL", format!("http://{}", server.address()))
            .env("WORKROOM_TOKEN", server.token())
            .stdin(Stdio::null())
            .output()
            .expect("conformance/run");
        let (found, said) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        match output.status.code() {
            Some(0) => expect_that_it_was_really_asked(&server, &found).await,
            Some(NO_PYTHON) => skipped(said.trim()),
            Some(NO_PACKAGES) => panic!("{said}\nto go without: WORKROOM_CONFORMANCE=skip"),
            _ => panic!("{found}\n{said}"),
        }
    });
}

/// A run against the wrong thing, or without a token, would find no fault either.
async fn expect_that_it_was_really_asked(server: &Server<'_>, found: &str) {
    let document: serde_json::Value = serde_json::from_str(&workroom_server::openapi()).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let operations: usize = paths.values().filter_map(|path| path.as_object()).map(|path| path.len()).sum();
    assert!(found.contains(&format!("Tested: {operations}")), "{found}");
    let metrics = server.http().get("/metrics").await.text();
    for counter in ["workroom_sessions_created_total", "workroom_execs_started_total"] {
        let count = metrics.lines().find_map(|line| line.strip_prefix(counter)?.trim().parse().ok());
        assert!(count.is_some_and(|count: f64| count > 10.0), "{counter} is {count:?}:\n{metrics}");
    }
    let log = server.log();
    assert!(!log.contains("does not declare"), "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

/// Seen although the test passes: what tests print with macros is kept from the screen.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: the API is not tried against its document: {why}");
}
