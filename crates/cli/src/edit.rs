//! `workroom edit`: one piece of text in a file replaced by another.

use crate::output;
use crate::place::Remote;
use crate::remote::perform;
use std::process::ExitCode;
use workroom_types::EditFile;

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  workroom edit build:config.toml --old 'debug = true' --new 'debug = false'"
)]
pub(crate) struct Options {
    /// The file
    #[arg(value_name = "SESSION:PATH", value_parser = Remote::parse)]
    file: Remote,
    /// What is to be replaced; it must be there exactly once
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    old: String,
    /// What takes its place
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    new: String,
    /// Replace it wherever it is
    #[arg(long)]
    all: bool,
    /// The path begins at / and not at /workspace
    #[arg(long)]
    root: bool,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let as_json = options.json;
    perform(as_json, async |client| {
        let id = options.file.id(&client).await?;
        let request = EditFile {
            path: options.file.path,
            old: options.old,
            new: options.new,
            all: options.all,
            if_match: None,
            root: options.root,
        };
        let edited = client.edit_file(&id, &request).await?;
        if as_json {
            output::json(&edited)?;
        } else {
            let times = output::count(edited.replacements, "replacement", "replacements");
            output::line(&format!("{}  {times}", output::clean(&edited.path)))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
