//! The journal: pages of what happened, and a stream of what happens that survives broken connections.

use crate::call::{Call, Client, EVENT_STREAM, decode};
use crate::sessions::session_path;
use crate::sse::{SseBody, StreamEnd};
use crate::url::query;
use crate::{ClientError, types};
use serde::Serialize;
use std::time::Duration;
use types::{AppendEvent, JournalEntry, JournalPage, Problem, ProblemCode};

/// Several heartbeats of the server.
pub(crate) const SILENCE: Duration = Duration::from_secs(90);
/// How long a stream waits for a server that went away to come back.
const PATIENCE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Page {
    after: i64,
    limit: u32,
}

/// Entries as they are made, of one session or of all that the token may see.
///
/// When the connection breaks it is made again, and the stream goes on behind the last entry that was given.
pub struct EventStream {
    client: Client,
    path: String,
    one_session: bool,
    /// The place of the last entry that was given: its `seq` in one session, its `position` among all.
    after: i64,
    body: Option<SseBody>,
    /// Whether the server has ever answered: what is gone after that has ended, what was never there is an error.
    seen: bool,
}

fn events_path(session: Option<&str>) -> String {
    session.map_or("/v1/events".into(), |id| format!("{}/events", session_path(id)))
}

impl Client {
    /// Entries after a place: by `seq` in one session, by `position` among all that the token may see.
    pub async fn history(
        &self,
        session: Option<&str>,
        after: i64,
        limit: u32,
    ) -> Result<JournalPage, ClientError> {
        self.value(&Call::get(format!("{}{}", events_path(session), query(&Page { after, limit })))).await
    }

    /// Entries after a place, then those to come.
    pub fn follow(&self, session: Option<&str>, after: i64) -> EventStream {
        EventStream {
            client: self.clone(),
            path: events_path(session),
            one_session: session.is_some(),
            after,
            body: None,
            seen: false,
        }
    }

    /// Adds an entry of the caller's own.
    pub async fn append(&self, id: &str, event: &AppendEvent) -> Result<JournalEntry, ClientError> {
        self.value(&Call::post(events_path(Some(id)))?.json(event)?).await
    }
}

impl EventStream {
    /// The next entry. Nothing when the session is gone.
    pub async fn next(&mut self) -> Result<Option<JournalEntry>, ClientError> {
        loop {
            let body = match &mut self.body {
                Some(body) => body,
                None => match self.reopen().await? {
                    Some(body) => self.body.insert(body),
                    None => return Ok(None),
                },
            };
            let event = match body.next().await {
                Ok(event) => event,
                Err(StreamEnd::Failed(error)) => return Err(error),
                Err(StreamEnd::Over | StreamEnd::Broke(_)) => {
                    self.body = None;
                    continue;
                }
            };
            if event.event == "error" {
                return Err(decode::<Problem>("the events", event.data.as_bytes())?.into());
            }
            // What a newer server also says has no entry in it.
            let Ok(entry) = serde_json::from_str::<JournalEntry>(&event.data) else { continue };
            let place = if self.one_session { entry.seq } else { entry.position };
            // An entry that was given before the connection broke is not given again.
            if place > self.after {
                self.after = place;
                return Ok(Some(entry));
            }
        }
    }

    /// The stream behind the last entry; nothing when what it told of is gone.
    async fn reopen(&mut self) -> Result<Option<SseBody>, ClientError> {
        let mut call = Call::get(self.path.clone()).accept(EVENT_STREAM);
        call.last_event_id = Some(self.after);
        if !self.seen {
            let body = SseBody::open(&self.client, &call, Some(SILENCE)).await?;
            self.seen = true;
            return Ok(Some(body));
        }
        let since = std::time::Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            // Also before the first try: a server that ends every stream at once is not asked in a tight loop.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match SseBody::open(&self.client, &call, Some(SILENCE)).await {
                Ok(body) => return Ok(Some(body)),
                Err(error) => match error.problem().map(|problem| problem.code) {
                    Some(ProblemCode::NotFound) => return Ok(None),
                    Some(ProblemCode::ShuttingDown | ProblemCode::StorageUnavailable) | None
                        if since.elapsed() < PATIENCE => {}
                    _ => return Err(error),
                },
            }
        }
    }
}
