//! A terminal under test: typed into and looked at, as a person does it.

use crate::session::TestSession;
use crate::wait::{PATIENCE, within};
use serde_json::{Value, json};
use workroom_client::ScreenOptions;
use workroom_client::types::{
    Awaited, OpenTerminal, PlainPage, Process, TerminalClosed, TerminalInput, TerminalScreen, TerminalWaited,
    WaitForTerminal,
};

pub struct TestTerminal<'s> {
    /// Its id, or its name.
    pub id: String,
    session: &'s TestSession,
}

impl TestSession {
    /// A terminal, said as the API has it.
    pub async fn terminal(&self, request: Value) -> TestTerminal<'_> {
        let request: OpenTerminal = serde_json::from_value(request).expect("a terminal's fields");
        let opened = within("a terminal", self.client().open_terminal(&self.id, &request)).await;
        TestTerminal { id: opened.expect("a terminal that is open").id, session: self }
    }

    /// One that is there, by its id or its name.
    pub fn known_terminal(&self, id: &str) -> TestTerminal<'_> {
        TestTerminal { id: id.to_owned(), session: self }
    }
}

impl TestTerminal<'_> {
    pub fn path(&self, rest: &str) -> String {
        self.session.path(&format!("/terminals/{}{rest}", self.id))
    }

    pub async fn show(&self) -> Process {
        within("the terminal", self.session.client().terminal(&self.session.id, &self.id))
            .await
            .expect("the terminal")
    }

    async fn input(&self, input: Value) {
        let input: TerminalInput = serde_json::from_value(input).expect("input");
        let typed = self.session.client().type_into_terminal(&self.session.id, &self.id, &input);
        let taken = within("input", typed).await.expect("input that is taken");
        assert!(taken.complete, "{taken:?}");
    }

    /// Types a line, and Enter.
    pub async fn types(&self, line: &str) {
        self.input(json!({ "text": line })).await;
    }

    pub async fn pastes(&self, text: &str) {
        self.input(json!({ "paste": text })).await;
    }

    /// Presses keys, by their names; `{"text": …}` is typed.
    pub async fn presses(&self, keys: Value) {
        self.input(json!({ "keys": keys })).await;
    }

    pub async fn screen(&self) -> TerminalScreen {
        self.screen_with(ScreenOptions::default()).await
    }

    pub async fn screen_with(&self, options: ScreenOptions) -> TerminalScreen {
        within("the screen", self.session.client().screen(&self.session.id, &self.id, options))
            .await
            .expect("a screen")
    }

    /// What happened first of what is waited for; said as the API has it.
    pub async fn waits(&self, request: Value) -> TerminalWaited {
        let mut request: WaitForTerminal = serde_json::from_value(request).expect("something to wait for");
        request.timeout_ms = request.timeout_ms.or(Some(PATIENCE.as_millis() as u64 / 2));
        within(
            "what is waited for",
            self.session.client().wait_for_terminal(&self.session.id, &self.id, &request),
        )
        .await
        .expect("an answer")
    }

    /// The screen as soon as this is on it, or was.
    pub async fn shows(&self, text: &str) -> TerminalScreen {
        let waited = self.waits(json!({ "text": text })).await;
        assert_eq!(waited.matched, Some(Awaited::Text), "{text:?} on {:#?}", waited.screen.text);
        waited.screen
    }

    /// The screen as soon as this matches.
    pub async fn matches(&self, regex: &str) -> TerminalScreen {
        let waited = self.waits(json!({ "regex": regex })).await;
        assert_eq!(waited.matched, Some(Awaited::Regex), "{regex:?} on {:#?}", waited.screen.text);
        waited.screen
    }

    /// All of its output as plain text, page by page.
    pub async fn plain(&self) -> PlainPage {
        let mut all = PlainPage::default();
        loop {
            let ids = (&self.session.id, &self.id);
            let read = self.session.client().terminal_text(ids.0, ids.1, all.next_cursor);
            let page = within("plain text", read).await.expect("a page");
            all.text.push_str(&page.text);
            let is_last = page.end || page.next_cursor == all.next_cursor;
            (all.next_cursor, all.unfinished, all.end) = (page.next_cursor, page.unfinished, page.end);
            if is_last {
                return all;
            }
        }
    }

    pub async fn resize(&self, cols: u16, rows: u16) {
        let size = workroom_client::types::PtySize { cols: Some(cols), rows: Some(rows) };
        let resized = self.session.client().resize_terminal(&self.session.id, &self.id, size);
        within("a resize", resized).await.expect("another size");
    }

    pub async fn close(&self, grace_ms: Option<u64>) -> TerminalClosed {
        within("its end", self.session.client().close_terminal(&self.session.id, &self.id, grace_ms))
            .await
            .expect("closed")
            .expect("it was there")
    }
}
