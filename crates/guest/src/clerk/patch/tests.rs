//! Patches of real and of malicious makers, applied to files in a directory.
#![allow(clippy::disallowed_methods, reason = "nobody swaps paths in a test's own directory")]

use super::super::scratch::{Scratch, path};
use super::patch;
use std::os::unix::fs::PermissionsExt;
use workroom_types::{ApplyPatch, PatchChange, Patched, Problem, ProblemCode};

fn apply(room: &Scratch, text: &str) -> Result<Patched, Problem> {
    patch(&room.base(), &path(""), &ApplyPatch { patch: text.into(), ..ApplyPatch::default() })
}

/// Nothing but the named files is there: no temporary was left.
fn names(room: &Scratch) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(room.inside(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn report(problem: &Problem) -> Patched {
    serde_json::from_value(problem.report.clone().unwrap()).unwrap()
}

#[test]
fn a_git_diff_creates_modifies_and_deletes() {
    let room = Scratch::new();
    room.write("old.txt", "gone\n");
    room.write("src.rs", "one\ntwo\nthree\n");
    std::fs::set_permissions(room.inside("src.rs"), std::fs::Permissions::from_mode(0o750)).unwrap();
    let done = apply(
        &room,
        "From: somebody\n\nWords about it.\n---\n src.rs | 2 +-\n\ndiff --git a/src.rs b/src.rs\nindex 1..2 100644\n\
         --- a/src.rs\n+++ b/src.rs\n@@ -1,3 +1,3 @@ fn main\n one\n-two\n+zwei\n three\n\
         diff --git a/old.txt b/old.txt\ndeleted file mode 100644\n--- a/old.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n\
         diff --git a/sub/dir/new b/sub/dir/new\nnew file mode 100755\n--- /dev/null\n+++ b/sub/dir/new\n@@ -0,0 +1,2 @@\n+x\n+y\n\
         \\ No newline at end of file\n\
         diff --git a/empty b/empty\nnew file mode 100644\nindex 0000000..e69de29\n-- \n2.39.5\n",
    )
    .unwrap();
    assert!(done.applied);
    let changes: Vec<_> = done.files.iter().map(|file| (file.path.as_str(), file.change)).collect();
    assert_eq!(
        changes,
        [
            ("src.rs", PatchChange::Modified),
            ("old.txt", PatchChange::Deleted),
            ("sub/dir/new", PatchChange::Created),
            ("empty", PatchChange::Created)
        ]
    );
    assert_eq!(done.files[0].hunks[0].line, Some(1));
    assert_eq!(room.read("src.rs"), b"one\nzwei\nthree\n");
    assert_eq!(room.read("sub/dir/new"), b"x\ny");
    assert_eq!(room.read("empty"), b"");
    let mode = |path: &str| std::fs::metadata(room.inside(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("src.rs"), mode("sub/dir/new"), mode("empty")), (0o750, 0o755, 0o644));
    assert_eq!(names(&room), ["empty", "src.rs", "sub"]);
}

#[test]
fn names_are_read_as_they_are_written() {
    let room = Scratch::new();
    for name in ["tab\there", "caf\u{e9}", "with blank", "a/b"] {
        let _ = std::fs::create_dir_all(room.inside(name).parent().unwrap());
        room.write(name, "x\n");
    }
    let hunk = "@@ -1 +1 @@\n-x\n+y\n";
    for (old, new, path) in [
        ("\"a/tab\\there\"", "\"b/tab\\there\"", "tab\there"),
        ("\"a/caf\\303\\251\"", "\"b/caf\\303\\251\"", "caf\u{e9}"),
        ("a/with blank\t2026-01-01 00:00:00", "b/with blank\t2026-01-01 00:00:00.000 +0000", "with blank"),
        ("a/b", "a/b", "a/b"),
    ] {
        apply(&room, &format!("--- {old}\n+++ {new}\n{hunk}")).unwrap();
        assert_eq!(room.read(path), b"y\n", "{path}");
    }
    let strip = |strip, below: &str, text: &str| {
        let request =
            ApplyPatch { patch: text.into(), strip: Some(strip), path: below.into(), ..Default::default() };
        patch(&room.base(), &path(&request.path), &request)
    };
    strip(2, "a", "--- x/y/b\n+++ z/y/b\n@@ -1 +1 @@\n-y\n+z\n").unwrap();
    strip(0, "", "--- /workspace/a/b\n+++ a/b\n@@ -1 +1 @@\n-z\n+0\n").unwrap();
    assert_eq!(room.read("a/b"), b"0\n");
    assert!(strip(3, "", "--- x/y\n+++ x/y\n@@ -1 +1 @@\n-y\n+z\n").unwrap_err().detail.contains("3 parts"));
    // Whichever of two names is there; and `diff -N` of a file that is new.
    room.write("kept", "1\n");
    apply(&room, "--- kept\t2026-01-01 1:00\n+++ kept.new\t2026-01-01 1:00\n@@ -1 +1 @@\n-1\n+2\n").unwrap();
    assert_eq!(room.read("kept"), b"2\n");
    let stamped =
        "--- o/fresh\t1970-01-01 00:00:00.000000000 +0000\n+++ fresh\t2026-01-01 1:00\n@@ -0,0 +1 @@\n+1\n";
    assert_eq!(apply(&room, stamped).unwrap().files[0].change, PatchChange::Created);
    assert_eq!(apply(&room, stamped).unwrap_err().code, ProblemCode::PatchFailed);
}

#[test]
fn what_leaves_the_directory_or_is_no_file_is_refused() {
    let room = Scratch::new();
    room.mkdir("directory");
    room.write("file", "x\n");
    room.link("file", "link");
    room.link("../outside", "out");
    room.fifo("fifo");
    let of =
        |name: &str| apply(&room, &format!("--- {name}\n+++ {name}\n@@ -1 +1 @@\n-x\n+y\n")).unwrap_err();
    assert_eq!(of("../outside/secret").code, ProblemCode::InvalidArgument);
    assert_eq!(of("/../outside/secret").code, ProblemCode::InvalidArgument);
    for name in ["out/secret", "link", "fifo", "directory", "missing", "file/below"] {
        let problem = of(name);
        assert_eq!(problem.code, ProblemCode::PatchFailed, "{name}: {problem}");
        assert!(report(&problem).files[0].error.is_some(), "{name}");
    }
    let create = apply(&room, "--- /dev/null\n+++ b/out/new\n@@ -0,0 +1 @@\n+y\n").unwrap_err();
    assert_eq!(create.code, ProblemCode::PatchFailed);
    assert!(room.outside_is_untouched());
    assert_eq!(room.read("file"), b"x\n");
}

#[test]
fn a_hunk_is_found_at_another_line_and_only_whole() {
    let room = Scratch::new();
    let text: String = (1..=50).map(|number| format!("line {number}\n")).collect();
    room.write("file", &text);
    let done = apply(
        &room,
        "--- a/file\n+++ b/file\n@@ -3,3 +3,3 @@\n line 10\n-line 11\n+elf\n line 12\n@@ -20,2 +20,3 @@\n line 27\n+new\n line 28\n",
    )
    .unwrap();
    let lines: Vec<_> = done.files[0].hunks.iter().map(|hunk| hunk.line).collect();
    assert_eq!(lines, [Some(10), Some(27)]);
    let after = String::from_utf8(room.read("file")).unwrap();
    assert_eq!(after, text.replace("line 11\n", "elf\n").replace("line 27\n", "line 27\nnew\n"));

    let problem = apply(
        &room,
        "--- a/file\n+++ b/file\n@@ -1,2 +1,2 @@\n line 1\n-line 2\n+zwei\n@@ -30,3 +30,3 @@\n line 30\n-line 3l\n+x\n line 32\n",
    )
    .unwrap_err();
    assert_eq!(problem.code, ProblemCode::PatchFailed);
    let hunks = &report(&problem).files[0].hunks;
    assert_eq!((hunks[0].line, &hunks[0].error), (Some(1), &None));
    let lost = &hunks[1];
    // One line was added above.
    assert_eq!(lost.nearest_line, Some(31));
    assert_eq!(lost.nearest.as_deref(), Some("line 30\nline 31\nline 32\n"));
    assert!(
        lost.error.as_ref().unwrap().contains("line 32 is \"line 31\" where the hunk expects \"line 3l\""),
        "{lost:?}"
    );
    assert_eq!(String::from_utf8(room.read("file")).unwrap(), after);
    assert!(problem.detail.contains("1 of 2 hunks"), "{problem}");
}

#[test]
fn one_file_that_fails_leaves_all_as_they_were() {
    let room = Scratch::new();
    room.write("a", "1\n");
    room.write("b", "1\n");
    room.write("d", "1\n2\n");
    let good = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n";
    let bad = "--- a/b\n+++ b/b\n@@ -1 +1 @@\n-9\n+2\n";
    let exists = "--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+1\n";
    let not_all = "--- a/d\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n";
    for other in [bad, exists, not_all] {
        let problem = apply(&room, &format!("{good}{other}")).unwrap_err();
        assert_eq!(problem.code, ProblemCode::PatchFailed, "{problem}");
        assert_eq!(room.read("a"), b"1\n");
    }
    // A failure after the first switch: a new file is to be where another part makes a directory.
    let first = "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+1\n";
    let second = "--- /dev/null\n+++ b/new/below\n@@ -0,0 +1 @@\n+1\n";
    for text in [format!("{good}{first}{second}"), format!("{good}{second}{first}")] {
        apply(&room, &text).unwrap_err();
        assert_eq!(room.read("a"), b"1\n");
        assert_eq!(names(&room), ["a", "b", "d"]);
    }
    let request = ApplyPatch { patch: good.into(), dry_run: true, ..Default::default() };
    let would = patch(&room.base(), &path(&request.path), &request).unwrap();
    assert_eq!((would.applied, would.files[0].hunks[0].line), (false, Some(1)));
    assert_eq!(room.read("a"), b"1\n");
}

#[test]
fn line_ends_stay_as_the_file_has_them() {
    let room = Scratch::new();
    let plain = "--- a/f\n+++ b/f\n@@ -1,2 +1,3 @@\n one\n-two\n+zwei\n+drei\n";
    let returns = plain.replace('\n', "\r\n");
    for (text, before, after) in [
        (plain, "one\r\ntwo\r\nx\r\n", "one\r\nzwei\r\ndrei\r\nx\r\n"),
        (&returns, "one\ntwo\nx\n", "one\nzwei\ndrei\nx\n"),
        (&returns, "one\r\ntwo\r\n", "one\r\nzwei\r\ndrei\r\n"),
        // What matches to the byte is not second-guessed: a patch that changes line ends does.
        ("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-one\r\n-two\r\n+one\n+two\n", "one\r\ntwo\r\n", "one\ntwo\n"),
        ("--- a/f\n+++ b/f\n@@ -1,0 +2 @@\n+new\n", "one\r\ntwo\r\n", "one\r\nnew\r\ntwo\r\n"),
    ] {
        room.write("f", before);
        apply(&room, text).unwrap();
        assert_eq!(String::from_utf8(room.read("f")).unwrap(), after, "{text:?}");
    }
}

#[test]
fn a_missing_newline_at_the_end_is_part_of_the_text() {
    let room = Scratch::new();
    let none = "\\ No newline at end of file\n";
    for (hunk, before, after) in [
        (format!("@@ -1,2 +1,2 @@\n a\n-b\n{none}+b\n"), "a\nb", Some("a\nb\n")),
        (format!("@@ -1,2 +1,2 @@\n a\n-b\n+b\n{none}"), "a\nb\n", Some("a\nb")),
        (format!("@@ -1,2 +1,2 @@\n-a\n+c\n b\n{none}"), "a\nb", Some("c\nb")),
        (format!("@@ -1,2 +1,2 @@\n-a\n+c\n b\n{none}"), "a\nb\n", None),
        ("@@ -1,2 +1,2 @@\n-a\n+c\n b\n".into(), "a\nb", None),
        // Nothing can follow a line without a newline.
        (format!("@@ -1 +1 @@\n-a\n+c\n{none}"), "a\nb\n", None),
        ("@@ -2,0 +3 @@\n+c\n".into(), "a\nb", None),
    ] {
        room.write("f", before);
        let outcome = apply(&room, &format!("--- a/f\n+++ b/f\n{hunk}"));
        assert_eq!(outcome.is_ok(), after.is_some(), "{hunk:?} of {before:?}: {outcome:?}");
        assert_eq!(String::from_utf8(room.read("f")).unwrap(), after.unwrap_or(before), "{hunk:?}");
    }
}

#[test]
fn what_is_malformed_is_refused_with_its_line() {
    let room = Scratch::new();
    room.write("f", "a\nb\nc\n");
    let head = "--- a/f\n+++ b/f\n";
    for (text, wanted) in [
        (String::new(), "no file in it"),
        ("just words\n".into(), "no file in it"),
        ("@@ -1 +1 @@\n-a\n+b\n".into(), "line 1 "),
        (format!("{head}@@ -1 +1 @@\n-a\n"), "line 3 of the patch: the patch ends"),
        (format!("{head}@@ -1 +1 @@\n-a\n+b\n+c\n"), "line 6 of the patch: there are more lines"),
        (format!("{head}@@ -1,2 +1 @@\n-a\n+b\n+c\n-d\n"), "line 6 of the patch: there are more lines"),
        (format!("{head}@@ -1 +1 @@\n-a\n*b\n"), "line 5 "),
        (format!("{head}@@ x @@\n-a\n"), "line 3 "),
        (format!("{head}@@ -0 +1 @@\n-a\n+b\n"), "line 3 "),
        (format!("{head}@@ -99999999999999999999 +1 @@\n-a\n+b\n"), "line 3 "),
        (format!("{head}nothing\n"), "line 3 of the patch: a hunk was expected"),
        (head.to_owned(), "line 3 of the patch: a hunk was expected"),
        (
            format!("{head}@@ -1,2 +1 @@\n-a\n-b\n+c\n@@ -2 +2 @@\n-b\n+d\n"),
            "line 7 of the patch: the hunk overlaps",
        ),
        (
            format!("{head}@@ -1 +1 @@\n-a\n+b\n{head}@@ -2 +2 @@\n-b\n+c\n"),
            "line 6 of the patch: \"f\" is in the patch twice",
        ),
        (format!("{head}@@ -1 +1 @@\n\\ No newline at end of file\n-a\n+b\n"), "line 4 "),
        ("--- \"a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n".into(), "line 1 "),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n".into(), "line 1 "),
        (
            "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n".into(),
            "line 2 of the patch: it changes the mode",
        ),
        (
            "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n".into(),
            "line 3 of the patch: it renames",
        ),
        (
            "diff --git a/f b/g\nsimilarity index 100%\ncopy from f\ncopy to g\n".into(),
            "line 3 of the patch: it renames",
        ),
        (
            "diff --git a/f b/f\nindex 1..2 100644\nGIT binary patch\nliteral 1\n".into(),
            "line 3 of the patch: it changes a binary",
        ),
        (
            "diff --git a/f b/f\nBinary files a/f and b/f differ\n".into(),
            "line 2 of the patch: it changes a binary",
        ),
        ("Binary files a/f and b/f differ\n".into(), "line 1 of the patch: it changes a binary"),
        (
            "diff --git a/l b/l\nnew file mode 120000\n".into(),
            "line 2 of the patch: it makes or deletes a symbolic",
        ),
    ] {
        let problem = apply(&room, &text).unwrap_err();
        assert_eq!(problem.code, ProblemCode::InvalidArgument, "{text:?}: {problem}");
        assert!(problem.detail.contains(wanted), "{text:?}: {problem}");
    }
    assert_eq!(room.read("f"), b"a\nb\nc\n");
}

#[test]
fn many_equal_lines_are_not_compared_for_ever() {
    let room = Scratch::new();
    room.write("f", "x\n".repeat(400_000));
    let body = format!("{}-y\n", " x\n".repeat(50_000));
    let started = std::time::Instant::now();
    let problem = apply(&room, &format!("--- f\n+++ f\n@@ -1,50001 +1,50000 @@\n{body}")).unwrap_err();
    assert_eq!(problem.code, ProblemCode::PatchFailed);
    assert!(started.elapsed().as_secs() < 60);
}

/// Random edits of random texts: what is made of the old text is the new one, also with lines added above it.
#[test]
fn diffs_of_random_edits_give_the_new_text() {
    let room = Scratch::new();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for round in 0..400 {
        let mut lines: Vec<String> = (0..random(40)).map(|_| format!("word {}", random(12))).collect();
        let text = |lines: &[String], newline: bool| {
            let mut text = lines.join("\n");
            if newline && !lines.is_empty() {
                text.push('\n');
            }
            text
        };
        let old = text(&lines, random(4) > 0);
        for _ in 0..=random(6) {
            let at = random(lines.len() as u64 + 1) as usize;
            match random(3) {
                0 => lines.insert(at, format!("new {}", random(5))),
                1 if at < lines.len() => drop(lines.remove(at)),
                _ if at < lines.len() => lines[at] = format!("changed {}", random(5)),
                _ => {}
            }
        }
        let new = text(&lines, random(4) > 0);
        if old == new {
            continue;
        }
        let diff = similar::TextDiff::from_lines(&old, &new);
        let diff = diff.unified_diff().context_radius(random(4) as usize).header("a/f", "b/f").to_string();
        room.write("f", &old);
        apply(&room, &diff).unwrap_or_else(|problem| panic!("round {round}: {problem}\n{diff}\n{old:?}"));
        assert_eq!(String::from_utf8(room.read("f")).unwrap(), new, "round {round}\n{diff}");
    }
}
