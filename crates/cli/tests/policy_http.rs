//! Policies over HTTP: documents, versions, defaults, ceilings, and a file that changes under a running server.

use serde_json::json;
use std::path::Path;
use workroom_testkit::client::Client;
use workroom_testkit::types::{CreateToken, Policy, TokenScope};
use workroom_testkit::{Server, User, for_each_user, run};

/// As an editor saves it: another file takes the name.
fn write_file(user: &User, state: &Path, text: &str) {
    let new = user.make_file("policy.new", text);
    std::fs::rename(new, state.join("policy.toml")).expect("its name");
}

async fn token_of(server: &Server<'_>, owner: &str) -> Client {
    let request = CreateToken {
        scope: TokenScope::User,
        owner: Some(owner.to_owned()),
        session: None,
        read_only: false,
        expires_in: None,
        name: String::new(),
    };
    let token = server.client().create_token(&request).await.expect("a token");
    server.client_with(token.token.as_deref().expect("it is told once"))
}

#[test]
fn a_document_has_versions_and_what_waits_for_the_next_room_is_told() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session_like(json!({"policy": {"pids": 200}})).await;
        let path = format!("/v1/sessions/{}/policy", session.id);
        let first = server.http().get(&path).await;
        assert_eq!(first.header("etag"), Some("\"1\""));
        let first = first.expect(200);
        assert_eq!((first["version"].as_u64(), first["policy"]["pids"].as_u64()), (Some(1), Some(200)));
        assert_eq!(first["effective"]["memory"].as_u64(), Some(2 << 30), "the server's own default");
        assert!(first["enforced"].as_object().is_some_and(|layers| !layers.is_empty()), "{first}");
        assert!(first.get("pending").is_none(), "{first}");

        // As people write it. A room's open files are set when it is built.
        let toml = "open_files = 100\npids = 200\nmemory = \"512M\"\n";
        let changed = server
            .http()
            .header("if-match", "\"1\"")
            .header("content-type", "application/toml")
            .body(toml)
            .put(&path)
            .await;
        let changed = changed.expect(200);
        assert_eq!(
            (changed["version"].as_u64(), changed["policy"]["memory"].as_u64()),
            (Some(2), Some(512 << 20))
        );
        let pending: Vec<&str> =
            changed["pending"].as_array().expect("a list").iter().filter_map(|name| name.as_str()).collect();
        assert!(pending.contains(&"open_files"), "{changed}");
        let late = server.http().header("if-match", "\"1\"").json(&json!({})).put(&path).await;
        assert_eq!(late.problem(412), "precondition_failed");
        assert_eq!(session.says("ulimit -n").await.trim(), "16384");

        session.stop().await;
        assert_eq!(session.says("ulimit -n").await.trim(), "100");
        let view = session.client().policy(&session.id).await.expect("a policy");
        assert!(view.pending.is_empty(), "{view:?}");
        let told = session.event("policy.changed").await;
        assert_eq!(told.body["version"], 2);
        assert_eq!(told.body["from"], json!({"pids": 200}));

        // The same again is no change.
        let same = session.client().set_policy(&session.id, &view.policy, None).await.expect("a policy");
        assert_eq!(same.version, 2);
    });
}

#[test]
fn a_bad_document_is_one_sentence_and_changes_nothing() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let path = format!("/v1/sessions/{}/policy", session.id);
        for (kind, body, status, words) in [
            ("application/json", r#"{"memory": 1}"#, 400, "too little"),
            ("application/json", r#"{"pids": 0}"#, 400, "outside 1 to"),
            ("application/json", r#"{"disk": 5}"#, 400, "outside"),
            ("application/json", r#"{"require": ["moat"]}"#, 400, "no layer \"moat\""),
            ("application/json", r#"{"memmory": 5}"#, 400, "memmory"),
            ("application/toml", "memory = \"lots\"", 400, "not a size"),
            ("application/toml", "[network", 400, "not understood"),
            ("application/toml", "\u{0}", 400, "not understood"),
            ("text/plain", "memory = 1", 415, "text/plain"),
        ] {
            let refused = server.http().header("content-type", kind).body(body).put(&path).await;
            refused.problem(status);
            let detail = refused.json()["detail"].as_str().unwrap_or_default().to_owned();
            assert!(detail.contains(words) && !detail.contains('\n'), "{body}: {detail}");
        }
        let view = session.client().policy(&session.id).await.expect("a policy");
        assert_eq!((view.version, view.policy), (1, Policy::default()));
    });
}

#[test]
fn nobody_goes_over_a_ceiling_and_the_file_is_taken_up_while_it_runs() {
    for_each_user(async |user| {
        let server = Server::of(user);
        write_file(
            user,
            server.state(),
            "[defaults]\npids = 300\n[ceiling]\npids = 100\nmemory = \"1G\"\n[users.bob.ceiling]\npids = 400\n",
        );
        let (ann, bob) = (token_of(&server, "ann").await, token_of(&server, "bob").await);
        let asked = |pids: u64| Policy { pids: Some(pids), ..Policy::default() };
        let create =
            |pids| workroom_testkit::types::CreateSession { policy: Some(asked(pids)), ..Default::default() };
        for (client, pids, granted) in
            [(&ann, 101, false), (&ann, 100, true), (&bob, 400, true), (&bob, 401, false)]
        {
            let made = client.create(&create(pids), None).await;
            assert_eq!(made.is_ok(), granted, "{pids}: {made:?}");
            if let Err(error) = made {
                assert!(error.to_string().contains("is the most that"), "{error}");
            }
        }
        // Nobody weakens a room on one's own word.
        let weak = Policy { allow_missing: vec!["seccomp".into()], ..Policy::default() };
        let request =
            workroom_testkit::types::CreateSession { policy: Some(weak.clone()), ..Default::default() };
        let refused = ann.create(&request, None).await.expect_err("a weak room");
        assert!(refused.to_string().contains("seccomp"), "{refused}");
        // The default is above what ann may have, so she has less.
        let (session, _) = ann.create(&Default::default(), None).await.expect("a session");
        let view = ann.policy(&session.id).await.expect("a policy");
        assert_eq!((view.effective.pids, view.effective.memory), (Some(100), Some(1 << 30)));
        let refused = ann.set_policy(&session.id, &asked(101), None).await.expect_err("too much");
        assert!(refused.to_string().contains("pids 101 is over 100"), "{refused}");
        // An admin acting for ann is judged as ann; for itself, it is bound by nothing.
        let for_ann = workroom_testkit::types::CreateSession { owner: Some("ann".into()), ..create(101) };
        server.client().create(&for_ann, None).await.expect_err("too much for ann");
        server.client().create(&create(5000), None).await.expect("an admin's own");

        // What is broken changes nothing, and says so to whom it concerns.
        write_file(user, server.state(), "[ceiling]\npids = \"few\"\n");
        ann.create(&create(101), None).await.expect_err("the last good file holds");
        let told = server.client().server_policy().await.expect("the server's policy");
        let fault = told.file.and_then(|file| file.fault).expect("a fault");
        assert!(fault.contains("few") || fault.contains("pids") || fault.contains("string"), "{fault}");
        assert_eq!(ann.server_policy().await.expect("hers").file, None);
        write_file(user, server.state(), "[ceiling]\npids = 500\n");
        ann.create(&create(101), None).await.expect("the new ceiling");
        assert!(server.log().contains("policy file"), "{}", server.log());
    });
}
