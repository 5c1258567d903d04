//! Searches of a small tree with everything in it that gets in the way.
#![allow(clippy::disallowed_methods, reason = "nobody swaps paths in a test's own directory")]

use super::super::scratch::{Scratch, path};
use super::search;
use workroom_types::{Problem, ProblemCode, SearchFiles, SearchResult};

fn asked(pattern: &str) -> SearchFiles {
    SearchFiles { pattern: pattern.into(), ..SearchFiles::default() }
}

fn find(room: &Scratch, asked: &SearchFiles) -> Result<SearchResult, Problem> {
    search(&room.base(), &path(&asked.path), asked)
}

/// `path:line` of every match.
fn places(room: &Scratch, asked: &SearchFiles) -> Vec<String> {
    let found = find(room, asked).unwrap();
    found.matches.iter().map(|found| format!("{}:{}", found.path, found.line)).collect()
}

#[test]
fn lines_are_found_in_the_order_of_paths() {
    let room = Scratch::new();
    room.mkdir("a/sub");
    room.write("a/sub/x", "one\nneedle two\r\n");
    room.write("a.txt", "needle\n");
    room.write("b", "no\nthe Needle and the needle");
    room.write(".hidden", "needle");
    room.write("binary", "needle\n\0\n");
    room.fifo("fifo");
    room.link("../outside/secret", "link");
    room.link("b", "link-to-b");
    let found = find(&room, &asked("needle")).unwrap();
    let shown: Vec<_> = found
        .matches
        .iter()
        .map(|found| (found.path.as_str(), found.line, found.column, found.text.as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            ("a.txt", 1, 1, "needle"),
            ("a/sub/x", 2, 1, "needle two"),
            ("b", 2, 20, "the Needle and the needle")
        ]
    );
    assert_eq!((found.files_searched, found.files_skipped, found.truncated), (3, 1, false));
    let all = SearchFiles { ignore_case: true, hidden: true, ..asked("NEEDLE$") };
    assert_eq!(places(&room, &all), [".hidden:1", "a.txt:1", "b:2"]);
    assert_eq!(places(&room, &SearchFiles { path: "a".into(), ..asked("n.?e") }), ["a/sub/x:1", "a/sub/x:2"]);
    assert_eq!(
        places(&room, &SearchFiles { path: "/workspace/link-to-b".into(), ..asked("Need") }),
        ["link-to-b:2"]
    );
    assert_eq!(places(&room, &SearchFiles { literal: true, ..asked("n.?e") }), Vec::<String>::new());
}

#[test]
fn globs_and_ignore_files_leave_out() {
    let room = Scratch::new();
    for file in
        ["top.rs", "src/a.rs", "src/b.txt", "src/gen/c.rs", "target/d.rs", "logs/keep.log", "logs/drop.log"]
    {
        let _ = std::fs::create_dir_all(room.inside(file).parent().unwrap());
        room.write(file, "x\n");
    }
    room.write(".gitignore", "/target/\n*.log\nsrc/gen\n[broken\n");
    room.write("logs/.ignore", "!keep.log\n");
    let with = |globs: &[&str]| SearchFiles {
        globs: globs.iter().map(|glob| (*glob).to_owned()).collect(),
        ..asked("x")
    };
    assert_eq!(
        places(&room, &with(&["*.rs"])),
        ["src/a.rs:1", "src/gen/c.rs:1", "target/d.rs:1", "top.rs:1"]
    );
    assert_eq!(places(&room, &with(&["*.rs", "!target/", "!src/gen"])), ["src/a.rs:1", "top.rs:1"]);
    assert_eq!(places(&room, &with(&["src/*.rs"])), ["src/a.rs:1"]);
    let ignoring = SearchFiles { respect_ignore_files: true, ..asked("x") };
    assert_eq!(places(&room, &ignoring), ["logs/keep.log:1", "src/a.rs:1", "src/b.txt:1", "top.rs:1"]);
    // The rules of the directories above count too.
    let below = SearchFiles { path: "src".into(), ..ignoring };
    assert_eq!(places(&room, &below), ["src/a.rs:1", "src/b.txt:1"]);
}

#[test]
fn lines_around_a_match_are_shown_with_each() {
    let room = Scratch::new();
    room.write("f", "1\n2\nx3\n4\nx5\n6\n7\n8\n9\nx10\n");
    let found = find(&room, &SearchFiles { context: 2, ..asked("x") }).unwrap();
    let around: Vec<_> =
        found.matches.iter().map(|found| (found.before.join(" "), found.after.join(" "))).collect();
    let wanted = [("1 2", "4 x5"), ("x3 4", "6 7"), ("8 9", "")];
    assert_eq!(around, wanted.map(|(before, after)| (before.to_owned(), after.to_owned())));
    // Cut off by a limit, the last one still has what follows it.
    let first = find(&room, &SearchFiles { context: 2, max_matches: Some(1), ..asked("x") }).unwrap();
    assert_eq!((first.matches[0].after.join(" "), first.truncated), ("4 x5".into(), true));
}

#[test]
fn limits_are_kept_and_said() {
    let room = Scratch::new();
    for file in ["a", "b", "c"] {
        room.write(file, "x\n".repeat(10));
    }
    let limited = |most, per_file| {
        let found =
            find(&room, &SearchFiles { max_matches: most, max_per_file: per_file, ..asked("x") }).unwrap();
        (found.matches.len(), found.truncated)
    };
    assert_eq!(limited(None, None), (30, false));
    assert_eq!(limited(Some(30), None), (30, false));
    assert_eq!(limited(Some(12), None), (12, true));
    assert_eq!(limited(None, Some(4)), (12, true));
    assert_eq!(limited(None, Some(10)), (30, false));
    let long = format!("{}é{} x\n", "a".repeat(1999), "b".repeat(3000));
    room.write("long", &long);
    room.write("latin", b"caf\xe9 x\n");
    let found = find(&room, &SearchFiles { globs: vec!["l*".into()], ..asked(" x$") }).unwrap();
    assert_eq!(found.matches[0].text, "caf\u{fffd} x");
    assert_eq!((found.matches[1].text.len(), found.matches[1].cut), (1999, 3004));
    assert_eq!(found.matches[1].column, 5002);
    // An answer fits into a message, whatever is asked.
    room.write("wide", format!("{}x\n", "y".repeat(1990)).repeat(9000));
    let most = SearchFiles { max_matches: Some(10_000), context: 20, ..asked("x$") };
    let found = find(&room, &most).unwrap();
    let bytes: usize = found
        .matches
        .iter()
        .map(|found| {
            found.text.len() + found.before.iter().chain(&found.after).map(String::len).sum::<usize>()
        })
        .sum();
    assert!(found.truncated && bytes < 5 << 20, "{bytes}");
}

#[test]
fn what_cannot_be_searched_is_refused_in_words() {
    let room = Scratch::new();
    room.fifo("fifo");
    let refused = |asked: SearchFiles| find(&room, &asked).unwrap_err();
    for (asked, wanted) in [
        (asked(""), "the pattern is empty"),
        (asked("a(b"), "unclosed group"),
        (asked("(a{1000}){1000}"), "size"),
        (asked("a\\nb"), "not allowed"),
        (SearchFiles { context: 21, ..asked("x") }, "context 21"),
        (SearchFiles { max_matches: Some(0), ..asked("x") }, "max_matches 0"),
        (SearchFiles { max_per_file: Some(0), ..asked("x") }, "max_per_file"),
        (SearchFiles { globs: vec!["[a".into()], ..asked("x") }, "the glob \"[a\""),
    ] {
        let problem = refused(asked);
        assert_eq!(problem.code, ProblemCode::InvalidArgument);
        assert!(problem.detail.contains(wanted), "{wanted}: {problem}");
    }
    assert_eq!(refused(SearchFiles { path: "fifo".into(), ..asked("x") }).code, ProblemCode::WrongKind);
    assert_eq!(refused(SearchFiles { path: "no".into(), ..asked("x") }).code, ProblemCode::NotFound);
}
