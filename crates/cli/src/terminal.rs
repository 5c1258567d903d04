//! `workroom terminal`: terminals of a session, driven from scripts by text, keys and what is on the screen.

use crate::remote::{Failure, perform};
use crate::shell::shell_named;
use crate::table::Table;
use crate::{arguments, output, which};
use std::process::ExitCode;
use workroom_client::{Client, ScreenOptions};
use workroom_types::{
    EndedBy, InputTaken, OpenTerminal, Problem, ProblemCode, Process, ProcessState, PtySize, TerminalInput,
    TerminalKey, TerminalKeys, TerminalScreen, Timestamp, WaitForTerminal,
};

/// As for a command that took too long, and for one that went wrong.
const EXIT_TIMED_OUT: u8 = 124;
const EXIT_ENDED: u8 = 1;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

/// One terminal of a session.
#[derive(clap::Args)]
struct Which {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// The terminal: its id or its name
    #[arg(value_name = "TERMINAL")]
    terminal: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// List the terminals, the newest first
    #[command(after_help = "Example:\n  workroom terminal ls build")]
    Ls {
        /// The session: its id, the beginning of one, or its name
        #[arg(value_name = "SESSION")]
        session: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Open a terminal and print its id
    #[command(after_help = "Example:\n  workroom terminal open build --name main --cols 100")]
    Open {
        /// The session: its id, the beginning of one, or its name
        #[arg(value_name = "SESSION")]
        session: String,
        /// What it can be called
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// 20 to 500 [default: 120]
        #[arg(long, value_name = "N", allow_hyphen_values = true)]
        cols: Option<u16>,
        /// 10 to 200 [default: 40]
        #[arg(long, value_name = "N", allow_hyphen_values = true)]
        rows: Option<u16>,
        /// Where in the room its shell starts [default: /workspace]
        #[arg(long, value_name = "DIR")]
        cwd: Option<String>,
        /// Set an environment variable; may be repeated
        #[arg(long, value_name = "K=V", value_parser = arguments::variable)]
        env: Vec<(String, String)>,
        /// Who it runs as [default: agent]
        #[arg(long, value_name = "USER", value_parser = ["root", "agent"])]
        user: Option<String>,
        /// Which shell [default: bash where there is one]
        #[arg(long, value_name = "SHELL", value_parser = ["bash", "sh"])]
        shell: Option<String>,
        /// Do not record it
        #[arg(long)]
        no_record: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Type text, and Enter
    #[command(after_help = "Example:\n  workroom terminal send build main 'make test'")]
    Send {
        #[command(flatten)]
        which: Which,
        #[arg(value_name = "TEXT", allow_hyphen_values = true)]
        text: String,
        /// Without Enter
        #[arg(long, conflicts_with = "paste")]
        no_enter: bool,
        /// As a terminal pastes it, without Enter
        #[arg(long)]
        paste: bool,
    },
    /// Press keys
    #[command(
        after_help = "Example:\n  workroom terminal keys build main Escape :wq Enter\n\nWhat is not the name of a key is typed."
    )]
    Keys {
        #[command(flatten)]
        which: Which,
        #[arg(value_name = "KEY", required = true, allow_hyphen_values = true)]
        keys: Vec<String>,
    },
    /// Print what was written, as plain text
    #[command(after_help = "Example:\n  workroom terminal text build main")]
    Text {
        #[command(flatten)]
        which: Which,
        /// From this byte of output on
        #[arg(long, value_name = "BYTE", default_value_t = 0, allow_hyphen_values = true)]
        cursor: u64,
    },
    /// Print the screen
    #[command(after_help = "Example:\n  workroom terminal screen build main --scrollback 100")]
    Screen {
        #[command(flatten)]
        which: Which,
        /// Also this many rows that have scrolled off the top
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20_000), allow_hyphen_values = true)]
        scrollback: u32,
        /// With --json: also colours and attributes
        #[arg(long, requires = "json")]
        attributes: bool,
    },
    /// Wait for text, a pattern, quiet or the end, and print the screen
    #[command(
        after_help = "Example:\n  workroom terminal wait build main --regex '^\\$ $' --timeout 1m\n\nExit status: 0 it happened, 124 the time was over, 1 the shell ended before.",
        group = clap::ArgGroup::new("what").required(true).multiple(true).args(["text", "regex", "idle", "exit"])
    )]
    Wait {
        #[command(flatten)]
        which: Which,
        /// This, on the screen or written
        #[arg(long, value_name = "TEXT")]
        text: Option<String>,
        /// A match; ^ and $ are the ends of a line
        #[arg(long, value_name = "PATTERN")]
        regex: Option<String>,
        /// No output for so long
        #[arg(long, value_name = "TIME", value_parser = arguments::milliseconds, allow_hyphen_values = true)]
        idle: Option<u64>,
        /// The end of its shell
        #[arg(long)]
        exit: bool,
        /// Look only at what is written from this byte of output on
        #[arg(long, value_name = "BYTE", allow_hyphen_values = true)]
        cursor: Option<u64>,
        /// How long [default: 30s]
        #[arg(long, value_name = "TIME", value_parser = arguments::milliseconds, allow_hyphen_values = true)]
        timeout: Option<u64>,
    },
    /// Change the size
    #[command(after_help = "Example:\n  workroom terminal resize build main --cols 100 --rows 30")]
    Resize {
        #[command(flatten)]
        which: Which,
        #[arg(long, value_name = "N", allow_hyphen_values = true)]
        cols: Option<u16>,
        #[arg(long, value_name = "N", allow_hyphen_values = true)]
        rows: Option<u16>,
    },
    /// End its shell: ask, wait, kill
    #[command(after_help = "Example:\n  workroom terminal close build main --grace 1s")]
    Close {
        #[command(flatten)]
        which: Which,
        /// How long it has to end by itself [default: 5s]
        #[arg(long, value_name = "TIME", value_parser = arguments::milliseconds, allow_hyphen_values = true)]
        grace: Option<u64>,
    },
}

pub(crate) fn run(options: Options) -> ExitCode {
    let as_json = options.verb.as_json();
    perform(as_json, async |client| match options.verb {
        Verb::Ls { session, json } => ls(&client, &session, json).await,
        Verb::Open { session, name, cols, rows, cwd, env, user, shell, no_record, json } => {
            let id = which::session(&client, &session).await?;
            let request = OpenTerminal {
                cols,
                rows,
                shell: shell.as_deref().map(shell_named),
                cwd,
                env: env.into_iter().collect(),
                name,
                user: user.as_deref().map(crate::arguments::user),
                record: no_record.then_some(false),
                ..OpenTerminal::default()
            };
            let opened = client.open_terminal(&id, &request).await?;
            if json { output::json(&opened) } else { output::line(&opened.id) }?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Send { which, text, no_enter, paste } => {
            let input = match paste {
                true => TerminalInput { paste: Some(text), ..TerminalInput::default() },
                false => TerminalInput {
                    text: Some(text),
                    enter: no_enter.then_some(false),
                    ..TerminalInput::default()
                },
            };
            which.types(&client, &input).await
        }
        Verb::Keys { which, keys } => {
            let keys = Some(TerminalKeys::Many(keys.into_iter().map(key_or_text).collect()));
            which.types(&client, &TerminalInput { keys, ..TerminalInput::default() }).await
        }
        Verb::Text { which, cursor } => which.text(&client, cursor).await,
        Verb::Screen { which, scrollback, attributes } => {
            let id = which.session(&client).await?;
            let options = ScreenOptions { scrollback, attributes };
            let screen = client.screen(&id, &which.terminal, options).await?;
            if which.json { output::json(&screen) } else { output::text(&rows(&screen)) }?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Wait { which, text, regex, idle, exit, cursor, timeout } => {
            let request = WaitForTerminal { idle_ms: idle, text, regex, exit, cursor, timeout_ms: timeout };
            which.wait(&client, &request).await
        }
        Verb::Resize { which, cols, rows } => {
            let id = which.session(&client).await?;
            let process = client.resize_terminal(&id, &which.terminal, PtySize { cols, rows }).await?;
            if which.json { output::json(&process) } else { output::line(&size(&process)) }?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Close { which, grace } => {
            let id = which.session(&client).await?;
            let Some(closed) = client.close_terminal(&id, &which.terminal, grace).await? else {
                let detail = format!("there is no terminal \"{}\" in this session", which.terminal);
                let hint = "`workroom terminal ls` lists those that there are";
                return Err(Problem::new(ProblemCode::NotFound, detail, hint).into());
            };
            if which.json {
                output::json(&closed)?;
            } else {
                let how = match closed.ended_by {
                    EndedBy::Itself => "had ended",
                    EndedBy::Hup => "ended",
                    EndedBy::Kill => "killed",
                };
                output::line(&format!("{}  {how}", closed.process.id))?;
            }
            Ok(ExitCode::SUCCESS)
        }
    })
}

impl Verb {
    fn as_json(&self) -> bool {
        match self {
            Verb::Ls { json, .. } | Verb::Open { json, .. } => *json,
            Verb::Send { which, .. }
            | Verb::Keys { which, .. }
            | Verb::Text { which, .. }
            | Verb::Screen { which, .. }
            | Verb::Wait { which, .. }
            | Verb::Resize { which, .. }
            | Verb::Close { which, .. } => which.json,
        }
    }
}

impl Which {
    async fn session(&self, client: &Client) -> Result<String, Failure> {
        which::session(client, &self.session).await
    }

    async fn types(&self, client: &Client, input: &TerminalInput) -> Result<ExitCode, Failure> {
        let id = self.session(client).await?;
        let taken: InputTaken = client.type_into_terminal(&id, &self.terminal, input).await?;
        if self.json {
            output::json(&taken)?;
        }
        if taken.complete {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::problem(
            format!("the program took {} bytes and reads no more for now", taken.written),
            "send the rest when it reads again",
        ))
    }

    async fn text(&self, client: &Client, mut cursor: u64) -> Result<ExitCode, Failure> {
        let id = self.session(client).await?;
        loop {
            let page = client.terminal_text(&id, &self.terminal, cursor).await?;
            if self.json {
                output::json(&page)?;
                return Ok(ExitCode::SUCCESS);
            }
            output::text(&page.text)?;
            if page.end || page.text.is_empty() {
                if !page.unfinished.is_empty() {
                    output::line(&page.unfinished)?;
                }
                return Ok(ExitCode::SUCCESS);
            }
            cursor = page.next_cursor;
        }
    }

    async fn wait(&self, client: &Client, request: &WaitForTerminal) -> Result<ExitCode, Failure> {
        let id = self.session(client).await?;
        let waited = client.wait_for_terminal(&id, &self.terminal, request).await?;
        if self.json { output::json(&waited) } else { output::text(&rows(&waited.screen)) }?;
        Ok(match waited.matched {
            Some(_) => ExitCode::SUCCESS,
            None if waited.timed_out => ExitCode::from(EXIT_TIMED_OUT),
            None => ExitCode::from(EXIT_ENDED),
        })
    }
}

async fn ls(client: &Client, session: &str, json: bool) -> Result<ExitCode, Failure> {
    let id = which::session(client, session).await?;
    let list = client.terminals(&id).await?;
    if json {
        output::json(&list)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["id", "name", "state", "size", "age"]);
    let now = Timestamp::now();
    for terminal in &list.terminals {
        let state = match (terminal.state, &terminal.exit) {
            (ProcessState::Running, _) => "running".to_owned(),
            (ProcessState::Exited, Some(exit)) => format!("exited {}", exit.code),
            (ProcessState::Exited, None) => "exited".to_owned(),
            (ProcessState::Lost, _) => "lost".to_owned(),
        };
        let name = terminal.name.as_deref().unwrap_or("");
        table.row([&terminal.id, name, &state, &size(terminal), &output::ago(now, terminal.started)]);
    }
    output::text(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn size(process: &Process) -> String {
    process.pty.map_or(String::new(), |size| format!("{}x{}", size.cols, size.rows))
}

/// A key if there is one of that name; else it is text, as people type `:wq` between keys.
fn key_or_text(word: String) -> TerminalKey {
    match workroom_terminal::keys::key(&word, workroom_terminal::KeyModes::default()) {
        Ok(_) => TerminalKey::Key(word),
        Err(workroom_terminal::KeyError::Unknown { near, .. }) if near.is_empty() => {
            TerminalKey::Text { text: word }
        }
        // A name that is mistyped is told of by the server.
        Err(_) => TerminalKey::Key(word),
    }
}

/// The rows, without the empty ones at the end.
fn rows(screen: &TerminalScreen) -> String {
    let end = screen.text.iter().rposition(|row| !row.is_empty()).map_or(0, |at| at + 1);
    let all = screen.scrollback.iter().chain(&screen.text[..end]);
    all.map(|row| format!("{}\n", output::clean(row))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_key_is_text() {
        let key = |word: &str| key_or_text(word.to_owned());
        assert_eq!(key("Escape"), TerminalKey::Key("Escape".into()));
        assert_eq!(key("C-c"), TerminalKey::Key("C-c".into()));
        assert_eq!(key(":wq!"), TerminalKey::Text { text: ":wq!".into() });
        assert_eq!(key("Entr"), TerminalKey::Key("Entr".into()), "refused, with a suggestion");
    }
}
