//! What tests of the network share: a name server whose answers the test decides, servers on loopback test addresses
//! that remember who called, and sessions that may reach them.
#![allow(dead_code, reason = "every test file uses some of it")]

#[path = "../../../egress/tests/support/names.rs"]
#[allow(unreachable_pub, reason = "it is another crate's")]
pub(crate) mod names;

use names::NameServer;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use workroom_testkit::types::{ExecResult, NetworkView, Policy};
use workroom_testkit::{Server, Setup, TestSession, User, eventually, processes, within};

/// A server of this machine that remembers its calls and what was asked.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    calls: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Upstream {
    /// Answers HTTP: `/give/N` with N bytes, `/KEY` with what it has under that, and everything else with a greeting
    /// to the host that was asked for.
    pub(crate) async fn http(ip: &str, pages: &[(&'static str, &str)]) -> Upstream {
        let pages: Vec<(&'static str, String)> =
            pages.iter().map(|(path, body)| (*path, (*body).to_owned())).collect();
        Self::start(ip, move |stream, heads| answer_http(stream, heads, pages.clone())).await
    }

    /// Says back what it is told, line by line; `give N` is answered by N bytes and the end.
    pub(crate) async fn plain(ip: &str) -> Upstream {
        Self::start(ip, answer_plain).await
    }

    async fn start<F, Fut>(ip: &str, answer: F) -> Upstream
    where
        F: Fn(TcpStream, Arc<Mutex<Vec<String>>>) -> Fut + Send + 'static,
        Fut: Future<Output = Option<()>> + Send + 'static,
    {
        let at: SocketAddr =
            if ip.contains(':') { ip.to_owned() } else { format!("{ip}:0") }.parse().expect("an address");
        let listener = TcpListener::bind(at).await.expect("a test address");
        let address = listener.local_addr().expect("its address");
        let (calls, heads) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (counted, remembered) = (calls.clone(), heads.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(answer(stream, remembered.clone()));
            }
        });
        Upstream { address, calls, heads }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// The first lines of what it was told.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("whole").clone()
    }
}

async fn answer_http(
    mut stream: TcpStream,
    heads: Arc<Mutex<Vec<String>>>,
    pages: Vec<(&'static str, String)>,
) -> Option<()> {
    let mut head = Vec::new();
    loop {
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        head.clear();
        let path = text.split_whitespace().nth(1).unwrap_or_default().to_owned();
        let host = text.lines().find_map(|line| {
            line.to_ascii_lowercase().strip_prefix("host:").map(|host| host.trim().to_owned())
        });
        heads.lock().expect("whole").push(text.lines().next().unwrap_or_default().to_owned());
        let page = pages.iter().find(|(known, _)| path.split('?').next() == Some(*known));
        let body = match (path.strip_prefix("/give/").and_then(|number| number.parse::<usize>().ok()), page) {
            (Some(number), _) => "x".repeat(number),
            (None, Some((_, body))) => body.clone(),
            (None, None) => format!("hello {}\n", host.unwrap_or_default()),
        };
        let kind = match body.as_bytes().first() {
            Some(b'<') => "text/html",
            Some(b'{') => "application/json",
            _ => "text/plain",
        };
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nContent-Type: {kind}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.ok()?;
        stream.write_all(body.as_bytes()).await.ok()?;
    }
}

async fn answer_plain(mut stream: TcpStream, heads: Arc<Mutex<Vec<String>>>) -> Option<()> {
    let mut line = Vec::new();
    loop {
        let byte = stream.read_u8().await.ok()?;
        line.push(byte);
        if byte != b'\n' {
            continue;
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        heads.lock().expect("whole").push(text.clone());
        match text.strip_prefix("give ").and_then(|number| number.parse().ok()) {
            Some(number) => {
                stream.write_all(&vec![b'x'; number]).await.ok()?;
                return stream.shutdown().await.ok();
            }
            // Who speaks another protocol has said enough.
            None if text.starts_with("SSH-") => return None,
            None => stream.write_all(&line).await.ok()?,
        }
        line.clear();
    }
}

/// A server whose rooms ask this name server.
pub(crate) async fn server_with_names(user: &User) -> (Server<'_>, NameServer) {
    let names = NameServer::start().await;
    let config = format!("[serve.network]\nname_servers = [\"{}\"]\n", names.address);
    (Setup::of(user).config(&config).start(), names)
}

pub(crate) async fn session_with(server: &Server<'_>, network: Value) -> TestSession {
    server.session_like(json!({"policy": {"network": network}})).await
}

/// Puts another network policy in force.
pub(crate) async fn set_network(session: &TestSession, network: Value) {
    let policy: Policy = serde_json::from_value(json!({"network": network})).expect("a policy");
    within("a new policy", session.client().set_policy(&session.id, &policy, None))
        .await
        .expect("it is taken");
}

pub(crate) async fn network_of(session: &TestSession) -> NetworkView {
    within("its network", session.client().network(&session.id, Some(1000))).await.expect("its network")
}

/// Whether rooms of this user can have a device: the machine must let it make one.
pub(crate) fn has_device(user: &User) -> bool {
    let tried = user.command("/bin/sh").args(["-c", "exec 3<>/dev/net/tun"]).status();
    let has = tried.is_ok_and(|status| status.success());
    if !has {
        println!("/dev/net/tun is not for this user: programs that know of no proxy are not tried");
    }
    has
}

pub(crate) fn is_installed(program: &str) -> bool {
    let there = Path::new("/usr/bin").join(program).exists();
    if !there {
        println!("skipped: {program} is not installed");
    }
    there
}

/// A Python program in the room: what it printed.
pub(crate) async fn python(session: &TestSession, program: &str) -> ExecResult {
    session.run(json!({"argv": ["/usr/bin/python3", "-c", program], "timeout_ms": 25_000})).await
}

/// A program that asks for a page by a plain socket, and says what came or what went wrong.
pub(crate) fn plain_get(host: &str, port: u16) -> String {
    format!(
        "import socket\n\
         try:\n  \
           s = socket.create_connection(('{host}', {port}), 10)\n  \
           s.sendall(b'GET / HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n')\n  \
           print(b''.join(iter(lambda: s.recv(4096), b'')).decode())\n\
         except Exception as error: print('refused:', type(error).__name__, error)\n"
    )
}

/// The network process of a server, if it has one.
pub(crate) fn network_process(server: &Server<'_>) -> Option<i32> {
    let of_server = processes().into_iter().filter(|process| process.parent == server.pid());
    let is_it = |pid: i32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"workroom-egress"))
    };
    of_server.map(|process| process.pid).find(|pid| is_it(*pid))
}

pub(crate) fn send_signal(pid: i32, signal: &str) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "signal {signal} to {pid}");
}

/// Waits until a page is got through the proxy.
pub(crate) async fn until_reached(session: &TestSession, url: &str) {
    eventually(async || {
        let result = session.sh(&format!("curl -sS --max-time 3 {url}")).await;
        if result.stdout.starts_with("hello") { Ok(()) } else { Err(format!("{result:?}")) }
    })
    .await;
}
