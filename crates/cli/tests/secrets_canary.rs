//! Canaries: many secrets, shown by a room in every way that there is, then looked for in every file of the server's
//! state, in its log and in every answer. None is found.

mod support;

use serde_json::{Value, json};
use std::path::Path;
use std::sync::Mutex;
use support::encodings::{base64, hex, url};
use workroom_testkit::{Http, Response, Server, TestSession, eventually, for_each_user};

/// A secret, and where it is kept.
struct Canary {
    name: String,
    value: String,
    path: String,
}

/// Of all scopes, lengths and alphabets; none is a part of another.
fn canaries(session: &str) -> Vec<Canary> {
    let mut all = Vec::new();
    let seed = u64::from(std::process::id());
    for number in 0..24u64 {
        let noise = (seed * 1_000_003 + number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let value = match number % 6 {
            0 => format!("canary-{noise:016x}"),
            1 => format!("Ca/na+ry={noise:x}?&%"),
            2 => format!(
                "-----BEGIN KEY {number}-----\n{}\n{noise:016x}\n-----END-----",
                hex(&noise.to_string())
            ),
            3 => format!("{noise:x}").repeat(40),
            4 => format!("kanarienvögel \"{noise}\" \\ und mehr"),
            _ => format!("c{:07x}", noise >> 36),
        };
        let name = format!("CANARY_{number}");
        let path = match number % 3 {
            0 => format!("/v1/secrets/{name}?scope=global"),
            1 => format!("/v1/secrets/{name}"),
            _ => format!("/v1/sessions/{session}/secrets/{name}"),
        };
        all.push(Canary { name, value, path });
    }
    all
}

/// How a canary could look where it must not be.
fn traces(value: &str) -> Vec<String> {
    let inside_json = serde_json::to_string(value).expect("JSON").trim_matches('"').to_owned();
    let whole = base64(value);
    // Without its last group, which depends on what follows.
    let core = whole[..whole.len() - 4].to_owned();
    vec![value.to_owned(), inside_json, core, hex(value), url(value)]
}

/// Every answer of a run.
struct Answers<'s> {
    server: &'s Server<'s>,
    all: Mutex<Vec<(String, String)>>,
}

impl Answers<'_> {
    fn keep(&self, what: &str, answer: &Response) {
        let headers: String =
            answer.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        self.note(what, format!("{headers}\n{}", answer.text()));
    }

    fn note(&self, what: &str, text: String) {
        self.all.lock().expect("nobody panics with it").push((what.to_owned(), text));
    }

    async fn send(&self, http: Http, method: &str, path: &str) -> Response {
        let answer = http.send(method, path).await;
        self.keep(&format!("{method} {path}"), &answer);
        answer
    }

    async fn get(&self, path: &str) -> Response {
        // Journals come as streams else, without an end.
        let http = match path.ends_with("/events") {
            true => self.server.http().header("accept", "application/json"),
            false => self.server.http(),
        };
        self.send(http, "GET", path).await
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        self.send(self.server.http().json(body), "POST", path).await
    }
}

/// What shows all canaries: the variables, the files, and both encoded.
const SHOWS_ALL: &str = "env | sort; cat /run/secrets/*; for f in /run/secrets/*; do base64 -w0 $f; echo; \
                         od -An -v -tx1 $f | tr -d ' \\n'; echo; done; env | sort >&2";

/// Every way for a room to show something, and for a caller to say it. Nothing is written to the room's own files: those
/// are the room's, and are as it writes them.
async fn run_through(answers: &Answers<'_>, session: &TestSession, canaries: &[Canary]) {
    let server = answers.server;
    let (first, last) = (&canaries[0], &canaries[canaries.len() - 1]);
    answers.post(&session.path("/exec"), &json!({"command": SHOWS_ALL})).await.expect(200);
    let call = json!({"command": "echo $EXTRA", "secret_env": {"EXTRA": first.name}});
    answers.post(&session.path("/exec"), &call).await.expect(200);
    let large = format!("for i in $(seq 6); do {SHOWS_ALL}; done");
    answers
        .post(&session.path("/exec"), &json!({"command": large, "max_output": 2_000_000}))
        .await
        .expect(200);
    let keyed = server.http().key("once").json(&json!({"command": SHOWS_ALL}));
    answers.send(keyed, "POST", &session.path("/exec")).await.expect(200);
    let stream = server.http().header("accept", "text/event-stream").json(&json!({"command": SHOWS_ALL}));
    answers.send(stream, "POST", &session.path("/exec")).await;
    for canary in canaries {
        // As somebody would who knows it and is not careful.
        let argv = json!({"argv": ["echo", canary.value, base64(&canary.value), url(&canary.value)]});
        answers.post(&session.path("/exec"), &argv).await.expect(200);
        answers.post(&session.path("/exec"), &json!({"argv": [format!("no-{}", canary.value)]})).await;
        let event = json!({"kind": "note", "body": {"said": canary.value, "hex": hex(&canary.value)}});
        answers.post(&session.path("/events"), &event).await;
    }
    let record = json!({"command": SHOWS_ALL, "record": true, "tag": last.value});
    let started = answers.post(&session.path("/processes"), &record).await.expect(201);
    let process = session.known_process(started["id"].as_str().expect("an id"));
    process.ended().await;
    answers.get(&process.path("/output?stream=stdout")).await.expect(200);
    let follow = server.http().header("accept", "text/event-stream");
    answers.send(follow, "GET", &process.path("/output?cursor=0")).await;
    let pty = json!({"command": "read -r x; echo \"$x\"", "pty": {}, "record": true, "record_input": true});
    let typed = session.process(pty).await;
    for letter in first.value.chars() {
        typed.write(letter.to_string()).await;
    }
    typed.write("\n").await;
    typed.ended().await;
    let shell =
        session.shell(json!({"name": "canary", "record": true, "secret_env": {"EXTRA": last.name}})).await;
    for command in [SHOWS_ALL.to_owned(), "echo $EXTRA".into(), format!("echo '{}'", last.value)] {
        answers.post(&shell.path("/run"), &json!({ "command": command })).await.expect(200);
    }
    let terminal = session.terminal(json!({"name": "canary", "cols": 200, "rows": 50, "record": true})).await;
    terminal.types(&format!("unset HISTFILE; {SHOWS_ALL}; echo the \"\"end")).await;
    terminal.shows("the end").await;
    for path in ["/screen?scrollback=true&attributes=true", "/plain", ""] {
        answers.get(&terminal.path(path)).await;
    }
    answers.get(&session.path(&format!("/processes/{}/output", terminal.id))).await.expect(200);
    let spec =
        json!({"command": format!("{SHOWS_ALL}; exec sleep 1000"), "secret_env": {"EXTRA": first.name}});
    let put = server.http().json(&spec);
    answers.send(put, "PUT", &session.path("/services/canary")).await.expect(201);
    answers.get(&session.path("/services/canary/logs?tail=1000")).await.expect(200);
    let literal = server.http().json(&json!({"command": format!("echo '{}'", first.value)}));
    assert_eq!(answers.send(literal, "PUT", &session.path("/services/other")).await.status, 400);
    let rename =
        server.http().json(&json!({"name": format!("n {}", last.value), "labels": {"l": last.value}}));
    answers.send(rename, "PATCH", &session.path("")).await;
}

async fn look_at_everything(answers: &Answers<'_>, session: &TestSession) {
    for path in [
        "",
        "/processes",
        "/shells",
        "/terminals",
        "/services",
        "/events",
        "/policy",
        "/secrets",
        "/ports",
        "/recordings",
    ] {
        answers.get(&session.path(path)).await.expect(200);
    }
    for path in ["/v1/sessions", "/v1/secrets", "/v1/events", "/v1/tokens", "/metrics", "/v1/capabilities"] {
        assert_eq!(answers.get(path).await.status, 200, "{path}");
    }
    let recordings = answers.get(&session.path("/recordings")).await.expect(200);
    for recording in recordings["recordings"].as_array().expect("a list") {
        let process = recording["process"].as_str().expect("a process");
        for path in [format!("/recordings/{process}"), format!("/recordings/{process}/transcript")] {
            assert_eq!(answers.get(&session.path(&path)).await.status, 200, "{path}");
        }
    }
}

/// Every file below, and where a trace is in it.
fn search(dir: &Path, traces: &[(String, String)], found: &mut Vec<String>, files: &mut usize) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("a kind"));
        if kind.is_dir() {
            search(&path, traces, found, files);
        } else if kind.is_file() {
            let Ok(bytes) = std::fs::read(&path) else { continue };
            // Space that is only set aside holds nothing.
            if bytes.iter().all(|&byte| byte == 0) {
                continue;
            }
            *files += 1;
            let text = String::from_utf8_lossy(&bytes);
            for (name, trace) in traces {
                if text.contains(trace) {
                    found.push(format!("{name} in {}", path.display()));
                }
            }
        }
    }
}

#[test]
fn no_canary_is_found_anywhere() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let canaries = canaries(&session.id);
        let mut kept: Vec<(String, String)> = Vec::new();
        {
            let answers = Answers { server: &server, all: Mutex::default() };
            for canary in &canaries {
                let set = server.http().json(&json!({"value": canary.value}));
                answers.send(set, "PUT", &canary.path).await.expect(200);
            }
            let files: serde_json::Map<String, Value> =
                canaries.iter().map(|canary| (canary.name.to_lowercase(), json!(canary.name))).collect();
            let policy = json!({"secrets": {"inject": ["global", "user", "session"], "files": files}});
            let put = server.http().json(&policy);
            answers.send(put, "PUT", &session.path("/policy")).await.expect(200);
            run_through(&answers, &session, &canaries).await;
            look_at_everything(&answers, &session).await;
            kept.extend(answers.all.into_inner().expect("answers"));
        }
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        {
            let answers = Answers { server: &server, all: Mutex::default() };
            answers.post(&session.path("/exec"), &json!({"command": SHOWS_ALL})).await.expect(200);
            answers.post("/v1/secrets/rotate", &json!(null)).await;
            look_at_everything(&answers, &session).await;
            kept.extend(answers.all.into_inner().expect("answers"));
        }
        // What the last of it did is on its way to the files.
        eventually(async || {
            let recordings = session.client().recordings(&session.id).await.expect("recordings");
            if recordings.recordings.len() >= 4 { Ok(()) } else { Err(format!("{recordings:?}")) }
        })
        .await;
        server.stop();
        let all: Vec<(String, String)> = canaries
            .iter()
            .flat_map(|canary| traces(&canary.value).into_iter().map(|trace| (canary.name.clone(), trace)))
            .collect();
        let (mut found, mut files) = (Vec::new(), 0);
        search(server.state(), &all, &mut found, &mut files);
        let log = server.log();
        kept.push(("the log".into(), log));
        let mut covered = 0;
        for (what, text) in &kept {
            covered += text.matches("[REDACTED:CANARY_").count();
            found.extend(
                all.iter()
                    .filter(|(_, trace)| text.contains(trace))
                    .map(|(name, _)| format!("{name} in {what}")),
            );
        }
        assert!(found.is_empty(), "{} traces: {:#?}", found.len(), &found[..found.len().min(40)]);
        // It was there to be found.
        assert!(files >= 10 && covered > 500, "{files} files, {covered} covers in {} answers", kept.len());
        server.restart();
        TestSession::new(server.client(), session.id.clone()).delete().await;
        server.expect_no_leaks().await;
    });
}
