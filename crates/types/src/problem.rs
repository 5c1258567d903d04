//! What a call answers when it cannot do what it was asked: RFC 9457, with stable codes.

use crate::{ErrorCode, RoomError, SessionState};
use serde::{Deserialize, Serialize};

/// Stable, snake_case codes that programs may match on. Never renamed, only added to, at the end: rooms send their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// Malformed or impossible: the caller's to change.
    InvalidArgument,
    /// No token, or none that is known here.
    Unauthorized,
    /// The token is known and may not do this.
    Forbidden,
    /// There is no such thing that this caller may see.
    NotFound,
    MethodNotAllowed,
    /// Not in the state that it is in.
    WrongState,
    /// The same idempotency key came with another request.
    IdempotencyMismatch,
    /// A request under this key was under way when the server ended, and its outcome is not known.
    OutcomeUnknown,
    BodyTooLarge,
    UnsupportedMediaType,
    /// A path of a room that leaves the workspace.
    PathOutsideWorkspace,
    /// What is to be made is there.
    AlreadyExists,
    /// It is a directory, and a file was meant; or the other way round; or it is neither.
    WrongKind,
    /// It is not as the caller knew it.
    PreconditionFailed,
    RangeNotSatisfiable,
    /// Too large for an answer in one piece.
    FileTooLarge,
    /// What an edit is to replace is not there, or is there more than once.
    EditMismatch,
    /// A hunk of a patch has no place; `report` says which and where it nearly has.
    PatchFailed,
    /// An archive holds what is not taken in, or is broken; nothing of it was kept.
    ArchiveRefused,
    /// Two sides have changed the same; `report` says what.
    MergeConflict,
    /// Processes run that would have to end for this.
    Busy,
    /// A quota or a rate; `limit` names it.
    LimitExceeded,
    /// The room ended while something was still asked of it.
    RoomGone,
    /// A layer that the policy requires cannot be had on this machine.
    LayerMissing,
    /// The kernel refused a step of building the room.
    RoomSetup,
    CommandNotFound,
    CommandNotExecutable,
    /// The disk is full or failing; nothing was changed.
    StorageUnavailable,
    /// The server is on its way down.
    ShuttingDown,
    Internal,
    /// The answer has none of the forms that the caller takes.
    NotAcceptable,
    /// Nobody in the room takes connections on that port.
    NothingListens,
    /// A directory of the host is not given to the session, and so none is; `report` says which and why.
    MountDenied,
    /// A filter of the operator's is against it; `hint` is the operator's reason.
    Filtered,
    /// A secret that is named is not there.
    SecretNotFound,
    /// The master key cannot be had, or a secret does not open.
    SecretsUnavailable,
}

impl ProblemCode {
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidArgument | Self::CommandNotFound | Self::CommandNotExecutable => 400,
            Self::SecretNotFound => 400,
            Self::Unauthorized => 401,
            Self::Forbidden | Self::MountDenied | Self::Filtered => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::PathOutsideWorkspace => 400,
            Self::WrongState | Self::OutcomeUnknown => 409,
            Self::AlreadyExists | Self::WrongKind | Self::EditMismatch => 409,
            Self::MergeConflict | Self::Busy => 409,
            Self::PreconditionFailed => 412,
            Self::FileTooLarge => 413,
            Self::RangeNotSatisfiable => 416,
            Self::PatchFailed | Self::ArchiveRefused => 422,
            Self::RoomGone => 410,
            Self::BodyTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::IdempotencyMismatch | Self::LayerMissing => 422,
            Self::LimitExceeded => 429,
            Self::RoomSetup | Self::Internal => 500,
            Self::NothingListens => 502,
            Self::StorageUnavailable | Self::ShuttingDown | Self::SecretsUnavailable => 503,
        }
    }

    /// A few words that name the code for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::InvalidArgument => "Invalid argument",
            Self::Unauthorized => "Not authenticated",
            Self::Forbidden => "Not allowed",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::WrongState => "Wrong state",
            Self::IdempotencyMismatch => "Idempotency key reused",
            Self::OutcomeUnknown => "Outcome unknown",
            Self::BodyTooLarge => "Body too large",
            Self::UnsupportedMediaType => "Unsupported media type",
            Self::NotAcceptable => "Not acceptable",
            Self::PathOutsideWorkspace => "Path outside the workspace",
            Self::AlreadyExists => "Already exists",
            Self::WrongKind => "Wrong kind of file",
            Self::PreconditionFailed => "Precondition failed",
            Self::RangeNotSatisfiable => "Range not satisfiable",
            Self::FileTooLarge => "File too large",
            Self::EditMismatch => "Edit does not match",
            Self::PatchFailed => "Patch does not apply",
            Self::ArchiveRefused => "Archive refused",
            Self::MergeConflict => "Merge conflict",
            Self::Busy => "Busy",
            Self::LimitExceeded => "Limit exceeded",
            Self::RoomGone => "Room gone",
            Self::LayerMissing => "Layer missing",
            Self::RoomSetup => "Room could not be built",
            Self::CommandNotFound => "Command not found",
            Self::CommandNotExecutable => "Command not executable",
            Self::StorageUnavailable => "Storage unavailable",
            Self::ShuttingDown => "Shutting down",
            Self::NothingListens => "Nothing listens",
            Self::MountDenied => "Mount denied",
            Self::Filtered => "Filtered",
            Self::SecretNotFound => "Secret not found",
            Self::SecretsUnavailable => "Secrets unavailable",
            Self::Internal => "Internal error",
        }
    }
}

/// One sentence of what happened, one of what to do about it. The body of every answer that is not a 2xx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[error("{detail}{}{hint}", if .hint.is_empty() { "" } else { "; " })]
pub struct Problem {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub code: ProblemCode,
    pub detail: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// With `wrong_state`: the state that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<SessionState>,
    /// With `limit_exceeded`: the limit's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Seconds until another try makes sense; also in the `Retry-After` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// What each part of the request came to, where one sentence cannot say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub report: Option<serde_json::Value>,
}

impl Problem {
    pub fn new(code: ProblemCode, detail: impl Into<String>, hint: impl Into<String>) -> Problem {
        Problem {
            kind: "about:blank".into(),
            title: code.title().into(),
            status: code.status(),
            code,
            detail: detail.into(),
            hint: hint.into(),
            state: None,
            limit: None,
            retry_after: None,
            report: None,
        }
    }

    pub fn invalid(detail: impl Into<String>, hint: impl Into<String>) -> Problem {
        Problem::new(ProblemCode::InvalidArgument, detail, hint)
    }

    /// The same words for what is not there and for what is another tenant's.
    pub fn no_session(id: &str) -> Problem {
        Problem::new(
            ProblemCode::NotFound,
            format!("there is no session {id}"),
            "`workroom ls`, or `GET /v1/sessions`, lists those that there are",
        )
    }

    pub fn wrong_state(state: SessionState, wanted: &str) -> Problem {
        let detail = format!("the session is {} and cannot be {wanted}", state.as_str());
        Problem { state: Some(state), ..Problem::new(ProblemCode::WrongState, detail, "") }
    }

    pub fn limit(name: &str, detail: impl Into<String>, hint: impl Into<String>) -> Problem {
        Problem { limit: Some(name.into()), ..Problem::new(ProblemCode::LimitExceeded, detail, hint) }
    }

    pub fn retry_after(mut self, seconds: u64) -> Problem {
        self.retry_after = Some(seconds);
        self
    }
}

impl From<RoomError> for Problem {
    fn from(error: RoomError) -> Problem {
        let code = match error.code {
            ErrorCode::InvalidArgument | ErrorCode::PathNotFound => ProblemCode::InvalidArgument,
            ErrorCode::LayerMissing => ProblemCode::LayerMissing,
            ErrorCode::RoomSetup | ErrorCode::OutputLost => ProblemCode::RoomSetup,
            ErrorCode::RoomGone => ProblemCode::RoomGone,
            ErrorCode::CommandNotFound => ProblemCode::CommandNotFound,
            ErrorCode::CommandNotExecutable => ProblemCode::CommandNotExecutable,
            ErrorCode::LimitExceeded | ErrorCode::OutputFull => ProblemCode::LimitExceeded,
        };
        let limit = match error.code {
            ErrorCode::LimitExceeded => Some("pids".into()),
            ErrorCode::OutputFull => Some("output".into()),
            _ => None,
        };
        Problem { limit, ..Problem::new(code, error.detail, error.hint) }
    }
}
