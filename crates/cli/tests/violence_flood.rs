//! A flood of output: all of it is counted, both ends are kept, and nobody's memory grows with it.

mod violence;

use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use violence::in_threads;
use violence::line::{Line, Request};
use violence::machine::{memory_kb, text, the_guest};
use workroom_testkit::{Server, User};

const MIB: u64 = 1 << 20;

/// What a stream's ring, the answer and the allocator's habits may take.
const MOST_GROWTH: u64 = 120 * MIB;

/// Of both streams: head, ring and what the guest itself needs.
const MOST_GUEST: u64 = 64 * MIB;

#[test]
fn a_flood_is_counted_and_kept_at_both_ends() {
    flood_an_answer(300 * MIB);
}

#[test]
#[ignore = "long"]
fn soak_a_flood_is_counted_and_kept_at_both_ends() {
    flood_an_answer(10_000 * MIB);
}

#[test]
fn a_slow_reader_is_told_what_it_misses() {
    flood_a_stream(300 * MIB);
}

#[test]
#[ignore = "long"]
fn soak_a_slow_reader_is_told_what_it_misses() {
    flood_a_stream(10_000 * MIB);
}

/// Bytes that a process has in memory: its own, and those of files that are nowhere else.
fn memory(pid: i32) -> u64 {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let in_memory = files.filter(|file| {
        std::fs::read_link(file.path()).is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:"))
    });
    let files: u64 =
        in_memory.filter_map(|file| Some(std::fs::metadata(file.path()).ok()?.blocks() * 512)).sum();
    (memory_kb(pid, "VmRSS") << 10) + files
}

/// The most memory that a process takes while it is looked at.
struct Watch {
    pid: i32,
    before: u64,
    most: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Watch {
    fn on(pid: i32) -> Watch {
        let before = memory(pid);
        let (most, over) = (Arc::new(AtomicU64::new(before)), Arc::new(AtomicBool::new(false)));
        let watch = Watch { pid, before, most: most.clone(), over: over.clone() };
        tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(memory(pid), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        watch
    }

    /// How much it grew, at most.
    fn growth(&self) -> u64 {
        let now = memory(self.pid);
        self.most.fetch_max(now, Ordering::Relaxed).max(now).saturating_sub(self.before)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// As fast as it goes: lines of 16 bytes, after a first and before a last one that can be told from them.
fn flood(bytes: u64) -> Value {
    let middle = bytes - 12;
    let command = format!("echo first; yes 0123456789abcde | head -c {middle}; echo last.; echo said >&2");
    json!({ "command": command, "timeout_ms": 3_600_000 })
}

fn flood_an_answer(bytes: u64) {
    let user = User::running_the_tests();
    let server = Server::of(&user);
    let line = Line::of(&server);
    in_threads(async {
        let made = line.post("/v1/sessions", None).await;
        let id = text(made.expect(201), "id").to_owned();
        line.says(&id, "true").await;
        let host = Watch::on(server.pid());
        let guest = Watch::on(the_guest(&server));
        let began = Instant::now();
        let exec = Request::post(format!("/v1/sessions/{id}/exec"), Some(flood(bytes)));
        let heard = line.attempt_for(&exec, Duration::from_secs(3600)).await.expect("an answer");
        let rate = bytes / MIB * 1000 / began.elapsed().as_millis().max(1) as u64;
        let result = heard.expect(200);
        assert_eq!((&result["exit_code"], &result["stdout_bytes"]), (&json!(0), &json!(bytes)));
        assert_eq!((&result["truncated"], &result["stderr"]), (&json!(true), &json!("said\n")));
        let kept = result["stdout"].as_str().expect("text");
        assert!(kept.starts_with("first\n0123456789abcde\n") && kept.ends_with("last.\n"));
        let (head, tail) = kept.split_once("\n[… ").expect("a mark");
        let (missing, tail) = tail.split_once(" bytes are missing here …]\n").expect("a mark");
        let missing: u64 = missing.parse().expect("a number");
        assert_eq!(head.len() as u64 + missing + tail.len() as u64, bytes, "every byte is kept or counted");
        report("an answer", bytes, rate, &host, &guest);
    });
}

fn report(what: &str, bytes: u64, rate: u64, host: &Watch, guest: &Watch) {
    let (host, guest_growth) = (host.growth(), guest.growth());
    println!(
        "{} MiB into {what} at {rate} MiB/s: the host grew by {} MiB, the guest by {} MiB",
        bytes / MIB,
        host / MIB,
        guest_growth / MIB
    );
    assert!(host < MOST_GROWTH, "the host grew by {host} bytes");
    assert!(guest_growth < MOST_GUEST, "the guest grew by {guest_growth} bytes");
}

fn flood_a_stream(bytes: u64) {
    let user = User::running_the_tests();
    let server = Server::of(&user);
    let line = Line::of(&server);
    in_threads(async {
        let made = line.post("/v1/sessions", None).await;
        let id = text(made.expect(201), "id").to_owned();
        line.says(&id, "true").await;
        let host = Watch::on(server.pid());
        let guest = Watch::on(the_guest(&server));
        let began = Instant::now();
        let exec = Request::post(format!("/v1/sessions/{id}/exec"), Some(flood(bytes)));
        let mut stream = line.stream(&exec).await.expect("a stream");
        let (mut at, mut came, mut missed) = (0, 0, 0);
        let mut events = 0;
        let result = loop {
            let event = stream.next().await.expect("it ends with an exit");
            let data: Value = serde_json::from_str(&event.data).expect("JSON");
            match event.event.as_str() {
                "stdout" => {
                    let missing = data["missing"].as_u64().expect("a number");
                    let chunk = data["data"].as_str().expect("text");
                    assert_eq!(data["offset"], at + missing, "what is missing is told where it is missing");
                    let content = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'\n' || byte == b'.';
                    assert!(chunk.bytes().all(content), "nothing else was written");
                    at += missing + chunk.len() as u64;
                    came += chunk.len() as u64;
                    missed += missing;
                }
                "stderr" => assert_eq!(data["data"], "said\n"),
                "exit" => break data,
                other => panic!("{other}: {data}"),
            }
            // A reader that has something else to do, and then catches up.
            events += 1;
            if events < 100 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let rate = bytes / MIB * 1000 / began.elapsed().as_millis().max(1) as u64;
        assert_eq!((&result["exit_code"], &result["stdout_bytes"]), (&json!(0), &json!(bytes)));
        assert_eq!((at, came + missed), (bytes, bytes), "every byte came or was counted");
        assert!(missed > 0, "the reader was too slow");
        println!("{} MiB of it were read, {} MiB were missed", came / MIB, missed / MIB);
        report("a stream", bytes, rate, &host, &guest);
    });
}
