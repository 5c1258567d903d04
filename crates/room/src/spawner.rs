//! The spawner: a small single-threaded process that builds rooms by cloning itself.
//!
//! Rooms are copies of its memory, so nothing of its caller may be in there. For a caller with threads it is this
//! program executed anew with a clean command line and an empty environment; for one that has done nothing yet
//! it is a clone that overwrites both. It ends when its socket does, and its rooms with it.

use crate::build::{self, Builder};
use crate::cgroup::{Groups, RoomGroup};
use crate::identity::{Privilege, UidRanges};
use crate::step::During;
use crate::template::Template;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use workroom_proto::{Channel, FromSpawner, Received, ToSpawner};
use workroom_sys::clone::{CloneFlags, clone_process};
use workroom_sys::exec::place_fd;
use workroom_sys::origin::ask_command_line;
use workroom_sys::signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, next_signal, signal_fd};
use workroom_sys::wait::reap;
use workroom_types::{ErrorCode, Layer, RoomError, RoomSpec};

/// The name this program is started under to be a spawner.
pub(crate) const ARGV0: &str = "workroom-spawner";

/// Becomes the spawner if this process was started as one. Call it first thing in `main`.
pub fn run_if_spawner() {
    if ask_command_line(|name, _| name == ARGV0.as_bytes()).unwrap_or(false) {
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(io::Error::from);
        std::process::exit(status(socket.and_then(|socket| run(Channel::from_fd(socket)))));
    }
}

/// Becomes the spawner in a clone of its caller, which has one thread and has not looked at its arguments yet.
pub(crate) fn run_in_clone(host: Channel) -> i32 {
    let prepared = workroom_sys::exec::close_all_but(&mut [0, 1, 2, host.as_fd().as_raw_fd()])
        .and_then(|()| workroom_sys::origin::forget_origin(ARGV0));
    status(prepared.and_then(|()| run(host)))
}

fn status(ended: io::Result<()>) -> i32 {
    match ended {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("workroom: the spawner ended: {error}");
            1
        }
    }
}

struct Spawner {
    host: Channel,
    /// Opened for the first room that has a limit.
    groups: Option<Groups>,
    privilege: Privilege,
    caller: (u32, u32),
    /// As root.
    ranges: io::Result<UidRanges>,
    /// Names by pid. A pid stays a room's until it is reaped here, so no descriptor is needed to hold it.
    rooms: HashMap<i32, String>,
}

fn run(host: Channel) -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    place_fd(null.as_raw_fd(), 0)?;
    place_fd(null.as_raw_fd(), 1)?;
    drop(null);
    let _ = rustix::thread::set_name(c"spawner");
    // Whatever the caller's is: rooms inherit this one.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // Signals of the caller's terminal are the caller's to act on.
    let signals = signal_fd(&[SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
    let privilege = Privilege::detect();
    let caller = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // Where the machine lets us, the kernel looks for its victims elsewhere.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-900");
    let ranges = match privilege {
        Privilege::Root => UidRanges::open(),
        Privilege::Rootless => Err(io::ErrorKind::Unsupported.into()),
    };
    let template = Template::prepare(privilege);
    if let Ok(template) = &template
        && !is_readable(&host)
    {
        let _ = template.complete();
    }
    let mut spawner = Spawner { host, groups: None, privilege, caller, ranges, rooms: HashMap::new() };
    let served = spawner.serve(&signals, &template);
    // Whatever ended the serving, no room outlives it.
    spawner.end_all();
    served
}

impl Spawner {
    fn serve(&mut self, signals: &OwnedFd, template: &Result<Template, RoomError>) -> io::Result<()> {
        loop {
            let ready = {
                let mut fds = [PollFd::new(&self.host, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
                match poll(&mut fds, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                fds.map(|fd| !fd.revents().is_empty())
            };
            if ready[1] {
                while next_signal(signals.as_fd()).is_some() {}
                self.reap_rooms()?;
            }
            if ready[0] {
                match self.host.receive()? {
                    Received::Message(ToSpawner::Create(spec), fds) => self.create(template, &spec, fds)?,
                    Received::Closed => return Ok(()),
                }
            }
        }
    }
}

fn is_readable(channel: &Channel) -> bool {
    let mut fds = [PollFd::new(channel, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

impl Spawner {
    fn create(
        &mut self,
        template: &Result<Template, RoomError>,
        spec: &RoomSpec,
        fds: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let refused = |error| FromSpawner::Refused { room: spec.id.clone(), error };
        if let Err(error) = check_id(&spec.id) {
            return self.host.send(&refused(error), &[]);
        }
        let template = match template {
            Ok(template) => template,
            Err(error) => return self.host.send(&refused(error.clone()), &[]),
        };
        match self.clone_room(template, spec, fds) {
            Ok((pid, pidfd)) => {
                let answer = FromSpawner::Cloned { room: spec.id.clone(), pid };
                let sent = self.host.send(&answer, &[pidfd.as_fd()]);
                self.rooms.insert(pid, spec.id.clone());
                // The room waits for this and says so itself if it goes wrong.
                let _ = template.complete();
                sent
            }
            Err(error) => self.host.send(&refused(error), &[]),
        }
    }

    /// The steps outside the room's namespaces, each undone if a later one fails: range, groups, clone.
    fn clone_room(
        &mut self,
        template: &Template,
        spec: &RoomSpec,
        fds: Vec<OwnedFd>,
    ) -> Result<(i32, OwnedFd), RoomError> {
        let control = fds.into_iter().next().map(Channel::from_fd).ok_or_else(|| {
            RoomError::new(ErrorCode::RoomSetup, "the request came without a control socket", "")
        })?;
        let wanted: Vec<(&Path, bool)> = spec
            .workspace
            .iter()
            .map(|workspace| (workspace.source.as_path(), workspace.read_only))
            .chain(spec.mounts.iter().map(|mount| (mount.source.as_path(), true)))
            .collect();
        let host_trees = template.take(&wanted)?;
        let as_root = self.privilege == Privilege::Root;
        let own_ids = !spec.without.contains(Layer::UserNs) && !spec.without.contains(Layer::UidRange);
        let range = if as_root && own_ids {
            let ranges =
                self.ranges.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()));
            Some(ranges.and_then(UidRanges::claim).during("uid range")?)
        } else {
            None
        };
        let owner = range.as_ref().map_or(self.caller.0, |range| range.base);
        let limits = effective_limits(spec);
        let limited = limits.memory.is_some() || limits.pids.is_some() || limits.cpus_milli.is_some();
        if limited && self.groups.is_none() {
            self.groups = Some(template.on_the_machine(Groups::open)?);
        }
        let groups = self.groups.as_ref();
        let group = match groups {
            Some(groups) => groups.create(&spec.id, &limits, owner)?,
            None => RoomGroup::unlimited(&limits, "no limit was asked for"),
        };
        let flags = CloneFlags::NONE
            .and_if(!spec.without.contains(Layer::PidNs), CloneFlags::NEW_PID)
            .and_if(!as_root, CloneFlags::NEW_USER);
        let mut builder = Some(Builder {
            spec,
            template,
            privilege: self.privilege,
            range: range.as_ref(),
            caller: self.caller,
            group,
            host_trees,
            control,
        });
        let cloned =
            clone_process(flags, groups.and_then(Groups::guests), || builder.take().map_or(1, build::run));
        match cloned {
            Ok(cloned) => Ok((cloned.pid, cloned.pidfd)),
            Err(error) => {
                self.remove_groups(&spec.id);
                Err(error).during("clone")
            }
        }
    }

    fn remove_groups(&self, room: &str) {
        if let Some(groups) = &self.groups {
            groups.remove(room);
        }
    }

    fn reap_rooms(&mut self) -> io::Result<()> {
        while let Some(reaped) = reap()? {
            if let Some(room) = self.rooms.remove(&reaped.pid) {
                self.remove_groups(&room);
                // A host that is gone is seen, and acted on, when its socket is read.
                let _ = self.host.send(&FromSpawner::Gone { room }, &[]);
            }
        }
        Ok(())
    }

    /// The host is gone: so are its rooms, before this process is.
    fn end_all(&mut self) {
        for pid in self.rooms.keys().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        while !self.rooms.is_empty() {
            let ended = rustix::process::wait(WaitOptions::empty());
            match ended {
                Ok(Some((pid, _))) => {
                    if let Some(room) = self.rooms.remove(&pid.as_raw_nonzero().get()) {
                        self.remove_groups(&room);
                    }
                }
                Err(Errno::INTR) => {}
                _ => break,
            }
        }
    }
}

/// An id becomes part of a cgroup's name.
fn check_id(id: &str) -> Result<(), RoomError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=64).contains(&id.len()) && id.bytes().all(plain) {
        return Ok(());
    }
    Err(RoomError::invalid(format!("\"{id}\" is not a room's id"), "ids are 1 to 64 of a-z, 0-9 and -"))
}

/// Limits less those that are left out on purpose.
fn effective_limits(spec: &RoomSpec) -> workroom_types::Limits {
    let mut limits = spec.limits;
    let has = |layer| !spec.without.contains(layer);
    limits.memory = limits.memory.filter(|_| has(Layer::Memory));
    limits.pids = limits.pids.filter(|_| has(Layer::Pids));
    limits.cpus_milli = limits.cpus_milli.filter(|_| has(Layer::Cpu));
    limits
}
