//! Everything that changes something takes an `Idempotency-Key`: each operation of the document, and what is easily done
//! twice.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use workroom_testkit::types::OutputStream;
use workroom_testkit::{Http, Response, Server, User, for_each_user, run};

const REPLAYED: &str = "idempotency-replayed";

/// What is no GET and remembers nothing: what only reads, and what would keep a hash of a secret.
const WITHOUT: [&str; 6] =
    ["disk_use", "search_files", "set_secret", "set_session_secret", "stat_file", "wait_for_terminal"];

/// A request as the document's example has it, of a session and a pool that there are not: what is refused is remembered
/// too.
fn example(http: Http, path: &str, operation: &Value) -> (Http, String) {
    let mut path = path.replace("{id}", "20260131-120000-0a1b2c3d").replace("{port}", "8080");
    for name in ["path", "name", "alias", "process", "terminal", "shell"] {
        path = path.replace(&format!("{{{name}}}"), "thing");
    }
    let content = &operation["requestBody"]["content"];
    let http = match &content["application/json"]["example"] {
        Value::Null if content["multipart/form-data"].is_object() => {
            let form =
                "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\nx\r\n--x--\r\n";
            http.header("Content-Type", "multipart/form-data; boundary=x").body(form)
        }
        Value::Null if content.is_null() => http,
        Value::Null => http.header("Content-Type", "application/octet-stream").body("bytes"),
        example => http.json(example),
    };
    (http, path)
}

#[test]
fn every_operation_that_changes_something_is_done_once_under_a_key() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let document = server.http().get("/v1/openapi.json").await.expect(200);
        let (mut without, mut asked) = (BTreeSet::new(), 0);
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                let id = operation["operationId"].as_str().expect("an id");
                let parameters = operation["parameters"].as_array();
                if !parameters.is_some_and(|all| all.iter().any(|one| one["name"] == "Idempotency-Key")) {
                    if method != "get" {
                        without.insert(id.to_owned());
                    }
                    continue;
                }
                let ask = async || {
                    let (http, path) = example(server.http().key(id), path, operation);
                    http.send(&method.to_uppercase(), &path).await
                };
                let (first, again) = (ask().await, ask().await);
                assert!(first.status < 500 && first.status != 429, "{id}: {first:?}");
                assert_eq!(first.header(REPLAYED), None, "{id}: {first:?}");
                assert_eq!(again.header(REPLAYED), Some("true"), "{id} forgets: {first:?}, {again:?}");
                assert_eq!(again.status, first.status, "{id}: {first:?}, {again:?}");
                asked += 1;
            }
        }
        assert_eq!(without, WITHOUT.map(str::to_owned).into());
        assert!(asked >= 60, "{asked}");
    });
}

async fn thrice(http: impl Fn() -> Http, method: &str, path: &str) -> Response {
    let first = http().send(method, path).await;
    for _ in 0..2 {
        let again = http().send(method, path).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{method} {path}");
        assert_eq!(again.header(REPLAYED), Some("true"), "{method} {path}: {again:?}");
    }
    first
}

#[test]
fn one_signal_under_one_key_is_caught_once() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let loops = "n=0; trap 'n=$((n+1)); echo caught $n' USR1; echo ready; \
                     until [ -e over ]; do sleep 0.01; done; echo in all $n";
        let process = session.process(json!({"command": loops})).await;
        process.says("ready").await;
        let signal = json!({"signal": "USR1"});
        let send = |key: &'static str| {
            let (http, signal) = (server.http(), signal.clone());
            move || http.clone().key(key).json(&signal)
        };
        thrice(send("one"), "POST", &process.path("/signal")).await.expect(204);
        process.says("caught 1").await;
        thrice(send("two"), "POST", &process.path("/signal")).await.expect(204);
        process.says("caught 2").await;
        session.says("touch over").await;
        process.ended().await;
        assert_eq!(process.all(OutputStream::Stdout).await, b"ready\ncaught 1\ncaught 2\nin all 2\n");

        let terminal = session.terminal(json!({"name": "t"})).await;
        terminal.types("trap 'echo got-it' USR1").await;
        thrice(send("three"), "POST", &terminal.path("/signal")).await.expect(204);
        terminal.types("").await;
        terminal.matches("^got-it").await;
        terminal.types("echo o\"\"ver").await;
        let shown = terminal.matches("^over").await;
        assert_eq!(shown.text.iter().filter(|row| row.starts_with("got-it")).count(), 1, "{shown:?}");
    });
}

#[test]
fn removing_what_is_gone_succeeds_and_keys_are_remembered() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let keyed = |key: &'static str| {
            let http = server.http();
            move || http.clone().key(key)
        };
        let process = session.process(json!({"command": "sleep 1000"})).await;
        thrice(keyed("process"), "DELETE", &process.path("")).await.expect(204);
        server.http().delete(&process.path("")).await.expect(204);
        let removed = session.journal().await.into_iter().filter(|entry| entry.kind == "process.removed");
        assert_eq!(removed.count(), 1);
        server.http().delete(&session.path("/processes/never-was")).await.expect(204);
        server.http().delete("/v1/sessions/20260131-120000-0a1b2c3d/processes/p").await.problem(404);

        let made = server.http().json(&json!({"name": "sh"})).post(&session.path("/shells")).await;
        made.expect(201);
        thrice(keyed("shell"), "DELETE", &session.path("/shells/sh")).await.expect(204);
        server.http().delete(&session.path("/shells/sh")).await.expect(204);
        assert_eq!(server.http().get(&session.path("/shells")).await.expect(200)["shells"], json!([]));

        let terminal = session.terminal(json!({"name": "t"})).await;
        let closed = thrice(keyed("close"), "DELETE", &terminal.path("")).await.expect(200);
        assert_eq!(server.http().delete(&terminal.path("")).await.expect(200)["ended_by"], "itself");
        let record = closed["process"]["id"].as_str().expect("an id");
        server.http().delete(&session.path(&format!("/processes/{record}"))).await.expect(204);
        server.http().delete(&terminal.path("")).await.expect(204);
        let plain = session.process(json!({"command": "sleep 1000"})).await;
        server.http().delete(&session.path(&format!("/terminals/{}", plain.id))).await.problem(404);
    });
}

#[test]
fn one_link_under_one_key() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        server.http().json(&json!({"port": 8080})).post(&session.path("/ports")).await.expect(201);
        let ask = |key: &'static str| {
            let http = server.http();
            move || http.clone().key(key)
        };
        let path = session.path("/ports/8080/ticket");
        let first = thrice(ask("one"), "POST", &path).await;
        assert_eq!(first.header("cache-control"), Some("no-store"));
        let other = thrice(ask("two"), "POST", &path).await;
        assert_ne!(first.expect(201)["url"], other.expect(201)["url"]);
        thrice(ask("off"), "DELETE", &session.path("/ports/8080")).await.expect(204);
    });
}

#[test]
fn a_slot_is_acquired_once_under_a_key() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        server.http().json(&json!({"max": 2})).put("/v1/pools/p").await.expect(201);
        let ask = || server.http().key("k").json(&json!({"trajectory": "t"}));
        let lease = thrice(ask, "POST", "/v1/pools/p/acquire").await.expect(200);
        assert!(lease["session"].is_object() || lease["session"].is_string(), "{lease}");
        server.http().json(&json!({"trajectory": "t"})).post("/v1/pools/p/release").await.expect(200);
        let again = ask().post("/v1/pools/p/acquire").await;
        assert_eq!(again.header(REPLAYED), Some("true"), "it has been given back, and stays so");
        let shown = server.http().get("/v1/pools/p").await.expect(200);
        assert!(!shown["slots"].to_string().contains("\"acquired\""), "{shown}");
    });
}
