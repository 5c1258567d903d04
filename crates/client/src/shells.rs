//! Stateful shells of a session: made, given commands, removed.

use crate::ClientError;
use crate::call::{Call, Client};
use crate::exec::GOES_ON;
use crate::sessions::session_path;
use crate::types::{CreateShell, Encoding, RunInShell, Shell, ShellList, ShellResult};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::Method;

fn shell_path(session: &str, shell: &str) -> String {
    format!("{}/shells/{shell}", session_path(session))
}

impl Client {
    pub async fn create_shell(&self, id: &str, request: &CreateShell) -> Result<Shell, ClientError> {
        self.value(&Call::post(format!("{}/shells", session_path(id)))?.json(request)?).await
    }

    pub async fn shells(&self, id: &str) -> Result<ShellList, ClientError> {
        self.value(&Call::get(format!("{}/shells", session_path(id)))).await
    }

    /// By its id or its name.
    pub async fn shell(&self, id: &str, shell: &str) -> Result<Shell, ClientError> {
        self.value(&Call::get(shell_path(id, shell))).await
    }

    /// Ends it, with everything that was started in it.
    pub async fn remove_shell(&self, id: &str, shell: &str) -> Result<(), ClientError> {
        self.answer(&Call::mutating(Method::DELETE, shell_path(id, shell))?).await.map(|_| ())
    }

    /// Gives a shell a command and waits for its end. The shell `default` is made by its first command.
    pub async fn run_in_shell(
        &self,
        id: &str,
        shell: &str,
        request: &RunInShell,
    ) -> Result<ShellResult, ClientError> {
        let call = Call::post(format!("{}/run", shell_path(id, shell)))?.json(request)?;
        self.value(&call.patient(GOES_ON)).await
    }

    /// The same, with every byte of stdout and stderr.
    pub async fn run_in_shell_bytes(
        &self,
        id: &str,
        shell: &str,
        request: &RunInShell,
    ) -> Result<(ShellResult, [Vec<u8>; 2]), ClientError> {
        let request = RunInShell { encoding: Some(Encoding::Base64), ..request.clone() };
        let result = self.run_in_shell(id, shell, &request).await?;
        let bytes = |text: &str| {
            BASE64.decode(text).map_err(|error| {
                ClientError::Protocol(format!("the command's output is not base64: {error}"))
            })
        };
        let streams = [bytes(&result.output)?, bytes(&result.stderr)?];
        Ok((result, streams))
    }
}
