//! stdin, stdout and stderr of `workroom run`: everything passes, in time, unharmed, in flat memory.

mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::Stdio;
use support::pty::Watch;
use support::{Caller, PATIENCE, code, finish, finish_with_input, for_each_privilege, wait};

#[test]
fn stdout_and_stderr_stay_apart() {
    for_each_privilege(|caller| {
        let outcome = caller.sh(&[], "echo out; echo err >&2; printf 'no newline'");
        assert_eq!(
            (outcome.code, outcome.out.as_str(), outcome.err.as_str()),
            (0, "out\nno newline", "err\n")
        );
    });
}

#[test]
fn output_comes_while_the_command_runs() {
    for_each_privilege(|caller| {
        let script = "echo first; echo warning >&2; read line; echo \"got $line\"";
        let mut child = caller.run(&[], &["sh", "-c", script]).stdin(Stdio::piped()).spawn().expect("start");
        let mut out = Watch::new(child.stdout.take().expect("stdout"));
        let mut err = Watch::new(child.stderr.take().expect("stderr"));
        out.wait_for("first\n");
        err.wait_for("warning\n");
        // The command is waiting for this line, so both came before its end.
        child.stdin.as_mut().expect("stdin").write_all(b"an answer\n").expect("write");
        assert_eq!(out.rest(), "got an answer\n");
        assert!(wait(&mut child).success());
    });
}

#[test]
fn stdin_is_forwarded_to_its_end() {
    for_each_privilege(|caller| {
        let outcome = finish_with_input(caller.run(&[], &["sh", "-c", "cat; echo the end"]), b"one\ntwo\n");
        assert_eq!(outcome.good(), "one\ntwo\nthe end\n");
        let outcome = finish_with_input(caller.run(&[], &["wc", "-c"]), &vec![7; 300_000]);
        assert_eq!(outcome.good().trim(), "300000");
    });
}

#[test]
fn stdin_may_be_a_file_nothing_or_closed() {
    for_each_privilege(|caller| {
        let path = caller.make_file("input", "from a file\n".repeat(20_000));
        let mut command = caller.run(&[], &["cat"]);
        command.stdin(File::open(&path).expect("open"));
        assert_eq!(finish(command).good().len(), 12 * 20_000);
        assert_eq!(finish(caller.run(&[], &["cat"])).good(), "", "stdin is /dev/null");
        for closed in ["<&-", "<&- 2>&-", "0<&- 1>&- 2>&-"] {
            let mut shell = caller.command("sh");
            shell.arg("-c").arg(format!("\"$0\" run -- sh -c 'cat; exit 5' {closed}")).arg(caller.program());
            let outcome = finish(shell);
            assert_eq!((outcome.code, outcome.out.as_str()), (5, ""), "{closed}: {outcome:?}");
        }
    });
}

#[test]
fn input_that_is_not_read_holds_nothing_up() {
    for_each_privilege(|caller| {
        let mut child = caller.run(&[], &["true"]).stdin(Stdio::piped()).spawn().expect("start");
        // Kept open, and never read by the command.
        let stdin = child.stdin.take();
        assert!(wait(&mut child).success());
        drop(stdin);
        let outcome = finish_with_input(caller.run(&[], &["head", "-c", "3"]), &vec![b'x'; 4 << 20]);
        assert_eq!(outcome.good(), "xxx");
    });
}

/// A sequence that does not repeat at any power of two, so that a lost or doubled page is seen.
fn noise() -> Vec<u8> {
    let mut dice = support::Dice::new();
    (0..1_048_573 / 7).flat_map(|_| dice.next().to_le_bytes().into_iter().take(7)).collect()
}

/// Sends `total` bytes through `cat` in a room and compares them; returns the callers's largest memory.
fn through_cat(caller: &Caller, total: usize) -> u64 {
    let noise = noise();
    let mut child = caller.run(&[], &["cat"]).stdin(Stdio::piped()).spawn().expect("start");
    let (mut stdin, mut stdout) = (child.stdin.take().expect("stdin"), child.stdout.take().expect("stdout"));
    let mut most_memory = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut left = total;
            while left > 0 {
                let piece = &noise[..left.min(noise.len())];
                stdin.write_all(piece).expect("write");
                left -= piece.len();
            }
            drop(stdin);
        });
        let (mut at, mut piece) = (0, vec![0; 1 << 20]);
        loop {
            let read = stdout.read(&mut piece).expect("read");
            if read == 0 {
                break;
            }
            let mut got = &piece[..read];
            while !got.is_empty() {
                let start = at % noise.len();
                let length = got.len().min(noise.len() - start);
                assert!(got[..length] == noise[start..start + length], "other bytes at {at}");
                at += length;
                got = &got[length..];
            }
            if at >= total {
                most_memory = peak_memory(child.id()).unwrap_or(most_memory);
            }
        }
        assert_eq!(at, total);
    });
    assert!(wait(&mut child).success());
    most_memory
}

/// VmHWM, in bytes.
fn peak_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

#[test]
fn binary_data_passes_unharmed_in_flat_memory() {
    for_each_privilege(|caller| {
        let most = through_cat(caller, 64_000_001);
        assert!(most > 0 && most < 30 << 20, "workroom used {most} bytes");
    });
}

#[test]
#[ignore = "takes a while"]
fn soak_a_gigabyte_passes_unharmed_in_flat_memory() {
    for_each_privilege(|caller| {
        let most = through_cat(caller, 1 << 30);
        assert!(most > 0 && most < 30 << 20, "workroom used {most} bytes");
    });
}

#[test]
fn output_is_whole_when_the_command_ends_right_after() {
    for_each_privilege(|caller| {
        // The last piece is in the pipe when the command is gone.
        let outcome = finish(caller.run(&[], &["head", "-c", "1000003", "/dev/zero"]));
        assert_eq!((outcome.out.len(), outcome.code), (1_000_003, 0));
        assert!(outcome.out.bytes().all(|byte| byte == 0));
    });
}

#[test]
fn a_reader_that_goes_away_ends_the_command() {
    for_each_privilege(|caller| {
        let mut child = caller.run(&[], &["yes"]).spawn().expect("start");
        let mut out = Watch::new(child.stdout.take().expect("stdout"));
        out.wait_for("y\n");
        drop(out);
        // As any shell would say: SIGPIPE.
        assert_eq!(code(wait(&mut child)), 141);
    });
}

#[test]
fn yes_piped_to_head_ends_at_once() {
    for_each_privilege(|caller| {
        let mut shell = caller.command("sh");
        shell.arg("-c").arg("\"$0\" run -- yes | head -n 1").arg(caller.program());
        assert_eq!(finish(shell).good(), "y\n");
    });
}

#[test]
fn a_slow_reader_loses_nothing() {
    for_each_privilege(|caller| {
        let (reader, writer) = rustix::pipe::pipe().expect("pipe");
        // The smallest pipe, and one that the caller made non-blocking.
        rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("shrink the pipe");
        let flags = rustix::fs::fcntl_getfl(&writer).expect("flags");
        rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).expect("flags");
        let mut command = caller.run(&[], &["seq", "1", "100000"]);
        let mut child = command.stdout(writer).spawn().expect("start");
        drop(command);
        let mut file = File::from(reader);
        let (mut text, mut piece) = (String::new(), [0; 1000]);
        loop {
            let read = file.read(&mut piece).expect("read");
            if read == 0 {
                break;
            }
            text.push_str(std::str::from_utf8(&piece[..read]).expect("digits"));
        }
        assert!(wait(&mut child).success());
        let whole: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
        assert!(text == whole, "{} of {} bytes came", text.len(), whole.len());
    });
}

#[test]
fn output_goes_to_files_as_they_were_opened() {
    for_each_privilege(|caller| {
        let path = caller.make_file("log", "before\n");
        let mut shell = caller.command("sh");
        shell.arg("-c").arg("\"$0\" run -- sh -c 'echo out; seq 1 100000; echo err >&2' >>\"$1\" 2>&1");
        assert_eq!(
            finish({
                shell.arg(caller.program()).arg(&path);
                shell
            })
            .good(),
            ""
        );
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.starts_with("before\nout\n1\n2\n"), "{}", &text[..text.len().min(40)]);
        // Two streams into one file may meet in the middle of a line, as they may from any two processes.
        assert_eq!(text.matches("err\n").count(), 1);
        assert_eq!(text.lines().count(), 100_003);

        let path = caller.path("written");
        let mut command = caller.run(&[], &["seq", "1", "100000"]);
        command.stdout(File::create(&path).expect("create"));
        assert_eq!(finish(command).good(), "");
        assert_eq!(fs::read_to_string(&path).expect("read").lines().count(), 100_000);
    });
}

#[test]
fn a_child_that_holds_the_pipes_does_not_hold_up_the_end() {
    for_each_privilege(|caller| {
        let started = std::time::Instant::now();
        let outcome = caller.sh(&[], "sleep 1000 & echo done");
        assert_eq!(outcome.good(), "done\n");
        assert!(started.elapsed() < PATIENCE / 2);
    });
}
