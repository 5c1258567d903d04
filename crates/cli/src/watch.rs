//! `workroom watch`: what happens to a session's files, as it happens.

use crate::output::{self, clean};
use crate::place::Remote;
use crate::remote::perform;
use std::process::ExitCode;
use workroom_types::{WatchEvent, WatchKind};

#[derive(clap::Args)]
#[command(after_help = "Ends when the session's room does.\n\nExample:\n  workroom watch build:src")]
pub(crate) struct Options {
    /// What to look at
    #[arg(value_name = "SESSION[:PATH]", value_parser = Remote::parse_either)]
    place: Remote,
    /// Only the directory itself, not what is below it
    #[arg(long)]
    flat: bool,
    /// The path begins at / and not at /workspace
    #[arg(long)]
    root: bool,
    /// Print one JSON object for each event
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let id = options.place.id(&client).await?;
        let mut events = client.watch_files(&id, &options.place.at(options.root), !options.flat).await?;
        while let Some(event) = events.next().await? {
            if options.json {
                output::json(&event)?;
            } else {
                output::line(&line(&event))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn line(event: &WatchEvent) -> String {
    let path = clean(&event.path);
    let slash = if event.directory { "/" } else { "" };
    match (event.kind, &event.from) {
        (WatchKind::Created, _) => format!("created   {path}{slash}"),
        (WatchKind::Modified, _) => format!("modified  {path}{slash}"),
        (WatchKind::Deleted, _) => format!("deleted   {path}{slash}"),
        (WatchKind::Renamed, Some(from)) => format!("renamed   {path}{slash}  from {}{slash}", clean(from)),
        (WatchKind::Renamed, None) => format!("renamed   {path}{slash}"),
        (WatchKind::Overflow, _) => "overflow  events are missing here: look at what is there".into(),
    }
}
