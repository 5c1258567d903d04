//! What callers are told of a session's network.

use super::record::{self, Record};
use crate::{Engine, policy, sessions};
use workroom_types::{Caller, NetworkMode, NetworkProposal, NetworkView, Problem, Session};

/// Connections in one answer, and the most.
pub(crate) const USUAL_CONNECTIONS: usize = 100;
pub(crate) const MOST_CONNECTIONS: usize = 1000;

impl Engine {
    /// A session's network: what holds, what came of it, and the newest connections.
    pub async fn network(
        &self,
        caller: &Caller,
        id: &str,
        connections: Option<usize>,
    ) -> Result<NetworkView, Problem> {
        let most = connections.unwrap_or(USUAL_CONNECTIONS).min(MOST_CONNECTIONS);
        let session = sessions::get(&self.shared, caller, id).await?;
        let mode = policy::effective(&self.shared, &session).network.unwrap_or_default().mode;
        let (mut record, wires) = match self.shared.networks.seen(id, most).await {
            Some((record, wires)) => (record, Some(wires)),
            None => (record::read(&self.shared.store, id).await, None),
        };
        let surplus = record.connections.len().saturating_sub(most);
        record.connections.drain(..surplus);
        let Record { totals, denials, connections, .. } = record;
        let transparent = wires.as_ref().is_some_and(|wires| wires.tun.is_ok());
        let reason = match &wires {
            Some(wires) => wires
                .tun
                .as_ref()
                .err()
                .map(|why| format!("programs that know of no proxy have no network: {why}")),
            None => missing(mode, &session),
        };
        Ok(NetworkView {
            mode,
            connected: wires.is_some(),
            transparent,
            proxy: wires.map(|wires| format!("127.0.0.1:{}", wires.port)),
            reason,
            totals,
            denials,
            connections,
        })
    }

    /// The allow-list that a session would have needed for all that it tried to reach.
    pub async fn network_proposal(&self, caller: &Caller, id: &str) -> Result<NetworkProposal, Problem> {
        sessions::get(&self.shared, caller, id).await?;
        Ok(match self.shared.networks.seen(id, 0).await {
            Some((record, _)) => record.proposal,
            None => record::read(&self.shared.store, id).await.proposal,
        })
    }
}

fn missing(mode: NetworkMode, session: &Session) -> Option<String> {
    match mode {
        NetworkMode::Off => None,
        _ if !session.state.is_live() => Some("the session has no room".to_owned()),
        _ => Some("the room's network could not be made; the journal has the reason".to_owned()),
    }
}
