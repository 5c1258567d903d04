//! `workroom diff`: what differs between two moments of a session, or of two relatives.

use crate::remote::perform;
use crate::{output, which};
use std::process::ExitCode;
use workroom_types::{DiffEntry, DiffKind, DiffQuery, FileKind};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  workroom diff build\n  workroom diff build before-upgrade now --patch")]
pub(crate) struct Options {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// A snapshot, `baseline`, or SESSION:SNAPSHOT of a relative
    #[arg(value_name = "FROM", default_value = "baseline")]
    from: String,
    #[arg(value_name = "TO", default_value = "now")]
    to: String,
    /// Only below this path
    #[arg(long, value_name = "PATH", default_value = "")]
    path: String,
    /// Show how text files differ, line by line
    #[arg(long, short)]
    patch: bool,
    /// Show a wholly new directory as one entry
    #[arg(long)]
    collapse: bool,
    /// At most this many entries
    #[arg(long, value_name = "N", default_value_t = 1000, allow_hyphen_values = true)]
    limit: u32,
    /// The whole room, not only the workspace
    #[arg(long)]
    root: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let id = which::session(&client, &options.session).await?;
        let query = DiffQuery {
            from: Some(options.from.clone()),
            to: Some(options.to.clone()),
            path: options.path.clone(),
            patch: options.patch,
            collapse: options.collapse,
            limit: Some(options.limit),
            root: options.root,
        };
        let diff = client.diff(&id, &query).await?;
        if options.json {
            output::json(&diff)?;
            return Ok(ExitCode::SUCCESS);
        }
        for entry in &diff.entries {
            match &entry.patch {
                Some(patch) => output::text(patch)?,
                None => output::line(&line(entry))?,
            }
        }
        if diff.remainder > 0 {
            crate::remote::complain(&format!("{} more differ; see --limit", diff.remainder));
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// `A`, `M`, `D`, `T` for another type, `m` for the mode alone; then the path.
pub(crate) fn line(entry: &DiffEntry) -> String {
    let letter = match entry.change {
        DiffKind::Added => 'A',
        DiffKind::Modified => 'M',
        DiffKind::Deleted => 'D',
        DiffKind::TypeChanged => 'T',
        DiffKind::Mode => 'm',
    };
    let slash = if entry.kind == FileKind::Directory { "/" } else { "" };
    let below = entry.below.map_or(String::new(), |below| format!("  ({below} entries)"));
    format!("{letter} {}{slash}{below}", output::clean(&entry.path))
}
