//! Files of a session over HTTP: every form of a path, every kind of file, parts, conditions, and who may.

use serde_json::{Value, json};
use workroom_testkit::{Server, TestSession, User, for_each_user, run};

/// A request on the files of a session.
fn at(session: &TestSession, rest: &str) -> String {
    session.path(&format!("/files{rest}"))
}

async fn put(server: &Server<'_>, session: &TestSession, path: &str, content: &[u8]) -> Value {
    let written = server.http().body(content).put(&at(session, &format!("/{path}"))).await;
    assert!(matches!(written.status, 200 | 201), "{written:?}");
    written.json()
}

#[test]
fn what_is_written_is_read_and_the_room_sees_it() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let made = server.http().body("one\n").put(&at(&session, "/src/a.txt")).await;
        let info = made.expect(201);
        assert_eq!(
            (&info["path"], &info["type"], &info["size"]),
            (&json!("src/a.txt"), &json!("file"), &json!(4))
        );
        assert_eq!(session.says("cat src/a.txt; stat -c '%a %U' src/a.txt").await, "one\n644 agent\n");
        server.http().body("two\n").put(&at(&session, "/src/a.txt?mode=0600")).await.expect(200);
        server.http().body("more\n").put(&at(&session, "/src/a.txt?append=true&sync=1")).await.expect(200);
        assert_eq!(session.says("cat src/a.txt; stat -c %a src/a.txt").await, "two\nmore\n600\n");
        session.says("echo from inside > b; ln -s b link; mkdir empty").await;
        let read = server.http().get(&at(&session, "/b")).await;
        assert_eq!((read.status, read.text().as_str()), (200, "from inside\n"));
        assert_eq!(read.header("content-length"), Some("12"));
        assert_eq!(server.http().get(&at(&session, "/link")).await.text(), "from inside\n");
        let list = server.http().get(&at(&session, "?recursive=true")).await.expect(200);
        let paths: Vec<&str> =
            list["entries"].as_array().unwrap().iter().filter_map(|it| it["path"].as_str()).collect();
        assert_eq!(paths, ["b", "empty", "link", "src", "src/a.txt"]);
        assert_eq!(list["entries"][2]["target"], "b");
        let page = server.http().get(&at(&session, "?limit=2")).await.expect(200);
        let next = page["next"].as_str().expect("more");
        let rest = server.http().get(&at(&session, &format!("?limit=2&cursor={next}"))).await.expect(200);
        assert_eq!(rest["entries"][0]["path"], "link");
        let globbed = server.http().get(&at(&session, "?recursive=true&glob=*.txt")).await.expect(200);
        assert_eq!(globbed["entries"].as_array().map(Vec::len), Some(1), "{globbed}");
        let gone = server.http().delete(&at(&session, "/src?recursive=true")).await.expect(200);
        assert_eq!(gone["deleted"], 2);
        assert_eq!(server.http().delete(&at(&session, "/src")).await.expect(200)["deleted"], 0);
        assert_eq!(server.http().get(&at(&session, "/src/a.txt")).await.problem(404), "not_found");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_path_in_any_form_is_the_same_file() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        put(&server, &session, "dir/x", b"here").await;
        for form in [
            "dir/x",
            "%2Fdir/x",
            "/dir/x",
            "/workspace/dir/x",
            "dir%2Fx",
            "./dir//x",
            "dir/y/../x",
            "%2e/dir/x",
        ] {
            let read = server.http().get(&at(&session, &format!("/{form}"))).await;
            assert_eq!((read.status, read.text().as_str()), (200, "here"), "{form}");
        }
        let stat = async |body: Value| server.http().json(&body).post(&at(&session, "/stat")).await;
        for form in ["dir/x", "/dir/x", "/workspace/dir/x"] {
            assert_eq!(stat(json!({"path": form})).await.expect(200)["path"], "dir/x", "{form}");
        }
        assert_eq!(
            stat(json!({"path": "/workspace/dir/x", "root": true})).await.expect(200)["path"],
            "/workspace/dir/x"
        );
        for outside in ["..", "%2e%2e/x", "dir/../../x", "/workspace/../etc/passwd"] {
            let refused = server.http().get(&at(&session, &format!("/{outside}"))).await;
            assert_eq!(refused.problem(400), "path_outside_workspace", "{outside}");
        }
        for wrong in ["a%00b", "%5Cq", &"x".repeat(256)] {
            let refused = server.http().get(&at(&session, &format!("/{wrong}"))).await;
            assert_eq!(refused.problem(400), "invalid_argument", "{wrong}");
        }
        let hosts = server.http().get(&at(&session, "/etc/hosts?root=true")).await;
        assert!(hosts.status == 200 && hosts.text().contains("localhost"), "{hosts:?}");
        // Files that are called as verbs are.
        for name in ["stat", "search", "move", "mkdir"] {
            put(&server, &session, name, name.as_bytes()).await;
            assert_eq!(server.http().get(&at(&session, &format!("/{name}"))).await.text(), name);
            server.http().delete(&at(&session, &format!("/{name}"))).await.expect(200);
        }
        assert_eq!(
            server.http().json(&json!({})).post(&at(&session, "/dir/x")).await.problem(405),
            "method_not_allowed"
        );
    });
}

#[test]
fn a_path_that_makes_no_sense_starts_no_room() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session_like(json!({"start": false})).await;
        assert_eq!(server.http().get(&at(&session, "/../x")).await.problem(400), "path_outside_workspace");
        server.http().body("x").put(&at(&session, "/a%00")).await.problem(400);
        assert_eq!(session.show().await.counters.starts, 0);
        // One that does starts it, as a command would.
        server.http().body("x").put(&at(&session, "/a")).await.expect(201);
        assert_eq!(session.show().await.counters.starts, 1);
        session.stop().await;
        assert_eq!(server.http().get(&at(&session, "/a")).await.text(), "x");
        session.pause().await;
        let refused = server.http().get(&at(&session, "/a")).await;
        assert_eq!(refused.problem(409), "wrong_state");
        session.resume().await;
        assert_eq!(server.http().get(&at(&session, "/a")).await.text(), "x");
    });
}

#[test]
fn names_are_any_bytes() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let long = "n".repeat(255);
        // In the URL, and as answers show it.
        let names = [
            ("with%20space", "with space"),
            ("line%0Abreak", "line\\x0abreak"),
            ("%FF%FE", "\\xff\\xfe"),
            ("%5C%5C", "\\\\"),
            ("%C3%A4%E2%82%AC", "ä€"),
            ("%2Dr%3F%23", "-r?#"),
            (&long, &long),
        ];
        for (url, shown) in names {
            let info = put(&server, &session, url, url.as_bytes()).await;
            assert_eq!(info["path"], shown);
            assert_eq!(server.http().get(&at(&session, &format!("/{url}"))).await.text(), url);
            let stat =
                server.http().json(&json!({"path": shown})).post(&at(&session, "/stat")).await.expect(200);
            assert_eq!(stat["etag"], info["etag"], "{shown}");
        }
        assert_eq!(session.says("ls | wc -l").await.trim(), "8", "a line break is one more line");
        assert_eq!(session.says("cat $'\\xff\\xfe'").await, "%FF%FE");
        // Escaped in the URL's text, as answers write it.
        assert_eq!(server.http().get(&at(&session, "/%5Cxff%5Cxfe")).await.text(), "%FF%FE");
        for (url, _) in names {
            assert_eq!(
                server.http().delete(&at(&session, &format!("/{url}"))).await.expect(200)["deleted"],
                1
            );
        }
        assert_eq!(session.says("ls -A").await, "");
    });
}

#[test]
fn what_is_no_plain_file_is_told_and_holds_nobody_up() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session
            .says("mkfifo fifo; mkdir dir; ln -s nowhere dangling; ln -s /etc/passwd out; ln -s loop loop")
            .await;
        session.says("python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'").await;
        for odd in ["fifo", "sock"] {
            assert_eq!(
                server.http().get(&at(&session, &format!("/{odd}"))).await.problem(409),
                "wrong_kind",
                "{odd}"
            );
            let stat =
                server.http().json(&json!({"path": odd})).post(&at(&session, "/stat")).await.expect(200);
            assert_eq!(stat["type"], "other");
        }
        assert_eq!(server.http().get(&at(&session, "/dir")).await.problem(409), "wrong_kind");
        let device = server.http().get(&at(&session, "/dev/zero?root=1")).await;
        assert!(matches!(device.status, 409), "{device:?}");
        // The kernel's own files are for commands to read.
        assert_eq!(
            server.http().get(&at(&session, "/proc/self/status?root=1")).await.problem(409),
            "wrong_kind"
        );
        assert_eq!(server.http().get(&at(&session, "/dangling")).await.problem(404), "not_found");
        let looped = server.http().get(&at(&session, "/loop")).await;
        assert!((400..500).contains(&looped.status), "{looped:?}");
        // A link out of the workspace leads to the room's file at most, never to the host's.
        let out = server.http().get(&at(&session, "/out")).await;
        assert!(out.status != 200 || out.text() == session.says("cat /etc/passwd").await, "{out:?}");
    });
}

#[test]
fn parts_and_conditions() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let info = put(&server, &session, "f", b"0123456789").await;
        let etag = format!("\"{}\"", info["etag"].as_str().expect("an etag"));
        let get =
            async |name: &str, value: &str| server.http().header(name, value).get(&at(&session, "/f")).await;
        let part = get("Range", "bytes=2-4").await;
        assert_eq!(
            (part.status, part.text().as_str(), part.header("content-range")),
            (206, "234", Some("bytes 2-4/10"))
        );
        assert_eq!(get("Range", "bytes=-3").await.text(), "789");
        assert_eq!(get("Range", "bytes=0-1,4-5").await.text(), "0123456789");
        let beyond = get("Range", "bytes=10-").await;
        assert_eq!(
            (beyond.problem(416).as_str(), beyond.header("content-range")),
            ("range_not_satisfiable", Some("bytes */10"))
        );
        let same = get("If-None-Match", &etag).await;
        assert_eq!((same.status, same.body.len(), same.header("etag")), (304, 0, Some(etag.as_str())));
        assert_eq!(get("If-None-Match", "\"other\"").await.status, 200);
        assert_eq!(get("If-Match", "\"other\"").await.problem(412), "precondition_failed");
        let head = server.http().send("HEAD", &at(&session, "/f")).await;
        assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some("10"), 0));
        assert!(head.header("last-modified").is_some_and(|date| date.ends_with(" GMT")), "{head:?}");

        let write = async |name: &str, value: &str, file: &str| {
            server.http().header(name, value).body("new").put(&at(&session, file)).await
        };
        assert_eq!(write("If-None-Match", "*", "/f").await.problem(412), "precondition_failed");
        write("If-None-Match", "*", "/g").await.expect(201);
        assert_eq!(write("If-Match", "\"other\"", "/f").await.problem(412), "precondition_failed");
        assert_eq!(write("If-Match", "*", "/none").await.problem(412), "precondition_failed");
        assert_eq!(server.http().get(&at(&session, "/f")).await.text(), "0123456789");
        write("If-Match", &etag, "/f").await.expect(200);
        assert_eq!(
            write("If-Match", &etag, "/f").await.problem(412),
            "precondition_failed",
            "it has changed"
        );
        assert_eq!(write("If-None-Match", "\"x\"", "/f").await.problem(400), "invalid_argument");

        let told = server.http().header("TE", "trailers").get(&at(&session, "/f")).await;
        assert_eq!(
            (told.header("trailer"), told.header("content-length")),
            (Some("x-workroom-sha256"), None)
        );
        assert_eq!(told.text(), "new");
    });
}

#[test]
fn a_file_as_json() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        put(&server, &session, "f", b"one\ntwo\nthree\n\xff").await;
        let get = async |query: &str| server.http().get(&at(&session, &format!("/f?{query}"))).await;
        let text = get("encoding=text&first_line=2&lines=1").await.expect(200);
        assert_eq!(
            (&text["content"], &text["first_line"], &text["lossy"]),
            (&json!("two\n"), &json!(2), &json!(false))
        );
        assert_eq!(get("encoding=text").await.expect(200)["lossy"], true);
        let bytes = get("encoding=base64&offset=14&length=1").await.expect(200);
        assert_eq!((&bytes["content"], &bytes["size"]), (&json!("/w=="), &json!(15)));
        assert_eq!(get("encoding=text&limit=3").await.problem(413), "file_too_large");
        session.says("head -c 16777216 /dev/zero > most").await;
        let most = server.http().get(&at(&session, "/most?encoding=base64&limit=16777216")).await.expect(200);
        assert_eq!(most["length"], 16 << 20);
        for wrong in ["first_line=2", "encoding=utf8", "encoding=text&path=g", "colour=red"] {
            assert_eq!(get(wrong).await.problem(400), "invalid_argument", "{wrong}");
        }
    });
}

#[test]
fn directories_moves_and_copies() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let post = async |verb: &str, body: Value| {
            server.http().json(&body).post(&at(&session, &format!("/{verb}"))).await
        };
        assert_eq!(post("mkdir", json!({"path": "a/b", "mode": "0700"})).await.expect(201)["mode"], "0700");
        post("mkdir", json!({"path": "a/b"})).await.expect(201);
        assert_eq!(post("mkdir", json!({"path": "x/y", "parents": false})).await.status, 404);
        put(&server, &session, "a/b/f", b"12345").await;
        assert_eq!(
            post("move", json!({"from": "a/b/f", "to": "new/place/g"})).await.expect(200)["path"],
            "new/place/g"
        );
        post("copy", json!({"from": "new", "to": "twin"})).await.expect(200);
        assert_eq!(session.says("cat twin/place/g new/place/g").await, "1234512345");
        put(&server, &session, "h", b"old").await;
        let onto = |overwrite: bool| json!({"from": "twin/place/g", "to": "h", "overwrite": overwrite});
        assert_eq!(post("copy", onto(false)).await.problem(409), "already_exists");
        post("copy", onto(true)).await.expect(200);
        assert_eq!(session.says("cat h").await, "12345");
        let used = post("usage", json!({})).await.expect(200);
        assert_eq!((&used["bytes"], &used["files"]), (&json!(15), &json!(3)), "{used}");
        let edit = |old: &str, all: bool| json!({"path": "h", "old": old, "new": "x", "all": all});
        assert_eq!(post("edit", edit("9", false)).await.problem(409), "edit_mismatch");
        assert_eq!(post("edit", edit("3", false)).await.expect(200)["replacements"], 1);
        assert_eq!(session.says("cat h").await, "12x45");
        assert_eq!(
            post("move", json!({"from": "../a", "to": "b"})).await.problem(400),
            "path_outside_workspace"
        );
        assert_eq!(
            post("copy", json!({"from": "h", "to": "../b"})).await.problem(400),
            "path_outside_workspace"
        );
        assert_eq!(
            post("stat", json!({"path": "h", "colour": "red"})).await.problem(400),
            "invalid_argument"
        );

        let kinds: Vec<String> = session.journal().await.into_iter().map(|entry| entry.kind).collect();
        for kind in ["file.made", "file.written", "file.moved", "file.copied", "file.edited"] {
            assert!(kinds.iter().any(|known| known == kind), "{kind}: {kinds:?}");
        }
        let journal = serde_json::to_string(&session.journal().await).expect("JSON");
        assert!(
            !journal.contains("12x45") && !journal.contains("12345\""),
            "contents are not in the journal"
        );
    });
}

#[test]
fn only_who_may() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let token = async |fields: Value| {
            let made = server.http().json(&fields).post("/v1/tokens").await.expect(201);
            made["token"].as_str().expect("a token").to_owned()
        };
        let session = server.session_like(json!({"owner": "ada"})).await;
        put(&server, &session, "f", b"hers").await;
        let bob = token(json!({"scope": "user", "owner": "bob"})).await;
        let reader = token(json!({"scope": "user", "owner": "ada", "read_only": true})).await;
        let calls = [
            ("GET", at(&session, "/f")),
            ("GET", at(&session, "")),
            ("GET", session.path("/archive")),
            ("GET", session.path("/watch")),
            ("PUT", at(&session, "/f")),
            ("DELETE", at(&session, "/f")),
            ("POST", at(&session, "/move")),
            ("POST", at(&session, "/stat")),
            ("POST", session.path("/archive")),
        ];
        for (method, path) in &calls {
            let refused =
                server.http().token(&bob).json(&json!({"from": "f", "to": "g"})).send(method, path).await;
            if *method == "POST" && path.ends_with("/stat") {
                assert_eq!(refused.problem(400), "invalid_argument");
                continue;
            }
            let as_none =
                server.http().token(&bob).send("GET", "/v1/sessions/20260101-000000-00000000").await;
            assert_eq!(refused.problem(404), as_none.problem(404), "{method} {path}");
        }
        let as_reader = || server.http().token(&reader);
        assert_eq!(as_reader().get(&at(&session, "/f")).await.text(), "hers");
        as_reader().get(&at(&session, "")).await.expect(200);
        for question in ["stat", "usage"] {
            as_reader()
                .json(&json!({"path": "f"}))
                .post(&at(&session, &format!("/{question}")))
                .await
                .expect(200);
        }
        for (method, path) in [
            ("PUT", at(&session, "/f")),
            ("DELETE", at(&session, "/f")),
            ("POST", at(&session, "")),
            ("POST", at(&session, "/mkdir")),
            ("POST", at(&session, "/edit")),
            ("POST", session.path("/archive")),
        ] {
            assert_eq!(
                as_reader().json(&json!({})).send(method, &path).await.problem(403),
                "forbidden",
                "{method} {path}"
            );
        }
        assert_eq!(server.http().get(&at(&session, "/f")).await.text(), "hers");
    });
}

#[test]
fn a_write_under_a_key_is_done_once() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let append = async |key: &str, body: &str| {
            server.http().key(key).body(body).put(&at(&session, "/log?append=true")).await
        };
        append("one", "a\n").await.expect(201);
        let again = append("one", "a\n").await;
        assert_eq!((again.status, again.header("idempotency-replayed")), (201, Some("true")));
        append("two", "b\n").await.expect(200);
        assert_eq!(append("one", "longer\n").await.problem(422), "idempotency_mismatch");
        assert_eq!(session.says("cat log").await, "a\nb\n");
        let moved = json!({"from": "log", "to": "old"});
        let rename = async || server.http().key("three").json(&moved).post(&at(&session, "/move")).await;
        rename().await.expect(200);
        assert_eq!(rename().await.expect(200)["path"], "old");
        assert_eq!(
            server.http().key("four").json(&moved).post(&at(&session, "/move")).await.problem(404),
            "not_found"
        );
    });
}
