//! Commands: run to their end, or with their output as it comes.

use crate::call::{Call, Client, EVENT_STREAM, decode};
use crate::events::SILENCE;
use crate::sessions::session_path;
use crate::sse::{SseBody, StreamEnd};
use crate::{ClientError, types};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::collections::VecDeque;
use types::{Encoding, ExecChunk, ExecRequest, ExecResult, Problem};

/// Where no server comes back.
pub(crate) const GOES_ON: &str = "the command goes on in its room, and the session's events say how it ends";

/// Bytes of one stream of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Where in the stream it begins.
    pub offset: u64,
    pub data: Vec<u8>,
    /// Bytes before it that the server dropped because we were too slow.
    pub missing: u64,
}

/// What comes of a command under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecOutput {
    Stdout(Chunk),
    Stderr(Chunk),
    /// The last one.
    Exit(Box<ExecResult>),
}

/// A command under way. It goes on when this is dropped.
pub struct ExecStream {
    client: Client,
    /// With its idempotency key: asked again, it runs nothing and gives the command's result.
    call: Call,
    source: Source,
    /// Bytes of stdout and stderr that were given.
    seen: [u64; 2],
}

enum Source {
    Events(Box<SseBody>),
    /// The command has ended; this is left to be given.
    Left(VecDeque<ExecOutput>),
}

impl Client {
    /// Runs a command and waits for its end, also across the end of the server: for half a minute for the next one.
    pub async fn exec(&self, id: &str, request: &ExecRequest) -> Result<ExecResult, ClientError> {
        self.value(&exec_call(id, request)?).await
    }

    /// Runs a command and gives its output as it comes.
    pub async fn exec_stream(&self, id: &str, request: &ExecRequest) -> Result<ExecStream, ClientError> {
        let call = exec_call(id, request)?;
        let seen = [0, 0];
        let source = match self.open_or_break(&call.clone().accept(EVENT_STREAM)).await? {
            Ok(opened) => Source::Events(Box::new(SseBody::of(self, opened, Some(SILENCE)))),
            // A stream that began anew would not say what of it is left out.
            Err(why) => Source::Left(rest(self, &call, seen, &why).await?),
        };
        Ok(ExecStream { client: self.clone(), call, source, seen })
    }
}

fn exec_call(id: &str, request: &ExecRequest) -> Result<Call, ClientError> {
    Ok(Call::post(format!("{}/exec", session_path(id)))?.json(request)?.patient(GOES_ON))
}

impl ExecStream {
    /// The next output; nothing after [`ExecOutput::Exit`].
    pub async fn next(&mut self) -> Result<Option<ExecOutput>, ClientError> {
        loop {
            let body = match &mut self.source {
                Source::Left(outputs) => return Ok(outputs.pop_front()),
                Source::Events(body) => body,
            };
            let event = match body.next().await {
                Ok(event) => event,
                Err(StreamEnd::Failed(error)) => return Err(error),
                Err(StreamEnd::Over) => {
                    self.ask_for_the_rest("the server ended its stream").await?;
                    continue;
                }
                Err(StreamEnd::Broke(why)) => {
                    self.ask_for_the_rest(&why).await?;
                    continue;
                }
            };
            let data = event.data.as_bytes();
            return Ok(Some(match event.event.as_str() {
                "stdout" => ExecOutput::Stdout(self.given(0, chunk(&event.data)?)),
                "stderr" => ExecOutput::Stderr(self.given(1, chunk(&event.data)?)),
                "exit" => {
                    let result = decode("the command", data)?;
                    self.source = Source::Left(VecDeque::new());
                    ExecOutput::Exit(Box::new(result))
                }
                "error" => return Err(decode::<Problem>("the command", data)?.into()),
                // What a newer server also says.
                _ => continue,
            }));
        }
    }

    fn given(&mut self, stream: usize, chunk: Chunk) -> Chunk {
        self.seen[stream] = chunk.offset + chunk.data.len() as u64;
        chunk
    }

    async fn ask_for_the_rest(&mut self, why: &str) -> Result<(), ClientError> {
        self.source = Source::Left(rest(&self.client, &self.call, self.seen, why).await?);
        Ok(())
    }
}

/// The command goes on without us: its result is asked for under the same key, and waited for.
async fn rest(
    client: &Client,
    call: &Call,
    seen: [u64; 2],
    why: &str,
) -> Result<VecDeque<ExecOutput>, ClientError> {
    rest_of(client.value(&call.clone().after_a_break(why)).await?, seen)
}

/// What of a result was not given yet. Where it is not all there, how much is missing.
fn rest_of(result: ExecResult, seen: [u64; 2]) -> Result<VecDeque<ExecOutput>, ClientError> {
    let mut outputs = VecDeque::new();
    let streams = [(&result.stdout, result.stdout_bytes), (&result.stderr, result.stderr_bytes)];
    for (stream, (text, total)) in streams.into_iter().enumerate() {
        let given = seen[stream];
        let mut data = bytes_of(result.encoding, text.clone())?;
        // Cut or replaced bytes have other places than in the stream.
        let whole = data.len() as u64 == total && given <= total;
        data.drain(..if whole { given as usize } else { data.len() });
        let missing = if whole { 0 } else { total.saturating_sub(given) };
        if data.is_empty() && missing == 0 {
            continue;
        }
        let chunk = Chunk { offset: given + missing, data, missing };
        outputs.push_back(if stream == 0 { ExecOutput::Stdout(chunk) } else { ExecOutput::Stderr(chunk) });
    }
    outputs.push_back(ExecOutput::Exit(Box::new(result)));
    Ok(outputs)
}

fn chunk(data: &str) -> Result<Chunk, ClientError> {
    let chunk: ExecChunk = decode("the command", data.as_bytes())?;
    Ok(Chunk { offset: chunk.offset, data: bytes_of(chunk.encoding, chunk.data)?, missing: chunk.missing })
}

fn bytes_of(encoding: Encoding, text: String) -> Result<Vec<u8>, ClientError> {
    match encoding {
        Encoding::Text => Ok(text.into_bytes()),
        Encoding::Base64 => BASE64
            .decode(text)
            .map_err(|error| ClientError::Protocol(format!("the command's output is not base64: {error}"))),
    }
}

/// Bytes for a command's stdin, in the shorter of the two ways that keep every byte.
fn encoded(bytes: Vec<u8>) -> (String, Encoding) {
    let escaped = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    let as_text: usize = bytes.iter().map(escaped).sum();
    if as_text <= bytes.len().div_ceil(3) * 4 {
        match String::from_utf8(bytes) {
            Ok(text) => return (text, Encoding::Text),
            Err(bytes) => return (BASE64.encode(bytes.as_bytes()), Encoding::Base64),
        }
    }
    (BASE64.encode(bytes), Encoding::Base64)
}

/// Gives a command these bytes to read.
pub fn with_stdin(mut request: ExecRequest, bytes: Vec<u8>) -> ExecRequest {
    let (text, encoding) = encoded(bytes);
    request.stdin = Some(text);
    request.stdin_encoding = Some(encoding);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_bytes_whatever_their_encoding() {
        let text = r#"{"offset":3,"data":"h\u00e9","encoding":"text","missing":0}"#;
        assert_eq!(chunk(text).unwrap(), Chunk { offset: 3, data: "hé".into(), missing: 0 });
        let base64 = r#"{"offset":0,"data":"/wA=","encoding":"base64","missing":9}"#;
        assert_eq!(chunk(base64).unwrap(), Chunk { offset: 0, data: vec![0xff, 0], missing: 9 });
        assert!(chunk(r#"{"offset":0,"data":"?","encoding":"base64"}"#).is_err());
    }

    #[test]
    fn stdin_keeps_every_byte() {
        let request = with_stdin(ExecRequest::default(), b"plain\n".to_vec());
        assert_eq!(
            (request.stdin.as_deref(), request.stdin_encoding),
            (Some("plain\n"), Some(Encoding::Text))
        );
        let request = with_stdin(ExecRequest::default(), vec![0xff, 0]);
        assert_eq!(
            (request.stdin.as_deref(), request.stdin_encoding),
            (Some("/wA="), Some(Encoding::Base64))
        );
        // Six bytes each in JSON.
        let request = with_stdin(ExecRequest::default(), vec![1; 300]);
        assert_eq!(request.stdin.map(|text| text.len()), Some(400));
    }

    #[test]
    fn after_a_break_the_rest_is_given_or_said_to_be_missing() {
        let result = ExecResult {
            stdout: "0123456789".into(),
            stdout_bytes: 10,
            stderr: "[cut]".into(),
            stderr_bytes: 1000,
            ..ExecResult::default()
        };
        let rest: Vec<ExecOutput> = rest_of(result.clone(), [4, 100]).unwrap().into();
        assert_eq!(
            rest,
            [
                ExecOutput::Stdout(Chunk { offset: 4, data: b"456789".to_vec(), missing: 0 }),
                ExecOutput::Stderr(Chunk { offset: 1000, data: Vec::new(), missing: 900 }),
                ExecOutput::Exit(Box::new(result.clone())),
            ]
        );
        assert_eq!(rest_of(result.clone(), [10, 1000]).unwrap(), [ExecOutput::Exit(Box::new(result))]);
    }
}
