//! Event streams: how events are written, and the body that carries them.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use serde::Serialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};

pub(crate) const EVENT_STREAM: &str = "text/event-stream";

/// Events that wait for a slow reader; then the source waits, and what it drops it counts.
const QUEUED: usize = 16;

/// A body whose pieces come through a channel; it ends when the sender is dropped.
pub(crate) struct ChannelBody {
    pieces: mpsc::Receiver<Bytes>,
}

impl ChannelBody {
    pub(crate) fn new(pieces: mpsc::Receiver<Bytes>) -> ChannelBody {
        ChannelBody { pieces }
    }
}

impl hyper::body::Body for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// The two ends of an event stream.
pub(crate) fn stream() -> (mpsc::Sender<Bytes>, Response) {
    let (sender, receiver) = mpsc::channel(QUEUED);
    let mut response = Response::new(Body::new(ChannelBody::new(receiver)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A proxy that gathers output would hold events back.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    (sender, response)
}

/// Ticks when a comment is due, so that neither end takes silence for a lost connection.
pub(crate) fn heartbeat() -> Interval {
    const PERIOD: Duration = Duration::from_secs(15);
    let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + PERIOD, PERIOD);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

pub(crate) fn heartbeat_comment() -> Bytes {
    Bytes::from_static(b": heartbeat\n\n")
}

pub(crate) fn event(id: Option<i64>, name: Option<&str>, data: &impl Serialize) -> Bytes {
    write(id.map(|id| id.to_string()).as_deref(), name, data)
}

/// With an id that is no number.
pub(crate) fn event_with(id: &str, name: &str, data: &impl Serialize) -> Bytes {
    write(Some(id), Some(name), data)
}

/// JSON has no line breaks, so every event is one `data` line.
fn write(id: Option<&str>, name: Option<&str>, data: &impl Serialize) -> Bytes {
    let mut text = Vec::with_capacity(256);
    if let Some(id) = id {
        text.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    if let Some(name) = name {
        text.extend_from_slice(format!("event: {name}\n").as_bytes());
    }
    text.extend_from_slice(b"data: ");
    if let Err(error) = serde_json::to_writer(&mut text, data) {
        tracing::warn!(%error, "an event could not be written as JSON");
    }
    text.extend_from_slice(b"\n\n");
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_block_whatever_its_data_holds() {
        assert_eq!(
            event(Some(7), Some("stdout"), &"a\nb\r\n\n"),
            "id: 7\nevent: stdout\ndata: \"a\\nb\\r\\n\\n\"\n\n"
        );
        assert_eq!(event(None, None, &1), "data: 1\n\n");
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_sender() {
        use http_body_util::BodyExt;
        let (sender, response) = stream();
        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
        sender.send(event(None, None, &1)).await.expect("somebody listens");
        drop(sender);
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(body, "data: 1\n\n");
    }
}
