//! A disk that is full or fails: nothing is acknowledged that is not durable, what must work does, and it recovers by itself.

mod violence;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use violence::line::{Line, Request};
use violence::machine::{agrees, all_sessions, text, verify_journals};
use violence::{Dice, in_threads};
use workroom_testkit::{Server, Setup, User, eventually};

/// Numbers that were to be appended to a journal: those that were acknowledged, and those that were refused.
struct Numbers {
    line: Line,
    session: String,
    acknowledged: Vec<u64>,
    /// Asked for again under their key they are there once, be it that they were so before.
    refused: Vec<u64>,
    /// Those of the acknowledged that were refused at first.
    repeated: Vec<u64>,
}

impl Numbers {
    fn of(line: &Line, session: &str) -> Numbers {
        let (line, session) = (line.clone(), session.to_owned());
        Numbers { line, session, acknowledged: Vec::new(), refused: Vec::new(), repeated: Vec::new() }
    }

    /// Asks for a number to be appended, with as much beside it as takes space.
    async fn append(&mut self, number: u64, size: usize) -> bool {
        let body = json!({ "kind": "number", "body": { "number": number, "beside": "x".repeat(size) } });
        let path = format!("/v1/sessions/{}/events", self.session);
        let heard = self.line.ask(&Request::post(path, Some(body)).under(format!("number-{number}"))).await;
        let granted = heard.status == 201;
        if granted {
            assert_eq!(heard.body["body"]["number"], number);
            if self.refused.contains(&number) {
                self.refused.retain(|refused| *refused != number);
                self.repeated.push(number);
            }
            self.acknowledged.push(number);
        } else {
            assert_eq!((heard.status, heard.code()), (503, "storage_unavailable"), "{}", heard.body);
            if !self.refused.contains(&number) {
                self.refused.push(number);
            }
        }
        granted
    }

    /// The journal holds what was acknowledged, once and in order, and nothing that nobody asked for.
    async fn check(&self) {
        let mut found = Vec::new();
        let mut after = 0;
        loop {
            let path = format!("/v1/sessions/{}/events?limit=500&after={after}", self.session);
            let page = self.line.get(path).await;
            let entries = page.expect(200)["entries"].as_array().expect("entries");
            let Some(last) = entries.last() else { break };
            after = last["seq"].as_i64().expect("a place");
            let own = entries.iter().filter(|entry| text(entry, "kind") == "caller.number");
            found.extend(own.map(|entry| entry["body"]["number"].as_u64().expect("a number")));
        }
        let unique: BTreeSet<u64> = found.iter().copied().collect();
        assert_eq!(unique.len(), found.len(), "once each: {found:?}");
        let strange = |number: &&u64| !self.acknowledged.contains(number) && !self.refused.contains(number);
        assert_eq!(found.iter().find(strange), None);
        let at_once = |number: &u64| self.acknowledged.contains(number) && !self.repeated.contains(number);
        let acknowledged: Vec<u64> = self.acknowledged.iter().copied().filter(at_once).collect();
        let in_order: Vec<u64> = found.iter().copied().filter(at_once).collect();
        assert_eq!(in_order, acknowledged);
        assert!(self.acknowledged.iter().all(|number| unique.contains(number)), "{found:?}");
    }
}

/// A small file system of its own.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf, megabytes: u32) -> Option<Small> {
        std::fs::create_dir(&at).expect("a directory");
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Small(at));
        }
        println!("skipped: a tmpfs cannot be mounted here");
        None
    }

    fn fill(&self) {
        let mut filler = std::fs::File::create(self.0.join("filler")).expect("a file");
        for size in [1 << 20, 4096, 1] {
            let bytes = vec![1; size];
            while filler.write_all(&bytes).is_ok() {}
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("filler")).expect("the filler goes");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_refuses_what_is_new_and_lets_go_of_what_is_old() {
    fill_the_disk(2);
}

#[test]
#[ignore = "long"]
fn soak_a_full_disk_refuses_what_is_new_and_lets_go_of_what_is_old() {
    fill_the_disk(10);
}

fn fill_the_disk(times: u32) {
    let user = User::running_the_tests();
    let Some(small) = Small::mount(user.path("small"), 128) else { return };
    let mut server = Setup::of(&user).state(&small.0.join("state")).start();
    let line = Line::of(&server);
    in_threads(async {
        let mut next = 1;
        let mut refusals = 0;
        for round in 0..times {
            let keeper = make(&line, &format!("keeper-{round}")).await.expect("a session");
            let mut kept = BTreeSet::from([keeper.clone()]);
            let mut numbers = Numbers::of(&line, &keeper);
            let mut old = Vec::new();
            for number in 0..4 {
                old.push(make(&line, &format!("old-{round}-{number}")).await.expect("a session"));
            }
            assert!(numbers.append(next, 10).await, "there is space");
            // Space for stopping and deleting is set aside before there is need.
            let ballast = small.0.join("state/ballast");
            eventually(async || match std::fs::metadata(&ballast).map_or(0, |file| file.len()) {
                0 => Err("nothing is set aside".into()),
                _ => Ok(()),
            })
            .await;
            small.fill();

            // Until nothing more goes in.
            loop {
                next += 1;
                if !numbers.append(next, 100_000).await {
                    break;
                }
            }
            for number in 0..3 {
                match make(&line, &format!("new-{round}-{number}")).await {
                    Ok(id) => drop(kept.insert(id)),
                    Err(problem) => {
                        assert_eq!(text(&problem, "code"), "storage_unavailable", "{problem}");
                        assert!(text(&problem, "detail").contains("`workroom files rm`"), "{problem}");
                        refusals += 1;
                    }
                }
            }
            // What is there can be read, stopped and deleted, also by a host that starts now.
            numbers.check().await;
            look(&line, &old).await;
            stop(&line, &old[0]).await;
            delete(&line, &old[1]).await;
            server.kill();
            server.restart();
            numbers.check().await;
            look(&line, &[old[0].clone(), old[2].clone(), old[3].clone()]).await;
            stop(&line, &old[2]).await;
            for id in [&old[0], &old[2], &old[3]] {
                delete(&line, id).await;
            }

            small.free();
            recover(&line).await;
            for number in numbers.refused.clone() {
                assert!(numbers.append(number, 100_000).await, "there is space again");
            }
            next += 1;
            numbers.check().await;
            let sessions = all_sessions(&line).await;
            let listed: BTreeSet<String> =
                sessions.iter().map(|session| text(session, "id").to_owned()).collect();
            assert_eq!(listed, kept, "what was acknowledged and nothing else");
            eventually(async || agrees(&server, &sessions)).await;
            verify_journals(&server);
            server.kill();
            server.restart();
            numbers.check().await;
            for id in &listed {
                delete(&line, id).await;
            }
        }
        server.expect_no_leaks().await;
        verify_journals(&server);
        println!("{times} times full: {refusals} sessions were refused");
    });
}

async fn stop(line: &Line, id: &str) {
    let stopped = line.post(format!("/v1/sessions/{id}/stop"), None).await;
    assert_eq!(text(stopped.expect(200), "state"), "stopped");
}

async fn delete(line: &Line, id: &str) {
    line.delete(&format!("/v1/sessions/{id}")).await.expect(204);
    assert_eq!(line.get(format!("/v1/sessions/{id}")).await.status, 404);
}

async fn make(line: &Line, name: &str) -> Result<String, Value> {
    let heard = line.ask(&Request::post("/v1/sessions", Some(json!({ "name": name }))).under(name)).await;
    if heard.status == 201 { Ok(text(&heard.body, "id").to_owned()) } else { Err(heard.body) }
}

/// Reading works.
async fn look(line: &Line, sessions: &[String]) {
    let listed = all_sessions(line).await;
    for id in sessions {
        line.get(format!("/v1/sessions/{id}")).await.expect(200);
        assert!(listed.iter().any(|session| text(session, "id") == id), "{id} is listed");
    }
}

/// Waits until the server says that it is ready.
async fn recover(line: &Line) {
    eventually(async || match line.get("/readyz").await {
        heard if heard.status == 200 => Ok(()),
        heard => Err(heard.body.to_string()),
    })
    .await;
}

/// System calls of a host that fail, for as long as this is there.
struct Failing(Child);

impl Failing {
    fn host(pid: i32, calls: &str, error: &str, when: &str) -> Option<Failing> {
        let injection = format!("inject={calls}:error={error}:when={when}");
        let strace = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-e", &injection, "-p", &pid.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        strace.map(Failing).ok()
    }

    /// Every thread of the host is watched.
    fn has_begun(&self, pid: i32) -> Result<(), String> {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let watched = |thread: &Path| {
            let status = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
            !status.contains("TracerPid:\t0\n")
        };
        let all = threads.into_iter().all(|thread| watched(&thread.path()));
        if all { Ok(()) } else { Err("strace does not watch every thread".into()) }
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        // Asked to, it lets go of what it watches; killed, it would leave it as it is.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::TERM,
        );
        let _ = self.0.wait();
    }
}

#[test]
fn a_disk_that_fails_is_not_believed() {
    fail_the_disk(4);
}

#[test]
#[ignore = "long"]
fn soak_a_disk_that_fails_is_not_believed() {
    fail_the_disk(100);
}

fn fail_the_disk(times: u32) {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        println!("skipped: there is no strace here");
        return;
    }
    let mut dice = Dice::new();
    let user = User::running_the_tests();
    let mut server = Server::of(&user);
    let line = Line::of(&server);
    in_threads(async {
        let keeper = make(&line, "keeper").await.expect("a session");
        let mut numbers = Numbers::of(&line, &keeper);
        let mut next = 0;
        let mut kept = BTreeSet::from([keeper]);
        let mut refused_sessions = 0;
        for round in 0..times {
            let [to_stop, to_delete] = ["stop", "delete"].map(|what| format!("to-{what}-{round}"));
            let to_stop = make(&line, &to_stop).await.expect("a session");
            let to_delete = make(&line, &to_delete).await.expect("a session");
            let calls = ["fsync,fdatasync", "pwrite64", "fsync,fdatasync,pwrite64"][dice.below(3) as usize];
            let error = ["EIO", "ENOSPC"][dice.below(2) as usize];
            let when = ["1+", "1+2", "2+3", "5..40"][dice.below(4) as usize];
            println!("round {round}: {calls} fail with {error}, {when}");
            let failing = Failing::host(server.pid(), calls, error, when).expect("strace");
            eventually(async || failing.has_begun(server.pid())).await;
            for _ in 0..10 {
                next += 1;
                numbers.append(next, 10).await;
                look(&line, &[to_stop.clone(), to_delete.clone()]).await;
            }
            let name = format!("made-{round}");
            if make(&line, &name).await.is_err() {
                refused_sessions += 1;
            }
            // A room is ended whatever the store says; what is deleted must be so for good to be acknowledged.
            stop(&line, &to_stop).await;
            let deleted = line.delete(&format!("/v1/sessions/{to_delete}")).await;
            assert!([204, 503].contains(&deleted.status), "{}", deleted.body);
            if dice.below(3) == 0 {
                server.kill();
                server.restart();
            }
            drop(failing);

            recover(&line).await;
            for number in numbers.refused.clone() {
                assert!(numbers.append(number, 10).await, "it works again");
            }
            numbers.check().await;
            kept.insert(make(&line, &name).await.expect("a session"));
            delete(&line, &to_delete).await;
            let stopped = line.get(format!("/v1/sessions/{to_stop}")).await;
            assert_eq!(text(stopped.expect(200), "state"), "stopped");
            delete(&line, &to_stop).await;
            let sessions = all_sessions(&line).await;
            let listed: BTreeSet<String> =
                sessions.iter().map(|session| text(session, "id").to_owned()).collect();
            assert_eq!(listed, kept, "what was acknowledged and nothing else");
            eventually(async || agrees(&server, &sessions)).await;
            verify_journals(&server);
        }
        server.kill();
        server.restart();
        numbers.check().await;
        verify_journals(&server);
        println!(
            "{times} times failing: {} entries, {refused_sessions} sessions refused at first",
            numbers.acknowledged.len()
        );
    });
}
