//! Full-screen programs and interpreters, driven through keys and the screen alone, as an agent drives them. A program
//! that this machine does not have is told of and left out.

use serde_json::json;
use std::io::Write;
use workroom_testkit::types::{EndedBy, TerminalScreen};
use workroom_testkit::{Server, TestSession, for_each_user};

/// Whether a program is there for commands of rooms.
async fn has(session: &TestSession, program: &str) -> bool {
    let there = session.sh(&format!("command -v {program}")).await.exit_code == 0;
    if !there {
        // Seen although the test passes: what tests print with macros is kept from the screen.
        let _ = writeln!(std::io::stderr(), "skipped: there is no {program} on this machine");
    }
    there
}

/// The row that the cursor is on.
fn row(screen: &TerminalScreen) -> &str {
    &screen.text[usize::from(screen.cursor.row)]
}

#[test]
fn vim_edits_a_file() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        if !has(&session, "vi").await {
            return;
        }
        session.says("printf 'first\\nsecond\\nthird\\n' > poem.txt").await;
        let terminal = session.terminal(json!({"cols": 90, "rows": 28})).await;
        terminal.matches(r"^\$ $").await;
        terminal.types("vi poem.txt").await;
        let screen = terminal.matches("^first\nsecond\nthird\n~").await;
        assert!(screen.alternate, "{:#?}", screen.text);
        // Down by an arrow, which an editor may have asked to be sent in another form.
        terminal.presses(json!(["Down", "End", "a", {"text": " and a half"}, "Escape"])).await;
        terminal.matches("^second and a half$").await;
        terminal
            .presses(json!(["o", {"text": "between ä€"}, "Enter", {"text": "typo"}, "BSpace", "BSpace"]))
            .await;
        terminal.presses(json!(["Escape", "g", "g", "d", "d"])).await;
        // At the very top: the first line is gone.
        terminal.matches("\\Asecond and a half\nbetween ä€\nty\nthird\n~").await;
        terminal.resize(60, 15).await;
        let screen = terminal.waits(json!({"idle_ms": 300})).await.screen;
        assert_eq!((screen.size.cols, screen.text.len()), (Some(60), 15));
        assert_eq!(screen.text[..3], ["second and a half", "between ä€", "ty"]);
        terminal.presses(json!([{"text": ":wq"}, "Enter"])).await;
        let screen = terminal.matches(r"^\$ $").await;
        assert!(!screen.alternate);
        assert_eq!(session.says("cat poem.txt").await, "second and a half\nbetween ä€\nty\nthird\n");
        let plain = terminal.plain().await.text;
        assert!(plain.contains("a full-screen program ran here") && !plain.contains("between"), "{plain}");
    });
}

#[test]
fn less_pages_searches_and_leaves() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        if !has(&session, "less").await {
            return;
        }
        session.says("seq -f 'line %g' 1 500 > long.txt").await;
        let terminal = session.terminal(json!({"cols": 80, "rows": 12})).await;
        terminal.matches(r"^\$ $").await;
        terminal.types("less long.txt").await;
        let screen = terminal.shows("line 11").await;
        assert_eq!((screen.text[0].as_str(), screen.alternate), ("line 1", true));
        terminal.presses(json!("PageDown")).await;
        terminal.shows("line 22").await;
        terminal.presses(json!(["/", {"text": "line 321$"}, "Enter"])).await;
        terminal.shows("line 331").await;
        terminal.presses(json!("G")).await;
        assert_eq!(terminal.matches("^line 500$").await.text[10], "line 500");
        terminal.presses(json!("q")).await;
        let screen = terminal.matches(r"^\$ $").await;
        assert!(!screen.alternate && !screen.text.contains(&"line 500".to_owned()), "{:#?}", screen.text);
    });
}

#[test]
fn python_is_talked_to() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        if !has(&session, "python3").await {
            return;
        }
        let terminal = session.terminal(json!({})).await;
        terminal.matches(r"^\$ $").await;
        terminal.types("python3 -q").await;
        terminal.matches("^>>> $").await;
        terminal.types("6 * 7").await;
        terminal.matches("^42\n").await;
        terminal.types("def double(x):").await;
        terminal.types("    return 2 * x").await;
        terminal.types("").await;
        terminal.types("double(21) + 1").await;
        terminal.matches("^43\n").await;
        terminal.types("input('name? ')").await;
        terminal.matches(r"^name\? $").await;
        terminal.types("Ada").await;
        terminal.matches("^'Ada'\n").await;
        terminal.types("import time; print('be' + 'gun'); time.sleep(1000)").await;
        terminal.matches("^begun\n").await;
        terminal.presses(json!("C-c")).await;
        terminal.matches("^KeyboardInterrupt\n>>> $").await;
        terminal.presses(json!("C-d")).await;
        assert_eq!(row(&terminal.matches(r"^\$ $").await), "$");
    });
}

#[test]
fn node_and_gdb_are_talked_to() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let terminal = session.terminal(json!({})).await;
        terminal.matches(r"^\$ $").await;
        if has(&session, "node").await {
            terminal.types("node").await;
            terminal.matches("^> $").await;
            terminal.types("[1, 2, 3].map(x => x * x).join('-')").await;
            terminal.matches("^'1-4-9'\n").await;
            terminal.types(".exit").await;
            terminal.matches(r"^\$ $").await;
        }
        if has(&session, "gdb").await {
            terminal.types("clear; gdb -q -nx").await;
            terminal.matches(r"^\(gdb\) $").await;
            terminal.types("print 6 * 7").await;
            terminal.matches(r"^\$1 = 42\n").await;
            terminal.types("quit").await;
            terminal.matches(r"^\$ $").await;
        }
    });
}

#[test]
fn htop_redraws_until_it_is_left() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        if !has(&session, "htop").await {
            return;
        }
        let terminal = session.terminal(json!({"name": "top", "cols": 100, "rows": 30})).await;
        terminal.matches(r"^\$ $").await;
        terminal.types("htop").await;
        let screen = terminal.shows("F10").await;
        assert!(screen.alternate, "{:#?}", screen.text);
        terminal.presses(json!("F1")).await;
        terminal.shows("show this help screen").await;
        terminal.presses(json!("Escape")).await;
        terminal.presses(json!("F10")).await;
        assert!(!terminal.matches(r"^\$ $").await.alternate);
        assert_eq!(terminal.close(None).await.ended_by, EndedBy::Hup);
    });
}
