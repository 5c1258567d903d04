//! Sessions: made, found, listed, changed, started, stopped, deleted.

use crate::call::{Call, Client};
use crate::processes::ASK_AGAIN;
use crate::url::{query, segment};
use crate::{ClientError, types};
use hyper::{Method, StatusCode};
use serde::Serialize;
use std::time::Duration;
use types::{CreateSession, ListSessions, ResolveSession, Resolved, Session, SessionPage, UpdateSession};

/// What is wanted of a session's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Start,
    Stop,
    Pause,
    Resume,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Start => "start",
            Action::Stop => "stop",
            Action::Pause => "pause",
            Action::Resume => "resume",
        }
    }
}

pub(crate) fn session_path(id: &str) -> String {
    format!("/v1/sessions/{}", segment(id))
}

#[derive(Serialize)]
struct Wait {
    wait: Option<u64>,
}

/// Whole seconds, a started one counted.
fn wait_query(wait: Option<Duration>) -> String {
    let seconds = wait.map(|wait| wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
    query(&Wait { wait: seconds })
}

impl Client {
    /// The session, and whether it was made now or was there under its key. `wait`: how long to queue when a
    /// quota is reached; without, that is refused at once.
    pub async fn create(
        &self,
        request: &CreateSession,
        wait: Option<Duration>,
    ) -> Result<(Session, bool), ClientError> {
        let call = Call::post(format!("/v1/sessions{}", wait_query(wait)))?.json(request)?;
        let answer = self.answer(&call).await?;
        let session = crate::call::decode("POST /v1/sessions", &answer.body)?;
        Ok((session, answer.status == StatusCode::CREATED))
    }

    /// Finds the session of a chat's place, or makes it.
    pub async fn resolve(&self, request: &ResolveSession) -> Result<Resolved, ClientError> {
        self.value(&Call::post("/v1/sessions/resolve")?.json(request)?).await
    }

    pub async fn session(&self, id: &str) -> Result<Session, ClientError> {
        self.value(&Call::get(session_path(id))).await
    }

    /// One page, newest first.
    pub async fn list(&self, filter: &ListSessions) -> Result<SessionPage, ClientError> {
        // Whoever wants to run a command by a session's name begins with this.
        self.value(&Call::get(format!("/v1/sessions{}", query(filter))).patient(ASK_AGAIN)).await
    }

    pub async fn update(&self, id: &str, change: &UpdateSession) -> Result<Session, ClientError> {
        self.value(&Call::mutating(Method::PATCH, session_path(id))?.json(change)?).await
    }

    /// Deleting what is gone succeeds.
    pub async fn delete(&self, id: &str) -> Result<(), ClientError> {
        self.answer(&Call::mutating(Method::DELETE, session_path(id))?).await.map(drop)
    }

    /// `wait`: as for [`Client::create`], for what needs a room.
    pub async fn act(
        &self,
        id: &str,
        action: Action,
        wait: Option<Duration>,
    ) -> Result<Session, ClientError> {
        let path = format!("{}/{}{}", session_path(id), action.as_str(), wait_query(wait));
        self.value(&Call::post(path)?).await
    }

    pub async fn start(&self, id: &str) -> Result<Session, ClientError> {
        self.act(id, Action::Start, None).await
    }

    pub async fn stop(&self, id: &str) -> Result<Session, ClientError> {
        self.act(id, Action::Stop, None).await
    }

    pub async fn pause(&self, id: &str) -> Result<Session, ClientError> {
        self.act(id, Action::Pause, None).await
    }

    pub async fn resume(&self, id: &str) -> Result<Session, ClientError> {
        self.act(id, Action::Resume, None).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_asked_for_in_whole_seconds() {
        assert_eq!(wait_query(None), "");
        assert_eq!(wait_query(Some(Duration::from_millis(1500))), "?wait=2");
        assert_eq!(wait_query(Some(Duration::from_secs(30))), "?wait=30");
    }
}
