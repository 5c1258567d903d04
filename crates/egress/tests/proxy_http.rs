//! Requests to the proxy by whole URLs: what the server gets, what the client is told.

mod support;

use serde_json::json;
use support::{Server, World, read_all, read_head, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn rules() -> serde_json::Value {
    json!({"mode": "allow", "domains": ["a.test", "b.test"], "cidrs": ["127.78.0.0/16"]})
}

async fn world_with_mirror() -> (World, Server) {
    let server = Server::mirror("127.78.0.1:0").await;
    let world = World::new(rules()).await;
    world.names.has("a.test", &["127.78.0.1"]);
    world.names.has("b.test", &["127.78.0.1"]);
    (world, server)
}

/// Sends bytes and reads one answer with a length: its head and its body.
async fn ask(stream: &mut TcpStream, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_head(stream).await;
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned))
        .map_or(0, |length| length.trim().parse().unwrap());
    let mut body = vec![0; length];
    if !request.starts_with("HEAD ") {
        stream.read_exact(&mut body).await.unwrap();
    }
    (head, String::from_utf8_lossy(&body).into_owned())
}

#[test]
fn the_server_gets_the_path_and_the_host_that_was_judged() {
    run(async {
        let (world, server) = world_with_mirror().await;
        let port = server.port();
        let mut stream = world.call().await;
        let request = format!(
            "GET http://a.test:{port}/path?query=1 HTTP/1.1\r\nHost: other.test\r\nProxy-Authorization: Basic eA==\r\n\
             Proxy-Connection: keep-alive\r\nConnection: x-private\r\nX-Private: 1\r\nX-Kept: 2\r\n\r\n"
        );
        let (head, seen) = ask(&mut stream, &request).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(seen.starts_with("GET /path?query=1 HTTP/1.1\r\n"), "{seen}");
        assert_eq!(seen.to_lowercase().matches("host: ").count(), 1, "{seen}");
        assert!(seen.contains(&format!("a.test:{port}\r\n")), "{seen}");
        assert!(seen.contains("X-Kept: 2"), "{seen}");
        for private in ["other.test", "roxy-", "rivate"] {
            assert!(!seen.contains(private), "{private} in {seen}");
        }
    });
}

#[test]
fn one_connection_serves_many_requests_to_many_hosts() {
    run(async {
        let (world, server) = world_with_mirror().await;
        let port = server.port();
        let mut stream = world.call().await;
        for (number, host) in ["a", "a", "a", "b", "b", "a"].iter().enumerate() {
            let request = format!("GET http://{host}.test:{port}/{number} HTTP/1.1\r\nHost: x\r\n\r\n");
            let (head, seen) = ask(&mut stream, &request).await;
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            assert!(seen.starts_with(&format!("GET /{number} HTTP/1.1")), "{seen}");
            assert!(seen.contains(&format!("{host}.test:{port}")), "{seen}");
        }
        // a three times over one, b twice over one, a again over a new one.
        assert_eq!(server.calls(), 3);
        // A denial in between ends neither the client's connection nor what it can do.
        let (head, _) = ask(&mut stream, "GET http://evil.test/ HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 403"), "{head}");
        let (head, _) =
            ask(&mut stream, &format!("GET http://a.test:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    });
}

#[test]
fn bodies_pass_by_length_and_in_chunks() {
    run(async {
        let (world, server) = world_with_mirror().await;
        let port = server.port();
        let mut stream = world.call().await;
        let head = format!("POST http://a.test:{port}/ HTTP/1.1\r\nHost: x\r\n");
        let (_, seen) = ask(&mut stream, &format!("{head}Content-Length: 5\r\n\r\nhello")).await;
        assert!(seen.ends_with("\r\n\r\nhello"), "{seen}");
        let chunks = "5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n";
        let (_, seen) = ask(&mut stream, &format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}")).await;
        assert!(seen.ends_with("\r\n\r\nhello, world"), "{seen}");
        let (answer, _) =
            ask(&mut stream, &format!("HEAD http://a.test:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        assert!(
            answer.starts_with("HTTP/1.1 200") && !answer.to_lowercase().contains("content-length: 0"),
            "{answer}"
        );
        let (_, seen) =
            ask(&mut stream, &format!("{head}Expect: 100-continue\r\nContent-Length: 0\r\n\r\n")).await;
        assert!(seen.starts_with("POST / HTTP/1.1"), "{seen}");
    });
}

#[test]
fn a_second_request_hidden_in_the_first_is_judged_too() {
    run(async {
        let (world, server) = world_with_mirror().await;
        let port = server.port();
        // Two lengths, or a length and chunks: servers differ in which they believe.
        for trick in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "Content-Length: 0\r\nContent-Length: 45\r\n\r\nGET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "Content-Length: +5\r\n\r\nhello",
            "Content-Length : 5\r\n\r\nhello",
        ] {
            let mut stream = world.call().await;
            let request =
                format!("POST http://a.test:{port}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{trick}");
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let answer = String::from_utf8_lossy(&read_all(&mut stream).await).into_owned();
            assert!(!answer.contains("GET /evil"), "{trick}: {answer}");
            assert!(!answer.contains("Host: evil.test"), "{trick}: {answer}");
        }
    });
}

#[test]
fn a_denial_is_one_sentence_with_the_rule_and_what_to_do() {
    run(async {
        let (world, _server) = world_with_mirror().await;
        let mut stream = world.call().await;
        let (head, body) =
            ask(&mut stream, "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 403"), "{head}");
        assert!(head.contains("content-type: text/plain"), "{head}");
        let sentence = "evil.test:80 denied [domain_not_allowed]: \"evil.test\" is not among the policy's domains; add \"evil.test\" to network.domains";
        assert_eq!(body, format!("{sentence}\n"));
        // In the status line as well, which clients show when they hide the body.
        assert!(head.lines().next().unwrap().ends_with(sentence), "{head}");
        let json = "GET http://10.0.0.1/ HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n";
        let (head, body) = ask(&mut stream, json).await;
        assert!(head.contains("application/problem+json"), "{head}");
        let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (problem["status"].as_u64(), problem["code"].as_str()),
            (Some(403), Some("special_address"))
        );
        assert!(problem["hint"].as_str().unwrap().contains("10.0.0.1/32"), "{problem}");
    });
}

#[test]
fn what_is_not_a_request_to_a_proxy_is_told_so() {
    run(async {
        let (world, server) = world_with_mirror().await;
        let port = server.port();
        for (request, status) in [
            ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(), "400"),
            ("GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(), "400"),
            ("GET ftp://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(), "400"),
            (format!("GET http://user@a.test:{port}/ HTTP/1.1\r\nHost: a.test\r\n\r\n"), "400"),
            (format!("GET http://evil.test@a.test:{port}/ HTTP/1.1\r\nHost: a.test\r\n\r\n"), "400"),
            ("GET http://0x7f000001/ HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(), "400"),
            ("GET http://[::1%25lo]/ HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(), "400"),
            ("GET http://[::ffff:127.0.0.1]/ HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(), "403"),
            (format!("CONNECT a.test HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"), "400"),
            ("CONNECT a.test:0 HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(), "400"),
            ("OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(), "400"),
            ("GET http://a.test\0.evil/ HTTP/1.1\r\n\r\n".to_owned(), "400"),
            ("NONSENSE\r\n\r\n".to_owned(), "400"),
        ] {
            let mut stream = world.call().await;
            stream.write_all(request.as_bytes()).await.unwrap();
            let head = read_head(&mut stream).await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {head}");
        }
        assert_eq!(server.calls(), 0);
        let mut stream = world.call().await;
        stream
            .write_all(format!("GET http://a.test/{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20)).as_bytes())
            .await
            .ok();
        let head = read_head(&mut stream).await;
        assert!(head.is_empty() || head.starts_with("HTTP/1.1 4"), "{head}");
    });
}

#[test]
fn failures_outside_are_told_apart_from_denials() {
    run(async {
        let (world, server) = world_with_mirror().await;
        let closed = Server::start("127.78.0.2:0", |stream| async move { drop(stream) }).await;
        world.names.has("a.test", &["127.78.0.2"]);
        let mut stream = world.call().await;
        let (head, body) =
            ask(&mut stream, &format!("GET http://a.test:{}/ HTTP/1.1\r\nHost: x\r\n\r\n", closed.port()))
                .await;
        assert!(head.starts_with("HTTP/1.1 502"), "{head} {body}");
        let free = std::net::TcpListener::bind("127.78.0.2:0").unwrap().local_addr().unwrap().port();
        let (head, body) =
            ask(&mut stream, &format!("GET http://a.test:{free}/ HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        assert!(head.starts_with("HTTP/1.1 502") && body.contains("refused"), "{head} {body}");
        let (head, _) =
            ask(&mut stream, &format!("GET http://b.test:{}/ HTTP/1.1\r\nHost: x\r\n\r\n", server.port()))
                .await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    });
}

#[test]
fn a_server_that_closes_between_requests_is_called_again() {
    run(async {
        let server = Server::start("127.78.0.3:0", |mut stream| async move {
            read_head(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        })
        .await;
        let world = World::new(rules()).await;
        world.names.has("a.test", &["127.78.0.3"]);
        let mut stream = world.call().await;
        for _ in 0..20 {
            let request = format!("GET http://a.test:{}/ HTTP/1.1\r\nHost: x\r\n\r\n", server.port());
            let (head, body) = ask(&mut stream, &request).await;
            // The end may come just after a request went out; then nobody knows what became of it.
            assert!(body == "ok" || head.starts_with("HTTP/1.1 502"), "{head} {body}");
        }
        assert!(server.calls() > 1);
    });
}

#[test]
fn websockets_pass_and_no_other_upgrade() {
    run(async {
        let server = Server::start("127.78.0.4:0", |mut stream| async move {
            let head = read_head(&mut stream).await;
            if head.to_lowercase().contains("upgrade: websocket") {
                let answer =
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
                stream.write_all(answer.as_bytes()).await.unwrap();
                let (mut reads, mut writes) = stream.split();
                let _ = tokio::io::copy(&mut reads, &mut writes).await;
            } else {
                let body = if head.to_lowercase().contains("upgrade") { "upgrade seen" } else { "plain" };
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        })
        .await;
        let world = World::new(rules()).await;
        world.names.has("a.test", &["127.78.0.4"]);
        let url = format!("http://a.test:{}/", server.port());
        let mut stream = world.call().await;
        let h2c = format!(
            "GET {url} HTTP/1.1\r\nHost: x\r\nConnection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"
        );
        assert_eq!(ask(&mut stream, &h2c).await.1, "plain");
        let mut stream = world.call().await;
        let request = format!(
            "GET {url} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        stream.write_all(b"frames").await.unwrap();
        let mut echoed = [0; 6];
        stream.read_exact(&mut echoed).await.unwrap();
        assert_eq!(&echoed, b"frames");
        // And it is cut like every other connection.
        world.session.set_policy(support::policy(json!("off")));
        assert!(read_all(&mut stream).await.is_empty());
    });
}
