//! What the tests share: a harness that runs each in a process of its own and as each kind of user, and the means to make
//! layers, rooms and workers.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use workroom_proto::{Channel, FromWorker, LayerTask, Received};
use workroom_room::Spawner;
use workroom_types::{
    CommandSpec, HostMount, LAYER_ID, LayerSet, Lifetime, Limits, RoomSpec, RoomUser, base_environment,
};

pub(crate) type Test = (&'static str, fn(&Stage));

/// Started with this, the program is one test: its name and a directory follow.
const ONE: &str = "--one-test-in";

/// Started with this, inside a room, the program does random things to the workspace and shows it then: a seed, how many
/// things, and how much of each entry is shown follow.
const PLAY: &str = "--play";

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
    if let [first, seed, count, how] = arguments.as_slice()
        && first == PLAY
    {
        play(seed.parse().expect("a seed"), count.parse().expect("a number"), how);
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
    let dir = std::env::temp_dir().join(format!(
        "workroom-layers-{}-{}-{name}",
        std::process::id(),
        user.unwrap_or(0)
    ));
    fs::create_dir(&dir).expect("make a directory");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("open it to all");
    // Where the build lies may be closed to others.
    fs::create_dir(dir.join("program")).expect("make a directory");
    let program = dir.join("program/test");
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
    scratches: Cell<u32>,
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
        Stage {
            dir: dir.to_owned(),
            is_root: rustix::process::geteuid().is_root(),
            spawner,
            scratches: Cell::new(0),
        }
    }

    pub(crate) fn spawner_pid(&self) -> u32 {
        self.spawner.pid()
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

    /// Does random things in a room over `lowers` and answers what its workspace is then. Of each entry: `all`, or what
    /// a difference is made of.
    pub(crate) fn play(
        &self,
        random: &mut Random,
        lowers: &[&Path],
        layer: &Path,
        count: usize,
        how: &str,
    ) -> BTreeMap<PathBuf, String> {
        let seed = random.below(usize::MAX);
        let said = self.script(lowers, layer, &format!("/media/test/test {PLAY} {seed} {count} {how}"));
        assert_eq!(said.status, 0, "{}", said.text);
        let line = |line: &str| line.split_once('\t').map(|(path, rest)| (path.into(), rest.to_owned()));
        said.text.lines().map(|text| line(text).expect("a line of a listing")).collect()
    }

    /// What the workspace of a room over `stack` is.
    pub(crate) fn see(&self, stack: &[&Path], how: &str) -> BTreeMap<PathBuf, String> {
        let scratch = self.layer(&format!("scratch-{}", self.scratches.replace(self.scratches.get() + 1)));
        self.play(&mut Random(1), stack, &scratch, 0, how)
    }

    /// Has a worker do a task, and waits for its first answer.
    pub(crate) fn ask(&self, task: LayerTask) -> FromWorker {
        answer(&self.work(task, &[]))
    }

    pub(crate) fn work(&self, task: LayerTask, beside: &[BorrowedFd<'_>]) -> Channel {
        self.spawner.work(task, beside).expect("a worker")
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
        let id = format!("layers-{}", std::process::id());
        let limits = Limits { memory: None, pids: None, ..Limits::default() };
        let spec = RoomSpec {
            layer: Some(layer.to_owned()),
            lowers: lowers.iter().map(|lower| (*lower).to_owned()).collect(),
            mounts: vec![HostMount { source: self.dir.join("../program"), target: "/media/test".into() }],
            allow_missing: LayerSet::from_iter(workroom_types::Layer::ALL),
            ..RoomSpec::new(id, user, limits, Lifetime::Connection)
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
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reads.read_to_string(&mut text).map(|_| text)
        });
        let report = room.exec(command, &[null.as_fd(), writes.as_fd(), writes.as_fd()]);
        drop((room, writes));
        let (text, report) =
            (reading.join().expect("a reader").expect("text"), report.map_err(|e| e.to_string())?);
        self.spawner.wait_gone(&spec.id).map_err(|error| error.to_string())?;
        Ok(Said { status: report.exit.status(), text })
    }
}

#[track_caller]
pub(crate) fn answer(worker: &Channel) -> FromWorker {
    match worker.receive().expect("an answer") {
        Received::Message(answer, _) => answer,
        Received::Closed => panic!("the worker hung up"),
    }
}

fn play(seed: u64, count: usize, how: &str) {
    let (mut random, top) = (Random(seed | 1), Path::new("/workspace"));
    (0..count).for_each(|_| something(&mut random, top));
    let shown = if how == "all" { listing(top) } else { plain_listing(top) };
    for (path, line) in shown {
        println!("{}\t{line}", path.display());
    }
}

/// Of every entry below a directory, what a difference is made of: kind, permissions, content.
fn plain_listing(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for path in listing(top).into_keys().filter(|path| !path.as_os_str().is_empty()) {
        let full = top.join(&path);
        let meta = full.symlink_metadata().expect("an entry");
        let kind = meta.mode() & 0o170000;
        let mode = if meta.is_symlink() { 0o777 } else { meta.mode() & 0o7777 };
        let content = if meta.is_file() { format!("{:?}", content(&full)) } else { String::new() };
        found.insert(path, format!("{kind:o} {mode:04o} {content}"));
    }
    found
}

/// Everything about every entry below a directory of the host, one line each.
pub(crate) fn listing(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut first_names: HashMap<u64, PathBuf> = HashMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        let full = top.join(&path);
        let meta = full.symlink_metadata().expect("an entry");
        let mut line = format!(
            "{:o} {}:{} {}.{:09} {:x}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.rdev()
        );
        if meta.is_dir() {
            let entries = fs::read_dir(&full).expect("a directory");
            let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
            names.sort_unstable();
            waiting.extend(names.iter().map(|name| path.join(name)));
        } else if meta.is_file() {
            line += &format!(" {} {:?}", meta.len(), content(&full));
            let first = first_names.entry(meta.ino()).or_insert_with(|| path.clone());
            if first != &path {
                line += &format!(" is {}", first.display());
            }
        } else if meta.is_symlink() {
            line += &format!(" -> {:?}", fs::read_link(&full).expect("a link"));
        }
        if meta.is_dir() || meta.is_file() {
            line += &attributes(&full);
        }
        found.insert(path, line);
    }
    found
}

fn content(file: &Path) -> String {
    let bytes = fs::read(file).expect("content");
    if bytes.len() < 200 {
        return String::from_utf8_lossy(&bytes).into_owned();
    }
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{:x}", hasher.finish())
}

/// Those that are not the overlay's own notes, which are not the same in a copy.
fn attributes(path: &Path) -> String {
    let mut names = vec![0u8; 64 << 10];
    let length = rustix::fs::llistxattr(path, &mut names[..]).expect("attributes");
    let mut lines = String::new();
    let mut sorted: Vec<&[u8]> =
        names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    sorted.sort_unstable();
    for name in sorted {
        let text = String::from_utf8_lossy(name);
        if ["origin", "impure", "nlink", "uuid"]
            .iter()
            .any(|note| text.ends_with(&format!(".overlay.{note}")))
        {
            continue;
        }
        let mut value = vec![0u8; 64 << 10];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).expect("a value");
        lines += &format!(" {text}={:?}", String::from_utf8_lossy(&value[..length]));
    }
    lines
}

/// Shows the first lines that differ, and fails if any do.
#[track_caller]
pub(crate) fn assert_same<V: PartialEq + std::fmt::Debug>(
    one: &BTreeMap<PathBuf, V>,
    other: &BTreeMap<PathBuf, V>,
) {
    let mut paths: Vec<_> = one.keys().chain(other.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    let differing: Vec<_> = paths.into_iter().filter(|path| one.get(*path) != other.get(*path)).collect();
    for path in differing.iter().take(5) {
        println!("{}\n  {:?}\n  {:?}", path.display(), one.get(*path), other.get(*path));
    }
    assert!(differing.is_empty(), "{} of {} differ", differing.len(), one.len());
}

/// Random numbers that a test can have again: the seed is shown, and `WORKROOM_SEED` gives it.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Random {
        let seed = std::env::var("WORKROOM_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or_else(|| std::time::SystemTime::UNIX_EPOCH.elapsed().expect("time").as_nanos() as u64);
        println!("WORKROOM_SEED={seed}");
        Random(seed | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Does something random below a directory. Whether it works does not matter.
pub(crate) fn something(random: &mut Random, top: &Path) {
    let mut place = || {
        let mut path = top.to_owned();
        for _ in 0..=random.below(3) {
            path.push(["a", "b", "c", "d", "e.txt", "f"][random.below(6)]);
        }
        path
    };
    let (one, other) = (place(), place());
    let text: String = (0..random.below(6)).map(|_| format!("line {}\n", random.below(9))).collect();
    let _ = match random.below(16) {
        0..=4 => fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(random.below(4) > 0)
            // What is there may be a FIFO, which nobody reads.
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open(&one)
            .and_then(|mut file| file.write_all(text.as_bytes())),
        5..=7 => fs::create_dir(&one),
        8 => fs::remove_file(&one),
        9 => fs::remove_dir_all(&one),
        10 | 11 => fs::rename(&one, &other),
        12 => fs::hard_link(&one, &other),
        13 => std::os::unix::fs::symlink("/etc/passwd", &one),
        14 => match one.symlink_metadata() {
            Ok(meta) if !meta.is_symlink() => {
                fs::set_permissions(&one, fs::Permissions::from_mode(0o700 | random.below(64) as u32))
            }
            _ => Ok(()),
        },
        _ => {
            rustix::fs::mknodat(rustix::fs::CWD, &one, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
                .map_err(Into::into)
        }
    };
}

/// Fails unless the command did its work without a word.
#[track_caller]
pub(crate) fn quietly(said: Said) {
    assert_eq!(said, Said { status: 0, text: String::new() });
}
