//! Private files of a session: kept beside it, out of its room's reach.

use crate::ClientError;
use crate::call::{Call, Client};
use crate::sessions::session_path;
use crate::types::PrivateFiles;
use crate::url::segment;
use bytes::Bytes;
use hyper::Method;

fn file_path(id: &str, name: &str) -> String {
    format!("{}/private/{}", session_path(id), segment(name))
}

impl Client {
    pub async fn private_files(&self, id: &str) -> Result<PrivateFiles, ClientError> {
        self.value(&Call::get(format!("{}/private", session_path(id)))).await
    }

    pub async fn private_read(&self, id: &str, name: &str) -> Result<Bytes, ClientError> {
        let call =
            Call::get(file_path(id, name)).accept("application/octet-stream, application/problem+json");
        Ok(self.answer(&call).await?.body)
    }

    pub async fn private_write(
        &self,
        id: &str,
        name: &str,
        data: impl Into<Bytes>,
    ) -> Result<(), ClientError> {
        let call = Call::mutating(Method::PUT, file_path(id, name))?;
        self.answer(&call.bytes("application/octet-stream", data.into())).await.map(drop)
    }

    pub async fn private_delete(&self, id: &str, name: &str) -> Result<(), ClientError> {
        self.answer(&Call::mutating(Method::DELETE, file_path(id, name))?).await.map(drop)
    }
}
