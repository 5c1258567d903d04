//! What the room has used, from files of its cgroup that were opened while the builder could open them.

use crate::census::{Census, Staff};
use std::os::fd::{AsFd, OwnedFd};
use workroom_types::{DiskGauge, Gauge, Usage};

/// Open cgroup files, each where this machine has it.
#[derive(Default)]
pub struct Meters {
    /// v2 `memory.events` or v1 `memory.oom_control`: both have a line `oom_kill N`.
    pub oom: Option<OwnedFd>,
    /// v2 `memory.peak` or v1 `memory.max_usage_in_bytes`.
    pub peak: Option<OwnedFd>,
    /// v2 `cpu.stat` (`usage_usec N`).
    pub cpu: Option<OwnedFd>,
    /// v2 `memory.current` or v1 `memory.usage_in_bytes`.
    pub memory: Option<OwnedFd>,
    /// `pids.current`.
    pub pids: Option<OwnedFd>,
    /// `pids.events` (`max N`).
    pub pids_events: Option<OwnedFd>,
}

impl Meters {
    /// All that are there, for whoever closes what is not the guest's.
    pub fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        let all = [&self.oom, &self.peak, &self.cpu, &self.memory, &self.pids, &self.pids_events];
        all.into_iter().flatten()
    }

    /// Of all the one that is cheap to read: the others have the kernel add up every processor's share.
    pub(crate) fn oom_kills(&self) -> u64 {
        value(&self.oom, "oom_kill").unwrap_or(0)
    }

    /// How many processes and threads of the room there are, its staff included that is in its group.
    pub(crate) fn tasks(&self) -> Option<u64> {
        value(&self.pids, "")
    }

    pub(crate) fn read(&self) -> Usage {
        Usage {
            cpu_micros: value(&self.cpu, "usage_usec").unwrap_or(0),
            peak_memory: value(&self.peak, "").unwrap_or(0),
            oom_kills: self.oom_kills(),
        }
    }

    /// What is used now. Where no group counts, processes are: `own_disk` says whether the root is the room's alone.
    pub(crate) fn gauge(&self, census: &Census, staff: &Staff, own_disk: bool) -> Gauge {
        let by_group = self.memory.is_some() && self.pids.is_some() && self.cpu.is_some();
        // Looking at every process takes longer the more there are; groups tell all but how many are the staff's.
        let total = (!by_group).then(|| census.total(staff));
        let processes = match &total {
            Some(total) => total.processes.into(),
            None => census.others(staff).len() as u64,
        };
        let of_all = |count: fn(&crate::census::Total) -> u64| total.as_ref().map(count);
        Gauge {
            cpu_micros: value(&self.cpu, "usage_usec").or(of_all(|total| total.cpu_micros)).unwrap_or(0),
            memory: value(&self.memory, "").or(of_all(|total| total.memory)),
            peak_memory: value(&self.peak, ""),
            pids: value(&self.pids, "").unwrap_or(processes),
            by_group,
            processes,
            oom_kills: value(&self.oom, "oom_kill"),
            pids_denied: value(&self.pids_events, "max"),
            disk: if own_disk { disk() } else { None },
        }
    }
}

/// The file system that the room's root is on.
fn disk() -> Option<DiskGauge> {
    let space = rustix::fs::statvfs("/").ok()?;
    Some(DiskGauge {
        bytes: space.f_blocks * space.f_frsize,
        bytes_free: space.f_bavail * space.f_frsize,
        inodes: space.f_files,
        inodes_free: space.f_favail,
    })
}

/// The number after `key` at the start of a line, or the only number of the file without a key.
fn value(file: &Option<OwnedFd>, key: &str) -> Option<u64> {
    let mut buffer = [0u8; 1024];
    let read = rustix::io::pread(file.as_ref()?.as_fd(), &mut buffer, 0).ok()?;
    let text = str::from_utf8(&buffer[..read]).ok()?;
    if key.is_empty() {
        return text.trim().parse().ok();
    }
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}
