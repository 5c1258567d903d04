//! The least HTTP client there can be: one kept connection, one request at a time, so that the server is what
//! is measured.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than any answer here takes.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Http {
    stream: TcpStream,
    address: String,
    token: String,
    buffer: Vec<u8>,
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Http {
    pub(crate) fn connect(address: &str, token: &str) -> Result<Http, String> {
        let failed = |error: std::io::Error| format!("no connection to {address}: {error}");
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        Ok(Http { stream, address: address.to_owned(), token: token.to_owned(), buffer: Vec::new() })
    }

    pub(crate) fn request(&mut self, method: &str, path: &str, body: &str) -> Result<Response, String> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        );
        self.stream.write_all(head.as_bytes()).map_err(|error| error.to_string())?;
        self.response().map_err(|why| format!("{method} {path}: {why}"))
    }

    /// The same, with an answer that must be a success.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<serde_json::Value, String> {
        let response = self.request(method, path, body)?;
        if !(200..300).contains(&response.status) {
            let text = String::from_utf8_lossy(&response.body).into_owned();
            return Err(format!("{method} {path}: {} {text}", response.status));
        }
        if response.body.is_empty() {
            return Ok(serde_json::Value::Null);
        }
        serde_json::from_slice(&response.body).map_err(|error| error.to_string())
    }

    fn response(&mut self) -> Result<Response, String> {
        let mut read = std::mem::take(&mut self.buffer);
        let head_end = loop {
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.fill(&mut read)?;
        };
        let head = String::from_utf8_lossy(&read[..head_end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or("no status")?;
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .map_or(Ok(0), |value| value.trim().parse())
            .map_err(|_| "no length".to_owned())?;
        while read.len() < head_end + length {
            self.fill(&mut read)?;
        }
        let rest = read.split_off(head_end + length);
        let body = read.split_off(head_end);
        self.buffer = rest;
        Ok(Response { status, body })
    }

    fn fill(&mut self, read: &mut Vec<u8>) -> Result<(), String> {
        let mut chunk = [0; 16 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err("the server closed the connection".into()),
            Ok(count) => {
                read.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}
