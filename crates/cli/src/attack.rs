//! `workroom doctor --attack`: every hostile probe, each in a room of its own, with bait around it.
//!
//! The probes are in this very binary, which each room sees read-only; what they attack is laid out by this
//! process and by a neighbour in another room. Everything runs in a second process whose environment and
//! descriptors hold canaries, as a careless caller's would.

use crate::plan::layers;
use crate::stream::set_nonblocking;
use crate::table::Table;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::json;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use workroom_attacks::bait::{HostBait, be_a_neighbour};
use workroom_attacks::{Case, Context, Outcome, cases, run_probe};
use workroom_proto::FromGuest;
use workroom_room::{Privilege, Room, Spawner};
use workroom_types::{
    CommandSpec, Enforced, ErrorCode, ExitReport, HostMount, Layer, LayerSet, LayerState, Lifetime, Limits,
    Network, RoomError, RoomSpec, RoomUser, Workspace,
};

/// Set in the environment of the process that attacks.
const CANARY: &str = "WORKROOM_ATTACK_CANARY";

/// Where a room sees this binary.
const PROBE: &str = "/opt/workroom-probe";

/// The longest that any probe may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long after its room a daemon that survived would write its marker.
const DAEMON_DELAY: Duration = Duration::from_millis(2500);

/// An id that owns nothing.
const NOBODY: u32 = 65534;

/// Small enough to be reached in a moment, large enough for the probes themselves.
const LIMITS: Limits = Limits {
    memory: Some(96 << 20),
    cpus_milli: Some(500),
    pids: Some(64),
    disk: 24 << 20,
    inodes: 0,
    shm: 16 << 20,
    open_files: 256,
};

pub(crate) struct Options {
    pub(crate) only: Vec<String>,
    pub(crate) without: Vec<String>,
    pub(crate) user: Option<String>,
    /// No room at all.
    pub(crate) bare: bool,
    pub(crate) json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let result = match std::env::var(CANARY) {
        Ok(canary) => attack(&canary, &options),
        Err(_) => attack_with_canaries().map_err(|error| fault("start the attacker", error)),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("workroom: {error}");
            ExitCode::from(crate::EXIT_FAULT)
        }
    }
}

/// Starts this program again, careless: a secret in its environment and a descriptor that nobody closed.
fn attack_with_canaries() -> io::Result<ExitCode> {
    let canary = format!("canary-{:08x}-{}", rand_u32()?, std::process::id());
    let _leaked = rustix::pipe::pipe()?;
    let status =
        Command::new("/proc/self/exe").args(std::env::args_os().skip(1)).env(CANARY, canary).status()?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(crate::EXIT_FAULT)))
}

fn rand_u32() -> io::Result<u32> {
    let mut bytes = [0u8; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(bytes))
}

fn attack(canary: &str, options: &Options) -> Result<ExitCode, RoomError> {
    let users: &[RoomUser] = match options.user.as_deref() {
        Some("root") => &[RoomUser::Root],
        Some(_) => &[RoomUser::Agent],
        None => &[RoomUser::Agent, RoomUser::Root],
    };
    let without = layers("--without", &options.without)?;
    let chosen = choose(&options.only)?;
    let bait = HostBait::lay(canary).map_err(|error| fault("lay bait", error))?;
    let spawner = Spawner::start()?;
    let neighbour = Neighbour::start(&spawner)?;
    let mut context = bait.context.clone();
    context.neighbour_canary = Some(neighbour.canary.clone());
    context.neighbour_abstract = Some(neighbour.abstract_name.clone());
    context.neighbour_pid = find_process(&neighbour.canary);
    let left_behind = LeftBehind::new().map_err(|error| fault("make a directory", error))?;

    let mut attacker = Attacker { spawner: &spawner, context, without, left_behind: &left_behind, number: 0 };
    let mut outcomes = Vec::new();
    for case in &chosen {
        if options.bare {
            outcomes.push(attacker.try_bare(case).map_err(|error| fault("run a probe", error))?);
            continue;
        }
        let mut worst = attacker.try_case(case, users[0])?;
        for user in &users[1..] {
            worst = worse(worst, attacker.try_case(case, *user)?, *user);
        }
        outcomes.push(worst);
    }
    left_behind.settle(&chosen, &mut outcomes);
    drop(neighbour);
    spawner.finish()?;
    drop(bait);
    Ok(report(&chosen, &outcomes, options.json))
}

fn choose(names: &[String]) -> Result<Vec<&'static Case>, RoomError> {
    if names.is_empty() {
        return Ok(cases().collect());
    }
    let find = |name: &String| {
        cases().find(|case| case.name == name).ok_or_else(|| {
            RoomError::invalid(
                format!("there is no attack called \"{name}\""),
                "run `workroom doctor --attack` to see them all",
            )
        })
    };
    names.iter().map(find).collect()
}

fn report(chosen: &[&Case], outcomes: &[Outcome], json: bool) -> ExitCode {
    let mut table = Table::new(&["case", "expected", "got", "verdict"]);
    let mut rows = Vec::new();
    let mut breached = 0;
    for (case, outcome) in chosen.iter().zip(outcomes) {
        let (got, verdict) = match outcome {
            Outcome::Held(how) => (how, "held"),
            Outcome::Breached(what) => (what, "BREACHED"),
            Outcome::Skipped(why) => (why, "skipped"),
        };
        breached += usize::from(verdict == "BREACHED");
        let expected = format!("refused by {}", case.guards.join(", "));
        table.row([case.name, &expected, got, verdict]);
        rows.push(json!({
            "case": case.name, "class": case.class, "tries": case.tries, "guards": case.guards,
            "got": got, "verdict": verdict.to_lowercase(),
        }));
    }
    if json {
        println!("{}", json!({"cases": rows, "breached": breached}));
    } else {
        print!("{table}");
        println!("{} cases, {breached} breached", chosen.len());
    }
    if breached == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Attacker<'a> {
    spawner: &'a Spawner,
    context: Context,
    without: LayerSet,
    left_behind: &'a LeftBehind,
    number: u32,
}

impl Attacker<'_> {
    /// One case in one room, from its making to its end.
    fn try_case(&mut self, case: &Case, user: RoomUser) -> Result<Outcome, RoomError> {
        self.number += 1;
        let mut spec = room_spec(&format!("attack-{}-{}", std::process::id(), self.number), user)?;
        spec.without = self.without;
        spec.lifetime = Lifetime::FirstCommand;
        let leaves_daemon = case.name == LeftBehind::CASE;
        if leaves_daemon {
            spec.workspace = Some(Workspace { source: self.left_behind.dir.clone(), read_only: false });
        }
        let room = self.spawner.create(&spec)?;
        let enforced = room.ready()?;
        let context = self.context_for(&enforced, leaves_daemon);
        let input = serde_json::to_vec(&context).unwrap_or_default();
        let ended = run_to_end(&room, command(&["attack-probe", case.name], user), &input, PATIENCE);
        room.kill();
        drop(room);
        self.spawner.wait_gone(&spec.id)?;
        match ended {
            Ok(ended) => Ok(judge(case, &ended)),
            Err(error) if error.code == ErrorCode::RoomGone => {
                Ok(Outcome::Breached("the room died of it".into()))
            }
            Err(error) => Err(error),
        }
    }

    /// The same without a room: what an ordinary user of this machine could do.
    fn try_bare(&self, case: &Case) -> io::Result<Outcome> {
        let program = self.left_behind.dir.join("probe");
        if !program.exists() {
            std::fs::copy("/proc/self/exe", &program)?;
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        }
        let everything: Enforced = Enforced(
            [Layer::Memory, Layer::Pids, Layer::Cpu]
                .map(|layer| (layer, LayerState::Enforced("nothing".into())))
                .to_vec(),
        );
        let context = self.context_for(&everything, false);
        let mut probe = Command::new(program);
        probe
            .args(["attack-probe", case.name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if Privilege::detect() == Privilege::Root {
            probe.uid(NOBODY).gid(NOBODY).current_dir("/");
        }
        let mut probe = probe.spawn()?;
        if let Some(mut stdin) = probe.stdin.take() {
            let _ = stdin.write_all(&serde_json::to_vec(&context).unwrap_or_default());
        }
        let output = probe.wait_with_output()?;
        Ok(serde_json::from_slice(&output.stdout)
            .unwrap_or(Outcome::Breached("the probe died without a word".into())))
    }

    /// Tells a probe only of limits that the room claims to keep.
    fn context_for(&self, enforced: &Enforced, leaves_daemon: bool) -> Context {
        let kept = |layer, limit: Option<u64>| {
            limit.filter(|_| enforced.holds(layer) || self.without.contains(layer))
        };
        Context {
            memory_limit: kept(Layer::Memory, LIMITS.memory),
            pids_limit: kept(Layer::Pids, LIMITS.pids),
            disk_limit: Some(LIMITS.disk),
            inode_limit: Some(LIMITS.disk / 4096),
            cpus_milli: kept(Layer::Cpu, LIMITS.cpus_milli),
            open_files: Some(LIMITS.open_files),
            daemon_marker: leaves_daemon.then(|| "/workspace/marker".to_owned()),
            ..self.context.clone()
        }
    }
}

/// A wall that one user can pass has not held for the other.
fn worse(first: Outcome, second: Outcome, second_user: RoomUser) -> Outcome {
    match (first, second) {
        (Outcome::Breached(what), _) => Outcome::Breached(what),
        (_, Outcome::Breached(what)) => Outcome::Breached(format!("as {}: {what}", second_user.name())),
        (Outcome::Skipped(_), second) => second,
        (first, _) => first,
    }
}

/// What a probe says, or what its silence means.
fn judge(case: &Case, ended: &Ended) -> Outcome {
    if let Ok(outcome) = serde_json::from_slice(&ended.stdout) {
        return outcome;
    }
    match &ended.report {
        Some(report) if report.usage.oom_kills > 0 && matches!(case.class, "memory" | "limits") => {
            Outcome::Held("killed: out of the room's memory".into())
        }
        Some(report) => Outcome::Breached(format!("the probe died without a word: {:?}", report.exit)),
        None => Outcome::Breached(format!("the probe did not end within {PATIENCE:?}")),
    }
}

fn room_spec(id: &str, user: RoomUser) -> Result<RoomSpec, RoomError> {
    let binary =
        std::fs::canonicalize("/proc/self/exe").map_err(|error| fault("find this program", error))?;
    Ok(RoomSpec {
        id: id.to_owned(),
        user,
        limits: LIMITS,
        network: Network::None,
        workspace: None,
        layer: None,
        in_memory: false,
        lowers: Vec::new(),
        disk: None,
        mounts: vec![HostMount { source: binary, target: PathBuf::from(PROBE) }],
        binds: Vec::new(),
        writes_to_host: false,
        secret_files: false,
        lifetime: Lifetime::Connection,
        require: LayerSet::EMPTY,
        allow_missing: LayerSet::EMPTY,
        without: LayerSet::EMPTY,
    })
}

fn command(arguments: &[&str], user: RoomUser) -> CommandSpec {
    let argv = [PROBE].iter().chain(arguments).map(|text| text.as_bytes().to_vec()).collect();
    let env = ["PATH=/usr/bin:/bin", "HOME=/home/agent", "USER=agent", "LANG=C.UTF-8", "TERM=dumb"];
    CommandSpec {
        argv,
        env: env.map(|text| text.as_bytes().to_vec()).to_vec(),
        cwd: b"/workspace".to_vec(),
        user,
        terminal: None,
    }
}

struct Ended {
    stdout: Vec<u8>,
    /// None when the command was still running at the end of our patience.
    report: Option<ExitReport>,
}

/// Runs a command with `input`, collecting its stdout.
fn run_to_end(
    room: &Room,
    command: CommandSpec,
    input: &[u8],
    patience: Duration,
) -> Result<Ended, RoomError> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| fault("pipe", error.into()));
    let ((in_read, in_write), (out_read, out_write)) = (pipe()?, pipe()?);
    let null = std::fs::File::open("/dev/null").map_err(|error| fault("open /dev/null", error))?;
    room.start(1, command, &[in_read.as_fd(), out_write.as_fd(), null.as_fd()])?;
    drop((in_read, out_write));
    let _ = std::fs::File::from(in_write).write_all(input);
    let deadline = Instant::now() + patience;
    let mut ended = Ended { stdout: Vec::new(), report: None };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::from_borrowed_fd(room.events(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(ended),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(fault("poll", error.into())),
        }
        match room.next_event()? {
            (FromGuest::Exited { report, .. }, _) => {
                ended.report = Some(report);
                break;
            }
            (FromGuest::NotStarted { error, .. } | FromGuest::Failed { error }, _) => return Err(error),
            _ => {}
        }
    }
    // A probe says one line, which the pipe holds; whoever it left behind may keep the pipe open.
    let mut buffer = vec![0u8; 64 << 10];
    set_nonblocking(&out_read);
    if let Ok(read) = std::fs::File::from(out_read).read(&mut buffer) {
        ended.stdout = buffer[..read].to_vec();
    }
    Ok(ended)
}

/// A room next door with bait in it, alive until dropped.
struct Neighbour {
    _room: Room,
    _stdin: OwnedFd,
    canary: String,
    abstract_name: String,
}

impl Neighbour {
    fn start(spawner: &Spawner) -> Result<Neighbour, RoomError> {
        let number = rand_u32().map_err(|error| fault("randomness", error))?;
        let (canary, abstract_name) =
            (format!("neighbour-{number:08x}"), format!("workroom-neighbour-{number:08x}"));
        let room = spawner.create(&room_spec(&format!("neighbour-{number:08x}"), RoomUser::Agent)?)?;
        room.ready()?;
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| fault("pipe", error.into()));
        let ((in_read, in_write), (out_read, out_write)) = (pipe()?, pipe()?);
        let spec = command(&["attack-neighbour", &canary, &abstract_name], RoomUser::Agent);
        room.start(1, spec, &[in_read.as_fd(), out_write.as_fd(), out_write.as_fd()])?;
        drop((in_read, out_write));
        let mut said = [0u8; 6];
        std::fs::File::from(out_read)
            .read_exact(&mut said)
            .map_err(|error| fault("wait for the neighbour", error))?;
        Ok(Neighbour { _room: room, _stdin: in_write, canary, abstract_name })
    }
}

/// The host's number of a process that has `text` in its command line.
fn find_process(text: &str) -> Option<i32> {
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        line.windows(text.len()).any(|window| window == text.as_bytes()).then_some(pid)
    })
}

/// The case that is judged by what happens after its room is gone.
struct LeftBehind {
    dir: PathBuf,
    since: Instant,
}

impl LeftBehind {
    const CASE: &'static str = "daemon-left-behind";

    fn new() -> io::Result<LeftBehind> {
        let dir =
            std::env::temp_dir().join(format!("workroom-attack-{}-{:08x}", std::process::id(), rand_u32()?));
        std::fs::create_dir(&dir)?;
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755))?;
        Ok(LeftBehind { dir, since: Instant::now() })
    }

    fn settle(&self, chosen: &[&Case], outcomes: &mut [Outcome]) {
        let Some(at) = chosen.iter().position(|case| case.name == Self::CASE) else { return };
        // The daemon, had it survived, would write at a known time; nothing else can be waited for.
        std::thread::sleep(DAEMON_DELAY.saturating_sub(self.since.elapsed()));
        if self.dir.join("marker").exists() {
            outcomes[at] = Outcome::Breached("a daemon outlived its room".into());
        }
    }
}

impl Drop for LeftBehind {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn fault(what: &str, error: io::Error) -> RoomError {
    RoomError::new(ErrorCode::RoomSetup, format!("{what}: {error}"), "")
}

/// Inside a room: runs one probe and says what came of it.
pub(crate) fn probe(name: &str) -> ExitCode {
    let mut text = String::new();
    let context = match io::stdin().read_to_string(&mut text).map(|_| serde_json::from_str::<Context>(&text))
    {
        Ok(Ok(context)) => context,
        _ => Context::default(),
    };
    match run_probe(name, &context) {
        Some(outcome) => {
            println!("{}", serde_json::to_string(&outcome).unwrap_or_default());
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("workroom: there is no attack called \"{name}\"");
            ExitCode::from(crate::EXIT_FAULT)
        }
    }
}

/// Inside a room: lays bait for the others.
pub(crate) fn neighbour(canary: &str, abstract_name: &str) -> ExitCode {
    match be_a_neighbour(canary, abstract_name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
