//! `/v1/sessions/{id}/watch`: what happens to files, as it happens.

use crate::app::Stopping;
use crate::call::{Call, accepts, allows};
use crate::openapi::{SessionPath, WatchParams};
use crate::reply::{Answer, JSON};
use crate::sse::{self, EVENT_STREAM, event, heartbeat, heartbeat_comment};
use axum::http::HeaderName;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use workroom_types::{FilePath, Problem, ProblemCode, WatchEvent, WatchKind};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WatchQuery {
    path: String,
    recursive: bool,
    root: bool,
}

/// Watch files
///
/// Events `created`, `modified`, `deleted`, `renamed` and `overflow` (WatchEvent), with `seq` as their id. After an
/// `overflow` events are missing. What happens between two watches is not kept: a reader that comes back with
/// `Last-Event-ID` is told `overflow` first. The last event, when the room ends, is `gone`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/watch",
    tag = "files",
    operation_id = "watch_files",
    params(SessionPath, WatchParams),
    responses(
        (status = 200, description = "Events from now on", body = String, content_type = "text/event-stream"),
        (status = 406, description = "The client takes no event stream"),
        (status = 409, description = "The session is paused"),
        (status = 410, description = "The room ended meanwhile"),
        (status = 422, description = "A required layer cannot be had here"),
    ),
)]
pub(crate) async fn watch(call: Call) -> Answer {
    let WatchQuery { path, recursive, root } = call.query()?;
    let only_json = accepts(call.headers(), JSON) && !accepts(call.headers(), EVENT_STREAM);
    if only_json || !allows(call.headers(), EVENT_STREAM) {
        return Err(Problem::new(
            ProblemCode::NotAcceptable,
            "a watch is an event stream, and the request accepts none",
            "send `Accept: text/event-stream`",
        )
        .into());
    }
    let files = call.engine().files(&call.caller, call.id());
    let events = files.watch(FilePath { path, root }, recursive).await?;
    let (stream, response) = sse::stream();
    let is_back = call.headers().contains_key(LAST_EVENT_ID);
    tokio::spawn(pump(events, is_back, stream, call.app.stopping.clone()));
    Ok(response)
}

fn name(kind: WatchKind) -> &'static str {
    match kind {
        WatchKind::Created => "created",
        WatchKind::Modified => "modified",
        WatchKind::Deleted => "deleted",
        WatchKind::Renamed => "renamed",
        WatchKind::Overflow => "overflow",
    }
}

async fn pump(
    mut events: mpsc::Receiver<WatchEvent>,
    is_back: bool,
    stream: mpsc::Sender<Bytes>,
    mut stopping: Stopping,
) {
    let mut heartbeat = heartbeat();
    let feed = async {
        // At once, so that the reader knows that from here on nothing is missed.
        let mut next = Some(Bytes::from_static(b"retry: 1000\n\n"));
        if is_back {
            let missed = WatchEvent {
                seq: 0,
                kind: WatchKind::Overflow,
                path: String::new(),
                from: None,
                directory: false,
            };
            if stream.send(event(None, Some("overflow"), &missed)).await.is_err() {
                return;
            }
        }
        while let Some(bytes) = next {
            if stream.send(bytes).await.is_err() {
                return;
            }
            next = tokio::select! {
                seen = events.recv() => match seen {
                    Some(seen) => {
                        Some(event(i64::try_from(seen.seq).ok(), Some(name(seen.kind)), &seen))
                    }
                    None => {
                        let _ = stream.send(event(None, Some("gone"), &json!({"reason": "the room ended"}))).await;
                        None
                    }
                },
                _ = heartbeat.tick() => Some(heartbeat_comment()),
                () = stream.closed() => None,
            };
        }
    };
    tokio::select! {
        () = feed => {}
        () = stopping.begun() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn told(is_back: bool) -> String {
        let (sender, events) = mpsc::channel(4);
        let (stream, response) = sse::stream();
        let (_stop, stopping) = Stopping::channel();
        let made =
            WatchEvent { seq: 1, kind: WatchKind::Created, path: "a".into(), from: None, directory: false };
        sender.try_send(made).expect("there is room");
        drop(sender);
        pump(events, is_back, stream, stopping).await;
        let text = response.into_body().collect().await.expect("a body").to_bytes();
        String::from_utf8_lossy(&text).into_owned()
    }

    #[tokio::test]
    async fn a_watch_ends_with_its_room_and_says_so() {
        let text = told(false).await;
        assert!(text.contains("id: 1\nevent: created\ndata: {\"seq\":1,"), "{text}");
        assert!(text.contains("event: gone\n") && !text.contains("overflow"), "{text}");
    }

    #[tokio::test]
    async fn who_comes_back_is_told_that_events_are_missing() {
        let text = told(true).await;
        assert!(text.find("event: overflow").expect("said") < text.find("event: created").expect("said"));
    }
}
