//! The client's side of a WebSocket on a server's own connection, TCP or unix.

use crate::ClientError;
use crate::call::{Call, Client};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

/// More than any message of the server's.
const LARGEST_MESSAGE: usize = 16 << 20;

pub(crate) struct Socket {
    stream: WebSocketStream<TokioIo<Upgraded>>,
}

/// A message of the server's.
pub(crate) enum Said {
    Text(String),
    Binary(Bytes),
}

impl Client {
    pub(crate) async fn websocket(&self, call: &Call) -> Result<Socket, ClientError> {
        let mut key = [0u8; 16];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| ClientError::Transport(format!("this machine gives no randomness: {error}")))?;
        let call = call.clone().headers(vec![
            ("connection", "Upgrade".into()),
            ("upgrade", "websocket".into()),
            ("sec-websocket-version", "13".into()),
            ("sec-websocket-key", BASE64.encode(key)),
        ]);
        let upgraded = self.upgrade(&call).await?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(LARGEST_MESSAGE))
            .max_frame_size(Some(LARGEST_MESSAGE));
        let stream =
            WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(config)).await;
        Ok(Socket { stream })
    }
}

/// The half that is listened to.
pub(crate) struct Incoming {
    stream: SplitStream<WebSocketStream<TokioIo<Upgraded>>>,
}

/// The half that is spoken into, whether or not the other is listened to meanwhile.
pub(crate) struct Outgoing {
    sink: SplitSink<WebSocketStream<TokioIo<Upgraded>>, Message>,
}

impl Incoming {
    pub(crate) async fn next(&mut self) -> Result<Option<Said>, ClientError> {
        loop {
            if let Some(said) = understood(self.stream.next().await)? {
                return Ok(said);
            }
        }
    }
}

impl Outgoing {
    /// Says that this was all. The other side ends the connection when it has done what was asked before.
    pub(crate) async fn close(&mut self) -> Result<(), ClientError> {
        self.sink.send(Message::Close(None)).await.map_err(|error| broke(&error))
    }

    pub(crate) async fn send_text(&mut self, text: String) -> Result<(), ClientError> {
        self.sink.send(Message::text(text)).await.map_err(|error| broke(&error))
    }

    pub(crate) async fn send_binary(&mut self, data: Bytes) -> Result<(), ClientError> {
        self.sink.send(Message::Binary(data)).await.map_err(|error| broke(&error))
    }
}

/// What a message says: nothing inside if it is the last one, nothing at all if it is none for callers.
fn understood(message: Option<Result<Message, Error>>) -> Result<Option<Option<Said>>, ClientError> {
    match message {
        Some(Ok(Message::Text(text))) => Ok(Some(Some(Said::Text(text.as_str().to_owned())))),
        Some(Ok(Message::Binary(data))) => Ok(Some(Some(Said::Binary(data)))),
        Some(Ok(Message::Close(_))) | None => Ok(Some(None)),
        Some(Ok(_)) => Ok(None),
        Some(Err(Error::ConnectionClosed | Error::AlreadyClosed)) => Ok(Some(None)),
        Some(Err(error)) => Err(broke(&error)),
    }
}

impl Socket {
    pub(crate) async fn next(&mut self) -> Result<Option<Said>, ClientError> {
        loop {
            if let Some(said) = understood(self.stream.next().await)? {
                return Ok(said);
            }
        }
    }

    pub(crate) fn split(self) -> (Outgoing, Incoming) {
        let (sink, stream) = self.stream.split();
        (Outgoing { sink }, Incoming { stream })
    }

    pub(crate) async fn send_text(&mut self, text: String) -> Result<(), ClientError> {
        self.stream.send(Message::text(text)).await.map_err(|error| broke(&error))
    }

    pub(crate) async fn send_binary(&mut self, data: Bytes) -> Result<(), ClientError> {
        self.stream.send(Message::Binary(data)).await.map_err(|error| broke(&error))
    }
}

fn broke(error: &Error) -> ClientError {
    ClientError::Transport(format!("the line to the process broke: {error}; attach again"))
}
