//! From the ledger's words to the API's.

use crate::learn::Proposal;
use crate::ledger::{DenialEvent, Entry, Outcome, Totals, Way};
use serde::{Deserialize, Serialize};
use workroom_types::{
    NetworkConnection, NetworkDenial, NetworkLeftOut, NetworkPolicy, NetworkProposal, NetworkTotals,
    NetworkVerdict, NetworkWay, Timestamp,
};

/// What a session's network has done since it is served.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Seen {
    pub totals: NetworkTotals,
    pub denials: Vec<NetworkDenial>,
    pub connections: Vec<NetworkConnection>,
}

fn moment(milliseconds: u64) -> Timestamp {
    Timestamp(i64::try_from(milliseconds).unwrap_or(i64::MAX))
}

fn way(way: Way) -> NetworkWay {
    match way {
        Way::Http => NetworkWay::Http,
        Way::Connect => NetworkWay::Connect,
        Way::Socks => NetworkWay::Socks,
        Way::Transparent => NetworkWay::Transparent,
        Way::Dns => NetworkWay::Dns,
    }
}

pub(super) fn connection(entry: Entry) -> NetworkConnection {
    NetworkConnection {
        started: moment(entry.started),
        ended: entry.ended.map(moment),
        way: way(entry.way),
        host: entry.host,
        port: entry.port,
        address: entry.address.map(|address| address.to_string()),
        sent: entry.sent,
        received: entry.received,
        verdict: match entry.outcome {
            Outcome::Open => NetworkVerdict::Open,
            Outcome::Allowed => NetworkVerdict::Allowed,
            Outcome::Denied => NetworkVerdict::Denied,
            Outcome::Cut => NetworkVerdict::Cut,
            Outcome::Failed => NetworkVerdict::Failed,
        },
        rule: entry.rule,
        detail: entry.detail,
    }
}

pub(super) fn denial(event: DenialEvent) -> NetworkDenial {
    NetworkDenial {
        host: event.host,
        port: event.port,
        way: way(event.way),
        code: event.code.to_owned(),
        detail: event.detail,
        count: event.count,
    }
}

pub(super) fn totals(totals: Totals) -> NetworkTotals {
    NetworkTotals {
        sent: totals.sent,
        received: totals.received,
        opened: totals.opened,
        open: totals.open,
        denied: totals.denied,
        cut: totals.cut,
        failed: totals.failed,
        dropped_packets: totals.dropped_packets,
    }
}

pub(super) fn proposal(proposal: Proposal) -> NetworkProposal {
    // Both read and write the same document.
    let network = serde_json::to_value(&proposal.policy)
        .and_then(serde_json::from_value::<NetworkPolicy>)
        .unwrap_or_default();
    let left_out = |one: crate::learn::LeftOut| NetworkLeftOut {
        host: one.host,
        port: one.port,
        why: one.why,
        cidrs: one.cidrs,
    };
    NetworkProposal {
        network,
        left_out: proposal.left_out.into_iter().map(left_out).collect(),
        overlooked: proposal.overlooked,
    }
}
