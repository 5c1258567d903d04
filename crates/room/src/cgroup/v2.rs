//! cgroup v2: one base that all spawners share, in it one group for each room's commands.

use super::{
    Hierarchies, RoomGroup, make_group, make_locked, not_asked, open_dir, open_file, read, write,
    write_if_there,
};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, access, chmodat, chownat, fstat};
use rustix::process::{Uid, geteuid};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use workroom_guest::{Meters, WorkGroup};
use workroom_types::{Layer, LayerState, Limits};

use super::LiveLimits;

/// What the base is called.
pub(super) const BASE: &str = "workroom";

/// Where guests and launchers are.
const GUESTS: &str = "guests";

/// What every room's group has.
const CONTROLLERS: &str = "+memory +pids";

/// The group with the controllers switched on for what is below it.
pub(crate) struct Base {
    pub(super) dir: OwnedFd,
    guests: OwnedFd,
    /// Whether this process is in `guests` itself.
    inside: bool,
}

impl Base {
    /// The base in the nearest group above us under which groups with memory and pids can be made.
    ///
    /// A group that has processes of its own cannot give controllers to groups below it, so this is often not
    /// our own group but one above; the nearest, so that limits on us go on holding for our rooms.
    pub(crate) fn open(found: &Hierarchies) -> Result<Base, String> {
        let ancestors = found.unified_ancestors();
        // Our own group has a process, us; only the root of all may give controllers away nevertheless.
        let above = match ancestors.as_slice() {
            [] => return Err("no cgroup v2 is mounted".into()),
            [_, above @ ..] if !above.is_empty() => above,
            root => root,
        };
        above.iter().find_map(|parent| Base::find(parent).or_else(|_| Base::make(parent)).ok()).ok_or_else(
            || "no writable cgroup v2 with memory and pids controllers is above this process".into(),
        )
    }

    /// A base without controllers, beside those of v1: rooms can be stopped as a whole in it, and nothing else.
    pub(crate) fn open_beside_v1(found: &Hierarchies) -> Option<Base> {
        let parent = found.unified_ancestors().into_iter().next()?;
        let open = || -> io::Result<Base> {
            let dir = open_own(&parent)?;
            Ok(Base { guests: open_dir(dir.as_fd(), GUESTS)?, dir, inside: false })
        };
        let make = || -> io::Result<Base> {
            make_group(open_dir(CWD, &parent)?.as_fd(), BASE)?;
            let dir = open_own(&parent)?;
            let base = Base { guests: dir.try_clone()?, dir, inside: false };
            base.let_launchers_in()?;
            open()
        };
        open().or_else(|_| make()).ok()
    }

    /// Takes what an earlier spawner has made.
    fn find(parent: &Path) -> io::Result<Base> {
        let dir = open_own(parent)?;
        if !gives_controllers(dir.as_fd()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Base { guests: open_dir(dir.as_fd(), GUESTS)?, dir, inside: false })
    }

    /// A launcher moves its own commands from `guests` to its room's group, for which the kernel asks for write
    /// access to the group that both are in. What it can reach is still decided by the owner of each room's own
    /// group.
    fn let_launchers_in(&self) -> io::Result<()> {
        chmodat(&self.dir, "cgroup.procs", Mode::from_raw_mode(0o666), AtFlags::empty())?;
        make_group(self.dir.as_fd(), GUESTS)
    }

    /// Makes what is missing. Others may be doing the same: each step may be done twice, and the last one is
    /// what [`Base::find`] waits to see.
    fn make(parent: &Path) -> io::Result<Base> {
        access(parent, Access::WRITE_OK | Access::EXEC_OK)?;
        let above = open_dir(CWD, parent)?;
        if !gives_controllers(above.as_fd()) {
            // Refused where the group has processes of its own, or does not have the controllers itself.
            write(above.as_fd(), "cgroup.subtree_control", CONTROLLERS)?;
        }
        make_group(above.as_fd(), BASE)?;
        let dir = open_own(parent)?;
        write(dir.as_fd(), "cgroup.subtree_control", CONTROLLERS)?;
        Base { guests: dir.try_clone()?, dir, inside: false }.let_launchers_in()?;
        Base::find(parent)
    }

    pub(super) fn guests_elsewhere(&self) -> Option<BorrowedFd<'_>> {
        (!self.inside).then_some(self.guests.as_fd())
    }

    /// Where that is refused, guests are born there all the same.
    pub(super) fn join_guests(&mut self) {
        self.inside = write(self.guests.as_fd(), "cgroup.procs", "0").is_ok();
    }

    /// Whether there is more in here than `guests`: a directory has a link from each one in it.
    pub(super) fn has_rooms(&self) -> bool {
        fstat(&self.dir).is_ok_and(|stat| stat.st_nlink > 2 + 1)
    }

    /// Only for a room that asks for it: every group pays for a controller that is on.
    fn enable_cpu(&self) -> bool {
        let enable = |file| write(self.dir.as_fd(), file, "+cpu").is_ok();
        let ours = "cgroup.subtree_control";
        enable(ours) || enable("../cgroup.subtree_control") && enable(ours)
    }

    pub(crate) fn create(
        &self,
        room: &str,
        limits: &Limits,
        owner: Option<u32>,
        durable: bool,
    ) -> io::Result<RoomGroup> {
        let group = make_locked(self.dir.as_fd(), room)?;
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
            Some(milli) if self.enable_cpu() => {
                write(dir, "cpu.max", &format!("{} 100000", milli * 100))?;
                (Layer::Cpu, enforced())
            }
            Some(_) => (Layer::Cpu, LayerState::Missing("cgroup v2 has no cpu controller here".into())),
            None => (Layer::Cpu, not_asked()),
        });
        give_to(dir, owner)?;
        let meters = Meters {
            oom: open_file(dir, "memory.events", OFlags::RDONLY).ok(),
            peak: open_file(dir, "memory.peak", OFlags::RDONLY).ok(),
            cpu: open_file(dir, "cpu.stat", OFlags::RDONLY).ok(),
            ..Meters::default()
        };
        // Others are not asked what they use now.
        let meters = if durable { with_gauges(dir, meters) } else { meters };
        let freezer = if durable { freezer(dir) } else { None };
        let work = WorkGroup { birth: Some(group), join: Vec::new(), freezer };
        Ok(RoomGroup { work, meters, states, locks: Vec::new() })
    }

    /// Adds to a room with limits of v1 a group in which it can be stopped as a whole.
    pub(crate) fn make_stoppable(
        &self,
        room: &str,
        owner: Option<u32>,
        made: &mut RoomGroup,
    ) -> io::Result<()> {
        let group = make_locked(self.dir.as_fd(), room)?;
        give_to(group.as_fd(), owner)?;
        made.meters.cpu = open_file(group.as_fd(), "cpu.stat", OFlags::RDONLY).ok();
        made.work.freezer = freezer(group.as_fd());
        made.work.birth = Some(group);
        Ok(())
    }
}

/// Lets the room's launcher place commands in the group.
fn give_to(group: BorrowedFd<'_>, owner: Option<u32>) -> io::Result<()> {
    let Some(owner) = owner else { return Ok(()) };
    Ok(chownat(group, "cgroup.procs", Some(Uid::from_raw(owner)), None, AtFlags::empty())?)
}

fn with_gauges(group: BorrowedFd<'_>, meters: Meters) -> Meters {
    let open = |name: &str| open_file(group, name, OFlags::RDONLY).ok();
    let (memory, pids) = (open("memory.current"), open("pids.current"));
    Meters { memory, pids, pids_events: open("pids.events"), ..meters }
}

/// Changes the limits of a room that runs. What could not be changed is not among what is answered.
pub(super) fn change(base: &Path, room: &str, wanted: &LiveLimits) -> io::Result<Vec<(Layer, LayerState)>> {
    let base_dir = open_dir(CWD, base)?;
    let group = open_dir(base_dir.as_fd(), format!("{}{room}", super::PREFIX))?;
    let dir = group.as_fd();
    let or_max = |limit: Option<u64>| limit.map_or("max".to_owned(), |limit| limit.to_string());
    let state = |limit: Option<u64>| match limit {
        Some(_) => LayerState::Enforced("cgroup v2".into()),
        None => not_asked(),
    };
    let mut changed = Vec::new();
    if let Some(memory) = wanted.memory
        && write(dir, "memory.max", &or_max(memory)).is_ok()
        && write_if_there(dir, "memory.swap.max", if memory.is_some() { "0" } else { "max" }).is_ok()
    {
        changed.push((Layer::Memory, state(memory)));
    }
    if let Some(pids) = wanted.pids
        && write(dir, "pids.max", &or_max(pids)).is_ok()
    {
        changed.push((Layer::Pids, state(pids)));
    }
    if let Some(milli) = wanted.cpus_milli {
        let quota = milli.map_or("max".to_owned(), |milli| (milli * 100).to_string());
        let base = Base { guests: base_dir.try_clone()?, dir: base_dir, inside: false };
        if base.enable_cpu() && write(dir, "cpu.max", &format!("{quota} 100000")).is_ok() {
            changed.push((Layer::Cpu, state(milli)));
        }
    }
    Ok(changed)
}

fn freezer(group: BorrowedFd<'_>) -> Option<(OwnedFd, OwnedFd)> {
    let freeze = open_file(group, "cgroup.freeze", OFlags::RDWR).ok()?;
    Some((freeze, open_file(group, "cgroup.events", OFlags::RDONLY).ok()?))
}

/// Opens a base that is ours: whose it is can take every limit off the groups in it.
fn open_own(parent: &Path) -> io::Result<OwnedFd> {
    let dir = open_dir(CWD, parent.join(BASE))?;
    if fstat(&dir)?.st_uid == geteuid().as_raw() {
        Ok(dir)
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

fn gives_controllers(dir: BorrowedFd<'_>) -> bool {
    let given = read(dir, "cgroup.subtree_control").unwrap_or_default();
    ["memory", "pids"].iter().all(|wanted| given.split_whitespace().any(|name| name == *wanted))
}
