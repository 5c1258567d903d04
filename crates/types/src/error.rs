//! Why a room could not be made or used: a stable code, what happened, and what to do.

use serde::{Deserialize, Serialize};

/// Stable, snake_case codes that programs may match on. Never renamed, only added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The caller asked for something malformed or impossible.
    InvalidArgument,
    /// A host path the caller named is missing or of the wrong kind.
    PathNotFound,
    /// A layer that the policy requires cannot be had on this machine.
    LayerMissing,
    /// The kernel refused a step of building the room.
    RoomSetup,
    /// The room ended while something was still asked of it.
    RoomGone,
    /// The program is not there (exit status 127).
    CommandNotFound,
    /// The program is there and cannot be executed (exit status 126).
    CommandNotExecutable,
    /// The room's own limit stopped the command from starting.
    LimitExceeded,
    /// What commands have written and nobody has taken leaves no place for another's output.
    OutputFull,
    /// Where the command's output goes does not take it.
    OutputLost,
}

impl ErrorCode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::PathNotFound => "path_not_found",
            Self::LayerMissing => "layer_missing",
            Self::RoomSetup => "room_setup",
            Self::RoomGone => "room_gone",
            Self::CommandNotFound => "command_not_found",
            Self::CommandNotExecutable => "command_not_executable",
            Self::LimitExceeded => "limit_exceeded",
            Self::OutputFull => "output_full",
            Self::OutputLost => "output_lost",
        }
    }

    /// The exit status `workroom run` ends with: what a shell would say for the command's own faults,
    /// 125 for everything that kept the room from being made.
    pub fn exit_status(self) -> u8 {
        match self {
            Self::CommandNotFound => 127,
            Self::CommandNotExecutable => 126,
            _ => 125,
        }
    }
}

/// One sentence of what happened, one of what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{detail}{}{hint}", if .hint.is_empty() { "" } else { "; " })]
pub struct RoomError {
    pub code: ErrorCode,
    pub detail: String,
    pub hint: String,
}

impl RoomError {
    pub fn new(code: ErrorCode, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), hint: hint.into() }
    }

    pub fn invalid(detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, detail, hint)
    }

    pub fn gone(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::RoomGone, detail, "")
    }
}
