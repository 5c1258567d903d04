//! `workroom patch`: a unified diff applied to a session's files.

use crate::output::{self, clean};
use crate::remote::{Failure, complain, perform};
use crate::which;
use std::io::Read;
use std::process::ExitCode;
use workroom_types::{ApplyPatch, PatchChange, Patched, ProblemCode};

#[derive(clap::Args)]
#[command(
    after_help = "All of it is applied, or nothing.\n\nExamples:\n  git diff | workroom patch build\n  \
    workroom patch build fix.diff --dry-run"
)]
pub(crate) struct Options {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    id: String,
    /// A file of this machine with the diff, or - for stdin
    #[arg(value_name = "FILE", default_value = "-")]
    file: String,
    /// Say what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Leading parts of the diff's paths to leave out [default: a/ and b/]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    strip: Option<u32>,
    /// Where the diff's paths begin [default: the workspace]
    #[arg(long, value_name = "DIR", default_value = "")]
    path: String,
    /// DIR begins at / and not at /workspace
    #[arg(long)]
    root: bool,
    /// Print what was changed as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let as_json = options.json;
    perform(as_json, async |client| {
        let id = which::session(&client, &options.id).await?;
        let request = ApplyPatch {
            patch: read(&options.file)?,
            path: options.path,
            strip: options.strip,
            dry_run: options.dry_run,
            root: options.root,
        };
        let patched = match client.patch_files(&id, &request).await {
            Ok(patched) => patched,
            Err(error) => {
                if !as_json
                    && let Some(why) = error.problem().filter(|it| it.code == ProblemCode::PatchFailed)
                {
                    why.report
                        .clone()
                        .and_then(|report| serde_json::from_value(report).ok())
                        .inspect(explain);
                }
                return Err(error.into());
            }
        };
        if as_json {
            output::json(&patched)?;
        } else {
            output::text(&lines(&patched))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn read(file: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().read_to_string(&mut text),
        path => std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)),
    };
    match read {
        Ok(_) => Ok(text),
        Err(error) => Err(Failure::problem(format!("the diff in {file} cannot be read: {error}"), "")),
    }
}

/// Which hunks have no place, and where they nearly have one.
fn explain(failed: &Patched) {
    for file in &failed.files {
        if let Some(error) = &file.error {
            complain(&format!("{}: {error}", file.path));
        }
        for hunk in file.hunks.iter().filter(|hunk| hunk.error.is_some()) {
            let near =
                hunk.nearest_line.map(|line| format!("; line {line} is most like it")).unwrap_or_default();
            let why = hunk.error.as_deref().unwrap_or_default();
            complain(&format!("{}: {}: {why}{near}", file.path, hunk.header));
        }
    }
}

fn lines(patched: &Patched) -> String {
    let line = |file: &workroom_types::PatchedFile| {
        let change = match file.change {
            PatchChange::Created => "created",
            PatchChange::Modified => "modified",
            PatchChange::Deleted => "deleted",
        };
        format!("{change:<8}  {}\n", clean(&file.path))
    };
    patched.files.iter().map(line).collect()
}
