//! Terminals of a session: opened, typed into, looked at, waited for, closed.

use crate::call::{Call, Client, decode};
use crate::sessions::session_path;
use crate::{ClientError, types};
use hyper::{Method, StatusCode};
use types::{
    InputTaken, OpenTerminal, PlainPage, Process, PtySize, SendSignal, TerminalClosed, TerminalInput,
    TerminalList, TerminalScreen, TerminalWaited, WaitForTerminal,
};

/// What of a screen is wanted beside its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScreenOptions {
    /// Rows that have scrolled off the top, the last ones.
    pub scrollback: u32,
    /// Colours and attributes.
    pub attributes: bool,
}

/// By its id or its name.
fn terminal_path(session: &str, terminal: &str, rest: &str) -> String {
    format!("{}/terminals/{}{rest}", session_path(session), crate::url::segment(terminal))
}

impl Client {
    pub async fn open_terminal(&self, id: &str, request: &OpenTerminal) -> Result<Process, ClientError> {
        self.value(&Call::post(format!("{}/terminals", session_path(id)))?.json(request)?).await
    }

    /// The newest first.
    pub async fn terminals(&self, id: &str) -> Result<TerminalList, ClientError> {
        self.value(&Call::get(format!("{}/terminals", session_path(id)))).await
    }

    pub async fn terminal(&self, id: &str, terminal: &str) -> Result<Process, ClientError> {
        self.value(&Call::get(terminal_path(id, terminal, ""))).await
    }

    pub async fn type_into_terminal(
        &self,
        id: &str,
        terminal: &str,
        input: &TerminalInput,
    ) -> Result<InputTaken, ClientError> {
        self.value(&Call::post(terminal_path(id, terminal, "/input"))?.json(input)?).await
    }

    /// A page of plain text from this byte of output on.
    pub async fn terminal_text(
        &self,
        id: &str,
        terminal: &str,
        cursor: u64,
    ) -> Result<PlainPage, ClientError> {
        let path = terminal_path(id, terminal, &format!("/plain?cursor={cursor}"));
        self.value(&Call::get(path)).await
    }

    pub async fn screen(
        &self,
        id: &str,
        terminal: &str,
        options: ScreenOptions,
    ) -> Result<TerminalScreen, ClientError> {
        let ScreenOptions { scrollback, attributes } = options;
        let query = format!("/screen?scrollback={scrollback}&attributes={attributes}");
        self.value(&Call::get(terminal_path(id, terminal, &query))).await
    }

    pub async fn wait_for_terminal(
        &self,
        id: &str,
        terminal: &str,
        request: &WaitForTerminal,
    ) -> Result<TerminalWaited, ClientError> {
        self.value(&Call::post(terminal_path(id, terminal, "/wait"))?.json(request)?).await
    }

    pub async fn resize_terminal(
        &self,
        id: &str,
        terminal: &str,
        size: PtySize,
    ) -> Result<Process, ClientError> {
        self.value(&Call::post(terminal_path(id, terminal, "/resize"))?.json(&size)?).await
    }

    pub async fn signal_terminal(
        &self,
        id: &str,
        terminal: &str,
        signal: &SendSignal,
    ) -> Result<(), ClientError> {
        let call = Call::post(terminal_path(id, terminal, "/signal"))?.json(signal)?;
        self.answer(&call).await.map(|_| ())
    }

    /// Ends its shell: after so many milliseconds by force, 5000 unless told. `None` if there is no such terminal.
    pub async fn close_terminal(
        &self,
        id: &str,
        terminal: &str,
        grace_ms: Option<u64>,
    ) -> Result<Option<TerminalClosed>, ClientError> {
        let query = grace_ms.map_or(String::new(), |grace| format!("?grace_ms={grace}"));
        let call = Call::mutating(Method::DELETE, terminal_path(id, terminal, &query))?;
        let answer = self.answer(&call).await?;
        let is_there = answer.status != StatusCode::NO_CONTENT;
        is_there.then(|| decode(&call.name(), &answer.body)).transpose()
    }
}
