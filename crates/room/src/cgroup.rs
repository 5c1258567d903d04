//! Limits by cgroups: where this machine lets us make groups, and the groups of each room.
//!
//! ```text
//!  v2   PARENT/workroom/                  made when it is missing, and left: every spawner here uses it
//!                  ├── guests/            guests and launchers: not limited, no victim of a room's limit;
//!                  │                      with them the spawner of durable rooms
//!                  └── workroom-ROOM/     the room's commands, born here by CLONE_INTO_CGROUP
//!
//!  v1   HIERARCHY/OWN/workroom-ROOM/      one per controller;
//!                                         the launcher joins once, commands inherit; a durable room has
//!                                         a group of v2 as well, without controllers, to be stopped in
//! ```
//!
//! A room's group is locked from its birth until the room's guest is gone. Whoever removes one locks it first,
//! so a group whose lock can be had belongs to nobody any more; a spawner sweeps those after its first room.

mod hierarchy;
mod v1;
mod v2;

use crate::step::During;
use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use workroom_guest::{Meters, WorkGroup};
use workroom_types::{Layer, LayerState, Limits, RoomError};

pub(crate) use hierarchy::{Hierarchies, hierarchies};

/// What the name of a room's group starts with.
const PREFIX: &str = "workroom-";

/// How long the kernel, a room or another spawner may take to let go of a group, and how often we look: nothing
/// announces it on every kernel we run on.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(200);

/// The groups that a spawner may make.
pub(crate) enum Groups {
    V2(v2::Base),
    /// And a base of v2 without controllers, where there is one.
    V1(v1::Controllers, Option<v2::Base>),
    /// None, and why.
    None(String),
}

/// A room's own groups, before its guest takes over their descriptors.
#[derive(Default)]
pub(crate) struct RoomGroup {
    pub(crate) work: WorkGroup,
    pub(crate) meters: Meters,
    pub(crate) states: Vec<(Layer, LayerState)>,
    /// v1: keep the sweep of others away while the room lives. On v2 the group that commands are born in does.
    pub(crate) locks: Vec<OwnedFd>,
}

impl Groups {
    /// Finds the best that this machine offers: v2 with controllers, else v1, else nothing.
    pub(crate) fn open(for_durable: bool) -> Groups {
        let found = hierarchies();
        let unified = match v2::Base::open(&found) {
            Ok(base) => return Groups::V2(base),
            Err(reason) => reason,
        };
        match v1::Controllers::open(&found) {
            Ok(controllers) => {
                let beside = if for_durable { v2::Base::open_beside_v1(&found) } else { None };
                Groups::V1(controllers, beside)
            }
            Err(reason) => Groups::None(format!("{unified}; {reason}")),
        }
    }

    /// Where a room's guest is born, if it matters and is not where this process is.
    pub(crate) fn guests(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Groups::V2(base) | Groups::V1(_, Some(base)) => base.guests_elsewhere(),
            _ => None,
        }
    }

    /// For a process that will make many rooms: joins their guests, once, so that each is born there by itself. To be
    /// born elsewhere waits for a lock of all cgroups of the machine, which the making of every group holds.
    pub(crate) fn join_guests(&mut self) {
        if let Groups::V2(base) | Groups::V1(_, Some(base)) = self {
            base.join_guests();
        }
    }

    /// Makes the groups of a room. `owner` is its launcher's uid, where that is not the maker's own.
    pub(crate) fn create(
        &self,
        room: &str,
        limits: &Limits,
        owner: Option<u32>,
        durable: bool,
    ) -> Result<RoomGroup, RoomError> {
        let made = match self {
            Groups::V2(base) => base.create(room, limits, owner, durable),
            Groups::V1(controllers, beside) => controllers.create(room, limits).and_then(|mut made| {
                if let Some(base) = beside.as_ref().filter(|_| durable) {
                    base.make_stoppable(room, owner, &mut made)?;
                }
                Ok(made)
            }),
            Groups::None(reason) => return Ok(RoomGroup::unlimited(limits, reason)),
        };
        if made.is_err() {
            // Not one that is somebody else's: that is locked.
            self.remove_by(room, Instant::now());
        }
        made.during("cgroup")
    }

    /// Removes what [`Groups::create`] made, as soon as the room has let go of it.
    pub(crate) fn remove(&self, room: &str) {
        self.remove_by(room, Instant::now() + PATIENCE);
    }

    fn remove_by(&self, room: &str, deadline: Instant) {
        self.parents().for_each(|parent| remove_group(parent, room, deadline));
    }

    /// Removes groups of rooms whose spawners were killed. Waits for nobody.
    pub(crate) fn sweep(&self) {
        self.parents().for_each(sweep);
    }

    /// The same, right after a room was cloned, which makes its own group meanwhile: where there is none yet there
    /// is nothing to look for.
    pub(crate) fn sweep_beside_a_room(&self) {
        match self {
            Groups::V2(base) if !base.has_rooms() => {}
            _ => self.sweep(),
        }
    }

    /// The directories that hold rooms' groups.
    fn parents(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let parents = match self {
            Groups::V2(base) => [Some(&base.dir), None, None, None],
            Groups::V1(controllers, beside) => {
                let [memory, pids, cpu] = controllers.all();
                [memory, pids, cpu, beside.as_ref().map(|base| &base.dir)]
            }
            Groups::None(_) => [None; 4],
        };
        parents.into_iter().flatten().map(AsFd::as_fd)
    }
}

impl RoomGroup {
    /// Without groups: what resource limits can do instead, and what they cannot.
    pub(crate) fn unlimited(limits: &Limits, reason: &str) -> RoomGroup {
        let mut states = Vec::new();
        states.push(match limits.memory {
            Some(_) => (
                Layer::Memory,
                LayerState::Partial(format!("each process by itself (RLIMIT_DATA); no cgroup: {reason}")),
            ),
            None => (Layer::Memory, not_asked()),
        });
        states.push(match limits.pids {
            Some(_) => {
                (Layer::Pids, LayerState::Enforced("RLIMIT_NPROC in the room's user namespace".into()))
            }
            None => (Layer::Pids, not_asked()),
        });
        states.push(match limits.cpus_milli {
            Some(_) => (Layer::Cpu, LayerState::Missing(format!("no cgroup: {reason}"))),
            None => (Layer::Cpu, not_asked()),
        });
        RoomGroup { work: WorkGroup::default(), meters: Meters::default(), states, locks: Vec::new() }
    }

    pub(crate) fn limits(&self, layer: Layer) -> bool {
        self.states.iter().any(|(known, state)| {
            *known == layer && matches!(state, LayerState::Enforced(by) if by.starts_with("cgroup"))
        })
    }
}

fn not_asked() -> LayerState {
    LayerState::Missing("no limit was asked for".into())
}

fn read(dir: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    let file = openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // With room from the start it is read in one go, not in ever larger pieces.
    let mut text = String::with_capacity(8192);
    io::Read::read_to_string(&mut std::fs::File::from(file), &mut text)?;
    Ok(text)
}

fn write(dir: BorrowedFd<'_>, name: &str, value: &str) -> io::Result<()> {
    workroom_sys::namespace::write_at(dir, name, value)
}

/// Writes a value that this kernel may not offer a file for.
fn write_if_there(dir: BorrowedFd<'_>, name: &str, value: &str) -> io::Result<()> {
    match write(dir, name, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn open_dir(dir: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    Ok(openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn open_file(dir: BorrowedFd<'_>, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes a room's group and locks it as ours. A sweep may hold or remove it between its birth and its lock. One
/// that an ended room of this name left is not used again: it may be frozen, and it has counted.
fn make_locked(parent: BorrowedFd<'_>, room: &str) -> io::Result<OwnedFd> {
    let name = format!("{PREFIX}{room}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Closed to others, who could otherwise lock it.
        match rustix::fs::mkdirat(parent, &name, Mode::from_raw_mode(0o700)) {
            Ok(()) => {
                if let Ok(dir) = open_dir(parent, name.as_str())
                    && lock(parent, &name, &dir)
                {
                    return Ok(dir);
                }
            }
            Err(Errno::EXIST) => remove_group(parent, room, Instant::now()),
            Err(error) => return Err(error.into()),
        }
        if Instant::now() >= deadline {
            return Err(io::Error::other("the group is held by someone else"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Makes a group that only we can open, unless it is there.
fn make_group(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<()> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether nobody had the group, which was opened by this name, and it is still the one of this name.
fn lock(parent: BorrowedFd<'_>, name: &str, dir: &OwnedFd) -> bool {
    flock(dir, FlockOperation::NonBlockingLockExclusive).is_ok()
        && matches!(
            (fstat(dir), statat(parent, name, AtFlags::empty())),
            (Ok(locked), Ok(there)) if locked.st_ino == there.st_ino
        )
}

/// Removes a room's group when its lock can be had, and the kernel has let go of the processes that ended in it.
fn remove_group(parent: BorrowedFd<'_>, room: &str, deadline: Instant) {
    let name = format!("{PREFIX}{room}");
    while let Ok(dir) = open_dir(parent, name.as_str()) {
        if lock(parent, &name, &dir) {
            match unlinkat(parent, name.as_str(), AtFlags::REMOVEDIR) {
                // Whatever is still in there has lost its room. On v1 there is no such file: a group that only
                // has such a name, and is somebody else's, has something in it and stays.
                Err(Errno::BUSY) => drop(write(dir.as_fd(), "cgroup.kill", "1")),
                _ => return,
            }
        }
        if Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

fn sweep(parent: BorrowedFd<'_>) {
    let now = Instant::now();
    for entry in Dir::read_from(parent).into_iter().flatten().flatten() {
        if let Some(room) = entry.file_name().to_str().ok().and_then(|name| name.strip_prefix(PREFIX)) {
            remove_group(parent, room, now);
        }
    }
}

/// Which kind of groups a spawner started now would make, or why none.
pub(crate) fn usable() -> Result<&'static str, String> {
    match Groups::open(false) {
        Groups::V2(_) => Ok("v2"),
        Groups::V1(..) => Ok("v1"),
        Groups::None(why) => Err(why),
    }
}

/// The controllers that a v2 group offers.
pub(crate) fn v2_controllers(group: &std::path::Path) -> Option<String> {
    let dir = crate::mounts::directory(group).ok()?;
    read(dir.as_fd(), "cgroup.controllers").ok().map(|list| list.trim().to_owned())
}

/// Limits of a room that runs, each if it is to be changed; `None` in it is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveLimits {
    pub memory: Option<Option<u64>>,
    pub pids: Option<Option<u64>>,
    pub cpus_milli: Option<Option<u64>>,
}

/// Changes what groups limit a room to, from outside. Answers what holds now of what was changed.
pub(crate) fn change(room: &str, wanted: &LiveLimits) -> Vec<(Layer, LayerState)> {
    let found = hierarchies();
    let mut changed = v1::change(&found, room, wanted);
    for parent in found.unified_ancestors() {
        if let Ok(by_v2) = v2::change(&parent.join(v2::BASE), room, wanted) {
            changed.extend(by_v2);
            break;
        }
    }
    changed
}

/// Removes the groups of rooms whose spawner was killed, as soon as the rooms have let go of them.
pub(crate) fn remove_after(rooms: &[String]) {
    let found = hierarchies();
    let bases = found.unified_ancestors().into_iter().map(|parent| parent.join(v2::BASE));
    let deadline = Instant::now() + PATIENCE;
    for dir in bases.chain(found.controllers.into_iter().map(|(_, dir)| dir)) {
        if let Ok(dir) = open_dir(CWD, dir) {
            rooms.iter().for_each(|room| remove_group(dir.as_fd(), room, deadline));
        }
    }
}
