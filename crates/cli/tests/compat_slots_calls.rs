//! Calls on slots: one at a time on each, in their order; what a command leaves ends with its call; time and size.

mod slots;

use serde_json::{Value, json};
use slots::{Caller, Slots};
use workroom_testkit::{eventually, for_each_user, within};

/// How many processes of a kind are in a slot's room; nobody else's program is called like this.
async fn sleepers(caller: &Caller, slot: &str) -> String {
    let count = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '^9876[5]$' || true";
    caller.says(slot, count).await
}

/// Waits until so many slots are at work.
async fn at_work(slots: &Slots<'_>, count: u64) {
    eventually(async || {
        let health = slots.get("/health").await.expect(200);
        match health["executing"] == count {
            true => Ok(()),
            false => Err(health.to_string()),
        }
    })
    .await;
}

#[test]
fn a_slot_takes_one_call_after_the_other_in_their_order() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 2);
        let one = |number: u32| {
            let command = format!("mkdir alone && echo {number} >> order; sleep 0.02; rmdir alone");
            json!({ "slot_id": "slot_0", "tool": "bash", "args": { "command": command } })
        };
        let batch: Vec<Value> = (0..25).map(one).collect();
        let answers = slots.post("/batch", json!(batch)).await.expect(200);
        let all_good = answers.as_array().expect("answers").iter().all(|answer| answer["success"] == true);
        assert!(all_good, "two were at it at once: {answers}");
        let expected: Vec<String> = (0..25).map(|number| number.to_string()).collect();
        assert_eq!(slots.says("cat order").await, expected.join("\n"));
    });
}

#[test]
fn slots_are_at_work_side_by_side_and_say_so() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 3);
        let begin = |slot: &str| {
            let (caller, request) = (
                slots.caller(),
                json!({ "slot_id": slot, "tool": "bash", "args": { "command": "sleep 2" }, "execution_id": format!("of {slot}") }),
            );
            tokio::spawn(async move { caller.execute(request).await })
        };
        let under_way = [begin("slot_0"), begin("slot_2")];
        at_work(&slots, 2).await;
        let health = slots.get("/health").await.expect(200);
        assert_eq!((&health["slots"], &health["available"]), (&json!(3), &json!(1)));
        let busy = slots.slot("slot_2").await;
        assert_eq!(
            (&busy["state"], &busy["current_execution_id"]),
            (&json!("executing"), &json!("of slot_2"))
        );
        assert_eq!(slots.slot("slot_1").await["state"], "available");
        assert_eq!(slots.caller().says("slot_1", "echo free").await, "free");
        for call in under_way {
            assert_eq!(within("a call", call).await.expect("a call")["success"], true);
        }
        at_work(&slots, 0).await;
        assert_eq!(slots.slot("slot_2").await["current_execution_id"], Value::Null);
    });
}

#[test]
fn files_and_resets_wait_for_the_slot_too() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        let write = |name: &str| {
            let (caller, command) = (slots.caller(), format!("sleep 1; echo done > {name}"));
            tokio::spawn(async move { caller.bash("slot_0", &command).await })
        };
        let writing = write("late");
        at_work(&slots, 1).await;
        let read = slots.post("/artifacts/read", json!({ "slot_id": "slot_0", "path": "late" })).await;
        assert_eq!(read.expect(200)["content"], "done\n");
        assert_eq!(writing.await.expect("a call")["success"], true);
        let writing = write("later");
        at_work(&slots, 1).await;
        let reset = slots.post("/reset", json!({ "slot_id": "slot_0" })).await.expect(200);
        assert_eq!(
            (&reset["success"], writing.await.expect("a call")["success"].clone()),
            (&json!(true), json!(true))
        );
        assert_eq!(slots.says("ls").await, "");
    });
}

#[test]
fn a_caller_that_goes_away_leaves_its_call_to_its_end() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        let request = json!({ "slot_id": "slot_0", "tool": "bash", "args": { "command": "sleep 1; echo done > late" } });
        let gone = slots.server.http().json(&request).open("POST", "/execute").await;
        at_work(&slots, 1).await;
        drop(gone);
        assert_eq!(slots.says("cat late").await, "done", "the next call waits for it");
    });
}

#[test]
fn what_a_command_leaves_running_ends_with_its_call() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        let leave = "sleep 98765 & setsid sleep 98765 & (trap '' HUP TERM INT; sleep 98765 & sleep 98765) & nohup setsid sh -c 'sleep 98765 & sleep 98765' >/dev/null 2>&1 & disown -a; echo left";
        assert_eq!(slots.says(leave).await, "left");
        assert_eq!(sleepers(&slots.caller(), "slot_0").await, "0");
        // What the terminal has started is not the command's, and stays.
        let job = slots.tool("slot_0", "bash_stateful", json!({ "command": "sleep 98765 &" })).await;
        assert_eq!(job["success"], true, "{job}");
        assert_eq!(slots.says(leave).await, "left");
        assert_eq!(sleepers(&slots.caller(), "slot_0").await, "1");
        slots.post("/reset", json!({ "slot_id": "slot_0" })).await.expect(200);
        assert_eq!(sleepers(&slots.caller(), "slot_0").await, "0");
    });
}

#[test]
fn time_is_kept_and_told_as_it_was_written() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        for (timeout, shown) in [
            (json!(0.5), "0.5s"),
            (json!(1), "1s"),
            (json!(1.0), "1.0s"),
            (json!(0), "0s"),
            (json!(-2), "-2s"),
        ] {
            let request = json!({
                "slot_id": "slot_0",
                "tool": "bash",
                "args": { "command": "echo written; setsid sleep 98765 & sleep 98765" },
                "timeout": timeout,
            });
            let expected = json!({
                "success": false,
                "output": "",
                "error": format!("Command timed out after {shown}"),
                "execution_id": null,
                "metadata": { "exit_code": -1, "timeout": true, "sandboxed": true },
            });
            assert_eq!(slots.caller().execute(request).await, expected);
            assert_eq!(sleepers(&slots.caller(), "slot_0").await, "0");
        }
        let request =
            json!({ "slot_id": "slot_0", "tool": "bash", "args": { "command": "echo x" }, "timeout": null });
        assert_eq!(slots.caller().execute(request).await["output"], "x", "without an end");
    });
}

#[test]
fn streams_are_cut_at_fifty_thousand_characters() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        slots.says("for i in $(seq 1000); do printf '%s' 'éééééééééééééééééééééééééééééééééééééééééééééééééé'; done > most").await;
        let most = "é".repeat(50_000);
        let cut = format!("{most}\n... (output truncated)");
        let said = async |command: &str| slots.says(command).await;
        assert!(said("cat most").await == most, "all of it");
        assert!(said("cat most; printf '!'").await == cut, "one more");
        assert!(said("cat most >&2; printf '!' >&2").await == cut, "of stderr too");
        let both = said("cat most; printf a; cat most >&2; printf b >&2").await;
        assert!(both == format!("{cut}\n[stderr]\n{cut}"), "each by itself");
        let emoji = said("for i in $(seq 50001); do printf '\\xf0\\x9f\\xa6\\x80'; done").await;
        assert!(emoji == format!("{}\n... (output truncated)", "🦀".repeat(50_000)), "the widest characters");
        let large = said("head -c 20000000 /dev/zero | tr '\\0' x").await;
        assert!(large == format!("{}\n... (output truncated)", "x".repeat(50_000)), "far more than is kept");
    });
}
