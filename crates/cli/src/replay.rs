//! `workroom replay`: plays a recording in the caller's terminal, prints it, or saves it.

use crate::arguments::span_of_time;
use crate::remote::{Failure, block_on, complain, perform};
use crate::screen::{self, Quiet};
use crate::{cp, output, which};
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use workroom_client::{Client, ReadRecording};
use workroom_terminal::cast::{CastError, EventKind, Reader, to_v2, transcript};
use workroom_terminal::replay::{Replay, ReplayOptions};
use workroom_types::CastFormat;

/// Gives a terminal back as it was, whatever a recording did to it: its own screen, a cursor, no colours, no reports
/// of the mouse or of pasting, plain keys.
const AS_BEFORE: &str = "\x1b[?1049l\x1b[?25h\x1b[0m\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\
                         \x1b[?2004l\x1b[?1l\x1b>\x1b[?7h\x1b(B\x1b[r";

#[derive(clap::Args)]
#[command(
    after_help = "Control-C ends it.\n\nExamples:\n  workroom replay build t-0a1b2c3d --speed 2 --idle-limit 1s\n  \
    workroom replay build t-0a1b2c3d --transcript | less\n  \
    workroom replay build t-0a1b2c3d --output demo.cast\n  workroom replay demo.cast --from 90s"
)]
pub(crate) struct Options {
    /// The session: its id, the beginning of it, or its name; or a file with a recording, or - for stdin
    #[arg(value_name = "SESSION|FILE")]
    source: String,
    /// The process whose recording it is; `workroom recordings` lists them
    #[arg(value_name = "PROCESS")]
    process: Option<String>,
    /// Play it this many times as fast
    #[arg(long, value_name = "TIMES", default_value_t = 1.0, allow_hyphen_values = true)]
    speed: f64,
    /// Make longer pauses this long [default: what the recording says, if anything]
    #[arg(long, value_name = "TIME", value_parser = span_of_time, allow_hyphen_values = true)]
    idle_limit: Option<Duration>,
    /// Begin here; what was before is drawn at once
    #[arg(long, value_name = "TIME", value_parser = span_of_time, default_value = "0s", allow_hyphen_values = true)]
    from: Duration,
    /// Print what was shown as it is, without waiting
    #[arg(long, conflicts_with_all = ["transcript", "output"])]
    raw: bool,
    /// Print what was shown as plain text
    #[arg(long, conflicts_with = "output")]
    transcript: bool,
    /// Save the recording to this file, or - for stdout, and do not play it
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The version of asciicast to save
    #[arg(long, value_name = "VERSION", default_value = "v3", value_parser = ["v3", "v2"], requires = "output")]
    format: String,
}

impl Options {
    fn format(&self) -> CastFormat {
        if self.format == "v2" { CastFormat::V2 } else { CastFormat::V3 }
    }
}

pub(crate) fn run(options: Options) -> ExitCode {
    let done = match &options.process {
        Some(process) => return perform(false, async |client| remote(&client, &options, process).await),
        None => block_on(local(&options)),
    };
    done.unwrap_or_else(|failure| failure.report(false))
}

async fn remote(client: &Client, options: &Options, process: &str) -> Result<ExitCode, Failure> {
    let id = which::session(client, &options.source).await?;
    if options.transcript {
        cp::each_piece(client.read_transcript(&id, process).await?, output::bytes).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = ReadRecording { format: options.format(), ..ReadRecording::default() };
    let download = client.read_recording(&id, process, wanted).await?;
    match &options.output {
        Some(file) if file.as_os_str() == "-" => cp::each_piece(download, output::bytes).await?,
        // What was shown to its owner is nobody else's.
        Some(file) => cp::save(download, file, 0o600).await?,
        None => {
            let mut cast = Vec::new();
            let take = |piece: &[u8]| {
                cast.extend_from_slice(piece);
                Ok(())
            };
            cp::each_piece(download, take).await?;
            show(options, open(Cursor::new(cast), process)?).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn local(options: &Options) -> Result<ExitCode, Failure> {
    let name = &options.source;
    let source: Box<dyn BufRead> = match name.as_str() {
        "-" => Box::new(BufReader::new(std::io::stdin())),
        path => {
            let file = File::open(path).map_err(|error| {
                Failure::problem(
                    format!("the recording {name} cannot be read: {error}"),
                    "name a file, or a session and a process: workroom replay SESSION PROCESS",
                )
            })?;
            Box::new(BufReader::new(file))
        }
    };
    let reader = open(source, name)?;
    let unusable = |error: CastError| broken(name, &error);
    if options.transcript {
        print(|out| transcript(reader, out).map(drop)).map_err(unusable)?;
        return Ok(ExitCode::SUCCESS);
    }
    match &options.output {
        None => show(options, reader).await?,
        Some(_) if options.format() == CastFormat::V3 => {
            return Err(Failure::problem(format!("{name} is saved already"), "give --format v2, or copy it"));
        }
        Some(file) if file.as_os_str() == "-" => {
            print(|out| to_v2(reader, out).map(drop)).map_err(unusable)?
        }
        Some(file) => save_v2(reader, file).map_err(unusable)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn save_v2<R: BufRead>(reader: Reader<R>, path: &Path) -> Result<(), CastError> {
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    to_v2(reader, std::io::BufWriter::new(file)).map(drop)
}

/// Writes to stdout; a reader that has gone away has had enough.
fn print(write: impl FnOnce(std::io::StdoutLock<'_>) -> Result<(), CastError>) -> Result<(), CastError> {
    match write(std::io::stdout().lock()) {
        Err(CastError::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn open<R: BufRead>(source: R, name: &str) -> Result<Reader<R>, Failure> {
    Reader::new(source).map_err(|error| broken(name, &error))
}

fn broken(name: &str, error: &CastError) -> Failure {
    let hint = match error {
        CastError::Version(2) => "`asciinema convert` makes version 3 of it",
        _ => "",
    };
    Failure::problem(format!("{name}: {error}"), hint)
}

async fn show<R: BufRead>(options: &Options, reader: Reader<R>) -> Result<(), Failure> {
    let term = &reader.header().term;
    let limit = reader.header().idle_time_limit.and_then(|limit| Duration::try_from_secs_f64(limit).ok());
    let replay =
        ReplayOptions { speed: options.speed, idle_limit: options.idle_limit.or(limit), from: options.from };
    let on_terminal = rustix::termios::isatty(rustix::stdio::stdout());
    if on_terminal && !options.raw {
        let own = screen::size();
        if own.cols < term.cols || own.rows < term.rows {
            complain(&format!(
                "the recording is of a terminal of {}x{}, and this one has {}x{}: make it larger if it looks wrong",
                term.cols, term.rows, own.cols, own.rows
            ));
        }
    }
    let steps = Replay::new(reader, replay)
        .map_err(|error| Failure::problem(error.to_string(), ""))?
        .map(|step| step.map_err(|error| Failure::problem(error.to_string(), "")));
    // A recording may ask a terminal questions. The answers are nobody's input.
    let quiet = on_terminal.then(Quiet::enter).flatten();
    let ended = tokio::select! {
        ended = play(options.raw, steps) => ended,
        () = interrupted() => Ok(()),
    };
    if on_terminal {
        output::text(AS_BEFORE)?;
    }
    drop(quiet);
    ended
}

async fn play(
    at_once: bool,
    steps: impl Iterator<Item = Result<workroom_terminal::replay::Step, Failure>>,
) -> Result<(), Failure> {
    for step in steps {
        let step = step?;
        if !at_once && !step.wait.is_zero() {
            tokio::time::sleep(step.wait).await;
        }
        if let EventKind::Output(text) = &step.event.kind {
            output::text(text)?;
            // Whoever wants to end it is heard in a flood too.
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

async fn interrupted() {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    let mut waits: Vec<_> =
        signals.into_iter().map(|mut signal| Box::pin(async move { signal.recv().await })).collect();
    std::future::poll_fn(|context| {
        match waits.iter_mut().any(|wait| wait.as_mut().poll(context).is_ready()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}
