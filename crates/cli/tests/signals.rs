//! Signals sent to `workroom` reach the command.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;
use support::pty::Watch;
use support::{code, for_each_privilege, wait};

#[test]
fn signals_reach_the_command() {
    for_each_privilege(|caller| {
        for (signal, name) in [
            (Signal::TERM, "TERM"),
            (Signal::INT, "INT"),
            (Signal::HUP, "HUP"),
            (Signal::QUIT, "QUIT"),
            (Signal::USR1, "USR1"),
            (Signal::USR2, "USR2"),
        ] {
            let script =
                format!("trap 'echo got {name}; exit 7' {name}; echo ready; while :; do sleep 0.05; done");
            let mut child = caller.run(&["--no-tty"], &["sh", "-c", &script]).spawn().expect("start");
            let mut out = Watch::new(child.stdout.take().expect("stdout"));
            out.wait_for("ready\n");
            kill_process(Pid::from_child(&child), signal).expect("send");
            assert_eq!(out.rest(), format!("got {name}\n"));
            assert_eq!(code(wait(&mut child)), 7, "{name}");
        }
    });
}

#[test]
fn a_signal_that_is_not_caught_ends_the_command_and_is_its_status() {
    for_each_privilege(|caller| {
        for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
            let mut child =
                caller.run(&[], &["sh", "-c", "echo ready; exec sleep 1000"]).spawn().expect("start");
            let mut out = Watch::new(child.stdout.take().expect("stdout"));
            out.wait_for("ready\n");
            kill_process(Pid::from_child(&child), signal).expect("send");
            assert_eq!(code(wait(&mut child)), status);
        }
    });
}

#[test]
fn a_whole_pipeline_is_signalled() {
    for_each_privilege(|caller| {
        let script = "trap 'echo outer >&2; exit 3' TERM; \
            sh -c 'trap \"echo inner >&2; exit\" TERM; echo ready >&2; while :; do sleep 0.05; done' | cat";
        let mut child = caller.run(&[], &["sh", "-c", script]).stdout(Stdio::null()).spawn().expect("start");
        let mut err = Watch::new(child.stderr.take().expect("stderr"));
        err.wait_for("ready\n");
        kill_process(Pid::from_child(&child), Signal::TERM).expect("send");
        // The shell waits for its pipeline before it acts on its own signal.
        let said = err.rest();
        assert!(said.contains("inner\n") && said.ends_with("outer\n"), "{said:?}");
        assert_eq!(code(wait(&mut child)), 3);
    });
}

#[test]
fn a_signal_before_the_command_runs_is_not_lost() {
    for_each_privilege(|caller| {
        for round in 0..20u64 {
            let mut child = caller.run(&[], &["sleep", "1000"]).spawn().expect("start");
            // From before the room is asked for to after the command runs.
            std::thread::sleep(std::time::Duration::from_micros(round * 700));
            kill_process(Pid::from_child(&child), Signal::TERM).expect("send");
            assert_eq!(code(wait(&mut child)), 143, "round {round}");
        }
    });
}

#[test]
fn a_command_that_ignores_signals_is_still_ended_by_its_time() {
    for_each_privilege(|caller| {
        let script = "trap '' TERM INT HUP QUIT; echo ready; while :; do sleep 0.05; done";
        let mut child = caller.run(&["--timeout", "700ms"], &["sh", "-c", script]).spawn().expect("start");
        let mut out = Watch::new(child.stdout.take().expect("stdout"));
        out.wait_for("ready\n");
        kill_process(Pid::from_child(&child), Signal::TERM).expect("send");
        assert_eq!(code(wait(&mut child)), 124);
    });
}
