//! Who the probe is: capabilities, no_new_privs, ids, inherited things, and programs that would give privilege.

use crate::files::Scratch;
use crate::sys::{Errno, address, args, exec, exit_now, fork, kill, raw, reap, room_for};
use crate::{Case, Context, Outcome, case, none_found};
use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) static CASES: &[Case] = &[
    case("capabilities", "privilege", "Reads its five capability sets", &["caps"], capabilities),
    case("no-new-privs", "privilege", "Reads whether an exec can give it privilege", &["nnp"], |_| {
        expect_status("NoNewPrivs", "1")
    }),
    case("seccomp-status", "privilege", "Reads whether a filter is on", &["seccomp"], |_| {
        expect_status("Seccomp", "2")
    }),
    case("raise-capabilities", "privilege", "Raises its capabilities by capset and prctl", &["caps"], raise),
    case(
        "become-root",
        "privilege",
        "Changes its ids to 0 and its groups to none",
        &["caps", "seccomp"],
        become_root,
    ),
    case("user-namespace", "privilege", "Reads whether its ids are the machine's own", &["userns"], uid_map),
    case(
        "groups",
        "privilege",
        "Looks for supplementary groups of the host",
        &["uidrange", "userns"],
        groups,
    ),
    case(
        "setuid-programs",
        "privilege",
        "Runs setuid programs and looks who they run as",
        &["nnp", "mountns", "userns"],
        setuid_programs,
    ),
    case(
        "setuid-own-file",
        "privilege",
        "Makes a setuid file of another user in /tmp and runs it",
        SUID,
        setuid_own,
    ),
    case(
        "file-capabilities",
        "privilege",
        "Gives a program file capabilities and runs those that have",
        SUID,
        file_capabilities,
    ),
    case("inherited-descriptors", "leak", "Looks for descriptors beyond 0, 1 and 2", &["fds"], descriptors),
    case("environment", "leak", "Looks for variables that the room was not given", &["env"], environment),
    case("hostname", "leak", "Reads the machine's name", &["utsns"], |_| hostname()),
];

const SUID: &[&str] = &["nnp", "mountns", "caps"];

/// A line of a process's status file.
pub(crate) fn status_of(process: &str, key: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let value = |line: &str| line.strip_prefix(key)?.strip_prefix(':').map(|rest| rest.trim().to_owned());
    status.lines().find_map(value)
}

fn expect_status(key: &str, expected: &str) -> Outcome {
    match status_of("self", key) {
        None => Outcome::Skipped(format!("/proc/self/status does not say {key}")),
        Some(value) if value == expected => Outcome::Held(format!("{key} is {value}")),
        Some(value) => Outcome::Breached(format!("{key} is {value}, not {expected}")),
    }
}

fn capabilities(_: &Context) -> Outcome {
    let mut present = Vec::new();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        match status_of("self", set) {
            None => return Outcome::Skipped(format!("/proc/self/status does not say {set}")),
            Some(value) if value.chars().all(|digit| digit == '0') => {}
            Some(value) => present.push(format!("{set} is {value}")),
        }
    }
    none_found(present, "all five sets are empty")
}

fn raise(_: &Context) -> Outcome {
    let mut won = Vec::new();
    let header = [0x2008_0522u32, 0];
    let everything = [u32::MAX, u32::MAX, 0, u32::MAX >> 23, u32::MAX >> 23, 0];
    if raw(libc::SYS_capset, args(&[address(&header), address(&everything)])).is_ok() {
        won.push("capset to everything".to_owned());
    }
    // CAP_SYS_ADMIN into the ambient set, then the promise that ids and capabilities go together withdrawn.
    if raw(libc::SYS_prctl, args(&[libc::PR_CAP_AMBIENT as usize, libc::PR_CAP_AMBIENT_RAISE as usize, 21]))
        .is_ok()
    {
        won.push("raised an ambient capability".to_owned());
    }
    if raw(libc::SYS_prctl, args(&[libc::PR_SET_SECUREBITS as usize, 0x2f])).is_ok() {
        won.push("set the secure bits".to_owned());
    }
    none_found(won, "EPERM")
}

fn become_root(_: &Context) -> Outcome {
    if id(libc::SYS_geteuid) == 0 {
        return Outcome::Held("already 0, of its own user namespace; see capabilities".to_owned());
    }
    let calls: &[(&str, libc::c_long, &[usize])] = &[
        ("setuid", libc::SYS_setuid, &[0]),
        ("setreuid", libc::SYS_setreuid, &[0, 0]),
        ("setresuid", libc::SYS_setresuid, &[0, 0, 0]),
        ("setgid", libc::SYS_setgid, &[0]),
        ("setresgid", libc::SYS_setresgid, &[0, 0, 0]),
        ("setgroups", libc::SYS_setgroups, &[0, 0]),
    ];
    let won = calls.iter().filter(|(_, nr, list)| raw(*nr, args(list)).is_ok());
    let won: Vec<String> = won.map(|(name, ..)| format!("{name} succeeded")).collect();
    raw(libc::SYS_setfsuid, args(&[0])).ok();
    let fsuid = raw(libc::SYS_setfsuid, args(&[usize::MAX])).unwrap_or(-1);
    let won = if fsuid == 0 { [won, vec!["setfsuid succeeded".to_owned()]].concat() } else { won };
    none_found(won, "EPERM")
}

pub(crate) fn id(nr: libc::c_long) -> u32 {
    raw(nr, args(&[])).unwrap_or(-1) as u32
}

fn uid_map(_: &Context) -> Outcome {
    for file in ["uid_map", "gid_map"] {
        match fs::read_to_string(format!("/proc/self/{file}")) {
            Err(error) => return Outcome::Skipped(format!("/proc/self/{file} cannot be read: {error}")),
            // The initial user namespace maps all ids to themselves; no room needs that many.
            Ok(map) if map.split_whitespace().nth(2) == Some("4294967295") => {
                return Outcome::Breached(format!("{file} is the machine's own: every id is real"));
            }
            Ok(_) => {}
        }
    }
    Outcome::Held("ids are mapped".to_owned())
}

fn groups(_: &Context) -> Outcome {
    let mut list = [0u32; 256];
    let own = id(libc::SYS_getegid);
    match raw(libc::SYS_getgroups, args(&[list.len(), room_for(&mut list)])) {
        Err(errno) => Outcome::Held(errno.to_string()),
        Ok(count) => {
            // 65534 is how a group without a name in the room's user namespace shows; it gives nothing there.
            let foreign = list[..count as usize].iter().filter(|&&group| group != own && group != 65534);
            none_found(foreign.map(|group| format!("group {group}")).collect(), "no supplementary group")
        }
    }
}

/// Runs a program and says, once it has ended or after a moment, whether it ran with more than we have.
fn runs_with_more(program: &CStr) -> Result<Option<String>, Errno> {
    let mine = (status_of("self", "Uid"), status_of("self", "Gid"), status_of("self", "CapEff"));
    let pid = fork()?;
    if pid == 0 {
        if let Ok(null) = fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
            for fd in 0..3 {
                raw(libc::SYS_dup3, args(&[std::os::fd::AsRawFd::as_raw_fd(&null) as usize, fd, 0])).ok();
            }
        }
        exec(program, c"--help");
        exit_now(127);
    }
    // A zombie still has the credentials that it died with: wait for the end, but do not collect it yet.
    let deadline = Instant::now() + Duration::from_millis(300);
    let state = || status_of(&pid.to_string(), "State").unwrap_or_default();
    while Instant::now() < deadline && !state().starts_with('Z') {
        std::thread::sleep(Duration::from_millis(1));
    }
    let process = pid.to_string();
    let its = (status_of(&process, "Uid"), status_of(&process, "Gid"), status_of(&process, "CapEff"));
    kill(pid, libc::SIGKILL).ok();
    reap(pid, 0);
    let same = its == mine || its.0.is_none();
    let said = |value: &Option<String>| value.as_deref().unwrap_or("?").replace('\t', " ");
    let who = format!("uid {}, gid {}, capabilities {}", said(&its.0), said(&its.1), said(&its.2));
    Ok((!same).then(|| format!("{} ran as {who}", program.to_string_lossy())))
}

/// Files under the directories that hold programs; three levels and ten thousand files at most.
fn programs(context: &Context) -> Vec<PathBuf> {
    let bait = context.programs.as_deref().filter(|bait| !bait.starts_with("/opt/"));
    // The last is looked into first: bait is not to be missed among the many.
    let mut waiting: Vec<(PathBuf, u8)> =
        ["/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", "/usr/local", "/opt"]
            .into_iter()
            .chain(bait)
            .map(|start| (PathBuf::from(start), 0))
            .collect();
    let mut found = Vec::new();
    while let Some((folder, depth)) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < 2 => waiting.push((entry.path(), depth + 1)),
                Ok(kind) if kind.is_file() && found.len() < 10_000 => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found
}

fn as_c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

fn setuid_programs(context: &Context) -> Outcome {
    let has_bit = |path: &PathBuf| fs::metadata(path).is_ok_and(|it| it.mode() & 0o6000 != 0);
    let bits: Vec<PathBuf> = programs(context).into_iter().filter(has_bit).collect();
    if bits.is_empty() {
        return Outcome::Held("no setuid or setgid program is visible".to_owned());
    }
    let mut won = Vec::new();
    // Six are enough to tell, and keep the probe short: the guard is the same for all.
    for program in bits.iter().take(6) {
        match runs_with_more(&as_c(program)) {
            Err(errno) => return Outcome::Skipped(format!("no child to try in: {errno}")),
            Ok(more) => won.extend(more),
        }
    }
    none_found(won, format!("{} programs have the bit, none gives anything", bits.len()))
}

/// A small program to give bits to.
fn copied_program(scratch: &Scratch) -> Option<PathBuf> {
    let copy = scratch.path("program");
    ["/usr/bin/true", "/bin/true", "/usr/bin/env", "/bin/sh"]
        .iter()
        .find(|program| fs::copy(program, &copy).is_ok())
        .map(|_| copy)
}

fn setuid_own(_: &Context) -> Outcome {
    let Some(scratch) = Scratch::in_tmp() else {
        return Outcome::Held("nothing can be made in /tmp".to_owned());
    };
    let Some(program) = copied_program(&scratch) else {
        return Outcome::Skipped("no program to copy".to_owned());
    };
    let path = as_c(&program);
    let other = usize::from(id(libc::SYS_geteuid) == 0);
    if let Err(errno) = raw(libc::SYS_chown, args(&[path.as_ptr() as usize, other, other])) {
        return Outcome::Held(format!("chown: {errno}"));
    }
    if let Err(error) = fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)) {
        return Outcome::Held(format!("chmod: {}", Errno::from(error)));
    }
    match runs_with_more(&path) {
        Err(errno) => Outcome::Skipped(format!("no child to try in: {errno}")),
        Ok(Some(more)) => Outcome::Breached(more),
        Ok(None) => Outcome::Held("the bit gives nothing".to_owned()),
    }
}

fn file_capabilities(context: &Context) -> Outcome {
    const NAME: &CStr = c"security.capability";
    let (mut won, mut tried) = (Vec::new(), 0);
    let mut value = [0u32; 6];
    let mut has = |path: &PathBuf| {
        let path = as_c(path);
        let call = [path.as_ptr() as usize, NAME.as_ptr() as usize, room_for(&mut value), 24, 0, 0];
        // Those of another user namespace are there, but cannot be told in this one.
        !matches!(raw(libc::SYS_getxattr, call), Err(errno) if errno.0 != libc::EOVERFLOW)
    };
    for program in programs(context).iter().filter(|path| has(path)).take(4) {
        tried += 1;
        won.extend(runs_with_more(&as_c(program)).ok().flatten());
    }
    if let Some(scratch) = Scratch::in_tmp()
        && let Some(program) = copied_program(&scratch)
    {
        // Revision 2, effective, everything permitted.
        let everything = [0x0200_0001u32, u32::MAX, 0, u32::MAX >> 23, 0];
        let path = as_c(&program);
        let call = [path.as_ptr() as usize, NAME.as_ptr() as usize, address(&everything), 20, 0, 0];
        if raw(libc::SYS_setxattr, call).is_ok() {
            // Setting is harmless (root of a user namespace may); running with them is the breach.
            tried += 1;
            won.extend(runs_with_more(&path).ok().flatten());
        }
    }
    none_found(won, format!("{tried} programs have capabilities, none gives any"))
}

fn descriptors(_: &Context) -> Outcome {
    let Ok(list) = fs::read_dir("/proc/self/fd") else {
        return Outcome::Skipped("/proc/self/fd cannot be read".to_owned());
    };
    let numbers: Vec<String> =
        list.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let mut found = Vec::new();
    for number in numbers {
        // The descriptor that read the list is closed by now, and so has no target.
        let Ok(target) = fs::read_link(format!("/proc/self/fd/{number}")) else { continue };
        let is_directory = fs::metadata(format!("/proc/self/fd/{number}")).is_ok_and(|it| it.is_dir());
        if !["0", "1", "2"].contains(&number.as_str()) || is_directory {
            found.push(format!("{number} is {}", target.display()));
        }
    }
    none_found(found, "only 0, 1 and 2")
}

fn environment(context: &Context) -> Outcome {
    const EXPECTED: &[&str] = &[
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "TERM",
        "USER",
        "LOGNAME",
        "SHELL",
        "TZ",
        "PWD",
        "SHLVL",
        "_",
        "HOSTNAME",
        "NODE_PATH",
        "TMPDIR",
        "COLUMNS",
        "LINES",
    ];
    let mut found = Vec::new();
    for (name, value) in std::env::vars_os() {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        let leaks = !context.canary.is_empty() && value.contains(&context.canary);
        if leaks || !(EXPECTED.contains(&&*name) || name.starts_with("WORKROOM_")) {
            found.push(name.into_owned());
        }
    }
    none_found(found, "only what a room is given")
}

fn hostname() -> Outcome {
    // Six texts of 65 bytes; the second is the node's name. Asked directly because /proc/sys may be masked.
    let mut names = [0u8; 65 * 6];
    raw(libc::SYS_uname, args(&[room_for(&mut names)])).ok();
    let name = String::from_utf8_lossy(&names[65..130]);
    match name.trim_end_matches('\0') {
        "room" => Outcome::Held("it is \"room\"".to_owned()),
        other => Outcome::Breached(format!("it is {other:?}, not \"room\"")),
    }
}
