//! Slots over HTTP: `bash true` through `/execute`, many clients at once, a trajectory; beside a server that runs bwrap for
//! every command.

use crate::guard;
use crate::http::Http;
use crate::latency::{Subject, WARM_UP, show_progress, take};
use crate::options::Options;
use crate::peers::{self, Peer};
use crate::report::{self, Budget, Ratio, Row, Table, say};
use crate::samples::Samples;
use crate::served::Served;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const ROWS: [(&str, &str); 12] = [
    ("bare", "bash -c true, no room, in a row"),
    ("bare-first", "bash -c true, no room, after other work"),
    ("bwrap", "bwrap bash -c true, in a row"),
    ("bwrap-first", "bwrap bash -c true, after other work"),
    ("slot", "slots: bash true through /execute, in a row"),
    ("slot-first", "slots: bash true through /execute, after other work"),
    ("peer", "a server that runs bwrap for every command, in a row"),
    ("peer-first", "the server that runs bwrap, after other work"),
    ("stateful", "slots: true in the slot's terminal"),
    ("reset", "slots: /reset"),
    ("trajectory", "slots: 50 actions: write, run, read, search, patch"),
    ("peer-trajectory", "the same of the other server"),
];

const BUDGETS: [Budget; 5] = [
    Budget { of: "slot", against: "peer", ratio: Ratio::AtMost(0.2) },
    Budget { of: "slot-first", against: "peer-first", ratio: Ratio::AtMost(0.2) },
    Budget { of: "slot", against: "bare", ratio: Ratio::AtMost(1.5) },
    Budget { of: "slot", against: "bwrap", ratio: Ratio::Below(1.0) },
    Budget { of: "trajectory", against: "peer-trajectory", ratio: Ratio::Below(1.0) },
];

const CLIENTS: [usize; 3] = [1, 8, 64];
const SLICE: Duration = Duration::from_secs(2);

/// As many as there are clients at once.
const SLOTS: usize = 64;

pub(crate) fn run(options: &Options, rounds: usize) -> Result<(), String> {
    let scratch = guard::scratch().map_err(|error| format!("no temporary directory: {error}"))?;
    let program = peers::find_workroom(options.workroom.as_deref())?;
    let ours = Served::slots(&program, &scratch.join("slots"), SLOTS)?;
    let peer = start_peer(&scratch);
    let mut facts = Map::new();
    latencies((&ours, peer.as_ref()), &scratch, rounds, &mut facts)?;
    facts.insert("rates".into(), rates(&ours, peer.as_ref().ok())?);
    facts.insert("machine".into(), report::machine());
    facts.insert("rounds".into(), rounds.into());
    report::keep(options, "-slot-server", &Value::Object(facts))
}

fn start_peer(scratch: &Path) -> Result<Served, String> {
    let empty = scratch.join("empty");
    std::fs::create_dir(&empty).map_err(|error| format!("no temporary directory: {error}"))?;
    let mut words = vec![SLOTS.to_string(), scratch.join("peer").to_string_lossy().into_owned()];
    words.extend(peers::bwrap_line(&peers::find_bwrap()?, &empty));
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/slot_server.py"));
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("slot_server.py")));
    let script = beside.filter(|path| path.exists()).unwrap_or_else(|| script.to_owned());
    let served = Served::python(&script, &words)?;
    execute(&mut served.connect()?, 0, "bash", &json!({ "command": "true" }))?;
    Ok(served)
}

/// One tool in one slot, which must succeed: what it says.
fn execute(http: &mut Http, slot: usize, tool: &str, args: &Value) -> Result<String, String> {
    let request = json!({ "slot_id": format!("slot_{slot}"), "tool": tool, "args": args });
    let answer = http.ask("POST", "/execute", &request.to_string())?;
    match answer["success"] == true {
        true => Ok(answer["output"].as_str().unwrap_or_default().to_owned()),
        false => Err(format!("{tool} failed: {answer}")),
    }
}

fn latencies(
    (ours, peer): (&Served, Result<&Served, &String>),
    scratch: &Path,
    rounds: usize,
    facts: &mut Map<String, Value>,
) -> Result<(), String> {
    let rows = ROWS.map(|(key, label)| Row { key, label, samples: Samples::default() });
    let mut table = Table { rows: rows.into(), skipped: Vec::new() };
    let slots = RefCell::new(ours.connect()?);
    let other = peer.map_err(Clone::clone).and_then(Served::connect).map(RefCell::new);
    let bash = Peer::of("/bin/bash", &["--norc", "-c", "true"]);
    let nothing = json!({ "command": "true" });
    let timed = |work: &dyn Fn() -> Result<(), String>| {
        let started = Instant::now();
        work()?;
        Ok(vec![started.elapsed()])
    };
    let mut subjects = vec![
        Subject::in_a_row(&["bare-first", "bare"], || bash.sample()),
        Subject::in_a_row(&["slot-first", "slot"], || {
            let started = Instant::now();
            execute(&mut slots.borrow_mut(), 0, "bash", &nothing)?;
            Ok(started.elapsed())
        }),
        Subject::new(&["stateful"], || {
            timed(&|| execute(&mut slots.borrow_mut(), 1, "bash_stateful", &nothing).map(drop))
        }),
        Subject::new(&["reset"], || {
            execute(&mut slots.borrow_mut(), 2, "bash", &nothing)?;
            timed(&|| slots.borrow_mut().ask("POST", "/reset", r#"{"slot_id": "slot_2"}"#).map(drop))
        }),
        Subject::new(&["trajectory"], || timed(&|| trajectory(&mut slots.borrow_mut(), 3))),
    ];
    match peers::find_bwrap() {
        Ok(program) => {
            let bwrap = Peer::bwrap(&program, &scratch.join("empty"), &["/bin/bash", "-c", "true"]);
            subjects.push(Subject::in_a_row(&["bwrap-first", "bwrap"], move || bwrap.sample()));
        }
        Err(why) => table.skipped.push(("bwrap", why)),
    }
    match &other {
        Ok(other) => {
            subjects.push(Subject::in_a_row(&["peer-first", "peer"], || {
                let started = Instant::now();
                execute(&mut other.borrow_mut(), 0, "bash", &nothing)?;
                Ok(started.elapsed())
            }));
            subjects.push(Subject::new(&["peer-trajectory"], || {
                timed(&|| trajectory(&mut other.borrow_mut(), 3))
            }));
        }
        Err(why) => {
            table.skipped.extend([("peer", why.clone()), ("peer-trajectory", why.clone())]);
        }
    }
    for round in 0..WARM_UP + rounds {
        if round == WARM_UP {
            table.rows.iter_mut().for_each(|row| row.samples.clear());
        }
        subjects.retain_mut(|subject| take(subject, &mut table));
        show_progress(round, WARM_UP + rounds);
    }
    drop(subjects);
    table.print(&BUDGETS);
    facts.insert("table".into(), table.json(&BUDGETS));
    Ok(())
}

/// Fifty actions of one slot: ten times a file is written, run, read, searched and patched.
fn trajectory(http: &mut Http, slot: usize) -> Result<(), String> {
    for turn in 0..10 {
        let path = format!("work/{turn}.sh");
        let content = format!("value={turn}\necho $value\n");
        execute(http, slot, "write_file", &json!({ "path": path, "content": content }))?;
        let said = execute(http, slot, "bash", &json!({ "command": format!("sh {path}") }))?;
        let read = execute(http, slot, "read_file", &json!({ "path": path }))?;
        execute(http, slot, "bash", &json!({ "command": format!("grep -rl value={turn} work") }))?;
        execute(http, slot, "bash", &json!({ "command": format!("sed -i 's/echo/printf/' {path}") }))?;
        if said != turn.to_string() || read != content {
            return Err(format!("{said:?} and {read:?} are not what was written"));
        }
        guard::alive();
    }
    Ok(())
}

/// Commands that several clients run at once, each in a slot of its own.
fn rates(ours: &Served, peer: Option<&Served>) -> Result<Value, String> {
    say!("\n{:<40}{:>14}{:>14}", "clients", "slots/s", "bwrap/s");
    let mut rates = Vec::new();
    for clients in CLIENTS {
        let own = together(ours, clients)?;
        let others = peer.map(|peer| together(peer, clients)).transpose()?;
        say!("{clients:<40}{own:>14.0}{:>14.0}", others.unwrap_or(f64::NAN));
        rates.push(json!({
            "clients": clients,
            "commands_per_second": own,
            "commands_per_second_with_bwrap": others,
        }));
    }
    Ok(rates.into())
}

fn together(served: &Served, clients: usize) -> Result<f64, String> {
    let start = Barrier::new(clients);
    let nothing = json!({ "command": "true" });
    let work = |slot: usize| -> Result<f64, String> {
        let prepared = served.connect().and_then(|mut http| {
            execute(&mut http, slot, "bash", &nothing)?;
            Ok(http)
        });
        start.wait();
        let mut http = prepared?;
        let (started, mut done) = (Instant::now(), 0u32);
        while started.elapsed() < SLICE {
            execute(&mut http, slot, "bash", &nothing)?;
            done += 1;
            guard::alive();
        }
        Ok(f64::from(done) / started.elapsed().as_secs_f64())
    };
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..clients).map(|slot| scope.spawn(move || work(slot))).collect();
        let ended = workers.into_iter();
        ended.map(|worker| worker.join().unwrap_or_else(|_| Err("a client failed".into()))).sum()
    })
}
