//! `workroom export` and `import`: a whole session as one file.

use crate::progress::{Progress, Watched};
use crate::remote::{Failure, perform};
use crate::{cp, output, which};
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use workroom_client::Upload;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom export build build.workroom\n  workroom import build.workroom")]
pub(crate) struct Export {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// Where to: a file, or - for stdout [default: ID.workroom]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print where it is as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom import build.workroom")]
pub(crate) struct Import {
    /// The file, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print the session as JSON instead of its id
    #[arg(long)]
    json: bool,
}

pub(crate) fn export(options: Export) -> ExitCode {
    perform(options.json, async |client| {
        let id = which::session(&client, &options.session).await?;
        let file = options.file.clone().unwrap_or_else(|| format!("{id}.workroom").into());
        let download = client.export_session(&id).await?;
        if file.as_os_str() == "-" {
            cp::each_piece(download, output::bytes).await?;
            return Ok(ExitCode::SUCCESS);
        }
        // Files of a session are its owner's alone.
        cp::save(download, &file, 0o600).await?;
        if options.json {
            output::json(&serde_json::json!({"session": id, "file": file}))?;
        } else {
            output::line(&file.display().to_string())?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

pub(crate) fn import(options: Import) -> ExitCode {
    perform(options.json, async |client| {
        let upload = if options.file.as_os_str() == "-" {
            Upload::new(Watched { reader: std::io::stdin(), progress: Progress::new(None) })
        } else {
            let unreadable = |error: std::io::Error| {
                Failure::problem(format!("{} cannot be read: {error}", options.file.display()), "")
            };
            let reader = File::open(&options.file).map_err(unreadable)?;
            let length = reader.metadata().map_err(unreadable)?.len();
            Upload::new(Watched { reader, progress: Progress::new(Some(length)) }).length(length)
        };
        let session = client.import_session(upload).await?;
        if options.json {
            output::json(&session)?;
        } else {
            output::line(&session.id)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
