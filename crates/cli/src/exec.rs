//! `workroom exec`: one command in a session's room, its streams and its exit status as if it ran here.

use crate::remote::{Failure, complain, perform};
use crate::{EXIT_FAULT, arguments, output, which};
use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;
use workroom_client::{Chunk, Client, ExecOutput, with_stdin};
use workroom_types::{Encoding, ExecRequest, ExecResult, format_bytes, parse_bytes};

/// What a command may be given to read: it travels whole, in one request.
const LARGEST_STDIN: u64 = 4 << 20;

#[derive(clap::Args)]
#[command(
    override_usage = "workroom exec [OPTIONS] SESSION -- PROGRAM ARGUMENTS…\n       workroom exec [OPTIONS] SESSION -c COMMAND",
    after_help = "Examples:\n  workroom exec 0a1b -- python3 main.py\n  workroom exec 0a1b --timeout 10m -c 'make -j4 && make test'",
    group = clap::ArgGroup::new("what").required(true).args(["command", "argv"])
)]
pub(crate) struct Options {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    id: String,
    /// A command for the room's shell (/bin/bash -c, else /bin/sh -c)
    #[arg(short = 'c', long = "command", value_name = "COMMAND")]
    command: Option<String>,
    /// End the command and all it started after this long (500ms, 30s, 5m); exit status 124 [default: the server's, 30s]
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
    /// Who it runs as; neither has any capability [default: agent]
    #[arg(long, value_name = "USER", value_parser = ["root", "agent"])]
    user: Option<String>,
    /// What is kept of each stream: the first and the last half [default: the server's, 1M]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, allow_hyphen_values = true)]
    max_output: Option<u64>,
    /// With -c: a login shell
    #[arg(long, conflicts_with = "argv")]
    login: bool,
    /// Do not forward stdin
    #[arg(long)]
    no_stdin: bool,
    /// Wait for the end and print one JSON object with the result and the output
    #[arg(long)]
    json: bool,
    /// With --json: write the output in base64, which keeps every byte
    #[arg(long, requires = "json")]
    base64: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "ARGV")]
    argv: Vec<OsString>,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let as_json = options.json;
    perform(as_json, async |client| {
        let id = which::session(&client, &options.id).await?;
        let request = request(options)?;
        if as_json {
            let result = client.exec(&id, &request).await?;
            output::json(&result)?;
            return Ok(status(&result));
        }
        stream(&client, &id, &request).await
    })
}

fn request(options: Options) -> Result<ExecRequest, Failure> {
    let request = ExecRequest {
        command: options.command,
        argv: arguments::argv(options.argv)?,
        login: options.login.then_some(true),
        cwd: options.cwd,
        env: options.env.into_iter().collect(),
        secret_env: options.secret_env.into_iter().collect(),
        timeout_ms: options.timeout,
        user: options.user.as_deref().map(arguments::user),
        max_output: options.max_output,
        // What is passed through keeps every byte; what is printed as JSON is for reading.
        encoding: (options.base64 || !options.json).then_some(Encoding::Base64),
        ..ExecRequest::default()
    };
    let input = std::io::stdin();
    if options.no_stdin || input.is_terminal() {
        return Ok(request);
    }
    let bytes = read_stdin(input.lock())?;
    Ok(if bytes.is_empty() { request } else { with_stdin(request, bytes) })
}

fn read_stdin(input: impl Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    match input.take(LARGEST_STDIN + 1).read_to_end(&mut bytes) {
        // Closed by whoever started us, or a directory: there is nothing to forward.
        Err(_) => Ok(Vec::new()),
        Ok(read) if read as u64 > LARGEST_STDIN => Err(Failure::problem(
            format!("stdin holds more than {}", format_bytes(LARGEST_STDIN)),
            "put it into a file of the workspace first, in parts, and let the command read that",
        )),
        Ok(_) => Ok(bytes),
    }
}

async fn stream(client: &Client, id: &str, request: &ExecRequest) -> Result<ExitCode, Failure> {
    let mut outputs = client.exec_stream(id, request).await?;
    while let Some(next) = outputs.next().await? {
        match next {
            ExecOutput::Stdout(chunk) => {
                say_missing("stdout", &chunk);
                output::bytes(&chunk.data)?;
            }
            ExecOutput::Stderr(chunk) => {
                say_missing("stderr", &chunk);
                // A stderr that nobody reads is no reason to leave the command's stdout.
                let _ = std::io::stderr().write_all(&chunk.data);
            }
            ExecOutput::Exit(result) => {
                if result.timed_out {
                    let after = std::time::Duration::from_millis(result.duration_ms);
                    complain(&format!(
                        "the command was ended after its time of {after:?}; --timeout gives it more"
                    ));
                }
                if result.oom_killed {
                    complain(
                        "the kernel ended a process of the room for memory; `workroom show` names the limit",
                    );
                }
                return Ok(status(&result));
            }
        }
    }
    Ok(ExitCode::from(EXIT_FAULT))
}

fn say_missing(stream: &str, chunk: &Chunk) {
    if chunk.missing > 0 {
        complain(&format!(
            "{} of {stream} are missing here: they came faster than they were read",
            format_bytes(chunk.missing)
        ));
    }
}

fn status(result: &ExecResult) -> ExitCode {
    ExitCode::from(u8::try_from(result.exit_code).unwrap_or(EXIT_FAULT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        options: Options,
    }

    fn parsed(words: &[&str]) -> Result<ExecRequest, String> {
        let words = ["exec", "0a1b", "--no-stdin"].iter().chain(words);
        let options = Only::try_parse_from(words).map_err(|error| error.to_string())?.options;
        request(options).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn a_command_or_a_program_and_not_both() {
        let shell = parsed(&["-c", "echo hi", "--login"]).unwrap();
        assert_eq!((shell.command.as_deref(), shell.argv, shell.login), (Some("echo hi"), None, Some(true)));
        let program = parsed(&["--timeout=1.5s", "--env=A=1", "--", "ls", "-c"]).unwrap();
        assert_eq!(program.argv, Some(vec!["ls".into(), "-c".into()]));
        assert_eq!((program.timeout_ms, program.env["A"].as_str()), (Some(1500), "1"));
        for words in [&[][..], &["-c", "x", "--", "y"], &["--login", "--", "x"], &["--base64", "--", "x"]] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn bytes_are_kept_unless_json_is_read() {
        assert_eq!(parsed(&["--", "x"]).unwrap().encoding, Some(Encoding::Base64));
        assert_eq!(parsed(&["--json", "--", "x"]).unwrap().encoding, None);
        assert_eq!(parsed(&["--json", "--base64", "--", "x"]).unwrap().encoding, Some(Encoding::Base64));
    }

    #[test]
    fn stdin_has_a_limit_and_says_so() {
        assert_eq!(read_stdin(&b"hello"[..]).unwrap(), b"hello");
        assert_eq!(read_stdin(std::io::repeat(0).take(LARGEST_STDIN)).unwrap().len() as u64, LARGEST_STDIN);
        let refused = read_stdin(std::io::repeat(0)).unwrap_err();
        assert!(refused.document()["detail"].as_str().unwrap().contains("4 MiB"));
    }
}
