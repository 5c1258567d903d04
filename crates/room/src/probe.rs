//! What this machine offers to rooms, found by looking and by trying.

mod disk;

use crate::cgroup::{self, hierarchies};
use crate::identity::Privilege;
use rustix::process::{Pid, WaitOptions};
use serde::Serialize;
use std::path::Path;
use std::{fs, io};
use workroom_sys::clone::{CloneFlags, clone_process};
use workroom_sys::mount::clone_tree;
use workroom_sys::namespace::{Namespaces, unshare};

/// One fact about the machine.
#[derive(Debug, Clone, Serialize)]
pub struct Fact {
    pub name: &'static str,
    pub value: String,
    pub good: bool,
    /// What to do to make it good; empty where nothing needs doing.
    pub advice: &'static str,
}

/// Looks at everything, and tries whether namespaces and groups can be made by making some. `state`: where a server has
/// its state, or will have it. For a process of one thread.
pub fn facts(state: &Path) -> Vec<Fact> {
    let mut facts =
        vec![kernel(), privilege(), user_namespaces(), overlay(), idmapped_mounts(), landlock(), seccomp()];
    facts.extend(cgroups());
    facts.extend([tun(), reflink(), disk::quota(state), kvm(), runsc()]);
    facts
}

fn fact(name: &'static str, value: impl Into<String>, good: bool, advice: &'static str) -> Fact {
    Fact { name, value: value.into(), good, advice: if good { "" } else { advice } }
}

fn kernel() -> Fact {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    fact("kernel", release, version >= (6, 3), "Linux 6.3 or newer has all that rooms use")
}

fn privilege() -> Fact {
    match Privilege::detect() {
        Privilege::Root => fact("privilege", "root: rooms get uid ranges of their own", true, ""),
        Privilege::Rootless if is_root() => {
            fact("privilege", "root without the rights of one: rooms have your uid on the host", true, "")
        }
        Privilege::Rootless => fact("privilege", "ordinary user: rooms have your uid on the host", true, ""),
    }
}

fn user_namespaces() -> Fact {
    let advice = "allow them: sysctl user.max_user_namespaces=10000, kernel.unprivileged_userns_clone=1 (Debian), \
                  kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)";
    let number = |path: &str| fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if number("/proc/sys/user/max_user_namespaces").unwrap_or(0) == 0 {
        return fact("user namespaces", "none: user.max_user_namespaces is 0", false, advice);
    }
    let closed = number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0)
        || number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1);
    if closed && Privilege::detect() == Privilege::Rootless {
        return fact("user namespaces", "closed to ordinary users", false, advice);
    }
    let advice = "something around this process refuses them, such as a container's seccomp or AppArmor profile: allow \
                  clone, clone3, unshare and mount there (docker: --security-opt seccomp=unconfined, apparmor=unconfined)";
    match try_namespace() {
        Ok(()) => fact("user namespaces", "yes", true, ""),
        Err((what, error)) => fact("user namespaces", format!("refused: {what}: {error}"), false, advice),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A user namespace, and in it the right to have mounts of one's own: sysctls do not tell of filters and profiles.
fn try_namespace() -> Result<(), (&'static str, io::Error)> {
    // Above all error numbers.
    const MOUNT: i32 = 128;
    let number = |error: io::Error| error.raw_os_error().unwrap_or(1);
    let child = || match unshare(Namespaces::MOUNT).map(|()| clone_tree("/")) {
        Ok(Ok(_)) => 0,
        Ok(Err(error)) => MOUNT | number(error),
        Err(error) => number(error),
    };
    let made = clone_process(CloneFlags::NEW_USER, None, child).map_err(|error| ("clone3", error))?;
    let ended = rustix::process::waitpid(Pid::from_raw(made.pid), WaitOptions::empty())
        .map_err(|error| ("waitpid", error.into()))?;
    match ended.map(|(_, status)| status.exit_status()) {
        Some(Some(0)) => Ok(()),
        Some(Some(error)) if error < MOUNT => Err(("unshare in one", io::Error::from_raw_os_error(error))),
        Some(Some(error)) => Err(("open_tree in one", io::Error::from_raw_os_error(error - MOUNT))),
        _ => Err(("unshare in one", io::Error::other("it was killed for that"))),
    }
}

fn overlay() -> Fact {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let there = known.lines().any(|line| line.split_whitespace().last() == Some("overlay"));
    fact("overlay", if there { "yes" } else { "no" }, there, "load the module: modprobe overlay")
}

fn idmapped_mounts() -> Fact {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match Privilege::detect() {
        Privilege::Root if version >= (6, 3) => fact("idmapped mounts", "yes", true, ""),
        Privilege::Root => fact("idmapped mounts", "not on tmpfs", false, "Linux 6.3 or newer"),
        Privilege::Rootless => fact("idmapped mounts", "not needed without root", true, ""),
    }
}

fn landlock() -> Fact {
    let version = crate::landlock::version();
    let advice = "Linux 6.12 with lsm=landlock has all of it; without, pass --allow-missing landlock";
    fact("landlock", if version == 0 { "no".into() } else { format!("ABI {version}") }, version >= 6, advice)
}

fn seccomp() -> Fact {
    const SECCOMP_RET_KILL_PROCESS: u32 = 0x8000_0000;
    let there = workroom_sys::seccomp::action_available(SECCOMP_RET_KILL_PROCESS);
    fact("seccomp", if there { "filters" } else { "no" }, there, "a kernel with CONFIG_SECCOMP_FILTER")
}

fn cgroups() -> Vec<Fact> {
    let found = hierarchies();
    let writable = |dir: &Path| rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok();
    let v2 = match found.unified_ancestors().first() {
        Some(own) => {
            let controllers = cgroup::v2_controllers(own).unwrap_or_default();
            let writable = found.unified_ancestors().iter().any(|dir| writable(dir));
            let controllers = if controllers.is_empty() { "no controllers".to_owned() } else { controllers };
            format!("{controllers}; {}", if writable { "writable" } else { "not writable" })
        }
        None => "not mounted".to_owned(),
    };
    let v1 = if found.controllers.is_empty() {
        "not mounted".to_owned()
    } else {
        let names = found
            .controllers
            .iter()
            .map(|(name, dir)| format!("{name} {}", if writable(dir) { "writable" } else { "not writable" }));
        names.collect::<Vec<_>>().join(", ")
    };
    let usable = cgroup::usable();
    let advice = match is_root() {
        true => {
            "limits fall back to rlimits: let root write to /sys/fs/cgroup, which in a container takes a cgroup namespace \
             of its own, mounted writable"
        }
        false => {
            "limits fall back to rlimits: run as root, or under `systemd-run --user -p Delegate=yes` on cgroup v2"
        }
    };
    let limits = match &usable {
        Ok(kind) => fact("limits", format!("cgroup {kind}"), true, ""),
        Err(why) => fact("limits", format!("rlimits only: {why}"), false, advice),
    };
    vec![fact("cgroup v2", v2, true, ""), fact("cgroup v1", v1, true, ""), limits]
}

/// Opened, not only looked at: the file may be there without what it stands for.
fn tun() -> Fact {
    let advice = "programs that know of no proxy have no network: modprobe tun, and let the server's user open /dev/net/tun (mode 0666)";
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    match rustix::fs::open("/dev/net/tun", flags, rustix::fs::Mode::empty()) {
        Ok(_) => fact("tun", "yes", true, ""),
        Err(error) => fact("tun", format!("no: {error}"), false, advice),
    }
}

fn reflink() -> Fact {
    let kind = rustix::fs::statfs("/var/tmp").map(|stat| stat.f_type as u64).unwrap_or(0);
    const BTRFS: u64 = 0x9123_683e;
    const XFS: u64 = 0x5846_5342;
    match kind {
        BTRFS | XFS => fact("reflink", "likely (btrfs or xfs under /var/tmp)", true, ""),
        _ => fact(
            "reflink",
            "no (copies are copies)",
            false,
            "not needed; on btrfs or xfs large files are copied without copying their bytes",
        ),
    }
}

fn kvm() -> Fact {
    let usable =
        rustix::fs::access("/dev/kvm", rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK).is_ok();
    fact("kvm", if usable { "yes (not needed)" } else { "no (not needed)" }, true, "")
}

fn runsc() -> Fact {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("runsc")).find(|file| file.is_file());
    match found {
        Some(file) => fact("runsc", format!("{} (not needed)", file.display()), true, ""),
        None => fact("runsc", "no (not needed)", true, ""),
    }
}
