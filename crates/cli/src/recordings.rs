//! `workroom recordings`: what there is to replay.

use crate::remote::{Failure, perform};
use crate::table::Table;
use crate::{output, which};
use std::process::ExitCode;
use workroom_client::Client;
use workroom_types::{Recording, RecordingState, Timestamp, format_bytes};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  workroom recordings build\n  workroom recordings build --delete t-0a1b2c3d"
)]
pub(crate) struct Options {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// Delete the recording of this process instead; may be repeated
    #[arg(long, value_name = "PROCESS")]
    delete: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let id = which::session(&client, &options.session).await?;
        if options.delete.is_empty() {
            return list(&client, &id, options.json).await;
        }
        for process in &options.delete {
            client.delete_recording(&id, process).await?;
        }
        if options.json {
            output::json(&serde_json::json!({"session": id, "deleted": options.delete}))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn list(client: &Client, id: &str, as_json: bool) -> Result<ExitCode, Failure> {
    let list = client.recordings(id).await?;
    if as_json {
        output::json(&list)?;
    } else {
        output::text(&table(&list.recordings, Timestamp::now()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(recordings: &[Recording], now: Timestamp) -> String {
    let mut table = Table::new(&["process", "name", "state", "age", "length", "size", "events", "command"]);
    for recording in recordings {
        let command: String = recording.command.chars().take(60).collect();
        table.row([
            &recording.process,
            &output::clean(recording.name.as_deref().unwrap_or("-")),
            state(recording.state),
            &output::ago(now, recording.started),
            &length(recording.duration_ms),
            &format_bytes(recording.bytes),
            &recording.events.to_string(),
            &output::clean(&command),
        ]);
    }
    table.to_string()
}

fn state(state: RecordingState) -> &'static str {
    match state {
        RecordingState::Recording => "recording",
        RecordingState::Ended => "ended",
        RecordingState::Cut => "cut",
        RecordingState::Unfinished => "unfinished",
    }
}

/// `0:07`, `1:02:03`
fn length(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_are_a_table() {
        let recording = Recording {
            process: "t-0a1b2c3d".into(),
            name: Some("\x1b[31mred".into()),
            command: "bash".into(),
            started: Timestamp(0),
            duration_ms: 3_723_999,
            bytes: 2048,
            events: 12,
            state: RecordingState::Cut,
            ..Recording::default()
        };
        let plain = Recording { name: None, duration_ms: 7000, ..recording.clone() };
        assert_eq!(
            table(&[recording, plain], Timestamp(60_000)),
            "PROCESS     NAME           STATE  AGE  LENGTH   SIZE   EVENTS  COMMAND\n\
             t-0a1b2c3d  \\u{1b}[31mred  cut    1m   1:02:03  2 KiB  12      bash\n\
             t-0a1b2c3d  -              cut    1m   0:07     2 KiB  12      bash\n"
        );
    }
}
