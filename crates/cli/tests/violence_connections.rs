//! A thousand connections: idle ones, slow ones, ones that go away in the middle, and those that work all the while.

mod violence;

use serde_json::json;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use violence::line::Line;
use violence::machine::{memory_kb, text};
use violence::{Dice, in_threads};
use workroom_testkit::{PATIENCE, Server, User, eventually};

#[test]
fn the_server_goes_on_among_many_connections() {
    crowd(200);
}

#[test]
#[ignore = "long"]
fn soak_the_server_goes_on_among_many_connections() {
    crowd(1000);
}

/// A kept connection, over which one thing is asked after the other.
struct Kept {
    stream: TcpStream,
    token: String,
}

impl Kept {
    async fn to(address: SocketAddr, token: &str) -> Kept {
        let stream = tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await;
        Kept { stream: stream.expect("in time").expect("a connection"), token: token.to_owned() }
    }

    fn head(&self, method: &str, path: &str, length: usize) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nAccept: application/json\r\nContent-Length: {length}\r\n\r\n",
            self.token
        )
    }

    /// The status and the body of the answer.
    async fn ask(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        let request = self.head(method, path, body.len()) + body;
        let exchange = async {
            self.stream.write_all(request.as_bytes()).await.expect("a request");
            let mut answer = Vec::new();
            loop {
                assert_ne!(
                    self.stream.read_buf(&mut answer).await.expect("an answer"),
                    0,
                    "it is not cut off"
                );
                let text = String::from_utf8_lossy(&answer);
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let head = head.to_ascii_lowercase();
                let length =
                    head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
                if body.len() >= length.unwrap_or(0) {
                    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
                    return (status.expect("a status"), body.to_owned());
                }
            }
        };
        tokio::time::timeout(PATIENCE, exchange).await.expect("an answer in time")
    }
}

fn crowd(connections: usize) {
    let mut dice = Dice::new();
    let user = User::running_the_tests();
    let server = Server::of(&user);
    let line = Line::of(&server);
    let (address, token) = (server.address(), server.token().to_owned());
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", server.pid())).map_or(0, Iterator::count);
    in_threads(async {
        let made = line.post("/v1/sessions", None).await;
        let id = text(made.expect(201), "id").to_owned();
        let exec = format!("/v1/sessions/{id}/exec");
        let (open_before, memory_before) = (descriptors(), memory_kb(server.pid(), "VmRSS"));

        // Half of them ask once and then wait; a quarter never end their request.
        let mut idle = Vec::new();
        for _ in 0..connections / 2 {
            let mut kept = Kept::to(address, &token).await;
            assert_eq!(kept.ask("GET", "/healthz", "").await.0, 200);
            idle.push(kept);
        }
        let mut slow = Vec::new();
        for _ in 0..connections / 4 {
            let mut kept = Kept::to(address, &token).await;
            let request = kept.head("POST", &exec, 1000) + "{";
            let cut = 1 + dice.below(request.len() as u64 - 1) as usize;
            kept.stream.write_all(&request.as_bytes()[..cut]).await.expect("a part of a request");
            slow.push((kept, request, cut));
        }

        // The rest works, while others come and go in the middle of what they ask.
        let mut working = JoinSet::new();
        for worker in 0..connections / 4 {
            let (token, exec, mut dice) = (token.clone(), exec.clone(), dice.fork());
            working.spawn(async move {
                let mut kept = Kept::to(address, &token).await;
                for number in 0..5 {
                    let word = format!("{worker}-{number}");
                    let command =
                        json!({ "command": format!("echo {word}"), "timeout_ms": 120_000 }).to_string();
                    let (status, answer) = loop {
                        // So many at once are refused politely.
                        match kept.ask("POST", &exec, &command).await {
                            (429, _) => tokio::time::sleep(dice.moment(100)).await,
                            told => break told,
                        }
                    };
                    assert_eq!(status, 200, "{answer}");
                    assert!(answer.contains(&format!("{word}\\n")), "{answer}");
                    assert_eq!(kept.ask("GET", "/v1/sessions?limit=10", "").await.0, 200);
                }
            });
        }
        for _ in 0..connections {
            let mut kept = Kept::to(address, &token).await;
            let body = json!({ "command": "echo gone >> gone" }).to_string();
            let request = kept.head("POST", &exec, body.len()) + &body;
            let cut = 1 + dice.below(request.len() as u64) as usize;
            kept.stream.write_all(&request.as_bytes()[..cut]).await.expect("a part of a request");
            // It goes, with whatever was on the way to it.
        }
        while let Some(worked) = working.join_next().await {
            worked.expect("it was answered, and rightly");
        }

        // Who was slow ends what it began; who was idle asks again.
        for (kept, request, cut) in &mut slow {
            let rest = request.as_bytes()[*cut..].to_vec();
            kept.stream.write_all(&rest).await.expect("the rest of the head");
            kept.stream.write_all(&[b' '; 998]).await.expect("a body");
            kept.stream.write_all(b"}").await.expect("its end");
            let mut answer = [0; 12];
            tokio::time::timeout(PATIENCE, kept.stream.read_exact(&mut answer))
                .await
                .expect("in time")
                .expect("an answer");
            assert_eq!(&answer, b"HTTP/1.1 400", "an exec without a command");
        }
        for kept in &mut idle {
            assert_eq!(kept.ask("GET", "/v1/sessions?limit=1", "").await.0, 200);
        }
        let grown = memory_kb(server.pid(), "VmRSS").saturating_sub(memory_before);
        println!("{connections} connections at once: the host grew by {} KiB", grown);
        assert!(grown < 200 << 10, "the host grew by {grown} KiB");
        drop((idle, slow));
        // What others had left behind goes with them.
        eventually(async || match descriptors() {
            now if now <= open_before + 10 => Ok(()),
            now => Err(format!("{now} descriptors are open, {open_before} were")),
        })
        .await;
        let still = line.says(&id, "echo still here").await;
        assert_eq!(still, "still here\n");
    });
}
