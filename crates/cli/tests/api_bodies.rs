//! What a body must say and what it must not: fields that are missing are called so, and nothing is passed over in silence.

use serde_json::json;
use workroom_testkit::{Server, User, run};

#[test]
fn what_is_missing_is_called_missing() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let at = |rest: &str| session.path(rest);
        for (method, path, body, field) in [
            ("PUT", "/v1/pools/p".to_owned(), json!({}), "max"),
            ("POST", "/v1/pools/p/acquire".to_owned(), json!({}), "trajectory"),
            ("POST", at("/merge"), json!({}), "from"),
            ("POST", at("/files/edit"), json!({}), "path"),
            ("POST", at("/files/edit"), json!({"path": "f"}), "old"),
            ("POST", at("/files/mkdir"), json!({}), "path"),
            ("POST", at("/files/move"), json!({"from": "f"}), "to"),
            ("POST", at("/files/copy"), json!({"to": "f"}), "from"),
            ("POST", at("/files/search"), json!({}), "pattern"),
            ("POST", at("/files/patch"), json!({}), "patch"),
            ("POST", at("/shells/default/run"), json!({}), "command"),
            ("POST", at("/recordings/p/markers"), json!({}), "label"),
            ("POST", at("/ports"), json!({}), "port"),
        ] {
            let refused = server.http().json(&body).send(method, &path).await;
            assert_eq!(refused.problem(400), "invalid_argument", "{method} {path}");
            assert!(
                refused.text().contains(&format!("missing field `{field}`")),
                "{method} {path}: {refused:?}"
            );
        }
        // What has a default may still be left out.
        server.http().json(&json!({"max": 1})).put("/v1/pools/p").await.expect(201);
        server.http().json(&json!({"pattern": "x"})).post(&at("/files/search")).await.expect(200);
        server.http().json(&json!({"path": "d"})).post(&at("/files/mkdir")).await.expect(201);
        server.http().json(&json!({"command": "true"})).post(&at("/shells/default/run")).await.expect(200);
    });
}

#[test]
fn a_body_that_means_nothing_says_nothing() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let at = |rest: &str| session.path(rest);
        server.http().json(&json!({"port": 8080})).post(&at("/ports")).await.expect(201);
        for path in [
            at("/start"),
            at("/pause"),
            at("/resume"),
            at("/stop"),
            at("/ports/8080/ticket"),
            at("/services/web/start"),
            at("/services/web/stop"),
            at("/services/web/restart"),
            "/v1/gc".to_owned(),
            at("/baseline"),
        ] {
            for wrong in ["{", "no JSON", "[]", "7", "{\"colour\": \"red\"}"] {
                let refused =
                    server.http().header("Content-Type", "application/json").body(wrong).post(&path).await;
                assert_eq!(refused.problem(400), "invalid_argument", "{path}: {wrong}");
            }
            let json = || server.http().header("Content-Type", "application/json");
            // A baseline is set once.
            let bodies = if path.ends_with("/baseline") { vec!["{}"] } else { vec!["{}", "", "\n"] };
            for fine in bodies {
                let answer = json().body(fine).post(&path).await;
                assert!(!path.contains("/services/") || answer.status == 404, "{path}: {answer:?}");
                assert!(path.contains("/services/") || answer.status < 300, "{path}: {answer:?}");
            }
        }
        server.http().post(&at("/start")).await.expect(200);
    });
}

#[test]
fn a_journal_is_a_stream_or_json_and_nothing_else() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        for path in ["/v1/events".to_owned(), session.path("/events")] {
            for neither in ["text/html", "application/xml, image/*", "text/event-stream;q=0"] {
                let refused = server.http().header("Accept", neither).get(&path).await;
                assert_eq!(refused.problem(406), "not_acceptable", "{path}: {neither}");
            }
            for page in ["application/json", "application/*", "application/json, */*;q=0.1"] {
                let answer = server.http().header("Accept", page).get(&path).await;
                assert!(answer.expect(200)["entries"].is_array(), "{path}: {page}");
            }
            for stream in ["text/event-stream", "text/*", "*/*"] {
                let mut reading = server.http().header("Accept", stream).open("GET", &path).await;
                reading.until("retry: 1000").await;
            }
        }
        let watch = session.path("/watch");
        let refused = server.http().header("Accept", "text/html").get(&watch).await;
        assert_eq!(refused.problem(406), "not_acceptable");
    });
}
