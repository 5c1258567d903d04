//! Many things asked at once.

use crate::call::{Call, Client, LARGEST_ANSWER, decode, root_cause};
use crate::connection::Sender;
use crate::{ClientError, types};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use types::{BatchItem, BatchResult, BatchResults};

/// Results of a batch as they come.
pub struct BatchStream {
    body: Incoming,
    unread: Vec<u8>,
    /// The connection goes when this does.
    _sender: Sender,
}

impl Client {
    /// All results, in the order of the items.
    pub async fn batch(&self, items: &[BatchItem]) -> Result<Vec<BatchResult>, ClientError> {
        let results: BatchResults = self.value(&Call::post("/v1/batch")?.json(&items)?).await?;
        Ok(results.results)
    }

    /// Results in the order in which they are there.
    pub async fn batch_stream(&self, items: &[BatchItem]) -> Result<BatchStream, ClientError> {
        let call = Call::unkeyed_post("/v1/batch").json(&items)?.accept("application/x-ndjson");
        let opened = self.open_once(&call).await?;
        Ok(BatchStream { body: opened.response.into_body(), unread: Vec::new(), _sender: opened.sender })
    }
}

impl BatchStream {
    /// The next result; none when all have come.
    pub async fn next(&mut self) -> Result<Option<BatchResult>, ClientError> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return decode("a result", &line).map(Some);
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(ClientError::Transport(root_cause(&error))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.unread.extend_from_slice(&data);
                    }
                }
            }
            if self.unread.len() > LARGEST_ANSWER {
                return Err(ClientError::Transport("a result is too large".into()));
            }
        }
    }
}
