//! WebSockets: the handshake, and a connection that is one afterwards.

use crate::call::Call;
use crate::listen::Place;
use crate::reply::Answer;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use axum::body::Body;
use axum::http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::future::Future;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use workroom_types::Problem;

/// A connection on which messages go both ways.
pub(crate) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The largest message that a client may send.
const LARGEST_MESSAGE: usize = 1 << 20;

/// What RFC 6455 has both sides add to the key, to tell a WebSocket server from any other.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Answers the handshake, and hands the connection over once it is a WebSocket.
pub(crate) fn upgrade<F, T>(call: &mut Call, serve: F) -> Answer
where
    F: FnOnce(Socket) -> T + Send + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let key = handshake_key(call.headers())?;
    let upgrade = call.head.extensions.remove::<OnUpgrade>().ok_or_else(|| {
        Problem::invalid("this connection cannot become a WebSocket", "connect with HTTP/1.1")
    })?;
    let place = call.head.extensions.remove::<Place>();
    let accept = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), GUID].concat()));
    tokio::spawn(async move {
        let Ok(connection) = upgrade.await else { return };
        let config = WebSocketConfig::default()
            .max_message_size(Some(LARGEST_MESSAGE))
            .max_frame_size(Some(LARGEST_MESSAGE));
        let socket =
            WebSocketStream::from_raw_socket(TokioIo::new(connection), Role::Server, Some(config)).await;
        serve(socket).await;
        drop(place);
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_str(&accept).map_err(|_| wrong_handshake())?);
    Ok(response)
}

fn handshake_key(headers: &HeaderMap) -> Result<String, Problem> {
    let has = |name: HeaderName, wanted: &str| {
        headers.get_all(name).iter().any(|value| {
            let words = value.to_str().unwrap_or_default().split(',');
            words.into_iter().any(|word| word.trim().eq_ignore_ascii_case(wanted))
        })
    };
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).unwrap_or_default();
    let is_key = STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16);
    let is_asked =
        has(CONNECTION, "upgrade") && has(UPGRADE, "websocket") && has(SEC_WEBSOCKET_VERSION, "13");
    if is_asked && is_key { Ok(key.to_owned()) } else { Err(wrong_handshake()) }
}

fn wrong_handshake() -> Problem {
    Problem::invalid(
        "this route is a WebSocket, and the request does not ask for one",
        "connect with a WebSocket client, version 13",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn only_a_whole_handshake_is_taken_for_one() {
        let whole = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        assert!(handshake_key(&headers(&whole)).is_ok());
        for missing in 0..whole.len() {
            let mut some = whole.to_vec();
            some.remove(missing);
            assert_eq!(handshake_key(&headers(&some)).expect_err("not whole").status, 400);
        }
    }

    /// The example of RFC 6455, section 1.3.
    #[test]
    fn the_answer_to_a_key_is_the_standards() {
        let accept = STANDARD.encode(digest(
            &SHA1_FOR_LEGACY_USE_ONLY,
            &[b"dGhlIHNhbXBsZSBub25jZQ==".as_slice(), GUID].concat(),
        ));
        assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
