//! `workroom cp`: files and directories between this machine and a session's room.

use crate::place::{Remote, below};
use crate::progress::{Progress, Watched};
use crate::remote::{Failure, perform};
use crate::{output, tree};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use workroom_client::{Client, Download, Upload, WriteFile};
use workroom_types::{ArchiveFormat, FileInfo, FileKind, FilePath, ProblemCode, Transfer};

#[derive(clap::Args)]
#[command(
    after_help = "One side is SESSION:PATH; a directory is copied with all that is in it.\n\nExamples:\n  \
    workroom cp main.py build:src/\n  workroom cp build:dist ./out\n  make-data | workroom cp - build:data.bin\n  \
    workroom cp build:report.md - | less"
)]
pub(crate) struct Options {
    /// What to copy: SESSION:PATH, a path of this machine, or - for stdin
    #[arg(value_name = "SRC")]
    source: String,
    /// Where to: SESSION:PATH, a path of this machine, or - for stdout
    #[arg(value_name = "DST")]
    target: String,
    /// Paths of the room begin at / and not at /workspace
    #[arg(long)]
    root: bool,
    /// Print what was copied as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let done = match (Remote::find(&options.source), Remote::find(&options.target)) {
            (None, Some(target)) => up(&client, &options, &target).await?,
            (Some(source), None) => down(&client, &options, &source).await?,
            (Some(source), Some(target)) => within(&client, &options, &source, &target).await?,
            (None, None) => {
                return Err(Failure::problem(
                    format!("neither {} nor {} is a file of a session", options.source, options.target),
                    "write one of them as SESSION:PATH",
                ));
            }
        };
        if options.json {
            output::json(&done)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::problem(format!("{} cannot be read: {error}", path.display()), "")
}

/// What is at a path of a room, if there is something.
async fn look(client: &Client, id: &str, at: &FilePath) -> Result<Option<FileInfo>, Failure> {
    match client.stat_file(id, at).await {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::NotFound) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

async fn up(client: &Client, options: &Options, target: &Remote) -> Result<serde_json::Value, Failure> {
    let id = target.id(client).await?;
    let mut at = target.at(options.root);
    if options.source == "-" {
        let file = WriteFile { path: at.path, root: at.root, ..WriteFile::default() };
        let watched = Watched { reader: std::io::stdin(), progress: Progress::new(None) };
        let (info, _) = client.upload(&id, &file, Upload::new(watched)).await?;
        return Ok(serde_json::json!(info));
    }
    let source = Path::new(&options.source);
    let about = fs::metadata(source).map_err(|error| unreadable(source, &error))?;
    let into = at.path.is_empty() || at.path.ends_with('/') || {
        look(client, &id, &at).await?.is_some_and(|there| there.kind == FileKind::Directory)
    };
    if into && let Some(name) = source.file_name() {
        at.path = below(&at.path, &escaped(name));
    }
    if about.is_dir() {
        let imported = client.import_archive(&id, &at, tree::pack(source)).await?;
        return Ok(serde_json::json!(imported));
    }
    let reader = File::open(source).map_err(|error| unreadable(source, &error))?;
    let mode = format!("{:04o}", about.permissions().mode() & 0o777);
    let file = WriteFile { path: at.path, root: at.root, mode: Some(mode), ..WriteFile::default() };
    let length = about.is_file().then_some(about.len());
    let mut contents = Upload::new(Watched { reader, progress: Progress::new(length) });
    if let Some(length) = length {
        contents = contents.length(length);
    }
    let (info, _) = client.upload(&id, &file, contents).await?;
    Ok(serde_json::json!(info))
}

fn escaped(name: &OsStr) -> String {
    workroom_types::escape(name.as_encoded_bytes())
}

async fn down(client: &Client, options: &Options, source: &Remote) -> Result<serde_json::Value, Failure> {
    let id = source.id(client).await?;
    let at = source.at(options.root);
    let about = client.stat_file(&id, &at).await?;
    let is_tree = about.kind == FileKind::Directory;
    if options.target == "-" {
        let download = if is_tree {
            client.export_archive(&id, &at, ArchiveFormat::Tar).await?
        } else {
            client.download(&id, &at).await?
        };
        each_piece(download, output::bytes).await?;
        return Ok(serde_json::json!(about));
    }
    let mut target = PathBuf::from(&options.target);
    if target.is_dir() && !source.name().is_empty() {
        let name = workroom_types::unescape(source.name())?;
        target.push(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&name));
    }
    if is_tree {
        let download = client.export_archive(&id, &at, ArchiveFormat::Tar).await?;
        tree::unpack(download, &target).await?;
    } else {
        let mode = u32::from_str_radix(&about.mode, 8).unwrap_or(0o644) & 0o777;
        save(client.download(&id, &at).await?, &target, mode).await?;
    }
    Ok(serde_json::json!(about))
}

pub(crate) async fn each_piece(
    mut download: Download,
    mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut progress = Progress::new(download.size());
    while let Some(piece) = download.next().await? {
        take(&piece)?;
        progress.add(piece.len());
    }
    Ok(())
}

/// Under its name only when all of it is there. What is no plain file, such as a device, is written to as it is.
pub(crate) async fn save(download: Download, target: &Path, mode: u32) -> Result<(), Failure> {
    let unwritable = |error: std::io::Error| {
        Failure::problem(format!("{} cannot be written: {error}", target.display()), "")
    };
    if target.exists() && !target.is_file() {
        let mut file = fs::OpenOptions::new().write(true).open(target).map_err(unwritable)?;
        return each_piece(download, |piece| file.write_all(piece).map_err(unwritable)).await;
    }
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".workroom-{}", std::process::id()));
    let part = target.with_file_name(name);
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&part);
    let mut file = opened.map_err(unwritable)?;
    let mut outcome = each_piece(download, |piece| file.write_all(piece).map_err(unwritable)).await;
    if outcome.is_ok() {
        outcome = fs::rename(&part, target).map_err(unwritable);
    }
    if outcome.is_err() {
        let _ = fs::remove_file(&part);
    }
    outcome
}

async fn within(
    client: &Client,
    options: &Options,
    source: &Remote,
    target: &Remote,
) -> Result<serde_json::Value, Failure> {
    let (from, to) = (source.id(client).await?, target.id(client).await?);
    if from != to {
        return Err(Failure::problem(
            "both sides are sessions, and not the same one",
            "copy to this machine first, or through a pipe: workroom cp a:x - | workroom cp - b:x",
        ));
    }
    let mut at = target.at(options.root);
    let into = at.path.is_empty() || at.path.ends_with('/') || {
        look(client, &to, &at).await?.is_some_and(|there| there.kind == FileKind::Directory)
    };
    if into {
        at.path = below(&at.path, source.name());
    }
    let transfer = Transfer { from: source.path.clone(), to: at.path, overwrite: true, root: options.root };
    Ok(serde_json::json!(client.copy_file(&to, &transfer).await?))
}
