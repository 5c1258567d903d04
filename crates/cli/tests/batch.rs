//! Many things asked at once: each answered as by its own route, none in the way of another.

use serde_json::{Value, json};
use std::io::Write;
use workroom_testkit::{Server, TestPool, TestSession, User, eventually, for_each_user, run};

async fn batch(server: &Server<'_>, items: Value) -> Vec<Value> {
    let answer = server.http().json(&items).post("/v1/batch").await.expect(200);
    answer["results"].as_array().expect("results").clone()
}

#[test]
fn every_tool_answers_as_its_own_route_does() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let id = &session.id;
        let made = batch(
            &server,
            json!([
                {"id": "w", "session": id, "tool": "write", "args": {"path": "a/b.txt", "content": "one\ntwo\n"}},
                {"id": "x", "session": id, "tool": "write", "args": {"path": "c", "content": "//4=", "encoding": "base64", "mode": "0600"}},
            ]),
        )
        .await;
        assert_eq!(made.iter().map(|result| &result["status"]).collect::<Vec<_>>(), [201, 201], "{made:?}");
        server.http().json(&json!({"name": "t"})).post(&session.path("/terminals")).await.expect(201);
        let patch = "--- a/a/b.txt\n+++ b/a/b.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n";
        let results = batch(
            &server,
            json!([
                {"session": id, "tool": "exec", "args": {"command": "echo out; echo err >&2; exit 3"}},
                {"session": id, "tool": "shell", "args": {"command": "cd /tmp; pwd"}},
                {"session": id, "tool": "read", "args": {"path": "a/b.txt"}},
                {"session": id, "tool": "read", "args": {"path": "c", "encoding": "base64"}},
                {"session": id, "tool": "list", "args": {"path": "a"}},
                {"session": id, "tool": "search", "args": {"pattern": "tw."}},
                {"session": id, "tool": "keys", "args": {"terminal": "t", "text": "echo ty\"\"ped"}},
            ]),
        )
        .await;
        let result = |index: usize| &results[index]["result"];
        assert_eq!(
            (&result(0)["exit_code"], &result(0)["stdout"], &result(0)["stderr"]),
            (&json!(3), &json!("out\n"), &json!("err\n"))
        );
        assert_eq!((&result(1)["output"], &result(1)["cwd"]), (&json!("/tmp\n"), &json!("/tmp")));
        let route = server.http().get(&session.path("/files/a/b.txt?encoding=text")).await.expect(200);
        assert_eq!(*result(2), route);
        assert_eq!(result(3)["content"], "//4=");
        assert_eq!(*result(4), server.http().get(&session.path("/files?path=a")).await.expect(200));
        assert_eq!(result(5)["matches"][0]["path"], "a/b.txt", "{results:?}");
        assert!(
            result(6)["taken"].as_u64().is_some_and(|taken| taken > 0) || results[6]["ok"] == true,
            "{:?}",
            results[6]
        );
        server
            .http()
            .json(&json!({"text": "typed"}))
            .post(&session.path("/terminals/t/wait"))
            .await
            .expect(200);
        let changed = batch(
            &server,
            json!([
                {"session": id, "tool": "screen", "args": {"terminal": "t", "scrollback": 0}},
                {"session": id, "tool": "patch", "args": {"patch": patch}},
                {"session": id, "tool": "edit", "args": {"path": "c", "old": "x", "new": "y"}},
            ]),
        )
        .await;
        assert!(changed[0].to_string().contains("typed"), "{changed:?}");
        assert_eq!(changed[1]["ok"], true, "{changed:?}");
        assert_eq!((&changed[2]["ok"], &changed[2]["status"]), (&json!(false), &json!(409)), "{changed:?}");
        assert_eq!(session.says("cat a/b.txt").await, "one\nthree\n");
    });
}

#[test]
fn what_goes_wrong_with_one_touches_no_other() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let token = server
            .http()
            .json(&json!({"scope": "user", "owner": "eve"}))
            .post("/v1/tokens")
            .await
            .expect(201);
        let eve = token["token"].as_str().expect("told once").to_owned();
        let own = server.http().token(&eve).json(&json!({})).post("/v1/sessions").await.expect(201);
        let own = own["id"].as_str().expect("an id");
        let exec = json!({"command": "echo fine"});
        let items = json!([
            {"id": "1", "session": own, "tool": "exec", "args": exec},
            {"id": "2", "session": session.id, "tool": "exec", "args": exec},
            {"id": "3", "session": "no-such", "tool": "exec", "args": exec},
            {"id": "4", "session": own, "tool": "exec", "args": {"comand": "x"}},
            {"id": "5", "session": own, "tool": "read", "args": {"path": "../../etc/shadow"}},
            {"id": "6", "tool": "read"},
            {"id": "7", "session": own, "tool": "exec", "args": {"command": "sleep 100"}, "timeout_ms": 50},
            {"id": "8", "session": own, "tool": "keys", "args": {"text": "x"}},
            {"id": "9", "slot": {"pool": "none", "trajectory": "t"}, "tool": "list"},
            {"id": "10", "session": own, "tool": "exec", "args": exec},
        ]);
        let answer = server.http().token(&eve).json(&items).post("/v1/batch").await.expect(200);
        let results = answer["results"].as_array().expect("results");
        let seen: Vec<(&str, u64)> = results
            .iter()
            .map(|result| {
                (result["id"].as_str().expect("an id"), result["status"].as_u64().expect("a status"))
            })
            .collect();
        let expected = [
            ("1", 200),
            ("2", 404),
            ("3", 404),
            ("4", 400),
            ("5", 400),
            ("6", 400),
            ("7", 200),
            ("8", 400),
            ("9", 404),
            ("10", 200),
        ];
        assert_eq!(seen, expected, "{results:?}");
        assert_eq!(results[6]["result"]["exit_code"], 124);
        assert_eq!(results[9]["result"]["stdout"], "fine\n");
        assert_eq!(results[1]["problem"]["code"], "not_found");
        for (wrong, status) in [
            (json!({"session": own}), 400),
            (json!([]), 400),
            (json!(vec![json!({"tool": "list"}); 1001]), 400),
        ] {
            server.http().json(&wrong).post("/v1/batch").await.problem(status);
        }
    });
}

#[test]
fn an_item_that_makes_no_sense_is_refused_alone() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let id = &session.id;
        let fine =
            json!({"id": "fine", "session": id, "tool": "exec", "args": {"command": "echo fine >> log"}});
        let items = json!([
            fine,
            {"id": "tool", "session": id, "tool": "dance"},
            {"id": "type", "session": 7, "tool": "list"},
            {"id": "field", "session": id, "tool": "list", "colour": "red"},
            {"id": "args", "session": id, "tool": "list", "args": []},
            {"id": "time", "session": id, "tool": "list", "timeout_ms": 0},
            {"id": "none", "session": id},
            {"id": 8, "session": id, "tool": "list"},
            "text", null, ["x", id, null, "list"],
            fine,
        ]);
        let results = batch(&server, items.clone()).await;
        let seen = |results: &[Value]| -> Vec<(Option<String>, u64)> {
            let one = |result: &Value| {
                let problem = &result["problem"];
                assert!(result["ok"] == true || problem["code"] == "invalid_argument", "{result}");
                (result["id"].as_str().map(str::to_owned), result["status"].as_u64().expect("a status"))
            };
            results.iter().map(one).collect()
        };
        let some = |id: &str, status| (Some(id.to_owned()), status);
        let mut expected = vec![some("fine", 200)];
        expected.extend(["tool", "type", "field", "args", "time", "none"].map(|id| some(id, 400)));
        expected.extend([(None, 400), (None, 400), (None, 400), (None, 400), some("fine", 200)]);
        assert_eq!(seen(&results), expected, "{results:?}");
        assert!(results.iter().zip(0..).all(|(result, index)| result["index"] == index), "{results:?}");
        assert!(results[1]["problem"]["detail"].to_string().contains("dance"), "{results:?}");
        assert_eq!(session.says("cat log").await, "fine\nfine\n");

        let streamed =
            server.http().header("Accept", "application/x-ndjson").json(&items).post("/v1/batch").await;
        let mut lines: Vec<Value> =
            streamed.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        lines.sort_by_key(|line| line["index"].as_u64());
        assert_eq!(seen(&lines), expected, "{lines:?}");
        for wrong in [json!({}), json!("x"), json!([]), json!(vec![json!(null); 1001])] {
            server.http().json(&wrong).post("/v1/batch").await.problem(400);
        }
    });
}

#[test]
fn no_more_than_sixty_four_run_at_once() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        session.says("mkdir on").await;
        let command = "touch on/$$; ls on | wc -l >> counts; until [ -e go ]; do sleep 0.5; done; rm on/$$";
        let item = json!({"session": session.id, "tool": "exec", "args": {"command": command}});
        let items = json!(vec![item; 70]);
        let asked = tokio::spawn({
            let http = server.http().json(&items);
            async move { http.post("/v1/batch").await }
        });
        let on = async || session.says("ls on | wc -l").await.trim().to_owned();
        eventually(async || match on().await {
            count if count == "64" => Ok(()),
            count => Err(format!("{count} run")),
        })
        .await;
        for _ in 0..20 {
            assert_eq!(on().await, "64");
        }
        session.says("touch go").await;
        let answer = asked.await.expect("an answer").expect(200);
        let results = answer["results"].as_array().expect("results");
        assert!(results.len() == 70 && results.iter().all(|result| result["ok"] == true), "{answer}");
        let counts = session.says("cat counts").await;
        let most = counts.lines().filter_map(|line| line.trim().parse::<u32>().ok()).max();
        assert!(most.is_some_and(|most| most <= 64), "{counts}");
    });
}

#[test]
fn hundreds_go_at_once_and_come_back_in_order() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let mut sessions: Vec<TestSession> = Vec::new();
        for _ in 0..3 {
            sessions.push(server.session().await);
        }
        let items: Vec<Value> = (0..300)
            .map(|number| {
                let session = &sessions[number % sessions.len()].id;
                json!({"id": number.to_string(), "session": session, "tool": "exec", "args": {"argv": ["/bin/echo", number.to_string()]}})
            })
            .collect();
        let results = batch(&server, json!(items)).await;
        assert_eq!(results.len(), 300);
        for (number, result) in results.iter().enumerate() {
            assert_eq!((&result["index"], &result["id"]), (&json!(number), &json!(number.to_string())));
            assert_eq!(result["result"]["stdout"], format!("{number}\n"), "{result}");
        }
        // They do run at the same time: the first waits for the last.
        let together = batch(&server, json!([
            {"session": sessions[0].id, "tool": "exec", "args": {"command": "while [ ! -e go ]; do sleep 0.01; done"}, "timeout_ms": 20_000},
            {"session": sessions[0].id, "tool": "write", "args": {"path": "go", "content": ""}},
        ]))
        .await;
        assert_eq!(together[0]["result"]["exit_code"], 0, "{together:?}");
    });
}

#[test]
fn a_stream_tells_each_as_soon_as_it_is_there() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let pool = TestPool::set(server.client(), "p", json!({"max": 1})).await;
        let lease = pool.acquire("t").await;
        let slot = json!({"pool": "p", "trajectory": "t"});
        let items = json!([
            {"id": "slow", "slot": slot, "tool": "exec", "args": {"command": "while [ ! -e go ]; do sleep 0.01; done"}},
            {"id": "quick", "slot": slot, "tool": "list"},
        ]);
        let mut reading = server
            .http()
            .header("Accept", "application/x-ndjson")
            .json(&items)
            .open("POST", "/v1/batch")
            .await;
        let first = reading.until("\"quick\"").await;
        assert!(!first.contains("\"slow\""), "{first}");
        lease.session.says("touch go").await;
        let both = reading.until("\"slow\"").await;
        assert!(both.contains("application/x-ndjson"), "{both}");

        // On the command line too; and a key makes it happen once.
        let file = server.user().make_file("batch.json", items.to_string());
        let told =
            server.cli(&["batch", "--stream", &file.to_string_lossy()]).output().expect("workroom batch");
        assert!(told.status.success(), "{told:?}");
        assert_eq!(
            String::from_utf8_lossy(&told.stdout).lines().filter(|line| line.contains("\"ok\"")).count(),
            2,
            "{told:?}"
        );
        let mut asked =
            server.cli(&["batch", "-"]).stdin(std::process::Stdio::piped()).spawn().expect("workroom batch");
        let wrong = json!([{"session": "none", "tool": "list"}]);
        asked.stdin.take().expect("stdin").write_all(wrong.to_string().as_bytes()).expect("written");
        assert_eq!(asked.wait().expect("its end").code(), Some(1));
        let append = json!([{"slot": slot, "tool": "exec", "args": {"command": "echo x >> log"}}]);
        for _ in 0..2 {
            server.http().key("once").json(&append).post("/v1/batch").await.expect(200);
        }
        assert_eq!(lease.session.says("cat log").await, "x\n");
    });
}
