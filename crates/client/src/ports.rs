//! Ports of a session: what listens, what is published, links to previews.

use crate::ClientError;
use crate::call::{Call, Client};
use crate::sessions::session_path;
use crate::types::{PortList, PreviewLink, PublishPort, PublishedPort};
use hyper::Method;

impl Client {
    /// What listens in its room now, and what is published.
    pub async fn ports(&self, id: &str) -> Result<PortList, ClientError> {
        self.value(&Call::get(format!("{}/ports", session_path(id)))).await
    }

    pub async fn publish_port(&self, id: &str, request: &PublishPort) -> Result<PublishedPort, ClientError> {
        self.value(&Call::post(format!("{}/ports", session_path(id)))?.json(request)?).await
    }

    /// Unpublishing what is not published succeeds.
    pub async fn unpublish_port(&self, id: &str, port: u16) -> Result<(), ClientError> {
        let path = format!("{}/ports/{port}", session_path(id));
        self.answer(&Call::mutating(Method::DELETE, path)?).await.map(drop)
    }

    /// A link that opens the port's preview, once and soon.
    pub async fn preview_link(&self, id: &str, port: u16) -> Result<PreviewLink, ClientError> {
        self.value(&Call::post(format!("{}/ports/{port}/ticket", session_path(id)))?).await
    }
}
