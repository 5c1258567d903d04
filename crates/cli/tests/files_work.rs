//! Work on files: search, patches, watches; and the verbs of the command line.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};
use workroom_testkit::{Server, User, for_each_user, run, within};

#[test]
fn search_finds_what_is_there() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session
            .says("mkdir src; printf 'a\\nneedle one\\nb\\n' > src/x.rs; printf 'Needle two\\n' > y.txt; printf '\\0needle' > bin; echo needle > .hidden")
            .await;
        let search = async |body: Value| server.http().json(&body).post(&session.path("/files/search")).await;
        let found = search(json!({"pattern": "needle", "context": 1})).await.expect(200);
        assert_eq!(found["matches"].as_array().map(Vec::len), Some(1), "{found}");
        let first = &found["matches"][0];
        assert_eq!(
            (&first["path"], &first["line"], &first["column"]),
            (&json!("src/x.rs"), &json!(2), &json!(1))
        );
        assert_eq!((&first["before"], &first["after"]), (&json!(["a"]), &json!(["b"])));
        let both = search(json!({"pattern": "needle", "ignore_case": true})).await.expect(200);
        assert_eq!(both["matches"].as_array().map(Vec::len), Some(2), "{both}");
        let globbed =
            search(json!({"pattern": "needle", "ignore_case": true, "globs": ["*.txt"]})).await.expect(200);
        assert_eq!(globbed["matches"][0]["path"], "y.txt");
        assert_eq!(search(json!({"pattern": "("})).await.problem(400), "invalid_argument");
        assert_eq!(search(json!({"pattern": "(", "literal": true})).await.expect(200)["matches"], json!([]));
        assert_eq!(
            search(json!({"pattern": "x", "path": "../"})).await.problem(400),
            "path_outside_workspace"
        );
    });
}

const PATCH: &str = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+made\n";

#[test]
fn a_patch_is_applied_whole_or_not_at_all() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        session.says("printf 'one\\ntwo\\nthree\\n' > f").await;
        let patch = async |body: Value| server.http().json(&body).post(&session.path("/files/patch")).await;
        let tried = patch(json!({"patch": PATCH, "dry_run": true})).await.expect(200);
        assert_eq!(tried["applied"], false);
        assert_eq!(session.says("cat f; ls").await, "one\ntwo\nthree\nf\n");
        let done = patch(json!({"patch": PATCH})).await.expect(200);
        assert_eq!(
            (&done["applied"], &done["files"][1]["change"]),
            (&json!(true), &json!("created")),
            "{done}"
        );
        assert_eq!(session.says("cat f new").await, "one\nTWO\nthree\nmade\n");
        let again = patch(json!({"patch": PATCH})).await;
        assert_eq!(again.problem(422), "patch_failed");
        assert!(again.json()["report"]["files"].is_array(), "{again:?}");
        assert_eq!(session.says("cat f new").await, "one\nTWO\nthree\nmade\n");
        assert_eq!(session.event("file.patched").await.body["files"][0]["path"], "f");
    });
}

#[test]
fn a_watch_sees_what_commands_do() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.says("echo 0 > old").await;
        let mut watch = server.http().open("GET", &session.path("/watch?recursive=true")).await;
        watch.until("retry:").await;
        session.says("echo 1 > a; echo 2 >> old; mv a b; rm b; mkdir d; echo > d/deep").await;
        let seen = watch.until("\"path\":\"d/deep\"").await;
        let events: Vec<&str> = seen.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
        for kind in ["created", "modified", "renamed", "deleted"] {
            assert!(events.contains(&kind), "{kind}: {seen}");
        }
        assert!(seen.contains("\"path\":\"b\",\"from\":\"a\""), "{seen}");
        assert!(seen.contains("id: 1\n"), "{seen}");
        session.stop().await;
        watch.until("event: gone").await;
        let mut back = server.http().header("Last-Event-ID", 3).open("GET", &session.path("/watch")).await;
        back.until("event: overflow").await;
        assert_eq!(
            server.http().get(&session.path("/watch?path=..")).await.problem(400),
            "path_outside_workspace"
        );
        let refused = server.http().header("Accept", "application/json").get(&session.path("/watch")).await;
        assert_eq!(refused.problem(406), "not_acceptable");
    });
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn files_on_the_command_line() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let id = &session.id;
        let cli = |arguments: &[&str]| server.cli(arguments).output().expect("workroom");
        let ok = |arguments: &[&str]| {
            let output = cli(arguments);
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            said(&output)
        };
        let local = user.make_file("note.txt", "one\ntwo\nthree\n");
        let local = local.to_str().expect("a path");
        let remote = |path: &str| format!("{id}:{path}");
        ok(&["cp", local, &remote("docs/")]);
        assert_eq!(ok(&["cat", &remote("docs/note.txt")]), "one\ntwo\nthree\n");
        assert_eq!(ok(&["cat", &remote("docs/note.txt"), "--lines", "2-3"]), "two\nthree\n");
        assert!(
            ok(&["edit", &remote("docs/note.txt"), "--old", "two", "--new", "2"]).contains("1 replacement")
        );
        let back = user.make_dir("down").join("back.txt");
        ok(&["cp", &remote("docs/note.txt"), back.to_str().expect("a path")]);
        assert_eq!(std::fs::read_to_string(&back).expect("a file"), "one\n2\nthree\n");
        assert_eq!(ok(&["cp", &remote("docs/note.txt"), "-"]), "one\n2\nthree\n");
        ok(&["cp", &remote("docs/note.txt"), &remote("twin")]);

        let mut piped = server.cli(&["cp", "-", &remote("piped")]);
        let mut piped = piped.stdin(Stdio::piped()).spawn().expect("workroom cp");
        piped.stdin.take().expect("stdin").write_all(b"through a pipe").expect("written");
        assert!(piped.wait().expect("ended").success());
        assert_eq!(session.says("cat piped").await, "through a pipe");

        let table = ok(&["files", id, "-r"]);
        assert!(table.starts_with("MODE") && table.contains("docs/note.txt"), "{table}");
        let list: Value = serde_json::from_str(&ok(&["files", id, "--json"])).expect("JSON");
        assert_eq!(list["entries"].as_array().map(Vec::len), Some(3), "{list}");
        ok(&["files", "mkdir", &remote("made/deep")]);
        ok(&["files", "mv", &remote("twin"), "made/deep/moved"]);
        assert!(ok(&["files", "stat", &remote("made/deep/moved"), "--json"]).contains("\"type\":\"file\""));
        assert!(ok(&["files", "du", id]).contains("directories  3"));
        ok(&["files", "rm", &remote("made"), "-r"]);
        assert_eq!(session.says("ls").await, "docs\npiped\n");
        assert!(ok(&["cat", "--root", &remote("/etc/hosts")]).contains("localhost"));

        let missing = cli(&["cat", &remote("nope")]);
        assert_eq!(missing.status.code(), Some(125));
        assert!(String::from_utf8_lossy(&missing.stderr).contains("there is no"), "{missing:?}");
        let as_json = cli(&["edit", &remote("piped"), "--old", "x", "--new", "y", "--json"]);
        let error: Value = serde_json::from_slice(&as_json.stdout).expect("JSON");
        assert_eq!(error["error"]["code"], "edit_mismatch");
        assert_eq!(cli(&["cp", local, "elsewhere"]).status.code(), Some(125));
    });
}

#[test]
fn searching_patching_and_watching_on_the_command_line() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let id = session.id.as_str();
        session.says("printf 'one\\ntwo\\nthree\\n' > f").await;
        let found = server.cli(&["grep", "-i", "-C", "1", "TWO", id]).output().expect("workroom grep");
        assert_eq!((found.status.code(), said(&found).as_str()), (Some(0), "f-1-one\nf:2:two\nf-3-three\n"));
        let none = server.cli(&["grep", "-F", "(", id]).output().expect("workroom grep");
        assert_eq!((none.status.code(), said(&none).as_str()), (Some(1), ""));

        let diff = user.make_file("fix.diff", PATCH);
        let diff = diff.to_str().expect("a path");
        let tried = server.cli(&["patch", id, diff, "--dry-run"]).output().expect("workroom patch");
        assert!(tried.status.success() && said(&tried).contains("modified  f"), "{tried:?}");

        let mut watch = server.cli(&["watch", id]);
        let mut watch = watch.spawn().expect("workroom watch");
        let mut lines = BufReader::new(watch.stdout.take().expect("stdout")).lines();
        // Until it looks, nothing is seen: so something happens again and again.
        let ticking = async {
            loop {
                session.says("echo x >> tick").await;
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let first = tokio::task::spawn_blocking(move || lines.next());
        let line = tokio::select! {
            line = within("a line", first) => line.expect("a thread").expect("a line").expect("text"),
            () = ticking => unreachable!("it never ends"),
        };
        assert!(line.ends_with("tick"), "{line}");
        session.stop().await;
        let ended = tokio::task::spawn_blocking(move || watch.wait());
        assert!(within("its end", ended).await.expect("a thread").expect("ended").success());

        let done = server.cli(&["patch", id, diff]).output().expect("workroom patch");
        assert!(done.status.success() && said(&done).contains("created   new"), "{done:?}");
        let again = server.cli(&["patch", id, diff]).output().expect("workroom patch");
        assert_eq!(again.status.code(), Some(125));
        assert!(String::from_utf8_lossy(&again.stderr).contains("@@"), "{again:?}");
    });
}
