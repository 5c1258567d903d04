//! What a session's connections did: byte counters, a log of connections, denials with counts, and what was wanted.
//!
//! Everything here is bounded. What did not fit is counted.

use crate::host::{Host, Target};
use crate::verdict::{Denial, Permit, Reason};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use workroom_types::Timestamp;

const MOST_LOGGED: usize = 1024;
const MOST_DENIALS: usize = 512;
const MOST_WANTED: usize = 4096;

/// How a connection came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// A request to an HTTP proxy.
    Http,
    /// A tunnel through an HTTP proxy.
    Connect,
    Socks,
    /// Packets of a program that knows of no proxy.
    Transparent,
    /// A question about a name.
    Dns,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Still open.
    Open,
    /// It was let through, and has ended by itself.
    Allowed,
    Denied,
    /// It stood, and was ended: a new policy denies it, or nothing happened on it for too long.
    Cut,
    /// It was let through, but could not be made.
    Failed,
}

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Milliseconds since 1970.
    pub started: u64,
    pub ended: Option<u64>,
    pub way: Way,
    pub host: String,
    pub port: u16,
    /// The address that was dialled.
    pub address: Option<IpAddr>,
    /// From the room, and to it.
    pub sent: u64,
    pub received: u64,
    pub outcome: Outcome,
    /// The rule that decided.
    pub rule: String,
    /// What went wrong, as a sentence.
    pub detail: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    pub sent: u64,
    pub received: u64,
    pub opened: u64,
    pub open: u64,
    pub denied: u64,
    pub cut: u64,
    pub failed: u64,
    /// Lines that the log no longer has.
    pub forgotten: u64,
    /// Packets of the transparent path that nobody could make sense of.
    pub dropped_packets: u64,
}

/// A denial, with how often it has happened. Told at the first, second, fourth, eighth… time, so that a program which
/// tries for ever does not fill a journal; [`Ledger::denials`] has all counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DenialEvent {
    pub host: String,
    pub port: u16,
    pub way: Way,
    pub code: &'static str,
    /// One sentence: what was refused, by which rule, and how to allow it.
    pub detail: String,
    pub count: u64,
}

/// Who is told about denials. Called from the tasks of connections: it must not block.
pub trait Watcher: Send + Sync {
    fn denied(&self, event: &DenialEvent);
}

/// Nobody.
impl Watcher for () {
    fn denied(&self, _: &DenialEvent) {}
}

pub struct Ledger {
    watcher: Box<dyn Watcher>,
    sent: AtomicU64,
    received: AtomicU64,
    pub(crate) dropped_packets: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    next: u64,
    opened: u64,
    denied: u64,
    cut: u64,
    failed: u64,
    forgotten: u64,
    log: VecDeque<Entry>,
    open: HashMap<u64, Arc<Line>>,
    denials: BTreeMap<(String, u16, &'static str), DenialEvent>,
    wanted: BTreeMap<Target, Want>,
    wanted_overflow: u64,
}

/// What became of wishes for one target.
#[derive(Debug, Clone, Default)]
pub(crate) struct Want {
    /// Special addresses in the way.
    pub(crate) special: Vec<IpAddr>,
    pub(crate) own: bool,
}

/// One connection that stands. Its bytes are counted as they pass; dropped, it is in the log.
pub struct Line {
    id: u64,
    ledger: Arc<Ledger>,
    pub(crate) target: Target,
    pub(crate) address: IpAddr,
    way: Way,
    rule: String,
    started: u64,
    born: Instant,
    sent: AtomicU64,
    received: AtomicU64,
    /// Milliseconds after `born` at which something last passed.
    last: AtomicU64,
    ending: Mutex<Option<(Outcome, String)>>,
}

pub(crate) fn now() -> u64 {
    u64::try_from(Timestamp::now().0).unwrap_or(0)
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is kept is whole after each statement, so a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    pub fn new(watcher: Box<dyn Watcher>) -> Self {
        Self {
            watcher,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            dropped_packets: AtomicU64::new(0),
            kept: Mutex::default(),
        }
    }

    pub fn totals(&self) -> Totals {
        let kept = guard(&self.kept);
        Totals {
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            opened: kept.opened,
            open: kept.open.len() as u64,
            denied: kept.denied,
            cut: kept.cut,
            failed: kept.failed,
            forgotten: kept.forgotten,
            dropped_packets: self.dropped_packets.load(Relaxed),
        }
    }

    /// The newest lines of the log, oldest first, and behind them what is open now.
    pub fn log(&self) -> Vec<Entry> {
        let kept = guard(&self.kept);
        let mut open: Vec<&Arc<Line>> = kept.open.values().collect();
        open.sort_by_key(|line| line.id);
        kept.log.iter().cloned().chain(open.into_iter().map(|line| line.entry(Outcome::Open, None))).collect()
    }

    /// Every kind of denial with its count.
    pub fn denials(&self) -> Vec<DenialEvent> {
        guard(&self.kept).denials.values().cloned().collect()
    }

    pub(crate) fn wanted(&self) -> (BTreeMap<Target, Want>, u64) {
        let kept = guard(&self.kept);
        (kept.wanted.clone(), kept.wanted_overflow)
    }

    pub(crate) fn open(
        self: &Arc<Self>,
        way: Way,
        target: Target,
        address: IpAddr,
        permit: &Permit,
    ) -> Arc<Line> {
        let mut kept = guard(&self.kept);
        kept.next += 1;
        kept.opened += 1;
        let line = Arc::new(Line {
            id: kept.next,
            ledger: self.clone(),
            target,
            address,
            way,
            rule: permit.to_string(),
            started: now(),
            born: Instant::now(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            last: AtomicU64::new(0),
            ending: Mutex::default(),
        });
        kept.open.insert(line.id, line.clone());
        line
    }

    fn close(&self, line: &Line) {
        let (outcome, detail) = match guard(&line.ending).take() {
            Some((outcome, detail)) => (outcome, Some(detail)),
            None => (Outcome::Allowed, None),
        };
        let entry = Entry { ended: Some(now()), ..line.entry(outcome, detail) };
        let mut kept = guard(&self.kept);
        if kept.open.remove(&line.id).is_none() {
            return;
        }
        match outcome {
            Outcome::Cut => kept.cut += 1,
            Outcome::Failed => kept.failed += 1,
            _ => {}
        }
        kept.write(entry);
    }

    /// Somebody wants to reach a target, whatever becomes of it.
    pub(crate) fn want(&self, target: &Target) {
        let mut kept = guard(&self.kept);
        if kept.wanted.len() >= MOST_WANTED && !kept.wanted.contains_key(target) {
            kept.wanted_overflow += 1;
            return;
        }
        kept.wanted.entry(target.clone()).or_default();
    }

    pub(crate) fn deny(&self, way: Way, denial: &Denial) {
        self.deny_at(way, denial, None);
    }

    pub(crate) fn deny_at(&self, way: Way, denial: &Denial, address: Option<IpAddr>) {
        let event = {
            let mut kept = guard(&self.kept);
            kept.denied += 1;
            kept.note_obstacle(denial);
            kept.write(Entry {
                started: now(),
                ended: Some(now()),
                way,
                host: denial.host.clone(),
                port: denial.port,
                address,
                sent: 0,
                received: 0,
                outcome: Outcome::Denied,
                rule: denial.reason.code().to_owned(),
                detail: Some(denial.to_string()),
            });
            kept.count(way, denial)
        };
        if event.count.is_power_of_two() {
            self.watcher.denied(&event);
        }
    }

    pub(crate) fn fail(&self, way: Way, target: &Target, permit: &Permit, detail: String) {
        let mut kept = guard(&self.kept);
        kept.failed += 1;
        kept.write(Entry {
            started: now(),
            ended: Some(now()),
            way,
            host: target.host.to_string(),
            port: target.port,
            address: None,
            sent: 0,
            received: 0,
            outcome: Outcome::Failed,
            rule: permit.to_string(),
            detail: Some(detail),
        });
    }
}

impl Kept {
    fn write(&mut self, entry: Entry) {
        if self.log.len() >= MOST_LOGGED {
            self.log.pop_front();
            self.forgotten += 1;
        }
        self.log.push_back(entry);
    }

    fn count(&mut self, way: Way, denial: &Denial) -> DenialEvent {
        let code = denial.reason.code();
        let mut key = (denial.host.clone(), denial.port, code);
        if self.denials.len() >= MOST_DENIALS && !self.denials.contains_key(&key) {
            // All that came too late share a line for each rule.
            key = ("(others)".to_owned(), 0, code);
        }
        let event = self.denials.entry(key).or_insert_with_key(|(host, port, code)| DenialEvent {
            host: host.clone(),
            port: *port,
            way,
            code,
            detail: String::new(),
            count: 0,
        });
        event.count += 1;
        event.detail = denial.to_string();
        event.clone()
    }

    fn note_obstacle(&mut self, denial: &Denial) {
        let Ok(host) = Host::parse(&denial.host) else { return };
        let Some(want) = self.wanted.get_mut(&Target { host, port: denial.port }) else { return };
        match denial.reason {
            Reason::Special { address, .. } if want.special.len() < 8 && !want.special.contains(&address) => {
                want.special.push(address);
            }
            Reason::OwnAddress { address } if !want.special.contains(&address) => {
                want.special.push(address);
                want.own = true;
            }
            _ => {}
        }
    }
}

impl Line {
    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
        self.ledger.sent.fetch_add(bytes as u64, Relaxed);
        self.touch();
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
        self.ledger.received.fetch_add(bytes as u64, Relaxed);
        self.touch();
    }

    fn touch(&self) {
        self.last.store(self.born.elapsed().as_millis() as u64, Relaxed);
    }

    /// When something last passed.
    pub(crate) fn last(&self) -> Instant {
        self.born + std::time::Duration::from_millis(self.last.load(Relaxed))
    }

    /// Says how it ends, before it is closed. The first word counts.
    pub(crate) fn ends(&self, outcome: Outcome, detail: String) {
        guard(&self.ending).get_or_insert((outcome, detail));
    }

    /// Takes it off the list of what is open and writes it down; the second time does nothing.
    pub(crate) fn close(&self) {
        self.ledger.close(self);
    }

    fn entry(&self, outcome: Outcome, detail: Option<String>) -> Entry {
        Entry {
            started: self.started,
            ended: None,
            way: self.way,
            host: self.target.host.to_string(),
            port: self.target.port,
            address: Some(self.address),
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            outcome,
            rule: self.rule.clone(),
            detail,
        }
    }
}
