//! Previews: what a room serves over HTTP, under a name of its own, passed on as it is in every way that HTTP has.

mod ports;

use ports::{has_python, header, http_server, none_is_open, preview_host, publish, publish_like};
use std::process::Stdio;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use workroom_testkit::types::PublishPort;
use workroom_testkit::{Http, Server, TestSession, User, for_each_user, run, within};

/// Requests for the preview of port 8080, with the first token.
fn preview(server: &Server<'_>, session: &TestSession) -> Http {
    server.http().host(Some(&preview_host(server, session, 8080)))
}

#[test]
fn a_room_is_asked_as_from_within_and_its_answer_comes_as_it_is() {
    if !has_python() {
        return;
    }
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        http_server(&session, 8080).await;
        let published = publish(&session, 8080).await;
        assert_eq!(published.preview, format!("http://{}/", preview_host(&server, &session, 8080)));
        let ask = || preview(&server, &session);

        let asked = ask()
            .header("Cookie", "app=1; workroom_preview=x")
            .header("X-Mine", "yes")
            .get("/a/b%20c?d=e&workroom_ticket=t&f")
            .await
            .expect(200);
        assert_eq!((asked["method"].as_str(), asked["path"].as_str()), (Some("GET"), Some("/a/b%20c?d=e&f")));
        assert_eq!(header(&asked, "host"), Some("localhost:8080"));
        assert_eq!(header(&asked, "x-forwarded-host"), Some(&*preview_host(&server, &session, 8080)));
        assert_eq!(header(&asked, "x-forwarded-proto"), Some("http"));
        assert_eq!(header(&asked, "x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!((header(&asked, "x-mine"), header(&asked, "cookie")), (Some("yes"), Some("app=1")));
        assert_eq!(header(&asked, "authorization"), None, "our token is not the room's to see");

        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let asked = ask().body("abc").send(method, "/x").await.expect(200);
            assert_eq!((asked["method"].as_str(), asked["count"].as_u64()), (Some(method), Some(3)));
        }
        let head = ask().send("HEAD", "/x").await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert!(head.header("content-length").is_some_and(|length| length != "0"), "{head:?}");
        let chunks = "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
        let asked = ask().header("Transfer-Encoding", "chunked").body(chunks).post("/x").await.expect(200);
        assert_eq!(asked["count"], 7);

        let answer = ask().get("/cookies").await;
        let cookies: Vec<_> = answer.headers.iter().filter(|(name, _)| name == "set-cookie").collect();
        assert!(cookies.len() == 1 && cookies[0].1 == "app=1; Path=/", "{answer:?}");
        assert_eq!((answer.header("clear-site-data"), answer.header("x-hop")), (None, None), "{answer:?}");
        assert_eq!(answer.header("x-kept"), Some("2"));
        let redirect = ask().get("/redirect").await;
        assert_eq!((redirect.status, redirect.header("location")), (302, Some("/there")));
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn bodies_of_any_size_pass_as_they_come_and_take_no_memory() {
    if !has_python() {
        return;
    }
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        http_server(&session, 8080).await;
        publish(&session, 8080).await;
        let mib: Vec<u8> = (0..1 << 20).map(|at| at as u8).collect();
        let body = mib.repeat(64);
        let asked = preview(&server, &session).body(body.clone()).post("/x").await.expect(200);
        let digest = session
            .says("/usr/bin/python3 -c \"import hashlib; print(hashlib.sha256(bytes(range(256)) * 4096 * 64).hexdigest(), end='')\"")
            .await;
        assert_eq!((asked["count"].as_u64(), asked["sha256"].as_str()), (Some(64 << 20), Some(&*digest)));

        let before = ports::memory_kb(server.pid());
        let mut reading = TcpStream::connect(server.address()).await.expect("a connection");
        let host = preview_host(&server, &session, 8080);
        let token = server.token();
        let head = format!(
            "GET /big/512 HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        reading.write_all(head.as_bytes()).await.expect("asked");
        let (mut piece, mut came, mut most) = (vec![0; 1 << 20], 0, before);
        loop {
            match within("a piece", reading.read(&mut piece)).await.expect("all of it") {
                0 => break,
                count => came += count,
            }
            most = most.max(ports::memory_kb(server.pid()));
        }
        assert!(came > 512 << 20, "{came}");
        assert!(most < before + (32 << 10), "{before} kB became {most} kB");
    });
}

#[test]
fn events_come_when_they_happen() {
    if !has_python() {
        return;
    }
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        http_server(&session, 8080).await;
        publish(&session, 8080).await;
        let mut events = preview(&server, &session).open("GET", "/events").await;
        let first = events.until("data: one").await;
        assert!(!first.contains("data: two"), "{first}");
        assert_eq!(preview(&server, &session).get("/go").await.text(), "gone");
        events.until("data: two").await;
    });
}

/// A frame of a client, which is masked.
fn frame(text: &str) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let masked = text.bytes().enumerate().map(|(at, byte)| byte ^ mask[at % 4]);
    [0x81, 0x80 | text.len() as u8].into_iter().chain(mask).chain(masked).collect()
}

async fn until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut all = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if text.contains(wanted) {
            return text;
        }
        let count = within("more", stream.read_buf(&mut all)).await.expect("a connection that stands");
        assert!(count > 0, "it ended before {wanted:?}: {text}");
    }
}

#[test]
fn a_websocket_and_any_other_upgrade_is_a_line_both_ways() {
    if !has_python() {
        return;
    }
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        http_server(&session, 8080).await;
        publish(&session, 8080).await;
        let (host, token) = (preview_host(&server, &session, 8080), server.token());
        let upgrade = async |protocol: &str, more: &str| {
            let mut stream = TcpStream::connect(server.address()).await.expect("a connection");
            let head = format!(
                "GET /line HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: {protocol}\r\n{more}\r\n"
            );
            stream.write_all(head.as_bytes()).await.expect("asked");
            let head = until(&mut stream, "\r\n\r\n").await.to_ascii_lowercase();
            assert!(
                head.starts_with("http/1.1 101") && head.contains(&format!("upgrade: {protocol}")),
                "{head}"
            );
            (stream, head)
        };
        let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
        let (mut socket, head) = upgrade("websocket", key).await;
        assert!(head.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
        for word in ["hello", "again"] {
            socket.write_all(&frame(word)).await.expect("sent");
            until(&mut socket, &word.to_uppercase()).await;
        }
        let (mut line, _) = upgrade("shout", "").await;
        line.write_all(b"some words").await.expect("sent");
        until(&mut line, "SOME WORDS").await;
        line.shutdown().await.expect("the client has said its last");
        until(&mut line, "THE END").await;

        // The room's end is the line's.
        socket.write_all(&frame("still")).await.expect("sent");
        until(&mut socket, "STILL").await;
        session.stop().await;
        let ended = within("the end", socket.read(&mut [0; 16])).await;
        assert!(ended.is_err() || ended.is_ok_and(|count| count == 0), "it is over");
        none_is_open(&session).await;
    });
}

#[test]
fn where_nobody_answers_it_is_said_why() {
    if !has_python() {
        return;
    }
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        publish(&session, 8080).await;
        let ask = || preview(&server, &session);
        assert_eq!(ask().get("/").await.problem(502), "nothing_listens");
        let page = ask().header("Accept", "text/html,*/*").get("/").await;
        assert_eq!((page.status, page.header("content-type")), (502, Some("text/html; charset=utf-8")));
        assert!(page.text().contains("nothing listens on port 8080"), "{page:?}");
        // Something else than HTTP.
        let script = "import socket; l=socket.create_server(('127.0.0.1', 8080)); print('listening', flush=True)\nwhile True: c=l.accept()[0]; c.recv(100); c.sendall(b'220 mail\\r\\n'); c.close()";
        let process = session.process(serde_json::json!({"argv": ["/usr/bin/python3", "-c", script]})).await;
        process.says("listening").await;
        assert_eq!(ask().get("/").await.problem(502), "nothing_listens");
        session.stop().await;
        assert_eq!(ask().get("/").await.problem(409), "wrong_state");
        assert_eq!(
            session.state().await,
            workroom_testkit::types::SessionState::Stopped,
            "a look starts nothing"
        );
        let other = server.http().host(Some(&preview_host(&server, &session, 8081)));
        assert_eq!(other.get("/").await.problem(404), "not_found", "only what is published is to be seen");
    });
}

/// A client that asks before it sends, and knows what HTTP is.
#[test]
fn curl_gets_what_it_asks_for() {
    if !has_python() || std::process::Command::new("curl").arg("--version").output().is_err() {
        return;
    }
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        http_server(&session, 8080).await;
        publish_like(&session, PublishPort { port: 8080, public: true, ..PublishPort::default() }).await;
        let file = user.make_file("body", vec![b'x'; 3 << 20]);
        let host = preview_host(&server, &session, 8080);
        let output = user
            .command("curl")
            .args(["-sS", "--fail", "-H", "Expect: 100-continue", "--max-time", "20", "--resolve"])
            .arg(format!("{host}:127.0.0.1"))
            .args(["-T".as_ref(), file.as_os_str()])
            .arg(format!("http://{host}/up"))
            .stdout(Stdio::piped())
            .output()
            .expect("curl");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let asked: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!((asked["method"].as_str(), asked["count"].as_u64()), (Some("PUT"), Some(3 << 20)));
        assert_eq!(header(&asked, "expect"), None);
    });
}
