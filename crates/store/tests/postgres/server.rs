//! A PostgreSQL of the test's own, on a unix socket in a temporary directory, as an ordinary user.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// Whom the server runs as where root runs the tests: it refuses to be root, and wants an id that has a name.
const NOBODY: u32 = 65534;

pub(crate) struct Server {
    programs: PathBuf,
    socket: PathBuf,
    shell: Child,
    /// The server ends when this is closed, also because the test was killed.
    alive: Option<ChildStdin>,
}

impl Server {
    /// None where PostgreSQL is not installed.
    pub(crate) fn start(home: &Path) -> Option<Server> {
        let programs = programs()?;
        let data = home.join("data");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(home, Some(NOBODY), Some(NOBODY)).expect("a directory of its own");
        }
        let made = ordinary(programs.join("initdb"))
            .args(["--username=workroom", "--auth=trust", "--encoding=UTF8", "--no-sync", "--pgdata"])
            .arg(&data)
            // Texts are compared byte by byte, as SQLite and Rust compare them.
            .arg("--locale=C")
            .output()
            .expect("initdb");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut shell = ordinary("/bin/sh")
            .args(["-c", r#""$@" & read -r over; kill -QUIT $!; wait"#, "sh"])
            .arg(programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(home)
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "logging_collector=off"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let alive = shell.stdin.take();
        let mut log = BufReader::new(shell.stderr.take().expect("its log"));
        let mut said = String::new();
        while !said.contains("ready to accept connections") {
            assert!(log.read_line(&mut said).expect("its log") > 0, "PostgreSQL did not start: {said}");
        }
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        Some(Server { programs, socket: home.to_owned(), shell, alive })
    }

    /// What the script prints; it has to succeed to its end.
    pub(crate) fn psql(&self, script: &str) -> String {
        let mut psql = Command::new(self.programs.join("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "workroom", "-d", "postgres", "-h"])
            .arg(&self.socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql");
        let mut input = psql.stdin.take().expect("its input");
        let script = script.to_owned();
        // It stops reading where it fails, and then says why.
        let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
        let output = psql.wait_with_output().expect("psql");
        let _ = writer.join().expect("the writer");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.alive.take());
        let _ = self.shell.wait();
    }
}

/// Where the newest one has its programs: Debian keeps them out of the path.
fn programs() -> Option<PathBuf> {
    let versions = Path::new("/usr/lib/postgresql").read_dir().into_iter().flatten().flatten();
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let mut debian: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
    debian.sort_by_key(|path| std::cmp::Reverse(version(path)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = debian.into_iter().map(|path| path.join("bin")).chain(std::env::split_paths(&path));
    dirs.into_iter().find(|dir| ["initdb", "postgres", "psql"].iter().all(|name| dir.join(name).exists()))
}

fn ordinary(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").current_dir("/");
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}
