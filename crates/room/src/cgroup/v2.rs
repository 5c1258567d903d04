//! cgroup v2: one base for the spawner, one group for each room's commands.

use super::{
    Hierarchies, PREFIX, RoomGroup, make_locked, not_asked, open_dir, open_file, remove_group, subgroups,
    sweep, write, write_if_there,
};
use rustix::fs::{AtFlags, Mode, OFlags, chmodat, chownat, mkdirat};
use rustix::process::Uid;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use workroom_guest::{Meters, WorkGroup};
use workroom_types::{Layer, LayerState, Limits};

/// Where guests and launchers are.
pub(super) const GUESTS: &str = "guests";

/// Whether a group's name is one that [`Base::open`] gives: `workroom-PID-HEX`.
pub(super) fn is_base(name: &str) -> bool {
    let parts = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(pid, hex)| {
        !pid.is_empty()
            && pid.bytes().all(|b| b.is_ascii_digit())
            && hex.len() == 8
            && hex.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// The spawner's own group, with the controllers switched on for what is below it.
pub(crate) struct Base {
    parent: OwnedFd,
    name: String,
    dir: OwnedFd,
    pub(crate) guests: OwnedFd,
    has_cpu: bool,
}

impl Base {
    pub(crate) fn open(found: &Hierarchies) -> Result<Base, String> {
        let ancestors = found.unified_ancestors();
        let (parent, has_cpu) = choose_parent(&ancestors)?;
        let parent = crate::mounts::directory(&parent)
            .and_then(|path| open_dir(path.as_fd(), "."))
            .map_err(|error| format!("cgroup v2 cannot be opened ({error})"))?;
        sweep(parent.as_fd());
        let suffix = crate::identity::random_u32().map_err(|error| error.to_string())?;
        let name = format!("{PREFIX}{}-{suffix:08x}", std::process::id());
        Self::make(parent, name, has_cpu).map_err(|error| format!("cgroup v2 is not writable here ({error})"))
    }

    fn make(parent: OwnedFd, name: String, has_cpu: bool) -> io::Result<Base> {
        let dir = make_locked(parent.as_fd(), &name)?;
        let prepared = (|| {
            write(dir.as_fd(), "cgroup.subtree_control", "+memory +pids")?;
            mkdirat(&dir, GUESTS, Mode::from_raw_mode(0o700))?;
            // A launcher moves its own commands from `guests` to its room's group, for which the kernel asks
            // for write access to the group that both are in. What it can reach is still decided by the
            // owner of each room's own group.
            chmodat(&dir, "cgroup.procs", Mode::from_raw_mode(0o666), AtFlags::empty())?;
            open_dir(dir.as_fd(), GUESTS)
        })();
        match prepared {
            Ok(guests) => Ok(Base { parent, name, dir, guests, has_cpu }),
            Err(error) => {
                remove_group(dir.as_fd(), GUESTS);
                remove_group(parent.as_fd(), &name);
                Err(error)
            }
        }
    }

    pub(crate) fn create(&self, room: &str, limits: &Limits, owner: u32) -> io::Result<RoomGroup> {
        mkdirat(&self.dir, room, Mode::from_raw_mode(0o700))?;
        let group = open_dir(self.dir.as_fd(), room)?;
        let dir = group.as_fd();
        let mut states = Vec::new();
        let enforced = || LayerState::Enforced("cgroup v2".into());
        states.push(match limits.memory {
            Some(bytes) => {
                write(dir, "memory.max", &bytes.to_string())?;
                write_if_there(dir, "memory.swap.max", "0")?;
                (Layer::Memory, enforced())
            }
            None => (Layer::Memory, not_asked()),
        });
        states.push(match limits.pids {
            Some(count) => {
                write(dir, "pids.max", &count.to_string())?;
                (Layer::Pids, enforced())
            }
            None => (Layer::Pids, not_asked()),
        });
        states.push(match limits.cpus_milli {
            Some(milli) if self.has_cpu => {
                // Only now: every group pays for a controller that is on.
                write(self.dir.as_fd(), "cgroup.subtree_control", "+cpu")?;
                write(dir, "cpu.max", &format!("{} 100000", milli * 100))?;
                (Layer::Cpu, enforced())
            }
            Some(_) => (Layer::Cpu, LayerState::Missing("cgroup v2 has no cpu controller here".into())),
            None => (Layer::Cpu, not_asked()),
        });
        chownat(dir, "cgroup.procs", Some(Uid::from_raw(owner)), None, AtFlags::empty())?;
        let meters = Meters {
            oom: open_file(dir, "memory.events", OFlags::RDONLY).ok(),
            peak: open_file(dir, "memory.peak", OFlags::RDONLY).ok(),
            cpu: open_file(dir, "cpu.stat", OFlags::RDONLY).ok(),
        };
        let work = WorkGroup { birth: Some(group), join: Vec::new() };
        Ok(RoomGroup { work, meters, states, locks: Vec::new() })
    }

    pub(crate) fn remove(&self, room: &str) {
        if let Ok(group) = open_dir(self.dir.as_fd(), room) {
            let _ = write(group.as_fd(), "cgroup.kill", "1");
        }
        remove_group(self.dir.as_fd(), room);
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        for inner in subgroups(self.dir.as_fd()) {
            remove_group(self.dir.as_fd(), &inner);
        }
        remove_group(self.parent.as_fd(), &self.name);
    }
}

/// The nearest group above us under which groups with memory and pids can be made, and whether with cpu.
///
/// A group that has processes of its own cannot give controllers to groups below it, so this is often not
/// our own group but one above; the nearest, so that limits on us go on holding for our rooms.
fn choose_parent(ancestors: &[PathBuf]) -> Result<(PathBuf, bool), String> {
    let has = |list: &str, name: &str| list.split_whitespace().any(|known| known == name);
    let enabled = |dir: &PathBuf| {
        let list = std::fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
        (has(&list, "memory") && has(&list, "pids")).then(|| has(&list, "cpu"))
    };
    let writable = |dir: &PathBuf| {
        rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok()
    };
    if ancestors.is_empty() {
        return Err("no cgroup v2 is mounted".into());
    }
    // Our own group has a process, us; only the root of all may give controllers away nevertheless.
    let above = if ancestors.len() > 1 { &ancestors[1..] } else { ancestors };
    for dir in above.iter().filter(|dir| writable(dir)) {
        if enabled(dir) != Some(true) {
            // Refused where the group has processes of its own, or does not have the controllers itself.
            for controllers in ["+memory +pids", "+cpu"] {
                let _ = std::fs::write(dir.join("cgroup.subtree_control"), controllers);
            }
        }
        if let Some(cpu) = enabled(dir) {
            return Ok((dir.clone(), cpu));
        }
    }
    Err("no writable cgroup v2 with memory and pids controllers is above this process".into())
}
