//! Recordings of a session's processes: listed, read, marked, deleted.

use crate::call::{Call, Client};
use crate::sessions::session_path;
use crate::types::{AddMarker, CastFormat, RecordingList};
use crate::url::{query, segment};
use crate::{ClientError, Download};
use hyper::Method;
use serde::Serialize;

/// What of a recording is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ReadRecording {
    pub format: CastFormat,
    /// Bytes of it that are there already.
    pub offset: u64,
    /// Go on while it is being made.
    pub follow: bool,
}

fn recording_path(session: &str, process: &str) -> String {
    format!("{}/recordings/{}", session_path(session), segment(process))
}

impl Client {
    /// The newest first.
    pub async fn recordings(&self, id: &str) -> Result<RecordingList, ClientError> {
        self.value(&Call::get(format!("{}/recordings", session_path(id)))).await
    }

    pub async fn read_recording(
        &self,
        id: &str,
        process: &str,
        wanted: ReadRecording,
    ) -> Result<Download, ClientError> {
        let call = Call::get(format!("{}{}", recording_path(id, process), query(&wanted))).accept("*/*");
        Ok(Download::new(self, self.open(&call).await?))
    }

    /// What was shown, as plain text.
    pub async fn read_transcript(&self, id: &str, process: &str) -> Result<Download, ClientError> {
        let call = Call::get(format!("{}/transcript", recording_path(id, process))).accept("*/*");
        Ok(Download::new(self, self.open(&call).await?))
    }

    /// Puts a marker behind all that the process has written by now.
    pub async fn mark_recording(&self, id: &str, process: &str, label: &str) -> Result<(), ClientError> {
        let request = AddMarker { label: label.to_owned() };
        let call = Call::post(format!("{}/markers", recording_path(id, process)))?.json(&request)?;
        self.answer(&call).await.map(drop)
    }

    /// Deleting what is gone succeeds.
    pub async fn delete_recording(&self, id: &str, process: &str) -> Result<(), ClientError> {
        self.answer(&Call::mutating(Method::DELETE, recording_path(id, process))?).await.map(drop)
    }
}
