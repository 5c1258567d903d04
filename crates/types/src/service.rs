//! A session's services, as their caller defines them and is told about them.

use crate::{OutputStream, RoomUser, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A long-running command of a session: how it is started, when it is ready, what happens when it ends.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ServiceSpec {
    /// Given to `/bin/bash -c`, or `/bin/sh -c` where there is no bash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// A directory of the room; `/workspace` unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Kept, and not shown in answers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Environment variable to secret, by name: of the session, of its owner, or of all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub user: Option<RoomUser>,
    /// How it is found out that it is ready; without, it is as soon as it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    pub restart: RestartPolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Services that are ready before this one is started, and are started for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// One that is not ready after so long is ended; 30000 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_timeout_ms: Option<u64>,
    /// Between two looks whether it is ready; 500 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_interval_ms: Option<u64>,
    /// From TERM to KILL when it is stopped; 5000 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_timeout_ms: Option<u64>,
    /// Whether it comes back whenever the session starts again, unless a caller has stopped it.
    pub autostart: bool,
    /// Bytes of output that are kept of each run: the last ones. 16 MiB unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_output: Option<u64>,
}

/// What is so once a service is ready. Looked at inside the room, in its own network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Readiness {
    /// There is a file of this path: of the room, or relative to the service's `cwd`.
    File(String),
    /// Something takes connections on this port of the room's loopback, within a second.
    Tcp(u16),
    /// It answers with 200 to 399 within two seconds.
    Http(HttpReadiness),
    /// This shell command exits with 0 within ten seconds, with the service's `cwd`, `env` and `user`.
    Command(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HttpReadiness {
    pub port: u16,
    /// `/` unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// When a service that has ended by itself is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RestartPolicy {
    #[default]
    Never,
    /// After an exit with another code than 0, a signal, or an end before it was ready.
    OnFailure,
    Always,
}

/// How long to wait before a service is started again: longer each time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Backoff {
    /// Before the first restart; 500 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_ms: Option<u64>,
    /// 30000 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
    /// Each wait is so many times the one before; 2 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// After a run of this length counting begins anew; 60000 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_after_ms: Option<u64>,
    /// More restarts than this in a row are a crash loop, and the service has failed; 5 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_restarts: Option<u32>,
}

/// A service's life.
///
/// ```text
///              ┌──────────── restarted, after a while ◀───────────┐
///              ▼                                                  │ by its policy
///  start ▶ starting ──it runs──▶ running ──readiness──▶ ready ──its own end──▶ exited
///           │    ▲                  │ └──without readiness─▶▲ │
///           │    │                  │                         │
///           │    └── started again ─┼── exited, failed, stopped
///           │                       │                         │
///           └─ a dependency fails,  └─ ends or waits too long │
///              it cannot start  ▶ failed ◀─ crash loop ───────┤
///                                                             │
///  any of the first three ──a caller's stop, the room's end──▶ stopped
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// It waits: for those that it depends on, for its next try, for its process.
    Starting,
    /// Its process runs, and is not ready yet.
    Running,
    Ready,
    /// It ended by itself after it was ready; `exit_code` says how.
    Exited,
    Failed,
    #[default]
    Stopped,
}

impl ServiceState {
    pub fn as_str(self) -> &'static str {
        match self {
            ServiceState::Starting => "starting",
            ServiceState::Running => "running",
            ServiceState::Ready => "ready",
            ServiceState::Exited => "exited",
            ServiceState::Failed => "failed",
            ServiceState::Stopped => "stopped",
        }
    }

    /// Whether something is under way for it.
    pub fn is_active(self) -> bool {
        matches!(self, ServiceState::Starting | ServiceState::Running | ServiceState::Ready)
    }
}

/// Why a service is not up any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    ProcessExitedBeforeReady,
    ReadinessTimeout,
    /// It was stopped, and TERM was enough.
    Sigterm,
    /// It was stopped, and had to be killed.
    Sigkill,
    /// It was restarted more often in a row than its backoff allows.
    CrashLoop,
    /// One that it depends on did not become ready; `detail` names it.
    DependencyFailed,
    /// Its process could not be started; `detail` says why.
    NotStarted,
    /// Its room ended: the session was stopped, reset or lost its room.
    SessionStopped,
}

impl StopReason {
    pub fn as_str(self) -> &'static str {
        match self {
            StopReason::ProcessExitedBeforeReady => "process_exited_before_ready",
            StopReason::ReadinessTimeout => "readiness_timeout",
            StopReason::Sigterm => "sigterm",
            StopReason::Sigkill => "sigkill",
            StopReason::CrashLoop => "crash_loop",
            StopReason::DependencyFailed => "dependency_failed",
            StopReason::NotStarted => "not_started",
            StopReason::SessionStopped => "session_stopped",
        }
    }
}

/// A service, as it is now.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Service {
    pub name: String,
    pub state: ServiceState,
    /// Of its process, as the room numbers it, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its last run, in the process table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub ready_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// More about the reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How often it was started again by its policy since somebody started it.
    pub restarts: u32,
    /// Without its `env`.
    pub definition: ServiceSpec,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceList {
    /// By their names.
    pub services: Vec<Service>,
}

/// A line that a service wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogLine {
    pub stream: OutputStream,
    /// Where it begins in its stream.
    pub offset: u64,
    /// Without its end; what is no UTF-8 is replaced.
    pub text: String,
}

/// Lines of a service's run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceLogs {
    /// The run that they are of: its output is also that of this process.
    pub process: String,
    /// Those of stdout, then those of stderr, each in their order.
    pub lines: Vec<LogLine>,
    /// Where to go on: the places in both streams.
    pub cursor: String,
    /// Bytes that were asked for and are not kept any more.
    pub missing: u64,
    /// Whether the run has ended and there is no line after these.
    pub end: bool,
    /// Earlier runs, the newest first: `GET …/processes/{process}/output` has what they wrote.
    pub earlier: Vec<String>,
}
