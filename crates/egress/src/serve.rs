//! One connection of a room's program to the proxy: which protocol it speaks is told by its first byte.

use crate::http;
use crate::prefixed::Prefixed;
use crate::session::SessionNet;
use crate::socks;
use bytes::Bytes;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::timeout;

/// Serves a connection to its end: HTTP (whole URLs and CONNECT) or SOCKS5.
///
/// The stream may come from anywhere, and everything that comes out of it is taken to be hostile. Returns when both
/// sides are done; dropping the future ends what it serves.
pub async fn serve_connection<S>(mut stream: S, session: Arc<SessionNet>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    // More than anybody needs to be told why: such a one is let go unanswered.
    let Some(_place) = session.admit_inside() else { return };
    let mut first = [0];
    match timeout(session.limits.first_words, stream.read(&mut first)).await {
        Ok(Ok(1)) => {}
        _ => return,
    }
    let client = Prefixed::new(Bytes::copy_from_slice(&first), stream);
    match first[0] {
        socks::VERSION => socks::serve(client, session).await,
        byte if byte.is_ascii_graphic() || byte == b'\r' || byte == b'\n' => {
            http::serve_proxy(client, session).await;
        }
        // Nothing that could be answered in its own words.
        _ => {}
    }
}
