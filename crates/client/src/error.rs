//! Why a call brought no answer that could be used.

use workroom_types::Problem;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server says why not, and what to do.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// Nobody listens.
    #[error(
        "no server is running at {place}; start one with `workroom serve`, or set WORKROOM_URL or WORKROOM_STATE \
         to where it is"
    )]
    NotRunning { place: String },
    /// The connection could not be made, or broke before the answer was whole.
    #[error("{0}")]
    Transport(String),
    /// What came back is not what this client understands.
    #[error("{0}")]
    Protocol(String),
}

impl ClientError {
    /// A stable word that programs may match on: the problem's own code, or one of ours.
    pub fn code(&self) -> String {
        match self {
            ClientError::Problem(problem) => serde_json::to_value(problem.code)
                .ok()
                .and_then(|code| code.as_str().map(str::to_owned))
                .unwrap_or_default(),
            ClientError::NotRunning { .. } => "not_running".into(),
            ClientError::Transport(_) => "transport".into(),
            ClientError::Protocol(_) => "protocol".into(),
        }
    }

    pub fn problem(&self) -> Option<&Problem> {
        match self {
            ClientError::Problem(problem) => Some(problem),
            _ => None,
        }
    }
}

impl From<Problem> for ClientError {
    fn from(problem: Problem) -> ClientError {
        ClientError::Problem(Box::new(problem))
    }
}
