//! A command's output as it is written: an event stream fed by a task that outlives its reader.

use crate::app::Stopping;
use crate::call::Call;
use crate::idempotency::{key_for, problem_to_remember};
use crate::reply::{Answer, Failure, JSON, mark_replayed, replayed};
use crate::sse::{self, event, heartbeat, heartbeat_comment};
use crate::text::{Piece, TextCutter};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use workroom_engine::{Attempt, Engine, ExecEvent, IdempotencyKey, Permit, StoredAnswer};
use workroom_types::{Caller, Encoding, ExecChunk, ExecRequest, ExecResult, Problem, ProblemCode};

pub(crate) async fn exec(call: Call, request: ExecRequest, body: &[u8]) -> Answer {
    let key = key_for(&call, body)?;
    let id = call.id().to_owned();
    let stopping = call.app.stopping.clone();
    let (head, answered) = oneshot::channel();
    let encoding = request.encoding.unwrap_or_default();
    let command = Command { engine: call.app.engine.clone(), caller: call.caller, id, request };
    let reader = Reader { events: None, encoding, cutters: Default::default(), stopping };
    tokio::spawn(command.run(key, head, reader));
    answered.await.unwrap_or_else(|_| {
        let detail = "the command was not started because of an error of the server's own";
        Err(Problem::new(ProblemCode::Internal, detail, "the server's log has more").into())
    })
}

struct Command {
    engine: Engine,
    caller: Caller,
    id: String,
    request: ExecRequest,
}

impl Command {
    /// Answers through `head` as soon as it is known whether the command runs, then passes on what it writes.
    async fn run(self, key: Option<IdempotencyKey>, head: oneshot::Sender<Answer>, mut reader: Reader) {
        let permit = match key {
            None => None,
            Some(key) => match self.engine.begin(key).await {
                Ok(Attempt::Ours(permit)) => Some(permit),
                Ok(Attempt::Replay(answer)) => {
                    let _ = head.send(Ok(replay(answer)));
                    return;
                }
                Err(problem) => {
                    let _ = head.send(Err(problem.into()));
                    return;
                }
            },
        };
        let begun = self.engine.exec_stream(&self.caller, &self.id, self.request, permit.as_ref()).await;
        let mut output = match begun {
            Ok(output) => output,
            Err(problem) => {
                let told = remember_problem(&self.engine, permit, problem).await;
                let _ = head.send(Err(told.into()));
                return;
            }
        };
        let (events, response) = sse::stream();
        reader.events = Some(events);
        // If the caller is gone already, there is simply nobody to read.
        let _ = head.send(Ok(response));
        let mut permit = permit;
        let mut heartbeat = heartbeat();
        loop {
            // Without a key nobody asks for the end either; the command goes on by itself.
            if !reader.is_there() && permit.is_none() {
                return;
            }
            tokio::select! {
                _ = reader.gone() => {}
                _ = heartbeat.tick() => reader.send(heartbeat_comment()).await,
                next = output.recv() => match next {
                    Some(ExecEvent::Stdout { offset, data, missing }) => {
                        reader.output(Stream::Stdout, offset, &data, missing).await;
                    }
                    Some(ExecEvent::Stderr { offset, data, missing }) => {
                        reader.output(Stream::Stderr, offset, &data, missing).await;
                    }
                    Some(ExecEvent::Exit(result)) => {
                        let remembered = remember_result(&self.engine, permit.take(), &result).await;
                        reader.finish_text().await;
                        match remembered {
                            Ok(()) => reader.send(event(None, Some("exit"), &result)).await,
                            Err(problem) => reader.send(event(None, Some("error"), &problem)).await,
                        }
                        return;
                    }
                    Some(ExecEvent::Failed(problem)) => {
                        let told = remember_problem(&self.engine, permit.take(), problem).await;
                        reader.finish_text().await;
                        reader.send(event(None, Some("error"), &told)).await;
                        return;
                    }
                    None => {
                        let detail = "the server lost sight of the command";
                        let problem = Problem::new(ProblemCode::Internal, detail, "its output so far was passed on");
                        reader.send(event(None, Some("error"), &problem)).await;
                        return;
                    }
                },
            }
        }
    }
}

/// Before the caller is told: what it has seen is the answer for good.
async fn remember_result(
    engine: &Engine,
    permit: Option<Permit>,
    result: &ExecResult,
) -> Result<(), Problem> {
    let Some(permit) = permit else { return Ok(()) };
    let body = serde_json::to_vec(result).unwrap_or_default();
    engine.finish(permit, StoredAnswer { status: 200, content_type: JSON.to_owned(), body }).await
}

/// Gives back what the caller is to be told: the problem, or that it could not be remembered.
async fn remember_problem(engine: &Engine, permit: Option<Permit>, problem: Problem) -> Problem {
    let Some(permit) = permit else { return problem };
    match problem_to_remember(&problem) {
        Some(answer) => engine.finish(permit, answer).await.err().unwrap_or(problem),
        None => {
            engine.withdraw(permit, &problem).await;
            problem
        }
    }
}

#[derive(Clone, Copy)]
enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// Who reads the stream, as long as it is there.
struct Reader {
    events: Option<mpsc::Sender<Bytes>>,
    encoding: Encoding,
    cutters: [TextCutter; 2],
    stopping: Stopping,
}

impl Reader {
    fn is_there(&self) -> bool {
        self.events.is_some()
    }

    /// Returns once, when the reader goes away or the server ends; from then on nobody reads.
    async fn gone(&mut self) {
        match &self.events {
            None => return std::future::pending().await,
            Some(events) => tokio::select! {
                () = events.closed() => {}
                () = self.stopping.begun() => {}
            },
        }
        self.events = None;
    }

    async fn send(&mut self, bytes: Bytes) {
        let Some(events) = &self.events else { return };
        // A reader that does not read must not hold up the end of the server.
        let sent = tokio::select! {
            sent = events.send(bytes) => sent.is_ok(),
            () = self.stopping.begun() => false,
        };
        if !sent {
            self.events = None;
        }
    }

    async fn output(&mut self, stream: Stream, offset: u64, data: &[u8], missing: u64) {
        if !self.is_there() {
            return;
        }
        match self.encoding {
            Encoding::Base64 => {
                let chunk =
                    ExecChunk { offset, data: STANDARD.encode(data), encoding: Encoding::Base64, missing };
                self.send(event(None, Some(stream.name()), &chunk)).await;
            }
            Encoding::Text => {
                let [torn, piece] = self.cutters[stream as usize].push(offset, data);
                if let Some(torn) = torn {
                    self.text(stream, torn, 0).await;
                }
                // Where nothing is complete yet, the loss is still told now.
                let piece = piece.or_else(|| (missing > 0).then(|| Piece { offset, text: String::new() }));
                if let Some(piece) = piece {
                    self.text(stream, piece, missing).await;
                }
            }
        }
    }

    async fn text(&mut self, stream: Stream, piece: Piece, missing: u64) {
        let chunk = ExecChunk { offset: piece.offset, data: piece.text, encoding: Encoding::Text, missing };
        self.send(event(None, Some(stream.name()), &chunk)).await;
    }

    async fn finish_text(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(piece) = self.cutters[stream as usize].finish() {
                self.text(stream, piece, 0).await;
            }
        }
    }
}

/// A remembered result for a caller that wants a stream: one chunk of each, and the end.
fn replay(answer: StoredAnswer) -> Response {
    if answer.status != 200 {
        return replayed(answer);
    }
    let result = match serde_json::from_slice::<ExecResult>(&answer.body) {
        Ok(result) => result,
        Err(error) => {
            let detail = format!("the remembered answer cannot be read: {error}");
            return Failure::from(Problem::new(ProblemCode::Internal, detail, "")).into_response();
        }
    };
    let (events, mut response) = sse::stream();
    for (stream, data) in [(Stream::Stdout, &result.stdout), (Stream::Stderr, &result.stderr)] {
        if !data.is_empty() {
            let chunk = ExecChunk { offset: 0, data: data.clone(), encoding: result.encoding, missing: 0 };
            // Three events fit the empty queue.
            let _ = events.try_send(event(None, Some(stream.name()), &chunk));
        }
    }
    let _ = events.try_send(event(None, Some("exit"), &result));
    mark_replayed(&mut response);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn body(response: Response) -> String {
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    fn reader(encoding: Encoding) -> (Reader, Response, tokio::sync::watch::Sender<bool>) {
        let (stop, stopping) = Stopping::channel();
        let (events, response) = sse::stream();
        let reader = Reader { events: Some(events), encoding, cutters: Default::default(), stopping };
        (reader, response, stop)
    }

    #[tokio::test]
    async fn a_character_across_chunks_arrives_whole_and_each_stream_has_its_own() {
        let (mut reader, response, _stop) = reader(Encoding::Text);
        reader.output(Stream::Stdout, 0, b"a\xe2\x82", 0).await;
        reader.output(Stream::Stderr, 0, b"e", 0).await;
        reader.output(Stream::Stdout, 3, b"\xac", 0).await;
        reader.finish_text().await;
        drop(reader);
        let expected = concat!(
            "event: stdout\ndata: {\"offset\":0,\"data\":\"a\",\"encoding\":\"text\",\"missing\":0}\n\n",
            "event: stderr\ndata: {\"offset\":0,\"data\":\"e\",\"encoding\":\"text\",\"missing\":0}\n\n",
            "event: stdout\ndata: {\"offset\":1,\"data\":\"€\",\"encoding\":\"text\",\"missing\":0}\n\n",
        );
        assert_eq!(body(response).await, expected);
    }

    #[tokio::test]
    async fn bytes_come_as_they_are_in_base64() {
        let (mut reader, response, _stop) = reader(Encoding::Base64);
        reader.output(Stream::Stdout, 5, b"\xff\x00", 3).await;
        drop(reader);
        let expected =
            "event: stdout\ndata: {\"offset\":5,\"data\":\"/wA=\",\"encoding\":\"base64\",\"missing\":3}\n\n";
        assert_eq!(body(response).await, expected);
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_does_not_hold_up_the_end() {
        let (mut reader, _response, stop) = reader(Encoding::Text);
        stop.send(true).expect("the reader listens");
        for offset in 0..100 {
            reader.output(Stream::Stdout, offset, b"x", 0).await;
        }
        assert!(!reader.is_there());
    }

    #[tokio::test]
    async fn a_remembered_result_is_replayed_as_a_stream() {
        let result = ExecResult { stdout: "out".into(), exit_code: 3, ..ExecResult::default() };
        let stored = serde_json::to_vec(&result).expect("JSON");
        let answer = StoredAnswer { status: 200, content_type: JSON.into(), body: stored };
        let response = replay(answer);
        assert_eq!(response.headers()["idempotency-replayed"], "true");
        let text = body(response).await;
        assert!(text.starts_with("event: stdout\n"), "{text}");
        assert!(!text.contains("event: stderr"), "{text}");
        assert!(text.contains("event: exit\ndata: {\"exit_code\":3,"), "{text}");
    }
}
