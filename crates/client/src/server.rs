//! The server itself: what it can do, and how it is.

use crate::ClientError;
use crate::call::{Call, Client};
use crate::types::Capabilities;

impl Client {
    pub async fn capabilities(&self) -> Result<Capabilities, ClientError> {
        self.value(&Call::get("/v1/capabilities")).await
    }

    /// Whether the server answers at all.
    pub async fn healthy(&self) -> Result<(), ClientError> {
        self.answer(&Call::get("/healthz").accept("*/*")).await.map(drop)
    }

    /// Whether it can serve calls: its store writes and rooms can be built.
    pub async fn ready(&self) -> Result<(), ClientError> {
        self.answer(&Call::get("/readyz").accept("*/*")).await.map(drop)
    }

    /// Its numbers, as Prometheus reads them.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let answer = self.answer(&Call::get("/metrics").accept("*/*")).await?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }
}
