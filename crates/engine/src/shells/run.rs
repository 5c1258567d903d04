//! One command of a shell: begun, waited for, and told with exactly what was written meanwhile.
//!
//! ```text
//!  turn ──▶ BeginRun ──▶ the command, on the channel ──▶ its word, or the shell's end ──▶ EndRun ──▶ answer
//!             │ another one is under way, of a server that ended: its word is waited for first
//! ```

use super::driver;
use super::line::{Line, Wire};
use crate::actor::{Ask, Handle};
use crate::processes::entry::Entry;
use crate::room::gone;
use crate::secrets::redactors::clean_text;
use crate::{blocking, sessions};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::time::{Duration, Instant};
use workroom_proto::{Answer, Question, RunStage, SpoolReader, Stream};
use workroom_types::{Encoding, Problem, ShellOutcome, ShellResult};
use workroom_vault::Redactor;

/// What is read without a thread of its own.
const LITTLE: u64 = 64 << 10;

/// A command, checked.
pub(crate) struct RunPlan {
    pub(crate) command: String,
    pub(crate) timeout: Duration,
    pub(crate) max_output: u64,
    pub(crate) encoding: Encoding,
    /// Further values that must not be seen in its output.
    pub(crate) redact: Vec<String>,
    /// The same, to be looked for in what is said of it.
    pub(crate) redactor: Redactor,
    /// What it is known by on the channel and to the guest.
    pub(crate) mark: u64,
}

/// How a command was left.
enum Left {
    Done(driver::Done),
    /// The shell ended while it was at it.
    Ended,
}

/// What became of trying to begin.
pub(crate) enum Begun {
    Yes,
    /// The shell had ended before.
    Ended,
}

async fn ask(handle: &Handle, session: &str, question: Question) -> Result<Answer, Problem> {
    Ok(sessions::ask(handle, session, |reply| Ask::Guest { question, reply }).await?.0)
}

/// Tells the guest of the command that comes, once whatever the shell was at is over.
pub(crate) async fn begin(
    (handle, session): (&Handle, &str),
    wire: &Wire,
    plan: &RunPlan,
) -> Result<Begun, Problem> {
    loop {
        let Some(command) = wire.entry.command() else { return Ok(Begun::Ended) };
        let timeout_ms = plan.timeout.as_millis() as u64;
        let question = Question::BeginRun { command, mark: plan.mark, timeout_ms };
        match ask(handle, session, question).await? {
            Answer::RunBegun { .. } => return Ok(Begun::Yes),
            Answer::RunUnderway { mark } => {
                // Of a server that ended. The guest keeps its time, so this does not wait for ever.
                match left(wire, mark).await {
                    Left::Ended => return Ok(Begun::Ended),
                    Left::Done(_) => drop(ask(handle, session, Question::EndRun { command, mark }).await?),
                }
            }
            Answer::Unknown => {
                wire.entry.end().await;
                return Ok(Begun::Ended);
            }
            _ => return Err(gone("the room does not answer as it should")),
        }
    }
}

/// Whether a shell is still at this command, which a server that ended has given it.
pub(crate) async fn is_underway(
    (handle, session): (&Handle, &str),
    wire: &Wire,
    mark: u64,
) -> Result<bool, Problem> {
    let Some(command) = wire.entry.command() else { return Ok(false) };
    Ok(matches!(ask(handle, session, Question::Run { command, mark }).await?, Answer::RunBegun { .. }))
}

/// Waits for the driver's word about this command; words about others are old.
async fn left(wire: &Wire, mark: u64) -> Left {
    let heard = async {
        loop {
            match wire.next().await {
                Ok(done) if done.mark == mark => return Some(done),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    };
    tokio::select! {
        biased;
        heard = heard => match heard {
            Some(done) => return Left::Done(done),
            // The shell has no channel any more: it is about to end, or did something that leaves it none.
            None => wire.entry.end().await,
        },
        () = wire.entry.end() => {}
    }
    Left::Ended
}

/// Gives the shell a command that was begun.
pub(crate) async fn give(line: &Line, wire: &Wire, plan: &RunPlan) {
    let request = driver::request(line.record.shell, plan.mark, &plan.command);
    // A shell that does not read any more has ended, or will be when the command's time is over.
    let _ = wire.write(&request).await;
}

/// Waits for a command that was given, and tells what it did.
pub(crate) async fn finish(
    (handle, session): (&Handle, &str),
    (line, wire): (&Line, &Wire),
    plan: &RunPlan,
) -> Result<ShellResult, Problem> {
    let since = Instant::now();
    let Some(command) = wire.entry.command() else { return Err(gone("the shell ended")) };
    let left = left(wire, plan.mark).await;
    let duration = since.elapsed();
    let question = Question::EndRun { command, mark: plan.mark };
    let answer = ask(handle, session, question).await;
    let (began, written, stage) = match answer? {
        Answer::RunEnded { began, written, stage } => (began, written, stage),
        // Another room came: what was written is not told from what others wrote.
        _ => return Err(gone("the shell and its room ended while the command ran")),
    };
    let timed_out = stage > RunStage::Running;
    let mut shell = ShellOutcome { id: line.record.id.clone(), ..ShellOutcome::default() };
    let exit_code = match &left {
        Left::Done(done) => {
            let mut cwd = String::from_utf8_lossy(&done.cwd).into_owned();
            clean_text(&handle.redactor.get(), &mut cwd);
            line.set_cwd(Some(cwd));
            done.status
        }
        Left::Ended => {
            shell.ended = true;
            shell.reason = Some(reason(&wire.entry, stage));
            wire.entry.info().exit.map_or(125, |exit| exit.code)
        }
    };
    let exit_code = if timed_out { 124 } else { exit_code };
    let (entry, max_output, encoding) = (wire.entry.clone(), plan.max_output, plan.encoding);
    let read = move || streams(&entry, began, written, max_output, encoding);
    let is_little = (0..2).all(|at| written[at].saturating_sub(began[at]) <= LITTLE);
    let [output, stderr] = if is_little { read()? } else { blocking(read).await? };
    Ok(ShellResult {
        truncated: output.is_cut || stderr.is_cut,
        lossy: output.is_lossy || stderr.is_lossy,
        output: output.text,
        stderr: stderr.text,
        encoding,
        exit_code,
        cwd: line.cwd().unwrap_or_else(|| wire.entry.info().cwd),
        duration_ms: duration.as_millis() as u64,
        timed_out,
        stdout_bytes: written[0].saturating_sub(began[0]),
        stderr_bytes: written[1].saturating_sub(began[1]),
        shell,
    })
}

/// Why a shell is not there any more.
pub(crate) fn reason(entry: &Entry, stage: RunStage) -> String {
    let info = entry.info();
    if stage == RunStage::ShellKilled {
        return "the command did not end in time, and the shell could not be saved".to_owned();
    }
    match (info.exit, info.reason) {
        (Some(exit), _) => match exit.signal {
            Some(signal) => format!("the shell was killed by signal {signal}"),
            None if exit.oom_killed => format!("the shell ended with {}, out of memory", exit.code),
            None => format!("the shell ended with {}", exit.code),
        },
        (None, Some(reason)) => reason,
        (None, None) => "the shell is gone".to_owned(),
    }
}

/// A part of a stream, as the answer has it.
struct Excerpt {
    text: String,
    is_lossy: bool,
    is_cut: bool,
}

fn streams(
    entry: &Entry,
    began: [u64; 2],
    written: [u64; 2],
    most: u64,
    encoding: Encoding,
) -> Result<[Excerpt; 2], Problem> {
    let read = || -> io::Result<[Excerpt; 2]> {
        if began == written {
            let nothing = || Excerpt { text: String::new(), is_lossy: false, is_cut: false };
            return Ok([nothing(), nothing()]);
        }
        let reader = entry.reader()?;
        let one = |at: usize| excerpt(&reader, Stream::BOTH[at], (began[at], written[at]), most, encoding);
        Ok([one(0)?, one(1)?])
    };
    read().map_err(|error| {
        Problem::new(
            workroom_types::ProblemCode::Internal,
            format!("what the command wrote cannot be read: {error}"),
            "",
        )
    })
}

/// Between two cursors: all of it, or the first and the last half with a line that says what is missing.
fn excerpt(
    reader: &SpoolReader,
    stream: Stream,
    (from, to): (u64, u64),
    most: u64,
    encoding: Encoding,
) -> io::Result<Excerpt> {
    let (head, tail) = match to.saturating_sub(from) <= most {
        true => (Vec::new(), range(reader, stream, from, to)?),
        false => {
            let mut head = range(reader, stream, from, from + most / 2)?;
            let mut tail = range(reader, stream, to - (most - most / 2), to)?;
            if encoding == Encoding::Text {
                head.truncate(whole_until(&head));
                tail.drain(..whole_from(&tail));
            }
            (head, tail)
        }
    };
    let missing = to.saturating_sub(from) - head.len() as u64 - tail.len() as u64;
    let data = match missing {
        0 => tail,
        _ => [&head, format!("\n[… {missing} bytes are missing here …]\n").as_bytes(), &tail].concat(),
    };
    let (text, is_lossy) = match encoding {
        Encoding::Base64 => (STANDARD.encode(data), false),
        Encoding::Text => match String::from_utf8(data) {
            Ok(text) => (text, false),
            Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
        },
    };
    Ok(Excerpt { text, is_lossy, is_cut: missing > 0 })
}

/// What is still there of this range: its end, if something is not.
fn range(reader: &SpoolReader, stream: Stream, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let (mut data, mut at) = (Vec::new(), from);
    while at < to {
        let piece = reader.read(stream, at, (to - at) as usize)?;
        if piece.data.is_empty() || piece.offset >= to {
            break;
        }
        if piece.offset != at {
            data.clear();
        }
        let useful = (to - piece.offset).min(piece.data.len() as u64) as usize;
        data.extend_from_slice(&piece.data[..useful]);
        at = piece.offset + useful as u64;
    }
    Ok(data)
}

/// Where a character that is cut off at the end begins.
fn whole_until(data: &[u8]) -> usize {
    match str::from_utf8(data) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => data.len(),
    }
}

/// Bytes of a character that begins before the data.
fn whole_from(data: &[u8]) -> usize {
    data.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count()
}
