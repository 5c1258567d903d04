//! What a session's network did: totals, connections, denials, and the allow-list that it would have needed.

use crate::{NetworkMode, NetworkPolicy, Timestamp};
use serde::{Deserialize, Serialize};

/// A session's network: what holds, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NetworkView {
    /// What the policy says.
    pub mode: NetworkMode,
    /// Whether the room has a way out at this moment.
    pub connected: bool,
    /// Whether programs that know of no proxy have one too.
    pub transparent: bool,
    /// The proxy's address inside the room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// What is missing of what the policy gives, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub totals: NetworkTotals,
    /// What was refused, each kind once, with how often.
    pub denials: Vec<NetworkDenial>,
    /// The newest connections, oldest first; behind them those that are open.
    pub connections: Vec<NetworkConnection>,
}

/// Over the session's whole life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct NetworkTotals {
    /// Bytes from the room.
    pub sent: u64,
    /// Bytes to the room.
    pub received: u64,
    /// Connections that were made.
    pub opened: u64,
    /// Those that are open now.
    pub open: u64,
    pub denied: u64,
    /// Connections that stood and were ended: by new rules, or because nothing happened on them.
    pub cut: u64,
    /// Connections that were let through and could not be made.
    pub failed: u64,
    /// Packets that are neither TCP nor DNS nor anything that is answered.
    pub dropped_packets: u64,
}

impl NetworkTotals {
    /// Both together; what is open is the other's alone, for ours ended before.
    #[must_use]
    pub fn and(self, later: NetworkTotals) -> NetworkTotals {
        NetworkTotals {
            sent: self.sent + later.sent,
            received: self.received + later.received,
            opened: self.opened + later.opened,
            open: later.open,
            denied: self.denied + later.denied,
            cut: self.cut + later.cut,
            failed: self.failed + later.failed,
            dropped_packets: self.dropped_packets + later.dropped_packets,
        }
    }
}

/// How a connection came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum NetworkWay {
    /// A request to the proxy.
    Http,
    /// A tunnel through the proxy.
    Connect,
    Socks,
    /// A program that knows of no proxy.
    Transparent,
    /// A question about a name.
    Dns,
}

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum NetworkVerdict {
    /// It is open.
    Open,
    /// It was let through, and has ended by itself.
    Allowed,
    Denied,
    /// It stood, and was ended.
    Cut,
    /// It was let through, and could not be made.
    Failed,
}

/// One line of the log of connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NetworkConnection {
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub started: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub ended: Option<Timestamp>,
    pub way: NetworkWay,
    /// As the room named it.
    pub host: String,
    pub port: u16,
    /// The address that was dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    pub sent: u64,
    pub received: u64,
    pub verdict: NetworkVerdict,
    /// The rule that decided.
    pub rule: String,
    /// What went wrong, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A kind of denial, with how often it has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NetworkDenial {
    pub host: String,
    pub port: u16,
    pub way: NetworkWay,
    /// For programs; never renamed.
    pub code: String,
    /// What was refused, by which rule, and how to allow it.
    pub detail: String,
    pub count: u64,
}

/// The allow-list that a session would have needed, from what it tried to reach.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NetworkProposal {
    /// What to set. `off` if nothing was wanted.
    pub network: NetworkPolicy,
    /// What it leaves out: special addresses, about each of which somebody has to decide.
    pub left_out: Vec<NetworkLeftOut>,
    /// Wishes beyond those that are remembered.
    pub overlooked: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NetworkLeftOut {
    pub host: String,
    pub port: u16,
    pub why: String,
    /// Cidrs that would allow it.
    pub cidrs: Vec<String>,
}

impl NetworkProposal {
    /// What both would have needed.
    #[must_use]
    pub fn and(mut self, later: NetworkProposal) -> NetworkProposal {
        let (own, other) = (&mut self.network, later.network);
        let was = own.mode;
        own.mode = was.max(other.mode);
        join(&mut own.domains, other.domains);
        join(&mut own.cidrs, other.cidrs);
        // Without a list every port is meant.
        own.ports = match (own.ports.take(), other.ports) {
            (Some(mut ports), Some(more)) => {
                join(&mut ports, more);
                Some(ports)
            }
            (Some(ports), None) if other.mode == NetworkMode::Off => Some(ports),
            (None, Some(ports)) if was == NetworkMode::Off => Some(ports),
            _ => None,
        };
        join(&mut self.left_out, later.left_out);
        self.overlooked += later.overlooked;
        self
    }
}

fn join<T: PartialEq>(all: &mut Vec<T>, more: Vec<T>) {
    for one in more {
        if !all.contains(&one) {
            all.push(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortRule;

    fn wanted(domain: &str, port: u16) -> NetworkProposal {
        NetworkProposal {
            network: NetworkPolicy {
                mode: NetworkMode::Allow,
                domains: vec![domain.into()],
                ports: Some(vec![PortRule::Number(port)]),
                cidrs: Vec::new(),
            },
            ..NetworkProposal::default()
        }
    }

    #[test]
    fn proposals_of_two_runs_are_what_both_needed() {
        let both = wanted("a.example", 443).and(wanted("b.example", 443)).and(wanted("a.example", 80));
        assert_eq!(both.network.domains, ["a.example", "b.example"]);
        assert_eq!(both.network.ports, Some(vec![PortRule::Number(443), PortRule::Number(80)]));
        assert_eq!(NetworkProposal::default().and(wanted("a.example", 443)).network.domains, ["a.example"]);
        assert_eq!(wanted("a.example", 443).and(NetworkProposal::default()), wanted("a.example", 443));
    }
}
