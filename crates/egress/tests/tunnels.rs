//! Tunnels by CONNECT and SOCKS5: names inside must be the name outside, and bytes pass unharmed both ways.

mod support;

use serde_json::json;
use std::time::Duration;
use support::hello::{client_hello, record};
use support::{Server, World, eventually, read_all, read_head, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use workroom_egress::{Limits, Outcome};

fn rules() -> serde_json::Value {
    json!({"mode": "allow", "domains": ["a.test", "b.test"], "cidrs": ["127.79.0.0/16"]})
}

async fn world() -> World {
    let world = World::new(rules()).await;
    world.names.has("a.test", &["127.79.0.1"]);
    world.names.has("b.test", &["127.79.0.1"]);
    world
}

/// What comes back through a tunnel to an echo server until it closes.
async fn through(world: &World, port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = world.tunnel(&format!("a.test:{port}")).await;
    stream.write_all(bytes).await.unwrap();
    let _ = stream.shutdown().await;
    read_all(&mut stream).await
}

#[test]
fn a_handshake_must_name_the_server_that_was_asked_for() {
    run(async {
        let server = Server::echo("127.79.0.1:0").await;
        let world = world().await;
        let alert = [21, 3, 3, 0, 2, 2, 49];
        for name in [&b"a.test"[..], b"A.TEST", b"a.test."] {
            let hello = client_hello(&[name]);
            assert_eq!(through(&world, server.port(), &hello).await, hello, "{}", name.escape_ascii());
        }
        for names in [
            &[&b"b.test"[..]][..],
            &[b"evil.test"],
            &[],
            &[b"127.79.0.1"],
            &[b""],
            &[b"a.test\0"],
            &[b"a.test\0.evil.test"],
            &[b"xa.test"],
        ] {
            let answer = through(&world, server.port(), &client_hello(names)).await;
            assert_eq!(answer, alert, "{names:?}");
        }
        // Two names: which one a server takes is anybody's guess.
        for hello in [client_hello(&[b"a.test", b"evil.test"]), client_hello(&[b"evil.test", b"a.test"])] {
            assert_eq!(through(&world, server.port(), &hello).await, b"");
        }
        let events = world.witness.seen();
        assert!(
            events.iter().any(|event| event.code == "name_mismatch" && event.detail.contains("evil.test"))
        );
        assert!(events.iter().any(|event| event.code == "unreadable_start"));
        // Nothing of a refused handshake reached the server.
        let denied: Vec<_> =
            world.session.log().into_iter().filter(|entry| entry.outcome == Outcome::Denied).collect();
        assert!(denied.iter().all(|entry| entry.sent == 0), "{denied:#?}");
    });
}

#[test]
fn a_handshake_in_pieces_is_put_together_first() {
    run(async {
        let server = Server::echo("127.79.0.1:0").await;
        let world = world().await;
        // One handshake over several records, sent in single bytes.
        let split = |hello: &[u8]| -> Vec<u8> { hello[5..].chunks(20).flat_map(record).collect() };
        for (name, passes) in [(&b"a.test"[..], true), (b"evil.test", false)] {
            let hello = split(&client_hello(&[name]));
            let mut stream = world.tunnel(&format!("a.test:{}", server.port())).await;
            stream.set_nodelay(true).unwrap();
            for byte in &hello {
                if stream.write_all(&[*byte]).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            let _ = stream.shutdown().await;
            assert_eq!(read_all(&mut stream).await == hello, passes);
        }
    });
}

#[test]
fn addresses_and_open_networks_have_no_name_to_compare() {
    run(async {
        let server = Server::echo("127.79.0.1:0").await;
        let world = world().await;
        let hello = client_hello(&[b"whoever.test"]);
        let mut stream = world.tunnel(&format!("127.79.0.1:{}", server.port())).await;
        stream.write_all(&hello).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(read_all(&mut stream).await, hello);
        world.session.set_policy(support::policy(json!({"mode": "open", "cidrs": ["127.79.0.0/16"]})));
        assert_eq!(through(&world, server.port(), &hello).await, hello);
    });
}

#[test]
fn plain_requests_in_a_tunnel_are_for_its_name_every_one_of_them() {
    run(async {
        let server = Server::mirror("127.79.0.1:0").await;
        let world = world().await;
        let port = server.port();
        let mut stream = world.tunnel(&format!("a.test:{port}")).await;
        for request in [
            "GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(),
            format!("GET /2 HTTP/1.1\r\nHost: A.test:{port}\r\n\r\n"),
            "\r\nGET /3 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(),
        ] {
            stream.write_all(request.as_bytes()).await.unwrap();
            let head = read_head(&mut stream).await;
            assert!(
                head.starts_with("HTTP/1.1 200") || head.starts_with("HTTP/1.0 200"),
                "{request}: {head}"
            );
            let mut seen = vec![0; 4];
            stream.read_exact(&mut seen).await.unwrap();
            let rest = read_head(&mut stream).await;
            assert!(rest.contains(&format!("a.test:{port}")), "{rest}");
        }
        // The second request of a connection is the one that a single look would miss.
        stream.write_all(b"GET /4 HTTP/1.1\r\nHost: evil.test\r\n\r\n").await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 403") && head.contains("name_mismatch"), "{head}");
        for (request, status) in [
            ("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403"),
            ("\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403"),
            ("get / http/1.1\r\nHost: evil.test\r\n\r\n", "4"),
            ("GET / HTTP/1.1\r\nHost: a.test\r\nHost: evil.test\r\n\r\n", "403"),
            ("GET http://evil.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "403"),
            ("GET / HTTP/1.1\r\nHost: a.test@evil.test\r\n\r\n", "4"),
            ("CONNECT evil.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", "400"),
            ("GET /\x01 HTTP/1.1\r\nHost: evil.test\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nHost : evil.test\r\n\r\n", "400"),
            ("GET /\r\n\r\n", "400"),
        ] {
            let mut stream = world.tunnel(&format!("a.test:{port}")).await;
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let answer = String::from_utf8_lossy(&read_all(&mut stream).await).into_owned();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
        }
        // HTTP/2 without TLS could carry anything.
        let mut stream = world.tunnel(&format!("a.test:{port}")).await;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        assert_eq!(read_all(&mut stream).await, b"");
    });
}

#[test]
fn half_a_line_is_never_passed_on_unread() {
    run(async {
        let server = Server::mirror("127.79.0.1:0").await;
        let limits = Limits { first_words: Duration::from_millis(300), ..Limits::default() };
        let world = World::with_limits(rules(), limits).await;
        world.names.has("a.test", &["127.79.0.1"]);
        for start in [&b"GET / HT"[..], b"G", b"\r\n", &client_hello(&[b"evil.test"])[..60]] {
            let mut stream = world.tunnel(&format!("a.test:{}", server.port())).await;
            stream.write_all(start).await.unwrap();
            // It waits until nobody waits for it any more.
            assert_eq!(read_all(&mut stream).await, b"", "{}", start.escape_ascii());
        }
        eventually("all are denied", || world.session.totals().denied == 4).await;
        assert!(world.session.log().iter().all(|entry| entry.sent == 0));
    });
}

#[test]
fn servers_that_speak_first_are_heard_at_once() {
    run(async {
        let server = Server::start("127.79.0.1:0", |mut stream| async move {
            stream.write_all(b"SSH-2.0-Test\r\n").await.unwrap();
            let mut line = vec![0; 14];
            stream.read_exact(&mut line).await.unwrap();
            assert_eq!(line, b"SSH-2.0-Guest\n");
            stream.write_all(b"welcome").await.unwrap();
        })
        .await;
        let world = world().await;
        for way in ["connect", "socks"] {
            let mut stream = match way {
                "connect" => world.tunnel(&format!("a.test:{}", server.port())).await,
                _ => world.socks(b"a.test", server.port()).await.0,
            };
            let mut banner = [0; 14];
            stream.read_exact(&mut banner).await.unwrap();
            assert_eq!(&banner, b"SSH-2.0-Test\r\n");
            stream.write_all(b"SSH-2.0-Guest\n").await.unwrap();
            assert_eq!(read_all(&mut stream).await, b"welcome");
        }
        // Binary protocols whose client speaks first.
        let echo = Server::echo("127.79.0.1:0").await;
        for words in [
            &b"\0\0\0\x08\x04\xd2\x16\x2f"[..],
            b"*1\r\n$4\r\nPING\r\n",
            b"0032git-upload-pack /x\0host=x\0",
            b"\x10\x0c\0\x04MQTT",
        ] {
            assert_eq!(through(&world, echo.port(), words).await, words, "{}", words.escape_ascii());
        }
    });
}

#[test]
fn each_side_may_end_before_the_other() {
    run(async {
        // Says what it got once it has all of it: the client must be able to end its half.
        let counter = Server::start("127.79.0.1:0", |mut stream| async move {
            let got = read_all(&mut stream).await.len();
            let _ = stream.write_all(format!("{got}").as_bytes()).await;
        })
        .await;
        let world = world().await;
        let bytes = vec![0xaa; 3 << 20];
        assert_eq!(through(&world, counter.port(), &bytes).await, b"3145728");
        // Ends its half first, and still listens.
        let early = Server::start("127.79.0.1:0", |mut stream| async move {
            stream.write_all(b"bye").await.unwrap();
            stream.shutdown().await.unwrap();
            assert_eq!(read_all(&mut stream).await, b"after");
        })
        .await;
        let mut stream = world.tunnel(&format!("a.test:{}", early.port())).await;
        assert_eq!(read_all(&mut stream).await, b"bye");
        stream.write_all(b"after").await.unwrap();
        stream.shutdown().await.unwrap();
        eventually("all is closed", || world.session.totals().open == 0).await;
        let last = world.session.log().pop().unwrap();
        assert_eq!((last.sent, last.received, last.outcome), (5, 3, Outcome::Allowed));
    });
}

#[test]
fn a_reader_that_does_not_read_holds_little_memory_and_nobody_else() {
    run(async {
        let flood = Server::start("127.79.0.1:0", |mut stream| async move {
            let block = vec![0xbb; 1 << 20];
            while stream.write_all(&block).await.is_ok() {}
        })
        .await;
        let echo = Server::echo("127.79.0.1:0").await;
        let world = world().await;
        let mut slow = Vec::new();
        for _ in 0..8 {
            slow.push(world.tunnel(&format!("a.test:{}", flood.port())).await);
        }
        // The kernel's buffers fill up, and then nothing moves any more.
        let mut before = 0;
        let settled = async {
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let now = world.session.totals().received;
                if now == before && now > 0 {
                    break;
                }
                before = now;
            }
        };
        support::within(settled).await;
        assert!(before < 8 * (16 << 20), "{before} bytes were taken from the servers");
        assert_eq!(through(&world, echo.port(), b"\0hello").await, b"\0hello");
    });
}

#[test]
fn socks_clients_are_told_in_their_own_codes() {
    run(async {
        let server = Server::echo("127.79.0.1:0").await;
        let world = world().await;
        let port = server.port();
        let (mut stream, reply) = world.socks(b"a.test", port).await;
        assert_eq!(reply, 0);
        stream.write_all(b"\0x").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(read_all(&mut stream).await, b"\0x");
        assert_eq!(world.socks_address("127.79.0.1".parse().unwrap(), port).await.1, 0);
        assert_eq!(world.socks_address("::ffff:127.79.0.1".parse().unwrap(), port).await.1, 0);
        assert_eq!(world.socks(b"127.79.0.1", port).await.1, 0);
        let free = std::net::TcpListener::bind("127.79.0.9:0").unwrap().local_addr().unwrap().port();
        for (host, port, code) in [
            (&b"evil.test"[..], port, 2),
            (b"127.0.0.1", port, 2),
            (b"[::1]", port, 2),
            (b"2130706433", port, 2),
            (b"a.test\0.evil.test", port, 2),
            (b"", port, 2),
            (b"a.test", 0, 4),
            (b"127.79.0.9", free, 5),
        ] {
            assert_eq!(world.socks(host, port).await.1, code, "{}:{port}", host.escape_ascii());
        }
        for (greeting, answer) in [
            // Only with a password.
            (&[5, 1, 2][..], &[5, 0xff][..]),
            // No method at all.
            (&[5, 0], &[5, 0xff]),
            // BIND and UDP.
            (&[5, 1, 0, 5, 2, 0, 1, 127, 79, 0, 1, 0, 80], &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
            (&[5, 1, 0, 5, 3, 0, 1, 127, 79, 0, 1, 0, 80], &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
            // An unknown kind of address.
            (&[5, 1, 0, 5, 1, 0, 9, 1, 2, 3], &[5, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0, 0]),
            // SOCKS4, and nothing that is known.
            (&[4, 1, 0, 80, 127, 0, 0, 1, 0], &[]),
            (&[0xff, 0xfe], &[]),
        ] {
            let mut stream = world.call().await;
            stream.write_all(greeting).await.unwrap();
            assert_eq!(read_all(&mut stream).await, answer, "{greeting:?}");
        }
    });
}

#[test]
fn connections_have_a_limit_and_idle_ones_end() {
    run(async {
        let server = Server::echo("127.79.0.1:0").await;
        let limits = Limits { connections: 3, idle: Duration::from_millis(400), ..Limits::default() };
        let world = World::with_limits(rules(), limits).await;
        world.names.has("a.test", &["127.79.0.1"]);
        let target = format!("a.test:{}", server.port());
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(world.tunnel(&target).await);
        }
        let (_, head) = world.connect(&target).await;
        assert!(head.starts_with("HTTP/1.1 503") && head.contains("3 connections open"), "{head}");
        assert_eq!(world.socks(b"a.test", server.port()).await.1, 2);
        for stream in &mut held {
            assert_eq!(read_all(stream).await, b"", "nothing happens on it");
        }
        eventually("all are cut", || world.session.totals().cut == 3).await;
        world.tunnel(&target).await;
    });
}
