//! What the room has used, from files of its cgroup that were opened while the builder could open them.

use std::os::fd::{AsFd, OwnedFd};
use workroom_types::Usage;

/// Open cgroup files, each where this machine has it.
#[derive(Default)]
pub struct Meters {
    /// v2 `memory.events` or v1 `memory.oom_control`: both have a line `oom_kill N`.
    pub oom: Option<OwnedFd>,
    /// v2 `memory.peak` or v1 `memory.max_usage_in_bytes`.
    pub peak: Option<OwnedFd>,
    /// v2 `cpu.stat` (`usage_usec N`).
    pub cpu: Option<OwnedFd>,
}

impl Meters {
    /// Of all the one that is cheap to read: the others have the kernel add up every processor's share.
    pub(crate) fn oom_kills(&self) -> u64 {
        value(&self.oom, "oom_kill").unwrap_or(0)
    }

    pub(crate) fn read(&self) -> Usage {
        Usage {
            cpu_micros: value(&self.cpu, "usage_usec").unwrap_or(0),
            peak_memory: value(&self.peak, "").unwrap_or(0),
            oom_kills: self.oom_kills(),
        }
    }
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
