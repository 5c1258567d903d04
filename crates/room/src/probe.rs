//! What this machine offers to rooms, found by looking and by trying.

mod disk;

use crate::cgroup::{self, hierarchies};
use crate::identity::Privilege;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// One fact about the machine.
#[derive(Debug, Clone, Serialize)]
pub struct Fact {
    pub name: &'static str,
    pub value: String,
    pub good: bool,
    /// What to do to make it good; empty where nothing needs doing.
    pub advice: &'static str,
}

/// Looks at everything, and tries whether groups can be made by making one and removing it. `state`: where a server has
/// its state, or will have it.
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
    fact("user namespaces", "yes", true, "")
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
    let advice = "limits fall back to rlimits: run as root, or under `systemd-run --user -p Delegate=yes` on cgroup v2";
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
        _ => fact("reflink", "no (copies are copies)", true, ""),
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
