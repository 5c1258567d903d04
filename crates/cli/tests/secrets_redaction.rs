//! What rooms were given is not seen in what leaves them: in no output, screen, recording, log, journal or error; and
//! the rest comes as it was, at the offsets that it says.

mod support;

use serde_json::{Value, json};
use support::encodings::{base64, hex, url};
use workroom_testkit::types::{ExecRequest, OutputStream};
use workroom_testkit::{Server, TestSession, eventually, for_each_user};

const VALUE: &str = "tok/live+8f3a91c6=d7e25b04";
const COVER: &str = "[REDACTED:TOKEN]";

/// A session whose commands all have the secret, as `$TOKEN`.
async fn with_secret(server: &Server<'_>) -> TestSession {
    server.http().json(&json!({"value": VALUE})).put("/v1/secrets/TOKEN").await.expect(200);
    let secrets = json!({"inject": ["user"], "files": {"token": "TOKEN"}});
    server.session_like(json!({"policy": {"secrets": secrets}})).await
}

#[test]
fn it_is_covered_in_every_usual_form() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = with_secret(&server).await;
        assert_eq!(
            session.says("echo \"a $TOKEN z\"; cat /run/secrets/token").await,
            format!("a {COVER} z\n{COVER}")
        );
        for form in [base64(VALUE), hex(VALUE), hex(VALUE).to_uppercase(), url(VALUE), format!("\"{VALUE}\"")]
        {
            // As a program would put it together, and as a caller that knows it would write it.
            let result = session.run(json!({"argv": ["printf", "<%s>", form]})).await;
            assert!(
                result.stdout.starts_with('<') && result.stdout.contains(COVER),
                "{form}: {}",
                result.stdout
            );
            assert!(!result.stdout.contains(&form), "{form}: {}", result.stdout);
        }
        let in_a_text = session.says("printf 'user:%s@host' \"$TOKEN\" | base64 -w0").await;
        assert!(in_a_text.contains(COVER), "{in_a_text}");
        // As an answer in base64, what was encoded is redacted already.
        let bytes = session.run(json!({"command": "echo $TOKEN", "encoding": "base64"})).await;
        assert_eq!(bytes.stdout, base64(&format!("{COVER}\n")));
        let both = session.sh("echo $TOKEN >&2; exit 3").await;
        assert_eq!((both.exit_code, both.stderr.as_str()), (3, "[REDACTED:TOKEN]\n"));
        assert_eq!(both.stderr_bytes, both.stderr.len() as u64, "redacted bytes are counted");
    });
}

#[test]
fn it_is_covered_whatever_pieces_it_comes_in() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = with_secret(&server).await;
        let slowly = "i=0; while [ $i -lt ${#TOKEN} ]; do printf %s \"${TOKEN:$i:1}\"; sleep 0.01; i=$((i+1)); done; echo";
        // Where it pauses, less than a quarter of it is shown.
        let is_covered = |said: &str| said.ends_with(&format!("{COVER}\n")) && said.len() <= COVER.len() + 7;
        let said = session.says(slowly).await;
        assert!(is_covered(&said), "{said}");
        let halves = "printf %s \"${TOKEN:0:13}\"; sleep 0.4; printf %s \"${TOKEN:13}\"; echo";
        let said = session.says(halves).await;
        assert!(is_covered(&said), "{said}");
        // At the border of what is read at once, and of what is kept.
        let across = "head -c 65530 /dev/zero | tr '\\0' x; printf %s \"$TOKEN\"; head -c 65530 /dev/zero | tr '\\0' y";
        let result = session.run(json!({"command": across, "max_output": 1_000_000})).await;
        assert_eq!(result.stdout, format!("{}{COVER}{}", "x".repeat(65_530), "y".repeat(65_530)));
        assert_eq!(result.stdout_bytes, result.stdout.len() as u64);
        // A command that ends in the middle of it shows no half of it.
        let cut = session.says("printf 'end %s' \"${TOKEN:0:20}\"").await;
        assert_eq!(cut, format!("end {COVER}"));
        // What only begins like it comes out, whole and in its place.
        assert_eq!(session.says("printf 'tok/live is a prefix\\n'").await, "tok/live is a prefix\n");
    });
}

#[test]
fn a_stream_and_its_offsets_are_of_what_is_shown() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = with_secret(&server).await;
        let command = "for i in 1 2 3; do echo \"$i $TOKEN\"; sleep 0.05; done";
        let body = json!({ "command": command });
        let http = server.http().header("accept", "text/event-stream").json(&body);
        let events = http.post(&session.path("/exec")).await.text();
        assert!(!events.contains(VALUE) && events.matches(COVER).count() >= 3, "{events}");
        let mut next = 0;
        for chunk in events.lines().filter_map(|line| line.strip_prefix("data: ")) {
            let Ok(chunk) = serde_json::from_str::<Value>(chunk) else { continue };
            if let (Some(offset), Some(data)) = (chunk["offset"].as_u64(), chunk["data"].as_str()) {
                assert_eq!(offset, next, "{events}");
                next += data.len() as u64;
            }
        }
        let process = session.process(json!({ "command": command })).await;
        process.ended().await;
        let expected = format!("1 {COVER}\n2 {COVER}\n3 {COVER}\n");
        assert_eq!(String::from_utf8_lossy(&process.all(OutputStream::Stdout).await), expected);
        // Byte by byte, from any cursor.
        for cursor in [0, 1, 5, 19, 20, 40, expected.len()] {
            let path = process.path(&format!("/output?stream=stdout&cursor={cursor}&max=7"));
            let page = server.http().get(&path).await.expect(200);
            let end = (cursor + 7).min(expected.len());
            assert_eq!(page["data"].as_str(), Some(&expected[cursor..end]), "{page}");
            assert_eq!(page["next_cursor"].as_u64(), Some(end as u64), "{page}");
        }
        assert_eq!(process.show().await.stdout.written, expected.len() as u64);
    });
}

#[test]
fn a_prompt_that_begins_like_it_is_shown_and_the_rest_is_covered() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = with_secret(&server).await;
        // Nothing comes behind it: it is not held back for ever.
        let process = session
            .process(json!({"command": "printf 'name: tok'; read x; echo \"$x\"", "stdin": true}))
            .await;
        process.says("name: tok").await;
        process.write("ok\n").await;
        process.ended().await;
        // Typed letter by letter into a terminal, which echoes each.
        let terminal = session.terminal(json!({})).await;
        terminal.types("echo rea\"\"dy; cat > /dev/null").await;
        terminal.shows("ready").await;
        for letter in VALUE.chars() {
            terminal.presses(json!([{"text": letter.to_string()}])).await;
        }
        terminal.presses(json!(["Enter", "C-d"])).await;
        terminal.types("echo the \"\"end").await;
        terminal.shows("the end").await;
        let text = terminal.plain().await.text;
        assert!(text.contains(COVER) && !text.contains(&VALUE[9..]), "{text}");
    });
}

#[test]
fn shells_terminals_services_and_recordings_show_none_of_it() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = with_secret(&server).await;
        let shell = session.shell(json!({"record": true})).await;
        let ran = shell
            .run("echo \"$TOKEN\"; echo err \"$TOKEN\" >&2; mkdir -p \"/tmp/$TOKEN\"; cd \"/tmp/$TOKEN\"")
            .await;
        assert_eq!(
            (ran.output.as_str(), ran.stderr.as_str()),
            ("[REDACTED:TOKEN]\n", "err [REDACTED:TOKEN]\n")
        );
        assert_eq!(ran.cwd, format!("/tmp/{COVER}"));
        // Exactly a command's own output, before and after one that shows it.
        assert_eq!(shell.says("printf 'tok/live'").await, COVER, "a start of it at the end is one");
        assert_eq!(shell.says("echo next").await, "next\n");
        let literal = shell.run(&format!("echo {VALUE}")).await;
        assert_eq!(literal.output, format!("{COVER}\n"));

        let terminal = session.terminal(json!({"record": true})).await;
        terminal.types("echo shown: $TOKEN.").await;
        let screen = terminal.shows(&format!("shown: {COVER}.")).await;
        assert!(!serde_json::to_string(&screen).expect("JSON").contains(VALUE));
        let raw =
            server.http().get(&session.path(&format!("/processes/{}/output", terminal.id))).await.text();
        assert!(raw.contains(COVER) && !raw.contains(VALUE), "{raw}");

        let typed =
            json!({"command": "read x; echo got $x", "pty": {}, "record": true, "record_input": true});
        let typed = session.process(typed).await;
        for part in [&VALUE[..5], &VALUE[5..], "\n"] {
            typed.write(part.to_owned()).await;
        }
        typed.ended().await;

        session.service("web", json!({"command": "echo up $TOKEN; exec sleep 1000"})).await;
        eventually(async || {
            let logs = server.http().get(&session.path("/services/web/logs")).await.text();
            if logs.contains(VALUE) {
                panic!("{logs}");
            }
            if logs.contains(COVER) { Ok(()) } else { Err(logs) }
        })
        .await;
        for recorded in [shell.id.clone(), terminal.id.clone(), typed.id.clone()] {
            let path = session.path(&format!("/recordings/{recorded}"));
            eventually(async || {
                let cast = server.http().get(&path).await.text();
                let transcript = server.http().get(&format!("{path}/transcript")).await.text();
                for text in [&cast, &transcript] {
                    assert!(!text.contains(VALUE), "{text}");
                }
                if cast.contains(COVER) { Ok(()) } else { Err(cast) }
            })
            .await;
        }
    });
}

#[test]
fn journals_errors_and_lists_repeat_none_of_it() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = with_secret(&server).await;
        let argv = |words: &[&str]| ExecRequest {
            argv: Some(words.iter().map(|&word| word.to_owned()).collect()),
            ..ExecRequest::default()
        };
        session.exec(argv(&["echo", VALUE])).await;
        let problem = session.refuses(argv(&[VALUE])).await;
        assert!(problem.detail.contains(COVER) && !problem.detail.contains(VALUE), "{problem}");
        let nowhere = ExecRequest { cwd: Some(format!("/{VALUE}")), ..argv(&["true"]) };
        let problem = session.refuses(nowhere).await;
        assert!(problem.detail.contains(COVER) && !problem.detail.contains(VALUE), "{problem}");
        // A command that is too long for the journal is cut behind the redaction, not before.
        let long = format!("# {}{VALUE}", "x".repeat(4096 - 2 - 12));
        session.says(&long).await;
        let process = session
            .process(json!({"argv": ["sleep", "1000"], "tag": VALUE, "env": {"LITERAL": VALUE}}))
            .await;
        assert_eq!(process.show().await.tag.as_deref(), Some(COVER));
        let asleep = session.process(json!({"argv": ["sh", "-c", "sleep 1000; :", VALUE]})).await;
        assert!(asleep.show().await.command.ends_with(COVER));
        let rename = json!({"name": format!("my {VALUE}"), "labels": {"a": VALUE}});
        let renamed = server.http().json(&rename).patch(&session.path("")).await;
        assert!(!renamed.text().contains(VALUE) && renamed.text().contains(COVER), "{}", renamed.text());
        let event = json!({"kind": "mine", "body": {"text": VALUE, VALUE: [1, {"deep": base64(VALUE)}]}});
        let appended = server.http().json(&event).post(&session.path("/events")).await;
        assert!(
            !appended.text().contains(VALUE) && !appended.text().contains(&base64(VALUE)),
            "{}",
            appended.text()
        );
        let failed = session
            .service(
                "bad",
                json!({"command": "echo $TOKEN; exit 3", "restart": "never", "readiness": {"tcp": 1}}),
            )
            .await;
        assert!(!format!("{failed:?}").contains(VALUE));
        for path in ["", "/events", "/processes", "/services", "/policy", "/shells"] {
            let http = server.http().header("accept", "application/json");
            let answer = http.get(&session.path(path)).await.text();
            assert!(!answer.contains(VALUE) && !answer.contains(&VALUE[..12]), "{path}: {answer}");
        }
        let all = server.http().header("accept", "application/json").get("/v1/events").await.text();
        assert!(!all.contains(VALUE), "{all}");
        assert!(!server.log().contains(VALUE), "{}", server.log());
    });
}

#[test]
fn a_call_may_name_further_values() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let seen = json!({"command": "echo hunter22 $((1+1))", "redact_values": ["hunter22"]});
        assert_eq!(session.run(seen.clone()).await.stdout, "[REDACTED:value] 2\n");
        // For this call alone, but for ever in what is kept of it.
        assert_eq!(session.says("echo hunter22").await, "hunter22\n");
        let finished: Vec<String> = session
            .journal()
            .await
            .iter()
            .filter(|entry| entry.kind == "exec.finished")
            .map(|entry| entry.body["command"].to_string())
            .collect();
        assert_eq!(finished, ["\"echo [REDACTED:value] $((1+1))\"", "\"echo hunter22\""]);
        let process = session.process(seen).await;
        process.ended().await;
        assert_eq!(process.all(OutputStream::Stdout).await, b"[REDACTED:value] 2\n");
        let terminal = session.terminal(json!({"redact_values": ["hunter22"]})).await;
        terminal.types("echo hunter22").await;
        terminal.shows("[REDACTED:value]").await;
        let shell = session.shell(json!({})).await;
        assert_eq!(shell.says("echo hunter22").await, "hunter22\n");
        let request = json!({"command": "echo hunter22; echo swordfish", "redact_values": ["hunter22"]});
        let ran = shell.request(serde_json::from_value(request).expect("a request")).await;
        assert_eq!(ran.output, "[REDACTED:value]\nswordfish\n");
        let said: Vec<String> = session
            .journal()
            .await
            .iter()
            .filter(|entry| entry.kind == "shell.ran")
            .map(|entry| entry.body["command"].to_string())
            .collect();
        assert_eq!(said, ["\"echo hunter22\"", "\"echo [REDACTED:value]; echo swordfish\""]);
        for path in ["/exec", "/processes"] {
            let body = json!({"argv": ["hunter22-tool"], "redact_values": ["hunter22"]});
            let refused = server.http().json(&body).post(&session.path(path)).await;
            assert_eq!(refused.problem(400), "command_not_found");
            assert!(refused.text().contains("[REDACTED:value]-tool"), "{}", refused.text());
            assert!(!refused.text().contains("hunter22"), "{}", refused.text());
        }
        // What a room is given later is looked for beside them.
        server.http().json(&json!({"value": "swordfish"})).put("/v1/secrets/FISH").await.expect(200);
        session.run(json!({"command": "true", "secret_env": {"A": "FISH"}})).await;
        assert_eq!(shell.says("echo hunter22 swordfish").await, "[REDACTED:value] [REDACTED:FISH]\n");
        for (values, word) in
            [(json!(["abc"]), "redact_values[0]"), (json!(vec!["abcd"; 65]), "65 redact_values")]
        {
            let body = json!({"command": "true", "redact_values": values});
            let refused = server.http().json(&body).post(&session.path("/exec")).await;
            assert_eq!(refused.problem(400), "invalid_argument");
            assert!(refused.text().contains(word), "{}", refused.text());
        }
    });
}

#[test]
fn what_a_room_has_seen_stays_covered_when_it_changes_is_removed_and_the_server_is_another() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = with_secret(&server).await;
        let process = session
            .process(json!({"command": "while read x; do echo \"$x $TOKEN\"; done", "stdin": true}))
            .await;
        process.write("one\n").await;
        process.says("one").await;
        server
            .http()
            .json(&json!({"value": "quite-another-value"}))
            .put("/v1/secrets/TOKEN")
            .await
            .expect(200);
        assert_eq!(session.says(&format!("echo $TOKEN {VALUE}")).await, format!("{COVER} {COVER}\n"));
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let process = session.known_process(&process.id);
        process.write("two\n").await;
        process.says(&format!("two {COVER}")).await;
        server.http().delete("/v1/secrets/TOKEN").await;
        server.http().json(&json!({})).put(&session.path("/policy")).await.expect(200);
        let said = session.says(&format!("echo {VALUE} quite-another-value; ls /run/secrets")).await;
        assert_eq!(said, format!("{COVER} {COVER}\n"));
        let problem =
            session.refuses(ExecRequest { argv: Some(vec![VALUE.into()]), ..ExecRequest::default() }).await;
        assert!(!problem.detail.contains(VALUE), "{problem}");
        process.close_input().await;
        process.ended().await;
        let all = process.all(OutputStream::Stdout).await;
        assert_eq!(String::from_utf8_lossy(&all), format!("one {COVER}\ntwo {COVER}\n"));
        // Another room has not seen it, and shows what it is told to.
        session.stop().await;
        assert_eq!(session.says("echo quite-another-value").await, "quite-another-value\n");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}
