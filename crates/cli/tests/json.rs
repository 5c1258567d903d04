//! `--json`: one object that says how the command ended, what it used and what was in force.

mod support;

use serde_json::Value;
use support::{Caller, for_each_privilege};

#[track_caller]
fn number(result: &Value, field: &str) -> f64 {
    result[field].as_f64().unwrap_or_else(|| panic!("{field} is not a number in {result}"))
}

#[test]
fn a_normal_end() {
    for_each_privilege(|caller| {
        let script = "echo out; echo err >&2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3";
        let result = caller.json(&[], &["sh", "-c", script]);
        assert_eq!(result["exit_code"], 3);
        assert_eq!(result["signal"], Value::Null);
        assert_eq!((&result["timed_out"], &result["oom_killed"]), (&Value::Bool(false), &Value::Bool(false)));
        assert_eq!((&result["stdout"], &result["stderr"]), (&"out\n".into(), &"err\n".into()));
        assert_eq!((number(&result, "stdout_bytes"), number(&result, "stderr_bytes")), (4.0, 4.0));
        assert_eq!(result["truncated"], false);
        assert!(result.get("error").is_none(), "{result}");
        assert!((0.1..60_000.0).contains(&number(&result, "duration_ms")), "{result}");
        assert!((0.1..60_000.0).contains(&number(&result, "cpu_ms")), "{result}");
        assert!(number(&result, "peak_memory") > 100_000.0, "{result}");
    });
}

#[test]
fn every_layer_is_accounted_for() {
    for_each_privilege(|caller| {
        let limits = ["--memory", "256M", "--pids", "100", "--cpus", "1"];
        let enforced = &caller.json(&limits, &["true"])["enforced"];
        let always = ["userns", "mountns", "pidns", "netns", "ipcns", "utsns", "cgroupns", "caps", "nnp"];
        for layer in always.into_iter().chain(["seccomp", "landlock", "proc", "dumpable", "disk"]) {
            assert_eq!(enforced[layer]["state"], "enforced", "{layer}: {}", enforced[layer]);
            assert!(enforced[layer]["by"].as_str().is_some_and(|by| !by.is_empty()), "{layer}");
        }
        for layer in ["memory", "pids", "cpu", "uidrange", "scope"] {
            let state = &enforced[layer];
            let says = match state["state"].as_str() {
                Some("enforced" | "partial") => &state["by"],
                Some("missing") => &state["why"],
                _ => panic!("{layer}: {state}"),
            };
            assert!(says.as_str().is_some_and(|says| !says.is_empty()), "{layer}: {state}");
        }
        assert_eq!(enforced["uidrange"]["state"] == "enforced", caller.is_root());
        let allowed = caller.json(&["--without", "seccomp"], &["true"]);
        assert_eq!(allowed["enforced"]["seccomp"]["state"], "missing", "what is left out is said");
    });
}

#[test]
fn a_signal() {
    for_each_privilege(|caller| {
        let result = caller.json(&[], &["sh", "-c", "kill -SEGV $$"]);
        assert_eq!((&result["exit_code"], &result["signal"]), (&139.into(), &11.into()));
    });
}

#[test]
fn a_time_out() {
    for_each_privilege(|caller| {
        let result = caller.json(&["--timeout", "300ms"], &["sh", "-c", "echo so far; sleep 1000"]);
        assert_eq!((&result["exit_code"], &result["timed_out"]), (&124.into(), &true.into()));
        assert_eq!(result["signal"], Value::Null);
        assert_eq!(result["stdout"], "so far\n");
        assert!(number(&result, "duration_ms") >= 300.0, "{result}");
        assert_eq!(result["oom_killed"], false, "{result}");
        assert!(number(&result, "peak_memory") > 100_000.0, "what it used is known: {result}");
        let busy = "i=0; while :; do i=$((i+1)); done";
        let result = caller.json(&["--timeout", "500ms"], &["sh", "-c", busy]);
        assert!(number(&result, "cpu_ms") > 50.0, "{result}");
        assert_eq!(
            result["enforced"]["seccomp"]["state"], "enforced",
            "what was in force is known: {result}"
        );
    });
}

fn out_of_memory(caller: &Caller) {
    let options = ["--memory", "32M"];
    if caller.layer(&options, "memory") != "enforced" {
        println!("skipped: no memory limit for all of a room here");
        return;
    }
    // One line without an end: tail keeps all of it.
    let result = caller.json(&options, &["tail", "/dev/zero"]);
    assert_eq!((&result["exit_code"], &result["signal"]), (&137.into(), &9.into()), "{result}");
    assert_eq!((&result["oom_killed"], &result["timed_out"]), (&true.into(), &false.into()), "{result}");
    assert!(number(&result, "peak_memory") <= f64::from(33 << 20), "{result}");
    assert!(number(&result, "peak_memory") >= f64::from(24 << 20), "{result}");

    // A command that outlives its child's end tells of it too.
    let result = caller.json(&options, &["sh", "-c", "tail /dev/zero; exit 4"]);
    assert_eq!((&result["exit_code"], &result["oom_killed"]), (&4.into(), &true.into()), "{result}");

    // So does one that takes too long.
    let options = ["--memory", "32M", "--timeout", "3s"];
    let result = caller.json(&options, &["sh", "-c", "tail /dev/zero; sleep 1000"]);
    assert_eq!((&result["exit_code"], &result["oom_killed"]), (&124.into(), &true.into()), "{result}");
    assert!(number(&result, "peak_memory") >= f64::from(24 << 20), "{result}");
}

#[test]
fn running_out_of_memory() {
    for_each_privilege(out_of_memory);
}

#[test]
fn memory_that_is_limited_for_each_process_only_is_called_partial() {
    support::as_ordinary_user(|caller| {
        let options = ["--memory", "64M"];
        if caller.layer(&options, "memory") == "enforced" {
            println!("skipped: this user has cgroups");
            return;
        }
        let outcome = caller.sh(&options, "tail /dev/zero");
        assert_ne!(outcome.code, 0, "{outcome:?}");
        assert!(outcome.err.contains("memory limit"), "a limit that was asked for and is weak: {outcome:?}");
    });
}

#[test]
fn a_fault_of_the_room() {
    for_each_privilege(|caller| {
        let result = caller.json(&["--workspace", "/no/such/dir"], &["true"]);
        assert_eq!((&result["exit_code"], &result["error"]["code"]), (&125.into(), &"path_not_found".into()));
        for field in ["detail", "hint"] {
            assert!(result["error"][field].as_str().is_some_and(|text| !text.is_empty()), "{result}");
        }
        assert_eq!(result["enforced"], Value::Null, "no room, nothing in force");
        for (options, command, status, code) in [
            (&["--memory", "1k"][..], "true", 125, "invalid_argument"),
            (&["--require", "cpu"], "true", 125, "layer_missing"),
            (&["--workdir", "/no/such"], "true", 125, "invalid_argument"),
            (&[], "no-such-program", 127, "command_not_found"),
            (&[], "/usr", 126, "command_not_executable"),
        ] {
            let result = caller.json(options, &[command]);
            assert_eq!(
                (&result["exit_code"], &result["error"]["code"]),
                (&status.into(), &code.into()),
                "{result}"
            );
        }
    });
}

#[test]
fn long_and_binary_output_is_bounded_and_said_to_be() {
    for_each_privilege(|caller| {
        let result = caller.json(&[], &["sh", "-c", "echo start; head -c 5000000 /dev/zero; echo the end"]);
        assert_eq!((&result["truncated"], number(&result, "stdout_bytes")), (&true.into(), 5_000_014.0));
        let text = result["stdout"].as_str().expect("text");
        assert!(text.starts_with("start\n") && text.ends_with("the end\n"));
        assert!(text.len() < 2 << 20, "{} bytes kept", text.len());
        let result = caller.json(&[], &["printf", r"\377\376 caf\303\251"]);
        assert_eq!(result["stdout"], "\u{fffd}\u{fffd} café");
    });
}

#[test]
fn a_command_reads_stdin_with_json_too() {
    for_each_privilege(|caller| {
        let outcome = support::finish_with_input(caller.run(&["--json"], &["tr", "a-z", "A-Z"]), b"loud");
        let result: Value = serde_json::from_str(&outcome.good()).expect("JSON");
        assert_eq!(result["stdout"], "LOUD");
    });
}
