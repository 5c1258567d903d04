//! Stateful shells: what a command leaves behind is there for the next, and nothing but its output is in its answer.

use serde_json::json;
use workroom_testkit::types::{Encoding, ProcessKind, RunInShell, ShellState};
use workroom_testkit::{Server, User, eventually, for_each_user, run};

#[test]
fn what_a_command_leaves_is_there_for_the_next() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        for kind in ["bash", "sh"] {
            let shell = session.shell(json!({"shell": kind, "env": {"GIVEN": "one"}, "cwd": "/tmp"})).await;
            assert_eq!(shell.says("echo $GIVEN; pwd").await, "one\n/tmp\n", "{kind}");
            let moved = shell.run("cd /workspace; mkdir -p 'a b'; cd 'a b'").await;
            assert_eq!((moved.exit_code, moved.cwd.as_str()), (0, "/workspace/a b"), "{kind}");
            shell.says("x=plain; export y=sent; f() { echo f-$1; }; alias hello='echo hi'; set -- p 'q r'; umask 077").await;
            let all = shell.says("echo $x; sh -c 'echo $y$x'; f 1; hello; echo $# $2; pwd; umask").await;
            assert_eq!(all, "plain\nsent\nf-1\nhi\n2 q r\n/workspace/a b\n0077\n", "{kind}");
            let failed = shell.run("echo out; echo err >&2; (exit 7)").await;
            assert_eq!(
                (failed.exit_code, failed.output.as_str(), failed.stderr.as_str()),
                (7, "out\n", "err\n")
            );
            assert_eq!(shell.says("echo $?").await, "7\n", "{kind}: the status of the command before");
            shell.says("sleep 1000 & echo $! > /workspace/job").await;
            let job = shell.run("kill -0 $(cat /workspace/job) && kill $! && wait $!").await;
            assert_eq!(job.exit_code, 143, "{kind}: {job:?}");
            assert_eq!(shell.show().await.cwd, "/workspace/a b");
        }
        let bash = session.shell(json!({})).await;
        bash.says("declare -A m=([k]=v); arr=(1 'two 2' 3); shopt -s nullglob; set -o noglob; pushd /usr")
            .await;
        let state = bash.says("echo ${m[k]} ${arr[1]} *; shopt nullglob | cut -f2; dirs +1").await;
        assert_eq!(state, "v two 2 *\non\n/workspace\n");
        let listed = session.client().processes(&session.id).await.expect("a table");
        let entry = listed.processes.iter().find(|one| one.id == bash.id).expect("an entry");
        assert_eq!((entry.kind, entry.command.as_str(), entry.pty), (ProcessKind::Shell, "bash", None));
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn shells_are_made_listed_named_and_removed() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let made = server
            .http()
            .json(&json!({"name": "build", "shell": "sh"}))
            .post(&session.path("/shells"))
            .await
            .expect(201);
        assert_eq!(
            (made["name"].as_str(), made["shell"].as_str(), made["state"].as_str()),
            (Some("build"), Some("sh"), Some("ready"))
        );
        let again = server.http().json(&json!({"name": "build"})).post(&session.path("/shells")).await;
        again.problem(409);
        let shell = session.known_shell("build");
        shell.says("x=1").await;
        assert_eq!(session.known_shell(made["id"].as_str().expect("an id")).says("echo $x").await, "1\n");
        // The session's own comes with its first command.
        assert_eq!(session.known_shell("default").says("cd /usr; echo made").await, "made\n");
        let other = session.shell(json!({})).await;
        assert_eq!(other.says("echo [$x]").await, "[]\n", "shells share nothing");
        let list = session.client().shells(&session.id).await.expect("a list");
        assert_eq!(list.shells.len(), 3);
        assert!(list.shells.iter().all(|one| one.state == ShellState::Ready && one.pid > 1), "{list:?}");
        other.says("sleep 4321 &").await;
        session.client().remove_shell(&session.id, &other.id).await.expect("removed");
        server.http().get(&other.path("")).await.problem(404);
        server.http().json(&json!({"command": "true"})).post(&other.path("/run")).await.problem(404);
        let left = session.client().processes(&session.id).await.expect("a table");
        assert!(!left.in_room.iter().any(|one| one.command.contains("4321")), "{left:?}");
        assert!(!left.processes.iter().any(|one| one.id == other.id), "{left:?}");
        for wrong in [
            json!({"command": "a\u{0}b"}),
            json!({"command": "true", "timeout_ms": 0}),
            json!({"command": "true", "max_output": 1u64 << 40}),
            json!({"commands": "true"}),
        ] {
            server.http().json(&wrong).post(&shell.path("/run")).await.problem(400);
        }
        for wrong in [
            json!({"name": "Build!"}),
            json!({"shell": "zsh"}),
            json!({"cwd": "relative"}),
            json!({"env": {"A=B": ""}}),
        ] {
            server.http().json(&wrong).post(&session.path("/shells")).await.problem(400);
        }
    });
}

/// Each of these is somebody's first idea of a command that breaks such a shell.
#[test]
fn no_command_confuses_a_shell() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        for kind in ["bash", "sh"] {
            let shell = session.shell(json!({"shell": kind})).await;
            shell.says("kept=yes").await;
            assert_eq!(
                shell.says("for i in 1 2; do\n  echo $i\ndone\nif true\nthen echo then\nfi").await,
                "1\n2\nthen\n"
            );
            assert_eq!(
                shell.says("cat <<END\n$kept\nEND\ncat <<'X' | tr a-z A-Z\nhere\nX\n").await,
                "yes\nHERE\n"
            );
            for broken in ["echo \"open", "echo 'open", "if true; then", "echo $(", "f() {", ")", "case x in"]
            {
                let result = shell.run(broken).await;
                assert!(result.exit_code == 2 && !result.stderr.is_empty(), "{kind} {broken}: {result:?}");
                assert!(!result.shell.ended, "{kind} {broken}: {result:?}");
            }
            assert_eq!(shell.run("cat <<END\nnever closed").await.output, "never closed\n");
            // Nothing to read: the end at once.
            assert_eq!(shell.says("cat; read line || echo none; wc -c < /dev/stdin").await, "none\n0\n");
            assert_eq!(shell.says("# only a comment").await, "");
            assert_eq!(shell.says("").await, "");
            assert_eq!(shell.says("\n\n").await, "");
            shell.says("PS1='$ ' PS2='> ' PROMPT_COMMAND='echo prompt'").await;
            shell.says("IFS=0123456789").await;
            assert_eq!(shell.says("echo a1b").await, "a1b\n");
            shell.says("unset IFS; OLD=$PATH; unset PATH").await;
            assert_eq!(shell.run("nosuchthing").await.exit_code, 127);
            shell.says("PATH=$OLD").await;
            assert_eq!(shell.says("set -f; echo *; set +f").await, "*\n");
            for left in ["break; echo no", "break 9; echo no", "continue; echo no"] {
                assert_eq!(shell.says(left).await, "", "{kind} {left}");
            }
            assert_eq!(shell.run("exec 5>&1; echo five >&5").await.output, "five\n");
            assert_eq!(shell.says("echo again >&5").await, "again\n", "a redirection stays");
            // What imitates a driver's word is output like any other.
            assert_eq!(shell.says("printf '/x\\n\\000%s 0\\000' 1").await, "/x\n\u{0}1 0\u{0}");
            let long = format!("x='{}'; echo ${{#x}}", "é".repeat(500_000));
            let counted = shell.says(&long).await;
            assert!(counted == "500000\n" || counted == "1000000\n", "{counted}");
            assert_eq!(shell.says("echo $kept").await, "yes\n", "{kind}: one shell all along");
        }
        let bash = session.shell(json!({})).await;
        let result = bash.run("return 4").await;
        assert!(
            result.exit_code != 0 && !result.shell.ended && result.stderr.contains("return"),
            "{result:?}"
        );
        // Where lines are counted, they are the command's own.
        assert!(bash.run("true\nnosuchthing").await.stderr.contains("line 2:"));
        for name in
            ["read", "printf", "eval", "set", "trap", "pwd", "echo", "cd", "true", "exit", "local", "return"]
        {
            bash.run(&format!("function {name} {{ command -p cat /dev/null; }}")).await;
            bash.run(&format!("alias {name}='false'")).await;
        }
        let with_all = bash.run("/bin/echo still").await;
        assert_eq!((with_all.output.as_str(), with_all.exit_code), ("still\n", 0), "{with_all:?}");
    });
}

#[test]
fn options_and_traps_work_as_in_a_script() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let shell = session.shell(json!({})).await;
        assert_eq!(shell.run("set -x").await.stderr, "");
        let traced = shell.run("echo seen").await;
        assert_eq!(traced.output, "seen\n");
        assert!(traced.stderr.ends_with("+ echo seen\n") && !traced.stderr.contains("__wr"), "{traced:?}");
        shell.run("set +x").await;
        shell.says("set -u; set -o pipefail").await;
        let unset = shell.run("echo $nothing_there").await;
        assert!(unset.exit_code != 0 && unset.shell.ended, "as a script ends: {unset:?}");
        let fresh = shell.run("echo ${nothing_there-new}").await;
        assert_eq!((fresh.output.as_str(), fresh.shell.replaced), ("new\n", true));

        shell.says("set -e").await;
        shell.says("false || true; if false; then :; fi").await;
        let left = shell.run("echo before; false; echo never").await;
        assert_eq!((left.exit_code, left.output.as_str(), left.shell.ended), (1, "before\n", true));
        assert!(
            left.shell.reason.as_deref().is_some_and(|reason| reason.contains("ended with 1")),
            "{left:?}"
        );

        assert!(shell.run("trap 'echo bye' EXIT; trap 'echo failed' ERR").await.shell.replaced);
        assert!(shell.run("false").await.output.starts_with("failed\n"));
        shell.says("trap - ERR; trap 'echo usr' USR1").await;
        assert_eq!(shell.says("kill -USR1 $$; echo after").await, "usr\nafter\n");
        shell.says("n=0; trap 'let n++' DEBUG").await;
        assert_eq!(shell.says("trap - DEBUG; ((n > 0)) && echo counted").await, "counted\n");
        let exit = shell.run("exit 3").await;
        assert_eq!((exit.exit_code, exit.output.as_str(), exit.shell.ended), (3, "bye\n", true));

        // A shell for which nothing is executed any more does not come back.
        shell.run("kept=1").await;
        let dead = shell.run_within(300, "set -n").await;
        assert!(dead.timed_out && dead.exit_code == 124 && dead.shell.ended, "{dead:?}");
        assert!(shell.run("true").await.shell.replaced);
    });
}

#[test]
fn a_shell_that_ends_says_so_and_is_replaced() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        for kind in ["bash", "sh"] {
            let shell = session.shell(json!({"shell": kind, "cwd": "/tmp", "env": {"GIVEN": "1"}})).await;
            for (command, code, output) in [
                ("cd /usr; echo last; exit 3", 3, "last\n"),
                ("exec echo replaced", 0, "replaced\n"),
                ("exec /no/such/thing", 127, ""),
                ("kill -9 $$", 137, ""),
                ("kill -TERM $$; sleep 5", 143, ""),
            ] {
                shell.run("state=here").await;
                let result = shell.run(command).await;
                assert_eq!(
                    (result.exit_code, result.output.as_str()),
                    (code, output),
                    "{kind} {command}: {result:?}"
                );
                assert!(
                    result.shell.ended && result.shell.reason.is_some() && !result.timed_out,
                    "{kind} {command}"
                );
                assert_eq!(shell.show().await.state, ShellState::Ended);
                let next = shell.run("echo \"[$state] $GIVEN\"; pwd").await;
                assert_eq!(next.output, "[] 1\n/tmp\n", "{kind} {command}");
                assert!(next.shell.replaced && !next.shell.ended && next.shell.id == shell.id, "{next:?}");
                assert!(next.shell.reason.is_some(), "{next:?}");
                assert!(!shell.run("true").await.shell.replaced);
            }
        }
        // What runs in the background of one that ends goes on.
        let shell = session.shell(json!({})).await;
        shell.run("sleep 1234 & exit 0").await;
        eventually(async || {
            let listed = session.client().processes(&session.id).await.map_err(|error| error.to_string())?;
            let goes_on = listed.in_room.iter().any(|one| one.command == "sleep 1234");
            if goes_on { Ok(()) } else { Err(format!("{listed:?}")) }
        })
        .await;
        // One that ended with its room too.
        session.stop().await;
        let next = shell.run("echo back").await;
        assert_eq!((next.output.as_str(), next.shell.replaced), ("back\n", true));
        // One whose channel is closed behind its back, or whose driver is broken.
        for hostile in
            ["for i in {3..40}; do eval \"exec $i>&-\"; done", "builtin() { :; }", "exec 10>&- 11>&- 12>&-"]
        {
            let result = shell.run_within(2000, hostile).await;
            assert!(result.shell.ended, "{hostile}: {result:?}");
            assert_eq!(shell.says("echo well").await, "well\n");
        }
    });
}

#[test]
fn every_byte_of_a_command_and_no_other_is_in_its_answer() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let shell = session.shell(json!({})).await;
        let request = |command: &str, max_output, encoding| RunInShell {
            command: command.to_owned(),
            max_output,
            encoding,
            ..RunInShell::default()
        };
        let binary = shell.run("printf '\\377\\000a'").await;
        assert!(binary.lossy && binary.stdout_bytes == 3, "{binary:?}");
        let exact = shell.request(request("printf '\\377\\000a'", None, Some(Encoding::Base64))).await;
        assert_eq!((exact.output.as_str(), exact.lossy), ("/wBh", false));
        // More than a pipe holds, and more than is asked for.
        let all: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
        let whole = shell.request(request("seq 1 200000; echo done >&2", Some(4 << 20), None)).await;
        assert!(whole.output == all && whole.stderr == "done\n" && !whole.truncated);
        let cut = shell.request(request("seq 1 200000", Some(10), None)).await;
        let missing = all.len() - 10;
        assert_eq!(cut.output, format!("1\n2\n3\n[… {missing} bytes are missing here …]\n0000\n"));
        assert!(cut.truncated && cut.stdout_bytes == all.len() as u64, "{cut:?}");
        // More than is kept.
        let flood = shell
            .request(request("head -c 40000000 /dev/zero | tr '\\0' x; echo end", Some(64 << 20), None))
            .await;
        assert!(flood.truncated && flood.stdout_bytes == 40_000_004 && flood.output.ends_with("xxend\n"));
        assert_eq!(shell.says("echo next").await, "next\n");
        // One after the other, a hundred times: each answer is its own.
        for number in 0..100 {
            let result = shell.run(&format!("echo {number}; echo e{number} >&2")).await;
            assert_eq!((result.output, result.stderr), (format!("{number}\n"), format!("e{number}\n")));
        }
        // What the background writes is in the answer of the command that runs meanwhile, or in none.
        shell.says("mkfifo /workspace/go; (read line < /workspace/go; echo from behind) &").await;
        assert_eq!(shell.says("echo > /workspace/go; wait; echo own").await, "from behind\nown\n");
        // Output that goes elsewhere is not in the answer, as in any shell.
        shell.says("exec 4>&1 >/workspace/log; echo logged").await;
        shell.run("echo more").await;
        assert_eq!(shell.says("exec >&4 4>&-; cat /workspace/log").await, "logged\nmore\n");
        // No child has the shell's channel.
        let open = shell.says("ls -l /proc/self/fd; (ls -l /proc/self/fd); ls -l /proc/self/fd | cat").await;
        assert!(!open.contains("socket:"), "{open}");
    });
}

#[test]
fn commands_for_one_shell_wait_in_line() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let shell = session.shell(json!({})).await;
        shell.says("n=0").await;
        let all = (0..30).map(|_| shell.run("m=$n; n=$((m + 1)); sleep 0.001; echo $n"));
        let mut seen: Vec<u32> = Vec::new();
        for result in futures_all(all.collect()).await {
            seen.push(result.output.trim().parse().expect("a number"));
        }
        seen.sort_unstable();
        assert_eq!(seen, (1..=30).collect::<Vec<_>>());
        // More than may wait are refused, and told which limit it is.
        let path = shell.path("/run");
        let many =
            (0..80).map(|_| server.http().json(&json!({"command": "sleep 0.05"})).post(&path)).collect();
        let answers = futures_all(many).await;
        let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
        assert!(!refused.is_empty() && refused.len() < 80, "{}", refused.len());
        refused[0].problem(429);
        assert!(String::from_utf8_lossy(&refused[0].body).contains("shell_queue"));
        assert_eq!(shell.says("echo $n").await, "30\n");
    });
}

/// All at once, and each one's outcome in their order.
async fn futures_all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut pending: Vec<_> = futures.into_iter().map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        for (future, outcome) in &mut pending {
            if outcome.is_none()
                && let std::task::Poll::Ready(done) = future.as_mut().poll(context)
            {
                *outcome = Some(done);
            }
        }
        match pending.iter().all(|(_, outcome)| outcome.is_some()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    pending.into_iter().filter_map(|(_, outcome)| outcome).collect()
}
