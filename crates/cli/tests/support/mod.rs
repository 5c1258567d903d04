//! What the tests of the binary share: callers of either privilege, bounded waits, scratch directories.
//!
//! Every test starts the real program. As root each test body runs twice, as root and as an ordinary user
//! with an id of its own, so that both ways of building a room are seen.
#![allow(dead_code)] // each test file uses its own part of this

pub(crate) mod encodings;
pub(crate) mod fence;
pub(crate) mod pty;
pub(crate) mod traces;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Far more than anything here takes on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A name that no other test on this machine has.
pub(crate) fn unique() -> String {
    format!("{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// A directory that is gone when the test is.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let path = std::env::temp_dir().join(format!("workroom-test-{}", unique()));
        fs::create_dir(&path).expect("make a scratch directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("open it to all");
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Someone who calls `workroom`.
pub(crate) struct Caller {
    program: PathBuf,
    /// As whom, if not as the user who runs the tests.
    pub(crate) ids: Option<u32>,
    scratch: Scratch,
}

/// Runs a test body as every kind of user that can be had here.
pub(crate) fn for_each_privilege(body: impl Fn(&Caller)) {
    if rustix::process::geteuid().is_root() {
        println!("--- as root");
        Caller::new(None).check(&body);
        println!("--- as an ordinary user");
        as_ordinary_user(body);
    } else {
        println!("--- as the ordinary user who runs the tests");
        Caller::new(None).check(&body);
    }
}

/// Runs a test body as an ordinary user: with ids that nobody else has when root runs the tests.
pub(crate) fn as_ordinary_user(body: impl Fn(&Caller)) {
    if !rustix::process::geteuid().is_root() {
        return Caller::new(None).check(&body);
    }
    let number = COUNTER.fetch_add(1, Ordering::Relaxed) % 16;
    let id = 200_000 + (std::process::id() % 50_000) * 16 + number;
    Caller::new(Some(id)).check(&body);
}

/// Runs a test body as root, where root runs the tests.
pub(crate) fn as_root(body: impl Fn(&Caller)) {
    if rustix::process::geteuid().is_root() {
        Caller::new(None).check(&body);
    } else {
        println!("skipped: needs root");
    }
}

impl Caller {
    fn new(ids: Option<u32>) -> Caller {
        let built = Path::new(env!("CARGO_BIN_EXE_workroom"));
        let scratch = Scratch::new();
        let program = match ids {
            None => built.to_owned(),
            Some(_) => {
                // Where the build lies may be closed to others. A link is never open for writing, which a
                // copy would be for a moment, and then it could not be executed.
                let program = scratch.path().join("workroom");
                if fs::hard_link(built, &program).is_err() {
                    let copied = Command::new("cp").arg(built).arg(&program).status();
                    assert!(copied.is_ok_and(|status| status.success()), "copy the program");
                }
                program
            }
        };
        let caller = Caller { program, ids, scratch };
        for dir in ["home", "tmp"] {
            caller.make_dir(dir);
        }
        caller
    }

    fn check(self, body: &impl Fn(&Caller)) {
        body(&self);
        let left: Vec<_> = fs::read_dir(self.path("tmp")).expect("read tmp").flatten().collect();
        assert!(left.is_empty(), "left in the temporary directory: {left:?}");
    }

    pub(crate) fn is_root(&self) -> bool {
        self.ids.is_none() && rustix::process::geteuid().is_root()
    }

    pub(crate) fn uid(&self) -> u32 {
        self.ids.unwrap_or_else(|| rustix::process::geteuid().as_raw())
    }

    /// A path below the caller's scratch directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Makes a directory of the caller's.
    pub(crate) fn make_dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("make a directory");
        self.give(&path);
        path
    }

    /// Makes a file of the caller's.
    pub(crate) fn make_file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("write a file");
        self.give(&path);
        path
    }

    fn give(&self, path: &Path) {
        if let Some(id) = self.ids {
            chown(path, Some(id), Some(id)).expect("give it to the caller");
        }
    }

    /// Any program, started as this caller with a small environment.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("tmp"));
        command.env("WORKROOM_TEST_CANARY", "of the caller");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(id) = self.ids {
            command.uid(id).gid(id);
        }
        command
    }

    /// `workroom` itself.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// `workroom run OPTIONS -- COMMAND`, not started yet.
    pub(crate) fn run(&self, options: &[&str], command: &[&str]) -> Command {
        let mut run = self.command(&self.program);
        run.arg("run").args(options).arg("--").args(command);
        run
    }

    /// Runs a shell script in a room, to its end.
    pub(crate) fn sh(&self, options: &[&str], script: &str) -> Outcome {
        finish(self.run(options, &["sh", "-c", script]))
    }

    /// Runs a shell script in a room that must succeed, and returns what it said.
    pub(crate) fn says(&self, options: &[&str], script: &str) -> String {
        self.sh(options, script).good()
    }

    /// Runs a command with `--json` and returns the result, whatever it is.
    pub(crate) fn json(&self, options: &[&str], command: &[&str]) -> serde_json::Value {
        let mut with_json = vec!["--json"];
        with_json.extend(options);
        let outcome = finish(self.run(&with_json, command));
        assert_eq!(outcome.err, "", "with --json nothing else is printed");
        assert_eq!(outcome.out.lines().count(), 1, "one line: {}", outcome.out);
        let result: serde_json::Value = serde_json::from_str(&outcome.out).expect("JSON");
        assert_eq!(result["exit_code"], outcome.code, "{}", outcome.out);
        result
    }

    /// How a layer stands in a room of this caller: `enforced`, `partial` or `missing`.
    pub(crate) fn layer(&self, options: &[&str], layer: &str) -> String {
        let result = self.json(options, &["true"]);
        result["enforced"][layer]["state"].as_str().unwrap_or("unknown").to_owned()
    }
}

/// A test that fails in the middle ends what it had started.
impl Drop for Caller {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let own = self.scratch.path().to_string_lossy().into_owned();
        for process in traces::processes() {
            let environ = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
            let ours = process.parent == std::process::id() as i32
                && String::from_utf8_lossy(&environ).contains(&own);
            if let (true, Some(pid)) = (ours, rustix::process::Pid::from_raw(process.pid)) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// How a program ended and what it said.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// As a shell would report it.
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    /// What it said, provided that it succeeded and complained of nothing.
    #[track_caller]
    pub(crate) fn good(self) -> String {
        assert!(self.code == 0 && self.err.is_empty(), "{self:?}");
        self.out
    }
}

pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// Starts the command, gives it no input but what was set, and waits for its end.
#[track_caller]
pub(crate) fn finish(mut command: Command) -> Outcome {
    let child = command.spawn().expect("start");
    collect(child)
}

/// Starts the command with this input.
#[track_caller]
pub(crate) fn finish_with_input(mut command: Command, input: &[u8]) -> Outcome {
    let mut child = command.stdin(Stdio::piped()).spawn().expect("start");
    let mut stdin = child.stdin.take().expect("stdin");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A command that does not read all of it is the test's to judge.
            let _ = stdin.write_all(input);
        });
        collect(child)
    })
}

/// Waits for the end of a child and all that it says.
#[track_caller]
pub(crate) fn collect(child: Child) -> Outcome {
    collect_within(PATIENCE, child)
}

/// The same for what takes longer than anything else.
#[track_caller]
pub(crate) fn collect_within(patience: Duration, mut child: Child) -> Outcome {
    drop(child.stdin.take());
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = read(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let err = read(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let status = wait_within(patience, &mut child);
    Outcome { code: code(status), out: out.join().expect("read"), err: err.join().expect("read") }
}

/// Waits for a child; one that takes too long is killed, and the test fails.
#[track_caller]
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    wait_within(PATIENCE, child)
}

#[track_caller]
fn wait_within(patience: Duration, child: &mut Child) -> ExitStatus {
    let (done, watch) = mpsc::channel::<()>();
    let pid = rustix::process::Pid::from_child(child);
    let dog = std::thread::spawn(move || {
        let late = watch.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        late
    });
    let status = child.wait().expect("wait");
    drop(done);
    assert!(!dog.join().expect("watch"), "it had not ended after {patience:?}");
    status
}

/// Waits until something is so, for which the kernel sends no event; fails with the last objection.
#[track_caller]
pub(crate) fn settle(patience: Duration, check: impl Fn() -> Result<(), String>) {
    let deadline = Instant::now() + patience;
    loop {
        match check() {
            Ok(()) => return,
            Err(objection) if Instant::now() > deadline => panic!("after {patience:?}: {objection}"),
            Err(_) => std::thread::sleep(Duration::from_millis(3)),
        }
    }
}

/// Whether a program can be had in a room, and says so if not: the case is skipped then.
pub(crate) fn installed(program: &str) -> bool {
    let dirs = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
    let found = dirs.iter().any(|dir| Path::new(dir).join(program).exists());
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

/// Random numbers that can be had again: the seed is printed, and WORKROOM_SEED sets it.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Dice {
        let seed = std::env::var("WORKROOM_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| {
            let now = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970");
            now.as_nanos() as u64
        });
        println!("WORKROOM_SEED={seed}");
        Dice(seed)
    }

    /// SplitMix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
