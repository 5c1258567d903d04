//! What tests of the network share: a name server that attacks, servers that remember, a proxy in front of a session.
#![allow(dead_code, unreachable_pub)]

pub mod hello;
pub mod names;
pub mod room;
pub mod tls;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use workroom_egress::{
    DenialEvent, Limits, NameServers, Policy, ResolverSettings, SessionNet, Watcher, serve_connection,
};

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async { within(test).await })
}

pub async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE * 3, work).await.expect("it ends in time")
}

/// Waits until something that happens beside the test has happened.
pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

pub fn policy(json: serde_json::Value) -> Policy {
    serde_json::from_value(json).expect("a good policy")
}

/// Remembers the events it was told.
#[derive(Clone, Default)]
pub struct Witness(pub Arc<Mutex<Vec<DenialEvent>>>);

impl Watcher for Witness {
    fn denied(&self, event: &DenialEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Witness {
    pub fn seen(&self) -> Vec<DenialEvent> {
        self.0.lock().unwrap().clone()
    }
}

pub fn resolver(server: SocketAddr) -> ResolverSettings {
    ResolverSettings {
        servers: NameServers::Given(vec![server]),
        patience: Duration::from_secs(2),
        rounds: 1,
    }
}

pub struct World {
    pub session: Arc<SessionNet>,
    pub names: names::NameServer,
    pub witness: Witness,
    pub proxy: SocketAddr,
}

impl World {
    /// A session with a name server of its own and a proxy in front, on a port of its own.
    pub async fn new(rules: serde_json::Value) -> Self {
        Self::with_limits(rules, Limits::default()).await
    }

    pub async fn with_limits(rules: serde_json::Value, limits: Limits) -> Self {
        let names = names::NameServer::start().await;
        let witness = Witness::default();
        let session =
            SessionNet::new(policy(rules), resolver(names.address), limits, Box::new(witness.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let proxy = listener.local_addr().expect("its address");
        let serving = session.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_connection(stream, serving.clone()));
            }
        });
        World { session, names, witness, proxy }
    }

    pub async fn call(&self) -> TcpStream {
        TcpStream::connect(self.proxy).await.expect("the proxy listens")
    }

    /// CONNECT, with the head of the answer.
    pub async fn connect(&self, target: &str) -> (TcpStream, String) {
        let mut stream = self.call().await;
        stream
            .write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let head = read_head(&mut stream).await;
        (stream, head)
    }

    /// CONNECT that must succeed.
    pub async fn tunnel(&self, target: &str) -> TcpStream {
        let (stream, head) = self.connect(target).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{target}: {head}");
        stream
    }

    /// SOCKS5 by name, with the reply code.
    pub async fn socks(&self, host: &[u8], port: u16) -> (TcpStream, u8) {
        let mut request = vec![5, 1, 0, 3, host.len() as u8];
        request.extend_from_slice(host);
        self.socks_raw(&[&request[3..], &port.to_be_bytes()].concat()).await
    }

    pub async fn socks_address(&self, address: IpAddr, port: u16) -> (TcpStream, u8) {
        let place = match address {
            IpAddr::V4(address) => [&[1][..], &address.octets()].concat(),
            IpAddr::V6(address) => [&[4][..], &address.octets()].concat(),
        };
        self.socks_raw(&[&place[..], &port.to_be_bytes()].concat()).await
    }

    async fn socks_raw(&self, place: &[u8]) -> (TcpStream, u8) {
        let mut stream = self.call().await;
        stream.write_all(&[5, 1, 0]).await.unwrap();
        let mut chosen = [0; 2];
        stream.read_exact(&mut chosen).await.unwrap();
        assert_eq!(chosen, [5, 0]);
        stream.write_all(&[&[5, 1, 0], place].concat()).await.unwrap();
        let mut reply = [0; 10];
        stream.read_exact(&mut reply).await.unwrap();
        (stream, reply[1])
    }
}

pub async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match within(stream.read_u8()).await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

pub async fn read_all(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = within(stream.read_to_end(&mut all)).await;
    all
}

/// A server that serves each connection by a function of the test, and counts them.
pub struct Server {
    pub address: SocketAddr,
    pub calls: Arc<Mutex<usize>>,
}

impl Server {
    pub async fn start<F, Fut>(address: &str, serve: F) -> Self
    where
        F: Fn(TcpStream) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.expect("a test address");
        let address = listener.local_addr().expect("its address");
        let calls = Arc::new(Mutex::new(0));
        let counted = calls.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *counted.lock().unwrap() += 1;
                tokio::spawn(serve(stream));
            }
        });
        Server { address, calls }
    }

    pub fn calls(&self) -> usize {
        *self.calls.lock().unwrap()
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sends everything back, and ends when the client does.
    pub async fn echo(address: &str) -> Self {
        Self::start(address, |mut stream| async move {
            let (mut reads, mut writes) = stream.split();
            let _ = tokio::io::copy(&mut reads, &mut writes).await;
            let _ = writes.shutdown().await;
        })
        .await
    }

    /// Answers every HTTP request with what it got: head and body, one after the other.
    pub async fn mirror(address: &str) -> Self {
        Self::start(address, |stream| async move {
            let _ = mirror(stream).await;
        })
        .await
    }
}

/// A small HTTP server of its own, so that the proxy is not tested against itself: it takes lengths and chunks.
pub async fn mirror(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    loop {
        let head = read_head(&mut stream).await;
        if head.is_empty() {
            return Ok(());
        }
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ").map(str::to_owned));
        let mut body = Vec::new();
        if let Some(length) = length {
            body.resize(length.trim().parse().expect("a length"), 0);
            stream.read_exact(&mut body).await?;
        } else if lower.contains("transfer-encoding: chunked") {
            loop {
                let mut line = Vec::new();
                while !line.ends_with(b"\r\n") {
                    line.push(stream.read_u8().await?);
                }
                let text = String::from_utf8_lossy(&line).trim().to_owned();
                let size = usize::from_str_radix(&text, 16).expect("a size of a chunk");
                let mut chunk = vec![0; size + 2];
                stream.read_exact(&mut chunk).await?;
                if size == 0 {
                    break;
                }
                body.extend_from_slice(&chunk[..size]);
            }
        }
        let reflected = [head.as_bytes(), &body].concat();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", reflected.len());
        stream.write_all(answer.as_bytes()).await?;
        if !head.starts_with("HEAD ") {
            stream.write_all(&reflected).await?;
        }
        stream.flush().await?;
    }
}

/// Whether a program can be run here; says so where not.
pub fn has(program: &str) -> bool {
    let found = std::process::Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: there is no {program} here");
    }
    found
}
