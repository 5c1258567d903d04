//! What is kept of a session's network when nothing serves it: a part of the session in the store.

use serde::{Deserialize, Serialize};
use workroom_egress::process::Seen;
use workroom_store::{Change, Store};
use workroom_types::{
    NetworkConnection, NetworkDenial, NetworkProposal, NetworkTotals, NetworkVerdict, Timestamp,
};

/// What kind of part of a session this is, in the store; there is one.
const PART: &str = "network";
const ID: &str = "record";

/// Connections that are kept: the newest.
pub(super) const MOST_CONNECTIONS: usize = 200;

/// Kinds of denials that are kept: those that happened most.
const MOST_DENIALS: usize = 512;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    pub(super) totals: NetworkTotals,
    pub(super) denials: Vec<NetworkDenial>,
    pub(super) connections: Vec<NetworkConnection>,
    pub(super) proposal: NetworkProposal,
}

/// An empty one where there is none, or none that can be read.
pub(super) async fn read(store: &Store, session: &str) -> Record {
    let parts = store.parts(session, PART).await.unwrap_or_default();
    let found = parts.into_iter().find(|(id, _)| id == ID);
    let mut record: Record = found.and_then(|(_, doc)| serde_json::from_value(doc).ok()).unwrap_or_default();
    record.settle();
    record
}

impl Record {
    pub(super) fn put(&self, session: &str) -> Change {
        let mut kept = self.clone();
        let surplus = kept.connections.len().saturating_sub(MOST_CONNECTIONS);
        kept.connections.drain(..surplus);
        let doc = serde_json::to_value(&kept).unwrap_or_default();
        Change::PutPart { session: session.to_owned(), kind: PART.to_owned(), id: ID.to_owned(), doc }
    }

    /// This, and what has happened since.
    pub(super) fn and(mut self, seen: Seen, proposal: NetworkProposal) -> Record {
        self.totals = self.totals.and(seen.totals);
        for denial in seen.denials {
            let is_same = |known: &&mut NetworkDenial| {
                (&known.host, known.port, &known.code) == (&denial.host, denial.port, &denial.code)
            };
            match self.denials.iter_mut().find(is_same) {
                Some(known) => known.count += denial.count,
                None => self.denials.push(denial),
            }
        }
        self.denials.sort_by_key(|denial| std::cmp::Reverse(denial.count));
        self.denials.truncate(MOST_DENIALS);
        self.connections.extend(seen.connections);
        self.proposal = self.proposal.and(proposal);
        self
    }

    /// Whoever wrote it down is gone, and what was open with it.
    pub(super) fn settle(&mut self) {
        self.totals.open = 0;
        for open in self.connections.iter_mut().filter(|one| one.verdict == NetworkVerdict::Open) {
            open.verdict = NetworkVerdict::Cut;
            open.ended.get_or_insert_with(Timestamp::now);
            open.detail.get_or_insert_with(|| "the room or its network ended".to_owned());
        }
    }
}
