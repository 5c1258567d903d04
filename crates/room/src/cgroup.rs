//! Limits by cgroups: where this machine lets us make groups, and the groups of each room.
//!
//! ```text
//!  v2   PARENT/workroom-PID-HEX/          the spawner's; locked while it lives
//!                  ├── guests/            guests and launchers: not limited, no victim of a room's limit
//!                  └── ROOM/              the room's commands, born here by CLONE_INTO_CGROUP
//!
//!  v1   HIERARCHY/OWN/workroom-ROOM/      one per controller; locked while the guest lives;
//!                                         the launcher joins once, commands inherit
//! ```
//!
//! A group whose lock can be had belongs to nobody any more and is swept by the next spawner.

mod hierarchy;
mod v1;
mod v2;

use crate::step::During;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use workroom_guest::{Meters, WorkGroup};
use workroom_types::{Layer, LayerState, Limits, RoomError};

pub(crate) use hierarchy::{Hierarchies, hierarchies};

/// What a new group's name starts with.
const PREFIX: &str = "workroom-";

/// How long the kernel or another spawner may take to let go of a group, and how often we look: nothing
/// announces either on every kernel we run on.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(200);

/// The groups that a spawner may make.
pub(crate) enum Groups {
    V2(v2::Base),
    V1(v1::Controllers),
    /// None, and why.
    None(String),
}

/// A room's own groups, before its guest takes over their descriptors.
pub(crate) struct RoomGroup {
    pub(crate) work: WorkGroup,
    pub(crate) meters: Meters,
    pub(crate) states: Vec<(Layer, LayerState)>,
    /// v1: keeps the sweep of others away while the room lives.
    pub(crate) locks: Vec<OwnedFd>,
}

impl Groups {
    /// Finds the best that this machine offers: v2 with controllers, else v1, else nothing.
    pub(crate) fn open() -> Groups {
        let found = hierarchies();
        let unified = match v2::Base::open(&found) {
            Ok(base) => return Groups::V2(base),
            Err(reason) => reason,
        };
        match v1::Controllers::open(&found) {
            Ok(controllers) => Groups::V1(controllers),
            Err(reason) => Groups::None(format!("{unified}; {reason}")),
        }
    }

    /// Where a room's guest is born, if it matters.
    pub(crate) fn guests(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Groups::V2(base) => Some(base.guests.as_fd()),
            _ => None,
        }
    }

    /// Makes the groups of a room whose launcher has the uid `owner`.
    pub(crate) fn create(&self, room: &str, limits: &Limits, owner: u32) -> Result<RoomGroup, RoomError> {
        let made = match self {
            Groups::V2(base) => base.create(room, limits, owner),
            Groups::V1(controllers) => controllers.create(room, limits),
            Groups::None(reason) => return Ok(RoomGroup::unlimited(limits, reason)),
        };
        if made.is_err() {
            self.remove(room);
        }
        made.during("cgroup")
    }

    /// Removes what [`Groups::create`] made, whether or not it made all of it.
    pub(crate) fn remove(&self, room: &str) {
        match self {
            Groups::V2(base) => base.remove(room),
            Groups::V1(controllers) => controllers.remove(room),
            Groups::None(_) => {}
        }
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
    let mut text = String::new();
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

fn open_dir(dir: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    Ok(openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn open_file(dir: BorrowedFd<'_>, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes a group and locks it as ours. A sweep may hold or remove it between its birth and its lock.
fn make_locked(parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Closed to others, who could otherwise lock it.
        match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        if let Ok(dir) = open_dir(parent, name)
            && flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok()
            && let (Ok(locked), Ok(there)) = (fstat(&dir), statat(parent, name, AtFlags::empty()))
            && locked.st_ino == there.st_ino
        {
            return Ok(dir);
        }
        if Instant::now() >= deadline {
            return Err(io::Error::other("the group is held by someone else"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Removes a group, waiting a moment for the kernel to let go of the processes that ended in it.
fn remove_group(parent: BorrowedFd<'_>, name: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            _ => return,
        }
    }
}

/// Removes groups of spawners that were killed.
fn sweep(parent: BorrowedFd<'_>) {
    for name in subgroups(parent).into_iter().filter(|name| name.starts_with(PREFIX)) {
        let Ok(dir) = open_dir(parent, &name) else { continue };
        if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let inner = subgroups(dir.as_fd());
        if inner.iter().any(|name| name == v2::GUESTS) && v2::is_base(&name) {
            // Whatever is still in there has lost its spawner.
            let _ = write(dir.as_fd(), "cgroup.kill", "1");
            inner.iter().for_each(|name| remove_group(dir.as_fd(), name));
        }
        // A group of somebody else's that happens to have such a name has something in it, and stays.
        let _ = unlinkat(parent, &name, AtFlags::REMOVEDIR);
    }
}

fn subgroups(parent: BorrowedFd<'_>) -> Vec<String> {
    let Ok(entries) = Dir::read_from(parent) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_dir())
        .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
        .filter(|name| name != "." && name != "..")
        .collect()
}

/// Which kind of groups a spawner started now would make, or why none.
pub(crate) fn usable() -> Result<&'static str, String> {
    match Groups::open() {
        Groups::V2(_) => Ok("v2"),
        Groups::V1(_) => Ok("v1"),
        Groups::None(why) => Err(why),
    }
}

/// The controllers that a v2 group offers.
pub(crate) fn v2_controllers(group: &std::path::Path) -> Option<String> {
    let dir = crate::mounts::directory(group).ok()?;
    read(dir.as_fd(), "cgroup.controllers").ok().map(|list| list.trim().to_owned())
}

/// Removes what a spawner that was killed left, as soon as its rooms have let go of it.
pub(crate) fn sweep_after(spawner: u32, rooms: &[String]) {
    let found = hierarchies();
    let base = format!("{PREFIX}{spawner}-");
    let ours = |name: &String| {
        name.starts_with(&base)
            || name.strip_prefix(PREFIX).is_some_and(|room| rooms.iter().any(|known| known == room))
    };
    let deadline = Instant::now() + PATIENCE;
    for dir in found.unified_ancestors().iter().chain(found.controllers.iter().map(|(_, dir)| dir)) {
        let Ok(dir) = crate::mounts::directory(dir).and_then(|path| open_dir(path.as_fd(), ".")) else {
            continue;
        };
        while subgroups(dir.as_fd()).iter().any(ours) && Instant::now() < deadline {
            sweep(dir.as_fd());
            std::thread::sleep(PAUSE);
        }
    }
}
