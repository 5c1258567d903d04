//! What sessions use: the figures of each, kept in memory while it is of interest, and the sums of all.
//!
//! ```text
//!  recent   one point a second, the last 5 minutes    made only in seconds in which somebody looked
//!  day      one point a minute, the last 24 hours
//! ```
//!
//! A room is looked at while something happens in it, and less and less often while nothing does: one in which nothing
//! runs not at all (`actor/usage.rs`). What a session has used in all, its peaks and how often it ran into limits is
//! recorded when its room ends; the points are not.

use crate::shared::Shared;
use crate::{Engine, actor::Ask, policy, sessions};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use workroom_types::{
    Caller, DiskGauge, Gauge, LimitHits, ListUsage, Policy, Problem, SessionUsage, Timestamp, UsageLimits,
    UsageList, UsagePeak, UsagePoint, UsageQuery, UsageRow, UsageSort,
};

/// The kind of the part that a session's sums are recorded as.
pub(crate) const PART: &str = "usage";

const RECENT: usize = 300;
const DAY: usize = 24 * 60;
const SECOND: i64 = 1000;
const MINUTE: i64 = 60_000;

/// Sessions without a room whose points are kept.
const MOST_STOPPED: usize = 1000;

const PAGE: u32 = 100;
const LARGEST_PAGE: u32 = 1000;

/// What is known of a session beyond its room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sums {
    pub(crate) cpu_micros: u64,
    pub(crate) output: u64,
    pub(crate) peak: UsagePeak,
    pub(crate) hits: LimitHits,
}

/// The figures of one session.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Of rooms that are gone, and of processes that have ended.
    pub(crate) sums: Sums,
    /// What the room that is there was last seen to have used.
    last: Option<(Gauge, UsagePoint)>,
    cpu_milli: u64,
    recent: VecDeque<UsagePoint>,
    day: VecDeque<UsagePoint>,
    /// Whether more is on the disk than the policy says, where nothing enforces that.
    is_over: bool,
    /// How long it takes to measure the layer of a session without a limit on it.
    pub(crate) measuring_takes: std::time::Duration,
}

/// What has happened between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Seen {
    pub(crate) oom_kills: u64,
    pub(crate) pids_denied: u64,
    /// Thousandths of a CPU.
    pub(crate) cpu_milli: u64,
}

impl Meter {
    pub(crate) fn now(&self) -> Option<UsagePoint> {
        self.last.map(|(_, point)| point)
    }

    /// Takes a look at the room into the figures. `running_output`: bytes of processes that have not ended; `network`:
    /// bytes that the session has received and sent.
    pub(crate) fn take(
        &mut self,
        gauge: Gauge,
        running_output: u64,
        network: Option<(u64, u64)>,
        at: Timestamp,
    ) -> Seen {
        let before = self.last.map(|(gauge, _)| gauge).unwrap_or_default();
        let since = self.last.map(|(_, point)| at.0 - point.at.0);
        let grown =
            |now: Option<u64>, before: Option<u64>| now.unwrap_or(0).saturating_sub(before.unwrap_or(0));
        let used = gauge.cpu_micros.saturating_sub(before.cpu_micros);
        let seen = Seen {
            oom_kills: grown(gauge.oom_kills, before.oom_kills),
            pids_denied: grown(gauge.pids_denied, before.pids_denied),
            cpu_milli: match since {
                Some(millis) if millis > 0 => used / millis as u64,
                _ => 0,
            },
        };
        let disk = gauge.disk;
        let before_disk = self.last.and_then(|(_, point)| point.disk.zip(point.inodes));
        let point = UsagePoint {
            at,
            cpu_ms: (self.sums.cpu_micros + gauge.cpu_micros) / 1000,
            memory: gauge.memory,
            pids: Some(gauge.pids),
            // One that is measured at leisure is what it was.
            disk: disk
                .map(|disk| disk.bytes.saturating_sub(disk.bytes_free))
                .or(before_disk.map(|(disk, _)| disk)),
            inodes: disk
                .filter(DiskGauge::counts_files)
                .map(|disk| disk.inodes.saturating_sub(disk.inodes_free))
                .or(before_disk.map(|(_, inodes)| inodes)),
            output: self.sums.output + running_output,
            network_received: network.map(|(received, _)| received),
            network_sent: network.map(|(_, sent)| sent),
        };
        let peak = &mut self.sums.peak;
        peak.memory = peak.memory.max(gauge.peak_memory.or(gauge.memory));
        peak.pids = peak.pids.max(point.pids);
        peak.disk = peak.disk.max(point.disk);
        peak.inodes = peak.inodes.max(point.inodes);
        self.sums.hits.memory += seen.oom_kills;
        self.sums.hits.pids += seen.pids_denied;
        self.cpu_milli = seen.cpu_milli;
        self.last = Some((gauge, point));
        append(&mut self.recent, point, SECOND, RECENT);
        append(&mut self.day, point, MINUTE, DAY);
        seen
    }

    /// What a layer without a limit was measured to hold, and whether that is more than it was to. Says whether that is
    /// news.
    pub(crate) fn measured(&mut self, (bytes, inodes): (u64, u64), is_over: bool) -> bool {
        if let Some((_, point)) = &mut self.last {
            (point.disk, point.inodes) = (Some(bytes), Some(inodes));
        }
        let peak = &mut self.sums.peak;
        peak.disk = peak.disk.max(Some(bytes));
        peak.inodes = peak.inodes.max(Some(inodes));
        let is_news = is_over && !self.is_over;
        self.sums.hits.disk += u64::from(is_news);
        self.is_over = is_over;
        is_news
    }

    /// The room is gone: what it has used is the session's.
    pub(crate) fn room_gone(&mut self) {
        if let Some((gauge, _)) = self.last.take() {
            self.sums.cpu_micros += gauge.cpu_micros;
        }
        self.cpu_milli = 0;
    }

    fn series(&self, now: Timestamp) -> (Vec<UsagePoint>, Vec<UsagePoint>) {
        let since = |points: &VecDeque<UsagePoint>, span: i64| {
            points.iter().filter(|point| point.at.0 > now.0 - span).copied().collect()
        };
        (since(&self.recent, RECENT as i64 * SECOND), since(&self.day, DAY as i64 * MINUTE))
    }
}

/// Adds a point, in the place of one of the same second or minute.
fn append(points: &mut VecDeque<UsagePoint>, point: UsagePoint, span: i64, most: usize) {
    if points.back().is_some_and(|last| last.at.0 / span == point.at.0 / span) {
        points.pop_back();
    }
    if points.len() == most {
        points.pop_front();
    }
    points.push_back(point);
}

/// The figures of all sessions that are of interest.
#[derive(Default)]
pub(crate) struct UsageBook {
    meters: Mutex<HashMap<String, Arc<Mutex<Meter>>>>,
}

impl UsageBook {
    fn meters(&self) -> MutexGuard<'_, HashMap<String, Arc<Mutex<Meter>>>> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn known(&self, session: &str) -> Option<Arc<Mutex<Meter>>> {
        self.meters().get(session).cloned()
    }

    /// Those of a session, which begin with what is recorded of it.
    pub(crate) fn open(&self, session: &str, sums: Sums) -> Arc<Mutex<Meter>> {
        let mut meters = self.meters();
        if meters.len() > MOST_STOPPED {
            // Of those without a room the ones that were seen longest ago.
            let stale = |meter: &Arc<Mutex<Meter>>| {
                let meter = lock(meter);
                meter.last.is_none().then(|| meter.recent.back().map_or(0, |point| point.at.0))
            };
            let mut without: Vec<(i64, String)> =
                meters.iter().filter_map(|(id, meter)| Some((stale(meter)?, id.clone()))).collect();
            without.sort_unstable();
            let most = without.len().saturating_sub(MOST_STOPPED / 2);
            without.into_iter().take(most).for_each(|(_, id)| drop(meters.remove(&id)));
        }
        let new = || Arc::new(Mutex::new(Meter { sums, ..Meter::default() }));
        meters.entry(session.to_owned()).or_insert_with(new).clone()
    }

    pub(crate) fn forget(&self, session: &str) {
        self.meters().remove(session);
    }

    /// The sums over all rooms that are there, as they were last looked at.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for meter in self.meters().values() {
            let meter = lock(meter);
            if let Some(point) = meter.now() {
                totals.memory += point.memory.unwrap_or(0);
                totals.pids += point.pids.unwrap_or(0);
                totals.disk += point.disk.unwrap_or(0);
                totals.cpu_milli += meter.cpu_milli;
            }
        }
        totals
    }
}

/// What all rooms together use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    pub memory: u64,
    pub pids: u64,
    pub disk: u64,
    pub cpu_milli: u64,
}

pub(crate) fn lock(meter: &Arc<Mutex<Meter>>) -> MutexGuard<'_, Meter> {
    meter.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn limits_of(policy: &Policy) -> UsageLimits {
    UsageLimits {
        memory: policy.memory,
        cpus_milli: policy.cpus_milli,
        pids: policy.pids,
        disk: policy.disk,
        inodes: policy.inodes,
    }
}

/// Why some figures are not there.
fn unknown(last: Option<&(Gauge, UsagePoint)>) -> BTreeMap<String, String> {
    let mut unknown = BTreeMap::new();
    let mut say = |what: &str, why: &str| unknown.insert(what.to_owned(), why.to_owned());
    let Some((gauge, point)) = last else { return unknown };
    if point.network_sent.is_none() {
        say("network", "the process that counts it did not answer");
    }
    if !gauge.by_group {
        say("memory", "no cgroup counts it: the sum of what each process holds, shared pages more than once");
        say("pids", "no cgroup counts them: processes without their threads");
    }
    if gauge.oom_kills.is_none() {
        say("hits.memory", "no cgroup limits memory here, and so none tells of a kill");
    }
    if gauge.pids_denied.is_none() {
        say("hits.pids", "no cgroup limits processes here, and so none tells of a denial");
    }
    if gauge.disk.is_some_and(|disk| !disk.counts_files()) {
        say("inodes", "btrfs counts the bytes of a subvolume, and not its files");
    }
    if gauge.disk.is_none() {
        say(
            "disk",
            "the layer has no limit of its own: it is measured when somebody asks, and may be up to a minute old",
        );
    }
    unknown
}

pub(crate) fn told(session: &str, meter: &Meter, policy: &Policy, query: UsageQuery) -> SessionUsage {
    let (recent, day) = match query.series {
        Some(false) => Default::default(),
        _ => meter.series(Timestamp::now()),
    };
    SessionUsage {
        session: session.to_owned(),
        now: meter.now(),
        peak: meter.sums.peak,
        limits: limits_of(policy),
        hits: meter.sums.hits,
        recent,
        day,
        unknown: unknown(meter.last.as_ref()),
    }
}

impl Engine {
    /// What a session uses. Looking is no activity of the session.
    pub async fn usage(&self, caller: &Caller, id: &str, query: UsageQuery) -> Result<SessionUsage, Problem> {
        let handle = sessions::handle(&self.shared, caller, id).await?;
        sessions::ask(&handle, id, |reply| Ask::Usage { query, reply }).await
    }

    /// What sessions with a room use, of those that a caller may see.
    pub async fn usage_list(&self, caller: &Caller, query: ListUsage) -> Result<UsageList, Problem> {
        let limit = query.limit.unwrap_or(PAGE);
        if limit == 0 || limit > LARGEST_PAGE {
            return Err(Problem::invalid(format!("limit {limit} is outside 1 to {LARGEST_PAGE}"), ""));
        }
        let shared = &self.shared;
        let mut rows = rows(shared, caller);
        let live = rows.len() as u64;
        let sort = query.sort.unwrap_or_default();
        let order = |rows: &mut Vec<UsageRow>| {
            rows.sort_by(|one, other| {
                measure(other, sort).cmp(&measure(one, sort)).then_with(|| one.session.cmp(&other.session))
            });
        };
        order(&mut rows);
        rows.truncate(limit as usize);
        // Those that are shown are looked at, if that was not done just now.
        let stale = Timestamp(Timestamp::now().0 - SECOND);
        for row in rows.iter().filter(|row| row.now.is_none_or(|point| point.at.0 < stale.0)) {
            let query = UsageQuery { series: Some(false) };
            if let Some(handle) = shared.owner_of(&row.session) {
                // One that has ended meanwhile is as it was.
                let _ = sessions::ask(&handle, &row.session, |reply| Ask::Usage { query, reply }).await;
            }
        }
        rows.iter_mut().for_each(|row| read(shared, row));
        order(&mut rows);
        Ok(UsageList { sessions: rows, live })
    }
}

fn rows(shared: &Shared, caller: &Caller) -> Vec<UsageRow> {
    let mut rows = Vec::new();
    for session in shared.live_sessions() {
        if !caller.may_see(&session.id, &session.owner) {
            continue;
        }
        let policy = policy::effective(shared, &session);
        let mut row = UsageRow {
            session: session.id,
            name: session.name,
            owner: session.owner,
            state: session.state,
            cpu_milli: 0,
            now: None,
            limits: limits_of(&policy),
        };
        read(shared, &mut row);
        rows.push(row);
    }
    rows
}

fn read(shared: &Shared, row: &mut UsageRow) {
    if let Some(meter) = shared.usage.known(&row.session) {
        let meter = lock(&meter);
        (row.now, row.cpu_milli) = (meter.now(), meter.cpu_milli);
    }
}

fn measure(row: &UsageRow, sort: UsageSort) -> u64 {
    let Some(now) = &row.now else { return 0 };
    match sort {
        UsageSort::Cpu => row.cpu_milli,
        UsageSort::Memory => now.memory.unwrap_or(0),
        UsageSort::Pids => now.pids.unwrap_or(0),
        UsageSort::Disk => now.disk.unwrap_or(0),
        UsageSort::Output => now.output,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(cpu_micros: u64, oom_kills: u64) -> Gauge {
        Gauge {
            cpu_micros,
            oom_kills: Some(oom_kills),
            memory: Some(cpu_micros),
            pids: 3,
            ..Gauge::default()
        }
    }

    #[test]
    fn points_are_few_however_often_somebody_looks() {
        let mut meter = Meter::default();
        for tenth in 0..100_000 {
            meter.take(look(tenth, 0), 0, None, Timestamp(tenth as i64 * 100));
        }
        assert_eq!(meter.recent.len(), RECENT);
        assert_eq!(meter.day.len(), 10_000 / 60 + 1);
        for minute in 0..5000 {
            meter.take(look(0, 0), 0, None, Timestamp(10_000_000 + minute * MINUTE));
        }
        assert_eq!((meter.recent.len(), meter.day.len()), (RECENT, DAY));
    }

    #[test]
    fn what_rooms_that_are_gone_have_used_is_counted_on() {
        let mut meter = Meter::default();
        meter.take(look(0, 0), 0, None, Timestamp(0));
        let seen = meter.take(look(500_000, 1), 10, Some((2, 3)), Timestamp(1000));
        assert_eq!(seen, Seen { oom_kills: 1, pids_denied: 0, cpu_milli: 500 });
        meter.room_gone();
        assert_eq!(meter.now(), None);
        let seen = meter.take(look(250_000, 1), 0, None, Timestamp(5000));
        assert_eq!(seen.oom_kills, 1, "a new room's count begins again");
        let now = meter.now().expect("a point");
        assert_eq!(now.cpu_ms, 750);
        assert_eq!(meter.sums.peak.memory, Some(500_000));
        assert_eq!(meter.sums.hits.memory, 2);
    }
}
