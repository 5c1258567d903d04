//! Processes over HTTP and WebSocket: starts and ends, keystrokes, shells, streams, ports; beside a bare spawn, bwrap and
//! tmux.

use crate::guard;
use crate::http::Http;
use crate::latency::{Subject, WARM_UP, show_progress, take};
use crate::options::Options;
use crate::peers::{self, Peer};
use crate::report::{self, Budget, Ratio, Row, Table, say};
use crate::samples::Samples;
use crate::served::Served;
use crate::websocket::WebSocket;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROWS: [(&str, &str); 10] = [
    ("bare", "spawn+wait of true, no room, in a row"),
    ("bare-first", "spawn+wait of true, no room, after other work"),
    ("exec", "exec of true over HTTP, in a row"),
    ("exec-first", "exec of true over HTTP, after other work"),
    ("process", "start of true over HTTP, and the wait for its end"),
    ("bash", "bash -c true, no room"),
    ("shell", "true in a stateful shell over HTTP"),
    ("echo", "a keystroke and its echo, by WebSocket"),
    ("bwrap", "bwrap true"),
    ("tmux", "a keystroke by tmux send-keys, its echo by capture-pane"),
];

const BUDGETS: [Budget; 6] = [
    Budget { of: "exec", against: "bare", ratio: Ratio::AtMost(1.5) },
    Budget { of: "exec-first", against: "bare-first", ratio: Ratio::AtMost(1.5) },
    Budget { of: "exec", against: "bwrap", ratio: Ratio::Below(1.0) },
    Budget { of: "process", against: "bwrap", ratio: Ratio::Below(1.0) },
    Budget { of: "shell", against: "bare", ratio: Ratio::Below(1.0) },
    Budget { of: "echo", against: "tmux", ratio: Ratio::Below(1.0) },
];

/// Bytes that are streamed.
const STREAM: u64 = 4 << 30;

/// A server for the room, in whichever language the machine has: it sends zeros to whoever connects.
const PORT_SERVER: &str = r#"import socket
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", 9000))
listener.listen()
print("listening", flush=True)
zeros = bytes(1 << 20)
while True:
    peer, _ = listener.accept()
    try:
        while True:
            peer.sendall(zeros)
    except OSError:
        pass
"#;

pub(crate) fn run(options: &Options, rounds: usize) -> Result<(), String> {
    let scratch = guard::scratch().map_err(|error| format!("no temporary directory: {error}"))?;
    let program = peers::find_workroom(options.workroom.as_deref())?;
    let served = Served::workroom(&program, &scratch.join("state"))?;
    let mut facts = Map::new();
    latencies(&served, &scratch, rounds, &mut facts)?;
    let mut rates = Map::new();
    for (name, measured) in [("stream", stream(&served)), ("port", port(&served))] {
        match measured {
            Ok(rate) => {
                say!("{name}: {} MB/s", rate / 1_000_000);
                rates.insert(name.into(), rate.into());
            }
            Err(why) => say!("{name}: not measured: {why}"),
        }
        guard::alive();
    }
    facts.insert("machine".into(), report::machine());
    facts.insert("rounds".into(), rounds.into());
    facts.insert("bytes_per_second".into(), Value::Object(rates));
    report::keep(options, "-processes", &Value::Object(facts))
}

/// A session to measure in.
struct Place {
    http: RefCell<Http>,
    path: String,
}

impl Place {
    fn new(served: &Served) -> Result<Place, String> {
        let mut http = served.connect()?;
        let made = http.ask("POST", "/v1/sessions", "{}")?;
        let id = made["id"].as_str().ok_or("a session without an id")?;
        let path = format!("/v1/sessions/{id}");
        Ok(Place { http: RefCell::new(http), path })
    }

    fn ask(&self, method: &str, rest: &str, body: &Value) -> Result<Value, String> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.http.borrow_mut().ask(method, &format!("{}{rest}", self.path), &body)
    }

    fn start(&self, request: &Value) -> Result<String, String> {
        let process = self.ask("POST", "/processes", request)?;
        Ok(process["id"].as_str().ok_or("a process without an id")?.to_owned())
    }
}

fn latencies(
    served: &Served,
    scratch: &Path,
    rounds: usize,
    facts: &mut Map<String, Value>,
) -> Result<(), String> {
    let rows = ROWS.map(|(key, label)| Row { key, label, samples: Samples::default() });
    let mut table = Table { rows: rows.into(), skipped: Vec::new() };
    let place = Place::new(served)?;
    let echo = place.start(&json!({"argv": ["cat"], "pty": {}}))?;
    let line = format!("{}/processes/{echo}/attach?cursor=0", place.path);
    let keys = RefCell::new(WebSocket::connect(&served.address, &served.token, &line)?);
    let shell = place.ask("POST", "/shells", &json!({})).ok();
    let shell = shell.and_then(|shell| Some(format!("/shells/{}/run", shell["id"].as_str()?)));
    let empty = scratch.join("empty");
    std::fs::create_dir(&empty).map_err(|error| format!("no temporary directory: {error}"))?;
    let (bare, bash) = (Peer::bare(), Peer::of("/bin/bash", &["--norc", "-c", "true"]));
    let timed = |work: &dyn Fn() -> Result<(), String>| {
        let started = Instant::now();
        work()?;
        Ok(vec![started.elapsed()])
    };
    let bwrap = peers::find_bwrap().map(|program| Peer::bwrap(&program, &empty, &[peers::TRUE]));
    let tmux = Tmux::start(scratch);
    let mut subjects = vec![
        Subject::in_a_row(&["bare-first", "bare"], || bare.sample()),
        Subject::new(&["bash"], || Ok(vec![bash.sample()?])),
        Subject::in_a_row(&["exec-first", "exec"], || {
            let started = Instant::now();
            place.ask("POST", "/exec", &json!({"argv": [peers::TRUE]}))?;
            Ok(started.elapsed())
        }),
        Subject::new(&["process"], || {
            timed(&|| {
                let id = place.start(&json!({"argv": [peers::TRUE]}))?;
                let ended = place.ask("GET", &format!("/processes/{id}/wait"), &Value::Null)?;
                if ended["exit"]["code"] == 0 { Ok(()) } else { Err(format!("it ended badly: {ended}")) }
            })
        }),
        Subject::new(&["echo"], || timed(&|| keystroke(&mut keys.borrow_mut()))),
    ];
    match &shell {
        Some(run) => subjects.push(Subject::new(&["shell"], || {
            timed(&|| {
                let done = place.ask("POST", run, &json!({"command": "true"}))?;
                if done["exit_code"] == 0 { Ok(()) } else { Err(format!("it failed: {done}")) }
            })
        })),
        None => table.skipped.push(("shell", "there are no stateful shells here".into())),
    }
    match &bwrap {
        Ok(bwrap) => subjects.push(Subject::new(&["bwrap"], || Ok(vec![bwrap.sample()?]))),
        Err(why) => table.skipped.push(("bwrap", why.clone())),
    }
    match &tmux {
        Some(tmux) => subjects.push(Subject::new(&["tmux"], || tmux.keystroke())),
        None => table.skipped.push(("tmux", "it is not installed".into())),
    }
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

/// Sends a character and waits until the terminal has echoed it.
fn keystroke(keys: &mut WebSocket) -> Result<(), String> {
    keys.send(b"x")?;
    loop {
        match keys.next()? {
            Some(message) if !message.is_text && message.data[9..].contains(&b'x') => return Ok(()),
            Some(_) => {}
            None => return Err("the terminal ended".into()),
        }
    }
}

/// How fast a process's output reaches a reader that attaches to it, in bytes per second.
fn stream(served: &Served) -> Result<u64, String> {
    let place = Place::new(served)?;
    let flood = format!("read line; head -c {STREAM} /dev/zero");
    let id = place.start(&json!({"command": flood, "stdin": true, "keep_output": 256 << 20}))?;
    let path = format!("{}/processes/{id}/attach?cursor=0", place.path);
    let mut socket = WebSocket::connect(&served.address, &served.token, &path)?;
    socket.send(b"\n")?;
    let (mut received, mut started) = (0u64, None);
    while let Some(message) = socket.next()? {
        guard::alive();
        if !message.is_text {
            started.get_or_insert_with(Instant::now);
            received += message.data.len() as u64 - 9;
        }
    }
    let seconds = started.ok_or("nothing came")?.elapsed().as_secs_f64();
    Ok((received as f64 / seconds) as u64)
}

/// How fast a published port is, in bytes per second.
fn port(served: &Served) -> Result<u64, String> {
    let place = Place::new(served)?;
    let server = place.start(&json!({"argv": ["python3", "-u", "-c", PORT_SERVER]}))?;
    place.ask("GET", &format!("/processes/{server}/output?wait_ms=10000"), &Value::Null)?;
    let published = place.ask("POST", "/ports", &json!({"port": 9000}))?;
    let port = published["host_port"].as_u64().ok_or(format!("no port: {published}"))?;
    let mut stream =
        TcpStream::connect(("127.0.0.1", port as u16)).map_err(|error| format!("the port: {error}"))?;
    let mut buffer = vec![0; 1 << 20];
    let (mut received, started) = (0u64, Instant::now());
    while received < STREAM {
        guard::alive();
        match stream.read(&mut buffer) {
            Ok(0) => return Err(format!("it ended after {received} bytes")),
            Ok(count) => received += count as u64,
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok((received as f64 / started.elapsed().as_secs_f64()) as u64)
}

/// A terminal as people script it without us.
struct Tmux {
    socket: String,
    typed: RefCell<usize>,
}

impl Tmux {
    fn start(scratch: &Path) -> Option<Tmux> {
        let tmux =
            Tmux { socket: scratch.join("tmux").to_string_lossy().into_owned(), typed: RefCell::new(0) };
        let started = tmux.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "200", "-y", "50", "cat"])?;
        started.status.success().then_some(tmux)
    }

    fn tmux(&self, arguments: &[&str]) -> Option<std::process::Output> {
        Command::new("tmux").args(["-S", &self.socket]).args(arguments).stdin(Stdio::null()).output().ok()
    }

    /// Sends a character, and looks at the screen until it is there.
    fn keystroke(&self) -> Result<Vec<Duration>, String> {
        let mut typed = self.typed.borrow_mut();
        *typed += 1;
        let started = Instant::now();
        self.tmux(&["send-keys", "x"]).ok_or("tmux does not send")?;
        for _ in 0..1000 {
            let screen = self.tmux(&["capture-pane", "-p"]).ok_or("tmux does not show")?;
            if screen.stdout.iter().filter(|byte| **byte == b'x').count() >= *typed {
                if *typed >= 1000 {
                    self.tmux(&["send-keys", "C-u"]);
                    self.tmux(&["clear-history"]);
                    *typed = 0;
                }
                return Ok(vec![started.elapsed()]);
            }
        }
        Err("tmux does not show what was typed".into())
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
