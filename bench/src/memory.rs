//! Many idle rooms at once: what each keeps, in its processes and in the kernel.

use crate::guard;
use crate::options::Options;
use crate::report;
use crate::rooms::{Rooms, words};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};
use workroom_room::Room;

/// Rooms in the making at a time.
const IN_FLIGHT: usize = 16;

/// Freed memory comes back with a delay.
const SETTLE: Duration = Duration::from_secs(2);

/// Descriptors and processes that this machine and this program need besides rooms.
const SPARE: u64 = 512;

/// What in `/proc/meminfo` grows with rooms and belongs to no process; Shmem is what rooms hold in tmpfs.
const KERNEL: [&str; 5] = ["Slab", "KernelStack", "PageTables", "Percpu", "Shmem"];

pub(crate) fn run(options: &Options, wanted: usize) -> Result<(), String> {
    let limits = prepare_limits(wanted as u64, options.raise_limits);
    let possible = limits.iter().map(|limit| limit.rooms).min().unwrap_or(u64::MAX);
    let mut notes = Vec::new();
    for limit in limits.iter().filter(|limit| limit.rooms < wanted as u64) {
        notes.push(format!("{} of {} allows {} rooms", limit.name, limit.value, limit.rooms));
    }
    let aim = wanted.min(possible as usize);
    let rooms = Rooms::start()?;
    // The first room loads what all share.
    let (_, limited_by) = rooms.look()?;
    std::thread::sleep(SETTLE);
    let before = Meminfo::read();
    let started = Instant::now();
    let (standing, stopped) = fill(&rooms, aim);
    let filling = started.elapsed();
    notes.extend(stopped);
    std::thread::sleep(SETTLE);
    guard::alive();
    let after = Meminfo::read();
    let count = standing.len();
    if count == 0 {
        return Err(format!("not one room stands: {}", notes.join("; ")));
    }
    let processes = Processes::below(rooms.spawner_pid());
    if processes.unreadable > 0 {
        notes.push(format!(
            "the memory of {} processes cannot be read without root: the sum is too small",
            processes.unreadable
        ));
    }
    let ending = Instant::now();
    end(&rooms, standing)?;
    let ended = ending.elapsed();

    let each = |kib: i64| kib as f64 / count as f64;
    let kernel: i64 = KERNEL.iter().map(|name| after.of(name) - before.of(name)).sum();
    let counted = each(processes.pss + kernel);
    let available = each(before.of("MemAvailable") - after.of("MemAvailable"));
    println!("{count} idle rooms; made in {filling:.1?}, ended in {ended:.1?}");
    for note in &notes {
        println!("note: {note}");
    }
    println!("\n{:<58}{:>12}", "KiB per room", "");
    let whole = format!("{} processes in all", processes.count);
    println!("{:<58}{:>12.1}", format!("PSS of guest and launcher ({whole})"), each(processes.pss));
    for name in KERNEL {
        println!("{name:<58}{:>12.1}", each(after.of(name) - before.of(name)));
    }
    println!("{:<58}{counted:>12.1}", "sum of these");
    println!("{:<58}{available:>12.1}", "less MemAvailable");
    let per_room = counted.max(available);
    let verdict = if per_room <= 1024.0 { "kept" } else { "OVER" };
    println!("{:<58}{per_room:>12.1}  <= 1024 {verdict}", "memory per room: the larger of the two");
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

/// Makes rooms until there are enough or the machine says no.
fn fill(rooms: &Rooms, aim: usize) -> (Vec<Room>, Option<String>) {
    let mut standing: Vec<Room> = Vec::with_capacity(aim);
    let mut ready = 0;
    let mut stopped = None;
    while stopped.is_none() && standing.len() < aim {
        match rooms.ask() {
            Ok(room) => standing.push(room),
            Err(error) => stopped = Some(error),
        }
        if standing.len() - ready >= IN_FLIGHT {
            match standing[ready].ready() {
                Ok(_) => ready += 1,
                Err(error) => stopped = Some(words(error)),
            }
        }
        guard::alive();
    }
    while ready < standing.len() {
        match standing[ready].ready() {
            Ok(_) => ready += 1,
            Err(error) => {
                stopped.get_or_insert(words(error));
                standing.remove(ready);
            }
        }
    }
    let number = standing.len();
    (standing, stopped.map(|error| format!("the machine stopped at {number} rooms: {error}")))
}

fn end(rooms: &Rooms, standing: Vec<Room>) -> Result<(), String> {
    let ids: Vec<String> = standing.iter().map(|room| room.id().to_owned()).collect();
    drop(standing);
    for id in ids {
        rooms.wait_gone(&id)?;
        guard::alive();
    }
    Ok(())
}

struct Limit {
    name: String,
    value: u64,
    /// How many rooms it allows.
    rooms: u64,
}

/// Reads what this machine allows; raises what may be raised, to be put back at the end.
fn prepare_limits(wanted: u64, raise: bool) -> Vec<Limit> {
    let mut limits = Vec::new();
    // A room has two processes here, and two descriptors on this side.
    let mut system = vec![("kernel/pid_max".to_owned(), 2), ("kernel/threads-max".to_owned(), 2)];
    for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        system.push((format!("user/max_{kind}_namespaces"), 1));
    }
    for (name, each) in system {
        let path = format!("/proc/sys/{name}");
        let Some(mut value) = read_number(&path) else { continue };
        let needed = wanted * each + SPARE;
        if raise && value < needed && fs::write(&path, needed.to_string()).is_ok() {
            let old = value;
            guard::undo_later(move || drop(fs::write(path, old.to_string())));
            value = needed;
        }
        limits.push(Limit { name, value, rooms: value.saturating_sub(SPARE) / each });
    }
    let open_files = raise_open_files(wanted * 2 + SPARE);
    limits.push(Limit {
        name: "RLIMIT_NOFILE".into(),
        value: open_files,
        rooms: open_files.saturating_sub(SPARE) / 2,
    });
    limits
}

/// Raises the soft limit, and for root the hard one; the spawner inherits it.
fn raise_open_files(needed: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let now = limit.current.unwrap_or(u64::MAX);
    if now >= needed {
        return now;
    }
    let most = limit.maximum.unwrap_or(u64::MAX);
    let raised = Rlimit { current: Some(needed), maximum: Some(most.max(needed)) };
    let within = Rlimit { current: Some(most.min(needed)), maximum: limit.maximum };
    let _ = setrlimit(Resource::Nofile, raised).or_else(|_| setrlimit(Resource::Nofile, within));
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn read_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
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

/// The processes below one, and their proportional share of memory.
struct Processes {
    count: usize,
    /// KiB.
    pss: i64,
    unreadable: usize,
}

impl Processes {
    fn below(ancestor: u32) -> Processes {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            if let Some(parent) = parent_of(pid) {
                children.entry(parent).or_default().push(pid);
            }
        }
        let mut found = Processes { count: 0, pss: 0, unreadable: 0 };
        let mut left = children.remove(&ancestor).unwrap_or_default();
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
