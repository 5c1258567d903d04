//! What the server and the network process say to each other. Documents travel as JSON: their types are the API's.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Server to network process. `session` names a room's network for as long as it is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToEgress {
    /// How rooms that come after this are served.
    Settings(Settings),
    /// Serve a room's network. Beside it: a listener in the room, then its TUN device if it has one.
    Serve {
        session: String,
        policy: String,
    },
    /// Put other rules in force, at once.
    Rules {
        session: String,
        policy: String,
    },
    /// End what is open, and let go of the descriptors.
    Stop {
        session: String,
    },
    Ask {
        request: u64,
        session: String,
        wanted: Wanted,
    },
    /// Where the server itself listens, which no policy opens.
    Protect {
        addresses: Vec<SocketAddr>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Settings {
    /// Whom to ask for names; those of the machine if there are none.
    pub name_servers: Vec<SocketAddr>,
    /// Connections that a session may have open, if not the usual number.
    pub connections: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// Totals, denials, and this many of the newest connections.
    View { connections: usize },
    /// The allow-list that would have been needed.
    Proposal,
}

/// Network process to server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromEgress {
    Ready,
    /// A `NetworkDenial`: the first of its kind, the second, the fourth…
    Denied {
        session: String,
        denial: String,
    },
    /// `NetworkTotals` that have changed.
    Totals {
        session: String,
        totals: String,
    },
    /// `Seen`, or a `NetworkProposal`; nothing for a session that is not served.
    Answer {
        request: u64,
        answer: Option<String>,
    },
}
