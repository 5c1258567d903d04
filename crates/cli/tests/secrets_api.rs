//! Secrets over HTTP and in the CLI: who may set, see and remove them; names, sizes, versions; never a value.

use serde_json::{Value, json};
use std::io::Write;
use std::process::{Output, Stdio};
use workroom_testkit::{Server, for_each_user};

const VALUE: &str = "correct-horse-battery-staple";

async fn token(server: &Server<'_>, request: Value) -> String {
    let made = server.http().json(&request).post("/v1/tokens").await.expect(201);
    made["token"].as_str().expect("a token").to_owned()
}

fn names(list: &Value) -> Vec<String> {
    let secrets = list["secrets"].as_array().expect("a list");
    secrets.iter().map(|secret| format!("{}:{}", secret["scope"], secret["name"]).replace('"', "")).collect()
}

#[test]
fn a_secret_is_set_listed_and_removed_and_its_value_is_in_no_answer() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let of_session = session.path("/secrets/OF_SESSION");
        for (path, scope) in [
            ("/v1/secrets/OF_ALL?scope=global", "global"),
            ("/v1/secrets/OF_USER", "user"),
            (of_session.as_str(), "session"),
        ] {
            let first = server.http().json(&json!({"value": VALUE})).put(path).await.expect(200);
            assert_eq!((&first["scope"], &first["version"]), (&json!(scope), &json!(1)), "{first}");
            let again = server.http().json(&json!({"value": VALUE})).put(path).await.expect(200);
            assert_eq!((&again["version"], &again["redacted"]), (&json!(2), &json!(true)), "{again}");
        }
        let mine = server.http().get("/v1/secrets").await;
        assert_eq!(names(&mine.expect(200)), ["global:OF_ALL", "user:OF_USER"]);
        let of = server.http().get(&session.path("/secrets")).await;
        assert_eq!(names(&of.expect(200)), ["session:OF_SESSION"]);
        for answer in [&mine, &of] {
            assert!(!answer.text().contains(VALUE), "{}", answer.text());
        }
        // Its versions go on counting over a removal, so that an old record fits nowhere.
        for _ in 0..2 {
            assert_eq!(server.http().delete("/v1/secrets/OF_USER").await.status, 204);
        }
        assert_eq!(names(&server.http().get("/v1/secrets").await.expect(200)), ["global:OF_ALL"]);
        let set = server.http().json(&json!({"value": VALUE})).put("/v1/secrets/OF_USER").await.expect(200);
        assert_eq!(set["version"], 3, "{set}");
        // A session's go with it.
        session.delete().await;
        assert_eq!(server.http().get(&session.path("/secrets")).await.problem(404), "not_found");
        server.expect_no_leaks().await;
    });
}

#[test]
fn what_is_no_name_or_no_value_is_refused_without_being_repeated() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let put = async |name: &str, body: Value| {
            let answer = server.http().json(&body).put(&format!("/v1/secrets/{name}")).await;
            assert!(!answer.text().contains(VALUE), "{}", answer.text());
            answer
        };
        for name in ["1ST", "A-B", "A%3DB", "%C3%A4", &"x".repeat(65), "A%00"] {
            assert_eq!(put(name, json!({"value": VALUE})).await.problem(400), "invalid_argument", "{name}");
        }
        for body in [
            json!(VALUE),
            json!({"value": [VALUE]}),
            json!({"value": VALUE, "also": VALUE}),
            json!({"value": ""}),
            json!({"value": VALUE, "encoding": "base64"}),
            json!({ VALUE: VALUE }),
            json!({"value": "x".repeat(65_537)}),
        ] {
            assert_eq!(put("FINE", body.clone()).await.problem(400), "invalid_argument", "{body}");
        }
        put("LARGEST", json!({"value": "x".repeat(65_536)})).await.expect(200);
        put("BYTES", json!({"value": "AP8Afw==", "encoding": "base64"})).await.expect(200);
        let short = put("SHORT", json!({"value": "abc"})).await.expect(200);
        assert_eq!(short["redacted"], false, "what is too short to be looked for is told: {short}");
        assert!(!server.log().contains(VALUE));
    });
}

#[test]
fn users_have_their_own_and_admins_those_of_all() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let ada = token(&server, json!({"scope": "user", "owner": "ada"})).await;
        let bob = token(&server, json!({"scope": "user", "owner": "bob"})).await;
        let set = async |token: &str, path: &str| {
            server.http().token(token).json(&json!({"value": VALUE})).put(path).await
        };
        set(&ada, "/v1/secrets/MINE").await.expect(200);
        assert_eq!(set(&ada, "/v1/secrets/MINE?scope=global").await.problem(403), "forbidden");
        assert_eq!(set(&ada, "/v1/secrets/MINE?owner=bob").await.problem(403), "forbidden");
        assert_eq!(
            server.http().token(&ada).delete("/v1/secrets/X?scope=global").await.problem(403),
            "forbidden"
        );
        assert_eq!(server.http().token(&ada).post("/v1/secrets/rotate").await.problem(403), "forbidden");
        // An admin sets one for all, and one for Bob.
        set(server.token(), "/v1/secrets/ALL?scope=global").await.expect(200);
        set(server.token(), "/v1/secrets/GIVEN?owner=bob").await.expect(200);
        let of = async |token: &str| names(&server.http().token(token).get("/v1/secrets").await.expect(200));
        assert_eq!(of(&ada).await, ["global:ALL", "user:MINE"]);
        assert_eq!(of(&bob).await, ["global:ALL", "user:GIVEN"]);
        // Whoever may use a session may set its secrets, and nobody else.
        let session = server.session_like(json!({"owner": "ada"})).await;
        let path = session.path("/secrets/HERE");
        set(&ada, &path).await.expect(200);
        assert_eq!(set(&bob, &path).await.problem(404), "not_found");
        let only = token(&server, json!({"scope": "session", "session": session.id})).await;
        set(&only, &path).await.expect(200);
        assert_eq!(set(&only, "/v1/secrets/MINE").await.problem(403), "forbidden");
        assert_eq!(server.http().token(&only).get("/v1/secrets").await.problem(403), "forbidden");
        let reads = token(&server, json!({"scope": "user", "owner": "ada", "read_only": true})).await;
        assert_eq!(set(&reads, "/v1/secrets/MINE").await.problem(403), "forbidden");
        // Ada's room does not get what is Bob's.
        let run = json!({"command": "true", "secret_env": {"A": "GIVEN"}});
        let refused = server.http().token(&ada).json(&run).post(&session.path("/exec")).await;
        assert_eq!(refused.problem(400), "secret_not_found");
        assert!(refused.text().contains("GIVEN"), "{}", refused.text());
    });
}

fn fed(server: &Server<'_>, arguments: &[&str], input: &str) -> Output {
    let mut command = server.cli(arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("workroom runs");
    child.stdin.take().expect("its stdin").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("its end")
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_cli_takes_values_from_stdin_and_files_only() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let set = fed(&server, &["secret", "set", "LINE"], &format!("{VALUE}\n"));
        assert_eq!(said(&set), "LINE  version 1\n");
        let file = user.make_file("a-secret", "two\nlines\n");
        let file = file.to_str().expect("a path");
        said(&fed(&server, &["secret", "set", "FILE", "--session", &session.id, "--file", file], ""));
        said(&fed(&server, &["secret", "set", "ALL", "--global"], VALUE));
        // There is no way to say it where everybody can read it.
        assert!(!fed(&server, &["secret", "set", "LINE", VALUE], "").status.success());
        let listed = said(&fed(&server, &["secret", "ls"], ""));
        assert!(listed.contains("LINE") && listed.contains("global") && !listed.contains(VALUE), "{listed}");
        // The line end that a person types is no part of it; a file is as it is.
        let counts = "printf %s \"$A\" | wc -c; printf %s \"$B\" | wc -c; echo \"$A\"";
        let run = fed(
            &server,
            &["exec", &session.id, "--secret-env=A=LINE", "--secret-env=B=FILE", "--", "sh", "-c", counts],
            "",
        );
        assert_eq!(said(&run), format!("{}\n10\n[REDACTED:LINE]\n", VALUE.len()));
        assert_eq!(said(&fed(&server, &["secret", "rm", "LINE"], "")), "LINE  removed\n");
        let rotated = said(&fed(&server, &["secret", "rotate"], ""));
        assert!(rotated.starts_with("2 secrets are sealed under the key "), "{rotated}");
    });
}
