//! Bodies that need not fit into memory: read piece by piece as they come.

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use std::time::Duration;
use workroom_engine::Source;
use workroom_types::Problem;

/// How much of a body that is not wanted is read all the same, and for how long: a client that is still sending would
/// otherwise find the connection broken before it finds the answer.
const MOST_UNWANTED: usize = 16 << 20;
const UNWANTED_FOR: Duration = Duration::from_secs(1);

/// A body that stalls for longer than this is given up: it holds a connection and a place at the room's files.
const STALLED: Duration = Duration::from_secs(120);

pub(crate) struct BodySource {
    body: Body,
}

impl BodySource {
    pub(crate) fn new(body: Body) -> BodySource {
        BodySource { body }
    }

    /// Reads on, for the sake of an answer that does not need it.
    pub(crate) async fn pass_over(&mut self) {
        let mut read = 0;
        let reading = async {
            while let Ok(Some(piece)) = self.next().await {
                read += piece.len();
                if read > MOST_UNWANTED {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(UNWANTED_FOR, reading).await;
    }
}

impl Source for BodySource {
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let frame = match tokio::time::timeout(STALLED, self.body.frame()).await {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(None),
                Err(_) => {
                    return Err(Problem::invalid(
                        format!("nothing more of the body came for {} s", STALLED.as_secs()),
                        "send it without pauses",
                    ));
                }
            };
            let frame = frame.map_err(|error| {
                tracing::debug!(%error, "a body was cut off");
                Problem::invalid("the body was cut off or is malformed", "send it whole")
            })?;
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Ok(Some(data));
            }
        }
    }
}
