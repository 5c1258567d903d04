//! What is printed and what is kept: a table for people, JSON for SPECIFICATION.md.

use crate::options::Options;
use crate::samples::Samples;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Prints a line. Whoever reads may stop reading: what is measured is kept all the same.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}
pub(crate) use say;

/// One line of the table.
pub(crate) struct Row {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) samples: Samples,
}

/// A promise about the medians of two rows: their ratio.
pub(crate) struct Budget {
    pub(crate) of: &'static str,
    pub(crate) against: &'static str,
    pub(crate) ratio: Ratio,
}

#[derive(Clone, Copy)]
pub(crate) enum Ratio {
    AtMost(f64),
    Below(f64),
}

impl Ratio {
    fn keeps(self, measured: f64) -> bool {
        match self {
            Ratio::AtMost(most) => measured <= most,
            Ratio::Below(bound) => measured < bound,
        }
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ratio::AtMost(most) => write!(f, "<= {most:.2}"),
            Ratio::Below(bound) => write!(f, " < {bound:.2}"),
        }
    }
}

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
    /// Rows that could not be measured, and why.
    pub(crate) skipped: Vec<(&'static str, String)>,
}

impl Table {
    pub(crate) fn row(&mut self, key: &str) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.key == key)
    }

    fn median(&self, key: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.key == key)?.samples.summary().map(|summary| summary.p50)
    }

    fn label(&self, key: &str) -> &'static str {
        self.rows.iter().find(|row| row.key == key).map_or("?", |row| row.label)
    }

    fn ratio(&self, budget: &Budget) -> Option<f64> {
        Some(self.median(budget.of)? / self.median(budget.against)?)
    }

    pub(crate) fn print(&self, budgets: &[Budget]) {
        let bare = self.median("bare");
        say!("{:<58}{:>9}{:>9}{:>9}{:>9}", "milliseconds", "p50", "p90", "p99", "x bare");
        for row in &self.rows {
            let Some(summary) = row.samples.summary() else { continue };
            let ratio = bare.map_or(0.0, |bare| summary.p50 / bare);
            let [p50, p90, p99] = [summary.p50, summary.p90, summary.p99].map(|micros| micros / 1000.0);
            say!("{:<58}{p50:>9.3}{p90:>9.3}{p99:>9.3}{ratio:>9.2}", row.label);
        }
        for (key, why) in &self.skipped {
            say!("{:<58}  not measured: {why}", self.label(key));
        }
        say!("\n{:<85}{:>9}  budget", "ratios of medians", "ratio");
        for budget in budgets {
            let Some(ratio) = self.ratio(budget) else { continue };
            let names = format!("{}  /  {}", self.label(budget.of), self.label(budget.against));
            let verdict = if budget.ratio.keeps(ratio) { "kept" } else { "OVER" };
            say!("{names:<85}{ratio:>9.2}  {} {verdict}", budget.ratio);
        }
    }

    pub(crate) fn json(&self, budgets: &[Budget]) -> Value {
        let rows = self.rows.iter().filter_map(|row| {
            let summary = row.samples.summary()?;
            Some(json!({
                "key": row.key, "label": row.label, "samples": summary.count, "min_us": summary.least,
                "p50_us": summary.p50, "p90_us": summary.p90, "p99_us": summary.p99, "max_us": summary.most,
            }))
        });
        let budgets = budgets.iter().filter_map(|budget| {
            let ratio = self.ratio(budget)?;
            let (of, against, promise) = (budget.of, budget.against, budget.ratio.to_string());
            let kept = budget.ratio.keeps(ratio);
            Some(
                json!({"of": of, "against": against, "ratio": ratio, "budget": promise.trim(), "kept": kept}),
            )
        });
        let skipped = self.skipped.iter().map(|(key, why)| json!({"key": key, "why": why}));
        json!({
            "rows": rows.collect::<Vec<_>>(),
            "budgets": budgets.collect::<Vec<_>>(),
            "skipped": skipped.collect::<Vec<_>>(),
        })
    }
}

/// The machine that figures are of.
pub(crate) fn machine() -> Value {
    let uname = rustix::system::uname();
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    json!({
        "host": uname.nodename().to_string_lossy(),
        "kernel": uname.release().to_string_lossy(),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "memory_kib": crate::memory::meminfo("MemTotal"),
        "uid": rustix::process::geteuid().as_raw(),
        "load": read("/proc/loadavg").trim(),
        "date": today(),
    })
}

/// Writes the JSON: where it was asked for, or in `bench/results`, with what was measured in its name.
pub(crate) fn keep(options: &Options, kind: &str, value: &Value) -> Result<(), String> {
    let path = match &options.out {
        Some(path) => path.clone(),
        None => {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            PathBuf::from(format!("bench/results/{host}-{}{kind}.json", today()))
        }
    };
    let failed = |error| format!("{} cannot be written: {error}; name another with --out", path.display());
    if let Some(dir) = path.parent().filter(|dir| *dir != Path::new("")) {
        std::fs::create_dir_all(dir).map_err(failed)?;
    }
    std::fs::write(&path, format!("{value:#}\n")).map_err(failed)?;
    say!("\nwritten to {}", path.display());
    Ok(())
}

/// The date in UTC, as 2026-01-31.
fn today() -> String {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    date((seconds / 86400) as i64)
}

/// The Gregorian date of a day since 1970, counted in 400-year eras of years that begin in March.
fn date(day: i64) -> String {
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + later)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates() {
        let days = [0, 59, 11_016, 19_782, 20_819];
        assert_eq!(days.map(date), ["1970-01-01", "1970-03-01", "2000-02-29", "2024-02-29", "2027-01-01"]);
    }
}
