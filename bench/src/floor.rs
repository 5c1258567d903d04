//! The floor: the same namespaces and mounts as a room, made by a helper process that clones itself as a
//! spawner does, and nothing else. No cgroup, no seccomp, no Landlock, no launcher, no protocol.
//!
//! The helper is this program executed anew. It measures by itself, so the time in which this process and
//! the helper talk is in no figure:
//!
//! ```text
//!  bench ── "create" ──▶ helper ── clone, build, a byte on a pipe ── room
//!        ◀── "ok 1234567 89012" ──
//! ```

mod kernel;
mod place;

use kernel::clone_into_namespaces;
use place::Place;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The name this program is started under to be the floor's helper.
const ARGV0: &str = "workroom-bench-floor";

const READY: u8 = b'+';

/// The helper, from the outside.
pub(crate) struct Floor {
    process: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Floor {
    pub(crate) fn start() -> Result<Floor, String> {
        let mut process = Command::new("/proc/self/exe")
            .arg0(ARGV0)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the floor's helper did not start: {error}"))?;
        let requests = process.stdin.take();
        let answers = process.stdout.take().ok_or("the floor's helper has no stdout")?;
        Ok(Floor { process, requests, answers: BufReader::new(answers) })
    }

    /// A room until it says that it stands, and, apart, its end.
    pub(crate) fn create(&mut self) -> Result<(Duration, Duration), String> {
        match self.ask("create")?.as_slice() {
            [create, end] => Ok((Duration::from_nanos(*create), Duration::from_nanos(*end))),
            other => Err(format!("the floor's helper answered {other:?}")),
        }
    }

    /// A room in which `true` runs, until all of it is gone.
    pub(crate) fn first_command(&mut self) -> Result<Duration, String> {
        self.ask_one("first").map(Duration::from_nanos)
    }

    /// How many mounts one of its rooms has.
    pub(crate) fn mounts(&mut self) -> Result<u64, String> {
        self.ask_one("mounts")
    }

    fn ask_one(&mut self, request: &str) -> Result<u64, String> {
        match self.ask(request)?.as_slice() {
            [number] => Ok(*number),
            other => Err(format!("the floor's helper answered {other:?}")),
        }
    }

    fn ask(&mut self, request: &str) -> Result<Vec<u64>, String> {
        let gone = |error| format!("the floor's helper ended: {error}");
        let requests = self.requests.as_mut().ok_or("the floor's helper was told to end")?;
        writeln!(requests, "{request}").map_err(gone)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(gone)?;
        let numbers = answer.strip_prefix("ok ").ok_or_else(|| format!("floor: {}", answer.trim()))?;
        numbers
            .split_whitespace()
            .map(|number| number.parse().map_err(|_| format!("the floor's helper answered {answer}")))
            .collect()
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        drop(self.requests.take());
        let _ = self.process.wait();
    }
}

/// Becomes the helper if this process was started as one.
pub(crate) fn run_if_floor() {
    if std::env::args_os().next().is_some_and(|name| name == ARGV0) {
        std::process::exit(match serve() {
            Ok(()) => 0,
            Err(error) => {
                println!("the helper: {error}");
                1
            }
        });
    }
}

fn serve() -> io::Result<()> {
    rustix::process::umask(rustix::fs::Mode::empty());
    let place = Place::prepare()?;
    for request in io::stdin().lines() {
        let answer = match request?.as_str() {
            "create" => measure_create(&place)
                .map(|(create, end)| format!("{} {}", create.as_nanos(), end.as_nanos())),
            "first" => measure_first_command(&place).map(|all| all.as_nanos().to_string()),
            "mounts" => count_mounts(&place).map(|count| count.to_string()),
            other => Err(io::Error::other(format!("there is no request {other}"))),
        };
        match answer {
            Ok(numbers) => println!("ok {numbers}"),
            Err(error) => println!("failed: {error}"),
        }
    }
    Ok(())
}

fn measure_create(place: &Place) -> io::Result<(Duration, Duration)> {
    let (reads, writes) = pipe_with(PipeFlags::CLOEXEC)?;
    let started = Instant::now();
    let room = clone_room(place, &writes, || {
        let _ = rustix::io::write(&writes, &[READY]);
        loop {
            std::thread::park();
        }
    })?;
    drop(writes);
    let word = hear(&reads);
    let create = started.elapsed();
    let ending = Instant::now();
    let _ = kill_process(room, Signal::KILL);
    wait(room)?;
    word.map(|_| (create, ending.elapsed()))
}

fn measure_first_command(place: &Place) -> io::Result<Duration> {
    let (reads, writes) = pipe_with(PipeFlags::CLOEXEC)?;
    let started = Instant::now();
    let room = clone_room(place, &writes, || {
        // The standard library spawns without copying this process: the cheapest way there is.
        match Command::new("/usr/bin/true").stdin(Stdio::null()).status() {
            Ok(status) if status.success() => {
                let _ = rustix::io::write(&writes, &[READY]);
                0
            }
            other => complain(&writes, &format!("true: {other:?}")),
        }
    })?;
    drop(writes);
    wait(room)?;
    let all = started.elapsed();
    hear(&reads).map(|_| all)
}

fn count_mounts(place: &Place) -> io::Result<usize> {
    let (reads, writes) = pipe_with(PipeFlags::CLOEXEC)?;
    let room = clone_room(place, &writes, || match std::fs::read_to_string("/proc/self/mountinfo") {
        Ok(text) => {
            let _ = rustix::io::write(&writes, format!("+{}", text.lines().count()).as_bytes());
            0
        }
        Err(error) => complain(&writes, &error.to_string()),
    })?;
    drop(writes);
    wait(room)?;
    hear(&reads)?.parse().map_err(io::Error::other)
}

/// Clones, builds, then goes on with `inside` in the room.
fn clone_room(place: &Place, writes: &OwnedFd, inside: impl FnOnce() -> i32) -> io::Result<Pid> {
    clone_into_namespaces(|| {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        match place.build() {
            Ok(()) => inside(),
            Err(error) => complain(writes, &error.to_string()),
        }
    })
}

fn complain(writes: &OwnedFd, error: &str) -> i32 {
    let _ = rustix::io::write(writes, error.as_bytes());
    1
}

/// What the room says after its sign that it stands.
fn hear(reads: &OwnedFd) -> io::Result<String> {
    let mut word = [0u8; 512];
    let length = rustix::io::read(reads, &mut word)?;
    match &word[..length] {
        [READY, rest @ ..] => Ok(String::from_utf8_lossy(rest).into_owned()),
        [] => Err(io::Error::other("the room ended before it stood")),
        complaint => Err(io::Error::other(String::from_utf8_lossy(complaint).into_owned())),
    }
}

fn wait(room: Pid) -> io::Result<()> {
    loop {
        match waitpid(Some(room), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(()),
        }
    }
}
