//! Requests as they are on the wire: any header, any body, however wrong; what the client would never send.

use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::wait::within;

/// A request to be. Without `as_nobody` it carries the server's first token.
#[derive(Debug, Clone)]
pub struct Http {
    place: Place,
    token: Option<String>,
    host: Option<String>,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

#[derive(Debug, Clone)]
enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// An answer that is whole.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// Names in lower case, in their order.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Http {
    pub(crate) fn tcp(address: SocketAddr, token: &str) -> Http {
        let host = Some(address.to_string());
        let token = Some(token.to_owned());
        Http { place: Place::Tcp(address), token, host, headers: Vec::new(), body: None }
    }

    pub(crate) fn unix(path: &Path) -> Http {
        let host = Some("localhost".into());
        Http { place: Place::Unix(path.to_owned()), token: None, host, headers: Vec::new(), body: None }
    }

    #[must_use]
    pub fn as_nobody(mut self) -> Http {
        self.token = None;
        self
    }

    #[must_use]
    pub fn token(mut self, token: &str) -> Http {
        self.token = Some(token.to_owned());
        self
    }

    #[must_use]
    pub fn host(mut self, host: Option<&str>) -> Http {
        self.host = host.map(str::to_owned);
        self
    }

    /// One more header; the same name may come again.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl std::fmt::Display) -> Http {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    #[must_use]
    pub fn key(self, key: &str) -> Http {
        self.header("Idempotency-Key", key)
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Http {
        self.body = Some(body.into());
        self
    }

    #[must_use]
    pub fn json(self, body: &Value) -> Http {
        self.header("Content-Type", "application/json").body(body.to_string())
    }

    pub async fn get(self, path: &str) -> Response {
        self.send("GET", path).await
    }

    pub async fn post(self, path: &str) -> Response {
        self.send("POST", path).await
    }

    pub async fn put(self, path: &str) -> Response {
        self.send("PUT", path).await
    }

    pub async fn patch(self, path: &str) -> Response {
        self.send("PATCH", path).await
    }

    pub async fn delete(self, path: &str) -> Response {
        self.send("DELETE", path).await
    }

    /// Asks on a connection of its own and reads the whole answer.
    #[track_caller]
    pub fn send(self, method: &str, path: &str) -> impl Future<Output = Response> + use<> {
        let request = self.header("Connection", "close").head(method, path);
        let sent = format!("{method} {path}");
        within("an answer", async move {
            let (place, bytes) = request;
            let response = Response::parse(&exchange(&place, &bytes).await);
            assert_eq!(response.header("x-undeclared-answer"), None, "{sent}: {response:?}");
            response
        })
    }

    /// Asks, and leaves the connection to be read from or dropped.
    #[track_caller]
    pub fn open(self, method: &str, path: &str) -> impl Future<Output = Reading> + use<> {
        let (place, bytes) = self.head(method, path);
        within("a connection", async move {
            let mut connection = connect(&place).await;
            connection.write_all(&bytes).await.expect("send a request");
            Reading { connection, seen: Vec::new() }
        })
    }

    fn head(self, method: &str, path: &str) -> (Place, Vec<u8>) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        let mut header = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        self.host.iter().for_each(|host| header("Host", host));
        self.token.iter().for_each(|token| header("Authorization", &format!("Bearer {token}")));
        self.headers.iter().for_each(|(name, value)| header(name, value));
        let own_length = self.headers.iter().any(|(name, _)| {
            name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding")
        });
        let body = self.body.unwrap_or_default();
        if !own_length && (!body.is_empty() || method != "GET") {
            header("Content-Length", &body.len().to_string());
        }
        let mut bytes = (head + "\r\n").into_bytes();
        bytes.extend(body);
        (self.place, bytes)
    }
}

trait Connection: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {}
impl Connection for TcpStream {}
impl Connection for UnixStream {}

async fn connect(place: &Place) -> Box<dyn Connection> {
    match place {
        Place::Tcp(address) => Box::new(TcpStream::connect(address).await.expect("connect")),
        Place::Unix(path) => Box::new(UnixStream::connect(path).await.expect("connect")),
    }
}

async fn exchange(place: &Place, request: &[u8]) -> Vec<u8> {
    let mut connection = connect(place).await;
    // A server that refuses a large body closes before it has read it; its answer is there all the same.
    let _ = connection.write_all(request).await;
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer).await;
    answer
}

/// An answer that is still coming.
pub struct Reading {
    connection: Box<dyn Connection>,
    seen: Vec<u8>,
}

impl Reading {
    /// Reads until this text has come; returns all that has come so far.
    #[track_caller]
    pub fn until(&mut self, text: &str) -> impl Future<Output = String> {
        let text = text.to_owned();
        within("a piece of an answer", async move {
            loop {
                let so_far = String::from_utf8_lossy(&self.seen).into_owned();
                if so_far.contains(&text) {
                    return so_far;
                }
                let mut piece = [0; 16 << 10];
                let count = self.connection.read(&mut piece).await.unwrap_or(0);
                assert!(count > 0, "it ended before {text:?}: {so_far}");
                self.seen.extend(&piece[..count]);
            }
        })
    }

    /// Reads to the end of the connection.
    #[track_caller]
    pub fn to_end(mut self) -> impl Future<Output = String> {
        within("the end of an answer", async move {
            let _ = self.connection.read_to_end(&mut self.seen).await;
            String::from_utf8_lossy(&self.seen).into_owned()
        })
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {:?} {}", self.status, self.headers, self.text())
    }
}

impl Response {
    fn parse(bytes: &[u8]) -> Response {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8_lossy(&bytes[..end]);
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers: Vec<(String, String)> =
            headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
        let mut response =
            Response { status: status.expect("a status"), headers, body: bytes[end + 4..].to_vec() };
        if response.header("transfer-encoding") == Some("chunked") {
            response.body = unchunk(&response.body);
        }
        response
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The value of an answer with this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// The code of a problem with this status; that it is a whole problem is looked at.
    #[track_caller]
    pub fn problem(&self, status: u16) -> String {
        let problem = self.expect(status);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(problem["status"], status, "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        problem["code"].as_str().expect("a code").to_owned()
    }
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(&String::from_utf8_lossy(&bytes[..end]), 16).unwrap_or(0);
        let Some(chunk) = bytes.get(end + 2..end + 2 + size).filter(|chunk| !chunk.is_empty()) else { break };
        whole.extend(chunk);
        bytes = bytes.get(end + 4 + size..).unwrap_or_default();
    }
    whole
}
