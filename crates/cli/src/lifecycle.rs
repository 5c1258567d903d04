//! `workroom start`, `stop`, `pause`, `resume` and `rm`: the same for one session and for many.

use crate::remote::{Failure, complain, perform};
use crate::{EXIT_FAULT, output, which};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use workroom_client::{Action, Client};
use workroom_types::parse_duration;

#[derive(clap::Args)]
pub(crate) struct Sessions {
    /// The sessions: ids, beginnings of them, or names
    #[arg(value_name = "SESSION", required = true)]
    ids: Vec<String>,
    /// Print one JSON object for each session
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom start 0a1b --wait 30s")]
pub(crate) struct Start {
    #[command(flatten)]
    sessions: Sessions,
    /// Queue up to this long when a quota is reached [default: be refused at once]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    wait: Option<Duration>,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom stop 0a1b 7e2f")]
pub(crate) struct Stop {
    #[command(flatten)]
    sessions: Sessions,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom pause build && sleep 60 && workroom resume build")]
pub(crate) struct Pause {
    #[command(flatten)]
    sessions: Sessions,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom resume build")]
pub(crate) struct Resume {
    #[command(flatten)]
    sessions: Sessions,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom rm 20260131-120000-0a1b2c3d")]
pub(crate) struct Rm {
    #[command(flatten)]
    sessions: Sessions,
}

/// What is done to each of them.
#[derive(Clone, Copy)]
enum Deed {
    Act(Action, Option<Duration>),
    Delete,
}

pub(crate) fn start(options: Start) -> ExitCode {
    each(options.sessions, Deed::Act(Action::Start, options.wait))
}

pub(crate) fn stop(options: Stop) -> ExitCode {
    each(options.sessions, Deed::Act(Action::Stop, None))
}

pub(crate) fn pause(options: Pause) -> ExitCode {
    each(options.sessions, Deed::Act(Action::Pause, None))
}

pub(crate) fn resume(options: Resume) -> ExitCode {
    each(options.sessions, Deed::Act(Action::Resume, None))
}

pub(crate) fn rm(options: Rm) -> ExitCode {
    each(options.sessions, Deed::Delete)
}

/// One that fails does not keep the others from their turn; the status says that one did.
fn each(sessions: Sessions, deed: Deed) -> ExitCode {
    perform(sessions.json, async |client| {
        let mut status = ExitCode::SUCCESS;
        for id in &sessions.ids {
            match one(&client, id, deed).await {
                Ok((document, line)) => {
                    if sessions.json {
                        output::json(&document)?;
                    } else {
                        output::line(&line)?;
                    }
                }
                Err(failure) => {
                    status = ExitCode::from(EXIT_FAULT);
                    told(&failure, id, sessions.json)?;
                    // The others would be told the same.
                    if matches!(&failure, Failure::Error(error) if error.problem().is_none()) {
                        break;
                    }
                }
            }
        }
        Ok(status)
    })
}

async fn one(client: &Client, id: &str, deed: Deed) -> Result<(Value, String), Failure> {
    let id = which::session(client, id).await?;
    match deed {
        Deed::Act(action, wait) => {
            let session = client.act(&id, action, wait).await?;
            let line = format!("{}  {}", session.id, session.state.as_str());
            Ok((json!(session), line))
        }
        Deed::Delete => {
            client.delete(&id).await?;
            let line = format!("{id}  deleted");
            Ok((json!({"id": id, "state": "deleted"}), line))
        }
    }
}

fn told(failure: &Failure, id: &str, as_json: bool) -> Result<(), Failure> {
    match failure {
        Failure::ReaderGone => return Err(Failure::ReaderGone),
        _ if as_json => output::json(&json!({"id": id, "error": failure.document()}))?,
        // Of one session among many: which one. A server that does not answer is not one session's fault.
        Failure::Error(error) => match error.problem() {
            Some(problem) if !problem.detail.contains(id) => complain(&format!("{id}: {error}")),
            _ => complain(&error.to_string()),
        },
    }
    Ok(())
}
