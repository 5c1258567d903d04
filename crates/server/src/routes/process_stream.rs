//! A process's output as an event stream: from a cursor on, with ids that it can be resumed from.

use crate::app::Stopping;
use crate::call::Call;
use crate::reply::Answer;
use crate::routes::processes::OutputParams;
use crate::sse::{self, heartbeat, heartbeat_comment};
use crate::text::{Piece, TextCutter};
use axum::http::HeaderName;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::mpsc;
use workroom_engine::{Followed, Follower, ProcessHandle};
use workroom_types::{Encoding, ExecChunk, OutputStream, Problem};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(crate) fn follow(call: Call, process: &ProcessHandle, params: OutputParams) -> Answer {
    follow_from(&call, process, params.cursors(), params.encoding())
}

/// From these places on, unless the request says where it was.
pub(crate) fn follow_from(
    call: &Call,
    process: &ProcessHandle,
    mut cursors: [Option<u64>; 2],
    encoding: Encoding,
) -> Answer {
    if let Some(value) = call.headers().get(LAST_EVENT_ID) {
        let read = value.to_str().ok().and_then(resume_from).ok_or_else(|| {
            Problem::invalid("the Last-Event-ID is none of this stream's", "send one as it was received")
        })?;
        for (cursor, read) in cursors.iter_mut().zip(read) {
            *cursor = cursor.map(|_| read);
        }
    }
    let follower = process.follow(cursors)?;
    let (events, response) = sse::stream();
    let feed = Feed { follower, encoding, cutters: Default::default(), given: cursors, events };
    tokio::spawn(feed.run(call.app.stopping.clone()));
    Ok(response)
}

/// `123.45`: where to go on with stdout and with stderr.
fn resume_from(text: &str) -> Option<[u64; 2]> {
    let (stdout, stderr) = text.split_once('.')?;
    Some([stdout.parse().ok()?, stderr.parse().ok()?])
}

struct Feed {
    follower: Follower,
    encoding: Encoding,
    cutters: [TextCutter; 2],
    /// What the reader has of each stream once it has read the event that is sent next.
    given: [Option<u64>; 2],
    events: mpsc::Sender<Bytes>,
}

impl Feed {
    async fn run(mut self, mut stopping: Stopping) {
        let mut heartbeat = heartbeat();
        loop {
            let next = tokio::select! {
                next = self.follower.next() => next,
                _ = heartbeat.tick() => {
                    if self.events.send(heartbeat_comment()).await.is_err() {
                        return;
                    }
                    continue;
                }
                () = self.events.closed() => return,
                () = stopping.begun() => return,
            };
            let sent = tokio::select! {
                sent = self.pass_on(next) => sent,
                () = stopping.begun() => return,
            };
            if !sent {
                return;
            }
        }
    }

    /// Whether there is more to come, and somebody to read it.
    async fn pass_on(&mut self, next: std::io::Result<Followed>) -> bool {
        match next {
            Ok(Followed::Output { stream, offset, data, missing }) => {
                self.output(stream, offset, &data, missing).await
            }
            Ok(Followed::Ended(process)) => {
                for stream in [OutputStream::Stdout, OutputStream::Stderr] {
                    if let Some(piece) = self.cutters[stream as usize].finish() {
                        self.text(stream, piece, 0).await;
                    }
                }
                self.send("exit", &process).await;
                false
            }
            Err(error) => {
                let problem = Problem::new(
                    workroom_types::ProblemCode::Internal,
                    format!("the output cannot be read: {error}"),
                    "",
                );
                self.send("error", &problem).await;
                false
            }
        }
    }

    async fn output(&mut self, stream: OutputStream, offset: u64, data: &[u8], missing: u64) -> bool {
        match self.encoding {
            Encoding::Base64 => {
                self.given[stream as usize] = Some(offset + data.len() as u64);
                let chunk =
                    ExecChunk { offset, data: STANDARD.encode(data), encoding: Encoding::Base64, missing };
                self.send(name(stream), &chunk).await
            }
            Encoding::Text => {
                let [torn, piece] = self.cutters[stream as usize].push(offset, data);
                if let Some(torn) = torn
                    && !self.text(stream, torn, 0).await
                {
                    return false;
                }
                let piece = piece.or_else(|| (missing > 0).then(|| Piece { offset, text: String::new() }));
                match piece {
                    Some(piece) => self.text(stream, piece, missing).await,
                    None => true,
                }
            }
        }
    }

    async fn text(&mut self, stream: OutputStream, piece: Piece, missing: u64) -> bool {
        self.given[stream as usize] = Some(self.cutters[stream as usize].place());
        let chunk = ExecChunk { offset: piece.offset, data: piece.text, encoding: Encoding::Text, missing };
        self.send(name(stream), &chunk).await
    }

    async fn send(&mut self, name: &str, data: &impl Serialize) -> bool {
        let [stdout, stderr] = self.given.map(|given| given.unwrap_or(0));
        self.events.send(sse::event_with(&format!("{stdout}.{stderr}"), name, data)).await.is_ok()
    }
}

fn name(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_a_place_in_both_streams() {
        assert_eq!(resume_from("12.0"), Some([12, 0]));
        for wrong in ["12", "", "a.b", "1.2.3", "-1.0"] {
            assert_eq!(resume_from(wrong), None, "{wrong}");
        }
    }
}
