//! Sessions over HTTP: commands, creations, many clients at once; beside a bare spawn, the floor and bwrap.

use crate::floor::Floor;
use crate::guard;
use crate::http::Http;
use crate::latency::{Subject, WARM_UP, show_progress, take};
use crate::options::Options;
use crate::peers::{self, Peer, TRUE};
use crate::report::{self, Budget, Ratio, Row, Table, say};
use crate::samples::Samples;
use crate::served::Served;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const ROWS: [(&str, &str); 17] = [
    ("bare", "bare spawn+wait of true, in a row"),
    ("bare-first", "bare spawn+wait of true, after other work"),
    ("health", "HTTP: GET /healthz, kept connection"),
    ("exec", "HTTP: exec of true, kept connection, in a row"),
    ("exec-first", "HTTP: exec of true, kept connection, after other work"),
    ("exec-shell", "HTTP: exec through the shell, with output"),
    ("bwrap", "bwrap, in a row"),
    ("bwrap-first", "bwrap, after other work"),
    ("python", "HTTP: a Python server that runs bwrap, in a row"),
    ("python-first", "HTTP: the Python server, after other work"),
    ("floor-first", "floor: create + first command + gone"),
    ("create", "HTTP: create a session, until its room stands"),
    ("first", "HTTP: create a session + its first command's output"),
    ("delete", "HTTP: delete a session and its room"),
    ("show", "HTTP: show a session"),
    ("show-none", "HTTP: show a session that there is not, 404"),
    ("show-other", "HTTP: show somebody else's session, 404"),
];

const BUDGETS: [Budget; 6] = [
    Budget { of: "exec", against: "bare", ratio: Ratio::AtMost(1.5) },
    Budget { of: "exec-first", against: "bare-first", ratio: Ratio::AtMost(1.5) },
    Budget { of: "exec", against: "python", ratio: Ratio::AtMost(0.2) },
    Budget { of: "exec-first", against: "python-first", ratio: Ratio::AtMost(0.2) },
    Budget { of: "first", against: "floor-first", ratio: Ratio::AtMost(2.5) },
    Budget { of: "exec", against: "bwrap", ratio: Ratio::Below(1.0) },
];

const CLIENTS: [usize; 3] = [1, 8, 64];
const SLICE: Duration = Duration::from_secs(2);
const BURST: usize = 100;
const BURSTS: usize = 5;

pub(crate) fn run(options: &Options, rounds: usize) -> Result<(), String> {
    let scratch = guard::scratch().map_err(|error| format!("no temporary directory: {error}"))?;
    let empty = scratch.join("empty");
    std::fs::create_dir(&empty).map_err(|error| format!("no temporary directory: {error}"))?;
    let program = peers::find_workroom(options.workroom.as_deref())?;
    let served = Served::workroom(&program, &scratch.join("state"))?;
    let mut facts = Map::new();
    latencies(&served, &empty, rounds, &mut facts)?;
    let rates = rates(&served)?;
    let bursts = bursts(&served)?;
    say!("\nmemory of the server: {} KiB", resident(served.pid()));
    facts.insert("machine".into(), report::machine());
    facts.insert("rounds".into(), rounds.into());
    facts.insert("rates".into(), rates);
    facts.insert("burst".into(), json!({"sessions": BURST, "wall_ms": bursts}));
    facts.insert("server_kib".into(), resident(served.pid()).into());
    report::keep(options, "-sessions", &Value::Object(facts))
}

fn latencies(
    served: &Served,
    empty: &Path,
    rounds: usize,
    facts: &mut Map<String, Value>,
) -> Result<(), String> {
    let rows = ROWS.map(|(key, label)| Row { key, label, samples: Samples::default() });
    let mut table = Table { rows: rows.into(), skipped: Vec::new() };
    let http = RefCell::new(served.connect()?);
    let live = create(&mut http.borrow_mut())?;
    let floor = RefCell::new(Floor::start()?);
    let bare = Peer::bare();
    let one = |time| vec![time];
    let ask = |method: &str, path: &str, body: &str| {
        let started = Instant::now();
        http.borrow_mut().ask(method, path, body)?;
        Ok::<_, String>(vec![started.elapsed()])
    };
    let (exec, show) = (format!("/v1/sessions/{live}/exec"), format!("/v1/sessions/{live}"));
    let stranger = RefCell::new(served.connect_as(&user_token(&mut http.borrow_mut())?)?);
    // As long as a real one, and made of the same signs.
    let none = format!("{}00000000", &show[..show.len() - 8]);
    let refused = |path: &str| {
        let started = Instant::now();
        let status = stranger.borrow_mut().request("GET", path, "")?.status;
        let took = started.elapsed();
        if status == 404 { Ok(vec![took]) } else { Err(format!("GET {path} as a stranger: {status}")) }
    };
    let argv = json!({"argv": [TRUE]}).to_string();
    let shell = json!({"command": "echo hello"}).to_string();
    let bwrap = peers::find_bwrap();
    let python = bwrap.clone().and_then(|program| {
        let line = peers::bwrap_line(&program, empty);
        let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/bwrap_server.py"));
        let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("bwrap_server.py")));
        let script = beside.filter(|path| path.exists()).unwrap_or_else(|| script.to_owned());
        let served = Served::python(&script, &line)?;
        served.connect().map(|http| (served, RefCell::new(http)))
    });
    let mut is_first = false;
    let mut subjects = vec![
        Subject::in_a_row(&["bare-first", "bare"], move || bare.sample()),
        Subject::new(&["health"], || ask("GET", "/healthz", "")),
        Subject::in_a_row(&["exec-first", "exec"], || {
            let started = Instant::now();
            http.borrow_mut().ask("POST", &exec, &argv)?;
            Ok(started.elapsed())
        }),
        Subject::new(&["exec-shell"], || ask("POST", &exec, &shell)),
        Subject::new(&["show"], || ask("GET", &show, "")),
        Subject::new(&["show-none", "show-other"], || {
            // Who comes second finds caches warm: they take turns.
            is_first = !is_first;
            let (first, second) = if is_first { (&none, &show) } else { (&show, &none) };
            let mut times = [refused(first)?, refused(second)?].concat();
            if !is_first {
                times.reverse();
            }
            Ok(times)
        }),
        Subject::new(&["floor-first"], || floor.borrow_mut().first_command().map(one)),
        Subject::new(&["create", "first", "delete"], || create_and_delete(&mut http.borrow_mut(), &argv)),
    ];
    match &bwrap {
        Ok(program) => {
            let peer = Peer::bwrap(program, empty, &[TRUE]);
            subjects.push(Subject::in_a_row(&["bwrap-first", "bwrap"], move || peer.sample()));
        }
        Err(why) => table.skipped.push(("bwrap", why.clone())),
    }
    match &python {
        Ok((_, http)) => subjects.push(Subject::in_a_row(&["python-first", "python"], || {
            let started = Instant::now();
            http.borrow_mut().ask("POST", "/exec", &argv)?;
            Ok(started.elapsed())
        })),
        Err(why) => table.skipped.push(("python", why.clone())),
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

fn create(http: &mut Http) -> Result<String, String> {
    let session = http.ask("POST", "/v1/sessions", "{}")?;
    session["id"].as_str().map(str::to_owned).ok_or_else(|| "a session without an id".into())
}

/// Of somebody who has no session.
fn user_token(http: &mut Http) -> Result<String, String> {
    let token = http.ask("POST", "/v1/tokens", &json!({"scope": "user", "owner": "stranger"}).to_string())?;
    token["token"].as_str().map(str::to_owned).ok_or_else(|| "a token without a text".into())
}

/// Until the room stands; until the first command's output is here; and, apart, until all is gone.
fn create_and_delete(http: &mut Http, command: &str) -> Result<Vec<Duration>, String> {
    let started = Instant::now();
    let id = create(http)?;
    let created = started.elapsed();
    http.ask("POST", &format!("/v1/sessions/{id}/exec"), command)?;
    let first = started.elapsed();
    let deleting = Instant::now();
    http.ask("DELETE", &format!("/v1/sessions/{id}"), "")?;
    Ok(vec![created, first, deleting.elapsed()])
}

/// Sessions made, and commands run, by several clients at once.
fn rates(served: &Served) -> Result<Value, String> {
    say!("\n{:<40}{:>14}{:>14}", "clients", "creates/s", "execs/s");
    let mut rates = Vec::new();
    for clients in CLIENTS {
        let creates = together(served, clients, |http, _| create(http).map(drop))?;
        let body = json!({"argv": [TRUE]}).to_string();
        let execs = together(served, clients, |http, session| {
            http.ask("POST", &format!("/v1/sessions/{session}/exec"), &body).map(drop)
        })?;
        say!("{clients:<40}{creates:>14.0}{execs:>14.0}");
        rates.push(json!({"clients": clients, "creates_per_second": creates, "execs_per_second": execs}));
    }
    Ok(rates.into())
}

/// How often a second all clients together do something, each with a session of its own.
fn together(
    served: &Served,
    clients: usize,
    action: impl Fn(&mut Http, &str) -> Result<(), String> + Sync,
) -> Result<f64, String> {
    let start = Barrier::new(clients);
    let work = || -> Result<f64, String> {
        let prepared = served.connect().and_then(|mut http| create(&mut http).map(|id| (http, id)));
        start.wait();
        let (mut http, session) = prepared?;
        let (started, mut done) = (Instant::now(), 0u32);
        while started.elapsed() < SLICE {
            action(&mut http, &session)?;
            done += 1;
            guard::alive();
        }
        Ok(f64::from(done) / started.elapsed().as_secs_f64())
    };
    let total = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..clients).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err("a client failed".into())))
            .sum::<Result<f64, String>>()
    });
    served.clear();
    total
}

/// So many clients that each make one session at the same moment, until all have one.
fn bursts(served: &Served) -> Result<Vec<f64>, String> {
    let mut walls = Vec::new();
    for _ in 0..BURSTS {
        let start = Barrier::new(BURST + 1);
        let wall = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..BURST)
                .map(|_| {
                    scope.spawn(|| {
                        let http = served.connect();
                        start.wait();
                        let started = Instant::now();
                        create(&mut http?).map(|_| started)
                    })
                })
                .collect();
            start.wait();
            // By the clients' own word: this thread may be the last to get a processor.
            let mut started = Instant::now();
            for worker in workers {
                started = started.min(worker.join().unwrap_or_else(|_| Err("a client failed".into()))?);
            }
            Ok::<_, String>(started.elapsed())
        })?;
        walls.push(wall.as_secs_f64() * 1000.0);
        served.clear();
    }
    let line: Vec<String> = walls.iter().map(|wall| format!("{wall:.0}")).collect();
    say!("\nburst of {BURST} creates, until all are answered, {BURSTS} times: {} ms", line.join(", "));
    Ok(walls)
}

fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}
