//! How fast bytes pass, and how long a connection takes: without a proxy, through the proxy, and through packets.
//!
//! ```sh
//! cargo run --release -p workroom-egress --example throughput
//! ```
//!
//! The last line needs root and /dev/net/tun. Figures are for one machine at one time: compare lines of one run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use workroom_egress::transparent::{MTU, ROOM};
use workroom_egress::{Limits, Policy, ResolverSettings, SessionNet, serve_connection, serve_tun};

const BYTES: usize = 2 << 30;
const CONNECTIONS: usize = 500;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(measure());
}

async fn measure() {
    // Loopback does not go through a device, so the server has the address that the machine has elsewhere.
    let probe = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let own = match probe.connect("192.0.2.1:9").and_then(|()| probe.local_addr()) {
        Ok(address) => address.ip(),
        Err(_) => Ipv4Addr::LOCALHOST.into(),
    };
    let server = start_server(own).await;
    let rules = serde_json::json!({"mode": "allow", "cidrs": [own]});
    let policy: Policy = serde_json::from_value(rules).expect("a policy");
    let session = SessionNet::new(policy, ResolverSettings::default(), Limits::default(), Box::new(()));
    let proxy = start_proxy(session.clone()).await;
    println!("{:<22}{:>12}{:>12}{:>16}", "way", "down MB/s", "up MB/s", "connect µs");
    report("direct", async || TcpStream::connect(server).await.expect("the server")).await;
    report("CONNECT", async || connect(proxy, server).await).await;
    report("SOCKS5", async || socks(proxy, server).await).await;
    match room() {
        Ok((room, tun)) => {
            tokio::spawn(serve_tun(tun, session));
            let (sender, receiver) = std::sync::mpsc::channel();
            // A runtime whose threads are all in the room.
            std::thread::spawn(move || {
                room();
                let inside =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                inside.block_on(report("packets", async || {
                    TcpStream::connect(server).await.expect("the server")
                }));
                sender.send(()).expect("somebody waits");
            });
            tokio::task::spawn_blocking(move || receiver.recv()).await.expect("it ends").expect("it ends");
        }
        Err(reason) => println!("packets: not measured: {reason}"),
    }
}

async fn report(way: &str, connect: impl AsyncFn() -> TcpStream) {
    let mut stream = connect().await;
    stream.write_all(b"d").await.expect("sent");
    let started = Instant::now();
    let mut buffer = vec![0; 1 << 20];
    let mut got = 0;
    while got < BYTES {
        got += stream.read(&mut buffer).await.expect("bytes");
    }
    let down = BYTES as f64 / started.elapsed().as_secs_f64() / 1e6;
    drop(stream);
    let mut stream = connect().await;
    stream.write_all(b"u").await.expect("sent");
    let started = Instant::now();
    for _ in 0..BYTES >> 20 {
        stream.write_all(&buffer).await.expect("sent");
    }
    stream.shutdown().await.expect("ended");
    stream.read_exact(&mut buffer[..1]).await.expect("the server has all");
    let up = BYTES as f64 / started.elapsed().as_secs_f64() / 1e6;
    let mut times = Vec::new();
    for _ in 0..CONNECTIONS {
        let started = Instant::now();
        let mut stream = connect().await;
        stream.write_all(b"p").await.expect("sent");
        stream.read_exact(&mut buffer[..1]).await.expect("an answer");
        times.push(started.elapsed().as_micros());
    }
    times.sort();
    println!("{way:<22}{down:>12.0}{up:>12.0}{:>16}", times[CONNECTIONS / 2]);
}

/// Sends for ever, takes all, or answers one byte.
async fn start_server(own: IpAddr) -> SocketAddr {
    let listener = TcpListener::bind((own, 0)).await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 20];
                match stream.read_u8().await {
                    Ok(b'd') => while stream.write_all(&buffer).await.is_ok() {},
                    Ok(b'u') => {
                        while stream.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
                        let _ = stream.write_all(b"!").await;
                    }
                    _ => drop(stream.write_all(b"!").await),
                }
            });
        }
    });
    address
}

async fn start_proxy(session: Arc<SessionNet>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            tokio::spawn(serve_connection(stream, session.clone()));
        }
    });
    address
}

async fn connect(proxy: SocketAddr, server: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).await.expect("the proxy");
    stream.write_all(format!("CONNECT {server} HTTP/1.1\r\n\r\n").as_bytes()).await.expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("an answer"));
    }
    stream
}

async fn socks(proxy: SocketAddr, server: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).await.expect("the proxy");
    let SocketAddr::V4(server) = server else { unreachable!("the server is on IPv4") };
    let request = [&[5, 1, 0, 5, 1, 0, 1][..], &server.ip().octets(), &server.port().to_be_bytes()].concat();
    stream.write_all(&request).await.expect("sent");
    stream.read_exact(&mut [0; 12]).await.expect("an answer");
    stream
}

/// A network namespace with a device, and how a thread gets into it; or why there can be none.
fn room() -> Result<(impl FnOnce() + Send, OwnedFd), String> {
    use workroom_sys::namespace::{Namespaces, enter, unshare};
    let making = std::thread::spawn(|| -> std::io::Result<(OwnedFd, OwnedFd)> {
        unshare(Namespaces::NET)?;
        let tun = workroom_sys::tun::create("tun0")?;
        workroom_sys::tun::configure("tun0", ROOM, MTU)?;
        workroom_sys::tun::route_everything("tun0")?;
        let namespace = std::fs::File::open("/proc/thread-self/ns/net")?;
        Ok((namespace.into(), tun))
    });
    let (namespace, tun) =
        making.join().map_err(|_| "a panic".to_owned())?.map_err(|error| error.to_string())?;
    Ok((
        move || {
            use std::os::fd::AsFd;
            enter(namespace.as_fd(), Namespaces::NET).expect("the room is there");
        },
        tun,
    ))
}
