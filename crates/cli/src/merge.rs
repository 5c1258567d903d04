//! `workroom merge`: takes over what a fork has changed.

use crate::remote::{complain, perform};
use crate::{EXIT_FAULT, diff, output, which};
use std::collections::BTreeMap;
use std::process::ExitCode;
use workroom_types::{MergeSession, MergeSide};

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  workroom merge build try-2 --dry-run\n  workroom merge build try-2 --theirs src/main.rs"
)]
pub(crate) struct Options {
    /// The session that is merged into
    #[arg(value_name = "SESSION")]
    session: String,
    /// The session whose changes are taken over: a fork, or where this one was forked from
    #[arg(value_name = "FROM")]
    from: String,
    /// Say what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// In a conflict at this path keep what is here; may be given more than once
    #[arg(long, value_name = "PATH")]
    ours: Vec<String>,
    /// In a conflict at this path take what is there; may be given more than once
    #[arg(long, value_name = "PATH")]
    theirs: Vec<String>,
    /// What to do with every other conflict: ours or theirs
    #[arg(long, value_name = "SIDE", value_parser = side)]
    prefer: Option<MergeSide>,
    /// End the processes of the session if any run
    #[arg(long)]
    restart: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn side(text: &str) -> Result<MergeSide, String> {
    match text {
        "ours" => Ok(MergeSide::Ours),
        "theirs" => Ok(MergeSide::Theirs),
        _ => Err("it is either ours or theirs".into()),
    }
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let id = which::session(&client, &options.session).await?;
        let mut choices = BTreeMap::new();
        choices.extend(options.ours.iter().map(|path| (path.clone(), MergeSide::Ours)));
        choices.extend(options.theirs.iter().map(|path| (path.clone(), MergeSide::Theirs)));
        let request = MergeSession {
            from: which::session(&client, &options.from).await?,
            dry_run: options.dry_run,
            choices,
            prefer: options.prefer,
            restart: options.restart,
        };
        let merged = client.merge(&id, &request).await?;
        if options.json {
            output::json(&merged)?;
        } else {
            for entry in &merged.changes {
                output::line(&diff::line(entry))?;
            }
            for conflict in &merged.conflicts {
                complain(&format!("both sides have changed {}", output::clean(&conflict.path)));
            }
        }
        let is_clean = merged.conflicts.is_empty();
        Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAULT) })
    })
}
