//! Programs that know of no proxy, in a network namespace with nothing but a TUN device.

mod support;

use serde_json::json;
use std::time::Duration;
use support::room::Room;
use support::tls::TlsServer;
use support::{Server, World, eventually, has, policy, read_all, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use workroom_egress::{Limits, Outcome, Way, serve_tun};

fn rules() -> serde_json::Value {
    json!({"mode": "allow", "domains": ["a.test", "b.test"], "cidrs": ["127.84.0.0/16", "9.9.9.9/32"]})
}

/// A world with a room whose packets are served, or nothing and the reason.
async fn world(rules: serde_json::Value) -> Option<(World, Room)> {
    world_with(rules, Limits::default()).await
}

async fn world_with(rules: serde_json::Value, limits: Limits) -> Option<(World, Room)> {
    let (room, tun) = match Room::make() {
        Ok(made) => made,
        Err(reason) => {
            println!("skipped: {reason}");
            return None;
        }
    };
    let world = World::with_limits(rules, limits).await;
    world.names.has("a.test", &["127.84.0.1"]);
    world.names.has("b.test", &["127.84.0.1"]);
    tokio::spawn(serve_tun(tun, world.session.clone()));
    Some((world, room))
}

/// Connects inside the room and says what happened: "connected" or the error's name.
async fn connect(room: &Room, host: &str, port: u16) -> String {
    let program = format!(
        "import socket\ntry:\n s = socket.create_connection(('{host}', {port}), timeout=10); print('connected')\n\
         except socket.gaierror: print('no such name')\nexcept OSError as e: print(type(e).__name__)"
    );
    room.python(&program).await.trim().to_owned()
}

#[test]
fn programs_reach_what_the_policy_names_and_nothing_else() {
    if !has("python3") {
        return;
    }
    run(async {
        let Some((world, room)) = world(rules()).await else { return };
        let server = Server::echo("127.84.0.1:0").await;
        let trap = Server::echo("127.0.0.1:0").await;
        let port = server.port();
        assert_eq!(connect(&room, "a.test", port).await, "connected");
        assert_eq!(connect(&room, "evil.test", port).await, "no such name");
        assert_eq!(connect(&room, "169.254.169.254", 80).await, "ConnectionRefusedError");
        assert_eq!(connect(&room, "10.0.0.1", 80).await, "ConnectionRefusedError");
        assert_eq!(connect(&room, "1.1.1.1", 443).await, "ConnectionRefusedError");
        assert_eq!(
            connect(&room, "198.18.9.9", 443).await,
            "ConnectionRefusedError",
            "it stands for no name"
        );
        assert_eq!(connect(&room, "198.18.0.1", 80).await, "ConnectionRefusedError");
        // Loopback is the room's own.
        assert_eq!(connect(&room, "127.0.0.1", trap.port()).await, "ConnectionRefusedError");
        // A server that is not there is refused too.
        let free = std::net::TcpListener::bind("127.84.0.1:0").unwrap().local_addr().unwrap().port();
        assert_eq!(connect(&room, "a.test", free).await, "ConnectionRefusedError");
        assert_eq!((server.calls(), trap.calls()), (1, 0));
        assert!(world.names.asked().iter().all(|name| name == "a.test"), "{:?}", world.names.asked());
        eventually("it is logged", || world.session.totals().open == 0).await;
        let log = world.session.log();
        let line = log.iter().find(|entry| entry.outcome == Outcome::Allowed).expect("a line");
        assert_eq!((line.host.as_str(), line.port, line.way), ("a.test", port, Way::Transparent));
        assert_eq!(line.address, Some("127.84.0.1".parse().unwrap()), "the real one");
        let codes: Vec<&str> = world.session.denials().iter().map(|event| event.code).collect();
        for code in ["domain_not_allowed", "special_address", "address_not_allowed"] {
            assert!(codes.contains(&code), "{codes:?}");
        }
    });
}

#[test]
fn names_have_addresses_of_their_own_and_real_ones_stay_hidden() {
    if !has("python3") {
        return;
    }
    run(async {
        let Some((world, room)) = world(rules()).await else { return };
        let program = "import socket\n\
            a, b = socket.gethostbyname('a.test'), socket.gethostbyname('b.test')\n\
            print(a != b, a.startswith('198.18.') and b.startswith('198.18.'), a == socket.gethostbyname('A.TEST.'))\n\
            print(socket.gethostbyaddr(a)[0])\n\
            print(len(socket.getaddrinfo('a.test', 80, type=socket.SOCK_STREAM)))";
        assert_eq!(room.python(program).await, "True True True\na.test\n1\n");
        assert!(world.names.asked().iter().all(|name| name == "a.test" || name == "b.test"));
    });
}

#[test]
fn a_name_that_leads_inside_does_not_resolve() {
    if !has("python3") {
        return;
    }
    run(async {
        let Some((world, room)) = world(json!("open")).await else { return };
        world.names.has("inside.test", &["127.0.0.1"]);
        world.names.has("metadata.test", &["169.254.169.254"]);
        for name in ["inside.test", "metadata.test", "localhost.localhost", "gone.test"] {
            assert_eq!(connect(&room, name, 80).await, "no such name", "{name}");
        }
        // And one that turned inside after it was resolved is refused when it is dialled.
        let trap = Server::echo("127.0.0.1:0").await;
        let turns = [("93.184.216.34", 0), ("127.0.0.1", 0)]
            .map(|(address, life)| support::names::Say::Addresses(vec![address.parse().unwrap()], life));
        world.names.say("turning.test", turns);
        assert_eq!(connect(&room, "turning.test", trap.port()).await, "ConnectionRefusedError");
        assert_eq!(trap.calls(), 0);
    });
}

#[test]
fn curl_works_without_a_proxy_and_names_are_compared() {
    if !has("curl") || !has("openssl") {
        return;
    }
    run(async {
        let Some((world, room)) = world(rules()).await else { return };
        let plain = Server::mirror("127.84.0.1:0").await;
        let tls = TlsServer::start("127.84.0.1");
        let curl = async |arguments: &[&str]| {
            let all = [&["-sSk", "--max-time", "10"], arguments].concat();
            let output = room.run("curl", &all).await;
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        };
        let url = format!("http://a.test:{}/page", plain.port());
        assert!(curl(&[&url]).await.starts_with("GET /page HTTP/1.1"));
        let secure = format!("https://a.test:{}/", tls.port);
        assert!(curl(&[&secure]).await.contains("s_server"));
        // Another name in the request, or in the handshake, than the one that was resolved.
        let answer = curl(&["-H", "Host: evil.test", &url]).await;
        assert!(answer.contains("name_mismatch") && answer.contains("evil.test"), "{answer}");
        let elsewhere = format!("evil.test:{}:a.test:{}", tls.port, tls.port);
        let answer = curl(&["--connect-to", &elsewhere, &format!("https://evil.test:{}/", tls.port)]).await;
        assert!(answer.contains("alert"), "{answer}");
        // The same server under its other name is another connection with another rule.
        world
            .session
            .set_policy(policy(json!({"mode": "allow", "domains": ["b.test"], "cidrs": ["127.84.0.0/16"]})));
        assert!(curl(&[&url]).await.contains("Could not resolve"));
        assert!(curl(&[&format!("http://b.test:{}/", plain.port())]).await.starts_with("GET / HTTP/1.1"));
    });
}

#[test]
fn bytes_pass_unharmed_both_ways_at_once() {
    if !has("python3") {
        return;
    }
    run(async {
        let Some((world, room)) = world(rules()).await else { return };
        let server = Server::echo("127.84.0.1:0").await;
        let program = format!(
            "import socket, threading, hashlib, random\n\
             def one(seed):\n\
             \x20 s = socket.create_connection(('a.test', {port}), timeout=30)\n\
             \x20 data = b'\\0' + random.Random(seed).randbytes(2_000_000 + seed)\n\
             \x20 def send():\n\
             \x20   s.sendall(data); s.shutdown(socket.SHUT_WR)\n\
             \x20 t = threading.Thread(target=send); t.start()\n\
             \x20 got = b''.join(iter(lambda: s.recv(65536), b''))\n\
             \x20 t.join(); results.append(hashlib.sha256(got).digest() == hashlib.sha256(data).digest())\n\
             results = []\n\
             threads = [threading.Thread(target=one, args=(seed,)) for seed in range(8)]\n\
             [t.start() for t in threads]; [t.join() for t in threads]\n\
             print(results.count(True))",
            port = server.port()
        );
        assert_eq!(room.python(&program).await, "8\n");
        eventually("all is closed", || world.session.totals().open == 0).await;
        let totals = world.session.totals();
        let expected: u64 = (0..8).map(|seed| 2_000_001 + seed).sum();
        assert_eq!((totals.sent, totals.received), (expected, expected));
    });
}

#[test]
fn ends_and_breaks_are_passed_on_as_what_they_are() {
    if !has("python3") {
        return;
    }
    run(async {
        let Some((world, room)) = world(rules()).await else { return };
        // Counts, and says whether it ended or broke.
        let (seen, mut ends) = tokio::sync::mpsc::unbounded_channel();
        let server = Server::start("127.84.0.1:0", move |mut stream| {
            let seen = seen.clone();
            async move {
                let mut bytes = Vec::new();
                let answer = stream.read_to_end(&mut bytes).await.map_err(|error| error.kind());
                seen.send(answer.map(|_| bytes.len())).unwrap();
                let _ = stream.write_all(b"done").await;
            }
        })
        .await;
        let port = server.port();
        let orderly = format!(
            "import socket\ns = socket.create_connection(('a.test', {port}))\ns.sendall(b'\\0'*1000); s.shutdown(socket.SHUT_WR); print(s.recv(10))"
        );
        assert_eq!(room.python(&orderly).await, "b'done'\n");
        assert_eq!(ends.recv().await, Some(Ok(1000)));
        // A program that is killed in the middle of an upload must not look like one that has finished it.
        let broken = format!(
            "import socket, struct\ns = socket.create_connection(('a.test', {port}))\ns.sendall(b'\\0'*1000)\n\
             s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()"
        );
        room.python(&broken).await;
        assert_eq!(ends.recv().await, Some(Err(std::io::ErrorKind::ConnectionReset)));
        // And the other way round.
        let breaker = Server::start("127.84.0.1:0", |mut stream| async move {
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes).await.unwrap();
            stream.set_zero_linger().unwrap();
        })
        .await;
        let program = format!(
            "import socket\ns = socket.create_connection(('a.test', {}))\ns.sendall(b'\\0four')\n\
             try: print(s.recv(10))\nexcept OSError as e: print(type(e).__name__)",
            breaker.port()
        );
        assert_eq!(room.python(&program).await, "ConnectionResetError\n");
        eventually("all is closed", || world.session.totals().open == 0).await;
    });
}

#[test]
fn servers_that_speak_first_and_large_answers_over_slow_readers() {
    if !has("python3") {
        return;
    }
    run(async {
        let Some((world, room)) = world(rules()).await else { return };
        let server = Server::start("127.84.0.1:0", |mut stream| async move {
            let _ = stream.write_all(b"SSH-2.0-Test\r\n").await;
            let mut line = [0; 14];
            stream.read_exact(&mut line).await.unwrap();
            let _ = stream.write_all(&vec![7; 20 << 20]).await;
        })
        .await;
        let program = format!(
            "import socket, time\ns = socket.create_connection(('a.test', {}))\nprint(s.recv(100))\ns.sendall(b'SSH-2.0-Guest\\n')\n\
             time.sleep(1)\nprint(sum(map(len, iter(lambda: s.recv(1000000), b''))))",
            server.port()
        );
        let answer = room.python(&program).await;
        assert_eq!(answer, format!("b'SSH-2.0-Test\\r\\n'\n{}\n", 20 << 20));
        assert!(world.session.totals().received >= 20 << 20);
    });
}

#[test]
fn datagrams_are_refused_and_names_are_answered_whoever_was_asked() {
    if !has("python3") {
        return;
    }
    run(async {
        let Some((world, room)) = world(rules()).await else { return };
        let program = r#"
import socket, struct
def ask(name, kind=1, server='8.8.8.8', tcp=False, edns=False):
    q = struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 1 if edns else 0)
    q += b''.join(bytes([len(l)]) + l for l in name) + b'\0' + struct.pack('>HH', kind, 1)
    if edns: q += b'\0' + struct.pack('>HHIH', 41, 1232, 0, 0)
    if tcp:
        s = socket.create_connection((server, 53), timeout=5); s.sendall(struct.pack('>H', len(q)) + q)
        n = struct.unpack('>H', s.recv(2))[0]; r = s.recv(n)
    else:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect((server, 53)); s.send(q); r = s.recv(4096)
    return r[3] & 15, struct.unpack('>H', r[6:8])[0], r
print(ask([b'a', b'test'])[:2], ask([b'a', b'test'], server='9.9.9.9', tcp=True)[:2])
print(ask([b'a', b'test'], kind=28)[:2], ask([b'a', b'test'], kind=16)[:2], ask([b'a', b'test'], kind=65)[:2])
print(ask([b'evil', b'test'])[:2], ask([b'evil', b'test'], tcp=True)[:2], ask([b'c2VjcmV0', b'evil', b'test'], kind=16)[:2])
print(ask([b'a.test'])[:2], ask([b'a\0', b'test'])[:2], ask([b'127', b'0', b'0', b'1'])[:2])
print(b'add "evil.test" to network.domains' in ask([b'evil', b'test'], edns=True)[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(('1.1.1.1', 443)); s.send(b'quic')
try: print(s.recv(10))
except OSError as e: print(type(e).__name__, e.errno)
"#;
        let answer = room.python(program).await;
        let expected = "(0, 1) (0, 1)\n(0, 0) (0, 0) (0, 0)\n(3, 0) (3, 0) (3, 0)\n(3, 0) (3, 0) (3, 0)\nTrue\nOSError 113\n";
        assert_eq!(answer, expected);
        assert!(world.names.asked().iter().all(|name| name == "a.test"), "{:?}", world.names.asked());
        let denials = world.session.denials();
        assert!(denials.iter().any(|event| event.code == "protocol_not_carried" && event.host == "1.1.1.1"));
        assert!(
            denials
                .iter()
                .any(|event| event.way == Way::Dns && event.host == "evil.test" && event.count == 3)
        );
        let proposal = world.session.learn();
        let proposed: Vec<String> = proposal.policy.domains().iter().map(ToString::to_string).collect();
        assert!(proposed.contains(&"evil.test".to_owned()), "{proposed:?}");
    });
}

#[test]
fn new_rules_cut_connections_of_packets_too_and_an_end_of_service_ends_all() {
    if !has("python3") {
        return;
    }
    run(async {
        let (room, tun) = match Room::make() {
            Ok(made) => made,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let world = World::new(rules()).await;
        world.names.has("a.test", &["127.84.0.1"]);
        let service = tokio::spawn(serve_tun(tun, world.session.clone()));
        let server = Server::start("127.84.0.1:0", |mut stream| async move {
            let _ = stream.read_u8().await;
            let _ = stream.write_all(b"hello").await;
            read_all(&mut stream).await;
        })
        .await;
        let program = format!(
            "import socket\ns = socket.create_connection(('a.test', {}), timeout=15)\ns.sendall(b'\\0')\n\
             try: s.recv(5); print(s.recv(10))\nexcept OSError as e: print(type(e).__name__)",
            server.port()
        );
        let waiting = room.python(&program);
        let cutting = async {
            eventually("it stands", || world.session.totals().received == 5).await;
            world.session.set_policy(policy(json!({"mode": "allow", "domains": ["b.test"]})));
        };
        let (answer, ()) = tokio::join!(waiting, cutting);
        assert_eq!(answer, "ConnectionResetError\n");
        world.session.set_policy(policy(rules()));
        service.abort();
        let _ = service.await;
        // Nobody serves: there is no network, and no way around.
        let program = "import socket\ntry: socket.create_connection(('9.9.9.9', 443), timeout=2)\nexcept OSError as e: print(type(e).__name__)";
        let answer = room.python(program).await;
        assert!(["TimeoutError\n", "OSError\n"].contains(&answer.as_str()), "{answer}");
    });
}

#[test]
fn connections_of_packets_have_a_limit() {
    if !has("python3") {
        return;
    }
    run(async {
        let limits = Limits { connections: 4, idle: Duration::from_secs(30), ..Limits::default() };
        let Some((world, room)) = world_with(rules(), limits).await else { return };
        let server = Server::echo("127.84.0.1:0").await;
        let program = format!(
            "import socket\nheld = []\nfor n in range(10):\n try: held.append(socket.create_connection(('a.test', {}), timeout=5))\n except OSError as e: print(n, type(e).__name__)",
            server.port()
        );
        let expected: String = (4..10).map(|number| format!("{number} ConnectionRefusedError\n")).collect();
        assert_eq!(room.python(&program).await, expected);
        assert_eq!(
            world.session.denials().iter().find(|event| event.code == "too_many_connections").unwrap().count,
            6
        );
        eventually("they are gone", || world.session.totals().open == 0).await;
        assert_eq!(connect(&room, "a.test", server.port()).await, "connected");
    });
}
