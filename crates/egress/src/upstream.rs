//! A connection to the outside: its bytes are counted, and its guard ends it when the rules or idleness say so.

use crate::ledger::{Line, Outcome};
use crate::rules::Rules;
use crate::verdict::Permit;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};

/// The stream of a connection to the outside.
pub(crate) struct Upstream {
    stream: TcpStream,
    line: Arc<Line>,
    permit: Permit,
    rules: watch::Receiver<Arc<Rules>>,
    idle: Duration,
    /// Whether what passes was found to be for the name that was judged.
    name_checked: Arc<AtomicBool>,
    _place: OwnedSemaphorePermit,
}

/// What watches over an [`Upstream`] while others move its bytes.
#[derive(Clone)]
pub(crate) struct Guard {
    line: Arc<Line>,
    rules: watch::Receiver<Arc<Rules>>,
    idle: Duration,
    name_checked: Arc<AtomicBool>,
}

impl Upstream {
    pub(crate) fn new(
        stream: TcpStream,
        line: Arc<Line>,
        permit: Permit,
        rules: watch::Receiver<Arc<Rules>>,
        place: OwnedSemaphorePermit,
        idle: Duration,
    ) -> Self {
        // What was let through by its name is looked at before a byte of it goes out.
        let name_checked = Arc::new(AtomicBool::new(matches!(permit, Permit::Domain(_))));
        Self { stream, line, permit, rules, idle, name_checked, _place: place }
    }

    pub(crate) fn permit(&self) -> &Permit {
        &self.permit
    }

    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    pub(crate) fn guard(&self) -> Guard {
        Guard {
            line: self.line.clone(),
            rules: self.rules.clone(),
            idle: self.idle,
            name_checked: self.name_checked.clone(),
        }
    }

    /// Ends it so that the server sees a reset, not an orderly end of what it was being sent.
    pub(crate) fn abort(&self) {
        let _ = self.stream.set_zero_linger();
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.line.close();
    }
}

impl Guard {
    /// All that passes is for the name that was judged.
    pub(crate) fn name_is_checked(&self) {
        self.name_checked.store(true, Relaxed);
    }

    /// Returns when the connection must end, and has said why in the ledger.
    pub(crate) async fn until_cut(mut self) {
        let why = loop {
            tokio::select! {
                changed = self.rules.changed() => {
                    if changed.is_err() {
                        // The session's network is gone; nobody could change the rules any more.
                        break "the session's network ended".to_owned();
                    }
                    let rules = self.rules.borrow_and_update().clone();
                    if let Some(why) = self.judge_again(&rules) {
                        break why;
                    }
                }
                () = tokio::time::sleep_until((self.line.last() + self.idle).into()) => {
                    if self.line.last().elapsed() >= self.idle {
                        break format!("nothing passed for {:?}", self.idle);
                    }
                }
            }
        };
        self.line.ends(Outcome::Cut, why);
    }

    fn judge_again(&self, rules: &Rules) -> Option<String> {
        match rules.judge_again(&self.line.target, self.line.address) {
            Err(denial) => Some(denial.to_string()),
            // It was made when names did not matter, and nobody has looked at what it says.
            Ok(Permit::Domain(pattern)) if !self.name_checked.load(Relaxed) => {
                Some(format!("rule {pattern} goes by names, and this connection's name was not checked"))
            }
            Ok(_) => None,
        }
    }
}

impl AsyncRead for Upstream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let answer = Pin::new(&mut self.stream).poll_read(context, buffer);
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            self.line.received(bytes);
        }
        answer
    }
}

impl AsyncWrite for Upstream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let answer = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = answer {
            self.line.sent(written);
        }
        answer
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let answer = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        if let Poll::Ready(Ok(written)) = answer {
            self.line.sent(written);
        }
        answer
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
