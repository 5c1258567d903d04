//! `workroom cat`: a file of a session's room, or some of its lines.

use crate::output;
use crate::place::Remote;
use crate::remote::{Failure, complain, perform};
use std::process::ExitCode;
use workroom_client::Client;
use workroom_types::ReadFile;

/// The most that a server answers in one piece.
const LARGEST: u64 = 16 << 20;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  workroom cat build:src/main.rs\n  workroom cat build:build.log --lines 100-120"
)]
pub(crate) struct Options {
    /// The file
    #[arg(value_name = "SESSION:PATH", value_parser = Remote::parse)]
    file: Remote,
    /// Only these lines, counted from 1: 10-20, 10- or 10
    #[arg(long, value_name = "A-B", value_parser = lines)]
    lines: Option<(u64, Option<u64>)>,
    /// The path begins at / and not at /workspace
    #[arg(long)]
    root: bool,
    /// Print the text as JSON, with where it is in the file
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let id = options.file.id(&client).await?;
        if options.lines.is_none() && !options.json {
            return whole(&client, &id, &options).await;
        }
        let request = ReadFile {
            path: options.file.path.clone(),
            root: options.root,
            first_line: options.lines.map(|(first, _)| first),
            lines: options.lines.and_then(|(_, count)| count),
            limit: Some(LARGEST),
            ..ReadFile::default()
        };
        let content = client.read_file(&id, &request).await?;
        if options.json {
            output::json(&content)?;
        } else {
            output::text(&content.content)?;
            if content.lossy {
                complain(
                    "some bytes are no text and are shown as U+FFFD; without --lines every byte is kept",
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn whole(client: &Client, id: &str, options: &Options) -> Result<ExitCode, Failure> {
    let mut download = client.download(id, &options.file.at(options.root)).await?;
    while let Some(piece) = download.next().await? {
        output::bytes(&piece)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The first line and how many.
fn lines(text: &str) -> Result<(u64, Option<u64>), String> {
    let wrong = || format!("\"{text}\" names no lines; write them like 10-20, 10- or 10");
    let number = |text: &str| text.parse::<u64>().ok().filter(|line| *line > 0).ok_or_else(wrong);
    match text.split_once('-') {
        None => Ok((number(text)?, Some(1))),
        Some((first, "")) => Ok((number(first)?, None)),
        Some((first, last)) => {
            let (first, last) = (number(first)?, number(last)?);
            let count = last.checked_sub(first).ok_or_else(wrong)?;
            Ok((first, Some(count + 1)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one() {
        assert_eq!(lines("10-20"), Ok((10, Some(11))));
        assert_eq!((lines("7"), lines("7-")), (Ok((7, Some(1))), Ok((7, None))));
        for wrong in ["", "0", "-5", "5-4", "a", "1-b"] {
            assert!(lines(wrong).is_err(), "{wrong}");
        }
    }
}
