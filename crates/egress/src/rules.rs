//! A policy made ready for judging: one look-up for a name, a walk over the cidrs for an address.
//!
//! ```text
//!            target
//!              │ judge_target: mode, port, and the name or the address itself
//!              ▼
//!     denied ◀─┴─▶ a name, allowed: it may now be resolved          an address: as it is
//!              │ judge_address: every address that the name has, one by one
//!              ▼
//!     denied ◀─┴─▶ this address, and no other, may be dialled
//! ```

use crate::cidr::Cidr;
use crate::host::{Host, Name, Target};
use crate::policy::{DomainPattern, Mode, Policy};
use crate::special::special;
use crate::verdict::{Denial, Permit, Reason};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug)]
pub struct Rules {
    policy: Policy,
    exact: HashMap<Name, Arc<DomainPattern>>,
    /// By the part behind `*.`.
    below: HashMap<String, Arc<DomainPattern>>,
}

impl Rules {
    pub fn new(policy: Policy) -> Self {
        let (mut exact, mut below) = (HashMap::new(), HashMap::new());
        for pattern in policy.domains() {
            match pattern {
                DomainPattern::Exact(name) => drop(exact.insert(name.clone(), Arc::new(pattern.clone()))),
                DomainPattern::Below(name) => {
                    drop(below.insert(name.as_str().to_owned(), Arc::new(pattern.clone())));
                }
            }
        }
        Self { policy, exact, below }
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Judges what was asked for, before anything is resolved. A name that this denies is never asked about.
    pub fn judge_target(&self, target: &Target) -> Result<Permit, Denial> {
        let deny = |reason| Denial { host: target.host.to_string(), port: target.port, reason };
        let permit = match (&target.host, self.policy.mode()) {
            (_, Mode::Off) => return Err(deny(Reason::Off)),
            (Host::Name(_), Mode::Open) => Permit::Open,
            (Host::Name(name), Mode::Allow) => match self.pattern_for(name) {
                Some(pattern) => Permit::Domain(pattern.clone()),
                None => return Err(deny(Reason::NotListed)),
            },
            (Host::Address(address), _) => self.judge_bare(*address).map_err(deny)?,
        };
        self.judge_port(target.port).map_err(deny)?;
        Ok(permit)
    }

    /// Judges a name alone, for a DNS question: whether some port of it may be reached.
    pub fn judge_name(&self, name: &Name) -> Result<Permit, Denial> {
        let port = self.policy.ports().and_then(<[_]>::first).map_or(0, |range| range.first());
        self.judge_target(&Target { host: Host::Name(name.clone()), port })
            .map_err(|denial| Denial { port: 0, ..denial })
    }

    /// Judges one address that a permitted target leads to.
    pub fn judge_address(&self, permit: &Permit, target: &Target, address: IpAddr) -> Result<Permit, Denial> {
        let address = address.to_canonical();
        let Some(range) = special(address) else { return Ok(permit.clone()) };
        if self.names(address, &range.range) {
            return Ok(permit.clone());
        }
        let reason = Reason::Special { address, range };
        Err(Denial { host: target.host.to_string(), port: target.port, reason })
    }

    /// Both steps at once, for a connection that stands: whether it would be made today.
    pub fn judge_again(&self, target: &Target, address: IpAddr) -> Result<Permit, Denial> {
        let permit = self.judge_target(target)?;
        self.judge_address(&permit, target, address)
    }

    /// Whether a cidr names this very address, not merely a range around it.
    pub fn names_exactly(&self, address: IpAddr) -> bool {
        self.policy.cidrs().contains(&Cidr::of(address))
    }

    fn judge_bare(&self, address: IpAddr) -> Result<Permit, Reason> {
        if let Some(range) = special(address) {
            return match self.naming(address, &range.range) {
                Some(cidr) => Ok(Permit::Cidr(cidr)),
                None => Err(Reason::Special { address, range }),
            };
        }
        match self.policy.cidrs().iter().find(|cidr| cidr.contains(address)) {
            Some(cidr) => Ok(Permit::Cidr(*cidr)),
            None if self.policy.mode() == Mode::Open => Ok(Permit::Open),
            None => Err(Reason::AddressNotListed),
        }
    }

    fn judge_port(&self, port: u16) -> Result<(), Reason> {
        match self.policy.ports() {
            Some(ports) if !ports.iter().any(|range| range.contains(port)) => {
                let allowed: Vec<String> = ports.iter().take(16).map(ToString::to_string).collect();
                Err(Reason::Port { allowed: allowed.join(", ") })
            }
            _ => Ok(()),
        }
    }

    fn pattern_for(&self, name: &Name) -> Option<&Arc<DomainPattern>> {
        if let Some(pattern) = self.exact.get(name) {
            return Some(pattern);
        }
        let mut rest = name.as_str();
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(pattern) = self.below.get(parent) {
                return Some(pattern);
            }
            rest = parent;
        }
        None
    }

    fn names(&self, address: IpAddr, special: &Cidr) -> bool {
        self.naming(address, special).is_some()
    }

    /// The cidr that names an address of a special range: one that lies inside that range.
    fn naming(&self, address: IpAddr, special: &Cidr) -> Option<Cidr> {
        let names = |cidr: &&Cidr| cidr.contains(address) && cidr.is_within(special);
        self.policy.cidrs().iter().find(names).copied()
    }
}
