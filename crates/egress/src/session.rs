//! The network of one session: its rules, which can change at any time, its limits, and its ledger.

use crate::forbidden::Forbidden;
use crate::learn::{Proposal, propose};
use crate::ledger::{DenialEvent, Entry, Ledger, Totals, Watcher};
use crate::policy::Policy;
use crate::resolver::{Resolver, ResolverSettings};
use crate::rules::Rules;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections to the outside at once. One holds at most about 100 KiB through the proxy and 900 KiB through
    /// packets, when both sides send and neither reads.
    pub connections: usize,
    /// How long nothing may happen on a connection.
    pub idle: Duration,
    /// How long a connection may take to be made, all addresses of its name together.
    pub dial: Duration,
    /// How long a client has for its request, its greeting or, once it has begun one, its first words.
    pub first_words: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            idle: Duration::from_secs(15 * 60),
            dial: Duration::from_secs(15),
            first_words: Duration::from_secs(20),
        }
    }
}

/// Everything that connections of one session share. Set the policy to `off` to end all of them.
pub struct SessionNet {
    rules: watch::Sender<Arc<Rules>>,
    pub(crate) resolver: Resolver,
    pub(crate) limits: Limits,
    pub(crate) forbidden: Arc<Forbidden>,
    pub(crate) ledger: Arc<Ledger>,
    outside: Arc<Semaphore>,
    inside: Arc<Semaphore>,
}

impl SessionNet {
    pub fn new(
        policy: Policy,
        resolver: ResolverSettings,
        limits: Limits,
        watcher: Box<dyn Watcher>,
    ) -> Arc<Self> {
        Self::beside(policy, resolver, limits, watcher, Arc::default())
    }

    /// The same, on a machine with services that no policy opens.
    pub fn beside(
        policy: Policy,
        resolver: ResolverSettings,
        limits: Limits,
        watcher: Box<dyn Watcher>,
        forbidden: Arc<Forbidden>,
    ) -> Arc<Self> {
        Arc::new(Self {
            forbidden,
            rules: watch::Sender::new(Arc::new(Rules::new(policy))),
            resolver: Resolver::new(resolver),
            ledger: Arc::new(Ledger::new(watcher)),
            outside: Arc::new(Semaphore::new(limits.connections)),
            // Some more may talk to the proxy: those that are told why they cannot go on.
            inside: Arc::new(Semaphore::new(limits.connections.saturating_mul(2).max(16))),
            limits,
        })
    }

    /// Puts other rules in force: at once for new connections, and those that stand and would not be made today
    /// are cut.
    pub fn set_policy(&self, policy: Policy) {
        self.rules.send_replace(Arc::new(Rules::new(policy)));
    }

    pub fn policy(&self) -> Policy {
        self.rules.borrow().policy().clone()
    }

    pub fn totals(&self) -> Totals {
        self.ledger.totals()
    }

    /// The newest connections and denials, oldest first, and behind them what is open.
    pub fn log(&self) -> Vec<Entry> {
        self.ledger.log()
    }

    pub fn denials(&self) -> Vec<DenialEvent> {
        self.ledger.denials()
    }

    /// The allow-list that all this would have needed.
    pub fn learn(&self) -> Proposal {
        propose(&self.ledger)
    }

    pub(crate) fn rules(&self) -> watch::Receiver<Arc<Rules>> {
        self.rules.subscribe()
    }

    pub(crate) fn rules_now(&self) -> Arc<Rules> {
        self.rules.borrow().clone()
    }

    pub(crate) fn admit_outside(&self) -> Option<OwnedSemaphorePermit> {
        self.outside.clone().try_acquire_owned().ok()
    }

    pub(crate) fn admit_inside(&self) -> Option<OwnedSemaphorePermit> {
        self.inside.clone().try_acquire_owned().ok()
    }
}
