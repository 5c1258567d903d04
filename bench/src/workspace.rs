//! A session's files over HTTP: snapshot, fork, rollback, diff, upload and download; beside what people do instead.

use crate::guard;
use crate::http::Http;
use crate::latency::{Subject, WARM_UP, show_progress, take};
use crate::options::Options;
use crate::peers;
use crate::report::{self, Budget, Ratio, Row, Table, say};
use crate::samples::Samples;
use crate::served::Served;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROWS: [(&str, &str); 15] = [
    ("snapshot", "snapshot, 10,000 files, quiet room, less flushing"),
    ("snapshot-sync", "  flushing of it"),
    ("fork", "fork, quiet room, less flushing"),
    ("rollback", "rollback to the last snapshot"),
    ("busy", "snapshot, 10,000 files, processes run, all of it"),
    ("pause", "  how long they stood still"),
    ("diff-1k", "diff of 10 changes in 1,000 files"),
    ("diff-100k", "diff of 10 changes in 100,000 files"),
    ("digest", "digest of 10 changes in 100,000 files"),
    ("write", "write a file of 1 KiB"),
    ("read", "read a file of 1 KiB"),
    ("cp", "cp -a of 10,000 files"),
    ("rsync", "rsync -a of 10,000 files, 10 of them changed"),
    ("tar", "tar of 10,000 files"),
    ("git", "git status of 100,000 files, 10 of them changed"),
];

const BUDGETS: [Budget; 6] = [
    Budget { of: "diff-100k", against: "diff-1k", ratio: Ratio::AtMost(1.5) },
    Budget { of: "snapshot", against: "cp", ratio: Ratio::Below(0.1) },
    Budget { of: "fork", against: "cp", ratio: Ratio::Below(0.1) },
    Budget { of: "rollback", against: "rsync", ratio: Ratio::Below(1.0) },
    Budget { of: "snapshot", against: "tar", ratio: Ratio::Below(1.0) },
    Budget { of: "diff-100k", against: "git", ratio: Ratio::Below(1.0) },
];

const FORKS: usize = 100;
const STREAM: u64 = 1 << 30;

pub(crate) fn run(options: &Options, rounds: usize) -> Result<(), String> {
    let scratch = guard::scratch().map_err(|error| format!("no temporary directory: {error}"))?;
    let program = peers::find_workroom(options.workroom.as_deref())?;
    let served = Served::workroom(&program, &scratch.join("state"))?;
    let mut facts = Map::new();
    latencies(&served, &scratch, rounds, &mut facts)?;
    served.clear();
    let forks = many_forks(&served)?;
    served.clear();
    let streams = streams(&served)?;
    facts.insert("machine".into(), report::machine());
    facts.insert("rounds".into(), rounds.into());
    facts.insert("forks".into(), json!({"count": FORKS, "wall_ms": forks}));
    facts.insert("bytes_per_second".into(), streams);
    report::keep(options, "-workspace", &Value::Object(facts))
}

fn latencies(
    served: &Served,
    scratch: &Path,
    rounds: usize,
    facts: &mut Map<String, Value>,
) -> Result<(), String> {
    let rows = ROWS.map(|(key, label)| Row { key, label, samples: Samples::default() });
    let mut table = Table { rows: rows.into(), skipped: Vec::new() };
    let http = RefCell::new(served.connect()?);
    let quiet = Place::with_files(&http, 10_000)?;
    let busy = Place::with_files(&http, 10_000)?;
    busy.exec("(while :; do date > ticking; sleep 0.2; done) >/dev/null 2>&1 &")?;
    let small = Place::with_files(&http, 1_000)?;
    let large = Place::with_files(&http, 100_000)?;
    for place in [&small, &large] {
        place.ask("POST", "/baseline", "")?;
        place.exec("for i in 0 1 2 3 4 5 6 7 8 9; do echo changed > d0/f$i; done")?;
    }
    // Not after every sample: the stack would grow with the rounds.
    quiet.ask("POST", "/baseline", "")?;
    let tree = files_on_the_machine(&scratch.join("peer"), 10_000)?;
    let many = files_on_the_machine(&scratch.join("repository"), 100_000)?;
    let copy = scratch.join("copy");
    let mut subjects = vec![
        Subject::new(&["snapshot", "snapshot-sync", "fork", "rollback"], || past(&quiet)),
        Subject::new(&["busy", "pause"], || busy_snapshot(&busy)),
        Subject::new(&["diff-1k"], || small.timed("GET", "/diff", "")),
        Subject::new(&["diff-100k"], || large.timed("GET", "/diff", "")),
        Subject::new(&["digest"], || large.timed("GET", "/digest", "")),
        Subject::new(&["write"], || small.timed("PUT", "/files/bench/written", &"x".repeat(1024))),
        Subject::new(&["read"], || small.timed("GET", "/files/d0/f1", "")),
    ];
    add_peers(&mut subjects, &mut table, (&tree, &many, &copy));
    for round in 0..WARM_UP + rounds {
        if round == WARM_UP {
            table.rows.iter_mut().for_each(|row| row.samples.clear());
        }
        subjects.retain_mut(|subject| take(subject, &mut table));
        show_progress(round, WARM_UP + rounds);
        guard::alive();
    }
    drop(subjects);
    table.print(&BUDGETS);
    facts.insert("table".into(), table.json(&BUDGETS));
    Ok(())
}

/// A session with files in it.
struct Place<'a> {
    http: &'a RefCell<Http>,
    path: String,
}

impl<'a> Place<'a> {
    fn with_files(http: &'a RefCell<Http>, count: usize) -> Result<Place<'a>, String> {
        let made = http.borrow_mut().ask("POST", "/v1/sessions", "{}")?;
        let id = made["id"].as_str().ok_or("a session without an id")?;
        let place = Place { http, path: format!("/v1/sessions/{id}") };
        place.exec(&format!("{}; sync -f .", make_files(count)))?;
        Ok(place)
    }

    fn ask(&self, method: &str, rest: &str, body: &str) -> Result<Value, String> {
        guard::alive();
        self.http.borrow_mut().ask(method, &format!("{}{rest}", self.path), body)
    }

    fn timed(&self, method: &str, rest: &str, body: &str) -> Result<Vec<Duration>, String> {
        let started = Instant::now();
        let response = self.http.borrow_mut().request(method, &format!("{}{rest}", self.path), body)?;
        let took = started.elapsed();
        if response.status >= 300 {
            return Err(format!("{method} {rest}: {}", response.status));
        }
        Ok(vec![took])
    }

    fn exec(&self, command: &str) -> Result<(), String> {
        let body = json!({"command": command, "timeout_ms": 600_000}).to_string();
        let done = self.ask("POST", "/exec", &body)?;
        match done["exit_code"].as_i64() {
            Some(0) => Ok(()),
            _ => Err(format!("a command failed: {done}")),
        }
    }
}

/// Files of a few bytes, a hundred to a directory.
fn make_files(count: usize) -> String {
    format!(
        "for d in $(seq 0 {}); do mkdir d$d; for f in $(seq 0 99); do echo $d $f > d$d/f$f; done; done",
        count / 100 - 1
    )
}

fn files_on_the_machine(dir: &Path, count: usize) -> Result<PathBuf, String> {
    std::fs::create_dir_all(dir).map_err(|error| error.to_string())?;
    shell(dir, &make_files(count))?;
    Ok(dir.to_owned())
}

fn shell(dir: &Path, command: &str) -> Result<Duration, String> {
    let started = Instant::now();
    let mut child = Command::new("sh");
    child.args(["-c", command]).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null());
    let status = child.stderr(Stdio::null()).status().map_err(|error| error.to_string())?;
    if status.success() { Ok(started.elapsed()) } else { Err(format!("{command} failed")) }
}

/// One change, a snapshot of it, a fork, a rollback; then all as it was.
fn past(place: &Place<'_>) -> Result<Vec<Duration>, String> {
    let less = |started: Instant, answer: &Value| {
        let flushing = Duration::from_secs_f64(answer["sync_ms"].as_f64().unwrap_or_default() / 1000.0);
        (started.elapsed().saturating_sub(flushing), flushing)
    };
    place.exec("echo $RANDOM > d1/f1")?;
    let started = Instant::now();
    let taken = place.ask("POST", "/snapshots", r#"{"name":"bench"}"#)?;
    let (snapshot, flushing) = less(started, &taken);
    place.exec("echo $RANDOM > d1/f2")?;
    let started = Instant::now();
    let forked = place.ask("POST", "/fork", "{}")?;
    let (fork, _) = less(started, &forked);
    let started = Instant::now();
    place.ask("POST", "/reset", r#"{"to":"last"}"#)?;
    let rollback = started.elapsed();
    place.ask("POST", "/reset", "{}")?;
    let id = forked["forks"][0]["session"]["id"].as_str().unwrap_or_default();
    place.http.borrow_mut().ask("DELETE", &format!("/v1/sessions/{id}"), "")?;
    place.ask("DELETE", "/snapshots/bench", "")?;
    Ok(vec![snapshot, flushing, fork, rollback])
}

fn busy_snapshot(place: &Place<'_>) -> Result<Vec<Duration>, String> {
    let started = Instant::now();
    let taken = place.ask("POST", "/snapshots", r#"{"name":"bench"}"#)?;
    let all = started.elapsed();
    place.ask("DELETE", "/snapshots/bench", "")?;
    Ok(vec![all, Duration::from_secs_f64(taken["pause_ms"].as_f64().unwrap_or_default() / 1000.0)])
}

/// What people do instead, where it is installed.
fn add_peers<'a>(
    subjects: &mut Vec<Subject<'a>>,
    table: &mut Table,
    (tree, many, copy): (&'a Path, &'a Path, &'a Path),
) {
    let (from, to) = (tree.display(), copy.display());
    let remove = format!("rm -rf {to}");
    let cp = format!("cp -a {from} {to}");
    let rsync = format!("rsync -a --delete {from}/ {to}-rsync/");
    let tar = format!("tar cf - -C {from} . | cat > /dev/null");
    let has = |program: &str| shell(tree, &format!("command -v {program}")).is_ok();
    subjects.push(Subject::new(&["cp"], move || {
        let took = shell(tree, &cp)?;
        shell(tree, &remove)?;
        Ok(vec![took])
    }));
    subjects.push(Subject::new(&["tar"], move || shell(tree, &tar).map(|took| vec![took])));
    if has("rsync") {
        let change = "for i in 0 1 2 3 4 5 6 7 8 9; do echo $$ > d0/f$i; done";
        subjects.push(Subject::new(&["rsync"], move || {
            shell(tree, change)?;
            shell(tree, &rsync).map(|took| vec![took])
        }));
    } else {
        table.skipped.push(("rsync", "it is not installed".into()));
    }
    let prepare = "git init -q . && git add -A && git -c user.name=b -c user.email=b@b commit -qm b \
                   && for i in 0 1 2 3 4 5 6 7 8 9; do echo changed > d0/f$i; done";
    if has("git") && shell(many, prepare).is_ok() {
        subjects
            .push(Subject::new(&["git"], move || shell(many, "git status --short").map(|took| vec![took])));
    } else {
        table.skipped.push(("git", "it is not installed".into()));
    }
}

/// A hundred forks in one call, started and not.
fn many_forks(served: &Served) -> Result<Value, String> {
    let mut walls = Map::new();
    for (name, start) in [("made", false), ("started", true)] {
        let http = RefCell::new(served.connect()?);
        let place = Place::with_files(&http, 1_000)?;
        let mut samples = Vec::new();
        for _ in 0..5 {
            let body = json!({"count": FORKS, "start": start}).to_string();
            let started = Instant::now();
            let made = place.ask("POST", "/fork", &body)?;
            samples.push(started.elapsed().as_secs_f64() * 1000.0 - made["sync_ms"].as_f64().unwrap_or(0.0));
        }
        let line: Vec<String> = samples.iter().map(|wall| format!("{wall:.0}")).collect();
        say!("\n{FORKS} forks in one call, {name}, 5 times: {} ms", line.join(", "));
        walls.insert(name.into(), json!(samples));
        drop(http);
        served.clear();
    }
    Ok(Value::Object(walls))
}

/// One large file up and down, over one connection.
fn streams(served: &Served) -> Result<Value, String> {
    let mut http = served.connect()?;
    let made = http.ask("POST", "/v1/sessions", "{}")?;
    let path = format!("/v1/sessions/{}/files/large", made["id"].as_str().unwrap_or_default());
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        up.push(upload(served, &path)?);
        down.push(download(served, &path)?);
    }
    let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    say!("\nupload   {:.2} GB/s, the best of 3", best(&up) / 1e9);
    say!("download {:.2} GB/s, the best of 3", best(&down) / 1e9);
    Ok(json!({"upload": up, "download": down}))
}

fn open(served: &Served, method: &str, path: &str, length: u64) -> Result<TcpStream, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(&served.address).map_err(failed)?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n",
        served.address, served.token
    );
    stream.write_all(head.as_bytes()).map_err(failed)?;
    Ok(stream)
}

fn upload(served: &Served, path: &str) -> Result<f64, String> {
    let chunk = vec![b'x'; 1 << 20];
    let started = Instant::now();
    let mut stream = open(served, "PUT", path, STREAM)?;
    for _ in 0..STREAM / chunk.len() as u64 {
        stream.write_all(&chunk).map_err(|error| error.to_string())?;
        guard::alive();
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(|error| error.to_string())?;
    if !answer.starts_with(b"HTTP/1.1 20") {
        return Err(String::from_utf8_lossy(&answer).into_owned());
    }
    Ok(STREAM as f64 / started.elapsed().as_secs_f64())
}

fn download(served: &Served, path: &str) -> Result<f64, String> {
    let started = Instant::now();
    let mut stream = open(served, "GET", path, 0)?;
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0u64;
    loop {
        match stream.read(&mut buffer).map_err(|error| error.to_string())? {
            0 => break,
            count => total += count as u64,
        }
        guard::alive();
    }
    if total < STREAM {
        return Err(format!("{total} bytes of {STREAM} came"));
    }
    Ok(STREAM as f64 / started.elapsed().as_secs_f64())
}
