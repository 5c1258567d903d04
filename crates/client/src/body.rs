//! What is sent: bytes that are there, or contents that are read as the connection takes them.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// As much as is read at once.
const PIECE: usize = 512 << 10;

/// Pieces that wait for the connection; then reading waits.
const WAITING: usize = 2;

/// Contents of any size, read while they are sent.
pub struct Upload {
    reader: Box<dyn Read + Send>,
    length: Option<u64>,
}

impl Upload {
    /// All that the reader gives, in a thread of its own.
    pub fn new(reader: impl Read + Send + 'static) -> Upload {
        Upload { reader: Box::new(reader), length: None }
    }

    /// How many bytes there are. A reader that gives more or fewer breaks the request.
    #[must_use]
    pub fn length(mut self, length: u64) -> Upload {
        self.length = Some(length);
        self
    }

    pub(crate) fn into_body(self) -> RequestBody {
        let (sender, pieces) = mpsc::channel(WAITING);
        // Not a thread of the runtime: one that waits for a terminal would keep the runtime from ending.
        std::thread::spawn(move || read_all(self.reader, &sender));
        RequestBody::Pieces { pieces, left: self.length, over: false }
    }
}

impl From<Vec<u8>> for Upload {
    fn from(bytes: Vec<u8>) -> Upload {
        let length = bytes.len() as u64;
        Upload::new(io::Cursor::new(bytes)).length(length)
    }
}

fn read_all(mut reader: Box<dyn Read + Send>, pieces: &mpsc::Sender<Option<io::Result<Bytes>>>) {
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let read = reader.by_ref().take(PIECE as u64).read_to_end(&mut piece);
        let next = match read {
            Ok(0) => None,
            Ok(_) => Some(Ok(piece.into())),
            Err(error) => Some(Err(error)),
        };
        let is_last = !matches!(next, Some(Ok(_)));
        if pieces.blocking_send(next).is_err() || is_last {
            return;
        }
    }
}

#[derive(Debug)]
pub(crate) enum RequestBody {
    Whole(Full<Bytes>),
    /// Nothing in place of a piece is the end; pieces that stop coming without one were cut off.
    Pieces {
        pieces: mpsc::Receiver<Option<io::Result<Bytes>>>,
        left: Option<u64>,
        over: bool,
    },
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let (pieces, left, over) = match self.get_mut() {
            RequestBody::Whole(body) => {
                return Pin::new(body).poll_frame(context).map_err(|never| match never {});
            }
            RequestBody::Pieces { pieces, left, over } => (pieces, left, over),
        };
        if *over {
            return Poll::Ready(None);
        }
        pieces.poll_recv(context).map(|piece| match piece {
            Some(Some(Ok(piece))) => {
                *left = left.map(|left| left.saturating_sub(piece.len() as u64));
                Some(Ok(Frame::data(piece)))
            }
            Some(None) => {
                *over = true;
                None
            }
            Some(Some(Err(error))) => Some(Err(error)),
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Whole(body) => body.is_end_stream(),
            RequestBody::Pieces { left, over, .. } => *over || *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Whole(body) => body.size_hint(),
            RequestBody::Pieces { left: Some(left), .. } => SizeHint::with_exact(*left),
            RequestBody::Pieces { left: None, .. } => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn contents_are_sent_whole_or_not_at_all() {
        let bytes: Vec<u8> = (0..3 * PIECE).map(|n| (n % 253) as u8).collect();
        let body = Upload::from(bytes.clone()).into_body();
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        assert!(body.collect().await.expect("a body").to_bytes() == bytes);

        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::InvalidData.into())
            }
        }
        let broken = Upload::new((&b"abc"[..]).chain(Broken)).into_body();
        assert!(broken.collect().await.is_err());
    }
}
