//! Many idle rooms at once: what each keeps, in its processes and in the kernel.

use crate::crowd::Crowd;
use crate::options::Options;
use crate::report::{self, say};
use crate::{guard, limits};
use serde_json::json;
use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// Freed memory comes back with a delay.
const SETTLE: Duration = Duration::from_secs(2);

/// What in `/proc/meminfo` grows with rooms and belongs to no process; Shmem is what rooms hold in tmpfs.
const KERNEL: [&str; 5] = ["Slab", "KernelStack", "PageTables", "Percpu", "Shmem"];

pub(crate) fn run(options: &Options, wanted: usize) -> Result<(), String> {
    let allowed = limits::prepare(wanted as u64, options.raise_limits);
    let mut notes = Vec::new();
    let mut aim = wanted;
    for limit in allowed.iter().filter(|limit| limit.rooms < wanted as u64) {
        notes.push(format!("{} of {} allows {} rooms", limit.name, limit.value, limit.rooms));
        aim = aim.min(limit.rooms as usize);
    }
    let share = limits::rooms_per_process(aim as u64) as usize;
    let mut crowds = Vec::new();
    for _ in 0..aim.div_ceil(share) {
        crowds.push(Crowd::start(options.cgroups)?);
    }
    if crowds.len() > 1 {
        notes.push(format!("open files allow {share} rooms to a process: {} hold them", crowds.len()));
    }
    let limited_by = crowds.first().map(|crowd| crowd.memory_limit.clone()).unwrap_or_default();
    std::thread::sleep(SETTLE);
    let before = Meminfo::read();
    let started = Instant::now();
    let mut count = 0;
    for crowd in &mut crowds {
        let (standing, why) = crowd.fill(share.min(aim - count))?;
        count += standing;
        if let Some(why) = why {
            notes.push(format!("the machine stopped at {count} rooms: {why}"));
            break;
        }
    }
    let filling = started.elapsed();
    std::thread::sleep(SETTLE);
    guard::alive();
    let after = Meminfo::read();
    if count == 0 {
        return Err(format!("not one room stands: {}", notes.join("; ")));
    }
    let spawners: Vec<u32> = crowds.iter().map(|crowd| crowd.spawner).collect();
    let processes = Processes::below(&spawners);
    if processes.unreadable > 0 {
        notes.push(format!(
            "the memory of {} processes cannot be read without root: the sum is too small",
            processes.unreadable
        ));
    }
    let ending = Instant::now();
    crowds.iter_mut().try_for_each(Crowd::end)?;
    let ended = ending.elapsed();

    let each = |kib: i64| kib as f64 / count as f64;
    let kernel: i64 = KERNEL.iter().map(|name| after.of(name) - before.of(name)).sum();
    let counted = each(processes.pss + kernel);
    let available = each(before.of("MemAvailable") - after.of("MemAvailable"));
    say!("{count} idle rooms; made in {filling:.1?}, ended in {ended:.1?}");
    for note in &notes {
        say!("note: {note}");
    }
    say!("\n{:<58}{:>12}", "KiB per room", "");
    let whole = format!("{} processes in all", processes.count);
    say!("{:<58}{:>12.1}", format!("PSS of guest and launcher ({whole})"), each(processes.pss));
    for name in KERNEL {
        say!("{name:<58}{:>12.1}", each(after.of(name) - before.of(name)));
    }
    say!("{:<58}{counted:>12.1}", "sum of these");
    say!("{:<58}{available:>12.1}", "fall of MemAvailable");
    let per_room = counted.max(available);
    let verdict = if per_room <= 1024.0 { "kept" } else { "OVER" };
    say!("{:<58}{per_room:>12.1}  <= 1024 {verdict}", "memory per room: the larger of the two");
    let kernel: HashMap<&str, f64> =
        KERNEL.iter().map(|name| (*name, each(after.of(name) - before.of(name)))).collect();
    let facts = json!({
        "machine": report::machine(), "memory_limit": limited_by, "wanted": wanted, "rooms": count,
        "notes": notes, "filled_in_s": filling.as_secs_f64(), "ended_in_s": ended.as_secs_f64(),
        "processes": processes.count, "per_room_kib": {
            "pss": each(processes.pss), "kernel": kernel, "sum": counted, "available": available,
            "larger": per_room,
        },
    });
    report::keep(options, "-idle", &facts)
}

struct Meminfo(HashMap<String, i64>);

impl Meminfo {
    fn read() -> Meminfo {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let entry = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_owned(), value.trim().trim_end_matches(" kB").parse().ok()?))
        };
        Meminfo(text.lines().filter_map(entry).collect())
    }

    /// In KiB.
    fn of(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

pub(crate) fn meminfo(name: &str) -> i64 {
    Meminfo::read().of(name)
}

/// The processes below some, and their proportional share of memory.
struct Processes {
    count: usize,
    /// KiB.
    pss: i64,
    unreadable: usize,
}

impl Processes {
    fn below(ancestors: &[u32]) -> Processes {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            if let Some(parent) = parent_of(pid) {
                children.entry(parent).or_default().push(pid);
            }
        }
        let mut found = Processes { count: 0, pss: 0, unreadable: 0 };
        let mut left: Vec<u32> = ancestors.iter().filter_map(|pid| children.remove(pid)).flatten().collect();
        while let Some(pid) = left.pop() {
            guard::alive();
            left.extend(children.remove(&pid).unwrap_or_default());
            found.count += 1;
            match pss_of(pid) {
                Some(kib) => found.pss += kib,
                None => found.unreadable += 1,
            }
        }
        found
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything, blanks and brackets too.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn pss_of(pid: u32) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
