//! `workroom journal`: a session's record, shown, added to, and proven whole.

use crate::events::{body, each_entry};
use crate::output::clean;
use crate::remote::{Failure, perform};
use crate::{output, verify, which};
use serde_json::Value;
use std::process::ExitCode;
use workroom_client::Client;
use workroom_types::{AppendEvent, JournalEntry};

/// How much of a hash tells two entries apart for people.
const SHORT_HASH: usize = 12;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Show a session's journal, with its hashes
    Show(Show),
    /// Look for entries that were edited, deleted, moved or cut off; works on the state directory itself
    Verify(verify::Options),
    /// Add an entry of your own
    Append(Append),
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom journal show 0a1b")]
struct Show {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    id: String,
    /// Print one JSON object for each entry
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  workroom journal append 0a1b transcript '{\"role\": \"user\", \"text\": \"hello\"}'"
)]
struct Append {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    id: String,
    /// What kind of entry; the journal has it as caller.KIND
    #[arg(value_name = "KIND")]
    kind: String,
    /// What it says [default: nothing]
    #[arg(value_name = "JSON", value_parser = parse_body)]
    body: Option<Value>,
    /// Print the entry as JSON instead of its place
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    match options.verb {
        Verb::Show(options) => perform(options.json, async |client| show(&client, &options).await),
        Verb::Verify(options) => verify::run(options),
        Verb::Append(options) => perform(options.json, async |client| append(&client, options).await),
    }
}

async fn show(client: &Client, options: &Show) -> Result<ExitCode, Failure> {
    let id = which::session(client, &options.id).await?;
    let show = |entry: &JournalEntry| {
        if options.json { output::json(entry) } else { output::line(&line(entry)) }
    };
    each_entry(client, Some(&id), 0, show).await?;
    Ok(ExitCode::SUCCESS)
}

async fn append(client: &Client, options: Append) -> Result<ExitCode, Failure> {
    let id = which::session(client, &options.id).await?;
    let event = AppendEvent { kind: options.kind, body: options.body.unwrap_or_default() };
    let entry = client.append(&id, &event).await?;
    if options.json {
        output::json(&entry)?;
    } else {
        output::line(&format!("{}  {}  {}", entry.session, entry.seq, entry.kind))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn parse_body(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| {
        format!("it is not JSON ({error}); write plain text in quotes of its own: '\"text\"'")
    })
}

fn line(entry: &JournalEntry) -> String {
    let hash: String = entry.hash.chars().take(SHORT_HASH).collect();
    let at = entry.at.to_rfc3339();
    let line = format!(
        "{:>6}  {at}  {hash:<SHORT_HASH$}  {:<20}  {:<12}  {}",
        entry.seq,
        entry.kind,
        entry.actor,
        body(&entry.body)
    );
    clean(line.trim_end()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_json_and_plain_text_is_told_how() {
        assert_eq!(parse_body("{\"a\": 1}").unwrap()["a"], 1);
        assert_eq!(parse_body("\"text\"").unwrap(), "text");
        assert!(parse_body("text").unwrap_err().contains("quotes of its own"));
    }
}
