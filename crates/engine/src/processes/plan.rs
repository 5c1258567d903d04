//! From what a caller asks a process to be to what a room is told.

use crate::actor::CallSecrets;
use crate::config::ProcessLimits;
use crate::exec::{self, Machine, Words};
use crate::state_dir::random_u32;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use workroom_proto::{Input, OutputRule};
use workroom_types::{
    CommandSpec, Encoding, Problem, ProblemCode, Process, ProcessKind, ProcessState, ProcessStdin, PtySize,
    StartProcess, TerminalSize, Timestamp,
};

/// What the least ring still holds of a line.
const LEAST_OUTPUT: u64 = 4096;

/// The size of a terminal that says nothing of it.
const USUAL: TerminalSize = TerminalSize { rows: 40, cols: 120 };

/// A process that is ready to be started.
pub(crate) struct SpawnPlan {
    pub(crate) spec: CommandSpec,
    pub(crate) rule: OutputRule,
    pub(crate) input: Input,
    /// With [`Input::Given`].
    pub(crate) stdin: Option<OwnedFd>,
    /// Whether it gets a socket as descriptor 3.
    pub(crate) channel: bool,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) secrets: CallSecrets,
    pub(crate) memo: SpawnMemo,
}

/// What the guest keeps of a process, for a server that comes after this one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SpawnMemo {
    /// As it was when it was started.
    pub(crate) process: Process,
    /// Who asked.
    pub(crate) actor: String,
}

/// An id that no other process of the session has: the first letter says what it is.
pub(crate) fn new_id(kind: ProcessKind) -> Result<String, Problem> {
    let letter = match kind {
        ProcessKind::Process => 'p',
        ProcessKind::Terminal => 't',
        ProcessKind::Shell => 's',
        ProcessKind::Service => 'v',
    };
    let number = random_u32().map_err(|error| {
        Problem::new(ProblemCode::Internal, format!("this machine gives no randomness: {error}"), "")
    })?;
    Ok(format!("{letter}-{number:08x}"))
}

/// A terminal's size, checked.
pub(crate) fn terminal_size(size: PtySize) -> Result<TerminalSize, Problem> {
    let size = TerminalSize { cols: size.cols.unwrap_or(USUAL.cols), rows: size.rows.unwrap_or(USUAL.rows) };
    if !(20..=500).contains(&size.cols) {
        return Err(Problem::invalid(format!("cols {} is outside 20 to 500", size.cols), ""));
    }
    if !(10..=200).contains(&size.rows) {
        return Err(Problem::invalid(format!("rows {} is outside 10 to 200", size.rows), ""));
    }
    Ok(size)
}

/// Checks a request and fills in what it leaves open.
pub(crate) fn plan(
    request: StartProcess,
    kind: ProcessKind,
    id: String,
    limits: &ProcessLimits,
    machine: Machine,
    actor: &str,
) -> Result<SpawnPlan, Problem> {
    let tag = request.tag.filter(|tag| !tag.is_empty());
    if let Some(tag) = tag.as_ref().filter(|tag| tag.len() > 120 || tag.contains('\0')) {
        return Err(Problem::invalid(format!("a tag of {} bytes is more than 120", tag.len()), "use less"));
    }
    if request.timeout_ms == Some(0) {
        return Err(Problem::invalid("timeout_ms 0 leaves no time", "leave it out for no limit"));
    }
    let keep_output = request.keep_output.unwrap_or(limits.output);
    if !(LEAST_OUTPUT..=limits.largest_output).contains(&keep_output) {
        return Err(Problem::invalid(
            format!("keep_output {keep_output} is outside {LEAST_OUTPUT} to {}", limits.largest_output),
            "read the output while it is written to have all of it",
        ));
    }
    let record_input = request.record_input.unwrap_or(false);
    if record_input && request.record == Some(false) {
        return Err(Problem::invalid("record_input needs a recording", "leave `record: false` out"));
    }
    let pty = request.pty.map(terminal_size).transpose()?;
    let (input, stdin) = match (&pty, request.stdin) {
        (Some(_), None | Some(ProcessStdin::Open(true))) => (Input::Nothing, None),
        (Some(_), Some(_)) => {
            return Err(Problem::invalid(
                "a process with a terminal reads from it, not from stdin",
                "leave stdin out and write to it later",
            ));
        }
        (None, None | Some(ProcessStdin::Open(false))) => (Input::Nothing, None),
        (None, Some(ProcessStdin::Open(true))) => (Input::Pipe, None),
        (None, Some(ProcessStdin::Text(text))) => (Input::Given, Some(exec::stdin(text, Encoding::Text)?)),
    };
    let secrets = CallSecrets::new(request.secret_env, &request.env, request.redact_values)?;
    let words = Words {
        command: request.command,
        argv: request.argv,
        login: false,
        cwd: request.cwd,
        env: request.env,
        user: request.user,
    };
    let (mut spec, command) = words.spec(machine)?;
    spec.terminal = pty;
    let ring = if pty.is_some() { keep_output } else { keep_output / 2 };
    let process = Process {
        id,
        kind,
        name: None,
        tag,
        pid: 0,
        command,
        cwd: String::from_utf8_lossy(&spec.cwd).into_owned(),
        user: spec.user.name().to_owned(),
        pty,
        stdin: pty.is_some() || input == Input::Pipe,
        state: ProcessState::Running,
        started: Timestamp::now(),
        keep_output,
        record: record_input || request.record.unwrap_or(limits.record.includes(kind)),
        record_input,
        ..Process::default()
    };
    Ok(SpawnPlan {
        spec,
        rule: OutputRule { head: 0, ring, live: true },
        input,
        stdin,
        channel: false,
        secrets,
        timeout_ms: request.timeout_ms,
        memo: SpawnMemo { process, actor: actor.to_owned() },
    })
}
