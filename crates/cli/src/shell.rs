//! `workroom shell`: a terminal of a session on the caller's own.
//!
//! ```text
//!  caller's terminal, raw ──keys──▶ line.rs: a WebSocket ──▶ the session's terminal
//!        ▲                               │ bytes, from a cursor on
//!        └───────────────────────────────┘
//! ```
//!
//! The session's terminal goes on whatever becomes of this. A line that breaks is made again from the cursor.

mod keyboard;
mod line;
mod modes;
mod paint;

use crate::remote::{Failure, complain, perform};
use crate::{EXIT_FAULT, arguments, output, screen, which};
use keyboard::Keyboard;
use line::{Left, Line, Viewer};
use modes::Modes;
use screen::RawMode;
use std::process::ExitCode;
use workroom_client::Client;
use workroom_types::{OpenTerminal, ProblemCode, Process, ProcessState, TerminalShell, TerminalSize};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  workroom shell build\n  workroom shell build --name main        # opened, or attached to if it is open\n  workroom shell build --attach main --read-only"
)]
pub(crate) struct Options {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// Attach to the terminal of this name, and open it if there is none
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Attach to a terminal that is open, by its id or its name
    #[arg(long, value_name = "TERMINAL", conflicts_with_all = ["name", "cwd", "env", "secret_env", "user", "shell"])]
    attach: Option<String>,
    /// Only watch: no key is passed on, and the terminal keeps its size
    #[arg(long, requires = "attach")]
    read_only: bool,
    /// The key that leaves the terminal and lets it go on
    #[arg(long, value_name = "KEY", default_value = "C-]")]
    detach_key: String,
    /// Where in the room its shell starts [default: /workspace]
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
    /// Which shell [default: bash where there is one]
    #[arg(long, value_name = "SHELL", value_parser = ["bash", "sh"])]
    shell: Option<String>,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(false, async |client| {
        let detach = keyboard::detach_key(&options.detach_key)?;
        if !screen::both_are_terminals() {
            return Err(Failure::problem(
                "stdin and stdout are not a terminal",
                "in scripts use `workroom terminal` or `workroom exec`",
            ));
        }
        let session = which::session(&client, &options.session).await?;
        let (process, is_new) = choose(&client, &session, &options).await?;
        let called = process.name.as_deref().unwrap_or(&process.id).to_owned();
        let verb = if options.read_only { "watching" } else { "on" };
        complain(&format!("{verb} terminal {called}; {} leaves it and lets it go on", options.detach_key));
        let own = screen::size();
        if let Some(size) = process.pty.filter(|_| options.read_only)
            && (size.cols > own.cols || size.rows > own.rows)
        {
            let sizes = format!("{}x{}, and this window {}x{}", size.cols, size.rows, own.cols, own.rows);
            complain(&format!("the terminal has {sizes}; make the window larger to see all of it"));
        }
        let viewer = Viewer {
            client,
            session: session.clone(),
            process,
            read_only: options.read_only,
            detach,
            modes: Modes::default(),
            cursor: 0,
            keyboard: Keyboard::of_stdin().map_err(|error| broken("the terminal", &error))?,
            signals: line::Signals::new().map_err(|error| broken("signals", &error))?,
        };
        let left = attend(viewer, is_new).await?;
        Ok(match left {
            Left::Ended(process) => status(&process),
            Left::Detached => {
                complain(&format!("left; `workroom shell {session} --attach {called}` comes back"));
                ExitCode::SUCCESS
            }
            Left::Told(signal) => ExitCode::from(128 + signal),
        })
    })
}

fn broken(what: &str, error: &std::io::Error) -> Failure {
    Failure::problem(format!("{what} cannot be waited for: {error}"), "")
}

/// Stays on the terminal; the caller's own is as before when this returns.
async fn attend(mut viewer: Viewer, is_new: bool) -> Result<Left, Failure> {
    let raw = RawMode::enter();
    let left = viewer.stay(if is_new { Line::From(0) } else { Line::Painted }).await;
    // What the program has switched on is switched off; then the prompt has a line of its own.
    let mut last = viewer.modes.undo();
    if !matches!(left, Ok(Left::Ended(_))) {
        last.push_str("\r\n");
    }
    let _ = output::text(&last);
    drop(raw);
    left
}

/// The terminal that is meant, and whether it was opened for this.
async fn choose(client: &Client, session: &str, options: &Options) -> Result<(Process, bool), Failure> {
    if let Some(terminal) = &options.attach {
        return Ok((client.terminal(session, terminal).await?, false));
    }
    if let Some(name) = &options.name {
        match client.terminal(session, name).await {
            Ok(process) if process.state == ProcessState::Running => return Ok((process, false)),
            Ok(_) => {}
            Err(error) if error.problem().map(|problem| problem.code) == Some(ProblemCode::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let size = own_size();
    let request = OpenTerminal {
        cols: Some(size.cols),
        rows: Some(size.rows),
        shell: options.shell.as_deref().map(shell_named),
        cwd: options.cwd.clone(),
        env: options.env.iter().cloned().collect(),
        secret_env: options.secret_env.iter().cloned().collect(),
        name: options.name.clone(),
        user: options.user.as_deref().map(arguments::user),
        ..OpenTerminal::default()
    };
    Ok((client.open_terminal(session, &request).await?, true))
}

pub(crate) fn shell_named(shell: &str) -> TerminalShell {
    if shell == "sh" { TerminalShell::Sh } else { TerminalShell::Bash }
}

/// The size of the caller's terminal, or the nearest that a terminal of a session can have.
fn own_size() -> TerminalSize {
    let size = screen::size();
    let nearest = workroom_terminal::Size::nearest(size.cols, size.rows);
    TerminalSize { cols: nearest.cols(), rows: nearest.rows() }
}

fn status(process: &Process) -> ExitCode {
    match &process.exit {
        Some(exit) => ExitCode::from(u8::try_from(exit.code).unwrap_or(EXIT_FAULT)),
        None => {
            let why = process.reason.as_deref().unwrap_or("nobody knows how");
            complain(&format!("the terminal is gone: {why}"));
            ExitCode::from(EXIT_FAULT)
        }
    }
}
