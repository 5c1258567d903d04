//! Who may do what: tokens, tenants, names, sizes, rates, the unix socket, and what is kept from whom.

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use workroom_testkit::{
    Http, Response, Server, Setup, TestSession, User, as_root, eventually, for_each_user, run,
};

/// A new token: its id and its secret.
async fn token(server: &Server<'_>, fields: Value) -> (String, String) {
    let made = server.http().json(&fields).post("/v1/tokens").await.expect(201);
    let text = |field: &str| made[field].as_str().expect("it is told once").to_owned();
    (text("id"), text("token"))
}

async fn make(http: Http, fields: Value) -> TestSession {
    let mut fields = fields;
    fields["start"] = json!(false);
    let made = http.clone().json(&fields).post("/v1/sessions").await.expect(201);
    TestSession::new(unreachable(), made["id"].as_str().expect("an id").to_owned())
}

/// Sessions here are asked for on the wire alone.
fn unreachable() -> workroom_testkit::client::Client {
    let nowhere = workroom_testkit::client::Endpoint::Unix("/nonexistent".into());
    workroom_testkit::client::Client::new(nowhere, None)
}

#[test]
fn nobody_gets_in_without_a_token_that_is_known() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let http = || server.http().as_nobody();
        let flipped = server.token().replace('a', "b").replace('1', "2");
        let short = &server.token()[..server.token().len() - 1];
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer x",
            "Basic eDp4",
            &format!("Bearer {flipped}"),
            &format!("Bearer {short}"),
        ] {
            let refused = http().header("Authorization", wrong).get("/v1/sessions").await;
            assert_eq!(refused.problem(401), "unauthorized", "{wrong}");
        }
        for path in ["/v1/sessions", "/v1/tokens", "/v1/events", "/v1/capabilities", "/metrics", "/nowhere"] {
            assert_eq!(http().get(path).await.problem(401), "unauthorized", "{path}");
        }
        assert_eq!(
            server.http().header("Authorization", "Bearer x").get("/v1/sessions").await.problem(401),
            "unauthorized"
        );
        for open in ["/healthz", "/readyz", "/v1/openapi.json"] {
            http().get(open).await.expect(200);
        }
        server.http().get("/v1/sessions").await.expect(200);
    });
}

#[test]
fn a_token_reaches_as_far_as_it_says() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let (_, ada) = token(&server, json!({"scope": "user", "owner": "ada"})).await;
        let (_, reader) = token(&server, json!({"scope": "user", "owner": "ada", "read_only": true})).await;
        let as_ada = || server.http().token(&ada);
        let own = make(as_ada(), json!({"name": "own"})).await;
        let other = make(server.http(), json!({"owner": "bob"})).await;
        let (_, single) = token(&server, json!({"scope": "session", "session": own.id})).await;
        let as_single = || server.http().token(&single);

        let listed = async |http: Http| {
            let list = http.get("/v1/sessions").await.expect(200);
            list["sessions"].as_array().expect("a list").len()
        };
        assert_eq!(listed(server.http()).await, 2);
        assert_eq!(listed(server.http().token(&reader)).await, 1);
        assert_eq!(listed(as_ada()).await, 1);
        let asked_for_bob = as_ada().get("/v1/sessions?owner=bob").await.expect(200);
        assert!(!asked_for_bob.to_string().contains(&other.id), "{asked_for_bob}");
        assert_eq!(listed(as_single()).await, 1);

        // On nobody else's behalf.
        as_ada().json(&json!({"owner": "ada", "start": false})).post("/v1/sessions").await.expect(201);
        assert_eq!(
            as_ada().json(&json!({"owner": "bob"})).post("/v1/sessions").await.problem(403),
            "forbidden"
        );
        assert_eq!(as_single().json(&json!({})).post("/v1/sessions").await.problem(403), "forbidden");
        let resolve = json!({"group": "g", "mode": "group_shared", "owner": "bob"});
        assert_eq!(as_ada().json(&resolve).post("/v1/sessions/resolve").await.problem(403), "forbidden");
        for path in ["/metrics"] {
            assert_eq!(as_ada().get(path).await.problem(403), "forbidden");
            server.http().get(path).await;
        }
        // Nobody gives away more than they have.
        for (http, fields) in [
            (as_ada(), json!({"scope": "admin"})),
            (as_ada(), json!({"scope": "user", "owner": "bob"})),
            (as_single(), json!({"scope": "admin"})),
            (as_single(), json!({"scope": "user", "owner": "ada"})),
            (as_single(), json!({"scope": "user"})),
        ] {
            assert_eq!(http.json(&fields).post("/v1/tokens").await.problem(403), "forbidden", "{fields}");
        }
        let foreign = json!({"scope": "session", "session": other.id});
        assert_eq!(as_ada().json(&foreign).post("/v1/tokens").await.problem(404), "not_found");
        // Only what reads.
        let read_only = || server.http().token(&reader);
        read_only().get(&own.path("")).await.expect(200);
        for (method, path) in [
            ("POST", "/v1/sessions".to_owned()),
            ("POST", "/v1/sessions/resolve".to_owned()),
            ("POST", "/v1/tokens".to_owned()),
            ("PATCH", own.path("")),
            ("DELETE", own.path("")),
            ("POST", own.path("/start")),
            ("POST", own.path("/exec")),
            ("POST", own.path("/events")),
            ("PUT", own.path("/private/x")),
            ("DELETE", own.path("/private/x")),
        ] {
            let refused = read_only().json(&json!({"command": "true"})).send(method, &path).await;
            assert_eq!(refused.problem(403), "forbidden", "{method} {path}");
        }
        assert_eq!(read_only().get(&own.path("")).await.expect(200)["counters"]["starts"], 0);
    });
}

#[test]
fn a_token_that_never_was_is_not_revoked_on_the_command_line() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let (id, _) = token(&server, json!({"scope": "user", "owner": "ada"})).await;
        let told = server.cli(&["token", "rm", "0123456789ab", &id]).output().expect("workroom token");
        assert_eq!(told.status.code(), Some(125), "{told:?}");
        assert_eq!(String::from_utf8_lossy(&told.stdout), format!("{id}  revoked\n"));
        let complaint = String::from_utf8_lossy(&told.stderr);
        assert!(complaint.contains("there is no token \"0123456789ab\""), "{complaint}");
        let told = server.cli(&["token", "rm", "--json", &id]).output().expect("workroom token");
        assert_eq!(told.status.code(), Some(125), "{told:?}");
        assert!(String::from_utf8_lossy(&told.stdout).contains("\"not_found\""), "{told:?}");
        let list = server.http().get("/v1/tokens").await.expect(200);
        assert!(!list.to_string().contains(&id), "{list}");
    });
}

#[test]
fn tokens_expire_and_are_revoked_and_are_kept_as_hashes() {
    run(async {
        let user = User::running_the_tests();
        let mut server = Server::of(&user);
        let (short_id, short) =
            token(&server, json!({"scope": "admin", "expires_in": 1, "name": "short"})).await;
        let (id, revoked) = token(&server, json!({"scope": "user", "owner": "ada"})).await;
        let (_, bob) = token(&server, json!({"scope": "user", "owner": "bob"})).await;
        let works = async |server: &Server<'_>, token: &str| {
            server.http().token(token).get("/v1/sessions").await.status
        };
        assert_eq!((works(&server, &short).await, works(&server, &revoked).await), (200, 200));
        let list = server.http().get("/v1/tokens").await.expect(200);
        let told = list.to_string();
        for secret in [&short, &revoked, &bob, &server.token().to_owned()] {
            assert!(!told.contains(secret.rsplit('_').next().expect("a secret")), "a list has no secrets");
        }
        assert!(told.contains(&short_id) && told.contains(&id));
        // Bob may not see or revoke it, and is told nothing.
        let of_bob = server.http().token(&bob).get("/v1/tokens").await.expect(200);
        assert_eq!(of_bob["tokens"].as_array().map(Vec::len), Some(1), "{of_bob}");
        server.http().token(&bob).delete(&format!("/v1/tokens/{id}")).await;
        assert_eq!(works(&server, &revoked).await, 200);

        server.http().delete(&format!("/v1/tokens/{id}")).await.expect(204);
        assert_eq!(works(&server, &revoked).await, 401);
        server.http().delete(&format!("/v1/tokens/{id}")).await.expect(204);
        eventually(async || match works(&server, &short).await {
            401 => Ok(()),
            status => Err(format!("it still works: {status}")),
        })
        .await;
        server.restart();
        assert_eq!((works(&server, &revoked).await, works(&server, &short).await), (401, 401));
        assert_eq!(works(&server, &bob).await, 200);
        server.stop();
        for entry in
            fs::read_dir(server.state()).expect("the state").flatten().filter(|entry| entry.path().is_file())
        {
            let bytes = fs::read(entry.path()).expect("a file");
            for secret in [&short, &revoked, &bob] {
                let secret = secret.rsplit('_').next().expect("a secret").as_bytes();
                let found = bytes.windows(secret.len()).any(|window| window == secret);
                assert!(!found, "a secret is in {:?}", entry.path());
            }
        }
    });
}

/// What a caller sees of an answer, whatever the session's id, the time and the request's number.
fn seen(answer: Response, id: &str) -> (u16, Vec<(String, String)>, String) {
    let passing = ["date", "x-request-id", "content-length"];
    let headers =
        answer.headers.iter().filter(|(name, _)| !passing.contains(&name.as_str())).cloned().collect();
    (answer.status, headers, answer.text().replace(id, "ID"))
}

#[test]
fn what_is_anothers_is_exactly_as_what_is_not_there() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let (_, bob) = token(&server, json!({"scope": "user", "owner": "bob"})).await;
        let live = server.session_like(json!({"owner": "ada"})).await;
        let stopped = make(server.http(), json!({"owner": "ada"})).await;
        let deleted = make(server.http(), json!({"owner": "ada"})).await;
        server.http().delete(&deleted.path("")).await.expect(204);
        let (_, only) = token(&server, json!({"scope": "session", "session": stopped.id})).await;
        server.http().body("secret").put(&live.path("/private/x")).await.expect(204);
        let nowhere = "20200101-000000-00000000";
        let body = json!({"command": "true"});
        for (method, rest, body, accept) in [
            ("GET", "", None, "*/*"),
            ("PATCH", "", Some(json!({"name": "mine"})), "*/*"),
            ("POST", "/start", None, "*/*"),
            ("POST", "/start?wait=1", None, "*/*"),
            ("POST", "/stop", None, "*/*"),
            ("POST", "/pause", None, "*/*"),
            ("POST", "/resume", None, "*/*"),
            ("POST", "/exec", Some(body.clone()), "application/json"),
            ("POST", "/exec", Some(body), "text/event-stream"),
            ("GET", "/processes", None, "*/*"),
            ("GET", "/recordings", None, "*/*"),
            ("GET", "/recordings/t-0a1b2c3d", None, "*/*"),
            ("GET", "/recordings/t-0a1b2c3d/transcript", None, "*/*"),
            ("POST", "/recordings/t-0a1b2c3d/markers", Some(json!({"label": "x"})), "*/*"),
            ("DELETE", "/recordings/t-0a1b2c3d", None, "*/*"),
            ("GET", "/events", None, "application/json"),
            ("GET", "/events", None, "text/event-stream"),
            ("POST", "/events", Some(json!({"kind": "x"})), "*/*"),
            ("GET", "/private", None, "*/*"),
            ("GET", "/private/x", None, "*/*"),
            ("PUT", "/private/x", None, "*/*"),
            ("DELETE", "/private/x", None, "*/*"),
            ("DELETE", "", None, "*/*"),
        ] {
            let ask = async |token: &str, id: &str| {
                let mut http = server.http().token(token).header("Accept", accept);
                if let Some(body) = &body {
                    http = http.json(body);
                }
                seen(http.send(method, &format!("/v1/sessions/{id}{rest}")).await, id)
            };
            let none = ask(&bob, nowhere).await;
            assert_eq!(none.0, 404, "{method} {rest}: {none:?}");
            for other in [&live, &stopped, &deleted] {
                assert_eq!(ask(&bob, &other.id).await, none, "{method} {rest}");
            }
            assert_eq!(ask(&only, &live.id).await, none, "{method} {rest} with a token for another session");
        }
        let for_token = async |session: &str| {
            let fields = json!({"scope": "session", "session": session});
            seen(server.http().token(&bob).json(&fields).post("/v1/tokens").await, session)
        };
        assert_eq!(for_token(&live.id).await, for_token(nowhere).await);
        // And nothing came of it.
        assert_eq!(server.http().get(&live.path("/private/x")).await.text(), "secret");
        assert_eq!(live.says("echo alive").await, "alive\n");
        assert_eq!(live.show().await.name, "");
    });
}

#[test]
fn pages_of_other_sites_and_other_names_are_refused_everywhere() {
    run(async {
        let user = User::running_the_tests();
        let server = Setup::of(&user).arguments(&["--host-name", "rooms.example"]).start();
        let paths =
            ["/v1/sessions", "/v1/events", "/healthz", "/readyz", "/v1/openapi.json", "/metrics", "/nowhere"];
        for path in paths {
            for host in ["evil.example", "localhost.evil.example", "rooms.example.evil", "0x7f.0.0.1"] {
                assert_eq!(
                    server.http().host(Some(host)).get(path).await.problem(403),
                    "forbidden",
                    "{host} {path}"
                );
            }
            server.http().host(None).get(path).await.problem(400);
            for origin in ["http://evil.example", "null", "https://localhost.evil.example", "file://"] {
                let answer = server.http().header("Origin", origin).get(path).await;
                assert_eq!(answer.problem(403), "forbidden", "{origin} {path}");
                assert_eq!(
                    server.local_http().header("Origin", origin).get(path).await.problem(403),
                    "forbidden"
                );
            }
        }
        for host in ["localhost", "127.0.0.1", "[::1]:1", "rooms.example:443"] {
            server.http().host(Some(host)).get("/v1/sessions").await.expect(200);
        }
        let page = server.http().header("Origin", "http://localhost:3000").get("/v1/sessions").await;
        page.expect(200);
        let preflight = server.http().as_nobody().header("Origin", "http://localhost:3000");
        let preflight =
            preflight.header("Access-Control-Request-Method", "POST").send("OPTIONS", "/v1/sessions").await;
        assert!(preflight.status >= 400, "{preflight:?}");
        for answer in [page, preflight] {
            let told = |name: &str| answer.headers.iter().any(|(known, _)| known.starts_with(name));
            assert!(!told("access-control-") && !told("set-cookie"), "{answer:?}");
        }
    });
}

#[test]
fn sizes_types_ids_and_rates_have_their_limits() {
    run(async {
        let user = User::running_the_tests();
        let config = "[serve]\nbody_limit = \"2k\"\nprivate_file_limit = \"3k\"\nevent_limit = \"1k\"";
        let server = Setup::of(&user).config(config).start();
        let session = make(server.http(), json!({})).await;
        let padded =
            |size: usize| json!({"name": "n", "labels": {}, "key": "k"}).to_string() + &" ".repeat(size);
        let as_json = || server.http().header("Content-Type", "application/json");
        assert_eq!(as_json().body(padded(2048)).post("/v1/sessions").await.problem(413), "body_too_large");
        let chunked = format!("{:x}\r\n{}\r\n0\r\n\r\n", 3000, " ".repeat(3000));
        let chunked =
            as_json().header("Transfer-Encoding", "chunked").body(chunked).post("/v1/sessions").await;
        assert_eq!(chunked.problem(413), "body_too_large");
        let announced = as_json().header("Content-Length", 1u64 << 40).body("{").post("/v1/sessions").await;
        assert_eq!(announced.problem(413), "body_too_large");
        server.http().body(vec![0; 3 << 10]).put(&session.path("/private/x")).await.expect(204);
        assert_eq!(
            server.http().body(vec![0; 3073]).put(&session.path("/private/x")).await.problem(413),
            "body_too_large"
        );
        let event = json!({"kind": "x", "body": "y".repeat(1100)});
        assert_eq!(
            server.http().json(&event).post(&session.path("/events")).await.problem(413),
            "body_too_large"
        );

        let plain = server.http().header("Content-Type", "text/plain").body("{}").post("/v1/sessions").await;
        assert_eq!(plain.problem(415), "unsupported_media_type");
        let put = server.http().put("/v1/sessions").await;
        assert_eq!((put.problem(405).as_str(), put.header("allow").is_some()), ("method_not_allowed", true));
        for broken in ["", "{", "{\"name\": }", "{} {}", "nonsense"] {
            as_json().body(broken).post("/v1/sessions").await.problem(400);
        }
        // Before anything else, a token among it.
        let long = format!("/v1/sessions/{}", "a".repeat(65));
        for path in [
            "/v1/sessions/..",
            "/v1/sessions/%2e%2e",
            "/v1/sessions/A",
            "/v1/sessions/a_b",
            "/v1/sessions/a%2fb",
            "/v1/sessions//exec",
            "/v1/sessions/a%00",
            "/v1/tokens/..",
            &long,
        ] {
            assert_eq!(server.http().as_nobody().get(path).await.problem(400), "invalid_argument", "{path}");
        }
        for name in ["..", "%2e%2e%2fx", "a%2fb", ".hidden", "a%00b", &"x".repeat(121)] {
            let path = session.path(&format!("/private/{name}"));
            let answer = server.http().body("x").put(&path).await;
            assert!(matches!(answer.status, 400 | 404), "{name}: {answer:?}");
        }
        let echoed = server.http().header("X-Request-Id", "mine-1").get("/healthz").await;
        assert_eq!(echoed.header("x-request-id"), Some("mine-1"));
        let own = server.http().header("X-Request-Id", "not mine!").get("/healthz").await;
        assert!(own.header("x-request-id").is_some_and(|id| id != "not mine!"), "{own:?}");
    });
    run(async {
        let user = User::running_the_tests();
        let server = Setup::of(&user).config("[serve]\nrate_limit = 1\nrate_burst = 6").start();
        let (_, other) = token(&server, json!({"scope": "user", "owner": "ada"})).await;
        let mut refused = None;
        for _ in 0..20 {
            let answer = server.http().get("/v1/sessions").await;
            refused = refused.or((answer.status != 200).then_some(answer));
        }
        let refused = refused.expect("twenty in a row are too many");
        assert_eq!(
            (refused.problem(429).as_str(), &refused.json()["limit"]),
            ("limit_exceeded", &json!("rate_limit"))
        );
        assert!(refused.header("retry-after").is_some());
        server.http().token(&other).get("/v1/sessions").await.expect(200);
        server.http().get("/healthz").await.expect(200);
    });
}

#[test]
fn the_unix_socket_knows_who_calls() {
    for_each_user(async |user| {
        let server = Server::of(user);
        // Root, or the server's own user.
        server.local_http().get("/metrics").await;
        let made =
            server.local_http().json(&json!({"start": false, "owner": "ada"})).post("/v1/sessions").await;
        assert_eq!(made.expect(201)["owner"], "ada");
        let wrong = server.local_http().token("wr_x").get("/v1/sessions").await;
        assert_eq!(wrong.problem(401), "unauthorized", "a token that is sent counts");
        let listed = server.cli(&["ls", "--json"]).output().expect("ls");
        assert!(
            listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("ada"),
            "{listed:?}"
        );
    });
}

#[test]
fn a_stranger_on_the_unix_socket_is_nobody_but_themself() {
    as_root(async |user| {
        let dir = user.make_dir("open");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("open it");
        let socket = dir.join("s.sock");
        let server = Setup::of(user).arguments(&["--socket", &socket.display().to_string()]).umask(0).start();
        let of_root = server.session_like(json!({"start": false})).await;
        let stranger = User::ordinary();
        let ask = |arguments: &[&str]| {
            let mut command = stranger.command(stranger.program());
            command.env("WORKROOM_URL", format!("unix:{}", socket.display())).args(arguments);
            command.output().expect("workroom")
        };
        assert!(!ask(&["ls"]).status.success(), "the socket is the owner's unless they open it");
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("open it");
        let created = ask(&["create", "--no-start"]);
        assert!(created.status.success(), "{created:?}");
        let own = String::from_utf8_lossy(&created.stdout).trim().to_owned();
        let listed = String::from_utf8_lossy(&ask(&["ls"]).stdout).into_owned();
        assert!(listed.contains(&own) && !listed.contains(&of_root.id), "{listed}");
        assert!(!ask(&["show", &of_root.id]).status.success());
        assert!(!ask(&["token", "create", "--admin"]).status.success());
        let shown = server.http().get(&format!("/v1/sessions/{own}")).await.expect(200);
        assert_eq!(shown["owner"], format!("local:{}", stranger.uid()));
    });
}

/// Everything under a directory that others could use: its path and mode. What is inside a room's own tree is the
/// room's, behind a directory that is closed.
fn open_to_others(dir: &Path, found: &mut Vec<(std::path::PathBuf, u32)>) {
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let Ok(meta) = entry.path().symlink_metadata() else { continue };
        let mode = meta.permissions().mode() & 0o7777;
        let kind = meta.file_type();
        let private = match (kind.is_dir(), kind.is_socket()) {
            (true, _) => 0o700,
            (_, true) => 0o700,
            _ => 0o600,
        };
        let of_room = entry.path().parent().and_then(Path::parent).is_some_and(|dir| dir.ends_with("layers"));
        if of_room {
            continue;
        }
        if mode & !private != 0 {
            found.push((entry.path(), mode));
        }
        if kind.is_dir() {
            open_to_others(&entry.path(), found);
        }
    }
}

#[test]
fn the_state_is_closed_to_others_whatever_the_umask() {
    for_each_user(async |user| {
        let mut server = Setup::of(user).umask(0).start();
        let session = server.session().await;
        session.says("umask 0; mkdir open; echo x > open/file").await;
        server.http().body("secret").put(&session.path("/private/x")).await.expect(204);
        for _ in 0..2 {
            let mode = fs::metadata(server.state()).expect("the state").permissions().mode() & 0o7777;
            assert_eq!(mode, 0o700);
            let mut found = Vec::new();
            open_to_others(server.state(), &mut found);
            assert_eq!(found, []);
            server.restart();
        }
    });
}

#[test]
fn secrets_are_in_no_log_no_error_and_no_journal() {
    for_each_user(async |user| {
        let server =
            Setup::of(user).environment("WORKROOM_LOG", "trace").arguments(&["--log-format", "json"]).start();
        let session = server.session().await;
        let (_, made) = token(&server, json!({"scope": "user", "owner": "ada"})).await;
        let wrong = "wr_0123456789ab_5ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4";
        let refused = server.http().token(wrong).get("/v1/sessions").await;
        refused.problem(401);
        session.run(json!({"command": "cat > /dev/null; test -n \"$API_KEY\"", "env": {"API_KEY": "env-5ec4e7"}, "stdin": "stdin-5ec4e7"})).await;
        let bad = server
            .http()
            .json(&json!({"command": "true", "env": {"1BAD": "env-5ec4e7"}}))
            .post(&session.path("/exec"))
            .await;
        bad.problem(400);
        server.http().body("private-5ec4e7").put(&session.path("/private/x")).await.expect(204);
        server.http().token(&made).get("/v1/sessions").await.expect(200);
        let journal = server.http().header("Accept", "application/json").get("/v1/events?limit=1000").await;
        journal.expect(200);
        let log = server.log();
        assert!(log.lines().count() > 5, "it does log: {log}");
        assert!(log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");
        let secret = |token: &str| token.rsplit('_').next().expect("a secret").to_owned();
        let secrets = [secret(server.token()), secret(&made), secret(wrong), "5ec4e7".to_owned()];
        for (place, text) in
            [("log", log), ("error", refused.text() + &bad.text()), ("journal", journal.text())]
        {
            for secret in &secrets {
                assert!(!text.contains(secret.as_str()), "{secret} is in the {place}: {text}");
            }
        }
    });
}
