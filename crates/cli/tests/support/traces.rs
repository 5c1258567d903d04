//! What a run leaves on the machine: processes, groups, mounts and namespaces, told apart from other tests'.

use super::fence::Fence;
use super::{Caller, settle, unique};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

/// A process as `/proc` tells of it.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) state: char,
    pub(crate) argv0: String,
    uid: u32,
}

/// Everything that runs; what has ended and is not reaped does not.
pub(crate) fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("read /proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(process).filter(|process| !matches!(process.state, 'Z' | 'X')).collect()
}

pub(crate) fn process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        state: fields.first()?.chars().next()?,
        argv0: String::from_utf8_lossy(cmdline.split(|&byte| byte == 0).next()?).into_owned(),
        uid: uid.split_whitespace().next()?.parse().ok()?,
    })
}

fn children(parent: i32) -> Vec<Process> {
    match fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")) {
        Ok(list) => list.split_whitespace().filter_map(|pid| process(pid.parse().ok()?)).collect(),
        // Not every kernel keeps that list.
        Err(_) => processes().into_iter().filter(|process| process.parent == parent).collect(),
    }
}

/// The spawner that this caller started, if it has come to life.
pub(crate) fn spawner_of(caller: i32) -> Option<i32> {
    let named = |process: &Process| process.argv0 == "workroom-spawner" && process.state != 'Z';
    children(caller).into_iter().find(named).map(|process| process.pid)
}

/// PID 1 of the room that this caller started, if there is one yet.
pub(crate) fn guest_of(caller: i32) -> Option<i32> {
    children(spawner_of(caller)?).first().map(|process| process.pid)
}

/// A run that can be told from all others by what it leaves.
///
/// The caller has a process group of its own; commands have the marker in their environment; an ordinary user's room is that
/// user's, who does nothing else; and where there is a fence, all are in it.
pub(crate) struct Traces<'a> {
    pub(crate) marker: String,
    /// Of every run that was started.
    groups: Vec<i32>,
    uid: Option<u32>,
    fence: Option<&'a Fence>,
}

impl<'a> Traces<'a> {
    pub(crate) fn new(caller: &Caller, fence: Option<&'a Fence>) -> Traces<'a> {
        Traces { marker: format!("WORKROOM_MARK={}", unique()), groups: Vec::new(), uid: caller.ids, fence }
    }

    /// Starts a run that was given `--env` with the marker.
    pub(crate) fn start(&mut self, command: &mut Command) -> Child {
        let child = command.process_group(0).spawn().expect("start");
        self.groups.push(child.id() as i32);
        child
    }

    fn has(&self, process: &Process) -> bool {
        let marked = |file: &str| {
            let path = format!("/proc/{}/{file}", process.pid);
            fs::read(path)
                .is_ok_and(|text| text.windows(self.marker.len()).any(|part| part == self.marker.as_bytes()))
        };
        self.groups.contains(&process.group)
            || Some(process.uid) == self.uid
            || self.fence.is_some_and(|fence| fence.processes().contains(&process.pid))
            || marked("environ")
            || marked("cmdline")
    }

    pub(crate) fn processes(&self) -> Vec<Process> {
        processes().into_iter().filter(|process| self.has(process)).collect()
    }

    /// Nothing of the run is there any more, or what is.
    pub(crate) fn gone(&self) -> Result<(), String> {
        self.processes_gone()?;
        self.groups_gone()
    }

    pub(crate) fn groups_gone(&self) -> Result<(), String> {
        match self.fence.map(Fence::rooms).unwrap_or_default() {
            groups if groups.is_empty() => Ok(()),
            groups => Err(format!("groups are left: {groups:?}")),
        }
    }

    pub(crate) fn processes_gone(&self) -> Result<(), String> {
        let left = self.processes();
        if !left.is_empty() {
            return Err(format!("processes are left: {left:?}"));
        }
        match self.fence.map(Fence::processes).unwrap_or_default() {
            pids if pids.iter().all(|&pid| process(pid).is_none_or(|p| p.state == 'Z')) => Ok(()),
            pids => Err(format!("processes are left in the fence: {pids:?}")),
        }
    }

    /// Waits the two seconds that a room may take to be gone.
    #[track_caller]
    pub(crate) fn are_gone(&self) {
        settle(Duration::from_secs(2), || self.gone());
    }
}

/// The machine's mounts and mount namespaces, to be compared.
pub(crate) struct Machine {
    mounts: String,
    namespaces: BTreeSet<String>,
}

impl Machine {
    pub(crate) fn now() -> Machine {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        Machine { mounts, namespaces: unexplained_namespaces() }
    }

    /// Waits until nothing is there that was not before. Rooms of other tests come and go meanwhile, and a
    /// room that is on its way out may for a moment be seen without its guest.
    #[track_caller]
    pub(crate) fn is_as_before(&self) {
        settle(Duration::from_secs(5), || {
            let now = Machine::now();
            if now.mounts != self.mounts {
                return Err(format!("the machine's mounts changed:\n{}\n{}", self.mounts, now.mounts));
            }
            match now.namespaces.difference(&self.namespaces).collect::<Vec<_>>() {
                more if more.is_empty() => Ok(()),
                more => Err(format!("mount namespaces are left: {more:?}")),
            }
        });
    }
}

/// Mount namespaces that live processes are in and that are not those of a room that has its guest.
fn unexplained_namespaces() -> BTreeSet<String> {
    let mut explained = BTreeSet::new();
    let mut all = BTreeSet::new();
    for process in processes() {
        let Ok(namespace) = fs::read_link(format!("/proc/{}/ns/mnt", process.pid)) else { continue };
        let namespace = namespace.to_string_lossy().into_owned();
        if process.argv0 == "workroom-spawner" {
            explained.insert(namespace.clone());
        }
        all.insert(namespace);
    }
    all.difference(&explained).cloned().collect()
}
