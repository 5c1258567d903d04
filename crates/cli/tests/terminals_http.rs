//! Terminals of a session: opened under a name, typed into, read as text and as a screen, waited for, closed.

use serde_json::json;
use workroom_testkit::client::{AttachOptions, Attached, ScreenOptions};
use workroom_testkit::types::{Awaited, EndedBy, ProcessKind, ProcessState, ScreenColor};
use workroom_testkit::{Server, TestSession, User, eventually, for_each_user, run, within};

#[test]
fn a_terminal_is_a_shell_with_nothing_of_the_rooms_in_it() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let rc = "echo 'echo RC FILE; PS1=changed' | tee ~/.bashrc ~/.profile ~/.bash_profile > ~/.shrc; echo 'set editing-mode vi' > ~/.inputrc";
        session.says(rc).await;
        let terminal = session.terminal(json!({"cols": 100, "rows": 30, "name": "main"})).await;
        let shown = terminal.show().await;
        assert_eq!(shown.kind, ProcessKind::Terminal);
        assert_eq!((shown.name.as_deref(), shown.state), (Some("main"), ProcessState::Running));
        assert!(shown.id.starts_with("t-") && shown.record && shown.stdin, "{shown:?}");
        terminal.matches(r"^\$ $").await;
        terminal.types("stty size; tty; echo $TERM/$0/$-/$SHLVL:$HISTFILE:; pwd").await;
        let screen = terminal.matches(r"^/workspace\n\$ $").await;
        assert_eq!(screen.text[1..4], ["30 100", "/dev/pts/0", "xterm-256color//bin/bash/himBHs/1::"]);
        assert!(!screen.text.iter().any(|row| row.contains("RC FILE")), "{:#?}", screen.text);
        assert_eq!((screen.cursor.row, screen.cursor.column, screen.cursor.visible), (5, 2, true));
        // By its name as by its id.
        session.known_terminal("main").types("exit 7").await;
        let waited = terminal.waits(json!({"exit": true})).await;
        assert_eq!((waited.matched, waited.screen.state), (Some(Awaited::Exit), ProcessState::Exited));
        assert_eq!(session.known_terminal("main").show().await.exit.expect("an end").code, 7);
        assert_eq!(session.says("ls -a ~ | grep -c history || :").await, "0\n", "no history is left");

        let sh = session.terminal(json!({"shell": "sh", "env": {"A": "of mine"}, "cwd": "/tmp"})).await;
        sh.types("echo $0 $A $PWD").await;
        sh.shows("/bin/sh of mine /tmp\n").await;
        let listed = session.client().terminals(&session.id).await.expect("a list").terminals;
        assert_eq!(listed.iter().map(|one| &one.id).collect::<Vec<_>>(), [&sh.id, &terminal.id]);
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_name_belongs_to_one_terminal_at_a_time() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let open = async |name: &str| {
            server.http().json(&json!({"name": name})).post(&session.path("/terminals")).await
        };
        let first = session.terminal(json!({"name": "main"})).await;
        assert_eq!(open("main").await.problem(409), "already_exists");
        open("other").await.expect(201);
        first.close(None).await;
        let second = session.terminal(json!({"name": "main"})).await;
        assert_eq!(session.known_terminal("main").show().await.id, second.id, "the one that runs");
        for wrong in ["", "a b", "-x", "../x", "ä"] {
            open(wrong).await.problem(400);
        }
        for (field, value) in [("cols", 19), ("cols", 501), ("rows", 9), ("rows", 201)] {
            server.http().json(&json!({field: value})).post(&session.path("/terminals")).await.problem(400);
        }
        server.http().get(&session.path("/terminals/nobody/screen")).await.problem(404);
        let plain = session.process(json!({"command": "sleep 1000"})).await;
        server.http().get(&session.path(&format!("/terminals/{}/screen", plain.id))).await.problem(404);
    });
}

#[test]
fn text_keys_and_pastes_arrive_as_a_person_sends_them() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let terminal = session.terminal(json!({})).await;
        terminal.matches(r"^\$ $").await;
        let typed = server.http().json(&json!({"text": "echo un", "enter": false}));
        let taken = typed.post(&terminal.path("/input")).await.expect(200);
        assert_eq!((taken["written"].as_u64(), taken["complete"].as_bool()), (Some(7), Some(true)));
        terminal.presses(json!(["BSpace", "BSpace", {"text": "done"}, "Enter"])).await;
        terminal.matches(r"^done\n\$ $").await;
        terminal.presses(json!("Up")).await;
        terminal.presses(json!(["C-a", "#", "Enter"])).await;
        terminal.matches(r"^\$ #echo done\n\$ $").await;
        // Readline asks for marks around what is pasted, so that a newline in it runs nothing.
        assert!(terminal.screen().await.modes.bracketed_paste);
        terminal.pastes("echo pasted\necho twice").await;
        let waited = terminal.waits(json!({"idle_ms": 300})).await;
        assert!(!waited.screen.text.iter().any(|row| row == "pasted"), "{:#?}", waited.screen.text);
        terminal.presses(json!("Enter")).await;
        terminal.matches(r"^twice\n\$ $").await;
        terminal.types("cat").await;
        terminal.presses(json!("C-c")).await;
        terminal.matches(r"^\^C\n\$ $").await;
        let post =
            async |body: serde_json::Value| server.http().json(&body).post(&terminal.path("/input")).await;
        let unknown = post(json!({"keys": "Entr"})).await;
        assert!(unknown.text().contains("did you mean Enter"), "{}", unknown.text());
        unknown.problem(400);
        for wrong in [
            json!({}),
            json!({"text": "a", "keys": "b"}),
            json!({"keys": "a", "enter": true}),
            json!({"keys": ["Enter", "Nonsense"]}),
        ] {
            post(wrong).await.problem(400);
        }
        // Nothing of a list is sent if one of it is wrong.
        let before = terminal.screen().await.text;
        assert_eq!(terminal.waits(json!({"idle_ms": 100})).await.screen.text, before);
    });
}

#[test]
fn plain_text_is_what_one_would_have_read() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let terminal = session.terminal(json!({})).await;
        terminal.matches(r"^\$ $").await;
        session
            .says("printf '%s\\n' 'for i in 10 50 100; do printf \"\\r\\033[32m%3d%%\\033[0m\" $i; done; echo' > bar.sh")
            .await;
        terminal.types("sh bar.sh; echo over").await;
        terminal.matches("^over\n").await;
        terminal.matches(r"^\$ $").await;
        let page = terminal.plain().await;
        assert_eq!(page.text, "$ sh bar.sh; echo over\n100%\nover\n");
        assert_eq!((page.unfinished.as_str(), page.end), ("$ ", false));
        // What a full-screen program draws is left out, on whichever page it is.
        terminal
            .types(
                "printf '\\033[?1049h'; seq 1 500 | sed s/^/drawn/; printf '\\033[?1049l'; echo back; exit",
            )
            .await;
        terminal.waits(json!({"exit": true})).await;
        let (mut cursor, mut text) = (page.next_cursor, String::new());
        loop {
            let page = server.http().get(&terminal.path(&format!("/plain?cursor={cursor}&max=300"))).await;
            let page = page.expect(200);
            text += page["text"].as_str().expect("text");
            let next = page["next_cursor"].as_u64().expect("a number");
            assert!(next > cursor || page["end"] == true, "{page}");
            cursor = next;
            if page["end"] == true {
                break;
            }
        }
        assert!(!text.contains("drawn1\n") && !text.contains("drawn499"), "{text}");
        assert!(text.contains("a full-screen program ran here") && text.ends_with("back\nexit\n"), "{text}");
    });
}

#[test]
fn a_screen_has_colours_a_title_and_what_has_scrolled_away() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let terminal = session.terminal(json!({"cols": 80, "rows": 24})).await;
        terminal.matches(r"^\$ $").await;
        terminal.types("seq 1 30000; printf '\\033]2;a title\\007\\033[1;31mred\\033[0m plain\\n'").await;
        terminal.matches("^red plain\n").await;
        terminal.matches(r"^\$ $").await;
        let screen = terminal.screen_with(ScreenOptions { scrollback: 3, attributes: true }).await;
        assert_eq!(screen.title.as_deref(), Some("a title"));
        assert_eq!((screen.size.cols, screen.size.rows), (Some(80), Some(24)));
        assert_eq!(screen.text[20..], ["29999", "30000", "red plain", "$"]);
        let red = &screen.rows[22].runs[0];
        assert_eq!((red.text.as_str(), red.bold, &red.fg), ("red", true, &Some(ScreenColor::Palette(1))));
        assert_eq!(screen.scrollback, ["29976", "29977", "29978"]);
        assert_eq!(screen.scrollback_rows.len(), 3);
        // The typed line, and the numbers that are not on the screen any more.
        assert_eq!((screen.scrollback_lines, screen.scrollback_dropped), (20_000, 29_978 + 1 - 20_000));
        let whole = terminal.screen_with(ScreenOptions { scrollback: 20_000, attributes: false }).await;
        assert_eq!((whole.scrollback.len(), whole.scrollback[0].as_str()), (20_000, "9979"));
        assert!(whole.rows.is_empty() && whole.scrollback_rows.is_empty());
        server.http().get(&terminal.path("/screen?scrollback=20001")).await.problem(400);
    });
}

#[test]
fn one_can_wait_for_text_a_pattern_quiet_and_the_end() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let terminal = session.terminal(json!({})).await;
        terminal.matches(r"^\$ $").await;
        terminal.types("for i in 1 2 3 4 5; do echo step$i; sleep 0.05; done; echo fin''ished").await;
        let waited = terminal.waits(json!({"regex": "^step(4|5)$", "exit": true})).await;
        assert_eq!((waited.matched, waited.text.as_deref()), (Some(Awaited::Regex), Some("step4")));
        assert_eq!(waited.row.map(|row| waited.screen.text[row as usize].clone()).as_deref(), Some("step4"));
        terminal.matches("^finished\n").await;
        let waited = terminal.waits(json!({"idle_ms": 100, "timeout_ms": 25_000})).await;
        assert_eq!(waited.matched, Some(Awaited::Idle));
        assert!(waited.screen.text.contains(&"finished".to_owned()), "{:#?}", waited.screen.text);
        // What is on the screen is there already; from a cursor on only what is new counts.
        let cursor = waited.screen.next_cursor;
        terminal.shows("finished").await;
        let late = terminal.waits(json!({"text": "finished", "cursor": cursor, "timeout_ms": 100})).await;
        assert_eq!((late.matched, late.timed_out), (None, true));
        // What scrolls by too fast to be seen is found all the same.
        terminal.types("seq 1 200; echo nee''dle; seq 1 20000").await;
        let waited = terminal.waits(json!({"text": "needle", "cursor": cursor})).await;
        assert_eq!(waited.matched, Some(Awaited::Text));
        terminal.types("exit").await;
        let ended = terminal.waits(json!({"text": "never comes"})).await;
        assert_eq!((ended.matched, ended.timed_out), (None, false));
        assert_eq!(ended.screen.state, ProcessState::Exited);
        let wait =
            async |body: serde_json::Value| server.http().json(&body).post(&terminal.path("/wait")).await;
        for wrong in [json!({}), json!({"regex": "("}), json!({"text": ""}), json!({"idle_ms": -1})] {
            wait(wrong).await.problem(400);
        }
    });
}

#[test]
fn closing_asks_and_then_insists() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let obedient = session.terminal(json!({})).await;
        obedient.types("sh -c 'echo be\"\"gun; exec sleep 1000'").await;
        obedient.matches("^begun\n").await;
        let closed = obedient.close(None).await;
        assert_eq!(closed.ended_by, EndedBy::Hup, "{closed:?}");
        assert_eq!(obedient.close(None).await.ended_by, EndedBy::Itself);

        // One that is asked while it begins may miss it the first time.
        for _ in 0..10 {
            let young = session.terminal(json!({})).await;
            assert_eq!(young.close(Some(20_000)).await.ended_by, EndedBy::Hup);
        }

        let stubborn = session.terminal(json!({})).await;
        stubborn.types("trap '' HUP; setsid sleep 777 & echo rea''dy").await;
        stubborn.shows("ready").await;
        let closed = stubborn.close(Some(100)).await;
        assert_eq!(closed.ended_by, EndedBy::Kill);
        assert_eq!(closed.process.exit.expect("an end").signal, Some(9));
        eventually(async || {
            let listed = session.client().processes(&session.id).await.map_err(|error| error.to_string())?;
            let left: Vec<_> =
                listed.in_room.iter().filter(|one| one.state != "Z").map(|one| &one.command).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        assert_eq!(session.known_terminal(&stubborn.id).screen().await.state, ProcessState::Exited);
    });
}

/// Programs that ask their terminal something wait for the answer. The host gives it, unless a person's terminal does.
#[test]
fn a_terminal_answers_unless_somebody_else_does() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let terminal = session.terminal(json!({"cols": 80, "rows": 24})).await;
        terminal.matches(r"^\$ $").await;
        let ask = r#"IFS= read -rsd R -t 5 -p $'\e[6n' answer; echo "<${answer#?}>""#;
        terminal.types(ask).await;
        terminal.matches(r"^<\[\d+;\d+>\n\$ $").await;
        let options = AttachOptions { read_only: true, ..AttachOptions::default() };
        let watcher = session.client().attach_process(&session.id, &terminal.id, options).await;
        let _watcher = watcher.expect("attached");
        terminal.types("clear; echo watched").await;
        terminal.matches(r"^watched\n\$ $").await;
        terminal.types(ask).await;
        terminal.matches(r"^<\[\d+;\d+>\n\$ $").await;
        let options = AttachOptions { cursor: Some(0), ..AttachOptions::default() };
        let attached = session.client().attach_process(&session.id, &terminal.id, options).await;
        let mut viewer = attached.expect("attached");
        terminal.types("clear; echo ta''ken").await;
        terminal.matches(r"^taken\n\$ $").await;
        terminal.types(ask).await;
        // The viewer is the terminal now, and says what it likes.
        let mut seen = Vec::new();
        while seen.windows(4).filter(|window| *window == b"\x1b[6n").count() < 3 {
            match within("the question", viewer.next()).await.expect("a line").expect("more") {
                Attached::Output { data, .. } => seen.extend_from_slice(&data),
                Attached::Process(_) => {}
                other => panic!("{other:?}"),
            }
        }
        viewer.write("\x1b[99;99R").await.expect("sent");
        terminal.matches(r"^<\[99;99>\n").await;
    });
}

/// The screen is drawn anew from what was kept, at the sizes that it had.
#[test]
fn a_screen_survives_the_host() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        let terminal = session.terminal(json!({"name": "main", "cols": 80, "rows": 24})).await;
        terminal.matches(r"^\$ $").await;
        terminal.types("PS1='> '; clear; printf '%.0sx' {1..100}; echo").await;
        terminal.matches("^> $").await;
        terminal.resize(120, 30).await;
        terminal.types("seq 1 100; stty size; printf '%.0sy' {1..110}; echo").await;
        terminal.matches("^30 120\n").await;
        terminal.matches("^y{110}\n> $").await;
        let options = ScreenOptions { scrollback: 20_000, attributes: true };
        let before = terminal.screen_with(options).await;
        assert_eq!(before.size.cols, Some(120));
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let terminal = session.known_terminal("main");
        assert_eq!(terminal.screen_with(options).await, before);
        // A name in use is still in use.
        let again = server.http().json(&json!({"name": "main"})).post(&session.path("/terminals")).await;
        again.problem(409);
        terminal.types("echo al''ive; exit 3").await;
        terminal.waits(json!({"exit": true})).await;
        assert_eq!(terminal.show().await.exit.expect("an end").code, 3);
        assert!(terminal.screen().await.text.contains(&"alive".to_owned()));
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

/// More terminals than screens are kept for: each is drawn anew when somebody looks again.
#[test]
fn screens_that_were_let_go_come_back() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let mut terminals = Vec::new();
        for number in 0..20 {
            let terminal = session.terminal(json!({"name": format!("number-{number}")})).await;
            terminal.types(&format!("echo this is $(({number} + 1000))")).await;
            terminal.matches(&format!("^this is {}\n", number + 1000)).await;
            terminals.push(terminal);
        }
        for (number, terminal) in terminals.iter().enumerate() {
            let screen = terminal.screen().await;
            assert!(screen.text.contains(&format!("this is {}", number + 1000)), "{:#?}", screen.text);
        }
    });
}

/// A program that has its whole screen painted again with every few bytes costs its own session time, and others little.
#[test]
fn a_program_that_is_costly_to_draw_is_drawn_and_left() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let (hostile, other) = (server.session().await, server.session().await);
        let terminal = hostile.terminal(json!({"cols": 500, "rows": 200})).await;
        terminal.matches(r"^\$ $").await;
        // DECALN fills the whole screen.
        terminal
            .types(r"for i in $(seq 1 100); do printf '\033#8\033#8\033#8'; done; clear; echo ov''er")
            .await;
        assert_eq!(other.says("echo fine").await, "fine\n");
        let neighbour = other.terminal(json!({})).await;
        neighbour.types("echo al''so").await;
        neighbour.matches("^also\n").await;
        terminal.matches("^over\n").await;
    });
}
