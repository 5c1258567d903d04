//! What a pool has done, in numbers: counted by its keeper, read by anybody.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use workroom_types::{PoolMetrics, SlotCounts};

/// Seconds.
const BOUNDS: [f64; 11] = [0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.03, 0.1, 1.0, 10.0, 60.0];

/// Times of which percentiles are told.
const LAST: usize = 1000;

/// How long something took, over and over.
#[derive(Debug, Default)]
struct Times {
    last: VecDeque<f64>,
    buckets: [u64; BOUNDS.len()],
    sum: f64,
    count: u64,
}

impl Times {
    fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        self.sum += seconds;
        self.count += 1;
        if let Some(bucket) = BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket] += 1;
        }
        self.last.push_back(seconds);
        if self.last.len() > LAST {
            self.last.pop_front();
        }
    }

    /// Milliseconds.
    fn percentile(&self, share: f64) -> f64 {
        let mut sorted: Vec<f64> = self.last.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
        sorted.get(at).map_or(0.0, |seconds| (seconds * 1e6).round() / 1e3)
    }

    fn spread(&self) -> Spread {
        let mut so_far = 0;
        let buckets = BOUNDS.iter().zip(self.buckets).map(|(bound, count)| {
            so_far += count;
            (*bound, so_far)
        });
        Spread { sum: self.sum, count: self.count, buckets: buckets.collect() }
    }
}

/// Times as a histogram has them: below each bound, how many.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    pub sum: f64,
    pub count: u64,
    pub buckets: Vec<(f64, u64)>,
}

/// Numbers of one pool, for `/metrics`.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolNumbers {
    pub owner: String,
    pub pool: String,
    pub states: SlotCounts,
    pub spares: u32,
    pub waiting: u32,
    pub metrics: PoolMetrics,
    pub waits: Spread,
    pub resets: Spread,
}

#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) acquired: AtomicU64,
    pub(super) released: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) failures: AtomicU64,
    waits: Mutex<Times>,
    resets: Mutex<Times>,
    now: Mutex<(SlotCounts, u32, u32)>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Figures {
    pub(super) fn waited(&self, took: Duration) {
        self.acquired.fetch_add(1, Relaxed);
        lock(&self.waits).add(took);
    }

    pub(super) fn reset_in(&self, took: Duration) {
        lock(&self.resets).add(took);
    }

    pub(super) fn stands(&self, states: SlotCounts, spares: u32, waiting: u32) {
        *lock(&self.now) = (states, spares, waiting);
    }

    pub(super) fn metrics(&self, states: &SlotCounts) -> PoolMetrics {
        let (waits, resets) = (lock(&self.waits), lock(&self.resets));
        let held = f64::from(states.acquired + states.executing);
        PoolMetrics {
            acquired: self.acquired.load(Relaxed),
            released: self.released.load(Relaxed),
            expired: self.expired.load(Relaxed),
            refused: self.refused.load(Relaxed),
            resets: resets.count,
            failures: self.failures.load(Relaxed),
            wait_ms_p50: waits.percentile(0.5),
            wait_ms_p99: waits.percentile(0.99),
            reset_ms_p50: resets.percentile(0.5),
            reset_ms_p99: resets.percentile(0.99),
            utilisation: if states.all() == 0 { 0.0 } else { held / f64::from(states.all()) },
        }
    }

    pub(super) fn numbers(&self, owner: &str, pool: &str) -> PoolNumbers {
        let (states, spares, waiting) = *lock(&self.now);
        PoolNumbers {
            owner: owner.to_owned(),
            pool: pool.to_owned(),
            states,
            spares,
            waiting,
            metrics: self.metrics(&states),
            waits: lock(&self.waits).spread(),
            resets: lock(&self.resets).spread(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_last_and_buckets_of_all() {
        let mut times = Times::default();
        for _ in 0..LAST {
            times.add(Duration::from_secs(2));
        }
        for milliseconds in 1..=LAST as u64 {
            times.add(Duration::from_millis(milliseconds));
        }
        assert_eq!(times.percentile(0.5), 501.0);
        assert_eq!(times.percentile(1.0), 1000.0);
        let spread = times.spread();
        assert_eq!(spread.count, 2 * LAST as u64);
        assert_eq!(
            spread.buckets.iter().find(|(bound, _)| *bound == 0.003).map(|(_, count)| *count),
            Some(3)
        );
        assert_eq!(spread.buckets.last().map(|(_, count)| *count), Some(2 * LAST as u64));
        assert_eq!(Times::default().percentile(0.99), 0.0);
    }
}
