//! The allow-list that a session would have needed, from what it tried to reach.
//!
//! Names and public addresses go into the proposal. Special addresses do not: somebody has to decide about each.

use crate::cidr::Cidr;
use crate::host::Host;
use crate::ledger::Ledger;
use crate::policy::{DomainPattern, Policy, PortRange};
use crate::special::special;
use serde::Serialize;
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// What to set. `off` if nothing was wanted.
    pub policy: Policy,
    /// What it leaves out, each with the reason and what would allow it.
    pub left_out: Vec<LeftOut>,
    /// Wishes beyond those that are remembered.
    pub overlooked: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub host: String,
    pub port: u16,
    pub why: String,
    /// Cidrs that would allow it.
    pub cidrs: Vec<String>,
}

/// Proposes the smallest policy under which everything that was wanted is allowed, special addresses excepted.
///
/// What a program would have done next is unknown where it was denied: the proposal is complete after a run with an
/// open network, and grows from run to run otherwise.
pub fn propose(ledger: &Ledger) -> Proposal {
    let (wanted, overlooked) = ledger.wanted();
    let (mut domains, mut cidrs) = (BTreeSet::new(), BTreeSet::new());
    let mut ports = BTreeSet::new();
    let mut left_out = Vec::new();
    for (target, want) in wanted {
        let mut obstacles = want.special.clone();
        match &target.host {
            Host::Address(address) if special(*address).is_some() || want.own => obstacles.push(*address),
            Host::Address(address) => {
                cidrs.insert(Cidr::of(*address));
                ports.insert(target.port);
            }
            Host::Name(name) => {
                domains.insert(DomainPattern::Exact(name.clone()));
                // A question about a name has no port.
                if target.port != 0 {
                    ports.insert(target.port);
                }
            }
        }
        obstacles.sort();
        obstacles.dedup();
        if let Some(first) = obstacles.first() {
            let what = special(*first).map_or("an address of the machine itself", |range| range.what);
            left_out.push(LeftOut {
                host: target.host.to_string(),
                port: target.port,
                why: format!("{first} is {what}: add a cidr by hand if it is meant to be reached"),
                cidrs: obstacles.iter().map(|address| Cidr::of(*address).to_string()).collect(),
            });
        }
    }
    // Too many different ports for a list mean that the list would say nothing.
    let ports = (!ports.is_empty() && ports.len() <= crate::policy::MOST_PORTS)
        .then(|| ports.into_iter().map(PortRange::one).collect());
    let domains: Vec<_> = domains.into_iter().collect();
    let cidrs: Vec<_> = cidrs.into_iter().collect();
    let dropped = domains.len().saturating_sub(crate::policy::MOST_DOMAINS)
        + cidrs.len().saturating_sub(crate::policy::MOST_CIDRS);
    let policy = Policy::allow(
        domains.into_iter().take(crate::policy::MOST_DOMAINS).collect(),
        ports,
        cidrs.into_iter().take(crate::policy::MOST_CIDRS).collect(),
    )
    .unwrap_or_default();
    Proposal { policy, left_out, overlooked: overlooked + dropped as u64 }
}
