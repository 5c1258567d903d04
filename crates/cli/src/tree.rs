//! Directories of this machine as archives: packed on their way to a room, unpacked on their way from one.

use crate::progress::{Progress, Watched};
use crate::remote::Failure;
use bytes::Bytes;
use std::io::{self, BufWriter, PipeReader, Read};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};
use workroom_client::{Download, Upload};

const BUFFER: usize = 256 << 10;

/// Pieces that wait to be unpacked; then the server waits.
const WAITING: usize = 4;

/// A directory as a tar, packed by a thread while it is sent. Links stay links.
pub(crate) fn pack(directory: &Path) -> Upload {
    let directory = directory.to_owned();
    match io::pipe() {
        Ok((pipe, sink)) => {
            let packing = std::thread::spawn(move || {
                let mut archive = tar::Builder::new(BufWriter::with_capacity(BUFFER, sink));
                archive.follow_symlinks(false);
                archive.append_dir_all(".", &directory)?;
                archive.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error).map(drop)
            });
            let reader = Packed { pipe, packing: Some(packing) };
            Upload::new(Watched { reader, progress: Progress::new(None) })
        }
        Err(error) => Upload::new(Broken(Some(error))),
    }
}

/// The end of the pipe is the end of the archive only if packing came to its own.
struct Packed {
    pipe: PipeReader,
    packing: Option<JoinHandle<io::Result<()>>>,
}

impl Read for Packed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.pipe.read(buffer)?;
        if read == 0
            && let Some(packing) = self.packing.take()
        {
            packing.join().unwrap_or_else(|_| Err(io::Error::other("packing was cut short")))?;
        }
        Ok(read)
    }
}

struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Unpacks a tar into a directory, which is made. Nothing of it leaves the directory, whoever made the archive.
pub(crate) async fn unpack(mut download: Download, target: &Path) -> Result<(), Failure> {
    let (pieces, receiver) = mpsc::channel(WAITING);
    let (tell, told) = oneshot::channel();
    let place = target.to_owned();
    std::thread::spawn(move || {
        let _ = tell.send(unpack_all(Pieces { receiver, piece: Bytes::new() }, place));
    });
    let mut progress = Progress::new(None);
    let received = loop {
        match download.next().await {
            Ok(Some(piece)) => {
                progress.add(piece.len());
                // Nobody takes it any more: the other side says why.
                if pieces.send(Some(piece)).await.is_err() {
                    break Ok(());
                }
            }
            Ok(None) => {
                let _ = pieces.send(None).await;
                break Ok(());
            }
            Err(error) => break Err(error),
        }
    };
    drop(pieces);
    let unpacked = told.await.unwrap_or_else(|_| Err(io::Error::other("unpacking was cut short")));
    received?;
    unpacked.map_err(|error| {
        Failure::problem(
            format!("the directory could not be unpacked into {}: {error}", target.display()),
            "what was unpacked before is there",
        )
    })
}

fn unpack_all(pieces: Pieces, target: PathBuf) -> io::Result<()> {
    std::fs::create_dir_all(&target)?;
    let mut archive = tar::Archive::new(pieces);
    archive.unpack(&target)?;
    // What follows the last entry belongs to the archive too, and says that it is whole.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map(drop)
}

/// What arrives, as a reader. Nothing in place of a piece is the end; without it the archive was cut off.
struct Pieces {
    receiver: mpsc::Receiver<Option<Bytes>>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(Some(piece)) => self.piece = piece,
                Some(None) => {
                    self.receiver.close();
                    return Ok(0);
                }
                None if self.receiver.is_closed() => return Ok(0),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let count = self.piece.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}
