//! The main table: in each round one sample of everything, so that whatever else the machine does meets all.

use crate::floor::Floor;
use crate::guard;
use crate::options::{Cgroups, Options};
use crate::peers::{self, ORDINARY_USER, Peer};
use crate::report::{self, Budget, Ratio, Row, Table, say};
use crate::rooms::{Rooms, words};
use crate::samples::Samples;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

/// Rounds before the first that counts: caches, and the spawner's own start.
pub(crate) const WARM_UP: usize = 5;

/// Every row there can be, in the order of the table.
const ROWS: [(&str, &str); 17] = [
    ("bare", "bare spawn+wait of true"),
    ("exec", "room: exec of true in a live room"),
    ("floor-create", "floor: create"),
    ("create", "room: create"),
    ("create-unlimited", "room: create, no cgroup limits (as the floor)"),
    ("floor-end", "floor: end"),
    ("end", "room: end"),
    ("end-unlimited", "room: end, no cgroup limits (as the floor)"),
    ("floor-first", "floor: create + first command + gone"),
    ("first-gone", "room: create + first command + gone"),
    ("first-exit", "room: create + first command + its exit"),
    ("bwrap", "bwrap"),
    ("run", "workroom run"),
    ("run-unlimited", "workroom run, no cgroup limits (what bwrap has)"),
    ("user-bwrap", "ordinary user: bwrap"),
    ("user-run", "ordinary user: workroom run"),
    ("user-run-unlimited", "ordinary user: workroom run, no cgroup limits"),
];

const FASTER: Ratio = Ratio::Below(1.0);

const BUDGETS: [Budget; 8] = [
    Budget { of: "exec", against: "bare", ratio: Ratio::AtMost(1.5) },
    Budget { of: "create", against: "floor-create", ratio: Ratio::AtMost(2.5) },
    Budget { of: "create-unlimited", against: "floor-create", ratio: Ratio::AtMost(2.5) },
    Budget { of: "first-gone", against: "floor-first", ratio: Ratio::AtMost(2.5) },
    Budget { of: "run", against: "bwrap", ratio: FASTER },
    Budget { of: "run-unlimited", against: "bwrap", ratio: FASTER },
    Budget { of: "user-run", against: "user-bwrap", ratio: FASTER },
    Budget { of: "user-run-unlimited", against: "user-bwrap", ratio: FASTER },
];

/// Something measured, and the rows that one sample of it fills.
pub(crate) struct Subject<'a> {
    rows: &'static [&'static str],
    sample: Box<dyn FnMut() -> Result<Vec<Duration>, String> + 'a>,
}

/// How often something is done in a row that callers do in a row.
const IN_A_ROW: usize = 5;

impl<'a> Subject<'a> {
    pub(crate) fn new(
        rows: &'static [&'static str],
        sample: impl FnMut() -> Result<Vec<Duration>, String> + 'a,
    ) -> Subject<'a> {
        Subject { rows, sample: Box::new(sample) }
    }

    /// Done several times in a row. The first row has the first time, which comes after everything else that is measured; the
    /// second row has the median of the others.
    pub(crate) fn in_a_row(
        rows: &'static [&'static str; 2],
        mut sample: impl FnMut() -> Result<Duration, String> + 'a,
    ) -> Subject<'a> {
        Subject::new(rows, move || {
            let first = sample()?;
            let mut others = (1..IN_A_ROW).map(|_| sample()).collect::<Result<Vec<_>, _>>()?;
            others.sort_unstable();
            Ok(vec![first, others[others.len() / 2]])
        })
    }
}

pub(crate) fn run(options: &Options, rounds: usize) -> Result<(), String> {
    let scratch = guard::scratch().map_err(|error| format!("no temporary directory: {error}"))?;
    let empty = scratch.join("empty");
    std::fs::create_dir(&empty).map_err(|error| format!("no temporary directory: {error}"))?;
    let rows = ROWS.map(|(key, label)| Row { key, label, samples: Samples::default() });
    let mut table = Table { rows: rows.into(), skipped: Vec::new() };
    let mut facts = Map::new();

    let floor = RefCell::new(Floor::start()?);
    let rooms = Rooms::start(Cgroups::AsUsual)?;
    let live = rooms.ask()?;
    live.ready().map_err(words)?;
    facts.insert("memory_limit".into(), rooms.memory_limit()?.into());
    let mut mounts = json!({"floor": floor.borrow_mut().mounts()?, "room": rooms.mounts()?});

    let pair = |(first, second)| vec![first, second];
    let one = |time| vec![time];
    let bare = Peer::bare();
    let mut subjects = vec![
        Subject::new(&["bare"], move || bare.sample().map(one)),
        Subject::new(&["floor-create", "floor-end"], || floor.borrow_mut().create().map(pair)),
        Subject::new(&["create", "end"], || rooms.create().map(pair)),
        Subject::new(&["create-unlimited", "end-unlimited"], || rooms.create_unlimited().map(pair)),
        Subject::new(&["floor-first"], || floor.borrow_mut().first_command().map(one)),
        Subject::new(&["first-exit", "first-gone"], || rooms.first_command().map(pair)),
        Subject::new(&["exec"], || rooms.exec(&live).map(one)),
    ];
    for (key, peer) in whole_processes(options, &scratch, &empty, &mut table, &mut facts, &mut mounts) {
        subjects.push(Subject::new(key, move || peer.sample().map(one)));
    }
    facts.insert("mounts".into(), mounts);

    for round in 0..WARM_UP + rounds {
        if round == WARM_UP {
            table.rows.iter_mut().for_each(|row| row.samples.clear());
        }
        subjects.retain_mut(|subject| take(subject, &mut table));
        show_progress(round, WARM_UP + rounds);
    }
    drop(subjects);
    drop(live);

    say!("mounts: {}", facts["mounts"]);
    say!("memory limit of rooms: {}\n", facts["memory_limit"].as_str().unwrap_or_default());
    table.print(&BUDGETS);
    facts.insert("machine".into(), report::machine());
    facts.insert("rounds".into(), rounds.into());
    facts.insert("table".into(), table.json(&BUDGETS));
    report::keep(options, "", &Value::Object(facts))
}

/// One sample; says whether to go on with this subject.
pub(crate) fn take(subject: &mut Subject<'_>, table: &mut Table) -> bool {
    guard::alive();
    match (subject.sample)() {
        Ok(times) => {
            for (key, time) in subject.rows.iter().zip(times) {
                if let Some(row) = table.row(key) {
                    row.samples.push(time);
                }
            }
            true
        }
        Err(why) => {
            for &key in subject.rows {
                if let Some(row) = table.row(key) {
                    // A row that failed once is not a row of figures.
                    row.samples.clear();
                }
                table.skipped.push((key, why.clone()));
            }
            false
        }
    }
}

/// bwrap and `workroom run`, as the caller and, for root, as an ordinary user too.
fn whole_processes(
    options: &Options,
    scratch: &Path,
    empty: &Path,
    table: &mut Table,
    facts: &mut Map<String, Value>,
    mounts: &mut Value,
) -> Vec<(&'static [&'static str], Peer)> {
    let as_root = rustix::process::geteuid().is_root();
    let mut found: Vec<(&'static [&'static str], Peer)> = Vec::new();
    match peers::find_bwrap() {
        Ok(program) => {
            let count = |peer: Peer| peer.output().map_or(0, |text| text.lines().count());
            let cat = Peer::bwrap(&program, empty, &["/usr/bin/cat", "/proc/self/mountinfo"]);
            mounts["bwrap"] = count(cat.clone()).into();
            let peer = Peer::bwrap(&program, empty, &[peers::TRUE]);
            facts.insert("bwrap_command".into(), peer.line().into());
            if as_root {
                mounts["user-bwrap"] = count(cat.for_user(ORDINARY_USER)).into();
                found.push((&["user-bwrap"], peer.clone().for_user(ORDINARY_USER)));
            }
            found.push((&["bwrap"], peer));
        }
        Err(why) => table.skipped.push(("bwrap", why)),
    }
    let unlimited = ["--without", "memory,pids"];
    let workroom = peers::find_workroom(options.workroom.as_deref());
    let for_others = workroom.clone().and_then(|program| peers::reachable(&program, scratch));
    match workroom {
        Ok(program) => {
            found.push((&["run"], Peer::workroom(&program, &[])));
            found.push((&["run-unlimited"], Peer::workroom(&program, &unlimited)));
        }
        Err(why) => table.skipped.push(("run", why)),
    }
    match for_others {
        Ok(program) if as_root => {
            let run = |options| Peer::workroom(&program, options).for_user(ORDINARY_USER);
            found.push((&["user-run"], run(&[])));
            found.push((&["user-run-unlimited"], run(&unlimited)));
        }
        Ok(_) => {}
        Err(why) => table.skipped.push(("user-run", why)),
    }
    found
}

pub(crate) fn show_progress(round: usize, of: usize) {
    use std::io::{IsTerminal, Write};
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let end = if round + 1 == of { "\r\x1b[K" } else { "" };
        let _ = write!(terminal, "\rround {} of {of}{end}", round + 1);
        let _ = terminal.flush();
    }
}
