//! How a run ended, for `--json` and for the exit status.

use crate::relay::Ended;
use serde::Serialize;
use serde_json::Value;
use workroom_types::{Enforced, Exit, RoomError};

#[derive(Serialize, Default)]
pub(crate) struct RunResult {
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) timed_out: bool,
    /// This and what it used are not known of a command whose end its room did not tell.
    pub(crate) oom_killed: Option<bool>,
    pub(crate) duration_ms: f64,
    pub(crate) cpu_ms: Option<f64>,
    pub(crate) peak_memory: Option<u64>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) stdout_bytes: u64,
    pub(crate) stderr_bytes: u64,
    pub(crate) truncated: bool,
    pub(crate) enforced: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<RoomError>,
    #[serde(skip)]
    timeout: Option<std::time::Duration>,
}

impl RunResult {
    pub(crate) fn ended(ended: Ended) -> RunResult {
        let mut result = RunResult {
            timed_out: ended.timed_out,
            timeout: ended.timeout,
            enforced: enforced_json(&ended.enforced),
            stdout: ended.stdout.text(),
            stderr: ended.stderr.text(),
            stdout_bytes: ended.stdout.total(),
            stderr_bytes: ended.stderr.total(),
            truncated: ended.stdout.truncated() || ended.stderr.truncated(),
            ..RunResult::default()
        };
        if let Some(report) = ended.report {
            result.exit_code = Some(report.exit.status());
            if let Exit::Signal(signal) = report.exit {
                result.signal = Some(signal);
            }
            result.oom_killed = Some(report.usage.oom_kills > 0);
            result.cpu_ms = Some(report.usage.cpu_micros as f64 / 1000.0);
            result.peak_memory = Some(report.usage.peak_memory);
        }
        if result.timed_out {
            result.exit_code = Some(124);
            result.signal = None;
        }
        result
    }

    pub(crate) fn failed(error: RoomError) -> RunResult {
        let exit_code = Some(i32::from(error.code.exit_status()));
        RunResult { exit_code, error: Some(error), enforced: Value::Null, ..RunResult::default() }
    }

    pub(crate) fn status(&self) -> u8 {
        self.exit_code.and_then(|code| u8::try_from(code).ok()).unwrap_or(crate::EXIT_FAULT)
    }

    pub(crate) fn timeout_words(&self) -> String {
        self.timeout.map(|time| format!("{time:?}")).unwrap_or_default()
    }
}

/// `{"seccomp": {"state": "enforced", "by": "allow-list"}, ...}`
pub(crate) fn enforced_json(enforced: &Enforced) -> Value {
    serde_json::to_value(enforced).unwrap_or_default()
}
