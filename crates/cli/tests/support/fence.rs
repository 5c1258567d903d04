//! A fence: cgroups of the test's own, around a caller and all that comes of it.
//!
//! Rooms make their groups next to their caller, so what a run leaves is found inside its fence and cannot
//! be taken for another test's. The fence also caps what a fork bomb can do to the machine.

use super::{Caller, unique};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) struct Fence {
    /// One group in each hierarchy that matters.
    groups: Vec<PathBuf>,
    /// The `cgroup.procs` to join.
    doors: Vec<PathBuf>,
}

impl Fence {
    /// Groups can be made by root only; where they cannot, there is nothing to leave behind in them either.
    pub(crate) fn around(caller: &Caller) -> Option<Fence> {
        if !caller.is_root() {
            return None;
        }
        let fence = Fence::unified().or_else(Fence::by_controller);
        if fence.is_none() {
            println!("no cgroups can be made here: what rooms leave in them is not looked at");
        }
        fence
    }

    /// cgroup v2: the caller is in a leaf, so that groups next to it can have controllers.
    fn unified() -> Option<Fence> {
        let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().map(Path::new).find(|root| {
            let offered = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            offered.contains("memory") && offered.contains("pids")
        })?;
        fs::write(root.join("cgroup.subtree_control"), "+memory +pids").ok()?;
        let group = root.join(format!("fence-{}", unique()));
        let leaf = group.join("caller");
        let made = fs::create_dir(&group)
            .and_then(|()| fs::write(group.join("cgroup.subtree_control"), "+memory +pids"))
            .and_then(|()| fs::create_dir(&leaf));
        let fence = Fence { groups: vec![group], doors: vec![leaf.join("cgroup.procs")] };
        made.is_ok().then_some(fence)
    }

    /// cgroup v1: one group for each controller that rooms use.
    fn by_controller() -> Option<Fence> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mut fence = Fence { groups: Vec::new(), doors: Vec::new() };
        for controller in ["memory", "pids", "cpu"] {
            let own = own.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                fields.next()?.split(',').any(|name| name == controller).then_some(())?;
                fields.next()
            })?;
            let parent = Path::new("/sys/fs/cgroup").join(controller).join(own.trim_start_matches('/'));
            let group = parent.join(format!("fence-{}", unique()));
            fs::create_dir(&group).ok()?;
            fence.doors.push(group.join("cgroup.procs"));
            fence.groups.push(group);
        }
        Some(fence)
    }

    pub(crate) fn cap_processes(&self, most: u32) {
        let capped =
            self.groups.iter().any(|group| fs::write(group.join("pids.max"), most.to_string()).is_ok());
        assert!(capped, "no cap on processes could be set");
    }

    /// Every group in here, its own included.
    fn all(&self) -> Vec<PathBuf> {
        let mut found = self.groups.clone();
        let mut next = 0;
        while next < found.len() {
            let inner = fs::read_dir(&found[next]).into_iter().flatten().flatten();
            found.extend(inner.filter(|entry| entry.path().is_dir()).map(|entry| entry.path()));
            next += 1;
        }
        found
    }

    /// Groups that rooms made and that are still there: all but the fence's own, and, on v2, the two that stay.
    pub(crate) fn rooms(&self) -> Vec<PathBuf> {
        let stays = |path: &PathBuf| {
            self.groups.iter().any(|fence| {
                path == fence
                    || ["caller", "workroom", "workroom/guests"].iter().any(|at| *path == fence.join(at))
            })
        };
        self.all().into_iter().filter(|path| !stays(path)).collect()
    }

    pub(crate) fn processes(&self) -> Vec<i32> {
        let lists =
            self.all().into_iter().filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok());
        let mut pids: Vec<i32> = lists
            .flat_map(|list| list.lines().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.groups.iter().any(|group| group.exists()) {
            for pid in self.processes().into_iter().filter_map(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            for group in self.all().iter().rev() {
                let _ = fs::remove_dir(group);
            }
            if Instant::now() > deadline {
                assert!(std::thread::panicking(), "the fence {:?} cannot be removed", self.groups);
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Enters the groups named before `--` and becomes what comes after.
const ENTER: &str = r#"
while [ "$1" != -- ]; do echo $$ > "$1" || exit 99; shift; done
shift"#;

/// `workroom run` inside the fence.
pub(crate) fn fenced(caller: &Caller, fence: Option<&Fence>, options: &[&str], command: &[&str]) -> Command {
    enter(caller, fence, "exec \"$@\"", options, command)
}

/// The same, which says `ready` on stderr when all that comes before is done, and starts when it is sent a
/// line: what happens from there on is `workroom`'s own.
pub(crate) fn gated(caller: &Caller, fence: Option<&Fence>, options: &[&str], command: &[&str]) -> Command {
    let mut gate = enter(caller, fence, "echo ready >&2; read go; exec \"$@\"", options, command);
    gate.stdin(std::process::Stdio::piped());
    gate
}

fn enter(caller: &Caller, fence: Option<&Fence>, then: &str, options: &[&str], command: &[&str]) -> Command {
    let mut shell = caller.command("/bin/sh");
    // The group of its own that a terminal's shell would give it.
    shell.process_group(0);
    shell.arg("-c").arg(format!("{ENTER}\n{then}")).arg("fence");
    shell.args(fence.map(|fence| fence.doors.as_slice()).unwrap_or_default());
    shell.arg("--").arg(caller.program()).arg("run").args(options).arg("--").args(command);
    shell
}
