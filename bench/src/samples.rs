//! Samples of one thing, and their percentiles.

use std::time::Duration;

#[derive(Default)]
pub(crate) struct Samples(Vec<Duration>);

/// What is said of a row. Times are in microseconds.
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) least: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) most: f64,
}

impl Samples {
    pub(crate) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// `None` without samples.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let mut sorted: Vec<f64> = self.0.iter().map(|sample| sample.as_nanos() as f64 / 1000.0).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Summary {
            count: sorted.len(),
            least: *sorted.first()?,
            p50: percentile(&sorted, 50.0)?,
            p90: percentile(&sorted, 90.0)?,
            p99: percentile(&sorted, 99.0)?,
            most: *sorted.last()?,
        })
    }
}

/// The nearest rank: the least sample that at least this share of all samples does not exceed.
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_at_the_nearest_rank() {
        let mut samples = Samples::default();
        assert!(samples.summary().is_none());
        for micros in (1..=200).rev() {
            samples.push(Duration::from_micros(micros));
        }
        let summary = samples.summary().expect("there are samples");
        assert_eq!((summary.count, summary.least, summary.most), (200, 1.0, 200.0));
        assert_eq!((summary.p50, summary.p90, summary.p99), (100.0, 180.0, 198.0));
    }
}
