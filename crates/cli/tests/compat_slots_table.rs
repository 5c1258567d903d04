//! The slot-server API, row by row: what is sent, and exactly what comes back.

mod slots;

use serde_json::{Value, json};
use slots::Slots;
use workroom_testkit::for_each_user;

fn good(output: &str, metadata: Value) -> Value {
    json!({ "success": true, "output": output, "error": "", "execution_id": null, "metadata": metadata })
}

fn bad(error: &str, metadata: Value) -> Value {
    json!({ "success": false, "output": "", "error": error, "execution_id": null, "metadata": metadata })
}

fn ran(code: i32, output: &str) -> Value {
    json!({
        "success": code == 0,
        "output": output,
        "error": if code == 0 { String::new() } else { format!("Exit code: {code}") },
        "execution_id": null,
        "metadata": { "exit_code": code, "sandboxed": true, "network_isolated": true },
    })
}

#[test]
fn every_tool_answers_as_it_is_written() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 2);
        let long = "x".repeat(100_000);
        let table = [
            ("bash", json!({ "command": "echo hello" }), ran(0, "hello")),
            ("bash", json!({ "command": "pwd" }), ran(0, "/workspace")),
            ("bash", json!({}), ran(0, "")),
            ("bash", json!({ "command": "printf '\\n  a\\n\\n'" }), ran(0, "a")),
            ("bash", json!({ "command": "echo out; echo err >&2" }), ran(0, "out\n\n[stderr]\nerr")),
            ("bash", json!({ "command": "printf out; printf err >&2" }), ran(0, "out\n[stderr]\nerr")),
            ("bash", json!({ "command": "echo err >&2" }), ran(0, "err")),
            ("bash", json!({ "command": "echo half; exit 3" }), ran(3, "half")),
            ("bash", json!({ "command": "kill -9 $$" }), ran(137, "")),
            ("bash", json!({ "command": "nonsense-command 2>/dev/null" }), ran(127, "")),
            ("bash", json!({ "command": "printf 'a\\xffb'" }), ran(0, "a\u{fffd}b")),
            ("bash", json!({ "command": "true", "require_sandbox": true }), ran(0, "")),
            ("bash", json!({ "command": "true", "allow_network": false }), ran(0, "")),
            ("bash", json!({ "command": "[[ a == a ]] && echo bash" }), ran(0, "bash")),
            (
                "write_file",
                json!({ "path": "a/b/c.txt", "content": "text\n" }),
                good(
                    "Successfully wrote 5 bytes to a/b/c.txt",
                    json!({ "path": "/workspace/a/b/c.txt", "size": 5 }),
                ),
            ),
            (
                "read_file",
                json!({ "path": "a/b/c.txt" }),
                good("text\n", json!({ "path": "/workspace/a/b/c.txt", "size": 5 })),
            ),
            (
                "read_file",
                json!({ "path": "/workspace/a/./b/../b/c.txt" }),
                good("text\n", json!({ "path": "/workspace/a/b/c.txt", "size": 5 })),
            ),
            (
                "write_file",
                json!({ "path": "é", "content": "é" }),
                good("Successfully wrote 2 bytes to é", json!({ "path": "/workspace/é", "size": 2 })),
            ),
            (
                "write_file",
                json!({ "path": "large", "content": long }),
                good(
                    "Successfully wrote 100000 bytes to large",
                    json!({ "path": "/workspace/large", "size": 100_000 }),
                ),
            ),
            (
                "read_file",
                json!({ "path": "large" }),
                good(&long, json!({ "path": "/workspace/large", "size": 100_000 })),
            ),
            (
                "write_file",
                json!({ "path": "larger", "content": format!("{long}x") }),
                bad("Content too large: 100001 bytes (max 100000)", json!({})),
            ),
            ("bash", json!({ "command": "echo >> large" }), ran(0, "")),
            (
                "read_file",
                json!({ "path": "large" }),
                bad("File too large: 100001 bytes (max 100000)", json!({})),
            ),
            ("read_file", json!({ "path": "none" }), bad("File not found: none", json!({}))),
            ("read_file", json!({ "path": "a/none/x" }), bad("File not found: a/none/x", json!({}))),
            ("read_file", json!({ "path": "a" }), bad("Not a file: a", json!({}))),
            ("read_file", json!({}), bad("Not a file: ", json!({}))),
            ("read_file", json!({ "path": "../x" }), bad("Access denied: path outside workspace", json!({}))),
            (
                "read_file",
                json!({ "path": "/etc/passwd" }),
                bad("Access denied: path outside workspace", json!({})),
            ),
            (
                "write_file",
                json!({ "path": "../x", "content": "" }),
                bad("Access denied: path outside workspace", json!({})),
            ),
            (
                "write_file",
                json!({ "path": "/tmp/x", "content": "" }),
                bad("Access denied: path outside workspace", json!({})),
            ),
            ("bash", json!({ "command": "printf 'a\\xffb' > bytes" }), ran(0, "")),
            (
                "read_file",
                json!({ "path": "bytes" }),
                good("a\u{fffd}b", json!({ "path": "/workspace/bytes", "size": 3 })),
            ),
            ("bash_stateful", json!({}), bad("Missing command", json!({}))),
            ("bash_stateful", json!({ "command": " \n" }), bad("Missing command", json!({}))),
            ("tmux", json!({ "action": "fly" }), bad("Unknown tmux action: fly", json!({}))),
            (
                "tmux",
                json!({ "action": "send_keys" }),
                bad("tmux send_keys requires 'keys' as string or list[string]", json!({})),
            ),
            (
                "tmux",
                json!({ "action": "send_keys", "keys": ["a", 1] }),
                bad("tmux send_keys requires 'keys' as string or list[string]", json!({})),
            ),
            ("tmux", json!({ "action": "stop" }), good("stopped", json!({ "stateful": true }))),
            ("tmux", json!({ "action": " STOP " }), good("stopped", json!({ "stateful": true }))),
            ("fly", json!({}), bad("Unknown tool: fly", json!({}))),
            ("", json!({}), bad("Unknown tool: ", json!({}))),
        ];
        for (tool, args, expected) in table {
            let answer = slots.tool("slot_0", tool, args.clone()).await;
            let shown: String = args.to_string().chars().take(200).collect();
            assert!(
                answer == expected,
                "{tool} {shown}: {:.500}\nexpected {:.500}",
                answer.to_string(),
                expected.to_string()
            );
        }
        assert_eq!(slots.tool("slot_9", "bash", json!({})).await, bad("Unknown slot: slot_9", json!({})));
        for other in ["slot_2", "slot_00", "slot_", "slot_-1", "", "SLOT_0"] {
            let answer = slots.tool(other, "bash", json!({})).await;
            assert_eq!(answer, bad(&format!("Unknown slot: {other}"), json!({})));
        }
    });
}

#[test]
fn envelopes_carry_what_their_caller_calls_the_call() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        for id in [json!("mine"), json!(7), json!(null)] {
            let request = json!({ "slot_id": "slot_0", "tool": "bash", "args": { "command": "true" }, "execution_id": id });
            assert_eq!(slots.caller().execute(request).await["execution_id"], id);
            let request = json!({ "slot_id": "no", "tool": "bash", "execution_id": id });
            assert_eq!(slots.caller().execute(request).await["execution_id"], id, "of an unknown slot too");
        }
        let fresh = slots.get("/health").await.expect(200);
        let data_dir =
            slots.server.state().parent().expect("a data directory").to_string_lossy().into_owned();
        let stateful_dir = slots.server.state().join("output").to_string_lossy().into_owned();
        let expected = json!({
            "status": "ok",
            "slots": 1,
            "available": 1,
            "executing": 0,
            "data_dir": data_dir,
            "bwrap_available": true,
            "stateful_dir": stateful_dir,
        });
        assert_eq!(fresh, expected);
        let listed = slots.get("/slots").await.expect(200);
        let slot = json!({
            "slot_id": "slot_0",
            "state": "available",
            "workspace_dir": "/workspace",
            "current_execution_id": null,
        });
        assert_eq!(listed, json!({ "slots": [slot] }));
        let reset = slots.post("/reset", json!({ "slot_id": "slot_0" })).await.expect(200);
        assert_eq!(reset, good("Reset workspace for slot_0", json!({})));
        let unknown = slots.post("/reset", json!({ "slot_id": "slot_1" })).await.expect(200);
        assert_eq!(unknown, bad("Unknown slot: slot_1", json!({})));
        assert_eq!(slots.post("/reset", json!({})).await.expect(200), bad("Unknown slot: ", json!({})));
    });
}

#[test]
fn bodies_that_make_no_sense_are_refused_as_they_always_were() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        let invalid = json!({ "success": false, "error": "Invalid JSON" });
        for path in
            ["/execute", "/batch", "/reset", "/artifacts/read", "/artifacts/list", "/artifacts/archive"]
        {
            for body in ["", "{", "nonsense", "{\"a\":}"] {
                let answer = slots.server.http().body(body).post(path).await;
                assert_eq!(answer.expect(400), invalid, "{path} {body:?}");
                let kind = answer.header("content-type").unwrap_or_default();
                assert_eq!(kind, "application/json; charset=utf-8");
            }
        }
        // What no client sends is unexpected, and still an answer of this form.
        for path in ["/execute", "/reset", "/artifacts/read", "/artifacts/list", "/artifacts/archive"] {
            let answer = slots.post(path, json!([1])).await.expect(500);
            assert_eq!(answer["success"], false, "{path}");
            assert!(answer["error"].as_str().is_some_and(|error| !error.is_empty()), "{answer}");
        }
        for request in [
            json!({ "slot_id": "slot_0", "tool": "bash", "args": [] }),
            json!({ "slot_id": "slot_0", "tool": "bash", "args": { "command": 5 } }),
            json!({ "slot_id": "slot_0", "tool": "bash", "timeout": "soon" }),
            json!({ "slot_id": "slot_0", "tool": "tmux", "args": { "action": "send_keys", "keys": "x", "min_wait_s": "soon" } }),
        ] {
            let answer = slots.post("/execute", request.clone()).await.expect(500);
            assert_eq!(answer["success"], false, "{request}");
        }
        let answer = slots.post("/batch", json!({ "slot_id": "slot_0" })).await;
        assert_eq!(answer.expect(400), json!({ "success": false, "error": "Expected array of requests" }));
        // The type of a body is not looked at: clients send none, or another.
        let request =
            json!({ "slot_id": "slot_0", "tool": "bash", "args": { "command": "echo x" } }).to_string();
        let answer =
            slots.server.http().header("Content-Type", "text/plain").body(request).post("/execute").await;
        assert_eq!(answer.expect(200)["output"], "x");
        assert_eq!(slots.get("/nowhere").await.status, 404);
        assert_eq!(slots.get("/execute").await.status, 405);
    });
}

#[test]
fn a_batch_answers_in_the_order_of_its_requests() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 3);
        let bash = |slot: &str, command: &str, id: u32| json!({ "slot_id": slot, "tool": "bash", "args": { "command": command }, "execution_id": id });
        let batch = json!([
            bash("slot_2", "sleep 0.3; echo c", 0),
            bash("slot_0", "echo a", 1),
            bash("slot_7", "echo nobody", 2),
            { "slot_id": "slot_1", "tool": "bash", "args": 5, "execution_id": 3 },
            bash("slot_1", "exit 9", 4),
            bash("slot_0", "echo again", 5),
        ]);
        let answers = slots.post("/batch", batch).await.expect(200);
        let told = |at: usize| {
            (answers[at]["output"].clone(), answers[at]["error"].clone(), answers[at]["execution_id"].clone())
        };
        assert_eq!(told(0), (json!("c"), json!(""), json!(0)));
        assert_eq!(told(1), (json!("a"), json!(""), json!(1)));
        assert_eq!(told(2), (json!(""), json!("Unknown slot: slot_7"), json!(2)));
        assert_eq!(answers[3]["success"], false);
        assert_eq!(told(4), (json!(""), json!("Exit code: 9"), json!(4)));
        assert_eq!(told(5), (json!("again"), json!(""), json!(5)));
        assert_eq!(answers.as_array().map(Vec::len), Some(6));
        assert_eq!(slots.post("/batch", json!([])).await.expect(200), json!([]));
        // One that is no request spoils the whole, before anything is run.
        assert_eq!(
            slots.post("/batch", json!([bash("slot_0", "echo > ran", 0), 5])).await.expect(500)["success"],
            false
        );
        assert_eq!(slots.says("ls").await, "");
    });
}
