//! `workroom shell` on a person's terminal, and `workroom terminal` in scripts.

mod support;

use rustix::termios::LocalModes;
use serde_json::Value;
use std::process::Child;
use support::pty::{Pty, Watch};
use support::{code, finish, wait};
use workroom_testkit::types::{EndedBy, ProcessState};
use workroom_testkit::{Server, for_each_user, run};

/// `workroom shell …` on a terminal that controls it, as a person's does.
fn shell(server: &Server<'_>, pty: &Pty, arguments: &[&str]) -> (Child, Watch) {
    let shell = server.cli(&[&["shell"], arguments].concat());
    let mut command = server.user().command("setsid");
    command.args(["--ctty", "--wait"]).arg(shell.get_program()).args(shell.get_args());
    command.env("WORKROOM_STATE", server.state()).env("TERM", "xterm-256color");
    pty.start(&mut command)
}

#[test]
fn a_persons_terminal_is_the_sessions_until_its_shell_ends() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let pty = Pty::new(33, 97);
        let before = pty.modes();
        let (mut child, mut out) = shell(&server, &pty, &[&session.id]);
        out.wait_for("C-] leaves it");
        out.wait_for("$ ");
        let raw = pty.modes();
        assert!(!raw.local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        pty.send(b"stty size; echo $TERM; pwd\r");
        out.wait_for("33 97\r\nxterm-256color\r\n/workspace\r\n");
        pty.resize(40, 120);
        pty.send(b"sleep 0.2; stty size\r");
        out.wait_for("40 120\r\n");
        // Keys are the room's: Control-C ends what runs there, and not this.
        pty.send(b"sh -c 'echo be\"\"gun; exec sleep 1000'\r");
        out.wait_for("begun\r\n");
        pty.send(b"\x03");
        out.wait_for("^C");
        out.wait_for("$ ");
        pty.send(b"printf '\\033[?1049h\\033[?25l'; exit 6\r");
        let last = out.wait_for("\x1b[0m\x1b>");
        assert!(last.contains("\x1b[?25h\x1b[?1049l"), "what was switched on is switched off: {last:?}");
        assert_eq!(code(wait(&mut child)), 6);
        let after = pty.modes();
        assert_eq!(
            (after.local_modes, after.input_modes, after.output_modes),
            (before.local_modes, before.input_modes, before.output_modes)
        );
        let listed = session.client().terminals(&session.id).await.expect("a list").terminals;
        assert_eq!((listed.len(), listed[0].state), (1, ProcessState::Exited));
    });
}

#[test]
fn one_leaves_and_comes_back_from_another_terminal() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let pty = Pty::new(24, 80);
        let before = pty.modes().local_modes;
        let (mut child, mut out) = shell(&server, &pty, &[&session.id, "--name", "main"]);
        out.wait_for("$ ");
        pty.send(b"word=kept; printf '\\033[1;31mred\\033[0m\\n'; cat\r");
        out.wait_for("red\x1b[0m\r\n");
        pty.send(b"half a line\x1d");
        out.wait_for("--attach main` comes back");
        assert_eq!(code(wait(&mut child)), 0);
        assert_eq!(pty.modes().local_modes, before);
        let terminal = session.known_terminal("main");
        terminal.shows("half a line").await;

        // Another terminal, of another size, sees what was there, with its colours.
        let other = Pty::new(30, 100);
        let (mut child, mut out) =
            shell(&server, &other, &[&session.id, "--name", "main", "--detach-key", "C-a"]);
        out.wait_for("C-a leaves it");
        let seen = out.wait_for("half a line");
        assert!(seen.contains("\x1b[0;1;38;5;1mred"), "{seen:?}");
        other.send(b"\x04\x04");
        out.wait_for("$ ");
        other.send(b"echo $word; stty size\r");
        out.wait_for("kept\r\n30 100\r\n");
        out.wait_for("$ ");
        // What leaves another one is nothing here.
        other.send(b"echo \x16\x1d|od -c\r");
        out.wait_for("035");
        other.send(b"exit 4\r");
        out.wait_for("exit");
        assert_eq!(code(wait(&mut child)), 4);

        let (mut child, mut out) = shell(&server, &Pty::new(24, 80), &[&session.id, "--attach", "nobody"]);
        out.wait_for("there is no terminal \"nobody\"");
        assert_eq!(code(wait(&mut child)), 125);
    });
}

#[test]
fn several_look_and_some_only_look() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let (pty, second, watching) = (Pty::new(24, 80), Pty::new(24, 80), Pty::new(50, 132));
        let (mut one, mut one_out) = shell(&server, &pty, &[&session.id, "--name", "main"]);
        one_out.wait_for("$ ");
        let (mut two, mut two_out) = shell(&server, &second, &[&session.id, "--attach", "main"]);
        two_out.wait_for("$");
        let (mut three, mut three_out) =
            shell(&server, &watching, &[&session.id, "--attach", "main", "--read-only"]);
        three_out.wait_for("watching terminal main");
        three_out.wait_for("$");
        watching.send(b"echo ref''used\r");
        pty.send(b"echo fir''st\r");
        for out in [&mut one_out, &mut two_out, &mut three_out] {
            out.wait_for("first\r\n");
        }
        second.send(b"echo sec''ond; stty size\r");
        for out in [&mut one_out, &mut two_out, &mut three_out] {
            let text = out.wait_for("second\r\n24 80\r\n");
            assert!(!text.contains("refused"), "{text:?}");
        }
        watching.send(b"\x1d");
        assert_eq!(code(wait(&mut three)), 0);
        // One whose own terminal is gone is gone, and the others go on.
        drop((second, two_out));
        assert_ne!(code(wait(&mut two)), 0);
        pty.send(b"echo th''ird; exit 2\r");
        one_out.wait_for("third\r\n");
        assert_eq!(code(wait(&mut one)), 2);
    });
}

#[test]
fn a_shell_stays_through_a_servers_end() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let pty = Pty::new(24, 80);
        let (mut child, mut out) = shell(&server, &pty, &[&session.id]);
        out.wait_for("$ ");
        pty.send(b"stty -echo; (for i in $(seq 1 40); do echo tick$i; sleep 0.05; done); echo ov''er\r");
        out.wait_for("tick3\r\n");
        server.kill();
        server.restart();
        // Nothing is lost and nothing comes twice.
        let text = out.wait_for("over\r\n");
        let expected: String = (4..=40).map(|tick| format!("tick{tick}\r\n")).collect();
        assert_eq!(text, expected + "over\r\n");
        pty.send(b"exit 3\r");
        assert_eq!(code(wait(&mut child)), 3);
    });
}

#[test]
fn being_told_to_end_gives_the_terminal_back_and_leaves_the_shell() {
    run(async {
        let user = workroom_testkit::User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let pty = Pty::new(24, 80);
        let before = pty.modes().local_modes;
        let mut command = server.cli(&["shell", &session.id, "--name", "main"]);
        let (mut child, mut out) = pty.start(&mut command);
        out.wait_for("$ ");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("send");
        assert_eq!(code(wait(&mut child)), 143);
        assert_eq!(pty.modes().local_modes, before);
        assert_eq!(session.known_terminal("main").show().await.state, ProcessState::Running);
        // Without a terminal there is nothing to attach.
        let refused = finish(server.cli(&["shell", &session.id]));
        assert!(refused.code == 125 && refused.err.contains("not a terminal"), "{refused:?}");
        let key = finish(server.cli(&["shell", &session.id, "--detach-key", "F5"]));
        assert!(key.code == 125 && key.err.contains("C-]"), "{key:?}");
    });
}

#[test]
fn scripts_drive_terminals() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let terminal = |words: &[&str]| finish(server.cli(&[&["terminal"], words].concat()));
        let id = terminal(&["open", &session.id, "--name", "main", "--cols", "80", "--rows", "24"]).good();
        let id = id.trim();
        assert!(id.starts_with("t-"), "{id}");
        let taken = terminal(&["open", &session.id, "--name", "main"]);
        assert!(taken.code == 125 && taken.err.contains("\"main\" already"), "{taken:?}");
        terminal(&["wait", &session.id, "main", "--regex", "^\\$ $"]).good();
        terminal(&["send", &session.id, "main", "echo go; cat > file"]).good();
        terminal(&["wait", &session.id, "main", "--regex", "^go$"]).good();
        terminal(&["keys", &session.id, id, "hello", "Space", "there", "BSpace", "Enter", "C-d"]).good();
        terminal(&["wait", &session.id, "main", "--regex", "^hello ther\\n\\$ $"]).good();
        assert_eq!(
            terminal(&["screen", &session.id, "main"]).good(),
            "$ echo go; cat > file\ngo\nhello ther\n$\n"
        );
        assert_eq!(session.says("cat file").await, "hello ther\n");
        assert_eq!(
            terminal(&["text", &session.id, "main"]).good(),
            "$ echo go; cat > file\ngo\nhello ther\n$ \n"
        );
        let screen: Value =
            serde_json::from_str(&terminal(&["screen", &session.id, "main", "--json"]).good()).expect("JSON");
        assert_eq!(
            (screen["text"][2].as_str(), screen["cursor"]["row"].as_u64()),
            (Some("hello ther"), Some(3))
        );
        assert_eq!(terminal(&["resize", &session.id, "main", "--cols", "100"]).good(), "100x24\n");
        let late = terminal(&["wait", &session.id, "main", "--text", "never", "--timeout", "100ms"]);
        assert_eq!(late.code, 124, "{late:?}");
        let listed = terminal(&["ls", &session.id]).good();
        assert!(
            listed.contains("main") && listed.contains("running") && listed.contains("100x24"),
            "{listed}"
        );
        let closed: Value =
            serde_json::from_str(&terminal(&["close", &session.id, "main", "--json"]).good()).expect("JSON");
        assert_eq!(closed["ended_by"], serde_json::json!(EndedBy::Hup));
        assert!(terminal(&["close", &session.id, "main"]).good().ends_with("had ended\n"));
        let ended = terminal(&["wait", &session.id, "main", "--text", "never"]);
        assert_eq!(ended.code, 1, "{ended:?}");
        let none = terminal(&["close", &session.id, "never-was"]);
        assert_eq!(none.code, 125, "{none:?}");
    });
}
