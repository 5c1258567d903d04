//! `/v1/events` and `/v1/sessions/{id}/events`: journals, as history and as they grow.

use crate::app::Stopping;
use crate::call::{Call, accepts, allows};
use crate::idempotency::once;
use crate::openapi::{EventParams, SessionPath};
use crate::reply::{Answer, JSON, Reply};
use crate::sse::{self, EVENT_STREAM, event, heartbeat, heartbeat_comment};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::mpsc;
use workroom_types::{AppendEvent, JournalEntry, JournalPage, Problem, ProblemCode};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const MOST_ENTRIES: u32 = 1000;
const ENTRIES: u32 = 100;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    after: Option<i64>,
    limit: Option<u32>,
}

/// Read a session's journal
///
/// An event stream of what was and what comes, unless `Accept` asks for `application/json`: then one page of
/// what was. Events have the entry's `seq` as their id; a reader that comes back with `Last-Event-ID` misses
/// nothing.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/events",
    tag = "journal",
    operation_id = "session_events",
    params(SessionPath, EventParams),
    responses(
        (status = 200, description = "Entries, oldest first", content(
            (JournalPage = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 406, description = "The client takes neither"),
    ),
)]
pub(crate) async fn of_session(call: Call) -> Answer {
    let id = call.id().to_owned();
    read(call, Some(&id)).await
}

/// Read the journals of all sessions that the token may see
///
/// As for one session, but with the entry's `position` as its id.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "journal",
    operation_id = "all_events",
    params(EventParams),
    responses(
        (status = 200, description = "Entries, oldest first", content(
            (JournalPage = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 406, description = "The client takes neither"),
    ),
)]
pub(crate) async fn of_all(call: Call) -> Answer {
    read(call, None).await
}

async fn read(call: Call, session: Option<&str>) -> Answer {
    let query = call.query::<EventsQuery>()?;
    let after = start(call.headers(), query.after)?;
    let limit = query.limit.unwrap_or(ENTRIES);
    if !(1..=MOST_ENTRIES).contains(&limit) {
        return Err(Problem::invalid(
            format!("limit={limit} is outside 1 to {MOST_ENTRIES}"),
            "read the rest with `after` and the `next` of each page",
        )
        .into());
    }
    let streams = allows(call.headers(), EVENT_STREAM);
    if !streams && !allows(call.headers(), JSON) {
        return Err(Problem::new(
            ProblemCode::NotAcceptable,
            "a journal is an event stream or JSON, and the request accepts neither",
            "send `Accept: text/event-stream` or `Accept: application/json`",
        )
        .into());
    }
    if !streams || accepts(call.headers(), JSON) && !accepts(call.headers(), EVENT_STREAM) {
        let page = call.engine().history(&call.caller, session, after, limit).await?;
        return Ok(Reply::ok(&page)?.into_response());
    }
    let entries = call.engine().follow(&call.caller, session, after).await?;
    let (events, response) = sse::stream();
    let id_of = if session.is_some() {
        |entry: &JournalEntry| entry.seq
    } else {
        |entry: &JournalEntry| entry.position
    };
    tokio::spawn(pump(entries, id_of, events, call.app.stopping.clone()));
    Ok(response)
}

/// Where to begin: after the last event that the reader had, else after what it asked for, else at the beginning.
fn start(headers: &HeaderMap, after: Option<i64>) -> Result<i64, Problem> {
    let last = headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or("something unreadable"));
    let wrong = |what: &str, given: &str| {
        Problem::invalid(
            format!("{what} \"{given}\" is not the id of an event"),
            "give the id of the last event that was read, or 0",
        )
    };
    let after = after.unwrap_or(0);
    if after < 0 {
        return Err(wrong("after", &after.to_string()));
    }
    let Some(last) = last else { return Ok(after) };
    last.parse().ok().filter(|id| *id >= 0).ok_or_else(|| wrong("the Last-Event-ID", last))
}

async fn pump(
    mut entries: mpsc::Receiver<JournalEntry>,
    id_of: fn(&JournalEntry) -> i64,
    events: mpsc::Sender<Bytes>,
    mut stopping: Stopping,
) {
    let mut heartbeat = heartbeat();
    let feed = async {
        // At once, so that the reader knows that the stream is there, and how soon to come back when it breaks.
        let mut next = Some(Bytes::from_static(b"retry: 1000\n\n"));
        while let Some(bytes) = next {
            if events.send(bytes).await.is_err() {
                return;
            }
            next = tokio::select! {
                entry = entries.recv() => entry.map(|entry| event(Some(id_of(&entry)), None, &entry)),
                _ = heartbeat.tick() => Some(heartbeat_comment()),
                () = events.closed() => None,
            };
        }
    };
    tokio::select! {
        () = feed => {}
        () = stopping.begun() => {}
    }
}

/// Add an entry of one's own to a session's journal
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/events",
    tag = "journal",
    operation_id = "append_event",
    params(SessionPath),
    request_body(content = AppendEvent, example = json!({"kind": "transcript", "body": {"role": "user", "text": "hello"}})),
    responses((status = 201, description = "It is in the journal", body = JournalEntry)),
)]
pub(crate) async fn append(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.event;
    let (appended, body) = call.json::<AppendEvent>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            Reply::json(StatusCode::CREATED, &engine.append(caller, &id, appended, permit).await?)
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use http_body_util::BodyExt;
    use workroom_types::Timestamp;

    #[test]
    fn a_reader_that_comes_back_goes_on_after_its_last_event() {
        let back = HeaderMap::from_iter([(LAST_EVENT_ID, HeaderValue::from_static("41"))]);
        assert_eq!(start(&back, Some(3)).expect("a place"), 41);
        assert_eq!(start(&HeaderMap::new(), Some(3)).expect("a place"), 3);
        assert_eq!(start(&HeaderMap::new(), None).expect("a place"), 0);
        for wrong in ["", "x", "-1", "99999999999999999999"] {
            let headers = HeaderMap::from_iter([(LAST_EVENT_ID, HeaderValue::from_static(wrong))]);
            assert_eq!(start(&headers, None).expect_err(wrong).status, 400);
        }
        assert_eq!(start(&HeaderMap::new(), Some(-1)).expect_err("before all").status, 400);
    }

    fn entry(seq: i64) -> JournalEntry {
        JournalEntry {
            position: seq + 100,
            session: "s".into(),
            seq,
            at: Timestamp(0),
            actor: "server".into(),
            kind: "session.created".into(),
            body: serde_json::Value::Null,
            hash: String::new(),
        }
    }

    #[tokio::test]
    async fn entries_are_passed_on_until_there_are_no_more() {
        let (sender, entries) = mpsc::channel(4);
        let (events, response) = sse::stream();
        let (_stop, stopping) = Stopping::channel();
        for seq in 1..=2 {
            sender.try_send(entry(seq)).expect("there is room");
        }
        drop(sender);
        pump(entries, |entry| entry.position, events, stopping).await;
        let text = response.into_body().collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&text);
        let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
        assert_eq!(ids, ["101", "102"]);
    }

    #[tokio::test]
    async fn a_stream_ends_with_the_server_and_with_its_reader() {
        let (_sender, entries) = mpsc::channel(4);
        let (events, _response) = sse::stream();
        let (stop, stopping) = Stopping::channel();
        stop.send(true).expect("somebody listens");
        pump(entries, |entry| entry.seq, events, stopping).await;

        let (_sender, entries) = mpsc::channel(4);
        let (events, response) = sse::stream();
        let (_stop, stopping) = Stopping::channel();
        drop(response);
        pump(entries, |entry| entry.seq, events, stopping).await;
    }
}
