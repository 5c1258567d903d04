//! What every verb that talks to a server shares: finding it, waiting for it, and saying what went wrong.

pub(crate) use crate::output::complain;

use crate::{EXIT_FAULT, output};
use serde_json::{Value, json};
use std::process::ExitCode;
use workroom_client::{Client, ClientError};
use workroom_types::{Problem, ProblemCode};

/// Why a verb did not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    Error(ClientError),
    /// Whoever read our output has gone: it has what it wanted.
    ReaderGone,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::Error(error)
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure::Error(problem.into())
    }
}

impl Failure {
    /// What the caller has to change.
    pub(crate) fn problem(detail: impl Into<String>, hint: impl Into<String>) -> Failure {
        Problem::invalid(detail, hint).into()
    }

    /// `{"code": …, "detail": …, "hint": …}`, and what else a problem of the server says.
    pub(crate) fn document(&self) -> Value {
        match self {
            Failure::ReaderGone => Value::Null,
            Failure::Error(error) => match error.problem() {
                Some(problem) => json!(problem),
                None => json!({"code": error.code(), "detail": error.to_string()}),
            },
        }
    }

    /// Says it once, where the caller looks for it; the verb ends with the status that comes back.
    pub(crate) fn report(&self, as_json: bool) -> ExitCode {
        match self {
            Failure::ReaderGone => return ExitCode::SUCCESS,
            Failure::Error(error) if as_json => {
                // A stdout that takes nothing is itself what has to be said.
                if let Err(Failure::Error(_)) = output::json(&json!({"error": self.document()})) {
                    complain(&error.to_string());
                }
            }
            Failure::Error(error) => complain(&error.to_string()),
        }
        ExitCode::from(self.status())
    }

    /// As a shell has it: 127 for a command that is not there, 126 for one that cannot be executed.
    fn status(&self) -> u8 {
        let Failure::Error(error) = self else { return 0 };
        match error.problem().map(|problem| problem.code) {
            Some(ProblemCode::CommandNotFound) => 127,
            Some(ProblemCode::CommandNotExecutable) => 126,
            _ => EXIT_FAULT,
        }
    }
}

/// Finds the server and does the work with it, in one thread.
pub(crate) fn perform(
    as_json: bool,
    work: impl AsyncFnOnce(Client) -> Result<ExitCode, Failure>,
) -> ExitCode {
    let outcome = Client::discover().map_err(Failure::from).and_then(|client| block_on(work(client)));
    outcome.unwrap_or_else(|failure| failure.report(as_json))
}

/// Waits for work that may be asynchronous, in this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .map_err(|error| {
            Failure::problem(format!("this process cannot wait for a server: {error}"), "raise its limits")
        })?
        .block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_document_with_a_code_and_a_status() {
        let gone: Failure = ClientError::NotRunning { place: "unix:/x".into() }.into();
        assert_eq!(gone.document()["code"], "not_running");
        assert!(gone.document()["detail"].as_str().unwrap().contains("workroom serve"));
        assert_eq!(gone.status(), EXIT_FAULT);

        let missing: Failure = Problem::new(ProblemCode::CommandNotFound, "no such program", "").into();
        assert_eq!((missing.document()["code"].as_str(), missing.status()), (Some("command_not_found"), 127));
    }
}
