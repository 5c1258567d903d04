//! `workroom batch`: many things done at once, read from a file of JSON.

use crate::output;
use crate::remote::{Failure, perform};
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use workroom_types::{BatchItem, BatchResults};

#[derive(clap::Args)]
#[command(
    after_help = "Results are JSON. Exit status: 0 if all went well, 1 if something went wrong with an item, 125 if the batch could not be done.\n\nExample:\n  echo '[{\"session\": \"20260131-120000-0a1b2c3d\", \"tool\": \"exec\", \"args\": {\"command\": \"make\"}}]' | workroom batch -"
)]
pub(crate) struct Options {
    /// A list of items, as JSON or one on each line; - is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print each result on a line as soon as it is there, in any order
    #[arg(long)]
    stream: bool,
    /// Say as JSON, too, why the batch itself could not be done
    #[arg(long)]
    json: bool,
}

/// Ends with 1 if anything went wrong with an item, of which the results tell.
pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let items = read(&options.file)?;
        let mut all_well = true;
        if options.stream {
            let mut results = client.batch_stream(&items).await?;
            while let Some(result) = results.next().await? {
                all_well &= result.ok;
                output::json(&result)?;
            }
        } else {
            let results = client.batch(&items).await?;
            all_well = results.iter().all(|result| result.ok);
            output::json(&BatchResults { results })?;
        }
        Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

fn read(file: &PathBuf) -> Result<Vec<BatchItem>, Failure> {
    let mut text = String::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text).map(drop),
        _ => std::fs::read_to_string(file).map(|content| text = content),
    };
    read.map_err(|error| Failure::problem(format!("{} cannot be read: {error}", file.display()), ""))?;
    let parsed = match text.trim_start().starts_with('[') {
        true => serde_json::from_str(&text),
        false => text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str).collect(),
    };
    parsed.map_err(|error| {
        Failure::problem(
            format!("{} is no list of items: {error}", file.display()),
            "an item is {\"session\", \"tool\", \"args\"}; see `docs/reference/pools.md`",
        )
    })
}
