//! `workroom service`: long-running commands of a session, defined, kept up, stopped and read.

use crate::output::clean;
use crate::remote::{Failure, complain, perform};
use crate::table::Table;
use crate::{arguments, output, which};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use workroom_client::{Client, LogOptions, LogOutput};
use workroom_types::{
    Backoff, HttpReadiness, OutputStream, Readiness, RestartPolicy, Service, ServiceSpec, ServiceState,
    Timestamp,
};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  workroom service build put web --http 8000 --restart on_failure -- python3 -m http.server 8000\n  \
                  workroom service build logs web --follow"
)]
pub(crate) struct Options {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Define a service and start it; ends with 1 if it does not become ready
    Put(Box<Put>),
    /// List the services
    Ls(Ls),
    /// Show everything about a service
    Show(Named),
    /// Start a service, and those that it depends on
    Start(Started),
    /// Stop a service
    Stop(Stop),
    /// Stop a service and start it again
    Restart(Started),
    /// Print what a service wrote in its current or last run
    Logs(Logs),
    /// Stop a service and forget it
    Rm(Named),
}

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  workroom service build put db --tcp 5432 --autostart -c 'exec postgres -D data'",
    group = clap::ArgGroup::new("ready").args(["ready_file", "tcp", "http", "ready_command"])
)]
struct Put {
    /// What to call it: up to 64 letters, digits, '.', '_' and '-'
    #[arg(value_name = "NAME")]
    name: String,
    /// Take the definition from a file of JSON or TOML; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ready", "argv", "command", "cwd", "env", "secret_env", "user", "restart", "backoff", "most_restarts", "depends_on", "ready_timeout", "ready_interval", "stop_timeout", "autostart"])]
    file: Option<PathBuf>,
    /// A command for the room's shell
    #[arg(short, long, value_name = "COMMAND", conflicts_with = "argv")]
    command: Option<String>,
    /// The program and its arguments
    #[arg(value_name = "ARGV", last = true)]
    argv: Vec<String>,
    /// The directory to start in [default: /workspace]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// A variable of its environment
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = arguments::variable)]
    env: Vec<(String, String)>,
    /// Give it a secret as a variable; may be repeated
    #[arg(long, value_name = "VARIABLE=SECRET", value_parser = arguments::variable)]
    secret_env: Vec<(String, String)>,
    /// Who it runs as [default: agent]
    #[arg(long, value_name = "USER", value_parser = ["agent", "root"])]
    user: Option<String>,
    /// Ready when there is this file
    #[arg(long, value_name = "PATH")]
    ready_file: Option<String>,
    /// Ready when this port takes connections
    #[arg(long, value_name = "PORT", allow_hyphen_values = true)]
    tcp: Option<u16>,
    /// Ready when this answers with 200 to 399
    #[arg(long, value_name = "PORT[/PATH]", value_parser = http)]
    http: Option<HttpReadiness>,
    /// Ready when this command exits with 0
    #[arg(long, value_name = "COMMAND")]
    ready_command: Option<String>,
    /// When to start it again after it has ended
    #[arg(long, value_name = "WHEN", value_parser = ["never", "on_failure", "always"])]
    restart: Option<String>,
    /// How long to wait before it is started again: at first, and at most
    #[arg(long, value_name = "FIRST[..MOST]", value_parser = backoff)]
    backoff: Option<Backoff>,
    /// Restarts in a row after which it has failed [default: 5]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    most_restarts: Option<u32>,
    /// A service that is to be ready before
    #[arg(long, value_name = "NAME")]
    depends_on: Vec<String>,
    /// How long it may take to be ready [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = arguments::milliseconds, allow_hyphen_values = true)]
    ready_timeout: Option<u64>,
    /// Between two looks whether it is ready [default: 500ms]
    #[arg(long, value_name = "TIME", value_parser = arguments::milliseconds, allow_hyphen_values = true)]
    ready_interval: Option<u64>,
    /// From TERM to KILL [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = arguments::milliseconds, allow_hyphen_values = true)]
    stop_timeout: Option<u64>,
    /// Come back when the session starts again
    #[arg(long)]
    autostart: bool,
    /// Do not wait until it is ready
    #[arg(long)]
    no_wait: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Ls {
    /// Print JSON: {"services": […]}
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Named {
    #[arg(value_name = "NAME")]
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Started {
    #[arg(value_name = "NAME")]
    name: String,
    /// Do not wait until it is ready
    #[arg(long)]
    no_wait: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Stop {
    #[arg(value_name = "NAME")]
    name: String,
    /// Stop those that depend on it before
    #[arg(long)]
    cascade: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom service build logs web --tail 20 --follow")]
struct Logs {
    #[arg(value_name = "NAME")]
    name: String,
    /// The last so many lines of each stream [default: 100]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    tail: Option<u64>,
    /// Those after an answer before, as its `cursor` says
    #[arg(long, value_name = "CURSOR", conflicts_with = "tail")]
    cursor: Option<String>,
    /// Go on until the run is over
    #[arg(short, long, conflicts_with = "json")]
    follow: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Verb {
    fn json(&self) -> bool {
        match self {
            Verb::Put(options) => options.json,
            Verb::Ls(options) => options.json,
            Verb::Show(options) | Verb::Rm(options) => options.json,
            Verb::Start(options) | Verb::Restart(options) => options.json,
            Verb::Stop(options) => options.json,
            Verb::Logs(options) => options.json,
        }
    }
}

pub(crate) fn run(options: Options) -> ExitCode {
    let json = options.verb.json();
    perform(json, async |client| {
        let id = which::session(&client, &options.session).await?;
        match options.verb {
            Verb::Put(put) => {
                let (name, wait) = (put.name.clone(), !put.no_wait);
                let (service, _) = client.put_service((&id, &name), &spec(*put)?, wait).await?;
                outcome(&service, json)
            }
            Verb::Ls(_) => {
                let list = client.services(&id).await?;
                if json {
                    output::json(&list)?;
                } else {
                    output::text(&table(&list.services, Timestamp::now()))?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Verb::Show(Named { name, .. }) => {
                let service = client.service(&id, &name).await?;
                if json {
                    output::json(&service)?
                } else {
                    output::text(&sheet(&service))?
                }
                Ok(ExitCode::SUCCESS)
            }
            Verb::Start(Started { name, no_wait, .. }) => {
                outcome(&client.start_service(&id, &name, !no_wait).await?, json)
            }
            Verb::Restart(Started { name, no_wait, .. }) => {
                outcome(&client.restart_service(&id, &name, !no_wait).await?, json)
            }
            Verb::Stop(Stop { name, cascade, .. }) => {
                outcome(&client.stop_service(&id, &name, cascade).await?, json)
            }
            Verb::Logs(options) => logs(&client, &id, options).await,
            Verb::Rm(Named { name, .. }) => {
                client.delete_service(&id, &name).await?;
                if !json {
                    output::line(&format!("{name}  deleted"))?;
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    })
}

/// `8000`, `8000/health`: a port, and what to ask for on it.
fn http(text: &str) -> Result<HttpReadiness, String> {
    let (port, path) = match text.split_once('/') {
        Some((port, path)) => (port, Some(format!("/{path}"))),
        None => (text, None),
    };
    let port = port.parse().ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| format!("\"{text}\" begins with no port; write it like 8000/health"))?;
    Ok(HttpReadiness { port, path })
}

/// `500ms`, `500ms..30s`.
fn backoff(text: &str) -> Result<Backoff, String> {
    let (first, most) = match text.split_once("..") {
        Some((first, most)) => (first, Some(arguments::milliseconds(most)?)),
        None => (text, None),
    };
    Ok(Backoff { initial_ms: Some(arguments::milliseconds(first)?), max_ms: most, ..Backoff::default() })
}

fn spec(put: Put) -> Result<ServiceSpec, Failure> {
    if let Some(file) = &put.file {
        return from_file(file);
    }
    let readiness = (put.ready_file.map(Readiness::File))
        .or(put.tcp.map(Readiness::Tcp))
        .or(put.http.map(Readiness::Http))
        .or(put.ready_command.map(Readiness::Command));
    let backoff = match (put.backoff, put.most_restarts) {
        (None, None) => None,
        (backoff, most_restarts) => Some(Backoff { most_restarts, ..backoff.unwrap_or_default() }),
    };
    Ok(ServiceSpec {
        command: put.command,
        argv: Some(put.argv).filter(|argv| !argv.is_empty()),
        cwd: put.cwd,
        env: put.env.into_iter().collect(),
        secret_env: put.secret_env.into_iter().collect(),
        user: put.user.as_deref().map(arguments::user),
        readiness,
        restart: match put.restart.as_deref() {
            Some("always") => RestartPolicy::Always,
            Some("on_failure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Never,
        },
        backoff,
        depends_on: put.depends_on,
        ready_timeout_ms: put.ready_timeout,
        ready_interval_ms: put.ready_interval,
        stop_timeout_ms: put.stop_timeout,
        autostart: put.autostart,
        keep_output: None,
    })
}

fn from_file(file: &PathBuf) -> Result<ServiceSpec, Failure> {
    let text = if file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.map_err(|error| Failure::problem(format!("{}: {error}", file.display()), ""))?;
    definition(&text).map_err(|why| {
        Failure::problem(format!("{} is no definition of a service: {why}", file.display()), "")
    })
}

/// JSON begins with a brace, and TOML does not.
fn definition(text: &str) -> Result<ServiceSpec, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    toml::from_str(text).map_err(|error| error.message().to_owned())
}

/// What became of it, in a line.
fn outcome(service: &Service, json: bool) -> Result<ExitCode, Failure> {
    if json {
        output::json(service)?;
    } else {
        output::line(&line(service))?;
        if let Some(detail) = &service.detail {
            complain(detail);
        }
    }
    Ok(if service.state == ServiceState::Failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn line(service: &Service) -> String {
    let mut line = format!("{}  {}", service.name, service.state.as_str());
    if let Some(reason) = service.stop_reason {
        line.push_str(&format!("  {}", reason.as_str()));
    }
    if let Some(pid) = service.pid {
        line.push_str(&format!("  pid {pid}"));
    }
    if let Some(code) = service.exit_code {
        line.push_str(&format!("  exit code {code}"));
    }
    line
}

fn table(services: &[Service], now: Timestamp) -> String {
    let mut table = Table::new(&["name", "state", "pid", "age", "restarts", "reason"]);
    for service in services {
        table.row([
            service.name.as_str(),
            service.state.as_str(),
            &service.pid.map_or(String::new(), |pid| pid.to_string()),
            &service.started_at.map_or(String::new(), |at| output::ago(now, at)),
            &service.restarts.to_string(),
            service.stop_reason.map_or("", |reason| reason.as_str()),
        ]);
    }
    table.to_string()
}

fn sheet(service: &Service) -> String {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_rfc3339());
    let spec = &service.definition;
    let command = spec.command.clone().or_else(|| spec.argv.as_ref().map(|argv| argv.join(" ")));
    let rows = [
        ("name", Some(service.name.clone())),
        ("state", Some(service.state.as_str().to_owned())),
        ("reason", service.stop_reason.map(|reason| reason.as_str().to_owned())),
        ("detail", service.detail.clone()),
        ("command", command),
        ("process", service.process.clone()),
        ("pid", service.pid.map(|pid| pid.to_string())),
        ("started", time(service.started_at)),
        ("ready", time(service.ready_at)),
        ("ended", time(service.ended_at)),
        ("exit code", service.exit_code.map(|code| code.to_string())),
        ("restarts", Some(service.restarts.to_string())),
        ("depends on", Some(spec.depends_on.join(", ")).filter(|names| !names.is_empty())),
        ("autostart", Some(if spec.autostart { "yes" } else { "no" }.to_owned())),
    ];
    let rows: Vec<_> =
        rows.into_iter().filter_map(|(name, value)| Some((name, clean(&value?).into_owned()))).collect();
    output::sheet(&rows)
}

/// To stdout and stderr, as the service wrote them.
async fn logs(client: &Client, id: &str, options: Logs) -> Result<ExitCode, Failure> {
    let wanted = LogOptions { tail: options.tail, cursor: options.cursor };
    if options.follow {
        let mut stream = client.follow_service(id, &options.name, &wanted).await?;
        while let Some(LogOutput::Output { stream, text }) = stream.next().await? {
            write(stream, &text)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let logs = client.service_logs(id, &options.name, &wanted).await?;
    if options.json {
        output::json(&logs)?;
        return Ok(ExitCode::SUCCESS);
    }
    for line in &logs.lines {
        write(line.stream, &format!("{}\n", line.text))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(stream: OutputStream, text: &str) -> Result<(), Failure> {
    match stream {
        OutputStream::Stdout => output::text(text),
        OutputStream::Stderr => {
            // Nobody may be left to read it.
            let _ = std::io::stderr().write_all(text.as_bytes());
            Ok(())
        }
    }
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

    fn parsed(words: &[&str]) -> Result<ServiceSpec, String> {
        let words = ["service", "s", "put", "web"].iter().chain(words).copied();
        let only = Only::try_parse_from(words).map_err(|error| error.to_string())?;
        let Verb::Put(put) = only.options.verb else { return Err("another verb".into()) };
        spec(*put).map_err(|failure| failure.document().to_string())
    }

    #[test]
    fn a_service_is_said_with_flags_or_with_a_file() {
        let said = parsed(&[
            "--http=8000/health?x=1",
            "--restart=on_failure",
            "--backoff=10ms..2s",
            "--most-restarts=3",
            "--depends-on=db",
            "--depends-on=cache",
            "-e",
            "A=1",
            "--autostart",
            "--",
            "serve",
            "--port",
            "8000",
        ])
        .unwrap();
        assert_eq!(said.argv.as_deref(), Some(&["serve", "--port", "8000"].map(str::to_owned)[..]));
        let toml = r#"
            argv = ["serve", "--port", "8000"]
            env = { A = "1" }
            restart = "on_failure"
            depends_on = ["db", "cache"]
            autostart = true
            readiness.http = { port = 8000, path = "/health?x=1" }
            backoff = { initial_ms = 10, max_ms = 2000, most_restarts = 3 }
        "#;
        assert_eq!(definition(toml).unwrap(), said);
        assert_eq!(definition(&serde_json::to_string(&said).unwrap()).unwrap(), said);
        assert!(parsed(&["--tcp=1", "--http=2", "-c", "x"]).is_err(), "one kind of readiness");
        assert!(parsed(&["--http=0"]).is_err() && parsed(&["--http=/x"]).is_err());
        assert!(definition("command = 'x'\ntpyo = 1").unwrap_err().contains("tpyo"));
    }
}
