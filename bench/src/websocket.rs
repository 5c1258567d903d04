//! The least WebSocket client there can be: a handshake and frames, on a connection of its own.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct WebSocket {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// What of the buffer was given.
    given: usize,
}

pub(crate) struct Message {
    pub(crate) is_text: bool,
    pub(crate) data: Vec<u8>,
}

impl WebSocket {
    pub(crate) fn connect(address: &str, token: &str, path: &str) -> Result<WebSocket, String> {
        let failed = |error: io::Error| format!("no WebSocket to {address}: {error}");
        let mut stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).map_err(failed)?;
        let mut socket = WebSocket { stream, buffer: Vec::new(), given: 0 };
        loop {
            if let Some(at) = socket.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&socket.buffer[..at]).into_owned();
                if !head.starts_with("HTTP/1.1 101") {
                    return Err(head.lines().next().unwrap_or_default().to_owned());
                }
                socket.given = at + 4;
                return Ok(socket);
            }
            socket.fill()?;
        }
    }

    /// One frame with no mask to speak of: a mask of zeros changes nothing and is one.
    pub(crate) fn send(&mut self, data: &[u8]) -> Result<(), String> {
        assert!(data.len() < 126, "only small messages are sent");
        let mut frame = vec![0x82, 0x80 | data.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(data);
        self.stream.write_all(&frame).map_err(|error| error.to_string())
    }

    /// The next text or binary message; `None` when the other side closes.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, String> {
        loop {
            let head = self.take(2)?;
            let length = match head[1] & 0x7f {
                126 => u64::from(u16::from_be_bytes(self.take(2)?.try_into().unwrap_or_default())),
                127 => u64::from_be_bytes(self.take(8)?.try_into().unwrap_or_default()),
                short => u64::from(short),
            };
            let data = self.take(length as usize)?;
            match head[0] & 0x0f {
                1 => return Ok(Some(Message { is_text: true, data })),
                2 => return Ok(Some(Message { is_text: false, data })),
                8 => return Ok(None),
                _ => {}
            }
        }
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>, String> {
        while self.buffer.len() - self.given < count {
            self.fill()?;
        }
        let taken = self.buffer[self.given..self.given + count].to_vec();
        self.given += count;
        Ok(taken)
    }

    fn fill(&mut self) -> Result<(), String> {
        self.buffer.drain(..std::mem::take(&mut self.given));
        let mut chunk = vec![0; 512 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err("the server closed the connection".into()),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}
