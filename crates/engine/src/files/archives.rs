//! Archives on their way into a room and out of it, through a pipe.

use super::clerks::Lent;
use super::contents::{Source, hex};
use super::{Files, unexpected};
use aws_lc_rs::digest::{Context, SHA256};
use bytes::{Bytes, BytesMut};
use serde_json::json;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use workroom_proto::{FromClerk, ToClerk};
use workroom_types::{ArchiveCaps, ArchiveFormat, FilePath, Imported, Problem, ProblemCode};

/// What a pipe holds, where the kernel lets it: few wakings for much data.
const PIPE: usize = 1 << 20;

/// As much as is passed on at once.
const PIECE: usize = 256 << 10;

/// An archive that is being made.
pub struct Export {
    pipe: pipe::Receiver,
    clerk: Option<Lent>,
    buffer: BytesMut,
    entries: u64,
}

impl Export {
    /// The next piece. There is nothing more only when the archive is whole: one that could not be finished is a
    /// problem, whatever of it was passed on.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        self.buffer.reserve(PIECE);
        match self.pipe.read_buf(&mut self.buffer).await {
            Ok(0) => self.end().await.map(|()| None),
            Ok(_) => Ok(Some(self.buffer.split().freeze())),
            Err(error) => Err(broken(&error)),
        }
    }

    async fn end(&mut self) -> Result<(), Problem> {
        let Some(mut clerk) = self.clerk.take() else { return Ok(()) };
        match clerk.receive().await {
            Ok((FromClerk::Exported { entries }, _)) => {
                self.entries = entries;
                Ok(())
            }
            Ok((other, _)) => Err(unexpected(other)),
            Err(lost) => Err(clerk.explain(lost).await),
        }
    }

    /// How many files, directories and links there are in it, once it is whole.
    pub fn entries(&self) -> u64 {
        self.entries
    }
}

impl Files<'_> {
    pub async fn export(&self, request: FilePath, format: ArchiveFormat) -> Result<Export, Problem> {
        let FilePath { path, root } = request;
        let ask = ToClerk::Export { path, root, format };
        let mut clerk = self.clerks(&ask).await?.lend().await?;
        let (ours, theirs) = pipe_pair()?;
        let pipe = pipe::Receiver::from_owned_fd(ours).map_err(|error| broken(&error))?;
        let answer = clerk.ask(&ask, &[theirs.as_fd()]).await;
        drop(theirs);
        match answer {
            Ok((FromClerk::Exporting, _)) => {}
            Ok((other, _)) => return Err(unexpected(other)),
            Err(lost) => return Err(clerk.explain(lost).await),
        }
        Ok(Export { pipe, clerk: Some(clerk), buffer: BytesMut::new(), entries: 0 })
    }

    /// Unpacks an archive into a directory: all of it, or nothing.
    pub async fn import(
        &self,
        request: FilePath,
        caps: ArchiveCaps,
        source: &mut impl Source,
    ) -> Result<Imported, Problem> {
        let FilePath { path, root } = request;
        let ask = ToClerk::Import { path, root, caps };
        let mut clerk = self.clerks(&ask).await?.lend().await?;
        let (theirs, ours) = pipe_pair()?;
        let pipe = pipe::Sender::from_owned_fd(ours).map_err(|error| broken(&error))?;
        if let Err(lost) = clerk.send(&ask, &[theirs.as_fd()]).await {
            return Err(clerk.explain(lost).await);
        }
        drop(theirs);
        // A source that breaks is no end of the archive: the clerk is hung up on first, and keeps nothing.
        let (bytes, sha256) = match feed(source, pipe).await {
            Ok(fed) => fed,
            Err((problem, pipe)) => {
                drop(clerk);
                drop(pipe);
                return Err(problem);
            }
        };
        match clerk.receive().await {
            Ok((FromClerk::Imported(imported), _)) => {
                let Imported { destination, entry_count, bytes_written, .. } = &imported;
                let body = json!({
                    "path": destination, "entries": entry_count, "bytes": bytes_written,
                    "archive_bytes": bytes, "sha256": sha256,
                });
                self.note("archive.imported", body).await;
                Ok(imported)
            }
            Ok((other, _)) => Err(unexpected(other)),
            Err(lost) => Err(clerk.explain(lost).await),
        }
    }
}

/// Passes a source's pieces on until it ends, or until nobody wants more. The pipe comes back from a source that broke.
async fn feed(
    source: &mut impl Source,
    mut pipe: pipe::Sender,
) -> Result<(u64, String), (Problem, pipe::Sender)> {
    let (mut bytes, mut hash) = (0, Context::new(&SHA256));
    loop {
        let piece = match source.next().await {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok((bytes, hex(hash))),
            Err(problem) => return Err((problem, pipe)),
        };
        hash.update(&piece);
        bytes += piece.len() as u64;
        match pipe.write_all(&piece).await {
            Ok(()) => {}
            // It has seen enough: its answer says why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok((bytes, hex(hash))),
            Err(error) => return Err((broken(&error), pipe)),
        }
    }
}

/// The reading and the writing end.
fn pipe_pair() -> Result<(OwnedFd, OwnedFd), Problem> {
    let pair = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    let (reads, writes) = pair.map_err(|error| broken(&error.into()))?;
    // Beyond what one user may have the kernel says no, and a smaller pipe does as well, slower.
    let _ = rustix::pipe::fcntl_setpipe_size(&writes, PIPE);
    Ok((reads, writes))
}

fn broken(error: &io::Error) -> Problem {
    Problem::new(ProblemCode::Internal, format!("the pipe to the room broke: {error}"), "")
}
