//! `workroom reset`: puts a session's files back to an earlier moment, and can prove it.

use crate::remote::{complain, perform};
use crate::{EXIT_FAULT, output, which};
use serde_json::json;
use std::process::ExitCode;
use workroom_types::ResetSession;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  workroom reset build\n  workroom reset build --to before-upgrade")]
pub(crate) struct Options {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// A snapshot; `last` is the newest one
    #[arg(long, value_name = "SNAPSHOT", default_value = "baseline")]
    to: String,
    /// Only tell whether the files are those of the baseline
    #[arg(long, conflicts_with = "to")]
    check: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let id = which::session(&client, &options.session).await?;
        if options.check {
            let digest = client.digest(&id).await?;
            if options.json {
                output::json(&digest)?;
            } else {
                output::line(&digest.digest)?;
            }
            if digest.pristine {
                return Ok(ExitCode::SUCCESS);
            }
            complain(&format!("{} differ from the baseline", output::count(digest.changes, "path", "paths")));
            return Ok(ExitCode::from(EXIT_FAULT));
        }
        let session = client.reset(&id, &ResetSession { to: Some(options.to.clone()) }).await?;
        if options.json {
            output::json(&json!(session))?;
        } else {
            output::line(&format!("{}  reset to {}", session.id, options.to))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
