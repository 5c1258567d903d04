//! Ways in which a room once reached further than it should, each of them tried again.

mod support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Command, Stdio};
use support::{as_root, code, finish, for_each_privilege, installed, wait};

#[test]
fn no_setuid_file_reaches_the_host_through_a_workspace() {
    for_each_privilege(|caller| {
        let dir = caller.make_dir("ws");
        let options = ["--workspace", dir.to_str().expect("text")];
        let script =
            "cp /usr/bin/id a; chmod 4755 a; cp /usr/bin/id b; chmod g+s b; cp /usr/bin/id c; chmod 755 c;
            python3 -c 'import os; os.open(\"d\", os.O_CREAT | os.O_WRONLY, 0o6755)' 2>/dev/null; true";
        let outcome = caller.sh(&options, script);
        assert!(outcome.err.contains("not permitted"), "{outcome:?}");
        for entry in fs::read_dir(&dir).expect("the workspace").flatten() {
            let mode = entry.metadata().expect("metadata").mode();
            assert_eq!(mode & 0o6000, 0, "{:?} has mode {mode:o}", entry.file_name());
        }
        assert!(dir.join("c").metadata().expect("ordinary modes still work").mode() & 0o111 != 0);
        // Without a host directory there is nobody to harm, and programs may do as they like.
        assert_eq!(caller.says(&[], "cp /usr/bin/id a; chmod 4755 a; stat -c %a a"), "4755\n");
    });
}

#[test]
fn pools_that_the_whole_machine_shares_stay_shared() {
    for_each_privilege(|caller| {
        if !installed("python3") {
            println!("skipped: python3 is not installed");
            return;
        }
        let script = "python3 - <<'E'
import ctypes, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
program = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0))
try:
    socket.socket().setsockopt(1, 26, struct.pack('HxxxxxxQ', 1, ctypes.addressof(program)))
    print('attached a packet filter')
except OSError: pass
if libc.syscall(206, 8, ctypes.byref(ctypes.c_ulong())) == 0: print('has kernel AIO')
if libc.prctl(22, 2, 0) == 0: print('added a seccomp filter')
if libc.syscall(9, None, 2 << 20, 3, 0x40022, -1, 0) != -1: print('has huge pages')
terminals = []
try:
    while len(terminals) < 1000: terminals.append(os.open('/dev/ptmx', os.O_RDWR))
except OSError: pass
print(len(terminals), 'terminals')
E";
        assert_eq!(caller.says(&[], script), "64 terminals\n");
    });
}

#[test]
fn input_that_a_terminal_does_not_take_does_not_outlast_the_time() {
    for_each_privilege(|caller| {
        let options = ["--tty", "--timeout", "500ms"];
        let mut command: Command = caller.run(&options, &["sh", "-c", "stty raw -echo; exec sleep 1000"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start");
        let mut stdin = child.stdin.take().expect("piped");
        // Ends with an error when the run does, and holds stdin open until then.
        let feeder = std::thread::spawn(move || while stdin.write_all(&[b'x'; 65536]).is_ok() {});
        assert_eq!(code(wait(&mut child)), 124);
        feeder.join().expect("the feeder ends");
    });
}

#[test]
fn a_read_only_workspace_takes_nothing_by_a_fifo_either() {
    for_each_privilege(|caller| {
        let dir = caller.make_dir("ws");
        let made = caller.command("mkfifo").arg(dir.join("fifo")).status().expect("mkfifo");
        assert!(made.success());
        fs::set_permissions(dir.join("fifo"), fs::Permissions::from_mode(0o666)).expect("mode");
        let workspace = format!("{}:ro", dir.display());
        let outcome = caller.sh(&["--workspace", &workspace], "timeout 1 sh -c 'echo x > fifo'");
        assert!(outcome.code != 0 && outcome.err.contains("denied"), "{outcome:?}");
    });
}

#[test]
fn a_configuration_of_somebody_elses_is_refused() {
    as_root(|caller| {
        let file = caller.make_file("config.toml", "[run]\nmemory = \"64M\"\n");
        let run = || {
            let mut command = caller.run(&[], &["true"]);
            command.env("WORKROOM_CONFIG", &file);
            finish(command)
        };
        assert_eq!(run().code, 0);
        chown(&file, Some(12345), None).expect("chown");
        let outcome = run();
        assert_eq!(outcome.code, 125);
        assert!(outcome.err.contains("someone else"), "{outcome:?}");
    });
}
