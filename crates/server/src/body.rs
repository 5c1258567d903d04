//! Bodies that need not fit into memory: read piece by piece as they come.

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use std::time::Duration;
use workroom_engine::Source;
use workroom_types::Problem;

/// A body that stalls for longer than this is given up: it holds a connection and a place at the room's files.
const STALLED: Duration = Duration::from_secs(120);

pub(crate) struct BodySource {
    body: Body,
}

impl BodySource {
    pub(crate) fn new(body: Body) -> BodySource {
        BodySource { body }
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
