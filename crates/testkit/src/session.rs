//! A session under test, in as few words as a test is read with.

use crate::wait::{PATIENCE, within};
use workroom_client::{Client, ClientError};
use workroom_types::{
    Encoding, ExecRequest, ExecResult, JournalEntry, Problem, Session, SessionState, UpdateSession,
};

#[derive(Debug, Clone)]
pub struct TestSession {
    pub id: String,
    client: Client,
}

/// What was refused, and why.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Problem {
    let error = answer.expect_err("refused");
    error.problem().unwrap_or_else(|| panic!("no problem of the server: {error}")).clone()
}

impl TestSession {
    pub fn new(client: Client, id: String) -> TestSession {
        TestSession { id, client }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// `/v1/sessions/ID` and what follows.
    pub fn path(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", self.id)
    }

    pub async fn show(&self) -> Session {
        within("the session", self.client.session(&self.id)).await.expect("the session")
    }

    pub async fn state(&self) -> SessionState {
        self.show().await.state
    }

    pub async fn exec(&self, request: ExecRequest) -> ExecResult {
        within("a command", self.client.exec(&self.id, &request)).await.expect("a command that ran")
    }

    pub async fn sh(&self, command: &str) -> ExecResult {
        self.exec(ExecRequest { command: Some(command.into()), ..ExecRequest::default() }).await
    }

    /// A command, said as the API has it.
    pub async fn run(&self, request: serde_json::Value) -> ExecResult {
        self.exec(serde_json::from_value(request).expect("a command's fields")).await
    }

    /// What a command says that must succeed and complain of nothing.
    pub async fn says(&self, command: &str) -> String {
        let result = self.sh(command).await;
        assert!(result.exit_code == 0 && result.stderr.is_empty(), "{command}: {result:?}");
        assert!(result.encoding == Encoding::Text && !result.truncated && !result.lossy, "{result:?}");
        result.stdout
    }

    /// Why a command is not run.
    pub async fn refuses(&self, request: ExecRequest) -> Problem {
        refused(within("an answer", self.client.exec(&self.id, &request)).await)
    }

    pub async fn start(&self) -> Session {
        within("a start", self.client.start(&self.id)).await.expect("started")
    }

    pub async fn stop(&self) -> Session {
        within("a stop", self.client.stop(&self.id)).await.expect("stopped")
    }

    pub async fn pause(&self) -> Session {
        within("a pause", self.client.pause(&self.id)).await.expect("paused")
    }

    pub async fn resume(&self) -> Session {
        within("a resume", self.client.resume(&self.id)).await.expect("resumed")
    }

    pub async fn update(&self, change: UpdateSession) -> Session {
        within("an update", self.client.update(&self.id, &change)).await.expect("updated")
    }

    pub async fn delete(&self) {
        within("a deletion", self.client.delete(&self.id)).await.expect("deleted");
    }

    /// All that its journal holds.
    pub async fn journal(&self) -> Vec<JournalEntry> {
        let mut entries = Vec::new();
        loop {
            let after = entries.last().map_or(0, |entry: &JournalEntry| entry.seq);
            let page = within("a page", self.client.history(Some(&self.id), after, 1000)).await;
            let page = page.expect("a page");
            if page.entries.is_empty() {
                return entries;
            }
            entries.extend(page.entries);
        }
    }

    /// Waits for the journal to say something of this kind, now or before.
    pub async fn event(&self, kind: &str) -> JournalEntry {
        let mut events = self.client.follow(Some(&self.id), 0);
        let found = tokio::time::timeout(PATIENCE, async {
            while let Some(entry) = events.next().await.expect("an event") {
                if entry.kind == kind {
                    return Some(entry);
                }
            }
            None
        });
        match found.await {
            Ok(Some(entry)) => entry,
            Ok(None) => panic!("the journal ended without {kind}"),
            Err(_) => panic!("no {kind} in {PATIENCE:?}: {:?}", self.journal().await),
        }
    }
}
