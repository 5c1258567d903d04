//! Whatever bytes come, parsers end, the proxy goes on serving, and nothing gets where it may not.

mod support;

use serde_json::json;
use std::time::Duration;
use support::hello::{body, client_hello, extension, handshake, record, with_length};
use support::{Server, World, read_all, run};
use tokio::io::AsyncWriteExt;
use workroom_egress::client_hello::{Hello, read};
use workroom_egress::first_words::{self, FirstWords};
use workroom_egress::{Limits, Outcome};

/// A small generator of its own, so that a failure can be repeated by its seed.
struct Random(u64);

impl Random {
    fn from_environment() -> Self {
        let seed = std::env::var("WORKROOM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        println!("WORKROOM_SEED={seed}");
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Changes some bytes, cuts some off, repeats some.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] = self.next() as u8,
                1 => bytes[at] ^= 1 << self.below(8),
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.next() as u8),
                _ => {
                    let piece = bytes[at..(at + self.below(16)).min(bytes.len())].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
    }
}

fn name_of(bytes: &[u8]) -> Option<Vec<u8>> {
    match read(bytes) {
        Hello::Complete { server_name } => server_name,
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_are_found_in_handshakes() {
    assert_eq!(name_of(&client_hello(&[b"a.test"])), Some(b"a.test".to_vec()));
    assert_eq!(name_of(&client_hello(&[])), None);
    // Without extensions at all, as old clients send it.
    let bare = &body(&[])[..2 + 32 + 33 + 6 + 2];
    assert_eq!(read(&handshake(bare)), Hello::Complete { server_name: None });
    // Followed by early data.
    let mut early = client_hello(&[b"a.test"]);
    early.extend_from_slice(&[20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 2, 9, 9]);
    assert_eq!(name_of(&early), Some(b"a.test".to_vec()));
    for end in 0..client_hello(&[b"a.test"]).len() {
        assert_eq!(read(&client_hello(&[b"a.test"])[..end]), Hello::NeedsMore, "{end}");
    }
}

#[test]
fn handshakes_that_can_be_read_in_two_ways_are_malformed() {
    let name = |name: &[u8]| [&[0][..], &with_length(name)].concat();
    let list = |content: &[u8]| extension(0, &with_length(content));
    let twice = [list(&name(b"a.test")), list(&name(b"b.test"))].concat();
    let two_in_one = list(&[name(b"a.test"), name(b"b.test")].concat());
    let other_kind = list(&[&[1][..], &with_length(b"a.test")].concat());
    let trailing = extension(0, &[with_length(&name(b"a.test")), vec![0]].concat());
    let short = extension(0, &[0, 20, 0, 0, 3, b'a']);
    for extensions in [twice, two_in_one, other_kind, trailing, short] {
        assert!(matches!(read(&handshake(&body(&extensions))), Hello::Malformed(_)), "{extensions:?}");
    }
    let mut behind = body(&list(&name(b"a.test")));
    behind.push(0);
    assert!(matches!(read(&handshake(&behind)), Hello::Malformed(_)));
    for malformed in [
        // A ServerHello, an unknown version, an empty record, one that is too long, a message that is.
        record(&[2, 0, 0, 0]),
        vec![22, 9, 9, 0, 1, 1],
        vec![22, 3, 1, 0, 0],
        vec![22, 3, 1, 0xff, 0xff],
        record(&[1, 0xff, 0xff, 0xff]),
        // Something else in the middle.
        [&record(&client_hello(&[b"a.test"])[5..20])[..], &[23, 3, 3, 0, 1, 0]].concat(),
    ] {
        assert!(matches!(read(&malformed), Hello::Malformed(_)), "{malformed:?}");
    }
}

#[test]
fn first_words_are_told_apart() {
    for (words, kind) in [
        (&b"GET / HTTP/1.1\r\n"[..], FirstWords::Http),
        (b"\r\n\nGET / HTTP/1.1\n", FirstWords::Http),
        (b"get / http/1.1\r\n", FirstWords::Http),
        (b"BREW\t/pot\tHTTP/1.0\r\n", FirstWords::Http),
        (b"GET /\xff\x01 HTTP/1.1\r\n", FirstWords::Http),
        (b"GET /\r\n", FirstWords::Http),
        (b"GET / HTTP/1.1 \r\n", FirstWords::Http),
        (b"GET / HTTP/1.1", FirstWords::NeedsMore),
        (b"GET", FirstWords::NeedsMore),
        (b"\r\n", FirstWords::NeedsMore),
        (b"", FirstWords::NeedsMore),
        (b"SSH-2.0-x\r\n", FirstWords::Opaque),
        (b"EHLO example.com\r\n", FirstWords::Opaque),
        (b"CONNECT {\"verbose\":false}\r\n", FirstWords::Opaque),
        (b"\0\0\0\x08", FirstWords::Opaque),
        (b"AMQP\0\0\x09\x01", FirstWords::Opaque),
    ] {
        assert_eq!(first_words::read(words), kind, "{}", words.escape_ascii());
    }
    assert!(matches!(first_words::read(b"PRI * HTTP/2.0\r\n"), FirstWords::Unreadable(_)));
    assert!(matches!(first_words::read(&[b'a'; 40_000]), FirstWords::Opaque | FirstWords::Unreadable(_)));
    assert!(matches!(
        first_words::read(&[&b"GET "[..], &[b'a'; 40_000]].concat()),
        FirstWords::Unreadable(_)
    ));
    assert_eq!(first_words::read_ended(b"GET /"), FirstWords::Http);
    assert_eq!(first_words::read_ended(b"hello"), FirstWords::Opaque);
    assert!(matches!(first_words::read_ended(&client_hello(&[b"a.test"])[..30]), FirstWords::Unreadable(_)));
}

fn damaged_handshakes(rounds: usize) {
    let mut random = Random::from_environment();
    for _ in 0..rounds {
        let mut bytes = match random.below(3) {
            0 => client_hello(&[b"a.test"]),
            1 => client_hello(&[b"a.test"])[5..].chunks(1 + random.below(40)).flat_map(record).collect(),
            _ => (0..random.below(200)).map(|_| random.next() as u8).collect(),
        };
        random.damage(&mut bytes);
        let whole = read(&bytes);
        // More bytes never change what was decided.
        for end in [random.below(bytes.len() + 1), bytes.len()] {
            match read(&bytes[..end]) {
                Hello::NeedsMore => {}
                Hello::Malformed(_) => assert!(matches!(whole, Hello::Malformed(_)), "{bytes:?} at {end}"),
                decided => assert_eq!(decided, whole, "{bytes:?} at {end}"),
            }
        }
        let _ = first_words::read(&bytes);
        let _ = first_words::read_ended(&bytes);
    }
}

#[test]
fn damaged_handshakes_are_survived_and_decided_once() {
    damaged_handshakes(50_000);
}

#[test]
#[ignore = "minutes"]
fn soak_damaged_handshakes_are_survived_and_decided_once() {
    damaged_handshakes(20_000_000);
}

fn damaged_clients(rounds: usize) {
    run_long(async move {
        let trap = Server::echo("127.0.0.1:0").await;
        let open = Server::mirror("127.83.0.1:0").await;
        let limits = Limits {
            first_words: Duration::from_millis(200),
            idle: Duration::from_secs(2),
            ..Limits::default()
        };
        let rules = json!({"mode": "allow", "domains": ["a.test"], "cidrs": ["127.83.0.0/16"]});
        let world = World::with_limits(rules, limits).await;
        world.names.has("a.test", &["127.83.0.1"]);
        world.names.has("evil.test", &["127.0.0.1"]);
        let (port, evil) = (open.port(), trap.port());
        let socks = |host: &[u8], port: u16| {
            [&[5, 1, 0, 5, 1, 0, 3, host.len() as u8][..], host, &port.to_be_bytes()].concat()
        };
        let starts = [
            format!("GET http://a.test:{port}/ HTTP/1.1\r\nHost: a.test\r\n\r\n").into_bytes(),
            format!("GET http://127.0.0.1:{evil}/ HTTP/1.1\r\nHost: a.test\r\n\r\n").into_bytes(),
            format!("POST http://a.test:{port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET http://evil.test:{evil}/ HTTP/1.1\r\n\r\n").into_bytes(),
            format!("CONNECT a.test:{port} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").into_bytes(),
            format!("CONNECT evil.test:{evil} HTTP/1.1\r\n\r\nhello").into_bytes(),
            [format!("CONNECT a.test:{port} HTTP/1.1\r\n\r\n").into_bytes(), client_hello(&[b"evil.test"])].concat(),
            socks(b"a.test", port),
            socks(b"evil.test", evil),
            socks(b"127.0.0.1", evil),
            [socks(b"a.test", port), client_hello(&[b"a.test"])].concat(),
        ];
        let mut random = Random::from_environment();
        for _ in 0..rounds {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..8 {
                let mut bytes = starts[random.below(starts.len())].clone();
                random.damage(&mut bytes);
                let mut stream = world.call().await;
                tasks.spawn(async move {
                    let _ = stream.write_all(&bytes).await;
                    let _ = stream.shutdown().await;
                    read_all(&mut stream).await
                });
            }
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        }
        assert_eq!(trap.calls(), 0, "something got inside");
        assert!(!world.names.asked().iter().any(|name| name != "a.test"), "{:?}", world.names.asked());
        support::eventually("everything is closed", || world.session.totals().open == 0).await;
        // It still works.
        let mut stream = world.call().await;
        let request = format!("GET http://a.test:{port}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(read_all(&mut stream).await.starts_with(b"HTTP/1.1 200"));
        assert!(world.session.log().iter().any(|entry| entry.outcome == Outcome::Denied));
    });
}

fn run_long(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

#[test]
fn damaged_clients_get_nowhere_and_harm_nobody() {
    damaged_clients(60);
}

#[test]
#[ignore = "minutes"]
fn soak_damaged_clients_get_nowhere_and_harm_nobody() {
    damaged_clients(20_000);
}

#[test]
fn a_crowd_that_says_nothing_holds_nothing_for_long() {
    run(async {
        let limits = Limits { connections: 8, first_words: Duration::from_millis(300), ..Limits::default() };
        let world = World::with_limits(json!("open"), limits).await;
        let mut crowd = Vec::new();
        for _ in 0..64 {
            crowd.push(world.call().await);
        }
        for stream in &mut crowd {
            assert_eq!(read_all(stream).await, b"");
        }
        let (_, head) = world.connect("localhost:80").await;
        assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    });
}

/// Packets as a room's kernel would never send them, over a pipe in place of a device.
fn damaged_packets(rounds: usize) {
    run_long(async move {
        use workroom_egress::transparent::packet;
        let rules = json!({"mode": "allow", "domains": ["a.test"], "cidrs": ["127.83.0.0/16"]});
        let trap = Server::echo("127.0.0.1:0").await;
        let open = Server::echo("127.83.0.2:0").await;
        let world =
            World::with_limits(rules, Limits { idle: Duration::from_secs(2), ..Limits::default() }).await;
        let (device, room) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let service = tokio::spawn(workroom_egress::serve_tun(device.into(), world.session.clone()));
        room.set_nonblocking(true).unwrap();
        let room = tokio::net::UnixDatagram::from_std(room).unwrap();
        let mut random = Random::from_environment();
        let mut buffer = vec![0; 1 << 16];
        for _ in 0..rounds {
            let port = 1024 + random.below(60_000) as u16;
            let (to, to_port) = match random.below(4) {
                0 => ([127, 0, 0, 1], trap.port()),
                1 => ([198, 18, random.below(4) as u8, random.below(256) as u8], 53),
                _ => ([127, 83, 0, 2], open.port()),
            };
            let flags = [0x02, 0x10, 0x11, 0x04, 0x12, 0x29, random.next() as u8][random.below(7)];
            let mut bytes = segment([198, 18, 0, 2], port, to, to_port, flags);
            if random.below(3) == 0 {
                bytes[9] = random.next() as u8;
            }
            if random.below(4) > 0 {
                random.damage(&mut bytes);
            }
            let _ = packet::read(&bytes);
            // A device has no empty packets; on the pipe one would be the end.
            if bytes.is_empty() {
                continue;
            }
            room.send(&bytes).await.unwrap();
            while let Ok(length) = room.try_recv(&mut buffer) {
                // Whatever it answers is a packet to the room.
                assert!(length >= 20 && buffer[0] >> 4 == 4, "{:?}", &buffer[..length]);
                for answer in go_on(&buffer[..length], &mut random) {
                    let _ = room.try_send(&answer);
                }
            }
        }
        assert_eq!(trap.calls(), 0, "something got inside");
        assert!(!service.is_finished(), "it goes on");
        // A sound connection still stands.
        let answered = async {
            loop {
                let port = 1024 + random.below(60_000) as u16;
                room.send(&segment([198, 18, 0, 2], port, [127, 83, 0, 2], open.port(), 0x02)).await.unwrap();
                let reading = async {
                    loop {
                        let length = room.recv(&mut buffer).await.unwrap();
                        let to_us = length >= 40 && buffer[22..24] == port.to_be_bytes();
                        if to_us && buffer[33] & 0x3f == 0x12 {
                            return;
                        }
                    }
                };
                if tokio::time::timeout(Duration::from_millis(500), reading).await.is_ok() {
                    return;
                }
            }
        };
        support::within(answered).await;
    });
}

/// Answers to a packet of a connection that stands: the right one, and some that are nearly right.
fn go_on(packet: &[u8], random: &mut Random) -> Vec<Vec<u8>> {
    if packet.len() < 40 || packet[9] != 6 {
        return Vec::new();
    }
    let field = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
    let short = |at: usize| u16::from_be_bytes(packet[at..at + 2].try_into().unwrap());
    let address = |at: usize| -> [u8; 4] { packet[at..at + 4].try_into().unwrap() };
    let mut answers = Vec::new();
    for number in 0..random.below(5) as u32 {
        let flags = if number == 0 { 0x10 } else { [0x10, 0x18, 0x11, 0x14, 0x02, 0x38][random.below(6)] };
        let mut answer = segment(address(16), short(22), address(12), short(20), flags);
        let near = |random: &mut Random, word: u32| match random.below(6) {
            0 => word.wrapping_add(random.below(70_000) as u32),
            1 => word.wrapping_sub(random.below(70_000) as u32),
            2 => random.next() as u32,
            _ => word,
        };
        let sequence = near(random, field(28));
        let acknowledged = near(random, field(24).wrapping_add(1));
        answer[24..28].copy_from_slice(&sequence.to_be_bytes());
        answer[28..32].copy_from_slice(&acknowledged.to_be_bytes());
        let window = [0xffff, 0, 1, random.next() as u16][random.below(4)];
        answer[34..36].copy_from_slice(&window.to_be_bytes());
        answer.extend((0..random.below(3000)).map(|_| 0u8));
        let length = answer.len() as u16;
        answer[2..4].copy_from_slice(&length.to_be_bytes());
        answers.push(answer);
    }
    answers
}

/// A packet of a connection, with nothing in it; sums are not looked at.
fn segment(from: [u8; 4], port: u16, to: [u8; 4], to_port: u16, flags: u8) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
    bytes.extend_from_slice(&from);
    bytes.extend_from_slice(&to);
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&to_port.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes
}

#[test]
fn damaged_packets_get_nowhere_and_harm_nobody() {
    damaged_packets(2_000);
}

#[test]
#[ignore = "minutes"]
fn soak_damaged_packets_get_nowhere_and_harm_nobody() {
    damaged_packets(50_000);
}
