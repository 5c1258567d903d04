//! An answer of any size, read as it comes.

use crate::ClientError;
use crate::call::{Client, Opened, root_cause};
use crate::connection::Sender;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_LENGTH, ETAG};

/// The contents of a file, or an archive.
pub struct Download {
    client: Client,
    sender: Option<Sender>,
    headers: HeaderMap,
    trailers: Option<HeaderMap>,
    body: Incoming,
}

impl Download {
    pub(crate) fn new(client: &Client, opened: Opened) -> Download {
        let (head, body) = opened.response.into_parts();
        Download {
            client: client.clone(),
            sender: Some(opened.sender),
            headers: head.headers,
            trailers: None,
            body,
        }
    }

    /// How many bytes there are, where the server knows.
    pub fn size(&self) -> Option<u64> {
        self.body.size_hint().exact().or_else(|| self.header(CONTENT_LENGTH.as_str())?.parse().ok())
    }

    /// Changes when the file does.
    pub fn etag(&self) -> Option<&str> {
        self.header(ETAG.as_str()).map(|etag| etag.trim_matches('"'))
    }

    /// The next piece; nothing after the last, and only if all were there.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            match self.body.frame().await {
                None => {
                    if let Some(sender) = self.sender.take() {
                        self.client.give_back(sender);
                    }
                    return Ok(None);
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => return Ok(Some(data)),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
                Some(Err(error)) => {
                    return Err(ClientError::Transport(format!(
                        "the answer broke off before it was whole: {}; ask again",
                        root_cause(&error)
                    )));
                }
            }
        }
    }

    /// Of all bytes, in hex; known after the last piece, if it was asked for.
    pub fn sha256(&self) -> Option<&str> {
        self.trailer("x-workroom-sha256")
    }

    /// Of an archive, after the last piece: how many files, directories and links are in it.
    pub fn entries(&self) -> Option<u64> {
        self.trailer("x-workroom-entries")?.parse().ok()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers.as_ref()?.get(name)?.to_str().ok()
    }
}
