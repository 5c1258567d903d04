//! The operator's filters: what is refused at every way in, in the operator's words, and told in the journal.

use serde_json::{Value, json};
use std::path::Path;
use workroom_testkit::types::{CreateSession, ExecRequest};
use workroom_testkit::{Response, Server, TestSession, User, for_each_user};

/// As an editor saves it: another file takes the name.
fn write_file(user: &User, state: &Path, text: &str) {
    let new = user.make_file("policy.new", text);
    std::fs::rename(new, state.join("policy.toml")).expect("its name");
}

const FILTERS: &str = r#"
[filters]
exempt = ["ops"]

[filters.upload]
deny_extensions = ["exe", "tar.gz"]
largest = "100K"
files = 3
reason = "ask the platform team for an exception"

[[filters.commands]]
pattern = '\bcurl\b.*\|\s*(ba)?sh\b'
reason = "read a script before you run it"

[[filters.commands]]
pattern = '^sudo '
reason = "there is no sudo in rooms"
"#;

#[track_caller]
fn filtered(response: &Response, reason: &str) {
    assert_eq!(response.problem(403), "filtered");
    assert_eq!(response.json()["hint"], reason, "{}", response.text());
}

const ASK: &str = "ask the platform team for an exception";

async fn refusals(session: &TestSession) -> Vec<Value> {
    let entries = session.journal().await.into_iter();
    entries.filter(|entry| entry.kind == "filter.refused").map(|entry| entry.body).collect()
}

#[test]
fn nothing_is_filtered_until_somebody_says_so_and_no_restart_is_needed() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let put = async || server.http().body("x").put(&session.path("/files/a.exe")).await;
        put().await.expect(201);
        write_file(user, server.state(), FILTERS);
        filtered(&put().await, ASK);
        write_file(user, server.state(), "[filters.upload]\nlargest = 'lots'\n");
        filtered(&put().await, ASK);
        let status = server.http().get("/v1/policy").await.expect(200);
        assert!(status["file"]["fault"].as_str().is_some_and(|fault| fault.contains("lots")), "{status}");
        write_file(user, server.state(), "");
        put().await.expect(200);
    });
}

/// A tar with one file in it, as `tar` makes it.
fn tar(user: &User, name: &str, bytes: usize) -> Vec<u8> {
    let dir = user.make_dir(&format!("tar-{}", name.replace('/', "-")));
    std::fs::write(dir.join(name), vec![b'x'; bytes]).expect("a file");
    let output = std::process::Command::new("tar").arg("-C").arg(&dir).args(["-cf", "-", name]).output();
    output.expect("tar").stdout
}

#[test]
fn every_way_in_is_asked() {
    for_each_user(async |user| {
        let server = Server::of(user);
        write_file(user, server.state(), FILTERS);
        let session = server.session().await;
        let http = || server.http();
        let (files, archive) = (session.path("/files"), session.path("/archive"));
        http().body("x").put(&format!("{files}/a.txt")).await.expect(201);

        for name in ["a.exe", "dir/A.EXE", "x.tar.gz"] {
            filtered(&http().body("x").put(&format!("{files}/{name}")).await, ASK);
        }
        filtered(&http().body(vec![b'x'; 200_000]).put(&format!("{files}/large.txt")).await, ASK);
        assert_eq!(http().get(&format!("{files}/large.txt")).await.status, 404, "nothing of it is there");

        let part = |name: &str| {
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"f\"\r\n\r\nx\r\n")
        };
        let form = async |names: &[&str]| {
            let body: String = names.iter().map(|name| part(name)).chain(["--b--\r\n".to_owned()]).collect();
            http().header("content-type", "multipart/form-data; boundary=b").body(body).post(&files).await
        };
        let some = form(&["good.txt", "bad.exe"]).await.expect(207);
        assert_eq!(some["files"][1]["error"]["code"], "filtered", "{some}");
        filtered(&form(&["1", "2", "3", "4"]).await, ASK);

        let import = async |bytes: Vec<u8>| {
            http().header("content-type", "application/x-tar").body(bytes).post(&archive).await
        };
        import(tar(user, "in.txt", 10)).await.expect(200);
        filtered(&import(tar(user, "in.exe", 10)).await, ASK);
        filtered(&import(tar(user, "in-large.txt", 200_000)).await, ASK);

        let patch = json!({ "patch": "--- /dev/null\n+++ b/new.exe\n@@ -0,0 +1 @@\n+x\n" });
        filtered(&http().json(&patch).post(&format!("{files}/patch")).await, ASK);
        let patch = json!({ "patch": "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+x\n" });
        http().json(&patch).post(&format!("{files}/patch")).await.expect(200);
        for verb in ["move", "copy"] {
            let request = json!({ "from": "a.txt", "to": "b.exe" });
            filtered(&http().json(&request).post(&format!("{files}/{verb}")).await, ASK);
        }
        filtered(&http().body("x").put(&session.path("/private/p.exe")).await, ASK);
        let whole = session.path("/export");
        let exported = http().get(&whole).await.body;
        filtered(&http().body(exported).post("/v1/sessions/import").await, ASK);

        assert_eq!(session.says("ls | tr '\\n' ' '").await, "1 2 3 a.txt good.txt in.txt new.txt ");
        let told = refusals(&session).await;
        assert!(told.len() >= 10, "{told:#?}");
        assert!(told.iter().all(|body| body["filter"] == "upload" && body["reason"] == ASK), "{told:#?}");
    });
}

#[test]
fn commands_are_refused_with_the_operators_reason() {
    for_each_user(async |user| {
        let server = Server::of(user);
        write_file(user, server.state(), FILTERS);
        let session = server.session().await;
        let (script, sudo) = ("read a script before you run it", "there is no sudo in rooms");
        let command = "curl -s http://x.test/i.sh  |  bash";
        let exec = json!({ "command": command });
        filtered(&server.http().json(&exec).post(&session.path("/exec")).await, script);
        let stream = server.http().header("accept", "text/event-stream").json(&exec);
        filtered(&stream.post(&session.path("/exec")).await, script);
        let argv = json!({ "argv": ["sudo", "ls"] });
        filtered(&server.http().json(&argv).post(&session.path("/exec")).await, sudo);
        filtered(&server.http().json(&argv).post(&session.path("/processes")).await, sudo);
        filtered(&server.http().json(&exec).post(&session.path("/shells/default/run")).await, script);
        filtered(&server.http().json(&argv).put(&session.path("/services/s")).await, sudo);
        assert_eq!(session.says("echo sudo; echo curl").await, "sudo\ncurl\n");
        let told = refusals(&session).await;
        assert_eq!(told.len(), 6, "{told:#?}");
        assert_eq!(told[0]["pattern"], r"\bcurl\b.*\|\s*(ba)?sh\b");

        // What it is not: whoever means it gets around it. The room's walls are elsewhere.
        assert_eq!(session.says("c=su; ${c}do true 2>/dev/null || echo ran").await, "ran\n");

        let owner = CreateSession { owner: Some("ops".into()), ..CreateSession::default() };
        let exempt = server.session_with(owner).await;
        let request = ExecRequest { command: Some("sudo -n true; echo on".into()), ..ExecRequest::default() };
        assert_eq!(exempt.exec(request).await.stdout, "on\n");
        server.http().body("x").put(&exempt.path("/files/a.exe")).await.expect(201);
    });
}
