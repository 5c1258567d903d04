//! `workroom fork`: independent sessions that go on from another's files.

use crate::remote::perform;
use crate::{output, which};
use std::process::ExitCode;
use workroom_types::ForkSession;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom fork build --count 4 --name try")]
pub(crate) struct Options {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// How many, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true)]
    count: u32,
    /// What to call them; with more than one, -1, -2 and so on follow
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// From a snapshot, or from `baseline`
    #[arg(long, value_name = "SNAPSHOT", default_value = "now")]
    from: String,
    /// Start their rooms at once
    #[arg(long)]
    start: bool,
    /// Print JSON, with a token for each fork
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let id = which::session(&client, &options.session).await?;
        let request = ForkSession {
            count: Some(options.count),
            name: options.name.clone(),
            from: Some(options.from.clone()),
            start: options.start,
        };
        let made = client.fork(&id, &request).await?;
        if options.json {
            output::json(&made)?;
            return Ok(ExitCode::SUCCESS);
        }
        for fork in &made.forks {
            output::line(&fork.session.id)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
