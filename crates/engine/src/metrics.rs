//! Running counts and sums over all sessions, for `/metrics`.

use crate::Engine;
use crate::usage::Totals;
use std::sync::atomic::Ordering::Relaxed;

/// Numbers for `/metrics`, as they are now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Metrics {
    pub sessions_live: u64,
    pub sessions_queued: u64,
    pub sessions_created: u64,
    pub rooms_started: u64,
    pub rooms_failed: u64,
    pub rooms_lost: u64,
    pub rooms_adopted: u64,
    pub execs_started: u64,
    pub execs_running: u64,
    pub execs_timed_out: u64,
    pub output_bytes: u64,
    /// Processes killed for want of memory, processes not made, disks seen to be full.
    pub limits_memory: u64,
    pub limits_pids: u64,
    pub limits_disk: u64,
    /// What all rooms together use, as they were last looked at.
    pub rooms: Totals,
    pub network_rooms: u64,
    pub network_open: u64,
    pub network_sent: u64,
    pub network_received: u64,
    pub network_opened: u64,
    pub network_denied: u64,
    pub network_failed: u64,
    pub network_restarts: u64,
    pub journal_entries: u64,
    pub store_commits: u64,
    pub store_failures: u64,
}

impl Engine {
    pub fn metrics(&self) -> Metrics {
        let counts = &self.shared.metrics;
        let store = self.shared.store.counters();
        let network = self.shared.networks.numbers();
        Metrics {
            sessions_live: self.shared.admission.live(),
            sessions_queued: self.shared.admission.queued(),
            sessions_created: counts.sessions_created.load(Relaxed),
            rooms_started: counts.rooms_started.load(Relaxed),
            rooms_failed: counts.rooms_failed.load(Relaxed),
            rooms_lost: counts.rooms_lost.load(Relaxed),
            rooms_adopted: counts.rooms_adopted.load(Relaxed),
            execs_started: counts.execs_started.load(Relaxed),
            execs_running: counts.execs_running.load(Relaxed),
            execs_timed_out: counts.execs_timed_out.load(Relaxed),
            output_bytes: counts.output_bytes.load(Relaxed),
            limits_memory: counts.limits_memory.load(Relaxed),
            limits_pids: counts.limits_pids.load(Relaxed),
            limits_disk: counts.limits_disk.load(Relaxed),
            rooms: self.shared.usage.totals(),
            network_rooms: network.rooms,
            network_open: network.totals.open,
            network_sent: network.totals.sent,
            network_received: network.totals.received,
            network_opened: network.totals.opened,
            network_denied: network.totals.denied,
            network_failed: network.totals.failed,
            network_restarts: network.restarts,
            journal_entries: store.entries,
            store_commits: store.commits,
            store_failures: store.failures,
        }
    }
}
