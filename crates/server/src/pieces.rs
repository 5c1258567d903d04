//! Bodies that are made while they are sent, and are whole only if they come to their end.

use crate::download::SHA256_TRAILER;
use aws_lc_rs::digest::{Context as Hash, SHA256};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use hyper::body::Frame;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use workroom_engine::{Export, SessionExport};
use workroom_types::{Problem, ProblemCode};

pub(crate) const ENTRIES_TRAILER: HeaderName = HeaderName::from_static("x-workroom-entries");

/// Pieces that wait for a slow reader; then whoever makes them waits.
const WAITING: usize = 2;

/// Something that is sent piece by piece.
pub(crate) trait Pieces: Send + 'static {
    /// There is nothing more only when all of it was made.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, Problem>> + Send;

    /// How many entries are in it, once it is whole, if that is known.
    fn entries(&self) -> Option<u64>;
}

impl Pieces for Export {
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, Problem>> + Send {
        Export::next(self)
    }

    fn entries(&self) -> Option<u64> {
        Some(Export::entries(self))
    }
}

impl Pieces for SessionExport {
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, Problem>> + Send {
        SessionExport::next(self)
    }

    fn entries(&self) -> Option<u64> {
        None
    }
}

/// A body of pieces. One that cannot be finished breaks the connection.
pub(crate) fn body(pieces: impl Pieces, with_trailers: bool) -> Body {
    let (parts, receiver) = mpsc::channel(WAITING);
    tokio::spawn(pump(pieces, with_trailers, parts));
    Body::new(PiecesBody { parts: receiver, over: false })
}

/// What a body is made of. Without an end it was cut off, whatever came before.
enum Part {
    Piece(Bytes),
    End(Option<HeaderMap>),
}

async fn pump(mut pieces: impl Pieces, with_trailers: bool, parts: mpsc::Sender<Result<Part, Problem>>) {
    let mut hash = with_trailers.then(|| Hash::new(&SHA256));
    loop {
        // What comes late is not waited for when nobody reads it any more.
        let next = tokio::select! {
            next = pieces.next() => next,
            () = parts.closed() => return,
        };
        let part = match next {
            Ok(Some(piece)) => {
                if let Some(hash) = &mut hash {
                    hash.update(&piece);
                }
                Ok(Part::Piece(piece))
            }
            Ok(None) => Ok(Part::End(hash.take().map(|hash| trailers(pieces.entries(), hash)))),
            Err(problem) => {
                tracing::warn!(%problem, "what was being sent could not be finished");
                Err(problem)
            }
        };
        let is_last = !matches!(part, Ok(Part::Piece(_)));
        if parts.send(part).await.is_err() || is_last {
            return;
        }
    }
}

fn trailers(entries: Option<u64>, hash: Hash) -> HeaderMap {
    let text: String = hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut trailers = HeaderMap::new();
    if let Some(entries) = entries {
        trailers.insert(ENTRIES_TRAILER, HeaderValue::from(entries));
    }
    if let Ok(text) = HeaderValue::from_str(&text) {
        trailers.insert(SHA256_TRAILER, text);
    }
    trailers
}

struct PiecesBody {
    parts: mpsc::Receiver<Result<Part, Problem>>,
    over: bool,
}

impl hyper::body::Body for PiecesBody {
    type Data = Bytes;
    type Error = Problem;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Problem>>> {
        if self.over {
            return Poll::Ready(None);
        }
        self.parts.poll_recv(context).map(|part| match part {
            Some(Ok(Part::Piece(piece))) => Some(Ok(Frame::data(piece))),
            Some(Ok(Part::End(trailers))) => {
                self.over = true;
                trailers.map(|trailers| Ok(Frame::trailers(trailers)))
            }
            Some(Err(problem)) => Some(Err(problem)),
            None => Some(Err(Problem::new(ProblemCode::Internal, "what was being sent was cut off", ""))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn what_has_no_end_is_not_whole() {
        let whole_of = |parts: Vec<Result<Part, Problem>>| {
            let (sender, receiver) = mpsc::channel(4);
            parts.into_iter().for_each(|part| drop(sender.try_send(part)));
            PiecesBody { parts: receiver, over: false }.collect()
        };
        let piece = || Ok(Part::Piece(Bytes::from_static(b"abc")));
        let whole = whole_of(vec![piece(), piece(), Ok(Part::End(None))]).await;
        assert_eq!(whole.expect("whole").to_bytes(), "abcabc");
        assert!(whole_of(vec![piece()]).await.is_err());
        assert!(whole_of(vec![piece(), Err(Problem::invalid("x", ""))]).await.is_err());
    }
}
