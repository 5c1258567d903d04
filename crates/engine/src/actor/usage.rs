//! When a room is looked at, and what is told of limits that it ran into.
//!
//! ```text
//!  something is asked, or ends ──▶ in a second ──▶ every second ──little happens──▶ every 2, 4 … 60 seconds
//!                                        ▲               │ nothing runs
//!                                        └── asked ──────▶ not at all
//! ```

use super::{Actor, Reply};
use crate::disk::DiskLimit;
use crate::usage::{Meter, PART, Sums, lock, told};
use crate::workers::Worker;
use crate::{policy, usage};
use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use workroom_proto::{Answer, FromWorker, LayerTask, Question};
use workroom_store::Change;
use workroom_types::{
    Gauge, Layer, LayerState, NetworkMode, SessionState, SessionUsage, Timestamp, UsageQuery,
};

const OFTEN: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(60);

/// A room that uses less than this, in thousandths of a CPU, is looked at less and less often.
const LITTLE: u64 = 10;

/// How soon the same limit is told of again.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// How long a room that is about to end may take to say what it has used: it is not for its guest to say when it ends.
const LAST_LOOK_WITHIN: Duration = Duration::from_millis(500);

/// How long who asks waits for a layer to be measured.
const PATIENCE: Duration = Duration::from_millis(300);

/// How old a measure of a layer without a limit may be: as many times as old as it took to make, and not older than this.
const MEASURED_AGAIN_AFTER: u32 = 50;
const OLDEST_MEASURE: Duration = Duration::from_secs(60);

/// A disk is full when less than this share of it is free, or no more than a few blocks.
const FULL_SHARE: u64 = 200;
const FEW_BYTES: u64 = 64 << 10;

/// Commands that are named in one event.
const MOST_NAMED: usize = 5;

/// When to look, and what was told.
#[derive(Default)]
pub(super) struct Looks {
    meter: Option<Arc<Mutex<Meter>>>,
    next: Option<Instant>,
    pause: Duration,
    /// Bytes and inodes are full, and that was told.
    is_full: bool,
    told: [Option<Instant>; 2],
    untold: [u64; 2],
    /// The last command that ended while the kernel killed something for want of memory.
    victim: Option<Value>,
    measured: Option<Instant>,
    /// Bytes of output that were written before there were figures.
    early_output: u64,
    /// What an earlier server has seen in the room is not told again.
    begins_silent: bool,
}

impl Actor {
    /// When the room is to be looked at.
    pub(super) fn looks_at(&self) -> Option<Instant> {
        self.looks.next.filter(|_| self.room.is_some() && self.state() == SessionState::Running)
    }

    /// Something was asked, or has ended: a look in a while.
    pub(super) fn look_soon(&mut self) {
        let soon = Instant::now() + OFTEN;
        self.looks.pause = OFTEN;
        if self.looks.next.is_none_or(|next| next > soon) {
            self.looks.next = Some(soon);
        }
    }

    /// A command ended; what it wrote is counted. One that ended badly may have run into a limit.
    pub(super) fn count_end(&mut self, report: &workroom_types::RunReport, command: &str, pid: Option<i32>) {
        let written = report.written[0] + report.written[1];
        match &self.looks.meter {
            Some(meter) => lock(meter).sums.output += written,
            None => self.looks.early_output += written,
        }
        if report.oom_killed {
            let mut victim =
                json!({ "command": crate::validate::shown(command), "exit_code": report.exit.status() });
            if let Some(pid) = pid {
                victim["pid"] = pid.into();
            }
            self.looks.victim = Some(victim);
        }
        if report.oom_killed || report.exit.status() != 0 {
            self.looks.next = Some(Instant::now());
        }
    }

    async fn meter(&mut self) -> Arc<Mutex<Meter>> {
        if let Some(meter) = &self.looks.meter {
            return meter.clone();
        }
        let id = self.row.session.id.clone();
        let meter = match self.shared.usage.known(&id) {
            Some(meter) => meter,
            None => {
                let parts = self.shared.store.parts(&id, PART).await.unwrap_or_default();
                let sums = parts.into_iter().next().and_then(|(_, doc)| serde_json::from_value(doc).ok());
                self.shared.usage.open(&id, sums.unwrap_or_default())
            }
        };
        lock(&meter).sums.output += std::mem::take(&mut self.looks.early_output);
        self.looks.meter.insert(meter).clone()
    }

    /// The room is one that an earlier server has looked at.
    pub(super) fn look_on(&mut self) {
        self.looks.begins_silent = true;
        self.look_soon();
    }

    /// Looks at the room, and says when it is to be looked at again.
    pub(super) async fn look(&mut self) {
        self.looks.next = None;
        if let Ok((Answer::Gauge(gauge), _)) = self.ask(Question::Gauge).await {
            self.take_gauge(gauge).await;
        }
    }

    async fn take_gauge(&mut self, mut gauge: Gauge) {
        if let Some(told) = gauge.disk
            && let Ok(stack) = self.stack().await
        {
            let limit = DiskLimit::of(&policy::effective(&self.shared, &self.row.session));
            if limit.is_some() {
                self.see_disk(&stack.top);
            }
            gauge.disk = self.shared.disks.gauge(&self.shared.layer_dir(&stack.top), limit, told);
        }
        let running = self.table.written();
        let meter = self.meter().await;
        let network = self.network_bytes().await;
        let seen = lock(&meter).take(gauge, running, network, Timestamp::now());
        self.shared.metrics.limits_memory.fetch_add(seen.oom_kills, Relaxed);
        self.shared.metrics.limits_pids.fetch_add(seen.pids_denied, Relaxed);
        if !std::mem::take(&mut self.looks.begins_silent) {
            self.tell_of_limits(&gauge, seen).await;
        }
        // A limit that nothing enforces is looked after all the same.
        if matches!(self.row.session.enforced.get(Layer::Disk), Some(LayerState::Partial(_))) {
            Box::pin(self.measure_layer(Duration::ZERO)).await;
        }
        let is_busy = !self.commands.is_empty();
        if gauge.processes == 0 && !is_busy {
            return;
        }
        let pause = if is_busy || seen.cpu_milli >= LITTLE { OFTEN } else { self.looks.pause * 2 };
        self.looks.pause = pause.clamp(OFTEN, SELDOM);
        // Something that was asked meanwhile may have said earlier.
        self.looks.next.get_or_insert(Instant::now() + self.looks.pause);
    }

    /// What is told of the disk's limit is what is so now.
    fn see_disk(&mut self, top: &str) {
        let Some(state) = self.shared.disks.state_now(&self.shared.layer_dir(top)) else { return };
        if self.row.session.enforced.get(Layer::Disk) != Some(&state) {
            tracing::warn!(session = %self.row.session.id, ?state, "the limit of its disk is another thing now");
            self.row.session.enforced.set(Layer::Disk, state);
            self.publish();
        }
    }

    /// Bytes that the session has received and sent over the network.
    async fn network_bytes(&self) -> Option<(u64, u64)> {
        let session = &self.row.session;
        let mode = policy::effective(&self.shared, session).network.unwrap_or_default().mode;
        match self.shared.networks.bytes(&session.id).await {
            Some(bytes) => Some(bytes),
            None => (mode == NetworkMode::Off).then_some((0, 0)),
        }
    }

    async fn tell_of_limits(&mut self, gauge: &Gauge, seen: usage::Seen) {
        let policy = policy::effective(&self.shared, &self.row.session);
        for (at, kind, limit, count) in [
            (0, "limit.memory", policy.memory, seen.oom_kills),
            (1, "limit.pids", policy.pids, seen.pids_denied),
        ] {
            self.looks.untold[at] += count;
            let waits = self.looks.told[at].is_some_and(|told| told.elapsed() < TOLD_AGAIN_AFTER);
            if self.looks.untold[at] == 0 || waits {
                continue;
            }
            self.looks.told[at] = Some(Instant::now());
            let mut body = json!({ "limit": limit, "count": std::mem::take(&mut self.looks.untold[at]) });
            match (at, self.looks.victim.take()) {
                (0, Some(victim)) => body["process"] = victim,
                _ => body["under_way"] = self.under_way(),
            }
            self.shared.store.note(self.entry(kind, "server", body)).await;
        }
        if let Some(disk) = gauge.disk {
            let few = (disk.bytes / FULL_SHARE).max(FEW_BYTES);
            let (no_bytes, no_inodes) =
                (disk.bytes_free <= few, disk.inodes_free == 0 && disk.counts_files());
            if (no_bytes || no_inodes) && !self.looks.is_full {
                let limit = if no_bytes { policy.disk } else { policy.inodes };
                let body = json!({
                    "limit": limit, "of": if no_bytes { "bytes" } else { "inodes" }, "enforced": true,
                    "used": if no_bytes { disk.bytes - disk.bytes_free } else { disk.inodes - disk.inodes_free },
                    "under_way": self.under_way(),
                });
                self.tell_of_disk(body).await;
            }
            self.looks.is_full = no_bytes || no_inodes;
        }
    }

    async fn tell_of_disk(&mut self, body: Value) {
        let meter = self.meter().await;
        lock(&meter).sums.hits.disk += 1;
        self.shared.metrics.limits_disk.fetch_add(1, Relaxed);
        self.shared.store.note(self.entry("limit.disk", "server", body)).await;
    }

    /// Commands and processes that may have to do with it.
    fn under_way(&self) -> Value {
        let commands = self.commands.values().map(|waiter| crate::validate::shown(&waiter.memo.text));
        json!(commands.chain(self.table.texts()).take(MOST_NAMED).collect::<Vec<_>>())
    }

    pub(super) async fn usage(&mut self, query: UsageQuery, reply: Reply<SessionUsage>) {
        if self.room.is_some() {
            let next = self.looks.next;
            self.look().await;
            // Who only looks is no reason to look more often.
            if next.is_none() {
                self.looks.next = None;
            }
            Box::pin(self.measure_layer(PATIENCE)).await;
        }
        let meter = self.meter().await;
        let policy = policy::effective(&self.shared, &self.row.session);
        let _ = reply.send(Ok(told(&self.row.session.id, &lock(&meter), &policy, query)));
    }

    /// Has a layer without a limit measured, unless that was done a moment ago: it is walked through, which takes as
    /// long as there are files. What comes of it is in the figures when it is there.
    async fn measure_layer(&mut self, patience: Duration) {
        let is_limited = self.row.session.enforced.holds(Layer::Disk);
        let meter = self.meter().await;
        let oldest = (lock(&meter).measuring_takes * MEASURED_AGAIN_AFTER).min(OLDEST_MEASURE);
        let is_new = self.looks.measured.is_some_and(|at| at.elapsed() < oldest);
        if is_limited || is_new {
            return;
        }
        self.looks.measured = Some(Instant::now());
        let Ok(stack) = self.stack().await else { return };
        let policy = policy::effective(&self.shared, &self.row.session);
        let is_advisory = matches!(self.row.session.enforced.get(Layer::Disk), Some(LayerState::Partial(_)));
        let (shared, id) = (self.shared.clone(), self.row.session.id.clone());
        let measured = tokio::spawn(async move {
            let _hold = shared.hold(vec![stack.top.clone()]);
            let since = Instant::now();
            let task = LayerTask::Measure { layer: shared.layer_dir(&stack.top) };
            let Ok(FromWorker::Measured { bytes, entries }) =
                Worker::run(&shared.spawners, task, Vec::new()).await
            else {
                return;
            };
            lock(&meter).measuring_takes = since.elapsed();
            let over = |used: u64, most: Option<u64>| most.is_some_and(|most| used > most);
            let is_over = is_advisory && (over(bytes, policy.disk) || over(entries, policy.inodes));
            if lock(&meter).measured((bytes, entries), is_over) {
                let body =
                    json!({ "limit": policy.disk, "enforced": false, "used": bytes, "inodes": entries });
                let (at, kind) = (Timestamp::now(), "limit.disk".to_owned());
                let entry = Change::Journal { session: id, at, actor: "server".into(), kind, body };
                shared.metrics.limits_disk.fetch_add(1, Relaxed);
                shared.store.note(entry).await;
            }
        });
        let _ = tokio::time::timeout(patience, measured).await;
    }

    /// A last look at a room that is about to end, if something has happened since the one before.
    pub(super) async fn last_look(&mut self) {
        if self.looks_at().is_none() {
            return;
        }
        let asked = self.ask_within(LAST_LOOK_WITHIN, Question::Gauge, Vec::new()).await;
        if let Ok((Answer::Gauge(gauge), _)) = asked {
            self.take_gauge(gauge).await;
        }
    }

    /// The room is gone: what it has used is recorded.
    pub(super) async fn record_usage(&mut self) {
        let looks = std::mem::take(&mut self.looks);
        let Some(meter) = looks.meter else { return };
        let sums: Sums = {
            let mut meter = lock(&meter);
            meter.room_gone();
            meter.sums
        };
        let session = self.row.session.id.clone();
        let doc = serde_json::to_value(sums).unwrap_or_default();
        let put = Change::PutPart { session, kind: PART.into(), id: PART.into(), doc };
        self.shared.store.note(put).await;
    }
}
