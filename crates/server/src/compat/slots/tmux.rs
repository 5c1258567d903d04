//! The tool `tmux`: the slot's terminal, driven by keys and looked at.

use super::bash::{MOST_OUTPUT, Wishes};
use super::envelope::{Envelope, Refusal};
use super::handlers::Fields;
use super::keys::enters;
use super::pool::Turn;
use super::python::{self, Timeout, clamped, cut, number, strip, truthy};
use super::recording;
use super::stateful::{cannot, ensure, reason, tear_down, wishes};
use super::terminal::{Blocked, USUAL_SIZE, ended};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use workroom_types::Problem;

/// Bytes of a recording that are streamed at once, unless told, and at most.
const USUAL_STREAM: u64 = 50_000;
const LARGEST_STREAM: u64 = 200_000;

pub(super) async fn tmux(turn: &mut Turn<'_>, args: &Fields, timeout: &Timeout) -> Result<Envelope, Refusal> {
    let action = args.get("action").filter(|action| truthy(Some(action), false)).map(python::shown);
    let action = strip(&action.unwrap_or_else(|| "capture".into())).to_lowercase();
    if action == "stop" {
        tear_down(turn).await;
        (turn.desk.size, turn.desk.streamed) = (None, 0);
        return Ok(Envelope::good("stopped", json!({ "stateful": true })));
    }
    let (wishes, size) = (wishes(args), size(args, turn.desk.size));
    if let Err(problem) = ensure(turn, wishes, size).await {
        let error = format!("Failed to ensure tmux session: {}", reason(&problem, wishes));
        return Ok(Envelope::bad(error, cannot(wishes)));
    }
    match action.as_str() {
        "start" => Ok(start(turn)),
        "send_keys" => send_keys(turn, args, timeout).await,
        "capture" => Ok(capture(turn, args).await),
        "stream" => Ok(stream(turn, args).await),
        _ => Ok(Envelope::refused(format!("Unknown tmux action: {action}"))),
    }
}

/// Columns and rows, if one of them is given.
fn size(args: &Fields, now: Option<(u16, u16)>) -> Option<(u16, u16)> {
    let (cols, rows) = (args.get("pane_width"), args.get("pane_height"));
    let is_given = |value: Option<&Value>| value.is_some_and(|value| !value.is_null());
    if !is_given(cols) && !is_given(rows) {
        return None;
    }
    let (usual_cols, usual_rows) = now.unwrap_or(USUAL_SIZE);
    let within = |value, usual: u16, least, most| clamped(value, usual.into(), least, most) as u16;
    Some((within(cols, usual_cols, 20, 500), within(rows, usual_rows, 10, 200)))
}

fn start(turn: &mut Turn<'_>) -> Envelope {
    turn.desk.streamed = 0;
    let Some(terminal) = &turn.desk.terminal else { return Envelope::refused(ended().to_string()) };
    let metadata = json!({
        "stateful": true,
        "pane_width": terminal.size.0,
        "pane_height": terminal.size.1,
        "socket": terminal.id,
        "session": terminal.session,
        "recording": recording::NAME,
    });
    Envelope::good("started", metadata)
}

fn words(keys: Option<&Value>) -> Option<Vec<String>> {
    match keys {
        Some(Value::String(one)) => Some(vec![one.clone()]),
        Some(Value::Array(many)) => many.iter().map(|key| key.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

async fn send_keys(turn: &mut Turn<'_>, args: &Fields, timeout: &Timeout) -> Result<Envelope, Refusal> {
    let Some(mut words) = words(args.get("keys")) else {
        return Ok(Envelope::refused("tmux send_keys requires 'keys' as string or list[string]"));
    };
    let seconds = |field: &str, default: f64| match args.get(field) {
        Some(given) if truthy(Some(given), false) => number(given)
            .filter(|seconds| !seconds.is_nan())
            .ok_or_else(|| Refusal::unexpected(format!("{field} has to be a number of seconds"))),
        _ => Ok(default),
    };
    let block = truthy(args.get("block"), false);
    let least = seconds("min_wait_s", 0.0)?;
    let most = Timeout::seconds(seconds("max_wait_s", timeout.as_seconds())?);
    if block && !words.last().is_some_and(|last| enters(last)) {
        words.push("Enter".into());
    }
    let until = Instant::now() + most.duration().unwrap_or_default();
    let waited = match type_words(turn, &words, wishes(args), block.then_some(until)).await {
        Ok(waited) => waited,
        Err(problem) => return Ok(Envelope::refused(format!("tmux send-keys failed: {problem}"))),
    };
    if waited == Blocked::TimedOut {
        tear_down(turn).await;
        return Ok(Envelope::refused(format!("tmux blocked keys timed out after {}", most.shown())));
    }
    if !block && least > 0.0 {
        let pause = Duration::try_from_secs_f64(least).unwrap_or(Duration::MAX);
        tokio::time::sleep(pause.min(Duration::from_secs(24 * 3600))).await;
    }
    Ok(Envelope::good("ok", json!({ "stateful": true, "blocked": block })))
}

/// Types, and waits until then for the shell's prompt if that is wanted. A shell that ended before is replaced, once.
async fn type_words(
    turn: &mut Turn<'_>,
    words: &[String],
    wishes: Wishes,
    until: Option<Instant>,
) -> Result<Blocked, Problem> {
    for is_last in [false, true] {
        let Some(terminal) = &mut turn.desk.terminal else { return Err(ended()) };
        let typed = match until {
            Some(until) => terminal.type_and_wait(words, until).await,
            None => terminal.type_on(words).await.map(|()| Blocked::Back),
        };
        match typed {
            Err(_) if !terminal.is_running() && !is_last => {
                ensure(turn, wishes, None).await?;
            }
            other => return other,
        }
    }
    Err(ended())
}

async fn capture(turn: &mut Turn<'_>, args: &Fields) -> Envelope {
    let entire = truthy(args.get("capture_entire"), false);
    let Some(terminal) = &turn.desk.terminal else { return Envelope::refused(ended().to_string()) };
    match terminal.capture(entire).await {
        Ok(screen) => {
            let metadata = json!({ "stateful": true, "capture_entire": entire });
            Envelope::good(cut(&screen, MOST_OUTPUT), metadata)
        }
        Err(problem) => Envelope::refused(format!("tmux capture-pane failed: {problem}")),
    }
}

async fn stream(turn: &mut Turn<'_>, args: &Fields) -> Envelope {
    if truthy(args.get("reset"), false) {
        turn.desk.streamed = 0;
    }
    let most = clamped(args.get("max_bytes"), USUAL_STREAM, 1, LARGEST_STREAM) as usize;
    let mut lines = match recording::read(turn, turn.desk.streamed).await {
        Ok(lines) => lines,
        Err(problem) => return Envelope::refused(format!("Failed to read asciinema recording: {problem}")),
    };
    lines.truncate(whole_lines(&lines, most));
    turn.desk.streamed += lines.len() as u64;
    let metadata = json!({
        "stateful": true,
        "stream": true,
        "offset": turn.desk.streamed,
        "recording": recording::NAME,
    });
    Envelope::good(String::from_utf8_lossy(&lines), metadata)
}

/// As many whole lines as fit; one that is longer than all is given whole, or nobody would ever get past it.
fn whole_lines(lines: &[u8], most: usize) -> usize {
    let within = &lines[..lines.len().min(most)];
    let last = within.iter().rposition(|byte| *byte == b'\n');
    let first = || lines.iter().position(|byte| *byte == b'\n');
    last.or_else(first).map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_cut_between_lines() {
        assert_eq!(whole_lines(b"ab\ncd\n", 100), 6);
        assert_eq!(whole_lines(b"ab\ncd\n", 5), 3);
        assert_eq!(whole_lines(b"ab\ncd\n", 1), 3);
        assert_eq!(whole_lines(b"", 10), 0);
        assert_eq!(whole_lines(b"half", 10), 0);
    }

    #[test]
    fn sizes_are_kept_within_bounds() {
        let size = |value: Value| super::size(value.as_object().expect("an object"), None);
        assert_eq!(size(json!({})), None);
        assert_eq!(size(json!({ "pane_width": null })), None);
        assert_eq!(size(json!({ "pane_width": 5 })), Some((20, 40)));
        assert_eq!(size(json!({ "pane_width": 9999, "pane_height": 1 })), Some((500, 10)));
        assert_eq!(size(json!({ "pane_width": "80", "pane_height": "x" })), Some((80, 40)));
    }
}
