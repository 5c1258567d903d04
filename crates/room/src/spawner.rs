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
use workroom_proto::{Channel, FromSpawner, LayerTask, MountTask, Received, ToSpawner};
use workroom_sys::clone::{CloneFlags, clone_process};
use workroom_sys::exec::place_fd;
use workroom_sys::origin::ask_command_line;
use workroom_sys::signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, default_all, next_signal, signal_fd};
use workroom_sys::wait::{Ending, reap};
use workroom_types::{ErrorCode, Layer, Lifetime, RoomError, RoomSpec};

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
    /// Opened for the first room that has a limit, or is durable.
    groups: Option<Groups>,
    /// Whether what killed spawners left was looked for: once, and when the first room is on its way.
    swept: bool,
    privilege: Privilege,
    caller: (u32, u32),
    /// As root.
    ranges: io::Result<UidRanges>,
    /// By pid, which stays theirs until they are reaped here: no descriptor is needed to hold it.
    children: HashMap<i32, Child>,
}

/// What a clone of this process is for.
enum Child {
    Room {
        id: String,
        durable: bool,
    },
    /// Deletes a directory.
    Remover {
        job: u64,
    },
    /// Looks into layers, and says itself what comes of it.
    Worker,
}

fn run(host: Channel) -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    place_fd(null.as_raw_fd(), 0)?;
    place_fd(null.as_raw_fd(), 1)?;
    drop(null);
    let _ = rustix::thread::set_name(c"spawner");
    // Whatever the caller's is: rooms inherit this one.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // All that comes of this process starts with every signal at its default.
    default_all();
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
    let mut spawner =
        Spawner { host, groups: None, swept: false, privilege, caller, ranges, children: HashMap::new() };
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
                self.reap_children()?;
            }
            if ready[0] {
                match self.host.receive()? {
                    Received::Message(ToSpawner::Create(spec), fds) => self.create(template, &spec, fds)?,
                    Received::Message(ToSpawner::Remove { job, path }, _) => {
                        self.remove(template, job, &path)?
                    }
                    Received::Message(ToSpawner::Sweep, _) => self.sweep(template),
                    Received::Message(ToSpawner::Work(task), fds) => self.work(template, *task, fds),
                    Received::Message(ToSpawner::Mounts(task), fds) => self.mounts(template, *task, fds),
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
    /// Also where nothing was built yet: what is left may be an earlier spawner's.
    fn sweep(&mut self, template: &Result<Template, RoomError>) {
        if let Ok(template) = template {
            let _ = self.open_groups(template, true);
        }
        if let Some(groups) = &self.groups {
            groups.sweep();
        }
    }

    fn open_groups(&mut self, template: &Template, durable: bool) -> Result<(), RoomError> {
        if self.groups.is_none() {
            let mut groups = template.on_the_machine(|| Groups::open(durable))?;
            if durable {
                groups.join_guests();
            }
            self.groups = Some(groups);
        }
        Ok(())
    }

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
        let durable = spec.lifetime == Lifetime::Durable;
        if !durable {
            // It ends with its caller, and who kills that one's whole group does not kill those who clean up. Not done twice.
            let _ = rustix::process::setsid();
        }
        match self.clone_room(template, spec, fds) {
            Ok((pid, pidfd)) => {
                let answer = FromSpawner::Cloned { room: spec.id.clone(), pid };
                let sent = self.host.send(&answer, &[pidfd.as_fd()]);
                self.children.insert(pid, Child::Room { id: spec.id.clone(), durable });
                // The room waits for this and says so itself if it goes wrong.
                let _ = template.complete();
                if let Some(groups) = self.groups.as_ref().filter(|_| !self.swept) {
                    groups.sweep_beside_a_room();
                    self.swept = true;
                }
                sent
            }
            Err(error) => self.host.send(&refused(error), &[]),
        }
    }

    /// Clones the room's builder, which does all that it can do itself: clones work side by side, and this process
    /// is one for all rooms. What a builder makes outside its room is removed here when it is reaped.
    fn clone_room(
        &mut self,
        template: &Template,
        spec: &RoomSpec,
        fds: Vec<OwnedFd>,
    ) -> Result<(i32, OwnedFd), RoomError> {
        let mut fds = fds.into_iter();
        let control = fds.next().map(Channel::from_fd).ok_or_else(|| {
            RoomError::new(ErrorCode::RoomSetup, "the request came without a control socket", "")
        })?;
        let listener = fds.next();
        if listener.is_some() != (spec.lifetime == Lifetime::Durable) {
            return Err(RoomError::new(
                ErrorCode::RoomSetup,
                "a durable room, and only such a one, comes with a socket to listen on",
                "",
            ));
        }
        check_lowers(spec)?;
        let host_trees = match self.privilege {
            Privilege::Root => Vec::new(),
            // A clone in a user namespace of its own has no authority over the machine's mounts.
            Privilege::Rootless => template.take(&build::host_paths(spec))?,
        };
        let bind_trees = match self.privilege {
            Privilege::Root => Vec::new(),
            Privilege::Rootless => crate::binds::take(template, &spec.binds)?,
        };
        let limits = effective_limits(spec);
        let limited = limits.memory.is_some() || limits.pids.is_some() || limits.cpus_milli.is_some();
        let durable = spec.lifetime == Lifetime::Durable;
        if limited || durable {
            self.open_groups(template, durable)?;
        }
        let groups = self.groups.as_ref();
        let flags = CloneFlags::NONE
            .and_if(!spec.without.contains(Layer::PidNs), CloneFlags::NEW_PID)
            .and_if(self.privilege == Privilege::Rootless, CloneFlags::NEW_USER);
        let mut builder = Some(Builder {
            spec,
            template,
            privilege: self.privilege,
            ranges: &self.ranges,
            range: None,
            caller: self.caller,
            limits,
            groups,
            group: RoomGroup::default(),
            layer: None,
            lowers: Vec::new(),
            host_trees,
            bind_trees,
            control,
            listener,
        });
        clone_process(flags, groups.and_then(Groups::guests), || builder.take().map_or(1, build::run))
            .map(|cloned| (cloned.pid, cloned.pidfd))
            .during("clone")
    }

    fn remove_groups(&self, room: &str) {
        if let Some(groups) = &self.groups {
            groups.remove(room);
        }
    }

    /// Deletes a directory in a clone of this process: what rooms have written is never walked by anything that
    /// lives on.
    fn remove(&mut self, template: &Result<Template, RoomError>, job: u64, path: &Path) -> io::Result<()> {
        let cloned = clone_process(CloneFlags::NONE, None, || {
            let Ok(template) = template else { return 1 };
            match template.on_the_machine(|| workroom_layers::remove_tree(path)) {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => error.raw_os_error().unwrap_or(libc::EIO),
                Err(_) => libc::EIO,
            }
        });
        match cloned {
            Ok(cloned) => {
                self.children.insert(cloned.pid, Child::Remover { job });
                Ok(())
            }
            Err(error) => self.host.send(&FromSpawner::Removed { job, error: Some(error.to_string()) }, &[]),
        }
    }

    /// Looks into layers in a clone of this process. One that cannot be made hangs up.
    fn work(&mut self, template: &Result<Template, RoomError>, task: LayerTask, fds: Vec<OwnedFd>) {
        let Ok(template) = template else { return };
        let _ = template.complete();
        let privilege = self.privilege;
        let mut given = Some((task, fds));
        let cloned = clone_process(CloneFlags::NONE, None, || {
            given.take().map_or(1, |(task, fds)| crate::work::run(template, privilege, task, fds))
        });
        if let Ok(cloned) = cloned {
            self.children.insert(cloned.pid, Child::Worker);
        }
    }

    /// Sees to directories of the host in a clone of this process: it goes into rooms.
    fn mounts(&mut self, template: &Result<Template, RoomError>, task: MountTask, fds: Vec<OwnedFd>) {
        let Ok(template) = template else { return };
        let privilege = self.privilege;
        let mut given = Some((task, fds));
        let cloned = clone_process(CloneFlags::NONE, None, || {
            given.take().map_or(1, |(task, fds)| crate::live_mounts::run(template, privilege, task, fds))
        });
        if let Ok(cloned) = cloned {
            self.children.insert(cloned.pid, Child::Worker);
        }
    }

    fn reap_children(&mut self) -> io::Result<()> {
        while let Some(reaped) = reap()? {
            let said = match self.children.remove(&reaped.pid) {
                Some(Child::Room { id, .. }) => {
                    self.remove_groups(&id);
                    FromSpawner::Gone { room: id }
                }
                Some(Child::Remover { job }) => {
                    let error = match reaped.ending {
                        Ending::Exited(0) => None,
                        Ending::Exited(errno) => Some(io::Error::from_raw_os_error(errno).to_string()),
                        Ending::Killed(signal) => Some(format!("the remover was killed by signal {signal}")),
                    };
                    FromSpawner::Removed { job, error }
                }
                Some(Child::Worker) | None => continue,
            };
            // A host that is gone is seen, and acted on, when its socket is read.
            let _ = self.host.send(&said, &[]);
        }
        Ok(())
    }

    /// The host is gone: so are its rooms, before this process is. Durable ones go on.
    fn end_all(&mut self) {
        self.children.retain(|_, child| !matches!(child, Child::Room { durable: true, .. }));
        for pid in self.children.keys().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        while !self.children.is_empty() {
            let ended = rustix::process::wait(WaitOptions::empty());
            match ended {
                Ok(Some((pid, _))) => {
                    if let Some(Child::Room { id, .. }) = self.children.remove(&pid.as_raw_nonzero().get()) {
                        self.remove_groups(&id);
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

/// The most layers that a room may have between the template and its own.
const MOST_LOWERS: usize = 64;

fn check_lowers(spec: &RoomSpec) -> Result<(), RoomError> {
    if spec.layer.is_none() && !spec.lowers.is_empty() {
        return Err(RoomError::invalid(
            "a room in memory has no layers below it",
            "give it a layer of its own",
        ));
    }
    if spec.lowers.len() > MOST_LOWERS {
        return Err(RoomError::invalid(
            format!("{} layers are too many for one room; {MOST_LOWERS} are the most", spec.lowers.len()),
            "make fewer of them by squashing some",
        ));
    }
    Ok(())
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
