//! Rooms are copies of the spawner's memory: nothing of the caller may be in there.

mod support;

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use support::traces::{guest_of, spawner_of};
use support::{Caller, as_root, installed, unique, wait};

/// A run that waits for its stdin to end, started by a caller with a secret; and the line it said first.
fn start(caller: &Caller, options: &[&str], script: &str, secret: &str) -> Child {
    let mut command: Command = caller.run(options, &["sh", "-c", script]);
    command.env("CALLERS_SECRET", secret).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("start");
    let mut first = [0u8; 1];
    child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("the room says that it stands");
    child
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    assert!(wait(&mut child).success());
}

/// Where `text` is in the memory of a process.
fn found_in_memory(pid: i32, text: &[u8]) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("mem");
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|mode| mode.starts_with("rw")))
    {
        let (range, _) = line.split_once(' ').expect("a range");
        let (start, end) = range.split_once('-').expect("two ends");
        let address = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
        let mut bytes = vec![0; (address(end) - address(start)) as usize];
        if memory.read_exact_at(&mut bytes, address(start)).is_ok()
            && bytes.windows(text.len()).any(|window| window == text)
        {
            found.push(line.to_owned());
        }
    }
    found
}

#[test]
fn nothing_of_the_caller_is_in_the_memory_of_spawner_and_guest() {
    as_root(|caller| {
        let (secret, argument) = (format!("secret-{}", unique()), format!("argument-{}", unique()));
        let child = start(caller, &["--env", &format!("PASSED={argument}")], "echo x; cat", &secret);
        let pid = child.id() as i32;
        let (spawner, guest) = (spawner_of(pid).expect("a spawner"), guest_of(pid).expect("a guest"));
        // The search itself works: the caller has it.
        assert!(!found_in_memory(pid, secret.as_bytes()).is_empty());
        for process in [spawner, guest] {
            assert_eq!(found_in_memory(process, secret.as_bytes()), Vec::<String>::new());
            for file in ["environ", "cmdline"] {
                let content = fs::read(format!("/proc/{process}/{file}")).expect(file);
                let text = String::from_utf8_lossy(&content).into_owned();
                assert!(!text.contains(&secret) && !text.contains(&argument), "{file}: {text}");
            }
        }
        assert_eq!(found_in_memory(spawner, argument.as_bytes()), Vec::<String>::new());
        end(child);
    });
}

/// The kernel counts inotify instances for whoever made a user namespace; as root that is the room's own uid.
#[test]
fn a_room_cannot_use_up_the_inotify_instances_of_others() {
    as_root(|caller| {
        if !installed("python3") {
            println!("skipped: python3 is not installed");
            return;
        }
        let take = "import ctypes; libc = ctypes.CDLL(None)
n = 0
while n < 100000 and libc.inotify_init() >= 0: n += 1
print('x', n, flush=True)";
        let hog = start(caller, &[], &format!("python3 -c \"{take}\nimport sys; sys.stdin.read()\""), "");
        let left = caller.says(&[], &format!("python3 -c \"{take}\""));
        let left: u32 = left.trim().trim_start_matches("x ").parse().expect("a number");
        assert!(left > 50, "only {left} inotify instances are left for a neighbour");
        end(hog);
    });
}
