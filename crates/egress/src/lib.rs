//! What a room may reach: network policy, and the only ways out that enforce it.
//!
//! A room has no network of its own but loopback. Its programs reach the outside through [`serve_connection`], a proxy
//! for HTTP and SOCKS5, or, if they know of no proxy, through [`serve_tun`], which turns packets of a TUN device into
//! connections. Whatever they ask for goes the same way:
//!
//! ```text
//!   bytes of a room ─▶ host ─▶ rules ─▶ resolver ─▶ rules again, by address ─▶ dial that address ─▶ first words ─▶ relay
//!                     one      name,    only names   special ranges,           never resolved        TLS name,
//!                     spelling port     that may be  the machine itself        a second time         Host
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | [`policy`] | the document, as people write it |
//! | [`host`], [`cidr`], [`special`] | the one spelling of hosts; ranges; addresses that no policy reaches by accident |
//! | [`rules`], [`verdict`] | judging, and what was decided, in words |
//! | [`session`] | one session's rules, limits and ledger; rules change while connections stand |
//! | [`resolver`] | names to addresses |
//! | [`forbidden`] | the server itself, which no policy opens |
//! | [`process`] | the process that all of this runs in, and what the host says to it |
//! | [`transparent`] | packets, names and connections of programs that know of no proxy |
//! | [`ledger`], [`learn`] | bytes, the log of connections, denials with counts; the allow-list that was needed |
#![forbid(unsafe_code)]

mod answer;
pub mod cidr;
#[doc(hidden)]
pub mod client_hello;
mod dial;
#[doc(hidden)]
pub mod first_words;
pub mod forbidden;
pub mod host;
mod http;
pub mod learn;
pub mod ledger;
pub mod policy;
mod prefixed;
pub mod process;
pub mod resolver;
pub mod rules;
mod serve;
pub mod session;
mod socks;
pub mod special;
pub mod transparent;
mod tunnel;
mod upstream;
pub mod verdict;

pub use dial::is_own;
pub use forbidden::Forbidden;
pub use host::{Host, HostError, Name, Target};
pub use learn::Proposal;
pub use ledger::{DenialEvent, Entry, Outcome, Totals, Watcher, Way};
pub use policy::{Mode, Policy, PolicyError};
pub use resolver::{NameServers, ResolverSettings};
pub use serve::serve_connection;
pub use session::{Limits, SessionNet};
pub use transparent::serve_tun;
pub use verdict::{Denial, Permit, Reason};
