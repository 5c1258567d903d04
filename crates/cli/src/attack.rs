//! `workroom doctor --attack`: every hostile probe, each in a room of its own, with bait around it.
//!
//! The probes are in this very binary, which each room sees read-only; what they attack is laid out by this
//! process and by a neighbour in another room. This process executes itself first, such that its environment and
//! descriptors hold canaries, as a careless caller's would.

mod probing;
mod stop;
mod surroundings;

use crate::output;
use crate::plan::layers;
use crate::remote::{Failure, complain};
use crate::table::Table;
use probing::{Ended, MOST_OUTPUT, PATIENCE, PROGRAMS, command, limits_for, room_spec};
use serde_json::json;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use stop::{Signals, Stop, fault};
use surroundings::{LeftBehind, Neighbour, bare, find_process};
use workroom_attacks::bait::{HostBait, be_a_neighbour};
use workroom_attacks::{Case, Context, Outcome, cases, run_probe};
use workroom_room::Spawner;
use workroom_types::{
    Enforced, ErrorCode, Layer, LayerSet, LayerState, Lifetime, Limits, RoomError, RoomUser, Workspace,
};

/// Set in the environment of the process that attacks.
const CANARY: &str = "WORKROOM_ATTACK_CANARY";

/// The case that does not end by itself.
const ENDLESS: &str = "endless-output";

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
        Ok(canary) => Signals::watch().map_err(Stop::from).and_then(|signals| {
            // A terminal signals rooms in the making too: that they fail is not why it ends.
            attack(&canary, &options, &signals).map_err(|stop| signals.check().err().unwrap_or(stop))
        }),
        Err(_) => Err(fault("start the attacker", execute_with_canaries()).into()),
    };
    match result {
        Ok((chosen, outcomes)) => report(&chosen, &outcomes, options.json),
        Err(Stop::Signal(signal)) => {
            complain("the attacks were interrupted; all that they had laid out is taken away");
            ExitCode::from(128 + signal)
        }
        Err(Stop::Fault(error)) => {
            complain(&error.to_string());
            ExitCode::from(crate::EXIT_FAULT)
        }
    }
}

/// Becomes this program again, careless: a secret in its environment and a descriptor that nobody closed. Only an error
/// comes back.
fn execute_with_canaries() -> io::Error {
    let mut bytes = [0u8; 4];
    if let Err(error) = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        return error.into();
    }
    let canary = format!("canary-{:08x}-{}", u32::from_ne_bytes(bytes), std::process::id());
    let _leaked = match rustix::pipe::pipe() {
        Ok(pipe) => pipe,
        Err(error) => return error.into(),
    };
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "workroom".into());
    Command::new("/proc/self/exe").arg0(name).args(arguments).env(CANARY, canary).exec()
}

/// Everything that was laid out is taken away again when this returns.
fn attack(
    canary: &str,
    options: &Options,
    signals: &Signals,
) -> Result<(Vec<&'static Case>, Vec<Outcome>), Stop> {
    let users: &[RoomUser] = match options.user.as_deref() {
        Some("root") => &[RoomUser::Root],
        Some(_) => &[RoomUser::Agent],
        None => &[RoomUser::Agent, RoomUser::Root],
    };
    let without = layers("--without", &options.without)?;
    let chosen = choose(&options.only)?;
    let left_behind = LeftBehind::new().map_err(|error| fault("make a directory", error))?;
    let bait = HostBait::lay(canary, &left_behind.dir).map_err(|error| fault("lay bait", error))?;
    let spawner = Spawner::start()?;
    let neighbour = if options.bare {
        bait.show_programs().map_err(|error| fault("lay bait", error))?;
        Neighbour::bare(&left_behind.program().map_err(|error| fault("copy this program", error))?)?
    } else {
        Neighbour::in_a_room(&spawner, without)?
    };
    let mut context = bait.context.clone();
    neighbour.names.tell(&mut context);
    context.neighbour_pid = find_process(&neighbour.names.canary);

    let mut attacker = Attacker {
        spawner: &spawner,
        signals,
        bait: &bait,
        context,
        without,
        left_behind: &left_behind,
        number: 0,
    };
    let mut outcomes = Vec::new();
    for case in &chosen {
        if options.bare {
            outcomes.push(attacker.try_bare(case)?);
            continue;
        }
        let mut worst = attacker.try_case(case, users[0])?;
        for user in &users[1..] {
            worst = worse(worst, attacker.try_case(case, *user)?, *user);
        }
        outcomes.push(worst);
    }
    left_behind.settle(&chosen, &mut outcomes, signals)?;
    signals.check()?;
    drop(neighbour);
    spawner.finish()?;
    Ok((chosen, outcomes))
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

fn report(chosen: &[&Case], outcomes: &[Outcome], as_json: bool) -> ExitCode {
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
    let written = if as_json {
        output::json(&json!({"cases": rows, "breached": breached}))
    } else {
        output::text(&format!("{table}{} cases, {breached} breached\n", chosen.len()))
    };
    match written {
        // Whoever has read enough still wants to know whether a wall fell.
        Ok(()) | Err(Failure::ReaderGone) if breached == 0 => ExitCode::SUCCESS,
        Ok(()) | Err(Failure::ReaderGone) => ExitCode::FAILURE,
        Err(failure) => failure.report(false),
    }
}

struct Attacker<'a> {
    spawner: &'a Spawner,
    signals: &'a Signals,
    bait: &'a HostBait,
    context: Context,
    without: LayerSet,
    left_behind: &'a LeftBehind,
    number: u32,
}

impl Attacker<'_> {
    /// One case in one room, from its making to its end.
    fn try_case(&mut self, case: &Case, user: RoomUser) -> Result<Outcome, Stop> {
        self.signals.check()?;
        self.number += 1;
        let id = format!("attack-{}-{}", std::process::id(), self.number);
        let limits = limits_for(case.name);
        let mut spec = room_spec(&id, user, limits, self.bait.programs.as_deref())?;
        spec.without = self.without;
        spec.lifetime = Lifetime::FirstCommand;
        let leaves_daemon = case.name == LeftBehind::CASE;
        if leaves_daemon {
            spec.workspace = Some(Workspace { source: self.left_behind.workspace(), read_only: false });
        }
        let room = self.spawner.create(&spec)?;
        let enforced = room.ready()?;
        let mut context = self.context_for(&enforced, limits, leaves_daemon);
        context.programs = self.bait.programs.as_ref().map(|_| PROGRAMS.to_owned());
        let input = serde_json::to_vec(&context).unwrap_or_default();
        let ours = [Some(std::process::id()), Some(self.spawner.pid()), probing::number_of(room.death())];
        let before = probing::resident(&ours);
        let command = command(&["attack-probe", case.name], user);
        let ended = probing::run_to_end(&room, command, &input, self.signals);
        let kept = probing::resident(&ours).saturating_sub(before);
        room.kill();
        drop(room);
        self.spawner.wait_gone(&spec.id)?;
        match ended {
            Ok(ended) if case.name == ENDLESS => Ok(judge_flood(ended.said.total(), kept)),
            Ok(ended) => Ok(judge(case, &ended)),
            Err(Stop::Fault(error)) if error.code == ErrorCode::RoomGone => {
                Ok(Outcome::Breached("the room died of it".into()))
            }
            Err(stop) => Err(stop),
        }
    }

    /// The same without a room: what an ordinary user of this machine could do.
    fn try_bare(&self, case: &Case) -> Result<Outcome, Stop> {
        let program = self.left_behind.program().map_err(|error| fault("copy this program", error))?;
        let everything: Enforced = Enforced(
            [Layer::Memory, Layer::Pids, Layer::Cpu]
                .map(|layer| (layer, LayerState::Enforced("nothing".into())))
                .to_vec(),
        );
        let mut context = self.context_for(&everything, limits_for(case.name), false);
        context.programs =
            self.bait.programs.as_ref().map(|programs| programs.to_string_lossy().into_owned());
        let input = serde_json::to_vec(&context).unwrap_or_default();
        let ours = [Some(std::process::id())];
        let before = probing::resident(&ours);
        let said = probing::run_bare(bare(&program, &["attack-probe", case.name]), &input, self.signals)?;
        if case.name == ENDLESS {
            return Ok(judge_flood(said.total(), probing::resident(&ours).saturating_sub(before)));
        }
        Ok(serde_json::from_str(&said.text())
            .unwrap_or(Outcome::Breached("the probe died without a word".into())))
    }

    /// Tells a probe only of limits that the room claims to keep.
    fn context_for(&self, enforced: &Enforced, limits: Limits, leaves_daemon: bool) -> Context {
        let kept = |layer, limit: Option<u64>| {
            limit.filter(|_| enforced.holds(layer) || self.without.contains(layer))
        };
        Context {
            memory_limit: kept(Layer::Memory, limits.memory),
            pids_limit: kept(Layer::Pids, limits.pids),
            disk_limit: Some(limits.disk),
            inode_limit: Some(limits.disk / 4096),
            cpus_milli: kept(Layer::Cpu, limits.cpus_milli),
            open_files: Some(limits.open_files),
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
    if let Ok(outcome) = serde_json::from_str(&ended.said.text()) {
        return outcome;
    }
    match &ended.report {
        Some(report) if report.usage.oom_kills > 0 && matches!(case.class, "memory" | "limits") => {
            Outcome::Held("killed: out of the room's memory".into())
        }
        Some(report) => Outcome::Breached(format!("the probe died without a word: {:?}", report.exit)),
        None if ended.said.total() >= MOST_OUTPUT => {
            Outcome::Breached("the probe said more than anybody wants to know".into())
        }
        None => Outcome::Breached(format!("the probe did not end within {PATIENCE:?}")),
    }
}

/// A command that writes without end costs the machine nothing but the time of whoever reads it.
fn judge_flood(written: u64, kept: u64) -> Outcome {
    let (written, kept) = (written >> 20, kept >> 20);
    match written {
        0..16 => Outcome::Skipped(format!("only {written} MiB came in the time")),
        _ if kept > written / 4 => Outcome::Breached(format!("{kept} MiB are kept of {written}")),
        _ => Outcome::Held(format!("stopped at {written} MiB, of which {kept} are kept")),
    }
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
            let _ = output::json(&outcome);
            ExitCode::SUCCESS
        }
        None => {
            complain(&format!("there is no attack called \"{name}\""));
            ExitCode::from(crate::EXIT_FAULT)
        }
    }
}

/// Inside a room: lays bait for the others.
pub(crate) fn neighbour(canary: &str) -> ExitCode {
    match be_a_neighbour(canary) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
