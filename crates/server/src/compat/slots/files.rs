//! The tools `read_file` and `write_file`, and which paths may be named: those of the workspace.

use super::envelope::{Envelope, Refusal};
use super::handlers::{Fields, text};
use super::pool::Turn;
use bytes::Bytes;
use serde_json::json;
use std::fs::File;
use std::io::Read;
use workroom_engine::{NewFile, Source};
use workroom_types::{FileInfo, FilePath, Problem, ProblemCode, WORKSPACE, escape, unescape};

/// Bytes of a file that a tool reads or writes.
const LARGEST: u64 = 100_000;

pub(super) const OUTSIDE: &str = "Access denied: path outside workspace";

/// A path as the engine takes it: of the workspace, relative or as commands see it. Nothing for one of anywhere else.
pub(super) fn in_workspace(path: &str) -> Option<String> {
    let below = path.strip_prefix(WORKSPACE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let elsewhere = path.starts_with('/') && !below;
    (!elsewhere && !path.contains('\0')).then(|| escape(path.as_bytes()))
}

/// A path of the engine's as clients know it: relative to the workspace, whatever the bytes of its names.
pub(super) fn shown(path: &str) -> String {
    match unescape(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => path.to_owned(),
    }
}

/// What stands in the way of a file.
pub(super) enum Obstacle {
    Outside,
    NotThere,
    NotAFile,
    Other(Problem),
}

impl From<Problem> for Obstacle {
    fn from(problem: Problem) -> Obstacle {
        match problem.code {
            // A path that makes no sense leads nowhere in the workspace.
            ProblemCode::PathOutsideWorkspace | ProblemCode::InvalidArgument => Obstacle::Outside,
            ProblemCode::NotFound => Obstacle::NotThere,
            ProblemCode::WrongKind => Obstacle::NotAFile,
            _ => Obstacle::Other(problem),
        }
    }
}

/// An open file of the workspace, and what it is.
pub(super) async fn open(turn: &mut Turn<'_>, path: &str) -> Result<(File, FileInfo), Obstacle> {
    let path = in_workspace(path).ok_or(Obstacle::Outside)?;
    open_found(turn, path).await
}

/// The same by a path as the engine tells it, whatever the bytes of its names.
pub(super) async fn open_found(turn: &mut Turn<'_>, path: String) -> Result<(File, FileInfo), Obstacle> {
    let session = turn.session().await.map_err(Obstacle::Other)?;
    Ok(turn.files(&session).open(FilePath { path, root: false }).await?)
}

/// The first bytes of a file, and its size. Reading waits for the disk, and is done where that holds nobody up.
pub(super) async fn head(file: File, most: u64) -> std::io::Result<(Vec<u8>, u64)> {
    let read = move || {
        let size = file.metadata()?.len();
        let mut data = Vec::new();
        file.take(most).read_to_end(&mut data)?;
        Ok((data, size))
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| Err(std::io::ErrorKind::Interrupted.into()))
}

pub(super) async fn read_file(turn: &mut Turn<'_>, args: &Fields) -> Result<Envelope, Refusal> {
    let path = text(args, "path", "")?;
    let (file, info) = match open(turn, path).await {
        Ok(found) => found,
        Err(obstacle) => {
            return Ok(Envelope::refused(match obstacle {
                Obstacle::Outside => OUTSIDE.to_owned(),
                Obstacle::NotThere => format!("File not found: {path}"),
                Obstacle::NotAFile => format!("Not a file: {path}"),
                Obstacle::Other(problem) => format!("Failed to read file: {problem}"),
            }));
        }
    };
    let (data, size) = match head(file, LARGEST).await {
        Ok(read) => read,
        Err(error) => return Ok(Envelope::refused(format!("Failed to read file: {error}"))),
    };
    if size > LARGEST {
        return Ok(Envelope::refused(format!("File too large: {size} bytes (max {LARGEST})")));
    }
    let metadata = json!({ "path": format!("{WORKSPACE}/{}", shown(&info.path)), "size": data.len() });
    Ok(Envelope::good(String::from_utf8_lossy(&data), metadata))
}

pub(super) async fn write_file(turn: &mut Turn<'_>, args: &Fields) -> Result<Envelope, Refusal> {
    let (path, content) = (text(args, "path", "")?, text(args, "content", "")?);
    let size = content.len();
    if size as u64 > LARGEST {
        return Ok(Envelope::refused(format!("Content too large: {size} bytes (max {LARGEST})")));
    }
    let written = match in_workspace(path) {
        Some(path) => write(turn, path, Bytes::copy_from_slice(content.as_bytes()), false).await,
        None => return Ok(Envelope::refused(OUTSIDE)),
    };
    Ok(match written {
        Ok(info) => {
            let metadata = json!({ "path": format!("{WORKSPACE}/{}", shown(&info.path)), "size": size });
            Envelope::good(format!("Successfully wrote {size} bytes to {path}"), metadata)
        }
        Err(problem) => Envelope::refused(match Obstacle::from(problem) {
            Obstacle::Outside => OUTSIDE.to_owned(),
            Obstacle::NotThere => format!("Failed to write file: {path} has no directory to be in"),
            Obstacle::NotAFile => format!("Failed to write file: {path} is not a file"),
            Obstacle::Other(problem) => format!("Failed to write file: {problem}"),
        }),
    })
}

/// Writes a file of the workspace whole, or adds to it; directories above it are made.
pub(super) async fn write(
    turn: &mut Turn<'_>,
    path: String,
    content: Bytes,
    append: bool,
) -> Result<FileInfo, Problem> {
    let session = turn.session().await?;
    let new = NewFile { path, append, ..new_file() };
    turn.files(&session).write(new, &mut Once(Some(content)), None).await.map(|written| written.info)
}

pub(super) fn new_file() -> NewFile {
    NewFile {
        path: String::new(),
        root: false,
        append: false,
        mode: None,
        if_match: None,
        if_none: false,
        sync: false,
    }
}

/// Contents in one piece.
pub(super) struct Once(pub(super) Option<Bytes>);

impl Source for Once {
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        Ok(self.0.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_workspace_can_be_named() {
        for (path, named) in [("a/b", "a/b"), ("/workspace/a", "/workspace/a"), ("", ""), ("a\\b", "a\\\\b")]
        {
            assert_eq!(in_workspace(path).as_deref(), Some(named));
        }
        for elsewhere in ["/etc/x", "/", "/workspaces/x", "a\0b"] {
            assert_eq!(in_workspace(elsewhere), None, "{elsewhere:?}");
        }
        assert_eq!(shown("a\\\\b"), "a\\b");
    }
}
