//! A stateful shell under test, in as few words as a test is read with.

use crate::session::TestSession;
use crate::wait::within;
use workroom_client::types::{CreateShell, RunInShell, Shell, ShellResult};

pub struct TestShell<'s> {
    pub id: String,
    session: &'s TestSession,
}

impl TestSession {
    /// A shell, said as the API has it.
    pub async fn shell(&self, request: serde_json::Value) -> TestShell<'_> {
        let request: CreateShell = serde_json::from_value(request).expect("a shell's fields");
        let made = within("a shell", self.client().create_shell(&self.id, &request)).await;
        TestShell { id: made.expect("a shell that runs").id, session: self }
    }

    /// One that is there.
    pub fn known_shell(&self, id: &str) -> TestShell<'_> {
        TestShell { id: id.to_owned(), session: self }
    }
}

impl TestShell<'_> {
    pub fn path(&self, rest: &str) -> String {
        self.session.path(&format!("/shells/{}{rest}", self.id))
    }

    pub async fn show(&self) -> Shell {
        within("the shell", self.session.client().shell(&self.session.id, &self.id)).await.expect("the shell")
    }

    pub async fn run(&self, command: &str) -> ShellResult {
        self.request(RunInShell { command: command.to_owned(), ..RunInShell::default() }).await
    }

    /// With so many milliseconds.
    pub async fn run_within(&self, timeout_ms: u64, command: &str) -> ShellResult {
        let request =
            RunInShell { command: command.to_owned(), timeout_ms: Some(timeout_ms), ..RunInShell::default() };
        self.request(request).await
    }

    pub async fn request(&self, request: RunInShell) -> ShellResult {
        let ran = self.session.client().run_in_shell(&self.session.id, &self.id, &request);
        let shown: String = request.command.chars().take(200).collect();
        within("a command of a shell", ran).await.unwrap_or_else(|error| panic!("{shown}: {error}"))
    }

    /// What a command that succeeds writes to stdout.
    pub async fn says(&self, command: &str) -> String {
        let result = self.run(command).await;
        assert_eq!((result.exit_code, result.stderr.as_str()), (0, ""), "{command}: {result:?}");
        result.output
    }
}
