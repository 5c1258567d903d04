//! Whole processes that a room is compared with, each from its spawn to its end: a bare command, the same
//! command in bwrap, and `workroom run`.

use crate::{guard, machine};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use workroom_types::{RoomUser, base_environment};

pub(crate) const TRUE: &str = "/usr/bin/true";

/// Nobody's: an ordinary user that every machine has.
pub(crate) const ORDINARY_USER: u32 = 65534;

#[derive(Clone)]
pub(crate) struct Peer {
    program: PathBuf,
    arguments: Vec<OsString>,
    user: Option<u32>,
    /// Its environment is a room's, and not ours.
    as_in_a_room: bool,
}

impl Peer {
    fn new(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Peer {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Peer { program: program.into(), arguments, user: None, as_in_a_room: false }
    }

    /// Just the command.
    pub(crate) fn bare() -> Peer {
        Peer::of(TRUE, &[])
    }

    /// Another command. What it does at its start, such as reading a language's files, is what it does in a room.
    pub(crate) fn of(program: &str, arguments: &[&str]) -> Peer {
        Peer { as_in_a_room: true, ..Peer::new(program, arguments.iter().copied()) }
    }

    /// `workroom run`, with further options.
    pub(crate) fn workroom(program: &Path, options: &[&str]) -> Peer {
        Peer::new(program, ["run"].iter().chain(options).chain(&["--", TRUE]))
    }

    pub(crate) fn bwrap(program: &Path, empty: &Path, command: &[&str]) -> Peer {
        let command = command.iter().map(|word| OsString::from(*word));
        Peer::new(program, bwrap_arguments(empty).into_iter().chain(command))
    }

    /// The same, started by root as somebody else.
    pub(crate) fn for_user(mut self, user: u32) -> Peer {
        self.user = Some(user);
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if self.as_in_a_room {
            command.env_clear().envs(base_environment(RoomUser::Agent));
        }
        if let Some(user) = self.user {
            command.uid(user).gid(user).env("HOME", "/tmp");
        }
        command
    }

    /// Spawn to reaped.
    pub(crate) fn sample(&self) -> Result<Duration, String> {
        let mut command = self.command();
        let failed = |error| format!("{} did not start: {error}", self.program.display());
        let started = Instant::now();
        let mut child = command.spawn().map_err(failed)?;
        guard::waiting_for(child.id());
        let status = child.wait();
        let elapsed = started.elapsed();
        guard::waiting_for(0);
        match status {
            Ok(status) if status.success() => Ok(elapsed),
            Ok(status) => Err(format!("{} ended with {status}: {}", self.program.display(), self.why())),
            Err(error) => Err(failed(error)),
        }
    }

    /// What it prints.
    pub(crate) fn output(&self) -> Result<String, String> {
        let output = self.command().stdout(Stdio::piped()).output().map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it once more for its complaint.
    fn why(&self) -> String {
        let output = self.command().stderr(Stdio::piped()).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
        text.ok().and_then(|text| text.lines().next().map(str::to_owned)).unwrap_or_default()
    }

    /// For the record, as it would be typed.
    pub(crate) fn line(&self) -> String {
        let program = self.program.to_string_lossy();
        let words = self.arguments.iter().map(|word| word.to_string_lossy());
        [program].into_iter().chain(words).collect::<Vec<_>>().join(" ")
    }
}

/// bwrap's command line without a command, as words.
pub(crate) fn bwrap_line(program: &Path, empty: &Path) -> Vec<String> {
    let words = std::iter::once(program.into()).chain(bwrap_arguments(empty));
    words.map(|word: OsString| word.to_string_lossy().into_owned()).collect()
}

/// The exact policy. What bwrap cannot do costs it nothing here: it has no seccomp filter, no Landlock, no
/// cgroup and no uid range. Mounts are those of a room; in place of the overlay over a tmpfs, and of the
/// mapped skeleton below it, there are bwrap's own root, which is a tmpfs, and two more. The environment is a room's.
fn bwrap_arguments(empty: &Path) -> Vec<OsString> {
    let mut line: Vec<OsString> = Vec::new();
    let mut add = |words: &[&dyn AsRef<std::ffi::OsStr>]| {
        line.extend(words.iter().map(|word| (*word).as_ref().to_owned()));
    };
    for kind in ["user", "ipc", "pid", "net", "uts", "cgroup"] {
        add(&[&format!("--unshare-{kind}")]);
    }
    add(&[&"--die-with-parent", &"--new-session", &"--hostname", &"room"]);
    add(&[&"--uid", &"1000", &"--gid", &"1000", &"--cap-drop", &"ALL", &"--clearenv"]);
    for (name, value) in base_environment(RoomUser::Agent) {
        add(&[&"--setenv", &name, &value]);
    }
    for dir in ["/home/agent", "/root", "/run", "/sys", "/var/tmp"] {
        add(&[&"--dir", &dir]);
    }
    for dir in ["/tmp", "/workspace"] {
        add(&[&"--size", &"1073741824", &"--tmpfs", &dir]);
    }
    for dir in machine::bound_dirs() {
        let path = Path::new("/").join(dir);
        add(&[&"--ro-bind", &path, &path]);
    }
    for (name, target) in machine::links() {
        add(&[&"--symlink", &target, &Path::new("/").join(name)]);
    }
    add(&[&"--dev", &"/dev", &"--size", &"67108864", &"--tmpfs", &"/dev/shm", &"--proc", &"/proc"]);
    let (files, dirs) = machine::masks();
    for name in files {
        add(&[&"--ro-bind", &"/dev/null", &Path::new("/proc").join(name)]);
    }
    for name in dirs {
        add(&[&"--ro-bind", &empty, &Path::new("/proc").join(name)]);
    }
    add(&[&"--remount-ro", &"/proc", &"--remount-ro", &"/dev", &"--chdir", &"/workspace"]);
    line
}

/// Where bwrap is; root installs it, once, where it is missing.
pub(crate) fn find_bwrap() -> Result<PathBuf, String> {
    if let Some(path) = in_path("bwrap") {
        return Ok(path);
    }
    if !rustix::process::geteuid().is_root() {
        return Err("bwrap is not installed; install the package bubblewrap".into());
    }
    eprintln!("bwrap is missing: apt-get install -y bubblewrap");
    // Ended before the guard would end the whole run.
    let _ = Command::new("timeout")
        .args(["50", "apt-get", "install", "-y", "bubblewrap"])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    guard::alive();
    in_path("bwrap").ok_or("bwrap is not installed, and apt-get could not install it".into())
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// The workroom binary: as named, or beside this one.
pub(crate) fn find_workroom(named: Option<&Path>) -> Result<PathBuf, String> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("workroom"),
    };
    path.canonicalize()
        .map_err(|error| format!("{} cannot be used: {error}; name one with --workroom", path.display()))
}

/// The same program at a path that an ordinary user can reach.
pub(crate) fn reachable(program: &Path, scratch: &Path) -> Result<PathBuf, String> {
    let open = |path: &Path, bits| path.metadata().is_ok_and(|meta| meta.permissions().mode() & bits == bits);
    if open(program, 0o5) && program.ancestors().skip(1).all(|dir| open(dir, 0o1)) {
        return Ok(program.to_owned());
    }
    let copy = scratch.join("workroom");
    let failed = |error| format!("{} cannot be copied for an ordinary user: {error}", program.display());
    std::fs::copy(program, &copy).map_err(failed)?;
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).map_err(failed)?;
    Ok(copy)
}
