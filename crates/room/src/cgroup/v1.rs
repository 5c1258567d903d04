//! cgroup v1: one group per controller and room.

use super::{
    Hierarchies, LiveLimits, RoomGroup, make_locked, not_asked, open_dir, open_file, write, write_if_there,
};
use rustix::fs::{CWD, OFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use workroom_types::{Layer, LayerState, Limits};

/// The directories under which rooms get groups.
pub(crate) struct Controllers {
    memory: OwnedFd,
    pids: OwnedFd,
    cpu: Option<OwnedFd>,
}

impl Controllers {
    pub(crate) fn open(found: &Hierarchies) -> Result<Controllers, String> {
        let dir = |name: &str| -> Result<OwnedFd, String> {
            let path = found.controller(name).ok_or(format!("cgroup v1 has no {name} controller"))?;
            rustix::fs::access(path, rustix::fs::Access::WRITE_OK)
                .map_err(|error| format!("cgroup v1 is not writable here ({error})"))?;
            open_dir(CWD, path).map_err(|error| format!("cgroup v1 {name} cannot be opened ({error})"))
        };
        Ok(Controllers { memory: dir("memory")?, pids: dir("pids")?, cpu: dir("cpu").ok() })
    }

    pub(super) fn all(&self) -> [Option<&OwnedFd>; 3] {
        [Some(&self.memory), Some(&self.pids), self.cpu.as_ref()]
    }

    /// Only controllers that limit something are joined. `tasks` and not `cgroup.procs`: the launcher is one thread, and one
    /// thread that moves itself waits for no lock; a process waits until every processor has noticed, for 6 to 14 ms.
    pub(crate) fn create(&self, room: &str, limits: &Limits) -> io::Result<RoomGroup> {
        let mut made = RoomGroup::default();
        let enforced = || LayerState::Enforced("cgroup v1".into());
        let mut join = |parent: &OwnedFd| -> io::Result<OwnedFd> {
            let group = make_locked(parent.as_fd(), room)?;
            made.work.join.push(open_file(group.as_fd(), "tasks", OFlags::WRONLY)?);
            Ok(group)
        };
        made.states.push(match limits.memory {
            Some(bytes) => {
                let group = join(&self.memory)?;
                let dir = group.as_fd();
                write(dir, "memory.limit_in_bytes", &bytes.to_string())?;
                // Memory and swap together; there only where swap is accounted.
                write_if_there(dir, "memory.memsw.limit_in_bytes", &bytes.to_string())?;
                // Buffers of TCP are a counter of their own here, and not in the other.
                write_if_there(dir, "memory.kmem.tcp.limit_in_bytes", &(bytes / 4).to_string())?;
                made.meters.oom = open_file(dir, "memory.oom_control", OFlags::RDONLY).ok();
                made.meters.peak = open_file(dir, "memory.max_usage_in_bytes", OFlags::RDONLY).ok();
                made.meters.memory = open_file(dir, "memory.usage_in_bytes", OFlags::RDONLY).ok();
                made.locks.push(group);
                (Layer::Memory, enforced())
            }
            None => (Layer::Memory, not_asked()),
        });
        made.states.push(match limits.pids {
            Some(count) => {
                let group = join(&self.pids)?;
                // The launcher is one of them.
                write(group.as_fd(), "pids.max", &(count + 1).to_string())?;
                made.meters.pids = open_file(group.as_fd(), "pids.current", OFlags::RDONLY).ok();
                made.meters.pids_events = open_file(group.as_fd(), "pids.events", OFlags::RDONLY).ok();
                made.locks.push(group);
                (Layer::Pids, enforced())
            }
            None => (Layer::Pids, not_asked()),
        });
        made.states.push(match (limits.cpus_milli, &self.cpu) {
            (Some(milli), Some(parent)) => {
                let group = join(parent)?;
                write(group.as_fd(), "cpu.cfs_period_us", "100000")?;
                write(group.as_fd(), "cpu.cfs_quota_us", &(milli * 100).to_string())?;
                made.locks.push(group);
                (Layer::Cpu, enforced())
            }
            (Some(_), None) => {
                (Layer::Cpu, LayerState::Missing("cgroup v1 has no cpu controller here".into()))
            }
            (None, _) => (Layer::Cpu, not_asked()),
        });
        Ok(made)
    }
}

/// Changes the limits of a room that runs, where it has a group for them. What could not be changed is not among what is
/// answered.
pub(super) fn change(found: &Hierarchies, room: &str, wanted: &LiveLimits) -> Vec<(Layer, LayerState)> {
    let group = |controller: &str| {
        let parent = open_dir(CWD, found.controller(controller)?).ok()?;
        open_dir(parent.as_fd(), format!("{}{room}", super::PREFIX)).ok()
    };
    let state = |limit: Option<u64>| match limit {
        Some(_) => LayerState::Enforced("cgroup v1".into()),
        None => not_asked(),
    };
    let mut changed = Vec::new();
    if let (Some(memory), Some(group)) = (wanted.memory, group("memory")) {
        let bytes = memory.map_or("-1".to_owned(), |bytes| bytes.to_string());
        let both = ["memory.memsw.limit_in_bytes", "memory.limit_in_bytes"];
        // Memory may never be more than memory and swap: which goes first depends on where they go.
        let set =
            |files: [&str; 2]| files.iter().all(|file| write_if_there(group.as_fd(), file, &bytes).is_ok());
        if set(both) || set([both[1], both[0]]) {
            changed.push((Layer::Memory, state(memory)));
        }
    }
    if let (Some(pids), Some(group)) = (wanted.pids, group("pids")) {
        // The launcher is one of them.
        let count = pids.map_or("max".to_owned(), |count| (count + 1).to_string());
        if write(group.as_fd(), "pids.max", &count).is_ok() {
            changed.push((Layer::Pids, state(pids)));
        }
    }
    if let (Some(milli), Some(group)) = (wanted.cpus_milli, group("cpu")) {
        let quota = milli.map_or("-1".to_owned(), |milli| (milli * 100).to_string());
        if write(group.as_fd(), "cpu.cfs_quota_us", &quota).is_ok() {
            changed.push((Layer::Cpu, state(milli)));
        }
    }
    changed
}
