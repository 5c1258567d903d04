//! Processes of a session: started, read, written to, signalled, waited for, attached to.

use crate::call::{Call, Client};
use crate::sessions::session_path;
use crate::websocket::{Incoming, Outgoing, Said, Socket};
use crate::{ClientError, types};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use hyper::Method;
use serde_json::json;
use std::time::Duration;
use types::{InputTaken, OutputPage, OutputStream, Process, ProcessTable, PtySize, SendSignal, StartProcess};

/// A part of a process's output, as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputBytes {
    /// Where the data begins, and where to go on.
    pub cursor: u64,
    pub next_cursor: u64,
    /// Bytes before `cursor` that were asked for and are not kept any more.
    pub missing: u64,
    pub data: Vec<u8>,
    /// Whether there will never be more.
    pub end: bool,
}

/// Where to begin when attaching, and whether only to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttachOptions {
    /// The first byte of stdout that is wanted; without, what is written from now on.
    pub cursor: Option<u64>,
    pub stderr_cursor: Option<u64>,
    pub read_only: bool,
}

/// What is said on an attached process's line.
#[derive(Debug, Clone, PartialEq)]
pub enum Attached {
    /// The first one.
    Process(Box<Process>),
    Output {
        stream: OutputStream,
        offset: u64,
        data: Bytes,
    },
    Missing {
        stream: OutputStream,
        bytes: u64,
    },
    /// What was asked for was not done.
    Error(String),
    /// The last one.
    Exit(Box<Process>),
}

/// A process that is attached to. It goes on when this is dropped.
pub struct Attachment {
    socket: Socket,
}

/// What goes into an attached process, apart from what comes out: one that reads nothing does not keep its output back.
pub struct AttachedInput {
    outgoing: Outgoing,
}

pub struct AttachedOutput {
    incoming: Incoming,
}

/// Where no server comes back.
pub(crate) const ASK_AGAIN: &str = "start the server, then ask again: rooms go on without it";

fn process_path(session: &str, process: &str) -> String {
    format!("{}/processes/{process}", session_path(session))
}

impl Client {
    pub async fn start_process(&self, id: &str, request: &StartProcess) -> Result<Process, ClientError> {
        self.value(&Call::post(format!("{}/processes", session_path(id)))?.json(request)?).await
    }

    /// Its process table, and what is in its room now.
    pub async fn processes(&self, id: &str) -> Result<ProcessTable, ClientError> {
        self.value(&Call::get(format!("{}/processes", session_path(id)))).await
    }

    pub async fn process(&self, id: &str, process: &str) -> Result<Process, ClientError> {
        self.value(&Call::get(process_path(id, process))).await
    }

    /// Ends it if it runs, and forgets it.
    pub async fn remove_process(&self, id: &str, process: &str) -> Result<(), ClientError> {
        self.answer(&Call::mutating(Method::DELETE, process_path(id, process))?).await.map(|_| ())
    }

    /// A page of output; waits for it as long as this.
    pub async fn process_output(
        &self,
        (id, process): (&str, &str),
        stream: OutputStream,
        cursor: u64,
        wait: Duration,
    ) -> Result<OutputBytes, ClientError> {
        let stream = match stream {
            OutputStream::Stdout => "stdout",
            OutputStream::Stderr => "stderr",
        };
        let path = format!(
            "{}/output?stream={stream}&cursor={cursor}&max=1048576&wait_ms={}&encoding=base64",
            process_path(id, process),
            wait.as_millis()
        );
        let page: OutputPage = self.value(&Call::get(path).patient(ASK_AGAIN)).await?;
        let data = BASE64
            .decode(page.data)
            .map_err(|error| ClientError::Protocol(format!("the process's output is not base64: {error}")))?;
        let OutputPage { cursor, next_cursor, missing, end, .. } = page;
        Ok(OutputBytes { cursor, next_cursor, missing, data, end })
    }

    pub async fn write_process(
        &self,
        id: &str,
        process: &str,
        data: impl Into<Bytes>,
    ) -> Result<InputTaken, ClientError> {
        let call = Call::post(format!("{}/input", process_path(id, process)))?;
        self.value(&call.bytes("application/octet-stream", data.into())).await
    }

    /// There is no more input for it.
    pub async fn close_process_input(&self, id: &str, process: &str) -> Result<(), ClientError> {
        let call = Call::post(format!("{}/input?eof=true", process_path(id, process)))?;
        self.value::<InputTaken>(&call.bytes("application/octet-stream", Bytes::new())).await.map(|_| ())
    }

    pub async fn signal_process(
        &self,
        id: &str,
        process: &str,
        signal: &SendSignal,
    ) -> Result<(), ClientError> {
        let call = Call::post(format!("{}/signal", process_path(id, process)))?.json(signal)?;
        self.answer(&call).await.map(|_| ())
    }

    pub async fn resize_process(
        &self,
        id: &str,
        process: &str,
        size: PtySize,
    ) -> Result<Process, ClientError> {
        self.value(&Call::post(format!("{}/resize", process_path(id, process)))?.json(&size)?).await
    }

    /// Waits for its end, for so long: as it is then.
    pub async fn wait_for_process(
        &self,
        id: &str,
        process: &str,
        wait: Duration,
    ) -> Result<Process, ClientError> {
        let path = format!("{}/wait?wait_ms={}", process_path(id, process), wait.as_millis());
        self.value(&Call::get(path).patient(ASK_AGAIN)).await
    }

    /// Its output and input on one connection.
    pub async fn attach_process(
        &self,
        id: &str,
        process: &str,
        options: AttachOptions,
    ) -> Result<Attachment, ClientError> {
        let mut query = format!("read_only={}", options.read_only);
        for (name, cursor) in [("cursor", options.cursor), ("stderr_cursor", options.stderr_cursor)] {
            if let Some(cursor) = cursor {
                query.push_str(&format!("&{name}={cursor}"));
            }
        }
        let path = format!("{}/attach?{query}", process_path(id, process));
        Ok(Attachment { socket: self.websocket(&Call::get(path)).await? })
    }
}

impl Attachment {
    /// The next thing that is said; nothing when the line is over.
    pub async fn next(&mut self) -> Result<Option<Attached>, ClientError> {
        loop {
            let Some(said) = self.socket.next().await? else { return Ok(None) };
            if let Some(attached) = attached(said)? {
                return Ok(Some(attached));
            }
        }
    }

    /// Both directions, each by itself.
    pub fn split(self) -> (AttachedInput, AttachedOutput) {
        let (outgoing, incoming) = self.socket.split();
        (AttachedInput { outgoing }, AttachedOutput { incoming })
    }

    pub async fn write(&mut self, data: impl Into<Bytes>) -> Result<(), ClientError> {
        self.socket.send_binary(data.into()).await
    }

    pub async fn resize(&mut self, cols: u16, rows: u16) -> Result<(), ClientError> {
        self.socket.send_text(json!({ "type": "resize", "cols": cols, "rows": rows }).to_string()).await
    }

    pub async fn signal(&mut self, signal: &str) -> Result<(), ClientError> {
        self.socket.send_text(json!({ "type": "signal", "signal": signal }).to_string()).await
    }

    pub async fn close_input(&mut self) -> Result<(), ClientError> {
        self.socket.send_text(json!({ "type": "close_input" }).to_string()).await
    }
}

impl AttachedInput {
    /// This was all. What was written is taken once the output's half has come to its end.
    pub async fn close(mut self) -> Result<(), ClientError> {
        self.outgoing.close().await
    }

    pub async fn write(&mut self, data: impl Into<Bytes>) -> Result<(), ClientError> {
        self.outgoing.send_binary(data.into()).await
    }

    pub async fn resize(&mut self, cols: u16, rows: u16) -> Result<(), ClientError> {
        self.outgoing.send_text(json!({ "type": "resize", "cols": cols, "rows": rows }).to_string()).await
    }
}

impl AttachedOutput {
    /// The next thing that is said; nothing when the line is over. May be dropped and called again without loss.
    pub async fn next(&mut self) -> Result<Option<Attached>, ClientError> {
        loop {
            let Some(said) = self.incoming.next().await? else { return Ok(None) };
            if let Some(attached) = attached(said)? {
                return Ok(Some(attached));
            }
        }
    }
}

fn attached(said: Said) -> Result<Option<Attached>, ClientError> {
    match said {
        Said::Binary(message) => Ok(output(message)),
        Said::Text(text) => understood(&text),
    }
}

fn output(mut message: Bytes) -> Option<Attached> {
    if message.len() < 9 {
        return None;
    }
    let data = message.split_off(9);
    let stream = match message[0] {
        1 => OutputStream::Stdout,
        2 => OutputStream::Stderr,
        _ => return None,
    };
    let offset = u64::from_be_bytes(message[1..9].try_into().ok()?);
    Some(Attached::Output { stream, offset, data })
}

/// `None` for what a newer server also says.
fn understood(text: &str) -> Result<Option<Attached>, ClientError> {
    let wrong = |error: serde_json::Error| {
        ClientError::Protocol(format!("what the server says of the process is not understood: {error}"))
    };
    let value: serde_json::Value = serde_json::from_str(text).map_err(wrong)?;
    let process = || serde_json::from_value::<Process>(value["process"].clone()).map(Box::new).map_err(wrong);
    Ok(match value["type"].as_str() {
        Some("attached") => Some(Attached::Process(process()?)),
        Some("exit") => Some(Attached::Exit(process()?)),
        Some("missing") => Some(Attached::Missing {
            stream: serde_json::from_value(value["stream"].clone()).map_err(wrong)?,
            bytes: value["bytes"].as_u64().unwrap_or(0),
        }),
        Some("error") => {
            let detail = value["problem"]["detail"].as_str().unwrap_or("it was refused").to_owned();
            Some(Attached::Error(detail))
        }
        _ => None,
    })
}
