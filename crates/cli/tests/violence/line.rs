//! Requests to a server that may end at any moment: every failure is an answer too.

use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use workroom_client::{SseEvent, SseParser};
use workroom_testkit::Server;

/// No answer takes longer, not even one that has to wait for a restart.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The way to a server that comes and goes: its unix socket stays where it is.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    socket: PathBuf,
    token: String,
}

/// What is asked. Asked again, it is the same request under the same key.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) key: Option<String>,
    pub(crate) body: Option<Value>,
}

/// An answer that came whole.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn get(path: impl Into<String>) -> Request {
        Request { method: "GET", path: path.into(), key: None, body: None }
    }

    pub(crate) fn post(path: impl Into<String>, body: Option<Value>) -> Request {
        Request { method: "POST", path: path.into(), key: None, body }
    }

    pub(crate) fn delete(path: impl Into<String>) -> Request {
        Request { method: "DELETE", path: path.into(), key: None, body: None }
    }

    pub(crate) fn under(mut self, key: impl Into<String>) -> Request {
        self.key = Some(key.into());
        self
    }

    /// HTTP/1.0, so that a body is what comes until the end.
    fn bytes(&self, accept: &str, token: &str) -> Vec<u8> {
        let body = self.body.as_ref().map(Value::to_string).unwrap_or_default();
        let mut head =
            format!("{} {} HTTP/1.0\r\nHost: localhost\r\nAccept: {accept}\r\n", self.method, self.path);
        head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        if let Some(key) = &self.key {
            head.push_str(&format!("Idempotency-Key: {key}\r\n"));
        }
        if self.body.is_some() {
            head.push_str("Content-Type: application/json\r\n");
        }
        format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }
}

impl Heard {
    /// The body of an answer with this status.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> &Value {
        assert_eq!(self.status, status, "{}", self.body);
        &self.body
    }

    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

impl Line {
    pub(crate) fn of(server: &Server<'_>) -> Line {
        Line { socket: server.socket(), token: server.token().to_owned() }
    }

    /// Asks once. An answer that is cut short is none.
    pub(crate) async fn attempt(&self, request: &Request) -> io::Result<Heard> {
        self.attempt_for(request, PATIENCE).await
    }

    /// The same for what may take longer.
    pub(crate) async fn attempt_for(&self, request: &Request, patience: Duration) -> io::Result<Heard> {
        let exchange = async {
            let mut stream = UnixStream::connect(&self.socket).await?;
            stream.write_all(&request.bytes("application/json", &self.token)).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok::<_, io::Error>(answer)
        };
        let answer = tokio::time::timeout(patience, exchange)
            .await
            .unwrap_or_else(|_| panic!("{} {} is not answered", request.method, request.path))?;
        let (head, body) = cut(&answer).ok_or(io::ErrorKind::UnexpectedEof)?;
        let length = header(head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        if body.len() != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(body)? };
        Ok(Heard { status: status(head)?, replayed: header(head, "idempotency-replayed").is_some(), body })
    }

    /// Asks until there is an answer, of whichever server.
    pub(crate) async fn ask(&self, request: &Request) -> Heard {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            match self.attempt(request).await {
                Ok(heard) => return heard,
                Err(error) => {
                    assert!(
                        tokio::time::Instant::now() < deadline,
                        "{} {}: {error}",
                        request.method,
                        request.path
                    );
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }

    pub(crate) async fn get(&self, path: impl Into<String>) -> Heard {
        self.ask(&Request::get(path)).await
    }

    pub(crate) async fn post(&self, path: impl Into<String>, body: Option<Value>) -> Heard {
        self.ask(&Request::post(path, body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Heard {
        self.ask(&Request::delete(path)).await
    }

    /// What a command says that must succeed.
    pub(crate) async fn says(&self, session: &str, command: &str) -> String {
        let request = serde_json::json!({ "command": command });
        let heard = self.post(format!("/v1/sessions/{session}/exec"), Some(request)).await;
        let result = heard.expect(200);
        assert_eq!(result["exit_code"], 0, "{command}: {result}");
        result["stdout"].as_str().expect("text").to_owned()
    }

    /// Asks for an event stream. A problem is no stream.
    pub(crate) async fn stream(&self, request: &Request) -> io::Result<Stream> {
        let mut connection = UnixStream::connect(&self.socket).await?;
        connection.write_all(&request.bytes("text/event-stream", &self.token)).await?;
        let mut stream = Stream { connection, parser: SseParser::default() };
        let mut head = Vec::new();
        while cut(&head).is_none() {
            if stream.connection.read_buf(&mut head).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let (words, rest) = cut(&head).ok_or(io::ErrorKind::InvalidData)?;
        if status(words)? != 200 {
            return Err(io::Error::other(String::from_utf8_lossy(&head).into_owned()));
        }
        stream.parser.push(rest).map_err(io::Error::other)?;
        Ok(stream)
    }
}

/// Events as they come.
pub(crate) struct Stream {
    connection: UnixStream,
    parser: SseParser,
}

impl Stream {
    /// The next event; nothing at the end, however it came.
    pub(crate) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.parser.next_event() {
                return Some(event);
            }
            let mut piece = Vec::with_capacity(64 << 10);
            match self.connection.read_buf(&mut piece).await {
                Ok(count) if count > 0 => self.parser.push(&piece).expect("events"),
                _ => return None,
            }
        }
    }
}

fn cut(answer: &[u8]) -> Option<(&str, &[u8])> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((str::from_utf8(&answer[..end]).ok()?, &answer[end + 4..]))
}

fn status(head: &str) -> io::Result<u16> {
    let word = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    word.ok_or_else(|| io::Error::other(format!("no status in {head:?}")))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}
