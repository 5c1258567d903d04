//! The pipe between the stack and the task that serves one of its connections, which tells an end from a break.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// What one direction of a connection holds between the stack and its task.
const PIPE: usize = 128 * 1024;

/// One end. Dropped before it was shut down, it breaks the connection: the other end reads an error, not an end.
pub(super) struct Conduit {
    stream: DuplexStream,
    ended: bool,
    own_break: Arc<AtomicBool>,
    other_break: Arc<AtomicBool>,
}

pub(super) fn pair() -> (Conduit, Conduit) {
    let (first, second) = tokio::io::duplex(PIPE);
    let (one, two) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let end = |stream, own_break: &Arc<AtomicBool>, other_break: &Arc<AtomicBool>| Conduit {
        stream,
        ended: false,
        own_break: own_break.clone(),
        other_break: other_break.clone(),
    };
    (end(first, &one, &two), end(second, &two, &one))
}

impl Drop for Conduit {
    fn drop(&mut self) {
        // Before the stream goes, so that whoever reads its end sees this as well.
        if !self.ended {
            self.own_break.store(true, Relaxed);
        }
    }
}

impl AsyncRead for Conduit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(Ok(())) if buffer.filled().len() == before && self.other_break.load(Relaxed) => {
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            answer => answer,
        }
    }
}

impl AsyncWrite for Conduit {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ended = true;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
