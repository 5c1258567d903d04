//! Long streams between callers and the processes that make or take them, through pipes.

use crate::files::contents::{Source, hex};
use aws_lc_rs::digest::{Context, SHA256};
use bytes::{Bytes, BytesMut};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use workroom_types::{Problem, ProblemCode};

/// What a pipe holds, where the kernel lets it: few wakings for much data.
const PIPE: usize = 1 << 20;

/// As much as is passed on at once.
const PIECE: usize = 256 << 10;

/// What comes out of a pipe, piece by piece.
pub(crate) struct Outflow {
    pipe: pipe::Receiver,
    buffer: BytesMut,
}

impl Outflow {
    /// With the end for whoever is to write.
    pub(crate) fn new() -> Result<(Outflow, OwnedFd), Problem> {
        let (ours, theirs) = pipe_pair()?;
        let pipe = pipe::Receiver::from_owned_fd(ours).map_err(|error| broken(&error))?;
        Ok((Outflow { pipe, buffer: BytesMut::new() }, theirs))
    }

    /// Nothing when nobody writes any more, which does not mean that all was written.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        self.buffer.reserve(PIECE);
        match self.pipe.read_buf(&mut self.buffer).await {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(self.buffer.split().freeze())),
            Err(error) => Err(broken(&error)),
        }
    }
}

/// What goes into a pipe.
pub(crate) struct Inflow {
    pipe: pipe::Sender,
}

/// What was passed on.
pub(crate) struct Fed {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

impl Inflow {
    /// With the end for whoever is to read.
    pub(crate) fn new() -> Result<(Inflow, OwnedFd), Problem> {
        let (theirs, ours) = pipe_pair()?;
        let pipe = pipe::Sender::from_owned_fd(ours).map_err(|error| broken(&error))?;
        Ok((Inflow { pipe }, theirs))
    }

    /// Passes a source's pieces on until it ends, or until nobody wants more. From a source that broke the pipe comes
    /// back: to close it would look like an end.
    pub(crate) async fn feed(mut self, source: &mut impl Source) -> Result<Fed, (Problem, Inflow)> {
        let (mut bytes, mut hash) = (0, Context::new(&SHA256));
        loop {
            let piece = match source.next().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(Fed { bytes, sha256: hex(hash) }),
                Err(problem) => return Err((problem, self)),
            };
            hash.update(&piece);
            bytes += piece.len() as u64;
            match self.pipe.write_all(&piece).await {
                Ok(()) => {}
                // It has seen enough: its answer says why.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(Fed { bytes, sha256: hex(hash) });
                }
                Err(error) => return Err((broken(&error), self)),
            }
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
    Problem::new(ProblemCode::Internal, format!("the pipe to whoever does the work broke: {error}"), "")
}
