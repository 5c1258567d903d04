//! What the tests share: a harness that runs each in a process of its own and as each kind of user, and the means to make
//! layers, rooms and workers.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use workroom_room::Spawner;
use workroom_types::{
    CommandSpec, LAYER_ID, LayerSet, Lifetime, Limits, Network, RoomSpec, RoomUser, base_environment,
};

pub(crate) type Test = (&'static str, fn(&Stage));

/// Started with this, the program is one test: its name and a directory follow.
const ONE: &str = "--one-test-in";

/// As the test runners of cargo call a test program.
pub(crate) fn run(tests: &[Test]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, dir, name] = arguments.as_slice()
        && first == ONE
    {
        let (_, body) = tests.iter().find(|(known, _)| known == name).expect("a known test");
        body(&Stage::new(Path::new(dir)));
        return ExitCode::SUCCESS;
    }
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if has("--list") {
        if !has("--ignored") {
            tests.iter().for_each(|(name, _)| println!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| {
        filters.is_empty()
            || filters
                .iter()
                .any(|filter| if has("--exact") { *filter == name } else { name.contains(*filter) })
    };
    let mut failed = 0;
    for (name, _) in tests.iter().filter(|(name, _)| wanted(name)) {
        for user in [None, Some(300_000 + std::process::id() % 100_000)] {
            if user.is_some() && !rustix::process::geteuid().is_root() {
                continue;
            }
            let passed = run_one(name, user);
            let who = if user.is_some() { " (ordinary user)" } else { "" };
            println!("test {name}{who} ... {}", if passed { "ok" } else { "FAILED" });
            failed += u32::from(!passed);
        }
    }
    ExitCode::from(u8::from(failed > 0))
}

fn run_one(name: &str, user: Option<u32>) -> bool {
    let dir = std::env::temp_dir().join(format!("workroom-layers-{}-{name}", std::process::id()));
    fs::create_dir(&dir).expect("make a directory");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("open it to all");
    // Where the build lies may be closed to others.
    let program = dir.join("test");
    let built = std::env::current_exe().expect("this program");
    if fs::hard_link(&built, &program).is_err() {
        let copied = Command::new("cp").arg(&built).arg(&program).status();
        assert!(copied.is_ok_and(|status| status.success()), "copy the program");
    }
    let stage = dir.join("stage");
    fs::create_dir(&stage).expect("make a directory");
    fs::set_permissions(&stage, fs::Permissions::from_mode(0o700)).expect("close it");
    let mut command = Command::new("timeout");
    command.arg("120").arg(&program).arg(ONE).arg(&stage).arg(name).current_dir("/");
    if let Some(id) = user {
        chown(&stage, Some(id), Some(id)).expect("give it away");
        command.uid(id).gid(id);
    }
    let passed = command.status().expect("start").success();
    if passed {
        // What a rooted test leaves may be anyone's, and deep; this is a test of nothing.
        let _ = Command::new("rm").arg("-rf").arg(&dir).status();
    }
    passed
}

/// Where one test plays: a directory, a spawner, and who it is.
pub(crate) struct Stage {
    pub(crate) dir: PathBuf,
    pub(crate) is_root: bool,
    spawner: Spawner,
}

/// What a command in a room came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) text: String,
}

impl Stage {
    fn new(dir: &Path) -> Stage {
        let spawner = Spawner::start().expect("a spawner");
        Stage { dir: dir.to_owned(), is_root: rustix::process::geteuid().is_root(), spawner }
    }

    /// An empty layer, as the host makes it.
    pub(crate) fn layer(&self, name: &str) -> PathBuf {
        let layer = self.dir.join(name);
        for (dir, mode) in [(layer.clone(), 0o700), (layer.join("fs"), 0o755), (layer.join("work"), 0o700)] {
            fs::create_dir(&dir).expect("make a layer");
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("its mode");
            if self.is_root {
                chown(&dir, Some(LAYER_ID), Some(LAYER_ID)).expect("its owner");
            }
        }
        layer
    }

    /// Runs a script as the agent in a new room over `lowers`, the lowest first.
    pub(crate) fn script(&self, lowers: &[&Path], layer: &Path, script: &str) -> Said {
        self.script_as(RoomUser::Agent, lowers, layer, script).expect("a room")
    }

    pub(crate) fn script_as(
        &self,
        user: RoomUser,
        lowers: &[&Path],
        layer: &Path,
        script: &str,
    ) -> Result<Said, String> {
        let spec = RoomSpec {
            id: format!("layers-{}", std::process::id()),
            user,
            limits: Limits { memory: None, pids: None, ..Limits::default() },
            network: Network::None,
            workspace: None,
            layer: Some(layer.to_owned()),
            lowers: lowers.iter().map(|lower| (*lower).to_owned()).collect(),
            mounts: Vec::new(),
            lifetime: Lifetime::Connection,
            require: LayerSet::EMPTY,
            allow_missing: LayerSet::from_iter(workroom_types::Layer::ALL),
            without: LayerSet::EMPTY,
        };
        let command = CommandSpec {
            argv: ["/bin/sh", "-c", script].iter().map(|word| word.as_bytes().to_vec()).collect(),
            env: base_environment(user)
                .into_iter()
                .map(|(name, value)| format!("{name}={value}").into_bytes())
                .collect(),
            cwd: b"/workspace".to_vec(),
            user,
            terminal: None,
        };
        let room = self.spawner.create(&spec).map_err(|error| error.to_string())?;
        room.ready().map_err(|error| error.to_string())?;
        let null = fs::File::open("/dev/null").expect("/dev/null");
        let (mut reads, writes) = std::io::pipe().expect("a pipe");
        let report =
            room.exec(command, &[null.as_fd(), writes.as_fd(), writes.as_fd()]).map_err(|e| e.to_string())?;
        drop((room, writes));
        let mut text = String::new();
        reads.read_to_string(&mut text).expect("text");
        self.spawner.wait_gone(&spec.id).map_err(|error| error.to_string())?;
        Ok(Said { status: report.exit.status().into(), text })
    }
}

/// Fails unless the command did its work without a word.
#[track_caller]
pub(crate) fn quietly(said: Said) {
    assert_eq!(said, Said { status: 0, text: String::new() });
}
