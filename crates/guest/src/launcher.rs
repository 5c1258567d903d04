//! The launcher: stands behind the room's inner walls and starts commands there.

use crate::launch::{LaunchRules, launch};
use crate::vigil::next_for_launcher;
use crate::{Walls, WorkGroup, clerk};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;
use std::os::fd::AsFd;
use workroom_proto::{Channel, FromLauncher, LaunchError, LaunchStage, Received, ToLauncher};
use workroom_sys::clone::Borrower;
use workroom_sys::namespace::{Namespaces, own_uts_label, unshare_with};
use workroom_sys::seccomp::LauncherKey;

/// What a launcher is made from; the guest keeps it, to make another should one be killed.
pub(crate) struct Launcher {
    pub(crate) walls: Walls,
    pub(crate) work: WorkGroup,
    pub(crate) switches_users: bool,
    pub(crate) resource_limits: Vec<(Resource, u64)>,
}

/// With fewer processors than this the launcher wakes up, once a command runs, on the one that it runs on.
const MANY_PROCESSORS: u32 = 4;

/// Enters the walls, says so, and serves until the guest is gone.
pub(crate) fn run(launcher: Launcher, channel: Channel) -> i32 {
    let Launcher { walls, work, switches_users, resource_limits } = launcher;
    let _ = rustix::thread::set_name(c"launcher");
    // Once, for all commands. The spawner gave every signal its default action.
    workroom_sys::signal::unblock_all();
    let processors = rustix::thread::sched_getaffinity(None).map_or(MANY_PROCESSORS, |set| set.count());
    let rules = match enter(&walls, &work, switches_users, &resource_limits) {
        Ok(()) => LaunchRules {
            birth_group: work.birth,
            key: walls.launcher_key,
            switches_users,
            drop_capabilities: walls.drop_capabilities,
            cgroup_namespace: walls.cgroup_namespace,
        },
        Err((wall, error)) => {
            let errno = error.raw_os_error().unwrap_or(0);
            let _ = channel.send(&FromLauncher::WallFailed { wall: wall.into(), errno }, &[]);
            return 1;
        }
    };
    drop(work.join);
    let mut borrower = Borrower::default();
    if channel.send(&FromLauncher::Ready, &[]).is_err() {
        return 1;
    }
    let mut has_session = false;
    let mut labels = Labels { are_wanted: walls.labels, key: walls.launcher_key, next: None };
    labels.prepare();
    while let Ok(Received::Message(message, fds)) = next_for_launcher(&channel) {
        let (command, spec) = match message {
            ToLauncher::Launch { command, spec } => (command, spec),
            ToLauncher::Clerk => {
                // Its channel is closed here, and so tells of a clerk that could not be started.
                let pid = clerk::start(&rules, fds).unwrap_or(0);
                labels.give();
                if channel.send(&FromLauncher::Clerk { pid }, &[]).is_err() {
                    break;
                }
                labels.prepare();
                continue;
            }
            ToLauncher::Soon => continue,
        };
        // One session for all commands, without a terminal: for the first one, since a room may have none.
        if !std::mem::replace(&mut has_session, true) {
            let _ = rustix::process::setsid();
        }
        let stdio: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let failed = |stage, errno| Err(LaunchError { stage, errno });
        labels.prepare();
        let answer = match (stdio.len(), &labels.next) {
            (3 | 4, Some(Err(errno))) => failed(LaunchStage::Identity, *errno),
            (3 | 4, _) => launch(&mut borrower, &rules, &spec, &stdio),
            _ => failed(LaunchStage::Clone, Errno::BADF.raw_os_error()),
        };
        let label = labels.give();
        let answer = match answer {
            Ok(pid) => FromLauncher::Launched { command, pid, label },
            Err(error) => FromLauncher::NotLaunched { command, error },
        };
        if channel.send(&answer, &[]).is_err() {
            break;
        }
        if processors < MANY_PROCESSORS {
            // What is left to do is for the next command, and not in this one's way.
            rustix::thread::sched_yield();
        }
        labels.prepare();
    }
    0
}

/// UTS namespaces, by which all that a command starts is known: the launcher is in the next command's before that is asked
/// for, and leaves it with it. So making one, and asking for its number, is nothing that a command waits for.
struct Labels {
    are_wanted: bool,
    key: LauncherKey,
    /// The inode of the namespace that nobody was given yet, or why there is none.
    next: Option<Result<u64, i32>>,
}

impl Labels {
    fn prepare(&mut self) {
        if self.are_wanted && !matches!(self.next, Some(Ok(_))) {
            let made = unshare_with(Namespaces::UTS, self.key).and_then(|()| own_uts_label());
            self.next = Some(made.map_err(|error| error.raw_os_error().unwrap_or(0)));
        }
    }

    /// The label of whoever was just started; 0 where there are none.
    fn give(&mut self) -> u64 {
        self.next.take().and_then(Result::ok).unwrap_or(0)
    }
}

/// Enters every inner wall, outermost first, each needing what the next ones take away.
fn enter(
    walls: &Walls,
    work: &WorkGroup,
    switches_users: bool,
    resource_limits: &[(Resource, u64)],
) -> Result<(), (&'static str, io::Error)> {
    let at = |wall: &'static str| move |error: io::Error| (wall, error);
    let os = |wall: &'static str| move |error: Errno| (wall, io::Error::from(error));
    for procs in &work.join {
        rustix::io::write(procs, b"0").map_err(os("cgroup"))?;
    }
    // Before the filter, which pretends to set the limit on core dumps.
    for &(resource, limit) in resource_limits {
        let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
        rustix::process::setrlimit(resource, limit).map_err(os("resource limits"))?;
    }
    if walls.no_new_privs {
        rustix::thread::set_no_new_privs(true).map_err(os("no_new_privs"))?;
    }
    if let Some(restrict) = &walls.landlock {
        restrict().map_err(at("landlock"))?;
    }
    if let Some(filter) = &walls.seccomp {
        workroom_sys::seccomp::install(filter).map_err(at("seccomp"))?;
    }
    if walls.drop_capabilities {
        let mut keep = CapabilitySet::empty();
        if switches_users {
            keep |= CapabilitySet::SETUID | CapabilitySet::SETGID;
        }
        if walls.cgroup_namespace || walls.labels {
            keep |= CapabilitySet::SYS_ADMIN;
        }
        if walls.own_ids {
            keep |= clerk::CAPABILITIES;
        }
        limit_capabilities(keep).map_err(at("capabilities"))?;
    }
    Ok(())
}

/// Empties the bounding, inheritable and ambient sets for good, and keeps only what starting commands and clerks takes.
///
/// What clerks are to have, the launcher has to have, and it weakens nothing: the launcher executes no program, opens
/// no path of the room's, and is not for the room to trace; a command gives up all of it before it enters its working
/// directory or looks for its program.
fn limit_capabilities(keep: CapabilitySet) -> io::Result<()> {
    for bit in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Past the last capability that this kernel knows.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    match rustix::thread::clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}
