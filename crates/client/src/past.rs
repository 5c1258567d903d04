//! A session's past and its relatives: snapshots, forks, differences, merges.

use crate::ClientError;
use crate::call::{Call, Client, decode};
use crate::files::BYTES;
use crate::sessions::session_path;
use crate::types::{
    Diff, DiffQuery, Digest, ForkSession, Forks, Garbage, Lineage, MergeSession, Merged, ResetSession,
    Session, Snapshot, SnapshotList, TakeSnapshot,
};
use crate::url::{query, segment};
use crate::{Download, Upload};
use hyper::Method;

impl Client {
    /// Keeps the files as they are, under a name.
    pub async fn take_snapshot(&self, id: &str, request: &TakeSnapshot) -> Result<Snapshot, ClientError> {
        self.value(&Call::post(format!("{}/snapshots", session_path(id)))?.json(request)?).await
    }

    /// The oldest first.
    pub async fn snapshots(&self, id: &str) -> Result<SnapshotList, ClientError> {
        self.value(&Call::get(format!("{}/snapshots", session_path(id)))).await
    }

    /// Deleting what is gone succeeds.
    pub async fn delete_snapshot(&self, id: &str, name: &str) -> Result<(), ClientError> {
        let path = format!("{}/snapshots/{}", session_path(id), segment(name));
        self.answer(&Call::mutating(Method::DELETE, path)?).await.map(drop)
    }

    /// Puts the files back to an earlier moment.
    pub async fn reset(&self, id: &str, request: &ResetSession) -> Result<Session, ClientError> {
        self.value(&Call::post(format!("{}/reset", session_path(id)))?.json(request)?).await
    }

    /// What the session is now becomes what it is reset to and compared with.
    pub async fn set_baseline(&self, id: &str) -> Result<Session, ClientError> {
        self.value(&Call::post(format!("{}/baseline", session_path(id)))?).await
    }

    pub async fn fork(&self, id: &str, request: &ForkSession) -> Result<Forks, ClientError> {
        self.value(&Call::post(format!("{}/fork", session_path(id)))?.json(request)?).await
    }

    pub async fn diff(&self, id: &str, wanted: &DiffQuery) -> Result<Diff, ClientError> {
        self.value(&Call::get(format!("{}/diff{}", session_path(id), query(wanted)))).await
    }

    pub async fn merge(&self, id: &str, request: &MergeSession) -> Result<Merged, ClientError> {
        self.value(&Call::post(format!("{}/merge", session_path(id)))?.json(request)?).await
    }

    pub async fn digest(&self, id: &str) -> Result<Digest, ClientError> {
        self.value(&Call::get(format!("{}/digest", session_path(id)))).await
    }

    pub async fn lineage(&self, id: &str) -> Result<Lineage, ClientError> {
        self.value(&Call::get(format!("{}/lineage", session_path(id)))).await
    }

    /// The whole session as one file.
    pub async fn export_session(&self, id: &str) -> Result<Download, ClientError> {
        let call = Call::get(format!("{}/export", session_path(id)))
            .accept("*/*")
            .headers(vec![("te", "trailers".into()), ("connection", "te".into())]);
        Ok(Download::new(self, self.open(&call).await?))
    }

    /// Takes up a session from such a file.
    pub async fn import_session(&self, file: Upload) -> Result<Session, ClientError> {
        let answer = self.send(&Call::post("/v1/sessions/import")?, BYTES, file).await?;
        decode("the session", &answer.body)
    }

    /// With an admin token: deletes layers that nobody needs, or says which.
    pub async fn collect_garbage(&self, dry_run: bool) -> Result<Garbage, ClientError> {
        self.value(&Call::post(format!("/v1/gc?dry_run={dry_run}"))?).await
    }
}
