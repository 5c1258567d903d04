//! Files that are larger than anybody's memory, bodies that break off, forms with several files, and many calls at once.

use serde_json::json;
use std::fs;
use std::io::Read;
use std::time::Duration;
use workroom_testkit::client::{Upload, WriteFile};
use workroom_testkit::types::{FilePath, ListFiles};
use workroom_testkit::{Server, User, eventually, for_each_user, processes, run, within};

const LARGE: u64 = 256 << 20;

/// More than this is not for the buffers of a few transfers.
const MOST_GROWTH: u64 = 48 << 20;

/// Bytes that differ from place to place, made as they are read.
struct Pattern(u64);

impl Read for Pattern {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        for (index, word) in buffer.chunks_mut(8).enumerate() {
            let value = (self.0 + index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            word.copy_from_slice(&value[..word.len()]);
        }
        self.0 += (buffer.len() / 8) as u64;
        Ok(buffer.len())
    }
}

fn at(path: &str) -> FilePath {
    FilePath { path: path.into(), root: false }
}

fn most_memory(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") << 10
}

#[test]
fn a_large_file_goes_up_and_down_and_the_server_stays_small() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let client = server.client();
        client
            .upload(
                &session.id,
                &WriteFile { path: "warm".into(), ..WriteFile::default() },
                vec![1; 4 << 20].into(),
            )
            .await
            .expect("up");
        let before = most_memory(server.pid());
        let file = WriteFile { path: "large".into(), ..WriteFile::default() };
        let contents = Upload::new(Pattern(0).take(LARGE)).length(LARGE);
        let (info, created) =
            within("an upload", client.upload(&session.id, &file, contents)).await.expect("up");
        assert_eq!((info.size, created), (LARGE, true));
        let sum = session.says("sha256sum < large").await;
        let told = session.event("file.written").await;
        assert_eq!(told.body["path"], "warm");
        let entries = session.journal().await;
        let written = entries.iter().rfind(|entry| entry.kind == "file.written").expect("in the journal");
        assert_eq!(written.body["sha256"].as_str(), sum.split(' ').next(), "what was sent is what is there");
        assert_eq!(written.body["bytes"], LARGE);

        let mut download = client.download_with_digest(&session.id, &at("large")).await.expect("down");
        let (mut expected, mut buffer, mut received) = (Pattern(0), Vec::new(), 0);
        while let Some(piece) = within("a piece", download.next()).await.expect("down") {
            received += piece.len() as u64;
            buffer.extend_from_slice(&piece);
            let whole = buffer.len() / 8 * 8;
            let mut right = vec![0; whole];
            expected.read_exact(&mut right).expect("bytes");
            assert!(buffer[..whole] == right, "before byte {received}");
            buffer.drain(..whole);
        }
        assert_eq!((received, download.sha256()), (LARGE, sum.split(' ').next()));
        let grown = most_memory(server.pid()) - before;
        assert!(grown < MOST_GROWTH, "the server has grown by {} MiB", grown >> 20);
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_body_that_breaks_off_changes_nothing() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        session.says("echo old > f").await;
        let mut cut = server
            .http()
            .header("Content-Length", 1000)
            .body("half")
            .open("PUT", &session.path("/files/f"))
            .await;
        // A second call is answered while the first one waits for its body.
        assert_eq!(session.says("cat f").await, "old\n");
        let _ = tokio::time::timeout(Duration::from_millis(50), cut.until("never")).await;
        drop(cut);
        let refused = server
            .http()
            .header("Transfer-Encoding", "chunked")
            .body("zz\r\n")
            .put(&session.path("/files/f"))
            .await;
        assert_eq!(refused.problem(400), "invalid_argument");
        assert_eq!(session.says("cat f; ls -A").await, "old\nf\n");
        let names = async || session.says("ls -A").await;
        eventually(async || if names().await == "f\n" { Ok(()) } else { Err(names().await) }).await;
    });
}

/// Gives a byte now and then.
struct Slow(u8);

impl Read for Slow {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_millis(300));
        self.0 = self.0.saturating_sub(1);
        buffer[0] = b'x';
        Ok(usize::from(self.0 > 0))
    }
}

#[test]
fn a_session_at_work_on_a_file_is_not_idle() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session_like(json!({"idle_timeout": 1})).await;
        let file = WriteFile { path: "slow".into(), ..WriteFile::default() };
        let upload = server.client().upload(&session.id, &file, Upload::new(Slow(12))).await;
        assert_eq!(upload.expect("written").0.size, 11);
        assert_eq!(session.show().await.counters.starts, 1);
        // And when it is done, it is.
        session.event("session.stopped").await;
    });
}

#[test]
fn several_files_in_one_form() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        session.says("mkdir -p in/taken").await;
        let part = |disposition: &str, content: &str| {
            format!("--XX\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{content}\r\n")
        };
        let form = |parts: &[String], end: &str| {
            let body = format!("{}{end}", parts.concat());
            server.http().header("Content-Type", "multipart/form-data; boundary=XX").body(body)
        };
        let both = [
            part("name=\"file\"; filename=\"a.txt\"", "one"),
            part("name=\"deep/b\"; filename=\"z\"", "two"),
        ];
        let done = form(&both, "--XX--\r\n").post(&session.path("/files?path=in")).await.expect(200);
        assert_eq!(
            (&done["files"][0]["path"], &done["files"][1]["file"]["path"]),
            (&json!("in/a.txt"), &json!("in/deep/b"))
        );
        assert_eq!(session.says("cat in/a.txt in/deep/b").await, "onetwo");
        let some = [
            part("name=\"taken\"", "not over a directory"),
            part("name=\"../outside\"", "no"),
            part("name=\"fine\"", "three"),
        ];
        let done = form(&some, "--XX--").post(&session.path("/files?path=in")).await.expect(207);
        let codes: Vec<&str> =
            (0..3).map(|n| done["files"][n]["error"]["code"].as_str().unwrap_or("none")).collect();
        assert_eq!(codes, ["wrong_kind", "path_outside_workspace", "none"], "{done}");
        assert_eq!(session.says("cat in/fine; ls").await, "threein\n");
        // Cut off in the middle: what was whole before is there, and is told.
        let cut = form(
            &[part("name=\"whole\"", "4")],
            "--XX\r\nContent-Disposition: form-data; name=\"cut\"\r\n\r\nha",
        )
        .post(&session.path("/files"))
        .await;
        assert_eq!(cut.problem(400), "invalid_argument");
        assert_eq!(cut.json()["report"]["files"][0]["path"], "whole");
        assert_eq!(session.says("ls").await, "in\nwhole\n");
        let wrong = server.http().json(&json!({})).post(&session.path("/files")).await;
        assert_eq!(wrong.problem(415), "unsupported_media_type");
    });
}

/// The clerks of a server's rooms, as this machine shows them: children of a room's first process.
fn clerks(server: &Server<'_>) -> Vec<i32> {
    let own: Vec<i32> = server.room_processes().iter().map(|process| process.pid).collect();
    let is_clerk =
        |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "clerk");
    let all = processes().into_iter().filter(|process| own.contains(&process.parent));
    all.map(|process| process.pid).filter(|pid| is_clerk(*pid)).collect()
}

#[test]
fn many_calls_share_few_clerks_and_an_idle_room_has_none() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let calls: Vec<_> = (0..64)
            .map(|n| {
                let (client, id) = (server.client(), session.id.clone());
                tokio::spawn(async move {
                    let file = WriteFile { path: format!("f{n}"), ..WriteFile::default() };
                    client.upload(&id, &file, vec![n as u8; 1000].into()).await.expect("written");
                    client.list_files(&id, &ListFiles::default()).await.expect("listed");
                })
            })
            .collect();
        for call in calls {
            within("a call", call).await.expect("a call");
        }
        assert!((1..=8).contains(&clerks(&server).len()), "{:?}", clerks(&server));
        assert_eq!(session.says("ls | wc -l").await.trim(), "64");
        let listed = within("processes", server.client().processes(&session.id)).await.expect("listed");
        assert!(listed.in_room.is_empty(), "clerks are none of the room's own: {listed:?}");
        eventually(async || match clerks(&server).len() {
            0 => Ok(()),
            left => Err(format!("{left} clerks are left")),
        })
        .await;
        // And the next call has one again.
        assert_eq!(server.http().get(&session.path("/files/f7")).await.body, vec![7; 1000]);
    });
}

#[test]
fn a_clerk_that_is_killed_is_replaced_and_a_room_that_ends_is_told() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        session.says("echo here > f").await;
        assert_eq!(server.http().get(&session.path("/files/f")).await.text(), "here\n");
        let idle = clerks(&server);
        assert_eq!(idle.len(), 1);
        let pid = rustix::process::Pid::from_raw(idle[0]).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
        assert_eq!(server.http().get(&session.path("/files/f")).await.text(), "here\n");
        let mut slow = server
            .http()
            .header("Content-Length", 1000)
            .body("half")
            .open("PUT", &session.path("/files/g"))
            .await;
        eventually(async || if !clerks(&server).is_empty() { Ok(()) } else { Err("no clerk yet".into()) })
            .await;
        session.stop().await;
        // Its room is gone; the rest of the body changes nothing about that.
        drop(slow.until("").await);
        drop(slow);
        assert_eq!(session.says("ls").await, "f\n");
    });
}
