//! The tool `bash_stateful`: a command in the slot's terminal, whose shell and jobs stay.

use super::bash::{MOST_OUTPUT, Wishes, is_unavailable};
use super::envelope::{Envelope, Refusal};
use super::handlers::{Fields, text};
use super::pool::Turn;
use super::python::{Timeout, cut, strip};
use super::recording;
use super::terminal::{Ran, Terminal, USUAL_SIZE, ended};
use serde_json::{Value, json};
use tokio::time::Instant;
use workroom_types::Problem;

pub(super) async fn bash_stateful(
    turn: &mut Turn<'_>,
    args: &Fields,
    timeout: &Timeout,
) -> Result<Envelope, Refusal> {
    let command = strip(text(args, "command", "")?).to_owned();
    if command.is_empty() {
        return Ok(Envelope::refused("Missing command"));
    }
    if command.contains('\0') {
        return Ok(Envelope::refused("Failed to execute command: it has a NUL character in it"));
    }
    let wishes = wishes(args);
    let isolated = match ensure(turn, wishes, None).await {
        Ok(isolated) => isolated,
        Err(problem) => {
            let error = format!("Failed to start stateful session: {}", reason(&problem, wishes));
            return Ok(Envelope::bad(error, cannot(wishes)));
        }
    };
    let ran = match timeout.duration() {
        Some(time) => run(turn, &command, wishes, Instant::now() + time).await,
        None => Ok(Ran::TimedOut),
    };
    let ran = match ran {
        Ok(ran) => ran,
        Err(problem) => {
            let metadata = json!({ "sandboxed": true, "stateful": true });
            return Ok(Envelope::bad(format!("Failed to execute command: {problem}"), metadata));
        }
    };
    Ok(match ran {
        Ran::TimedOut => {
            tear_down(turn).await;
            let metadata = json!({ "exit_code": -1, "timeout": true, "sandboxed": true, "stateful": true });
            Envelope::bad(format!("Command timed out after {}", timeout.shown()), metadata)
        }
        Ran::Ended { exit_code, output } => Envelope {
            success: exit_code == 0,
            output: cut(strip(&output), MOST_OUTPUT),
            error: if exit_code == 0 { String::new() } else { format!("Exit code: {exit_code}") },
            execution_id: Value::Null,
            metadata: json!({
                "exit_code": exit_code,
                "sandboxed": true,
                "network_isolated": isolated,
                "stateful": true,
            }),
        },
    })
}

/// Runs a command; a shell that ended before it could begin is replaced, once.
async fn run(turn: &mut Turn<'_>, command: &str, wishes: Wishes, until: Instant) -> Result<Ran, Problem> {
    for is_last in [false, true] {
        let Some(mut terminal) = turn.desk.terminal.take() else { return Err(ended()) };
        let ran = terminal.run(turn, command, until).await;
        let has_ended = !terminal.is_running();
        turn.desk.terminal = Some(terminal);
        match ran {
            Err(_) if has_ended && !is_last => {
                ensure(turn, wishes, None).await?;
            }
            other => return other,
        }
    }
    Err(ended())
}

pub(super) fn wishes(args: &Fields) -> Wishes {
    let is_own = args.contains_key("require_stateful_sandbox");
    Wishes::of(args, if is_own { "require_stateful_sandbox" } else { "require_sandbox" })
}

/// Why there is no terminal, in the words of the API where it has some.
pub(super) fn reason(problem: &Problem, wishes: Wishes) -> String {
    match is_unavailable(problem) {
        true if wishes.require_sandbox => format!("Stateful {}", wishes.unavailable().to_lowercase()),
        true => wishes.unavailable(),
        false => problem.to_string(),
    }
}

pub(super) fn cannot(wishes: Wishes) -> Value {
    json!({ "stateful": true, "requires_bwrap": wishes.require_sandbox })
}

/// Has the slot's terminal running, as the caller wants it. Another word about the network begins another one. Says
/// whether it reaches nothing.
pub(super) async fn ensure(
    turn: &mut Turn<'_>,
    wishes: Wishes,
    size: Option<(u16, u16)>,
) -> Result<bool, Problem> {
    // The slot may have another session by now.
    let isolated = turn.isolate(wishes.allow_network).await?;
    if size.is_some() {
        turn.desk.size = size;
    }
    let is_usable =
        |terminal: &Terminal| terminal.is_running() && terminal.allow_network == wishes.allow_network;
    if turn.desk.terminal.as_ref().is_some_and(|terminal| !is_usable(terminal)) {
        tear_down(turn).await;
    }
    let wanted = turn.desk.size;
    match &mut turn.desk.terminal {
        Some(terminal) => terminal.resize(wanted.unwrap_or(terminal.size)).await?,
        None => {
            let terminal = Terminal::open(turn, wanted.unwrap_or(USUAL_SIZE), wishes.allow_network).await?;
            turn.desk.streamed = 0;
            turn.desk.terminal = Some(terminal);
        }
    }
    Ok(isolated)
}

/// Ends the slot's terminal, with everything that was started in it.
pub(super) async fn tear_down(turn: &mut Turn<'_>) {
    recording::publish(turn).await;
    if let Some(terminal) = turn.desk.terminal.take() {
        terminal.end(turn).await;
    }
}
