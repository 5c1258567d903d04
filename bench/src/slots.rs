//! Slots over HTTP: a lease from acquire to release, resets whatever was left, many clients, a thousand slots, a trajectory.

use crate::guard;
use crate::http::Http;
use crate::latency::{WARM_UP, show_progress};
use crate::memory::meminfo;
use crate::options::Options;
use crate::peers::{self, Peer, TRUE};
use crate::report::{self, Row, Table, say};
use crate::samples::Samples;
use crate::served::Served;
use serde_json::{Map, Value, json};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

const ROWS: [(&str, &str); 8] = [
    ("bare", "bare spawn+wait of true"),
    ("acquire", "HTTP: acquire a slot"),
    ("exec", "HTTP: exec of true in it"),
    ("release", "HTTP: release it"),
    ("lease", "HTTP: acquire + exec of true + release"),
    ("reset", "HTTP: make a slot as new, until its room stands"),
    ("batch", "HTTP: a batch of 200 execs of true in 8 slots"),
    ("trajectory", "HTTP: 50 actions: write, run, read, search, patch"),
];

/// These take more than a command: the room is paused before it is given back, or has little disk.
const PAUSED: &str = "a paused room";
const FULL: &str = "a full disk";
const LITTLE_DISK: u64 = 64 << 20;

/// What the last one left: a name, and the command that leaves it. `{files}` is a number.
const LEFTOVERS: [(&str, &str); 12] = [
    ("nothing", "true"),
    ("many files", "mkdir d && cd d && seq {files} | xargs touch"),
    ("closed trees", "mkdir -p a/b/c && touch a/b/c/f && chmod -R a-w a && chmod 0 a/b"),
    (
        "links to directories",
        "mkdir t l && cd t && seq 1000 | xargs mkdir && cd .. && ln -s /workspace/t/* l && ln -s / l/root",
    ),
    ("many processes", "for i in $(seq 200); do (setsid sleep 1000 &) ; done > /dev/null 2>&1; :"),
    ("stopped processes", "for i in $(seq 50); do sleep 1000 & kill -STOP $!; done > /dev/null 2>&1; :"),
    ("busy loops", "for i in 1 2 3 4; do (setsid sh -c 'while :; do :; done' &); done > /dev/null 2>&1; :"),
    ("a fork bomb", "(setsid sh -c 'bomb() { bomb | bomb & }; bomb' &) > /dev/null 2>&1; sleep 0.3"),
    (
        "odd names",
        "mkdir -- -rf \"$(printf 'new\\nline')\" \"$(printf '\\377')\" && touch -- \"-rf/$(printf '\\033[2J')\"",
    ),
    (PAUSED, "for i in $(seq 20); do sleep 1000 & done > /dev/null 2>&1; :"),
    (FULL, "head -c 100M /dev/zero > x 2> /dev/null; for i in $(seq 5); do mkdir d$i 2> /dev/null; done; :"),
    ("full memory files", "head -c 64M /dev/zero > /dev/shm/x; head -c 64M /dev/zero > y; :"),
];

const CLIENTS: [usize; 3] = [1, 16, 64];
const SLICE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(120);

/// From so many rounds on, what is large is as large as it is to be.
const IN_EARNEST: usize = 50;

pub(crate) fn run(options: &Options, rounds: usize) -> Result<(), String> {
    let scratch = guard::scratch().map_err(|error| format!("no temporary directory: {error}"))?;
    let program = peers::find_workroom(options.workroom.as_deref())?;
    let served = Served::workroom(&program, &scratch.join("state"))?;
    let mut facts = Map::new();
    facts.insert("machine".into(), report::machine());
    facts.insert("rounds".into(), rounds.into());
    facts.insert("table".into(), latencies(&served, rounds)?);
    facts.insert("resets".into(), resets(&served, rounds)?);
    facts.insert("rates".into(), rates(&served)?);
    facts.insert("crowd".into(), crowd(&served, if rounds >= IN_EARNEST { 1000 } else { 50 })?);
    report::keep(options, "-slots", &Value::Object(facts))
}

fn set(http: &mut Http, pool: &str, spec: &Value) -> Result<(), String> {
    http.ask("PUT", &format!("/v1/pools/{pool}"), &spec.to_string()).map(drop)
}

fn call(http: &mut Http, pool: &str, verb: &str, trajectory: &str) -> Result<Value, String> {
    let body = json!({"trajectory": trajectory}).to_string();
    http.ask("POST", &format!("/v1/pools/{pool}/{verb}"), &body)
}

fn session_of(lease: &Value) -> Result<&str, String> {
    lease["session"].as_str().ok_or_else(|| "a lease without a session".into())
}

fn exec(http: &mut Http, session: &str, command: &Value) -> Result<(), String> {
    http.ask("POST", &format!("/v1/sessions/{session}/exec"), &command.to_string()).map(drop)
}

/// Waits until so many slots of a pool are available.
fn ready(http: &mut Http, pool: &str, slots: usize) -> Result<Value, String> {
    let started = Instant::now();
    loop {
        guard::alive();
        let shown = http.ask("GET", &format!("/v1/pools/{pool}"), "")?;
        if shown["states"]["available"].as_u64() == Some(slots as u64) {
            return Ok(shown);
        }
        if started.elapsed() > PATIENCE {
            return Err(format!("{pool} is not ready: {}", shown["states"]));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn latencies(served: &Served, rounds: usize) -> Result<Value, String> {
    let rows = ROWS.map(|(key, label)| Row { key, label, samples: Samples::default() });
    let mut table = Table { rows: rows.into(), skipped: Vec::new() };
    let mut http = served.connect()?;
    set(&mut http, "latency", &json!({"min": 8, "max": 8}))?;
    ready(&mut http, "latency", 8)?;
    let bare = Peer::bare();
    for round in 0..WARM_UP + rounds {
        if round == WARM_UP {
            table.rows.iter_mut().for_each(|row| row.samples.clear());
        }
        let mut took = vec![("bare", bare.sample()?)];
        took.extend(lease(&mut http)?);
        took.push(("reset", reset(&mut http)?));
        if round % 5 == 0 {
            took.push(("batch", batch(&mut http)?));
            took.push(("trajectory", trajectory(&mut http)?));
        }
        for (key, time) in took {
            if let Some(row) = table.row(key) {
                row.samples.push(time);
            }
        }
        show_progress(round, WARM_UP + rounds);
    }
    table.print(&[]);
    http.ask("DELETE", "/v1/pools/latency", "")?;
    Ok(table.json(&[]))
}

fn lease(http: &mut Http) -> Result<Vec<(&'static str, Duration)>, String> {
    let started = Instant::now();
    let lease = call(http, "latency", "acquire", "lease")?;
    let acquired = started.elapsed();
    exec(http, session_of(&lease)?, &json!({"argv": [TRUE]}))?;
    let ran = started.elapsed();
    call(http, "latency", "release", "lease")?;
    let all = started.elapsed();
    Ok(vec![("acquire", acquired), ("exec", ran - acquired), ("release", all - ran), ("lease", all)])
}

fn reset(http: &mut Http) -> Result<Duration, String> {
    let lease = call(http, "latency", "acquire", "reset")?;
    exec(http, session_of(&lease)?, &json!({"command": "echo x > x"}))?;
    let started = Instant::now();
    call(http, "latency", "reset", "reset")?;
    let took = started.elapsed();
    call(http, "latency", "release", "reset")?;
    Ok(took)
}

fn batch(http: &mut Http) -> Result<Duration, String> {
    let mut sessions = Vec::new();
    for number in 0..8 {
        let lease = call(http, "latency", "acquire", &format!("batch-{number}"))?;
        sessions.push(session_of(&lease)?.to_owned());
    }
    let item = |number: usize| {
        let session = &sessions[number % sessions.len()];
        json!({"session": session, "tool": "exec", "args": {"argv": [TRUE]}})
    };
    let items: Vec<Value> = (0..200).map(item).collect();
    let started = Instant::now();
    let answer = http.ask("POST", "/v1/batch", &Value::from(items).to_string())?;
    let took = started.elapsed();
    if answer["results"].as_array().is_none_or(|all| all.iter().any(|result| result["ok"] != true)) {
        return Err("an item of a batch failed".into());
    }
    for number in 0..8 {
        call(http, "latency", "release", &format!("batch-{number}"))?;
    }
    Ok(took)
}

/// Ten times: write a file, run something, read what it wrote, search, patch.
fn trajectory(http: &mut Http) -> Result<Duration, String> {
    let started = Instant::now();
    let lease = call(http, "latency", "acquire", "trajectory")?;
    let path = format!("/v1/sessions/{}", session_of(&lease)?);
    for step in 0..10 {
        http.ask("PUT", &format!("{path}/files/f{step}"), &format!("one {step}\ntwo\nthree\n"))?;
        let command = json!({"command": format!("sort f{step} > s{step}")});
        http.ask("POST", &format!("{path}/exec"), &command.to_string())?;
        http.ask("GET", &format!("{path}/files/s{step}?encoding=text"), "")?;
        http.ask("POST", &format!("{path}/files/search"), &json!({"pattern": "two"}).to_string())?;
        let patch =
            format!("--- a/f{step}\n+++ b/f{step}\n@@ -1,3 +1,3 @@\n one {step}\n-two\n+TWO\n three\n");
        http.ask("POST", &format!("{path}/files/patch"), &json!({"patch": patch}).to_string())?;
    }
    call(http, "latency", "release", "trajectory")?;
    Ok(started.elapsed())
}

/// Each kind of leftovers in a pool of its own, whose own figures are asked for.
fn resets(served: &Served, rounds: usize) -> Result<Value, String> {
    say!("\n{:<40}{:>12}{:>12}{:>14}{:>12}", "after, ms", "reset p50", "p99", "handed on p50", "p99");
    let files = if rounds >= IN_EARNEST { 1_000_000 } else { 10_000 };
    let mut http = served.connect()?;
    let mut found = Vec::new();
    for (number, (kind, leave)) in LEFTOVERS.iter().enumerate() {
        let pool = format!("reset-{number}");
        let policy = if *kind == FULL { json!({"disk": LITTLE_DISK}) } else { json!({}) };
        set(&mut http, &pool, &json!({"min": 1, "max": 1, "policy": policy}))?;
        let leave = leave.replace("{files}", &files.to_string());
        // To leave a million files takes far longer than to be rid of them.
        let times = if leave.contains("seq 1000000 ") { 5 } else { rounds.min(100) };
        let mut handed_on = Samples::default();
        let mut lease = call(&mut http, &pool, "acquire", "0")?;
        for round in 0..times {
            guard::alive();
            exec(&mut http, session_of(&lease)?, &json!({"command": leave, "timeout_ms": 25_000}))?;
            if *kind == PAUSED {
                http.ask("POST", &format!("/v1/sessions/{}/pause", session_of(&lease)?), "")?;
            }
            // From one trajectory's last word to the next one's first: two calls, both on the disk.
            let started = Instant::now();
            call(&mut http, &pool, "release", &round.to_string())?;
            lease = call(&mut http, &pool, "acquire", &(round + 1).to_string())?;
            handed_on.push(started.elapsed());
        }
        call(&mut http, &pool, "release", &times.to_string())?;
        let metrics = ready(&mut http, &pool, 1)?["metrics"].take();
        let number = |field: &str| metrics[field].as_f64().unwrap_or_default();
        let (p50, p99) = handed_on.summary().map_or((0.0, 0.0), |it| (it.p50 / 1000.0, it.p99 / 1000.0));
        let (reset_p50, reset_p99) = (number("reset_ms_p50"), number("reset_ms_p99"));
        say!("{kind:<40}{reset_p50:>12.3}{reset_p99:>12.3}{p50:>14.3}{p99:>12.3}");
        found.push(json!({"kind": kind, "metrics": metrics, "handed_on_ms": {"p50": p50, "p99": p99}}));
        http.ask("DELETE", &format!("/v1/pools/{pool}"), "")?;
    }
    Ok(found.into())
}

/// Leases and commands by several clients at once, each with trajectories of its own.
fn rates(served: &Served) -> Result<Value, String> {
    say!("\n{:<40}{:>14}{:>14}{:>14}{:>14}", "clients", "execs/s", "leases/s", "p50 ms", "p99 ms");
    let mut rates = Vec::new();
    let mut http = served.connect()?;
    for clients in CLIENTS {
        set(&mut http, "rates", &json!({"min": clients, "max": clients}))?;
        ready(&mut http, "rates", clients)?;
        let command = json!({"argv": [TRUE]});
        let (execs, _) = together(served, clients, |http, lease, _| exec(http, lease, &command))?;
        let (leases, times) = together(served, clients, |http, _, trajectory| {
            let lease = call(http, "rates", "acquire", trajectory)?;
            exec(http, session_of(&lease)?, &command)?;
            call(http, "rates", "release", trajectory).map(drop)
        })?;
        let (p50, p99) = times.summary().map_or((0.0, 0.0), |it| (it.p50 / 1000.0, it.p99 / 1000.0));
        say!("{clients:<40}{execs:>14.0}{leases:>14.0}{p50:>14.2}{p99:>14.2}");
        rates.push(json!({
            "clients": clients, "execs_per_second": execs, "leases_per_second": leases,
            "lease_p50_ms": p50, "lease_p99_ms": p99,
        }));
        http.ask("DELETE", "/v1/pools/rates", "")?;
    }
    Ok(rates.into())
}

/// How often a second all clients together do something, and how long each time took. Each is told the session of a slot
/// that it has, and its name. One that releases its slot has none.
fn together(
    served: &Served,
    clients: usize,
    action: impl Fn(&mut Http, &str, &str) -> Result<(), String> + Sync,
) -> Result<(f64, Samples), String> {
    let start = Barrier::new(clients);
    let times = Mutex::new(Samples::default());
    let work = |client: usize| -> Result<f64, String> {
        let trajectory = format!("client-{client}");
        let prepared = served.connect().and_then(|mut http| {
            let lease = call(&mut http, "rates", "acquire", &trajectory)?;
            Ok((session_of(&lease)?.to_owned(), http))
        });
        start.wait();
        let (session, mut http) = prepared?;
        let (started, mut done) = (Instant::now(), 0u32);
        while started.elapsed() < SLICE {
            let begun = Instant::now();
            action(&mut http, &session, &trajectory)?;
            if let Ok(mut times) = times.lock() {
                times.push(begun.elapsed());
            }
            done += 1;
            guard::alive();
        }
        call(&mut http, "rates", "release", &trajectory)?;
        Ok(f64::from(done) / started.elapsed().as_secs_f64())
    };
    let total = std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..clients).map(|client| scope.spawn(move || work(client))).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err("a client failed".into())))
            .sum::<Result<f64, String>>()
    })?;
    Ok((total, times.into_inner().unwrap_or_default()))
}

/// Many slots at once: until all are ready, and what each takes of the machine's memory.
fn crowd(served: &Served, slots: usize) -> Result<Value, String> {
    let mut http = served.connect()?;
    let before = meminfo("MemAvailable");
    let started = Instant::now();
    set(&mut http, "crowd", &json!({"min": slots, "max": slots, "reset": {"spares": 0}}))?;
    ready(&mut http, "crowd", slots)?;
    let took = started.elapsed().as_secs_f64();
    let each = (before - meminfo("MemAvailable")) as f64 / slots as f64;
    let begun = Instant::now();
    let lease = call(&mut http, "crowd", "acquire", "t")?;
    exec(&mut http, session_of(&lease)?, &json!({"argv": [TRUE]}))?;
    call(&mut http, "crowd", "release", "t")?;
    let one = begun.elapsed().as_secs_f64() * 1000.0;
    say!(
        "\n{slots} slots ready in {took:.1} s, {each:.0} KiB of memory each; a lease among them takes {one:.1} ms"
    );
    http.ask("DELETE", "/v1/pools/crowd", "")?;
    Ok(json!({"slots": slots, "seconds": took, "kib_each": each, "lease_ms": one}))
}
