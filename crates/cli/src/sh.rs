//! `workroom sh`: one command in a stateful shell of a session; list, make and remove such shells.

use crate::remote::{Failure, complain, perform};
use crate::table::Table;
use crate::{EXIT_FAULT, arguments, output, which};
use std::io::Write;
use std::process::ExitCode;
use workroom_client::Client;
use workroom_types::{CreateShell, RunInShell, ShellKind, ShellList, ShellState, parse_bytes};

/// The shell that is made by its first command.
const DEFAULT: &str = "default";

#[derive(clap::Args)]
#[command(
    override_usage = "workroom sh [OPTIONS] SESSION -- COMMAND…\n       workroom sh [OPTIONS] SESSION --new\n       workroom sh SESSION --list | --rm SHELL",
    after_help = "What a command changes is there for the next one: directory, variables, functions, aliases, jobs.\n\nExamples:\n  workroom sh 0a1b -- 'cd src; export CC=clang'\n  workroom sh 0a1b --timeout 10m -- 'make && make test'\n  workroom sh 0a1b --new --name tests --env CI=1",
    group = clap::ArgGroup::new("what").required(true).args(["words", "new", "list", "rm"])
)]
pub(crate) struct Options {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// Which shell: its id or its name [default: the session's own, made when it is first used]
    #[arg(long, value_name = "SHELL")]
    shell: Option<String>,
    /// Interrupt the command, then kill it, after this long (500ms, 30s, 5m); exit status 124 [default: the server's, 30s]
    #[arg(long, value_name = "TIME", value_parser = arguments::milliseconds, allow_hyphen_values = true)]
    timeout: Option<u64>,
    /// What is given of each stream: the first and the last half [default: the server's, 1M]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, allow_hyphen_values = true)]
    max_output: Option<u64>,
    /// Make a shell and print its id
    #[arg(long, conflicts_with_all = ["shell", "timeout", "max_output"])]
    new: bool,
    /// With --new: what to call it
    #[arg(long, value_name = "NAME", requires = "new")]
    name: Option<String>,
    /// With --new: which program
    #[arg(long, value_name = "KIND", value_parser = ["bash", "sh"], requires = "new")]
    kind: Option<String>,
    /// With --new: where in the room it starts [default: /workspace]
    #[arg(long, value_name = "DIR", requires = "new")]
    cwd: Option<String>,
    /// With --new: set an environment variable; may be repeated
    #[arg(long, value_name = "K=V", value_parser = arguments::variable, requires = "new")]
    env: Vec<(String, String)>,
    /// With --new: give it a secret as a variable; may be repeated
    #[arg(long, value_name = "VARIABLE=SECRET", value_parser = arguments::variable, requires = "new")]
    secret_env: Vec<(String, String)>,
    /// With --new: who it runs as; neither has any capability [default: agent]
    #[arg(long, value_name = "USER", value_parser = ["root", "agent"], requires = "new")]
    user: Option<String>,
    /// List the session's shells
    #[arg(long)]
    list: bool,
    /// End this shell, with everything that was started in it
    #[arg(long, value_name = "SHELL")]
    rm: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// The command, as it would be typed; several words are joined by spaces
    #[arg(last = true, value_name = "COMMAND")]
    words: Vec<String>,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let as_json = options.json;
    perform(as_json, async |client| {
        let id = which::session(&client, &options.session).await?;
        if options.list {
            let list = client.shells(&id).await?;
            if as_json { output::json(&list)? } else { output::text(&table(&list))? }
        } else if let Some(shell) = &options.rm {
            // Removing what never was succeeds too, and somebody who has mistyped is not to be told so.
            client.shell(&id, shell).await?;
            client.remove_shell(&id, shell).await?;
            if !as_json {
                output::line(&format!("{shell}  removed"))?;
            }
        } else if options.new {
            let made = client.create_shell(&id, &to_make(options)).await?;
            if as_json { output::json(&made)? } else { output::line(&made.id)? }
        } else {
            return command(&client, &id, options).await;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn to_make(options: Options) -> CreateShell {
    CreateShell {
        shell: options.kind.map(|kind| if kind == "sh" { ShellKind::Sh } else { ShellKind::Bash }),
        cwd: options.cwd,
        env: options.env.into_iter().collect(),
        secret_env: options.secret_env.into_iter().collect(),
        user: options.user.as_deref().map(arguments::user),
        name: options.name,
        record: None,
    }
}

async fn command(client: &Client, id: &str, options: Options) -> Result<ExitCode, Failure> {
    let request = RunInShell {
        command: options.words.join(" "),
        timeout_ms: options.timeout,
        max_output: options.max_output,
        encoding: None,
        redact_values: Vec::new(),
    };
    let shell = options.shell.as_deref().unwrap_or(DEFAULT);
    let status = |code: i32| ExitCode::from(u8::try_from(code).unwrap_or(EXIT_FAULT));
    if options.json {
        let result = client.run_in_shell(id, shell, &request).await?;
        output::json(&result)?;
        return Ok(status(result.exit_code));
    }
    let (result, [stdout, stderr]) = client.run_in_shell_bytes(id, shell, &request).await?;
    let reason = result.shell.reason.as_deref().unwrap_or("it is not known why");
    if result.shell.replaced {
        complain(&format!("the shell before had ended ({reason}): this is a new one, without its state"));
    }
    // A stderr that nobody reads is no reason to leave the command's stdout.
    let _ = std::io::stderr().write_all(&stderr);
    output::bytes(&stdout)?;
    if result.timed_out {
        complain("the command was ended when its time was over; --timeout gives it more");
    }
    if result.shell.ended {
        complain(&format!("the shell has ended ({reason}); the next command gets a new one"));
    }
    Ok(status(result.exit_code))
}

fn table(list: &ShellList) -> String {
    let mut table = Table::new(&["id", "name", "shell", "state", "pid", "directory"]);
    for shell in &list.shells {
        let state = match shell.state {
            ShellState::Ready => "ready",
            ShellState::Busy => "busy",
            ShellState::Ended => "ended",
        };
        table.row([
            &shell.id,
            shell.name.as_deref().unwrap_or(""),
            shell.shell.name(),
            state,
            &shell.pid.to_string(),
            &output::clean(&shell.cwd),
        ]);
    }
    table.to_string()
}
