//! Processes under violence: hosts that are killed while they write, a thousand at once, and a flood.

mod violence;

use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use violence::machine::memory_kb;
use violence::{Dice, in_threads};
use workroom_testkit::types::{OutputStream, ProcessState, StartProcess};
use workroom_testkit::{Server, TestSession, User, eventually, within};

const MIB: u64 = 1 << 20;

/// Counts as fast as a line in a few milliseconds, until there is a file that says that it is enough.
const COUNTER: &str = r#"n=0; until [ -e enough ]; do n=$((n+1)); echo "line $n"; [ $((n % 50)) = 0 ] && sleep 0.02; done; echo "end $n"; exit 7"#;

#[test]
fn no_byte_is_lost_or_repeated_when_hosts_are_killed() {
    kill_hosts(&User::running_the_tests(), 3, (6, 6, 2));
}

#[test]
fn no_byte_is_lost_or_repeated_when_an_ordinary_users_hosts_are_killed() {
    kill_hosts(&User::ordinary(), 2, (4, 4, 2));
}

#[test]
#[ignore = "long"]
fn soak_no_byte_is_lost_or_repeated_when_hosts_are_killed() {
    kill_hosts(&User::running_the_tests(), 30, (20, 20, 5));
}

/// Processes and terminals that count all the while, and services; callers that read along, from where they were.
fn kill_hosts(user: &User, kills: u32, (processes, terminals, services): (u32, u32, u32)) {
    let mut dice = Dice::new();
    let mut server = Server::of(user);
    in_threads(async {
        let session = server.session().await;
        let mut started = Vec::new();
        for number in 0..processes + terminals {
            let mut request = json!({ "command": COUNTER, "keep_output": 64 * MIB });
            if number >= processes {
                request["pty"] = json!({});
            }
            started.push(session.process(request).await.id);
        }
        let mut pids = Vec::new();
        for number in 0..services {
            let path = session.path(&format!("/services/s{number}"));
            let spec = json!({ "command": "touch up; exec sleep 1000000", "readiness": { "file": "/workspace/up" } });
            let made = server.http().json(&spec).put(&path).await.expect(201);
            assert_eq!(made["state"], "ready", "{made}");
            pids.push((path, made["pid"].clone()));
        }
        let mut along = vec![Vec::new(); started.len()];
        let mut session = session;
        for _ in 0..kills {
            tokio::time::sleep(Duration::from_millis(50) + dice.moment(200)).await;
            server.kill();
            tokio::time::sleep(dice.moment(100)).await;
            server.restart();
            session = TestSession::new(server.client(), session.id);
            for (id, seen) in started.iter().zip(&mut along) {
                let ids = (session.id.as_str(), id.as_str());
                let cursor = seen.len() as u64;
                let page = session.client().process_output(ids, OutputStream::Stdout, cursor, Duration::ZERO);
                let page = within("a page", page).await.expect("a page");
                assert_eq!((page.cursor, page.missing), (cursor, 0));
                seen.extend_from_slice(&page.data);
                assert_eq!(session.known_process(id).show().await.state, ProcessState::Running);
            }
            for (path, pid) in &pids {
                let service = server.http().get(path).await.expect(200);
                assert_eq!((&service["state"], &service["pid"]), (&json!("ready"), pid), "{service}");
            }
        }
        session.says("touch enough").await;
        let mut lines_in_all = 0;
        for (number, (id, seen)) in started.iter().zip(&along).enumerate() {
            let process = session.known_process(id);
            let ended = process.ended().await;
            assert_eq!(ended.exit.as_ref().map(|exit| exit.code), Some(7), "{ended:?}");
            let all = process.all(OutputStream::Stdout).await;
            assert_eq!(ended.stdout.written, all.len() as u64);
            assert!(all.starts_with(seen), "what was read along is what is there");
            let text = String::from_utf8(all).expect("text");
            let end = if number as u32 >= processes { "\r\n" } else { "\n" };
            let lines: Vec<&str> = text.split_terminator(end).collect();
            let (last, counted) = lines.split_last().expect("some output");
            assert_eq!(*last, format!("end {}", counted.len()));
            for (at, line) in counted.iter().enumerate() {
                assert_eq!(*line, format!("line {}", at + 1));
            }
            lines_in_all += counted.len();
        }
        println!("{kills} kills, {} processes, {lines_in_all} lines, none lost or repeated", started.len());
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_thousand_short_processes_at_once_each_end_as_they_say() {
    let user = User::running_the_tests();
    let server = Server::of(&user);
    in_threads(async {
        let session = server.session_like(json!({ "policy": { "pids": 4096 } })).await;
        session.says("true").await;
        let began = Instant::now();
        let mut all = JoinSet::new();
        for number in 0..1000 {
            let session = session.clone();
            all.spawn(async move {
                let argv = [
                    "/bin/sh",
                    "-c",
                    "echo $1; exit $2",
                    "sh",
                    &number.to_string(),
                    &(number % 256).to_string(),
                ];
                let request =
                    StartProcess { argv: Some(argv.map(str::to_owned).to_vec()), ..StartProcess::default() };
                let started = session.client().start_process(&session.id, &request).await.expect("started");
                let process = session.known_process(&started.id);
                let ended = process.ended().await;
                assert_eq!(ended.exit.map(|exit| exit.code), Some(number % 256));
                assert_eq!(process.all(OutputStream::Stdout).await, format!("{number}\n").into_bytes());
            });
        }
        while let Some(ended) = all.join_next().await {
            ended.expect("as it says");
        }
        println!("1000 processes in {} ms", began.elapsed().as_millis());
        eventually(async || {
            let listed = session.client().processes(&session.id).await.map_err(|error| error.to_string())?;
            assert_eq!(listed.processes.len(), 1000);
            if listed.in_room.is_empty() { Ok(()) } else { Err(format!("{:?}", listed.in_room)) }
        })
        .await;
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_flood_through_a_process_is_counted_and_bounded() {
    flood(300 * MIB);
}

#[test]
#[ignore = "long"]
fn soak_a_flood_through_a_process_is_counted_and_bounded() {
    flood(10_000 * MIB);
}

fn flood(bytes: u64) {
    const KEPT: u64 = 2 * MIB;
    let user = User::running_the_tests();
    let server = Server::of(&user);
    in_threads(async {
        let session = server.session().await;
        session.says("true").await;
        let before = memory_kb(server.pid(), "VmRSS");
        let command = format!("yes 0123456789abcde | head -c {bytes}; echo last.; echo said >&2");
        let began = Instant::now();
        let process = session.process(json!({ "command": command, "keep_output": KEPT })).await;
        let waited = session.client().wait_for_process(&session.id, &process.id, Duration::from_secs(3600));
        let ended = waited.await.expect("its end");
        let rate = bytes / MIB * 1000 / began.elapsed().as_millis().max(1) as u64;
        assert_eq!(ended.exit.as_ref().map(|exit| exit.code), Some(0), "{ended:?}");
        assert_eq!((ended.stdout.written, ended.stderr.written), (bytes + 6, 5));
        assert_eq!(ended.stdout.dropped, bytes + 6 - KEPT / 2);
        let grown = memory_kb(server.pid(), "VmHWM").saturating_sub(before);
        assert!(grown < 40 << 10, "the host grew by {grown} KiB");
        let ring = server.state().join("output").join(&session.id).join(&process.id);
        let on_disk = std::fs::metadata(ring).expect("a ring").blocks() * 512;
        assert!(on_disk <= KEPT + 64 * 1024, "{on_disk} bytes on the disk");
        let ids = (session.id.as_str(), process.id.as_str());
        let page = session.client().process_output(ids, OutputStream::Stdout, bytes - 16, Duration::ZERO);
        assert_eq!(page.await.expect("a page").data, b"0123456789abcde\nlast.\n");
        println!("{} MiB through one process at {rate} MiB/s, the host grew by {grown} KiB", bytes / MIB);
    });
}
