//! Exit statuses, and what people see when something cannot be done: one sentence, nothing left.

mod support;

use support::fence::{Fence, fenced};
use support::traces::Traces;
use support::{Caller, Outcome, collect, finish, for_each_privilege};

#[test]
fn the_status_is_the_commands() {
    for_each_privilege(|caller| {
        for (script, status) in [
            ("exit 0", 0),
            ("exit 3", 3),
            ("exit 255", 255),
            ("kill -9 $$", 137),
            ("kill -TERM $$", 143),
            ("kill -ABRT $$", 134),
        ] {
            let outcome = caller.sh(&[], script);
            assert_eq!((outcome.code, outcome.out.as_str()), (status, ""), "{script}: {outcome:?}");
            assert_eq!(outcome.err, "", "{script}: a command's own end is not ours to comment on");
        }
    });
}

#[track_caller]
fn one_sentence(what: &str, outcome: &Outcome, status: i32) {
    println!("{what}: {}", outcome.err.trim_end());
    assert_eq!(outcome.code, status, "{what}: {outcome:?}");
    assert_eq!(outcome.out, "", "{what}");
    assert_eq!(outcome.err.lines().count(), 1, "{what}: {:?}", outcome.err);
    assert!(
        outcome.err.starts_with("workroom: ") && outcome.err.ends_with('\n'),
        "{what}: {:?}",
        outcome.err
    );
    for noise in ["Os {", "Error(", "panicked", "RUST_BACKTRACE", "unwrap"] {
        assert!(!outcome.err.contains(noise), "{what}: {:?}", outcome.err);
    }
}

#[test]
fn missing_programs_are_127_and_others_126() {
    for_each_privilege(|caller| {
        let dir = caller.make_dir("work");
        caller.make_file("work/plain", "#!/bin/sh\necho no\n");
        let workspace = dir.to_str().expect("a plain path");
        for (command, status) in [
            ("no-such-program", 127),
            ("/no/such/program", 127),
            ("/etc/passwd/program", 127),
            ("", 127),
            ("./plain", 126),
            ("/etc/passwd", 126),
            ("/usr", 126),
            (".", 126),
        ] {
            let outcome = finish(caller.run(&["--workspace", workspace], &[command]));
            one_sentence(&format!("running {command:?}"), &outcome, status);
            assert!(outcome.err.contains(command), "the program is named: {}", outcome.err);
        }
    });
}

#[test]
fn scripts_without_an_interpreter_line_run_as_from_a_shell() {
    for_each_privilege(|caller| {
        let script = "echo 'echo \"$0 $1\"' > s; chmod +x s; echo '#!/no/such' > bad; chmod +x bad; ";
        assert_eq!(caller.says(&[], &format!("{script} ./s one")), "./s one\n");
        assert_eq!(caller.sh(&[], &format!("{script} exec ./bad")).code, 127);
        let dir = caller.make_dir("scripts");
        let path = caller.make_file("scripts/s", "echo \"from $1\"\n");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("chmod");
        let outcome = finish(caller.run(&["--workspace", dir.to_str().expect("plain")], &["./s", "here"]));
        assert_eq!(outcome.good(), "from here\n");
        // A program of another machine is not read as a script.
        let arm =
            [b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xb7\0\x01\0\0\0".as_slice(), &[0; 100]].concat();
        let path = caller.make_file("scripts/arm", arm);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("chmod");
        let outcome = finish(caller.run(&["--workspace", dir.to_str().expect("plain")], &["./arm"]));
        one_sentence("a program of another machine", &outcome, 126);
    });
}

#[test]
fn a_time_out_is_124_and_keeps_what_was_said() {
    for_each_privilege(|caller| {
        let outcome = caller.sh(&["--timeout", "400ms"], "echo early; trap '' TERM; sleep 1000 & sleep 1000");
        assert_eq!((outcome.code, outcome.out.as_str()), (124, "early\n"), "{outcome:?}");
        assert_eq!(outcome.err.lines().count(), 1, "{:?}", outcome.err);
        assert!(outcome.err.contains("400ms"), "the time is named: {:?}", outcome.err);
        assert_eq!(caller.says(&["--timeout", "1m"], "echo in time"), "in time\n");
    });
}

#[test]
fn a_time_out_also_ends_a_flood_and_a_room_that_nobody_reads() {
    for_each_privilege(|caller| {
        let outcome = finish({
            let mut run = caller.run(&["--timeout", "300ms"], &["cat", "/dev/zero"]);
            run.stdout(std::process::Stdio::null());
            run
        });
        assert_eq!(outcome.code, 124, "{outcome:?}");
        // Nobody reads this pipe while the command fills it.
        let mut child = caller.run(&["--timeout", "300ms"], &["yes"]).spawn().expect("start");
        let stdout = child.stdout.take();
        let outcome = collect(child);
        drop(stdout);
        assert_eq!(outcome.code, 124, "{outcome:?}");
    });
}

#[test]
fn streams_that_nobody_reads_or_that_are_full_change_no_status() {
    for_each_privilege(|caller| {
        // A shell's words, and what `workroom` itself ends with; its reader ends at once.
        for (words, status) in [
            ("run --json -- sh -c 'exit 3'", 3),
            ("run -- sh -c 'echo unread; exit 3'", 3),
            ("run --timeout 300ms -- sleep 1000", 124),
            ("run -- no-such-program", 127),
            ("run --memory 1k -- true", 125),
        ] {
            let mut shell = caller.command("bash");
            shell.arg("-c").arg(format!("\"$0\" {words} 2>&1 | true; exit ${{PIPESTATUS[0]}}"));
            let outcome = finish({
                shell.arg(caller.program());
                shell
            });
            assert_eq!(outcome.code, status, "{words} | true: {outcome:?}");
        }
        for (words, status, says) in [
            ("run --json -- true > /dev/full", 125, true),
            ("run -- echo lost > /dev/full", 125, true),
            ("run -- head -c 3000000 /dev/zero > /dev/full", 125, true),
            ("run -- sh -c 'echo lost >&2' 2> /dev/full", 125, false),
            ("run -- true > /dev/full", 0, false),
            ("run --memory 1k -- true 2> /dev/full", 125, false),
            ("run --no-such-option -- true 2> /dev/full", 125, false),
        ] {
            let mut shell = caller.command("sh");
            shell.arg("-c").arg(format!("\"$0\" {words}")).arg(caller.program());
            let outcome = finish(shell);
            assert_eq!(
                (outcome.code, outcome.err.lines().count()),
                (status, usize::from(says)),
                "{words}: {outcome:?}"
            );
        }
    });
}

/// Options and command of everything that a person may get wrong.
fn mistakes(caller: &Caller) -> Vec<(Vec<String>, Vec<&'static str>)> {
    let file = caller.make_file("a-file", "not a directory");
    let missing = caller.path("no-such-directory");
    let (file, missing) = (file.to_str().expect("plain"), missing.to_str().expect("plain"));
    let mut list: Vec<Vec<&str>> = vec![
        vec!["--no-such-option"],
        vec!["--memory", "1k"],
        vec!["--memory", "0"],
        vec!["--memory", "lots"],
        vec!["--memory", "-1"],
        vec!["--memory", ""],
        vec!["--memory", "99999999999T"],
        vec!["--disk", "0"],
        vec!["--disk", "1"],
        vec!["--disk", "much"],
        vec!["--pids", "0"],
        vec!["--pids", "-3"],
        vec!["--pids", "many"],
        vec!["--pids", "99999999999999999999"],
        vec!["--cpus", "0"],
        vec!["--cpus", "NaN"],
        vec!["--cpus", "-1"],
        vec!["--cpus", "1e9"],
        vec!["--timeout", "0"],
        vec!["--timeout", "soon"],
        vec!["--timeout", "-5s"],
        vec!["--net", "host"],
        vec!["--user", "nobody"],
        vec!["--env", "NOVALUE"],
        vec!["--env", "=value"],
        vec!["--env", "1A=b"],
        vec!["--env", "A B=c"],
        vec!["--workdir", "relative"],
        vec!["--workdir", ""],
        vec!["--workdir", "/no/such/place"],
        vec!["--workdir", "/etc/passwd"],
        vec!["--workspace", "/"],
        vec!["--workspace", "/:ro"],
        vec!["--workspace", "/usr/.."],
        vec!["--workspace", ""],
        vec!["--ro", "/no/such/path"],
        vec!["--ro", "/"],
        vec!["--ro", "/usr/bin:relative"],
        vec!["--ro", "/usr/bin:/etc"],
        vec!["--ro", "/usr/bin:/opt/../etc"],
        vec!["--require", "no-such-layer"],
        vec!["--allow-missing", "no-such-layer"],
        vec!["--require", "cpu"],
        vec!["--require", "seccomp,cpu"],
    ];
    list.push(vec!["--workspace", missing]);
    list.push(vec!["--workspace", file]);
    if !caller.is_root() {
        list.push(vec!["--require", "uidrange"]);
    }
    let own = |options: Vec<&str>| options.into_iter().map(str::to_owned).collect();
    let mut list: Vec<_> = list.into_iter().map(|options| (own(options), vec!["true"])).collect();
    list.push((Vec::new(), Vec::new()));
    list
}

#[test]
fn mistakes_are_one_sentence_and_leave_nothing() {
    for_each_privilege(|caller| {
        let fence = Fence::around(caller);
        let mut traces = Traces::new(caller, fence.as_ref());
        for (options, command) in mistakes(caller) {
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let mut run = fenced(caller, fence.as_ref(), &options, &command);
            let outcome = collect(traces.start(&mut run));
            one_sentence(&format!("{options:?} {command:?}"), &outcome, 125);
            // Not "soon": the sentence is the last thing that happens.
            traces.groups_gone().unwrap_or_else(|left| panic!("{options:?}: {left}"));
        }
        traces.gone().unwrap_or_else(|left| panic!("{left}"));
    });
}

#[test]
fn no_verb_and_wrong_verbs_are_refused_and_help_is_not() {
    for_each_privilege(|caller| {
        let call = |arguments: &[&str]| {
            let mut command = caller.command(caller.program());
            command.args(arguments);
            finish(command)
        };
        one_sentence("a wrong verb", &call(&["jog"]), 125);
        one_sentence("run without a command", &call(&["run"]), 125);
        one_sentence("a command without --", &call(&["run", "true"]), 125);
        assert_eq!(call(&[]).code, 125);
        for help in [&["--help"][..], &["run", "--help"], &["--version"]] {
            let said = call(help).good();
            assert!(said.contains("workroom"), "{said}");
        }
        let help = call(&["run", "--help"]).out;
        for option in ["--timeout", "--memory", "--workspace", "--require", "--json", "Example"] {
            assert!(help.contains(option), "{option} is in the help");
        }
    });
}

#[test]
fn a_configuration_that_is_wrong_is_named() {
    for_each_privilege(|caller| {
        let path = caller.make_file("config.toml", "[run]\nmemroy = \"1G\"\n");
        let mut run = caller.run(&[], &["true"]);
        run.env("WORKROOM_CONFIG", &path);
        let outcome = finish(run);
        one_sentence("a misspelt key", &outcome, 125);
        assert!(outcome.err.contains(path.to_str().expect("plain")), "{}", outcome.err);
        let mut run = caller.run(&[], &["true"]);
        run.env("WORKROOM_CONFIG", "/no/such/config.toml");
        one_sentence("a missing configuration", &finish(run), 125);

        let path = caller.make_file("config.toml", "[run]\nenv = [\"FROM=config\"]\ntimeout = \"1m\"\n");
        let mut run = caller.run(&[], &["sh", "-c", "echo $FROM"]);
        run.env("WORKROOM_CONFIG", &path);
        assert_eq!(finish(run).good(), "config\n");
    });
}
