//! The one terminal of a slot: commands that leave their state, keys, screens, and what is recorded of it all.

mod slots;

use serde_json::{Value, json};
use slots::Slots;
use workroom_testkit::{eventually, for_each_user};

/// A command in the terminal of the first slot, which must succeed: what it wrote.
async fn stateful(slots: &Slots<'_>, command: &str) -> String {
    let answer = slots.tool("slot_0", "bash_stateful", json!({ "command": command })).await;
    assert_eq!(answer["success"], true, "{command}: {answer}");
    answer["output"].as_str().expect("text").to_owned()
}

async fn tmux(slots: &Slots<'_>, args: Value) -> Value {
    slots.tool("slot_0", "tmux", args).await
}

#[test]
fn commands_in_the_terminal_leave_their_state() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 2);
        let expected = |code: i32, output: &str| {
            json!({
                "success": code == 0,
                "output": output,
                "error": if code == 0 { String::new() } else { format!("Exit code: {code}") },
                "execution_id": null,
                "metadata": { "exit_code": code, "sandboxed": true, "network_isolated": true, "stateful": true },
            })
        };
        let table = [
            ("mkdir -p d; cd d; export A=1; B=two; f() { echo \"f $1\"; }; declare -A m=([k]=v)", 0, ""),
            ("pwd; echo $A $B ${m[k]}; f x", 0, "/workspace/d\n1 two v\nf x"),
            ("echo out; echo err >&2", 0, "out\nerr"),
            ("(exit 7)", 7, ""),
            ("echo $?", 0, "7"),
            (
                "cat <<'END'\n\ttab and 'quotes' \"too\" $A\n  !bang\nEND",
                0,
                "tab and 'quotes' \"too\" $A\n  !bang",
            ),
            ("for i in 1 2; do\n  echo $i\ndone", 0, "1\n2"),
            ("printf 'no end'", 0, "no end"),
            ("echo héé 🦀", 0, "héé 🦀"),
            ("[ -t 0 ] && [ -t 1 ] && echo a terminal", 0, "a terminal"),
            ("printf '\\033[31mred\\033[0m\\n'", 0, "red"),
            ("nonsense-command 2>/dev/null", 127, ""),
            ("PS1='mine> '; cd /", 0, ""),
            ("pwd", 0, "/"),
        ];
        for (command, code, output) in table {
            let answer = slots.tool("slot_0", "bash_stateful", json!({ "command": command })).await;
            assert_eq!(answer, expected(code, output), "{command}");
        }
        let other = slots
            .tool(
                "slot_1",
                "bash_stateful",
                json!({ "command": "pwd; echo \"[$A]\"", "require_sandbox": true }),
            )
            .await;
        assert_eq!(other["output"], "/workspace\n[]", "each slot has its own");
        // A job stays, and is of the shell that started it.
        stateful(&slots, "sleep 98765 & echo $! > /workspace/job").await;
        assert_eq!(
            stateful(&slots, "kill -0 $(cat /workspace/job) && kill %1 && wait; echo gone")
                .await
                .lines()
                .last(),
            Some("gone")
        );
        let large = stateful(&slots, "head -c 60000 /dev/zero | tr '\\0' x").await;
        assert!(large == format!("{}\n... (output truncated)", "x".repeat(50_000)), "{:.80}", large);
    });
}

#[test]
fn a_time_out_or_an_exit_ends_the_terminal_and_the_next_call_has_another() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        stateful(&slots, "A=old; sleep 98765 &").await;
        let request = json!({ "slot_id": "slot_0", "tool": "bash_stateful", "args": { "command": "sleep 98765" }, "timeout": 1.5 });
        let late = slots.caller().execute(request).await;
        let metadata = json!({ "exit_code": -1, "timeout": true, "sandboxed": true, "stateful": true });
        assert_eq!(
            (&late["error"], &late["output"], &late["metadata"]),
            (&json!("Command timed out after 1.5s"), &json!(""), &metadata)
        );
        let left =
            slots.says("cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c '^9876[5]$' || true").await;
        assert_eq!(left, "0", "everything that was started in it is gone");
        assert_eq!(stateful(&slots, "echo \"[$A]\"; A=new").await, "[]");
        let ended = slots.tool("slot_0", "bash_stateful", json!({ "command": "echo last; exit 5" })).await;
        assert_eq!((&ended["success"], &ended["error"]), (&json!(false), &json!("Exit code: 5")), "{ended}");
        assert_eq!(stateful(&slots, "echo \"[$A]\"").await, "[]");
        // One that is killed between two calls.
        stateful(&slots, "A=newer; echo $$ > /workspace/shell").await;
        slots.says("kill -9 $(cat shell)").await;
        assert_eq!(stateful(&slots, "echo \"[$A]\"").await, "[]");
    });
}

#[test]
fn keys_are_typed_and_the_screen_is_seen() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        let started = tmux(&slots, json!({ "action": "start", "pane_width": 80, "pane_height": 12 })).await;
        assert_eq!((&started["success"], &started["output"]), (&json!(true), &json!("started")), "{started}");
        let metadata = &started["metadata"];
        assert_eq!(
            (&metadata["pane_width"], &metadata["pane_height"], &metadata["stateful"]),
            (&json!(80), &json!(12), &json!(true))
        );
        assert_eq!(metadata["recording"], ".asciinema.cast");
        assert!(
            ["socket", "session"]
                .iter()
                .all(|field| metadata[*field].as_str().is_some_and(|text| !text.is_empty()))
        );
        // The same shell as that of commands.
        stateful(&slots, "A=shared").await;
        let sent =
            tmux(&slots, json!({ "action": "send_keys", "keys": ["echo \"<$A>\"", "Enter"], "block": true }))
                .await;
        assert_eq!(
            (&sent["output"], &sent["metadata"]),
            (&json!("ok"), &json!({ "stateful": true, "blocked": true })),
            "{sent}"
        );
        let screen = tmux(&slots, json!({})).await;
        assert_eq!(screen["metadata"], json!({ "stateful": true, "capture_entire": false }));
        let rows: Vec<String> =
            screen["output"].as_str().expect("a screen").split('\n').map(str::to_owned).collect();
        assert_eq!(rows.len(), 13, "every row has an end: {rows:?}");
        assert!(
            rows.contains(&"$ echo \"<$A>\"".to_owned()) && rows.contains(&"<shared>".to_owned()),
            "{rows:?}"
        );
        assert_eq!(stateful(&slots, "tput cols; tput lines").await, "80\n12");
        // A key by its name, a text that is one word, and what both do at the prompt.
        tmux(&slots, json!({ "action": "send_keys", "keys": ["Up", "Up", "C-a", "C-k", "echo", "Space", "KPEnter-is-text", "KPEnter"], "block": true })).await;
        let screen = tmux(&slots, json!({ "action": "capture" })).await;
        assert!(
            screen["output"].as_str().is_some_and(|text| text.contains("\nKPEnter-is-text\n")),
            "{screen}"
        );
        // Something that is waited for by nobody is interrupted.
        let sent = tmux(&slots, json!({ "action": "send_keys", "keys": "sleep 98765\n" })).await;
        assert_eq!(sent["metadata"], json!({ "stateful": true, "blocked": false }));
        // Not before it has the terminal: until then an interrupt is the shell's.
        eventually(async || {
            let running = "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c '^9876[5]$' || true";
            if slots.says(running).await == "1" { Ok(()) } else { Err("it does not sleep yet".into()) }
        })
        .await;
        let sent = tmux(&slots, json!({ "action": "send_keys", "keys": ["C-c"], "min_wait_s": 0.1 })).await;
        assert_eq!(sent["output"], "ok");
        assert_eq!(stateful(&slots, "echo interrupted").await, "interrupted");
        // A line that is not entered is, when it is waited for; a list of nothing is Enter.
        tmux(
            &slots,
            json!({ "action": "send_keys", "keys": "sleep 0.3; touch /workspace/made", "block": true }),
        )
        .await;
        assert_eq!(slots.says("ls /workspace/made").await, "/workspace/made");
        assert_eq!(
            tmux(&slots, json!({ "action": "send_keys", "keys": [], "block": true })).await["output"],
            "ok"
        );
        let late = tmux(
            &slots,
            json!({ "action": "send_keys", "keys": "sleep 98765", "block": true, "max_wait_s": 1 }),
        )
        .await;
        assert_eq!(
            (&late["success"], &late["error"]),
            (&json!(false), &json!("tmux blocked keys timed out after 1.0s"))
        );
        assert_eq!(stateful(&slots, "echo \"[$A]\"").await, "[]", "it was torn down");
    });
}

#[test]
fn several_lines_are_waited_for_to_the_last() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        let keys = json!(["sleep 0.2", "Enter", "sleep 0.2\n", "touch /workspace/last", "Enter"]);
        let sent = tmux(&slots, json!({ "action": "send_keys", "keys": keys, "block": true })).await;
        assert_eq!(sent["output"], "ok", "{sent}");
        assert_eq!(slots.says("ls /workspace/last").await, "/workspace/last");
        // Typed while something else has the terminal: it is that which is waited for, and then the line.
        tmux(&slots, json!({ "action": "send_keys", "keys": ["sleep 0.5", "Enter"] })).await;
        let sent = tmux(
            &slots,
            json!({ "action": "send_keys", "keys": ["touch /workspace/after", "Enter"], "block": true }),
        )
        .await;
        assert_eq!(sent["output"], "ok", "{sent}");
        assert_eq!(slots.says("ls /workspace/after").await, "/workspace/after");
        // A program that reads what is typed, and ends by it.
        tmux(&slots, json!({ "action": "send_keys", "keys": ["cat > /workspace/read", "Enter"] })).await;
        tmux(&slots, json!({ "action": "send_keys", "keys": ["line", "Enter"] })).await;
        let sent = tmux(&slots, json!({ "action": "send_keys", "keys": ["C-d"] })).await;
        assert_eq!(sent["output"], "ok", "{sent}");
        assert_eq!(stateful(&slots, "cat /workspace/read").await, "line");
    });
}

#[test]
fn panes_have_bounds_and_a_history() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        for (asked, cols, rows) in [
            (json!({}), 120, 40),
            (json!({ "pane_width": 1, "pane_height": 1 }), 20, 10),
            (json!({ "pane_width": 9999, "pane_height": 9999 }), 500, 200),
            (json!({ "pane_width": "100", "pane_height": null }), 100, 200),
            (json!({ "pane_height": 24 }), 100, 24),
        ] {
            let mut args = asked.clone();
            args["action"] = json!("start");
            let started = tmux(&slots, args).await;
            assert_eq!(
                (&started["metadata"]["pane_width"], &started["metadata"]["pane_height"]),
                (&json!(cols), &json!(rows)),
                "{asked}"
            );
        }
        assert_eq!(stateful(&slots, "tput cols; tput lines").await, "100\n24", "as it says");
        stateful(&slots, "clear; seq 300").await;
        let screen = tmux(&slots, json!({ "action": "capture" })).await;
        let visible = screen["output"].as_str().expect("a screen").to_owned();
        assert!(visible.contains("\n300\n") && !visible.contains("\n100\n"), "{visible}");
        let whole = tmux(&slots, json!({ "action": "capture", "capture_entire": true })).await;
        assert_eq!(whole["metadata"], json!({ "stateful": true, "capture_entire": true }));
        let lines: Vec<&str> = whole["output"].as_str().expect("a screen").lines().collect();
        let numbers: Vec<String> = (1..=300).map(|number| number.to_string()).collect();
        let first = lines.iter().position(|line| *line == "1").expect("the first line");
        assert_eq!(lines[first..first + 300], numbers);
        assert!(visible.len() < whole["output"].as_str().map_or(0, str::len));
        stateful(&slots, "seq 20000 | sed 's/^/some words to make it longer /'").await;
        let most = tmux(&slots, json!({ "action": "capture", "capture_entire": true })).await;
        let text = most["output"].as_str().expect("a screen");
        assert!(text.ends_with("\n... (output truncated)"));
        assert_eq!(text.chars().count(), 50_000 + "\n... (output truncated)".len());
        // Stopping forgets the size too.
        assert_eq!(tmux(&slots, json!({ "action": "stop" })).await["output"], "stopped");
        let again = tmux(&slots, json!({ "action": "start" })).await;
        assert_eq!(again["metadata"]["pane_width"], 120);
    });
}

#[test]
fn the_recording_is_streamed_by_whole_lines_and_lies_in_the_workspace() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        tmux(&slots, json!({ "action": "start" })).await;
        stateful(&slots, "echo first").await;
        let stream = async |args: Value| {
            let mut all = json!({ "action": "stream" });
            all.as_object_mut().expect("fields").extend(args.as_object().expect("fields").clone());
            let answer = tmux(&slots, all).await;
            let metadata = &answer["metadata"];
            assert_eq!(
                (&metadata["stateful"], &metadata["stream"], &metadata["recording"]),
                (&json!(true), &json!(true), &json!(".asciinema.cast"))
            );
            let text = answer["output"].as_str().expect("lines").to_owned();
            assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
            (text, metadata["offset"].as_u64().expect("an offset"))
        };
        let (first, offset) = stream(json!({})).await;
        assert_eq!(offset, first.len() as u64);
        let lines: Vec<Value> = first.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(
            (&lines[0]["version"], &lines[0]["width"], &lines[0]["height"]),
            (&json!(2), &json!(120), &json!(40))
        );
        assert!(
            lines[1..].iter().all(|event| event[0].is_f64() && event[1].is_string() && event[2].is_string()),
            "{first}"
        );
        assert!(first.contains("first\\r\\n"), "{first}");
        assert_eq!(stream(json!({})).await, (String::new(), offset), "nothing is told twice");
        stateful(&slots, "echo second").await;
        let (second, further) = stream(json!({})).await;
        assert!(second.contains("second\\r\\n") && !second.contains("first\\r\\n"), "{second}");
        assert_eq!(further, offset + second.len() as u64);
        // In small pieces, from the beginning.
        let (mut whole, mut at) = stream(json!({ "reset": true, "max_bytes": 1 })).await;
        assert_eq!(whole.lines().count(), 1);
        while at < further {
            let (piece, next) = stream(json!({ "max_bytes": 200 })).await;
            assert!(!piece.is_empty());
            whole.push_str(&piece);
            at = next;
        }
        assert_eq!(whole, format!("{first}{second}"));
        let read = slots
            .post("/artifacts/read", json!({ "slot_id": "slot_0", "path": ".asciinema.cast" }))
            .await
            .expect(200);
        assert_eq!(read["content"], whole);
        assert_eq!(slots.says("cat .asciinema.cast").await, whole.trim());
        // More is added to it; what somebody in the room has done to it is undone.
        stateful(&slots, "echo third").await;
        slots.says("echo mine > .asciinema.cast").await;
        stateful(&slots, "echo fourth").await;
        let read = slots
            .post("/artifacts/read", json!({ "slot_id": "slot_0", "path": ".asciinema.cast" }))
            .await
            .expect(200);
        let content = read["content"].as_str().expect("text");
        assert!(
            content.starts_with(&whole)
                && content.contains("third\\r\\n")
                && content.contains("fourth\\r\\n"),
            "{content}"
        );
        // It outlives its terminal, until the next one begins.
        tmux(&slots, json!({ "action": "stop" })).await;
        let read = slots
            .post("/artifacts/read", json!({ "slot_id": "slot_0", "path": ".asciinema.cast" }))
            .await
            .expect(200);
        assert!(read["content"].as_str().is_some_and(|content| content.contains("fourth\\r\\n")));
        let (anew, _) = stream(json!({})).await;
        assert!(!anew.contains("fourth") && anew.contains("\"version\":2"), "{anew}");
    });
}

#[test]
fn another_word_about_the_network_begins_another_terminal() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        stateful(&slots, "A=kept").await;
        assert_eq!(stateful(&slots, "echo \"[$A]\"").await, "[kept]");
        let closed = slots
            .tool("slot_0", "bash_stateful", json!({ "command": "echo \"[$A]\"", "allow_network": false }))
            .await;
        assert_eq!(
            (&closed["output"], &closed["metadata"]["network_isolated"]),
            (&json!("[]"), &json!(true))
        );
        let typed = tmux(
            &slots,
            json!({ "action": "send_keys", "keys": "exit", "block": true, "allow_network": false }),
        )
        .await;
        assert_eq!(typed["output"], "ok", "a shell that ends has no prompt to come back to: {typed}");
        eventually(async || {
            let screen = tmux(&slots, json!({ "allow_network": false })).await;
            let rows: Vec<&str> = screen["output"].as_str().unwrap_or_default().lines().collect();
            if rows.first() == Some(&"$") { Ok(()) } else { Err(format!("not a new one: {rows:?}")) }
        })
        .await;
    });
}
