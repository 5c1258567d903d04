//! `workroom run` on a terminal: the command gets one of its own, and the caller's is given back as it was.

mod support;

use rustix::termios::LocalModes;
use std::process::{Child, Command, Stdio};
use support::pty::{Pty, Watch};
use support::{Caller, code, finish, finish_with_input, for_each_privilege, wait};

/// Runs a script on the terminal, which controls it as a shell's would.
fn on(pty: &Pty, caller: &Caller, options: &[&str], script: &str) -> (Child, Watch) {
    let run = caller.run(options, &["sh", "-c", script]);
    // From util-linux, which every system has: a session of its own with stdin as its terminal.
    let mut command = caller.command("setsid");
    command.args(["--ctty", "--wait"]).arg(run.get_program()).args(run.get_args()).env("TERM", "vt220");
    pty.start(&mut command)
}

#[test]
fn the_command_has_a_terminal_of_the_room() {
    for_each_privilege(|caller| {
        let pty = Pty::new(33, 97);
        let script =
            "tty; stty size; echo $TERM; test -t 0 -a -t 1 -a -t 2 && echo all; ls -l $(tty); echo over";
        let (mut child, mut out) = on(&pty, caller, &[], script);
        let text = out.wait_for("over\r\n");
        assert!(wait(&mut child).success());
        assert!(text.starts_with("/dev/pts/0\r\n33 97\r\nvt220\r\nall\r\n"), "{text:?}");
        assert!(text.contains(" agent "), "the terminal is the user's: {text:?}");
    });
}

#[test]
fn the_window_size_follows() {
    for_each_privilege(|caller| {
        let pty = Pty::new(24, 80);
        let script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done";
        let (mut child, mut out) = on(&pty, caller, &[], script);
        out.wait_for("ready\r\n");
        for (rows, cols) in [(50, 132), (10, 20), (200, 300)] {
            pty.resize(rows, cols);
            out.wait_for(&format!("{rows} {cols}\r\n"));
        }
        pty.send(b"\x03");
        assert_eq!(code(wait(&mut child)), 130);
    });
}

#[test]
fn control_c_interrupts_the_command() {
    for_each_privilege(|caller| {
        let pty = Pty::new(24, 80);
        let (mut child, mut out) = on(&pty, caller, &[], "echo ready; exec sleep 1000");
        out.wait_for("ready\r\n");
        pty.send(b"\x03");
        assert_eq!(code(wait(&mut child)), 130);

        let (mut child, mut out) =
            on(&pty, caller, &[], "trap 'echo caught; exit 9' INT; echo ready; read x");
        out.wait_for("ready\r\n");
        pty.send(b"\x03");
        out.wait_for("caught\r\n");
        assert_eq!(code(wait(&mut child)), 9);

        let (mut child, mut out) = on(&pty, caller, &[], "echo ready; exec sleep 1000");
        out.wait_for("ready\r\n");
        pty.send(b"\x1c");
        assert_eq!(code(wait(&mut child)), 131, "control-backslash");
    });
}

#[test]
fn the_callers_terminal_is_raw_meanwhile_and_as_before_afterwards() {
    for_each_privilege(|caller| {
        for (script, options, status) in [
            ("echo ready; read x; exit 0", &[][..], 0),
            ("echo ready; read x; kill -9 $$", &[], 137),
            ("echo ready; sleep 1000", &["--timeout", "500ms"], 124),
        ] {
            let pty = Pty::new(24, 80);
            let before = pty.modes();
            assert!(before.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO));
            let (mut child, mut out) = on(&pty, caller, options, script);
            out.wait_for("ready");
            let raw = pty.modes();
            assert!(!raw.local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
            pty.send(b"\r");
            assert_eq!(code(wait(&mut child)), status);
            let after = pty.modes();
            assert_eq!(after.local_modes, before.local_modes, "{script}");
            assert_eq!(after.input_modes, before.input_modes, "{script}");
            assert_eq!(after.output_modes, before.output_modes, "{script}");
        }
    });
}

#[test]
fn the_callers_terminal_is_as_before_when_workroom_is_told_to_end() {
    for_each_privilege(|caller| {
        let pty = Pty::new(24, 80);
        let before = pty.modes();
        let (mut child, mut out) = on(&pty, caller, &[], "echo ready; exec sleep 1000");
        out.wait_for("ready");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("send");
        assert_eq!(code(wait(&mut child)), 143);
        assert_eq!(pty.modes().local_modes, before.local_modes);
    });
}

#[test]
fn a_fault_leaves_the_terminal_alone() {
    for_each_privilege(|caller| {
        let pty = Pty::new(24, 80);
        let before = pty.modes();
        let mut command = caller.run(&[], &["no-such-program"]);
        let (mut child, mut out) = pty.start(&mut command);
        out.wait_for("not found");
        assert_eq!(code(wait(&mut child)), 127);
        assert_eq!(pty.modes().local_modes, before.local_modes);
    });
}

#[test]
fn typing_reaches_the_command_and_is_echoed_once() {
    for_each_privilege(|caller| {
        let pty = Pty::new(24, 80);
        let (mut child, mut out) = on(&pty, caller, &[], "echo ready; read x; echo \"<$x>\"; cat; echo bye");
        out.wait_for("ready\r\n");
        pty.send(b"hello\r");
        assert_eq!(out.wait_for("<hello>\r\n"), "hello\r\n<hello>\r\n");
        pty.send(b"\x04");
        out.wait_for("bye\r\n");
        assert!(wait(&mut child).success());
    });
}

#[test]
fn job_control_works_in_an_interactive_shell() {
    for_each_privilege(|caller| {
        let pty = Pty::new(24, 80);
        let (mut child, mut out) = on(&pty, caller, &["--env", "PS1=%%"], "exec bash --norc -i");
        out.wait_for("%%");
        pty.send(b"sleep 1000\r");
        out.wait_for("sleep 1000\r\n");
        // Control-Z may be typed before bash has put sleep in front; bash then ignores it, so type on.
        let mut stopped = false;
        for _ in 0..200 {
            pty.send(b"\x1a");
            std::thread::sleep(std::time::Duration::from_millis(20));
            let text = out.now();
            if text.contains("Stopped") {
                stopped = true;
                break;
            }
        }
        assert!(stopped, "{:?}", out.text());
        pty.send(b"jobs; bg; kill %1; wait; echo wo''rked\r");
        let text = out.wait_for("worked\r\n");
        assert!(text.contains("Running") || text.contains("sleep 1000 &"), "{text:?}");
        assert!(!text.contains("no job control"), "{text:?}");
        pty.send(b"exit 6\r");
        assert_eq!(code(wait(&mut child)), 6);
    });
}

#[test]
fn there_is_no_terminal_when_it_is_not_wanted() {
    for_each_privilege(|caller| {
        let pty = Pty::new(24, 80);
        let (mut child, mut out) = on(&pty, caller, &["--no-tty"], "tty; test -t 1 || echo pipe");
        let text = out.wait_for("pipe\r\n");
        assert!(text.contains("not a tty"), "{text:?}");
        assert!(wait(&mut child).success());
        // One of the two is no terminal: no terminal.
        let mut command = caller.run(&[], &["sh", "-c", "test -t 0 || echo none; test -t 1 || echo none"]);
        command.stdin(pty.slave());
        assert_eq!(finish(command).good(), "none\nnone\n");
    });
}

#[test]
fn a_terminal_can_be_had_without_one() {
    for_each_privilege(|caller| {
        let outcome = finish(caller.run(&["--tty"], &["sh", "-c", "tty; stty size"]));
        assert_eq!((outcome.code, outcome.out.as_str()), (0, "/dev/pts/0\r\n24 80\r\n"), "{outcome:?}");
        let run: Command = caller.run(&["--tty"], &["sh", "-c", "stty -echo; read x; echo \"<$x>\"; cat"]);
        let outcome = finish_with_input(run, b"one\n");
        assert!(outcome.code == 0 && outcome.out.ends_with("<one>\r\n"), "{outcome:?}");
        let mut run = caller.run(&["--tty"], &["head", "-c", "200000", "/dev/zero"]);
        run.stdout(Stdio::piped());
        assert_eq!(finish(run).out.len(), 200_000, "nothing is lost at the end");
    });
}
