//! `workroom spawn|ps|logs|kill|wait`: processes of a session that go on by themselves.

use crate::output::{self, ago, clean};
use crate::remote::{Failure, complain, perform};
use crate::table::Table;
use crate::{arguments, which};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use workroom_client::Client;
use workroom_types::{
    OutputStream, Process, ProcessKind, ProcessState, ProcessStdin, PtySize, SendSignal, SignalTo,
    StartProcess, Timestamp, format_bytes, parse_bytes,
};

/// How long one question for more output waits.
const ONE_WAIT: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
#[command(
    override_usage = "workroom spawn [OPTIONS] SESSION -- PROGRAM ARGUMENTS…\n       workroom spawn [OPTIONS] SESSION -c COMMAND",
    after_help = "Prints the process's id; `workroom logs` shows its output, now and after its end.\n\nExample:\n  workroom spawn build --tag nightly -c 'make -j4'",
    group = clap::ArgGroup::new("what").required(true).args(["command", "argv"])
)]
pub(crate) struct Spawn {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    id: String,
    /// A command for the room's shell
    #[arg(short = 'c', long = "command", value_name = "COMMAND")]
    command: Option<String>,
    /// End it and all it started after this long [default: never]
    #[arg(long, value_name = "TIME", value_parser = arguments::milliseconds, allow_hyphen_values = true)]
    timeout: Option<u64>,
    /// Where in the room it starts [default: /workspace]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Set an environment variable; may be repeated
    #[arg(long, value_name = "K=V", value_parser = arguments::variable)]
    env: Vec<(String, String)>,
    /// Give it a secret as a variable; may be repeated
    #[arg(long, value_name = "VARIABLE=SECRET", value_parser = arguments::variable)]
    secret_env: Vec<(String, String)>,
    /// Who it runs as [default: agent]
    #[arg(long, value_name = "USER", value_parser = ["root", "agent"])]
    user: Option<String>,
    /// A word of your own for it
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Give it a terminal
    #[arg(long)]
    pty: bool,
    /// Keep its stdin open, to be written to later
    #[arg(long, conflicts_with = "pty")]
    stdin: bool,
    /// Record its output with times
    #[arg(long)]
    record: bool,
    /// How much of its output is kept: the last bytes [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, allow_hyphen_values = true)]
    keep_output: Option<u64>,
    /// Print the whole record as JSON
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "ARGV")]
    argv: Vec<OsString>,
}

pub(crate) fn spawn(options: Spawn) -> ExitCode {
    perform(options.json, async |client| {
        let id = which::session(&client, &options.id).await?;
        let as_json = options.json;
        let process = client.start_process(&id, &request(options)?).await?;
        if as_json {
            output::json(&process)?
        } else {
            output::line(&process.id)?
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn request(options: Spawn) -> Result<StartProcess, Failure> {
    Ok(StartProcess {
        command: options.command,
        argv: arguments::argv(options.argv)?,
        cwd: options.cwd,
        env: options.env.into_iter().collect(),
        secret_env: options.secret_env.into_iter().collect(),
        redact_values: Vec::new(),
        user: options.user.as_deref().map(arguments::user),
        stdin: options.stdin.then_some(ProcessStdin::Open(true)),
        pty: options.pty.then(PtySize::default),
        timeout_ms: options.timeout,
        tag: options.tag,
        record: options.record.then_some(true),
        record_input: None,
        keep_output: options.keep_output,
    })
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom ps build --all")]
pub(crate) struct Ps {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    id: String,
    /// Those that have ended, too
    #[arg(short, long)]
    all: bool,
    /// Print JSON: {"processes": […], "in_room": […]}
    #[arg(long)]
    json: bool,
}

pub(crate) fn ps(options: Ps) -> ExitCode {
    perform(options.json, async |client| {
        let id = which::session(&client, &options.id).await?;
        let mut found = client.processes(&id).await?;
        if options.json {
            output::json(&found)?;
            return Ok(ExitCode::SUCCESS);
        }
        let ended = found.processes.iter().filter(|one| one.state != ProcessState::Running).count();
        if !options.all {
            found.processes.retain(|one| one.state == ProcessState::Running);
        }
        output::text(&table(&found.processes, Timestamp::now()))?;
        if ended > 0 && !options.all {
            complain(&format!(
                "{} not shown; --all shows them",
                output::count(ended as u64, "that has ended is", "that have ended are")
            ));
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn table(processes: &[Process], now: Timestamp) -> String {
    let mut table = Table::new(&["id", "kind", "name", "pid", "state", "age", "output", "command"]);
    for process in processes {
        let state = match (&process.state, &process.exit) {
            (ProcessState::Running, _) => "running".to_owned(),
            (ProcessState::Lost, _) => "lost".to_owned(),
            (ProcessState::Exited, exit) => format!("exit {}", exit.as_ref().map_or(0, |exit| exit.code)),
        };
        let kind = match process.kind {
            ProcessKind::Process => "process",
            ProcessKind::Terminal => "terminal",
            ProcessKind::Shell => "shell",
            ProcessKind::Service => "service",
        };
        let name = process.name.as_ref().or(process.tag.as_ref()).map_or("", String::as_str);
        let command: String = process.command.chars().take(60).collect();
        table.row([
            &process.id,
            kind,
            &clean(name),
            &process.pid.to_string(),
            &state,
            &ago(now, process.started),
            &format_bytes(process.stdout.written + process.stderr.written),
            &clean(&command),
        ]);
    }
    table.to_string()
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom logs build p-0a1b2c3d --follow")]
pub(crate) struct Logs {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    id: String,
    /// The process: its id or its number in the room
    #[arg(value_name = "PROCESS")]
    process: String,
    /// Go on until it has ended
    #[arg(short, long)]
    follow: bool,
    /// Its stdout alone
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,
    /// Its stderr alone
    #[arg(long)]
    stderr: bool,
    /// Begin at this byte of its stdout, or with --stderr of its stderr; the other one is left out
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    cursor: Option<u64>,
}

pub(crate) fn logs(options: Logs) -> ExitCode {
    perform(false, async |client| {
        let id = which::session(&client, &options.id).await?;
        let only_stdout = options.stdout || options.cursor.is_some() && !options.stderr;
        let stream = |stream, wanted: bool| {
            let (client, id, options) = (&client, &id, &options);
            async move { if wanted { show(client, id, options, stream).await } else { Ok(()) } }
        };
        tokio::try_join!(
            stream(OutputStream::Stdout, !options.stderr),
            stream(OutputStream::Stderr, !only_stdout)
        )?;
        Ok(ExitCode::SUCCESS)
    })
}

/// One stream of a process, to where it belongs here.
async fn show(client: &Client, id: &str, options: &Logs, stream: OutputStream) -> Result<(), Failure> {
    let name = if stream == OutputStream::Stdout { "stdout" } else { "stderr" };
    let wait = if options.follow { ONE_WAIT } else { Duration::ZERO };
    let mut cursor = options.cursor.unwrap_or(0);
    loop {
        let page = client.process_output((id, &options.process), stream, cursor, wait).await?;
        if page.missing > 0 {
            let bytes = output::count(page.missing, "byte", "bytes");
            complain(&format!("{bytes} of {name} are not kept any more"));
        }
        match stream {
            OutputStream::Stdout => output::bytes(&page.data)?,
            // A stderr that nobody reads is no reason to leave the stdout.
            OutputStream::Stderr => drop(std::io::stderr().write_all(&page.data)),
        }
        cursor = page.next_cursor;
        if page.end || page.data.is_empty() && !options.follow {
            return Ok(());
        }
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom kill build p-0a1b2c3d --signal INT")]
pub(crate) struct Kill {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    id: String,
    /// The process: its id or its number in the room
    #[arg(value_name = "PROCESS")]
    process: String,
    /// Which one: HUP, INT, QUIT, TERM, KILL, USR1, USR2, WINCH, STOP, CONT
    #[arg(short, long, value_name = "SIGNAL", default_value = "TERM")]
    signal: String,
    /// Everything that it started, wherever that is: KILL
    #[arg(long, conflicts_with = "signal")]
    tree: bool,
}

pub(crate) fn kill(options: Kill) -> ExitCode {
    perform(false, async |client| {
        let id = which::session(&client, &options.id).await?;
        let signal = match options.tree {
            true => SendSignal { signal: "KILL".into(), to: SignalTo::Tree },
            false => SendSignal { signal: options.signal, to: SignalTo::Group },
        };
        client.signal_process(&id, &options.process, &signal).await?;
        Ok(ExitCode::SUCCESS)
    })
}

#[derive(clap::Args)]
#[command(
    after_help = "Ends with the process's own status.\n\nExample:\n  workroom wait build p-0a1b2c3d --timeout 10m"
)]
pub(crate) struct Wait {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    id: String,
    /// The process: its id or its number in the room
    #[arg(value_name = "PROCESS")]
    process: String,
    /// No longer than this; exit status 124 then [default: as long as it takes]
    #[arg(long, value_name = "TIME", value_parser = arguments::milliseconds, allow_hyphen_values = true)]
    timeout: Option<u64>,
    /// Print the whole record as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn wait(options: Wait) -> ExitCode {
    perform(options.json, async |client| {
        let id = which::session(&client, &options.id).await?;
        let process = wait_for(&client, &id, &options).await?;
        if options.json {
            output::json(&process)?;
        }
        Ok(match (process.state, process.exit) {
            (ProcessState::Running, _) => ExitCode::from(124),
            (_, Some(exit)) => ExitCode::from(u8::try_from(exit.code).unwrap_or(crate::EXIT_FAULT)),
            (_, None) => {
                complain(&format!("it was lost: {}", process.reason.as_deref().unwrap_or("its room ended")));
                ExitCode::from(crate::EXIT_FAULT)
            }
        })
    })
}

async fn wait_for(client: &Client, id: &str, options: &Wait) -> Result<Process, Failure> {
    let began = Instant::now();
    let left = || options.timeout.map(|time| Duration::from_millis(time).saturating_sub(began.elapsed()));
    loop {
        let now = left().map_or(ONE_WAIT, |left| left.min(ONE_WAIT));
        let process = client.wait_for_process(id, &options.process, now).await?;
        if process.state != ProcessState::Running || left() == Some(Duration::ZERO) {
            return Ok(process);
        }
    }
}
