//! The master key: where it comes from, and its rotation, also when the server is killed in the middle of it.

use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use workroom_testkit::{Server, Setup, TestSession, for_each_user};

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const OTHER: &str = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff101112131415161718191a1b1c1d1e1f";

async fn set(server: &Server<'_>, name: &str, value: &str) {
    server.http().json(&json!({"value": value})).put(&format!("/v1/secrets/{name}")).await.expect(200);
}

/// What a room is given, told so that nobody looks for it.
async fn given(session: &TestSession, name: &str) -> String {
    let request = json!({"command": "echo $GIVEN | tr 0-9 1-90", "secret_env": {"GIVEN": name}});
    session.run(request).await.stdout.trim().to_owned()
}

#[test]
fn the_key_is_a_private_file_that_is_made_on_first_use() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let key = server.state().join("master.key");
        assert!(!key.exists(), "a server without secrets has no key");
        set(&server, "TOKEN", "value-12345").await;
        assert_eq!(key.metadata().expect("the key").mode() & 0o7777, 0o600);
        let before = std::fs::read_to_string(&key).expect("the key");
        let rotated = server.http().post("/v1/secrets/rotate").await.expect(200);
        assert_eq!((&rotated["resealed"], &rotated["unreadable"]), (&json!(1), &json!(0)), "{rotated}");
        let after = std::fs::read_to_string(&key).expect("the key");
        let keys = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(before != after && keys(&after) == 1, "the old key is forgotten");
        let session = server.session().await;
        assert_eq!(given(&session, "TOKEN").await, "value-23456");
        // Another server has it too; without the key none has, and makes none in its place.
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        assert_eq!(given(&session, "TOKEN").await, "value-23456");
        server.kill();
        std::fs::rename(&key, key.with_extension("away")).expect("moved");
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let run = json!({"command": "true", "secret_env": {"A": "TOKEN"}});
        let refused = server.http().json(&run).post(&session.path("/exec")).await;
        assert_eq!(refused.problem(503), "secrets_unavailable");
        assert!(!key.exists());
        assert_eq!(session.says("echo the rest goes on").await, "the rest goes on\n");
        std::fs::rename(key.with_extension("away"), &key).expect("moved back");
        assert_eq!(given(&session, "TOKEN").await, "value-23456");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn the_key_may_come_from_a_variable_or_a_command() {
    for_each_user(async |user| {
        let mut server = Setup::of(user)
            .config("[serve.master_key]\nenv = \"THE_KEY\"\n")
            .environment("THE_KEY", KEY)
            .start();
        set(&server, "TOKEN", "value-12345").await;
        server.stop();
        server.restart();
        let session = server.session().await;
        assert_eq!(given(&session, "TOKEN").await, "value-23456");
        assert!(!server.state().join("master.key").exists());

        let file = user.make_file("the-key", KEY);
        let config = format!("[serve.master_key]\ncommand = [\"cat\", \"{}\"]\n", file.display());
        let mut server = Setup::of(user).config(&config).start();
        set(&server, "TOKEN", "value-12345").await;
        // The operator puts a new key first, has everything sealed under it, and takes the old one out.
        std::fs::write(&file, format!("{OTHER} {KEY}")).expect("the new key");
        let rotated = server.http().post("/v1/secrets/rotate").await.expect(200);
        assert_eq!(rotated["resealed"], 1, "{rotated}");
        std::fs::write(&file, OTHER).expect("the new key alone");
        server.stop();
        server.restart();
        let session = server.session().await;
        assert_eq!(given(&session, "TOKEN").await, "value-23456");
        // A command that gives no key is told of in the log, and costs nothing but secrets.
        server.stop();
        std::fs::write(&file, "").expect("no key");
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let run = json!({"command": "true", "secret_env": {"A": "TOKEN"}});
        let refused = server.http().json(&run).post(&session.path("/exec")).await;
        assert_eq!(refused.problem(503), "secrets_unavailable");
        assert!(server.log().contains("there is no key in it"), "{}", server.log());
    });
}

/// Killed at many moments of a rotation: every secret opens before, meanwhile and after.
#[test]
fn a_rotation_that_is_killed_costs_no_secret() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        const COUNT: usize = 120;
        for number in 0..COUNT {
            set(&server, &format!("S{number}"), &format!("value-{:05}", 11_111 + number)).await;
        }
        let session = server.session_like(json!({"policy": {"secrets": {"inject": ["user"]}}})).await;
        // All of them at once, shifted.
        let all = "env | sed -n 's/^S[0-9]*=//p' | sort | tr 0-9 1-90 | md5sum";
        let before = session.says(all).await;
        for milliseconds in [0, 2, 5, 10, 20, 40] {
            let http = server.http();
            tokio::spawn(async move { http.send("POST", "/v1/secrets/rotate").await });
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            server.kill();
            server.restart();
            let session = TestSession::new(server.client(), session.id.clone());
            assert_eq!(session.says(all).await, before, "after {milliseconds} ms");
        }
        let session = TestSession::new(server.client(), session.id.clone());
        // What was begun is finished, and one key is left.
        let key = server.state().join("master.key");
        workroom_testkit::eventually(async || {
            let text = std::fs::read_to_string(&key).expect("the key");
            let keys = text.lines().filter(|line| !line.starts_with('#')).count();
            if keys == 1 { Ok(()) } else { Err(format!("there are {keys} keys")) }
        })
        .await;
        assert_eq!(session.says(all).await, before);
        let left: Vec<String> = std::fs::read_dir(server.state())
            .expect("the state")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("master.key."))
            .collect();
        assert!(left.len() <= 6, "{left:?}");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}
