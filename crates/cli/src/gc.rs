//! `workroom gc`: deletes layers that no session needs. The server does it by itself; this is to see it.

use crate::output;
use crate::remote::perform;
use std::process::ExitCode;
use workroom_types::format_bytes;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom gc --dry-run")]
pub(crate) struct Options {
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let garbage = client.collect_garbage(options.dry_run).await?;
        if options.json {
            output::json(&garbage)?;
            return Ok(ExitCode::SUCCESS);
        }
        for layer in &garbage.layers {
            output::line(layer)?;
        }
        let verb = if garbage.dry_run { "would go" } else { "gone" };
        let count = output::count(garbage.layers.len() as u64, "layer", "layers");
        output::line(&format!("{count}, {} {verb}", format_bytes(garbage.bytes)))?;
        Ok(ExitCode::SUCCESS)
    })
}
