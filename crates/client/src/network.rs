//! A session's network: what it did, and the allow-list that it would have needed.

use crate::ClientError;
use crate::call::{Call, Client};
use crate::sessions::session_path;
use crate::types::{NetworkProposal, NetworkView};

impl Client {
    /// What holds and what came of it, with this many of the newest connections.
    pub async fn network(&self, id: &str, connections: Option<usize>) -> Result<NetworkView, ClientError> {
        let query = connections.map_or(String::new(), |number| format!("?connections={number}"));
        self.value(&Call::get(format!("{}/network{query}", session_path(id)))).await
    }

    /// The allow-list that all that it tried to reach would need.
    pub async fn network_proposal(&self, id: &str) -> Result<NetworkProposal, ClientError> {
        self.value(&Call::get(format!("{}/network/proposal", session_path(id)))).await
    }
}
