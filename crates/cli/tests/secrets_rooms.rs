//! What rooms are given: variables and files, by policy and by call, replaced while they run.

use serde_json::{Value, json};
use workroom_testkit::types::{ExecRequest, ProblemCode, ServiceState};
use workroom_testkit::{Server, TestSession, as_root, for_each_user};

async fn set(server: &Server<'_>, path: &str, value: &str) {
    server.http().json(&json!({"value": value})).put(path).await.expect(200);
}

async fn set_policy(server: &Server<'_>, session: &TestSession, secrets: Value) {
    server.http().json(&json!({"secrets": secrets})).put(&session.path("/policy")).await.expect(200);
}

/// What a variable or a file holds, as a room sees it: its digits shifted, so that nobody looks for it.
const SHIFTED: &str = "tr 0-9 1-90";

#[test]
fn a_policy_gives_every_command_variables_and_files() {
    for_each_user(async |user| {
        let server = Server::of(user);
        set(&server, "/v1/secrets/TOKEN?scope=global", "global-11111").await;
        set(&server, "/v1/secrets/OTHER?scope=global", "global-44444").await;
        set(&server, "/v1/secrets/TOKEN", "user-22222").await;
        let policy = json!({"secrets": {"env": {"MY_TOKEN": "TOKEN"}, "files": {"token.txt": "TOKEN"}, "inject": ["global"]}});
        let session = server.session_like(json!({"policy": policy})).await;
        let show = format!("echo $MY_TOKEN $TOKEN $OTHER | {SHIFTED}; {SHIFTED} < /run/secrets/token.txt");
        // By name the nearest is meant; a scope gives what it has itself.
        assert_eq!(session.says(&show).await, "user-33333 global-22222 global-55555\nuser-33333");
        set(&server, &session.path("/secrets/TOKEN"), "session-66666").await;
        assert_eq!(session.says(&show).await, "session-77777 global-22222 global-55555\nsession-77777");
        let look = "stat -L -c '%a %U %F' /run/secrets/token.txt; stat -f -L -c %T /run/secrets/token.txt; \
                    test -w /run/secrets/token.txt || echo not writable";
        assert_eq!(session.says(look).await, "400 agent regular file\ntmpfs\nnot writable\n");
        // What a call says itself is meant.
        let own = session.run(json!({"command": "echo $TOKEN", "env": {"TOKEN": "mine"}})).await;
        assert_eq!(own.stdout, "mine\n");
        // All kinds of commands have them.
        let shell = session.shell(json!({})).await;
        assert_eq!(shell.says(&format!("echo $OTHER | {SHIFTED}")).await, "global-55555\n");
        let process = session.process(json!({"command": format!("echo $OTHER | {SHIFTED}")})).await;
        process.says("global-55555").await;
        let terminal = session.terminal(json!({})).await;
        terminal.types(&format!("echo $OTHER | {SHIFTED}")).await;
        terminal.shows("global-55555").await;
        let service = json!({"command": format!("echo $OTHER | {SHIFTED}; exec sleep 1000")});
        session.service("web", service).await;
        workroom_testkit::eventually(async || {
            let logs = server.http().get(&session.path("/services/web/logs")).await.text();
            if logs.contains("global-55555") { Ok(()) } else { Err(logs) }
        })
        .await;
        // Nobody sees them in a process list.
        let list = session.says("cat /proc/*/cmdline | tr '\\0' ' '").await;
        assert!(!list.contains("66666") && !list.contains("44444"), "{list}");
    });
}

#[test]
fn files_are_replaced_whole_while_the_room_runs() {
    for_each_user(async |user| {
        let server = Server::of(user);
        set(&server, "/v1/secrets/ONE", "first-11111").await;
        set(&server, "/v1/secrets/TWO", "second-22222").await;
        let session = server.session().await;
        assert_eq!(session.says("ls /run/secrets").await, "");
        let holds = "exec 5</run/secrets/one; cd /run/secrets; touch /workspace/held; \
                     while [ -e /workspace/held ]; do sleep 0.05; done; \
                     tr 0-9 1-90 <&5; echo; tr 0-9 1-90 < /run/secrets/one; echo; ls";
        set_policy(&server, &session, json!({"files": {"one": "ONE", "two": "TWO"}})).await;
        let process = session.process(json!({"command": holds})).await;
        workroom_testkit::eventually(async || match session.sh("test -e /workspace/held").await.exit_code {
            0 => Ok(()),
            _ => Err("it does not hold the file yet".to_owned()),
        })
        .await;
        // Nobody started anything: a new value alone is enough.
        set(&server, "/v1/secrets/ONE", "third-33333").await;
        session.says("rm /workspace/held").await;
        process.ended().await;
        let said = process.all(workroom_testkit::types::OutputStream::Stdout).await;
        // Who had it open keeps it; who looks anew sees the new set; the old directory is gone.
        assert_eq!(String::from_utf8_lossy(&said), "first-22222\nthird-44444\n");
        set_policy(&server, &session, json!({"files": {"three": "TWO"}})).await;
        assert_eq!(session.says("ls /run/secrets").await, "three\n");
        // One that is removed is a file no more, and the next command that needs it says so.
        server.http().delete("/v1/secrets/TWO").await;
        let problem =
            session.refuses(ExecRequest { command: Some("true".into()), ..Default::default() }).await;
        assert!(problem.detail.contains("secret TWO"), "{problem}");
        set_policy(&server, &session, json!({})).await;
        assert_eq!(
            session.says("ls -A /run/secrets /run/.secrets").await,
            "/run/.secrets:\ncurrent\n\n/run/secrets:\n"
        );
        // The next room has them from its start.
        set_policy(&server, &session, json!({"files": {"one": "ONE"}})).await;
        session.stop().await;
        assert_eq!(session.says("tr 0-9 1-90 < /run/secrets/one").await, "third-44444");
        // No call gives a file of them back, nor a way around.
        session.says("ln -s /run/secrets /tmp/way; ln -s /run/.secrets/current/one /tmp/file").await;
        for path in ["run/secrets/one", "run/.secrets/current/one", "tmp/way/one", "tmp/file", "run/secrets"]
        {
            let read = server.http().get(&session.path(&format!("/files/{path}?root=true"))).await;
            assert_eq!(read.status, 403, "{path}: {}", read.text());
        }
        let listed =
            server.http().get(&session.path("/files?path=/run&root=true&recursive=true")).await.text();
        assert!(listed.contains("lock") && !listed.contains("current/one"), "{listed}");
        let copy = json!({"from": "/run/secrets/one", "to": "/workspace/mine", "root": true});
        let copied = server.http().json(&copy).post(&session.path("/files/copy")).await;
        assert_eq!(copied.status, 403, "{}", copied.text());
        // Nothing of them is in the session's files.
        let diff = server.http().get(&session.path("/diff")).await.text();
        assert!(!diff.contains("secrets"), "{diff}");
    });
}

/// Files are read by a process of the room that may have worked for long when the first secrets come.
#[test]
fn no_file_call_reads_secrets_that_came_after_its_clerk() {
    for_each_user(async |user| {
        let server = Server::of(user);
        set(&server, "/v1/secrets/ONE", "first-11111").await;
        let session = server.session().await;
        let reader = json!({"scope": "admin", "read_only": true});
        let made = server.http().json(&reader).post("/v1/tokens").await.expect(201);
        let token = made["token"].as_str().expect("a token").to_owned();
        let read = async |path: &str| {
            server.http().token(&token).get(&session.path(&format!("/files/{path}"))).await.status
        };
        assert_eq!(read("etc/passwd?root=true").await, 200);
        set_policy(&server, &session, json!({"files": {"one": "ONE"}})).await;
        let shown = session.says(&format!("{SHIFTED} < /run/secrets/one")).await;
        assert_eq!(shown, "first-22222");
        assert_eq!(read("run/secrets/one?root=true").await, 403);
        assert_eq!(read("run/.secrets/current/one?root=true").await, 403);
    });
}

/// Each file system of a room costs every other room of the machine something.
#[test]
fn a_room_has_no_place_for_secret_files_before_it_is_given_some() {
    as_root(async |user| {
        let mut server = Server::of(user);
        set(&server, "/v1/secrets/ONE", "first-11111").await;
        let session = server.session().await;
        let places = "grep -c ' /run/.secrets ' /proc/self/mountinfo || true";
        assert_eq!(session.says(&format!("{places}; ls /run/secrets")).await, "0\n");
        // The room's root leads it elsewhere, and has no secrets then.
        session.says("mkdir /workspace/mine").await;
        let as_room_root = async |command: &str| {
            let result = session.run(json!({"command": command, "user": "root"})).await;
            assert_eq!((result.exit_code, result.stderr.as_str()), (0, ""), "{command}");
        };
        as_room_root("mv /run/.secrets /run/away; ln -s /workspace/mine /run/.secrets").await;
        let files = json!({"files": {"one": "ONE"}});
        set_policy(&server, &session, files.clone()).await;
        let nothing = ExecRequest { command: Some("true".into()), ..Default::default() };
        let problem = session.refuses(nothing).await;
        assert_eq!(problem.code, ProblemCode::SecretsUnavailable, "{problem}");
        assert!(problem.detail.contains("/run/secrets"), "{problem}");
        set_policy(&server, &session, json!({})).await;
        assert_eq!(session.says(&format!("ls -A /workspace/mine; {places}")).await, "0\n");
        as_room_root("rm /run/.secrets; mv /run/away /run/.secrets").await;
        // Now there is a place, once, whoever gives them.
        set_policy(&server, &session, files).await;
        let look = format!("{places}; stat -f -L -c %T /run/secrets/one; {SHIFTED} < /run/secrets/one");
        assert_eq!(session.says(&look).await, "1\ntmpfs\nfirst-22222");
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id);
        set(&server, "/v1/secrets/ONE", "next-33333").await;
        assert_eq!(session.says(&look).await, "1\ntmpfs\nnext-44444");
        // The next room has it from the start.
        session.stop().await;
        assert_eq!(session.says(&look).await, "1\ntmpfs\nnext-44444");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

/// What the room's root puts in the way of secrets, it alone has in its way.
#[test]
fn a_room_whose_place_for_secrets_is_no_directory_stands_without_them() {
    as_root(async |user| {
        let server = Server::of(user);
        set(&server, "/v1/secrets/ONE", "first-11111").await;
        for instead in ["touch /run/.secrets", "mkfifo /run/.secrets"] {
            let session = server.session().await;
            let command = format!("rm -r /run/.secrets && {instead}");
            let done = session.run(json!({"command": command, "user": "root"})).await;
            assert_eq!((done.exit_code, done.stderr.as_str()), (0, ""), "{command}");
            session.stop().await;
            set_policy(&server, &session, json!({"files": {"one": "ONE"}})).await;
            session.start().await;
            let nothing = ExecRequest { command: Some("true".into()), ..Default::default() };
            let problem = session.refuses(nothing).await;
            assert_eq!(problem.code, ProblemCode::SecretsUnavailable, "{problem}");
            set_policy(&server, &session, json!({})).await;
            assert_eq!(session.says("echo stands").await, "stands\n");
        }
    });
}

#[test]
fn secrets_are_mounted_where_they_belong_or_nowhere() {
    as_root(async |user| {
        let server = Server::of(user);
        set(&server, "/v1/secrets/ONE", "first-11111").await;
        let files = json!({"files": {"one": "ONE"}});
        let nothing = || ExecRequest { command: Some("true".into()), ..Default::default() };
        let moves = "rm -r /run/.secrets; mkdir -p /run/.secrets/current; \
                     exec perl -e 'print qq(moves\\n); $| = 1; print qq(\\n); \
                     while (1) { rename(qq(/run/.secrets), qq(/tmp/moved)); rename(qq(/tmp/moved), qq(/run/.secrets)) }'";
        for _ in 0..3 {
            let session = server.session().await;
            let mover = session.process(json!({"command": moves, "user": "root"})).await;
            mover.says("moves").await;
            for _ in 0..30 {
                set_policy(&server, &session, files.clone()).await;
                let ran = session.client().exec(&session.id, &nothing()).await;
                set_policy(&server, &session, json!({})).await;
                let elsewhere = "grep -c ' /tmp/moved ' /proc/self/mountinfo || true";
                assert_eq!(session.says(elsewhere).await, "0\n");
                if ran.is_ok() {
                    assert_eq!(session.says("stat -f -c %T /run/.secrets").await, "tmpfs\n");
                    break;
                }
            }
            session.delete().await;
        }
    });
}

#[test]
fn a_call_names_secrets_for_itself_alone() {
    for_each_user(async |user| {
        let server = Server::of(user);
        set(&server, "/v1/secrets/TOKEN", "value-12345").await;
        let session = server.session().await;
        let command = format!("echo $A | {SHIFTED}");
        let given = json!({"A": "TOKEN"});
        let ran = session.run(json!({"command": command, "secret_env": given})).await;
        assert_eq!(ran.stdout, "value-23456\n");
        assert_eq!(session.says("echo \"[$A]\"").await, "[]\n");
        let process = session.process(json!({"command": command, "secret_env": given})).await;
        process.says("value-23456").await;
        let shell = session.shell(json!({"name": "mine", "secret_env": given})).await;
        assert_eq!(shell.says(&command).await, "value-23456\n");
        // It is made again with what the secret is by then: its record has the name.
        set(&server, "/v1/secrets/TOKEN", "other-55555").await;
        shell.run("exit").await;
        let again = shell.run(&command).await;
        assert_eq!((again.output.as_str(), again.shell.replaced), ("other-66666\n", true));
        let terminal = session.terminal(json!({"secret_env": given})).await;
        terminal.types(&command).await;
        terminal.shows("other-66666").await;
        let service = json!({"command": format!("{command}; exec sleep 1000"), "secret_env": given});
        session.service("web", service).await;
        set(&server, "/v1/secrets/TOKEN", "last-77777").await;
        session.stop_service("web").await;
        session.start_service("web").await;
        session.service_is("web", ServiceState::Ready).await;
        workroom_testkit::eventually(async || {
            let logs = server.http().get(&session.path("/services/web/logs")).await.text();
            if logs.contains("last-88888") { Ok(()) } else { Err(logs) }
        })
        .await;
    });
}

#[test]
fn what_cannot_be_given_is_told_by_name() {
    for_each_user(async |user| {
        let server = Server::of(user);
        set(&server, "/v1/secrets/FINE", "value-12345").await;
        let nul = json!({"value": "YQBiYw==", "encoding": "base64"});
        server.http().json(&nul).put("/v1/secrets/WITH_NUL").await.expect(200);
        set(&server, "/v1/secrets/LD_PRELOAD", "/tmp/evil.so").await;
        let session = server.session().await;
        let run = async |secret_env: Value| {
            let body = json!({"command": "true", "secret_env": secret_env});
            server.http().json(&body).post(&session.path("/exec")).await
        };
        for (variable, word) in [
            ("LD_PRELOAD", "loader"),
            ("PATH", "room sets it"),
            ("IFS", "shells"),
            ("BASH_ENV", "shells"),
            ("_X", "underscore"),
            ("A=B", "letters"),
            ("NODE_OPTIONS", "interpreter"),
            ("RANDOM", "not arrive"),
        ] {
            let refused = run(json!({ variable: "FINE" })).await;
            assert_eq!(refused.problem(400), "invalid_argument", "{variable}");
            assert!(refused.text().contains(word), "{variable}: {}", refused.text());
        }
        assert_eq!(run(json!({"A": "MISSING"})).await.problem(400), "secret_not_found");
        assert_eq!(run(json!({"A": "no name"})).await.problem(400), "invalid_argument");
        assert_eq!(run(json!({"A": "WITH_NUL"})).await.problem(400), "invalid_argument");
        let both = json!({"command": "true", "env": {"A": "x"}, "secret_env": {"A": "FINE"}});
        assert_eq!(
            server.http().json(&both).post(&session.path("/exec")).await.problem(400),
            "invalid_argument"
        );
        // What a policy may not say is refused when it is set.
        for secrets in [
            json!({"env": {"PATH": "FINE"}}),
            json!({"files": {"../x": "FINE"}}),
            json!({"files": {".x": "FINE"}}),
            json!({"files": {"a/b": "FINE"}}),
            json!({"files": {"x": "no name"}}),
            json!({"inject": ["everybody"]}),
        ] {
            let policy = json!({ "secrets": secrets });
            let refused = server.http().json(&policy).put(&session.path("/policy")).await;
            assert_eq!(refused.problem(400), "invalid_argument", "{policy}");
        }
        // A scope gives what can be given, and the journal says what was left out.
        set_policy(&server, &session, json!({"inject": ["user"]})).await;
        assert_eq!(
            session.says("echo $FINE | tr 0-9 1-90; env | grep -c LD_ || true").await,
            "value-23456\n0\n"
        );
        let skipped: Vec<String> = session
            .journal()
            .await
            .iter()
            .filter(|entry| entry.kind == "secret.skipped")
            .map(|entry| entry.body["name"].to_string())
            .collect();
        assert_eq!(skipped, ["\"LD_PRELOAD\"", "\"WITH_NUL\""]);
        // A file can hold any byte.
        set_policy(&server, &session, json!({"files": {"nul": "WITH_NUL"}})).await;
        assert_eq!(session.says("wc -c < /run/secrets/nul").await, "4\n");
        // What is kept to be used again must not hold a value.
        set_policy(&server, &session, json!({"inject": ["user"]})).await;
        for spec in [
            json!({"command": "echo value-12345"}),
            json!({"command": "true", "env": {"A": "value-12345"}}),
            json!({"argv": ["echo", "dmFsdWUtMTIzNDU="]}),
        ] {
            let problem = session.refuses_service("web", spec).await;
            assert!(problem.detail.contains("holds the value of a secret"), "{problem}");
        }
        let shell = json!({"env": {"A": "value-12345"}});
        assert_eq!(
            server.http().json(&shell).post(&session.path("/shells")).await.problem(400),
            "invalid_argument"
        );
    });
}
