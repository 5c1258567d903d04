//! `workroom events`: what happened, and what happens, in one session or in all.

use crate::output::clean;
use crate::remote::{Failure, perform};
use crate::{output, which};
use std::process::ExitCode;
use workroom_client::Client;
use workroom_types::JournalEntry;

/// Entries asked for at once.
const PAGE: u32 = 500;

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  workroom events 0a1b --follow --json | jq 'select(.kind == \"exec.finished\")'"
)]
pub(crate) struct Options {
    /// The session: its id, the beginning of one, or its name [default: all that the token may see]
    #[arg(value_name = "SESSION")]
    id: Option<String>,
    /// Only those after this place: `seq` with a session, else `position`
    #[arg(long, value_name = "N", default_value_t = 0, allow_hyphen_values = true)]
    after: i64,
    /// Go on with those to come
    #[arg(long)]
    follow: bool,
    /// Print one JSON object for each
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let id = match &options.id {
            Some(id) => Some(which::session(&client, id).await?),
            None => None,
        };
        let show = |entry: &JournalEntry| {
            if options.json { output::json(entry) } else { output::line(&line(entry, id.is_none())) }
        };
        if !options.follow {
            each_entry(&client, id.as_deref(), options.after, show).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut stream = client.follow(id.as_deref(), options.after);
        while let Some(entry) = stream.next().await? {
            show(&entry)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Every entry that there is by now, page by page.
pub(crate) async fn each_entry(
    client: &Client,
    session: Option<&str>,
    mut after: i64,
    mut show: impl FnMut(&JournalEntry) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let mut shown = 0;
    loop {
        let page = client.history(session, after, PAGE).await?;
        for entry in &page.entries {
            show(entry)?;
            shown += 1;
        }
        match page.next {
            // A place that does not move on would be asked for again and again.
            Some(next) if next > after && !page.entries.is_empty() => after = next,
            _ => return Ok(shown),
        }
    }
}

/// Columns that line up although no entry is known before it comes.
fn line(entry: &JournalEntry, with_session: bool) -> String {
    let place = if with_session {
        format!("{:>8}  {}", entry.position, entry.session)
    } else {
        format!("{:>6}", entry.seq)
    };
    let at = entry.at.to_rfc3339();
    let line = format!("{at}  {place}  {:<20}  {:<12}  {}", entry.kind, entry.actor, body(&entry.body));
    clean(line.trim_end()).into_owned()
}

/// An entry's body on one line; nothing where it says nothing.
pub(crate) fn body(body: &serde_json::Value) -> String {
    match body {
        serde_json::Value::Null => String::new(),
        serde_json::Value::Object(fields) if fields.is_empty() => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_entry_is_a_line() {
        let mut entry: JournalEntry = serde_json::from_value(json!({
            "position": 41, "session": "20260131-120000-0a1b2c3d", "seq": 2, "at": "2026-01-31T12:00:00.000Z",
            "actor": "local:0", "kind": "exec.finished", "body": {"exit_code": 0}, "hash": "00"
        }))
        .unwrap();
        assert_eq!(
            line(&entry, false),
            "2026-01-31T12:00:00.000Z       2  exec.finished         local:0       {\"exit_code\":0}"
        );
        entry.body = json!({});
        assert_eq!(
            line(&entry, true),
            "2026-01-31T12:00:00.000Z        41  20260131-120000-0a1b2c3d  exec.finished         local:0"
        );
    }
}
