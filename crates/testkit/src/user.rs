//! As whom a server runs: the user who runs the tests or, where that is root, an ordinary one of its own.

use crate::scratch::{Scratch, next_number};
use std::fs;
use std::future::Future;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Debug)]
pub struct User {
    /// If not the user who runs the tests.
    id: Option<u32>,
    program: PathBuf,
    scratch: Scratch,
}

/// Runs a test to its end, in this thread; what it spawns goes on beside it.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

/// Runs a test as every kind of user that can be had here.
pub fn for_each_user(test: impl AsyncFn(&User)) {
    if rustix::process::geteuid().is_root() {
        println!("--- as root");
        run(test(&User::running_the_tests()));
        println!("--- as an ordinary user");
        run(test(&User::ordinary()));
    } else {
        println!("--- as the ordinary user who runs the tests");
        run(test(&User::running_the_tests()));
    }
}

pub fn as_ordinary_user(test: impl AsyncFn(&User)) {
    run(test(&User::ordinary()));
}

/// Runs a test as root, where root runs the tests.
pub fn as_root(test: impl AsyncFn(&User)) {
    if rustix::process::geteuid().is_root() {
        run(test(&User::running_the_tests()));
    } else {
        println!("skipped: needs root");
    }
}

impl User {
    pub fn running_the_tests() -> User {
        User::new(None)
    }

    /// With an id that nobody else has, when root runs the tests.
    pub fn ordinary() -> User {
        // Of each test process its own, and apart from those of other kinds of tests.
        let id = 1_100_000 + (std::process::id() % 50_000) * 16 + next_number() % 16;
        User::new(rustix::process::geteuid().is_root().then_some(id))
    }

    fn new(id: Option<u32>) -> User {
        let built = built_program();
        let scratch = Scratch::new();
        let program = match id {
            None => built,
            Some(_) => reachable(&built, scratch.path()),
        };
        let user = User { id, program, scratch };
        user.make_dir("home");
        user.make_dir("tmp");
        user
    }

    pub fn is_root(&self) -> bool {
        self.uid() == 0
    }

    pub fn uid(&self) -> u32 {
        self.id.unwrap_or_else(|| rustix::process::geteuid().as_raw())
    }

    /// Whether nobody but this user's own server and rooms has its id.
    pub(crate) fn is_alone(&self) -> bool {
        self.id.is_some()
    }

    /// A path below the user's scratch directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn make_dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("make a directory");
        self.give(&path);
        path
    }

    pub fn make_file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("write a file");
        self.give(&path);
        path
    }

    fn give(&self, path: &Path) {
        if let Some(id) = self.id {
            chown(path, Some(id), Some(id)).expect("give it to the user");
        }
    }

    /// `workroom` itself.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Any program, started as this user with a small environment.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("tmp"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(id) = self.id {
            command.uid(id).gid(id);
        }
        command
    }
}

/// `workroom` as cargo has built it: told by cargo, else above the directory of the test that runs.
fn built_program() -> PathBuf {
    if let Some(told) = std::env::var_os("CARGO_BIN_EXE_workroom") {
        return told.into();
    }
    let test = std::env::current_exe().expect("a test has a path");
    let built = test.ancestors().nth(2).map(|dir| dir.join("workroom")).filter(|built| built.exists());
    built.unwrap_or_else(|| panic!("no workroom above {}; build it first", test.display()))
}

/// Where the build lies may be closed to others. A link is never open for writing, which a copy would be for a
/// moment, and then it could not be executed.
fn reachable(built: &Path, dir: &Path) -> PathBuf {
    let program = dir.join("workroom");
    if fs::hard_link(built, &program).is_err() {
        let copied = Command::new("cp").arg(built).arg(&program).status();
        assert!(copied.is_ok_and(|status| status.success()), "copy the program");
    }
    program
}
