//! The tool `bash`: a command alone, with everything that it starts.

use super::envelope::{Envelope, Refusal};
use super::handlers::{Fields, text};
use super::pool::Turn;
use super::python::{Timeout, cut, strip, truthy};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use workroom_types::{Encoding, ExecRequest, ExecResult, Problem, ProblemCode};

/// Characters of each stream.
pub(super) const MOST_OUTPUT: usize = 50_000;

/// As many bytes as one character more than that may take, at each end of what is kept: the first ones are needed.
const KEPT: u64 = 2 * 4 * (MOST_OUTPUT as u64 + 1);

pub(super) async fn bash(turn: &mut Turn<'_>, args: &Fields, timeout: &Timeout) -> Result<Envelope, Refusal> {
    let command = text(args, "command", "")?.to_owned();
    let wishes = Wishes::of(args, "require_sandbox");
    let timed_out = || {
        let metadata = json!({ "exit_code": -1, "timeout": true, "sandboxed": true });
        Envelope::bad(format!("Command timed out after {}", timeout.shown()), metadata)
    };
    let Some(time) = timeout.duration() else { return Ok(timed_out()) };
    let (mut session, mut isolated) = match turn.as_left(wishes.allow_network).await {
        Ok(found) => found,
        Err(problem) => return Ok(failed(&problem, wishes)),
    };
    // What an operator allows may be less.
    let limits = turn.engine().exec_limits();
    let request = ExecRequest {
        command: Some(command),
        env: turn.pool.settings().env.clone(),
        timeout_ms: Some(time.min(limits.longest_timeout).as_millis() as u64),
        max_output: Some(KEPT.min(limits.largest_output)),
        encoding: Some(Encoding::Base64),
        ..ExecRequest::default()
    };
    let mut result = turn.engine().exec_alone(turn.caller(), &session, request.clone()).await;
    if result.as_ref().is_err_and(|problem| problem.code == ProblemCode::NotFound) {
        // Somebody has deleted it since the last call.
        turn.forget_session();
        (session, isolated) = match turn.as_left(wishes.allow_network).await {
            Ok(found) => found,
            Err(problem) => return Ok(failed(&problem, wishes)),
        };
        result = turn.engine().exec_alone(turn.caller(), &session, request).await;
    }
    Ok(match result {
        Ok(result) if result.timed_out => timed_out(),
        Ok(result) => ended(&result, isolated),
        Err(problem) => failed(&problem, wishes),
    })
}

fn ended(result: &ExecResult, network_isolated: bool) -> Envelope {
    let (stdout, stderr) = (stream(&result.stdout), stream(&result.stderr));
    let output = match (stdout.is_empty(), stderr.is_empty()) {
        (_, true) => stdout,
        (true, false) => stderr,
        (false, false) => format!("{stdout}\n[stderr]\n{stderr}"),
    };
    let code = result.exit_code;
    Envelope {
        success: code == 0,
        output: strip(&output).to_owned(),
        error: if code == 0 { String::new() } else { format!("Exit code: {code}") },
        execution_id: Value::Null,
        metadata: json!({ "exit_code": code, "sandboxed": true, "network_isolated": network_isolated }),
    }
}

/// The first characters of a stream. What the engine leaves out is in the middle, behind all that is needed.
fn stream(encoded: &str) -> String {
    let bytes = STANDARD.decode(encoded).unwrap_or_default();
    cut(&String::from_utf8_lossy(&bytes), MOST_OUTPUT)
}

/// What a caller wants of the room.
#[derive(Clone, Copy)]
pub(super) struct Wishes {
    pub(super) allow_network: bool,
    pub(super) require_sandbox: bool,
}

impl Wishes {
    pub(super) fn of(args: &Fields, require: &str) -> Wishes {
        Wishes {
            allow_network: truthy(args.get("allow_network"), true),
            require_sandbox: truthy(args.get(require), false),
        }
    }

    /// What is said where no room can be had. Nothing is ever run outside of one, whatever the caller would put up with.
    pub(super) fn unavailable(self) -> String {
        let what = match self {
            Wishes { require_sandbox: false, allow_network: false } => "Network isolation requested",
            _ => "Sandboxing required",
        };
        format!("{what} but bubblewrap is unavailable in this environment")
    }
}

/// Whether rooms cannot be had on this machine.
pub(super) fn is_unavailable(problem: &Problem) -> bool {
    matches!(problem.code, ProblemCode::RoomSetup | ProblemCode::LayerMissing)
}

fn failed(problem: &Problem, wishes: Wishes) -> Envelope {
    if is_unavailable(problem) {
        tracing::warn!(%problem, "a slot has no room");
        let metadata = json!({ "sandboxed": false, "network_isolated": false, "requires_bwrap": true });
        return Envelope::bad(wishes.unavailable(), metadata);
    }
    Envelope::bad(format!("Failed to execute sandboxed command: {problem}"), json!({ "sandboxed": true }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(stdout: &[u8], stderr: &[u8]) -> String {
        let result = ExecResult {
            stdout: STANDARD.encode(stdout),
            stderr: STANDARD.encode(stderr),
            ..ExecResult::default()
        };
        ended(&result, true).output
    }

    #[test]
    fn the_two_streams_are_told_apart_only_where_both_say_something() {
        assert_eq!(output(b" out\n", b""), "out");
        assert_eq!(output(b"", b"err\n"), "err");
        assert_eq!(output(b"out\n", b"err\n"), "out\n\n[stderr]\nerr");
        assert_eq!(output(b"", b""), "");
        assert_eq!(output(b"a\xff\xe2\x82b", b""), "a\u{fffd}\u{fffd}b");
    }

    #[test]
    fn streams_are_cut_by_characters() {
        let most = "é".repeat(MOST_OUTPUT);
        assert_eq!(output(most.as_bytes(), b""), most);
        let more = output((most.clone() + "!").as_bytes(), b"");
        assert_eq!(more, format!("{most}\n... (output truncated)"));
    }
}
