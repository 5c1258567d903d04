//! Archives on their way into a room and out of it, through a pipe.

use super::clerks::Lent;
use super::contents::Source;
use super::{Files, unexpected};
use crate::pipes::{Fed, Inflow, Outflow};
use bytes::Bytes;
use serde_json::json;
use std::os::fd::AsFd;
use workroom_proto::{FromClerk, ToClerk};
use workroom_types::{ArchiveCaps, ArchiveFormat, FilePath, Imported, Problem};

/// An archive that is being made.
pub struct Export {
    pieces: Outflow,
    clerk: Option<Lent>,
    entries: u64,
}

impl Export {
    /// The next piece. There is nothing more only when the archive is whole: one that could not be finished is a
    /// problem, whatever of it was passed on.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        match self.pieces.next().await? {
            Some(piece) => Ok(Some(piece)),
            None => self.end().await.map(|()| None),
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
        let (pieces, theirs) = Outflow::new()?;
        let answer = clerk.ask(&ask, &[theirs.as_fd()]).await;
        drop(theirs);
        match answer {
            Ok((FromClerk::Exporting, _)) => {}
            Ok((other, _)) => return Err(unexpected(other)),
            Err(lost) => return Err(clerk.explain(lost).await),
        }
        Ok(Export { pieces, clerk: Some(clerk), entries: 0 })
    }

    /// Unpacks an archive into a directory: all of it, or nothing.
    pub async fn import(
        &self,
        request: FilePath,
        caps: ArchiveCaps,
        source: &mut impl Source,
    ) -> Result<Imported, Problem> {
        let FilePath { path, root } = request;
        let rules = self.upload_rules().await?.map(|rules| (*rules).clone());
        let shown = path.clone();
        let ask = match rules {
            Some(rules) => ToClerk::ImportUnder { path, root, caps, rules },
            None => ToClerk::Import { path, root, caps },
        };
        let mut clerk = self.clerks(&ask).await?.lend().await?;
        let (pipe, theirs) = Inflow::new()?;
        if let Err(lost) = clerk.send(&ask, &[theirs.as_fd()]).await {
            return Err(clerk.explain(lost).await);
        }
        drop(theirs);
        // A source that breaks is no end of the archive: the clerk is hung up on first, and keeps nothing.
        let Fed { bytes, sha256 } = match pipe.feed(source).await {
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
            Ok((other, _)) => self.refused(&shown, unexpected(other)).await,
            Err(lost) => Err(clerk.explain(lost).await),
        }
    }
}
