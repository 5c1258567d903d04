//! Directories of the host in sessions.

use crate::ClientError;
use crate::call::{Call, Client};
use crate::sessions::session_path;
use crate::types::{AddMounts, MountOffer, SessionMounts};
use hyper::Method;

impl Client {
    /// What the caller's sessions are given, and may ask for.
    pub async fn mount_offer(&self) -> Result<MountOffer, ClientError> {
        self.value(&Call::get("/v1/mounts".to_owned())).await
    }

    pub async fn mounts(&self, id: &str) -> Result<SessionMounts, ClientError> {
        self.value(&Call::get(format!("{}/mounts", session_path(id)))).await
    }

    /// All of them, or none.
    pub async fn add_mounts(&self, id: &str, request: &AddMounts) -> Result<SessionMounts, ClientError> {
        self.value(&Call::post(format!("{}/mounts", session_path(id)))?.json(request)?).await
    }

    /// Taking off what is not mounted succeeds.
    pub async fn remove_mount(&self, id: &str, alias: &str) -> Result<(), ClientError> {
        let path = format!("{}/mounts/{alias}", session_path(id));
        self.answer(&Call::mutating(Method::DELETE, path)?).await.map(drop)
    }
}
