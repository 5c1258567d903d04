//! What the client does when connections break, against a server that breaks them on cue.
//!
//! A real server cannot be made to hang up between two given bytes; this one says exactly what each test tells it.

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use workroom_client::{Client, ClientError, Endpoint, ExecOutput};
use workroom_types::{AppendEvent, ExecRequest, ExecResult, JournalEntry, Timestamp};

async fn listener() -> (TcpListener, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let client = Client::new(Endpoint::Tcp { host: "127.0.0.1".into(), port }, Some("secret".into()));
    (listener, client)
}

/// One request, head and body.
async fn request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = header(head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return text;
            }
        }
        let mut part = [0; 4096];
        let read = stream.read(&mut part).await.expect("a request");
        assert!(read > 0, "the client hung up in the middle of a request");
        bytes.extend_from_slice(&part[..read]);
    }
}

fn header(request: &str, name: &str) -> Option<String> {
    let line = request.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn json(body: &impl serde::Serialize) -> String {
    let body = serde_json::to_string(body).expect("JSON");
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The head of an endless answer, and its first piece.
fn stream_start(events: &str) -> String {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    format!("{head}{:x}\r\n{events}\r\n", events.len())
}

fn entry(seq: i64) -> JournalEntry {
    JournalEntry {
        position: seq + 100,
        session: "s".into(),
        seq,
        at: Timestamp(0),
        actor: "server".into(),
        kind: "session.created".into(),
        body: serde_json::Value::Null,
        hash: String::new(),
    }
}

fn event(entry: &JournalEntry) -> String {
    format!("id: {}\ndata: {}\n\n", entry.seq, serde_json::to_string(entry).expect("JSON"))
}

#[tokio::test]
async fn a_change_is_asked_for_again_under_the_same_key() {
    let (listener, client) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let first = request(&mut stream).await;
        drop(stream);
        let (mut stream, _) = listener.accept().await.unwrap();
        let second = request(&mut stream).await;
        stream.write_all(json(&entry(1)).as_bytes()).await.unwrap();
        (first, second)
    });
    let append = AppendEvent { kind: "note".into(), body: serde_json::Value::Null };
    assert_eq!(client.append("s", &append).await.expect("an entry").seq, 1);
    let (first, second) = server.await.unwrap();
    let key = header(&first, "idempotency-key").expect("a key");
    assert_eq!(key.len(), 32);
    assert_eq!(header(&second, "idempotency-key"), Some(key));
    assert_eq!(header(&second, "authorization").as_deref(), Some("Bearer secret"));
    assert!(first.starts_with("POST /v1/sessions/s/events HTTP/1.1\r\n"), "{first}");
}

#[tokio::test]
async fn two_tries_and_no_more() {
    let (listener, client) = listener().await;
    let server = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await;
        }
        tokio::time::timeout(Duration::from_millis(300), listener.accept()).await.is_err()
    });
    let error = client.delete("s").await.expect_err("nobody answered");
    assert!(matches!(error, ClientError::Transport(_)), "{error:?}");
    assert!(server.await.unwrap(), "there was a third try");
}

#[tokio::test]
async fn a_connection_serves_again_and_is_replaced_when_it_was_closed() {
    let (listener, client) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for seq in 1..=2 {
            request(&mut stream).await;
            stream.write_all(json(&entry(seq)).as_bytes()).await.unwrap();
        }
        // Without a word, as a server does with what was idle for long.
        drop(stream);
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        stream.write_all(json(&entry(3)).as_bytes()).await.unwrap();
    });
    let append = AppendEvent { kind: "note".into(), body: serde_json::Value::Null };
    for seq in 1..=3 {
        assert_eq!(client.append("s", &append).await.expect("an entry").seq, seq);
    }
    server.await.unwrap();
}

#[tokio::test]
async fn events_go_on_behind_the_last_one() {
    let (listener, client) = listener().await;
    let server = tokio::spawn(async move {
        let mut last_ids = Vec::new();
        for (from, to) in [(1, 2), (2, 3)] {
            let (mut stream, _) = listener.accept().await.unwrap();
            last_ids.push(header(&request(&mut stream).await, "last-event-id"));
            // The second stream repeats an entry, and half an event is lost with each connection.
            let events = format!(": hello\n\n{}{}data: {{", event(&entry(from)), event(&entry(to)));
            stream.write_all(stream_start(&events).as_bytes()).await.unwrap();
        }
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        let gone = serde_json::to_string(&workroom_types::Problem::no_session("s")).unwrap();
        let answer = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n{gone}", gone.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        last_ids
    });
    let mut stream = client.follow(Some("s"), 0);
    let mut seen = Vec::new();
    while let Some(entry) = stream.next().await.expect("entries") {
        seen.push(entry.seq);
    }
    assert_eq!(seen, [1, 2, 3]);
    assert_eq!(server.await.unwrap(), [Some("0".to_owned()), Some("2".to_owned())]);
}

#[tokio::test]
async fn a_command_whose_stream_breaks_is_seen_to_its_end() {
    let (listener, client) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let first = request(&mut stream).await;
        let chunk =
            "event: stdout\ndata: {\"offset\":0,\"data\":\"one\\n\",\"encoding\":\"text\",\"missing\":0}\n\n";
        stream.write_all(stream_start(chunk).as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        drop(stream);
        let (mut stream, _) = listener.accept().await.unwrap();
        let second = request(&mut stream).await;
        let result =
            ExecResult { stdout: "one\ntwo\n".into(), stdout_bytes: 8, exit_code: 3, ..Default::default() };
        stream.write_all(json(&result).as_bytes()).await.unwrap();
        assert_eq!(header(&first, "accept").as_deref(), Some("text/event-stream"));
        assert_eq!(header(&first, "idempotency-key"), header(&second, "idempotency-key"));
    });
    let request = ExecRequest { command: Some("x".into()), ..ExecRequest::default() };
    let mut stream = client.exec_stream("s", &request).await.expect("a stream");
    let (mut stdout, mut status) = (Vec::new(), None);
    while let Some(output) = stream.next().await.expect("output") {
        match output {
            ExecOutput::Stdout(chunk) => stdout.extend(chunk.data),
            ExecOutput::Stderr(_) => {}
            ExecOutput::Exit(result) => status = Some(result.exit_code),
        }
    }
    assert_eq!((String::from_utf8_lossy(&stdout).as_ref(), status), ("one\ntwo\n", Some(3)));
    server.await.unwrap();
}

#[tokio::test]
async fn without_a_server_it_is_said_how_to_start_one() {
    let (listener, client) = listener().await;
    drop(listener);
    let error = client.session("s").await.expect_err("nobody listens");
    assert!(matches!(error, ClientError::NotRunning { .. }), "{error:?}");
    assert!(error.to_string().contains("`workroom serve`"), "{error}");
    let nowhere = Client::new(Endpoint::Unix("/nonexistent/workroom.sock".into()), None);
    assert!(matches!(nowhere.session("s").await, Err(ClientError::NotRunning { .. })));
}

#[tokio::test]
async fn a_socket_with_a_long_path_is_reached() {
    let dir =
        std::env::temp_dir().join(format!("workroom-client-{}", std::process::id())).join("d".repeat(120));
    std::fs::create_dir_all(&dir).unwrap();
    // Bound by its short name, as whoever made it had to.
    use std::os::fd::AsRawFd;
    let handle = std::fs::File::open(&dir).unwrap();
    let short = format!("/proc/self/fd/{}/workroom.sock", handle.as_raw_fd());
    let listener = tokio::net::UnixListener::bind(&short).unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut part = [0; 4096];
        let read = stream.read(&mut part).await.unwrap();
        stream.write_all(json(&entry(1)).as_bytes()).await.unwrap();
        String::from_utf8_lossy(&part[..read]).into_owned()
    });
    let client = Client::new(Endpoint::Unix(dir.join("workroom.sock")), None);
    let append = AppendEvent { kind: "note".into(), body: serde_json::Value::Null };
    let answered = client.append("s", &append).await;
    std::fs::remove_dir_all(dir.parent().unwrap()).unwrap();
    answered.expect("an entry");
    let request = server.await.unwrap();
    assert_eq!(header(&request, "host").as_deref(), Some("localhost"));
    assert_eq!(header(&request, "authorization"), None);
}
