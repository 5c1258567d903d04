//! What sessions use.

use crate::ClientError;
use crate::call::{Call, Client};
use crate::sessions::session_path;
use crate::types::{ListUsage, SessionUsage, UsageList, UsageQuery};
use crate::url::query;

impl Client {
    /// Now, at most and over time.
    pub async fn usage(&self, id: &str, wanted: UsageQuery) -> Result<SessionUsage, ClientError> {
        self.value(&Call::get(format!("{}/usage{}", session_path(id), query(&wanted)))).await
    }

    /// Sessions that have a room, the largest first.
    pub async fn usage_list(&self, wanted: ListUsage) -> Result<UsageList, ClientError> {
        self.value(&Call::get(format!("/v1/usage{}", query(&wanted)))).await
    }
}
