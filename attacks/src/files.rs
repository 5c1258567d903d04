//! Changing files that are not the room's: read-only trees, links and renames across them, device nodes.

use crate::sys::{End, Errno, args, in_child, kill, raise_soft_limit, raw};
use crate::{Case, Outcome, case, none_found};
use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) static CASES: &[Case] = &[
    case("write-usr", "files", "Makes files in the machine's own trees", READ_ONLY, |_| write_usr()),
    case("write-etc", "files", "Changes /etc/passwd and other files of /etc", &["landlock"], |_| write_etc()),
    case("link-across", "files", "Makes hard links to files of read-only trees", READ_ONLY, |_| {
        link_across()
    }),
    case("rename-across", "files", "Moves and exchanges files of read-only trees", READ_ONLY, |_| {
        rename_across()
    }),
    case(
        "device-nodes",
        "files",
        "Makes block and character device nodes",
        &["caps", "seccomp", "mountns"],
        |_| make_devices(),
    ),
    case(
        "devices",
        "files",
        "Looks for devices beyond the harmless few, and opens disks",
        &["mountns", "landlock"],
        |_| devices(),
    ),
    case(
        "core-dump",
        "files",
        "Crashes, and looks whether a core was taken",
        &["rlimits", "dumpable"],
        |_| core_dump(),
    ),
];

const READ_ONLY: &[&str] = &["mountns", "landlock", "uidrange"];

/// A folder of the probe's own that goes away with the value.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn in_tmp() -> Option<Self> {
        Self::below("/tmp")
    }

    pub(crate) fn below(parent: &str) -> Option<Self> {
        let folder = Path::new(parent).join(format!(".workroom-attack-{}", std::process::id()));
        fs::create_dir(&folder).ok().map(|()| Self(folder))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing to be done about a failure: the room, or the tester's /tmp, is thrown away.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn as_c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

fn write_usr() -> Outcome {
    let mut won = Vec::new();
    for folder in ["/usr", "/usr/bin", "/usr/lib", "/usr/local/bin", "/bin", "/lib", "/sbin", "/boot"] {
        let path = format!("{folder}/.workroom-attack-{}", std::process::id());
        // Exclusive: a file that somebody else made is not ours to touch.
        if OpenOptions::new().write(true).create_new(true).open(&path).is_ok() {
            let _ = fs::remove_file(&path);
            won.push(format!("made a file in {folder}"));
        }
    }
    for program in ["/usr/bin/env", "/bin/sh"] {
        if OpenOptions::new().append(true).open(program).is_ok() {
            won.push(format!("{program} opens for writing"));
        }
    }
    none_found(won, "refused")
}

fn write_etc() -> Outcome {
    if crate::identity::id(libc::SYS_geteuid) == 0 {
        return Outcome::Skipped("root of a room may change its own /etc".to_owned());
    }
    let files =
        ["/etc/passwd", "/etc/group", "/etc/hosts", "/etc/ld.so.preload", "/etc/ld.so.cache", "/etc/profile"];
    let opens = |path: &&&str| OpenOptions::new().append(true).open(path).is_ok();
    let mut won: Vec<String> =
        files.iter().filter(opens).map(|path| format!("{path} opens for writing")).collect();
    let path = format!("/etc/.workroom-attack-{}", std::process::id());
    if OpenOptions::new().write(true).create_new(true).open(&path).is_ok() {
        let _ = fs::remove_file(&path);
        won.push("made a file in /etc".to_owned());
    }
    none_found(won, "refused")
}

/// Files of the machine that every room can see, and whose loss nobody would notice.
fn victims() -> Vec<&'static str> {
    ["/usr/share/common-licenses/GPL-1", "/usr/lib/os-release", "/usr/bin/true", "/bin/true"]
        .into_iter()
        .filter(|path| Path::new(path).exists())
        .collect()
}

fn link_across() -> Outcome {
    let Some(scratch) = Scratch::in_tmp() else {
        return Outcome::Held("nothing can be made in /tmp".to_owned());
    };
    let mut won = Vec::new();
    for (index, victim) in victims().iter().enumerate() {
        if fs::hard_link(victim, scratch.path(&index.to_string())).is_ok() {
            won.push(format!("linked {victim} into /tmp"));
        }
        // The same by a descriptor's name, which older checks did not look through.
        let Ok(open) = fs::File::open(victim) else { continue };
        let from = as_c(Path::new(&format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open))));
        let to = as_c(&scratch.path(&format!("by-fd-{index}")));
        let here = libc::AT_FDCWD as usize;
        let follow = libc::AT_SYMLINK_FOLLOW as usize;
        let call = [here, from.as_ptr() as usize, here, to.as_ptr() as usize, follow, 0];
        if raw(libc::SYS_linkat, call).is_ok() {
            won.push(format!("linked {victim} into /tmp by its descriptor"));
        }
    }
    none_found(won, "refused")
}

fn rename_across() -> Outcome {
    let Some(scratch) = Scratch::in_tmp() else {
        return Outcome::Held("nothing can be made in /tmp".to_owned());
    };
    let mine = scratch.path("mine");
    let _ = fs::write(&mine, "x");
    let here = libc::AT_FDCWD as usize;
    let mut won = Vec::new();
    for victim in victims() {
        let (theirs, ours) = (as_c(Path::new(victim)), as_c(&mine));
        for (name, flags) in [("exchanged", libc::RENAME_EXCHANGE), ("moved", libc::RENAME_NOREPLACE)] {
            let away = as_c(&scratch.path("away"));
            let target = if name == "moved" { &away } else { &ours };
            let rename = |from: &CString, to: &CString| {
                raw(
                    libc::SYS_renameat2,
                    [here, from.as_ptr() as usize, here, to.as_ptr() as usize, flags as usize, 0],
                )
            };
            if rename(&theirs, target).is_ok() {
                won.push(format!("{name} {victim}"));
                // Put it back: the probe may be running on somebody's machine.
                rename(target, &theirs).ok();
            }
        }
    }
    none_found(won, "refused")
}

fn make_devices() -> Outcome {
    let Some(scratch) = Scratch::in_tmp() else {
        return Outcome::Held("nothing can be made in /tmp".to_owned());
    };
    let mut won = Vec::new();
    let nodes = [
        ("block-8-0", libc::S_IFBLK, libc::makedev(8, 0)),
        ("block-254-0", libc::S_IFBLK, libc::makedev(254, 0)),
        ("mem", libc::S_IFCHR, libc::makedev(1, 1)),
        ("kmsg", libc::S_IFCHR, libc::makedev(1, 11)),
        ("null", libc::S_IFCHR, libc::makedev(1, 3)),
    ];
    for (name, kind, device) in nodes {
        let path = as_c(&scratch.path(name));
        let mode = (kind | 0o600) as usize;
        let here = libc::AT_FDCWD as usize;
        let at = path.as_ptr() as usize;
        let made = raw(libc::SYS_mknod, args(&[at, mode, device as usize]))
            .or_else(|_| raw(libc::SYS_mknodat, args(&[here, at, mode, device as usize])));
        if made.is_ok() {
            let opens = fs::File::open(scratch.path(name)).is_ok();
            won.push(format!("made {name}{}", if opens { ", and it opens" } else { "" }));
        }
    }
    none_found(won, "EPERM")
}

fn devices() -> Outcome {
    const HARMLESS: &[&str] = &["null", "zero", "full", "random", "urandom", "tty", "ptmx"];
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::from("/dev")];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if kind.is_dir() && !path.starts_with("/dev/pts") && !path.starts_with("/dev/shm") {
                waiting.push(path);
            } else if kind.is_block_device() {
                let open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
                found.push(format!(
                    "{}{}",
                    path.display(),
                    if open.is_ok() { " opens" } else { " is there" }
                ));
            } else if kind.is_char_device() && !HARMLESS.contains(&name.as_str()) {
                found.push(format!("{} is there", path.display()));
            }
        }
    }
    none_found(found, "only the harmless ones")
}

fn core_dump() -> Outcome {
    let scratch = Scratch::in_tmp();
    let child = in_child(Duration::from_secs(3), |_| {
        raise_soft_limit(libc::RLIMIT_CORE as usize).ok();
        // A core goes to the working directory: to one that is removed again.
        if let Some(scratch) = &scratch {
            std::env::set_current_dir(&scratch.0).ok();
        }
        // Back to the default first: the Rust runtime has a handler for stack overflows on this signal.
        let default = [0usize; 4];
        raw(libc::SYS_rt_sigaction, args(&[libc::SIGSEGV as usize, crate::sys::address(&default), 0, 8]))
            .ok();
        kill(std::process::id() as i32, libc::SIGSEGV).ok();
    });
    match child {
        Err(errno) => Outcome::Skipped(format!("no child to try in: {errno}")),
        Ok(child) => match child.end {
            End::Killed { core: true, .. } => Outcome::Breached("the kernel took a core".to_owned()),
            End::Killed { signal, .. } => Outcome::Held(format!("died of signal {signal} without a core")),
            other => Outcome::Skipped(format!("the child did not crash: {other:?}, {}", Errno::last())),
        },
    }
}
