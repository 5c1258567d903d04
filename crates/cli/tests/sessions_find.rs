//! Finding sessions: by a caller's own key, by a chat's place, by filters, page by page.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use workroom_testkit::{Http, Server, Setup, User, for_each_user, run};

/// Sessions without rooms: what is looked at here is where they are found.
async fn make(http: Http, fields: Value) -> Value {
    let mut fields = fields;
    fields["start"] = json!(false);
    http.json(&fields).post("/v1/sessions").await.json()
}

async fn ids(http: Http, query: &str) -> Vec<String> {
    let page = http.get(&format!("/v1/sessions{query}")).await.expect(200);
    let sessions = page["sessions"].as_array().expect("a list").clone();
    sessions.iter().map(|session| session["id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn a_key_is_the_same_session_for_its_owner_and_nobody_else() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let with_key = |fields: Value| server.http().json(&fields).post("/v1/sessions");
        let first = with_key(json!({"key": "task/1", "name": "first", "start": false})).await.expect(201);
        let again = with_key(json!({"key": "task/1", "name": "second"})).await.expect(200);
        assert_eq!(again, first, "it is found as it is, not changed");
        let ada = with_key(json!({"key": "task/1", "owner": "ada", "start": false})).await.expect(201);
        assert_ne!(ada["id"], first["id"]);
        let own = with_key(json!({"key": "task/1", "owner": "ada", "start": false})).await.expect(200);
        assert_eq!(own["id"], ada["id"]);
        // A deleted session gives its key back.
        server.http().delete(&format!("/v1/sessions/{}", first["id"].as_str().unwrap())).await.expect(204);
        let new = with_key(json!({"key": "task/1", "start": false})).await.expect(201);
        assert_ne!(new["id"], first["id"]);
        // Keys are kept as they are, whatever they are made of.
        for key in ["../../etc/passwd", "%2e%2e", "a'; DROP TABLE sessions; --", "ключ\n", " ", "TASK/1"]
        {
            let made = with_key(json!({"key": key, "start": false})).await.expect(201);
            assert_eq!(made["key"], key);
        }
    });
}

#[test]
fn many_who_ask_for_one_key_or_place_at_once_get_one_session() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let place =
            json!({"group": "g", "channel": {"channel_type": "chat", "platform_id": "C"}, "mode": "shared"});
        for (path, body) in [("/v1/sessions/resolve", place), ("/v1/sessions", json!({"key": "k"}))] {
            let calls: Vec<_> =
                (0..100).map(|_| tokio::spawn(server.http().json(&body).send("POST", path))).collect();
            let (mut found, mut made) = (BTreeSet::new(), 0);
            for call in calls {
                let answer = call.await.expect("an answer");
                made += usize::from(answer.status == 201);
                let answer = answer.json();
                let session = answer.get("session").unwrap_or(&answer);
                found.insert(session["id"].as_str().expect("an id").to_owned());
            }
            assert_eq!((found.len(), made), (1, 1), "{path}");
        }
        assert_eq!(ids(server.http(), "").await.len(), 2);
    });
}

fn place(channel: &str, thread: Option<&str>, mode: &str) -> Value {
    let channel = json!({"channel_type": "chat", "platform_id": channel, "thread_id": thread});
    json!({"group": "g", "channel": channel, "mode": mode, "create": {"start": false}})
}

async fn resolve(server: &Server<'_>, body: Value) -> (String, bool) {
    let answer = server.http().json(&body).post("/v1/sessions/resolve").await;
    let resolved = answer.json();
    let created = resolved["created"].as_bool().unwrap_or_else(|| panic!("{resolved}"));
    assert_eq!(answer.status, if created { 201 } else { 200 });
    (resolved["session"]["id"].as_str().expect("an id").to_owned(), created)
}

#[test]
fn a_chats_place_finds_its_session_in_every_mode() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let (shared, made) = resolve(&server, place("C1", Some("t1"), "shared")).await;
        assert!(made);
        assert_eq!(resolve(&server, place("C1", Some("t2"), "shared")).await, (shared.clone(), false));
        assert_eq!(resolve(&server, place("C1", None, "shared")).await, (shared.clone(), false));
        assert!(resolve(&server, place("C2", None, "shared")).await.1, "another channel");

        let (thread, made) = resolve(&server, place("C1", Some("t1"), "per_thread")).await;
        assert!(made && thread != shared, "modes do not mix");
        assert_eq!(resolve(&server, place("C1", Some("t1"), "per_thread")).await, (thread.clone(), false));
        assert!(resolve(&server, place("C1", Some("t2"), "per_thread")).await.1);
        let (bare, made) = resolve(&server, place("C1", None, "per_thread")).await;
        assert!(made && bare != thread, "no thread is a place of its own");
        assert_eq!(resolve(&server, place("C1", None, "per_thread")).await, (bare, false));
        // The thread may be said beside the channel.
        let mut beside = place("C1", None, "per_thread");
        beside["thread"] = json!("t1");
        assert_eq!(resolve(&server, beside).await, (thread.clone(), false));

        let (group, made) = resolve(&server, place("C1", Some("t1"), "group_shared")).await;
        assert!(made);
        assert_eq!(resolve(&server, place("C9", None, "group_shared")).await, (group.clone(), false));
        let bare = json!({"group": "g", "mode": "group_shared"});
        assert_eq!(resolve(&server, bare).await, (group.clone(), false));
        assert!(resolve(&server, json!({"group": "G", "mode": "group_shared"})).await.1);

        // Another type of channel with the same id is another place, however the two are written.
        let mut mail = place("C1", None, "shared");
        mail["channel"]["channel_type"] = json!("mail");
        assert!(resolve(&server, mail).await.1);
        let mut other = place("C1", None, "shared");
        other["owner"] = json!("ada");
        let (of_ada, made) = resolve(&server, other.clone()).await;
        assert!(made, "each owner has places of their own");
        let shown = server.http().get(&format!("/v1/sessions/{of_ada}")).await.expect(200);
        assert_eq!((&shown["owner"], &shown["group"]), (&json!("ada"), &json!("g")));
        assert_eq!(shown["channel"], json!({"channel_type": "chat", "platform_id": "C1"}));

        for mode in ["shared", "per_thread"] {
            let nowhere = json!({"group": "g", "mode": mode, "create": {"start": false}});
            let first = resolve(&server, nowhere.clone()).await;
            let second = resolve(&server, nowhere).await;
            assert!(first.1 && second.1 && first.0 != second.0, "without a channel there is nothing to find");
        }
        server.http().delete(&format!("/v1/sessions/{shared}")).await.expect(204);
        let (new, made) = resolve(&server, place("C1", None, "shared")).await;
        assert!(made && new != shared, "a deleted session is never found");

        for wrong in [
            json!({"mode": "shared"}),
            json!({"group": "", "mode": "shared"}),
            json!({"group": "g"}),
            json!({"group": "g", "mode": "everything"}),
            json!({"group": "g", "mode": "shared", "create": {"key": "k"}}),
            json!({"group": "g", "mode": "shared", "owner": "a", "create": {"owner": "b"}}),
            json!({"group": "g", "mode": "shared", "create": {"ttl": 0}}),
        ] {
            server.http().json(&wrong).post("/v1/sessions/resolve").await.problem(400);
        }
    });
}

/// Names that run together into the same text when they are joined carelessly.
#[test]
fn places_are_told_apart_whatever_their_names_hold() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let mut seen = BTreeSet::new();
        for (group, kind, id) in [
            ("a", "b", "c"),
            ("a,b", "c", "d"),
            ("a", "b,c", "d"),
            ("a\",\"b", "c", "d"),
            ("a", "b", "c,null"),
        ] {
            for mode in ["shared", "per_thread"] {
                let body = json!({"group": group, "channel": {"channel_type": kind, "platform_id": id}, "mode": mode, "create": {"start": false}});
                let (session, made) = resolve(&server, body).await;
                assert!(made && seen.insert(session), "{group} {kind} {id} {mode}");
            }
        }
    });
}

#[test]
fn a_list_is_filtered_by_state_label_owner_and_group() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let id = |session: &Value| session["id"].as_str().expect("an id").to_owned();
        let a = id(&make(server.http(), json!({"labels": {"team": "a", "x": ""}, "owner": "ada"})).await);
        let b =
            id(&make(server.http(), json!({"labels": {"team": "b"}, "group": "g", "owner": "bob"})).await);
        let running = server.session().await;
        let gone = server.session_like(json!({"start": false, "labels": {"team": "a"}})).await;
        gone.delete().await;
        for (query, expected) in [
            ("", vec![&running.id, &b, &a]),
            ("?label=team", vec![&b, &a]),
            ("?label=team=a", vec![&a]),
            ("?label=x%3D", vec![&a]),
            ("?label=team%3D", vec![]),
            ("?label=none", vec![]),
            ("?owner=bob", vec![&b]),
            ("?owner=nobody", vec![]),
            ("?group=g", vec![&b]),
            ("?group=g&owner=ada", vec![]),
            ("?state=running", vec![&running.id]),
            ("?state=stopped", vec![&b, &a]),
            ("?state=deleted", vec![]),
        ] {
            assert_eq!(ids(server.http(), query).await.iter().collect::<Vec<_>>(), expected, "{query}");
        }
        server.http().json(&json!({"waiting_for_input": true})).patch(&running.path("")).await.expect(200);
        assert_eq!(ids(server.http(), "?state=waiting_for_input").await, std::slice::from_ref(&running.id));
        assert_eq!(ids(server.http(), "?state=running").await, [""; 0], "it is one or the other");
        for wrong in ["?state=asleep", "?limit=0", "?limit=1001", "?cursor=x", "?cursor=1.../x", "?sort=name"]
        {
            server.http().get(&format!("/v1/sessions{wrong}")).await.problem(400);
        }
    });
}

#[test]
fn pages_are_stable_while_sessions_come_and_go() {
    run(async {
        let user = User::running_the_tests();
        let server = Setup::of(&user).config("[serve]\nrate_limit = 0").start();
        let mut made = Vec::new();
        for number in 0..23 {
            let session = make(server.http(), json!({"name": number.to_string()})).await;
            made.push(session["id"].as_str().expect("an id").to_owned());
        }
        made.reverse();
        let (mut seen, mut query) = (Vec::new(), "?limit=5".to_owned());
        loop {
            let page = server.http().get(&format!("/v1/sessions{query}")).await.expect(200);
            for session in page["sessions"].as_array().expect("a list") {
                seen.push(session["id"].as_str().expect("an id").to_owned());
            }
            let Some(next) = page["next"].as_str() else { break };
            query = format!("?limit=5&cursor={next}");
            // New ones come before the first page; one that was seen goes, and so does where the page ended.
            make(server.http(), json!({})).await;
            let last = seen.last().expect("a page is not empty");
            server.http().delete(&format!("/v1/sessions/{last}")).await.expect(204);
        }
        assert_eq!(seen, made, "each one once, newest first");
    });
}
