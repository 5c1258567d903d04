//! Changing what is where: every call of the mount family, old and new, and the flags of what is mounted.

use crate::sys::{Args, address, args, text};
use crate::syscalls::{all_refused, ask};
use crate::{Case, Context, Outcome, case, none_found};
use std::ffi::CStr;
use std::os::unix::fs::FileTypeExt;

pub(crate) static CASES: &[Case] = &[
    case("mount", "mounts", "Mounts a tmpfs, a proc and a directory", FILTER, |_| {
        let mount = |source: usize, kind: usize, flags: usize| args(&[source, text(NOWHERE), kind, flags, 0]);
        all_refused(&[
            ("mount(tmpfs)", libc::SYS_mount, mount(text(c"none"), text(c"tmpfs"), 0)),
            ("mount(proc)", libc::SYS_mount, mount(text(c"none"), text(c"proc"), 0)),
            ("mount(bind)", libc::SYS_mount, mount(text(c"/"), 0, libc::MS_BIND as usize)),
        ])
    }),
    case("umount2", "mounts", "Takes away what covers a masked file", FILTER, |_| {
        // The first call with MNT_EXPIRE only marks: enough to know, and the mask stays for the next case.
        let mark = libc::MNT_EXPIRE as usize;
        all_refused(&[
            ("umount2(/proc/kcore)", libc::SYS_umount2, args(&[text(c"/proc/kcore"), mark])),
            ("umount2(/proc/sys)", libc::SYS_umount2, args(&[text(c"/proc/sys"), mark])),
            ("umount2(/usr)", libc::SYS_umount2, args(&[text(c"/usr"), mark])),
        ])
    }),
    case("pivot-root", "mounts", "Changes the root by pivot_root", FILTER_AND_CAPS, |_| {
        one("pivot_root", libc::SYS_pivot_root, args(&[text(c"/tmp"), text(c"/tmp")]))
    }),
    case(
        "chroot",
        "mounts",
        "Changes the root by chroot, the first step of the classic escape",
        FILTER,
        |_| one("chroot", libc::SYS_chroot, args(&[text(c"/tmp")])),
    ),
    case("fsopen", "mounts", "Opens a new file system", FILTER_AND_CAPS, |_| {
        one("fsopen", libc::SYS_fsopen, args(&[text(c"tmpfs"), 0]))
    }),
    case("fsconfig", "mounts", "Configures a file system, where heap overflows lived", FILTER, |_| {
        one("fsconfig", libc::SYS_fsconfig, args(&[0, 1, text(c"source"), text(c"none"), 0]))
    }),
    case("fsmount", "mounts", "Makes a mount of an opened file system", FILTER_AND_CAPS, |_| {
        one("fsmount", libc::SYS_fsmount, args(&[0, 0, 0]))
    }),
    case("fspick", "mounts", "Picks the root's file system for reconfiguration", FILTER_AND_CAPS, |_| {
        one("fspick", libc::SYS_fspick, args(&[HERE, text(c"/"), 0]))
    }),
    case("move-mount", "mounts", "Moves a mount", FILTER_AND_CAPS, |_| {
        one("move_mount", libc::SYS_move_mount, args(&[HERE, text(c"/proc"), HERE, text(NOWHERE), 0]))
    }),
    case("open-tree", "mounts", "Opens and copies a tree of mounts", FILTER, |_| {
        all_refused(&[
            ("open_tree", libc::SYS_open_tree, args(&[HERE, text(c"/"), 0])),
            ("open_tree(CLONE)", libc::SYS_open_tree, args(&[HERE, text(c"/"), 1])),
        ])
    }),
    case("open-tree-attr", "mounts", "Copies a tree of mounts with other flags", FILTER, |_| {
        let attributes = [0u64; 4];
        let call = args(&[HERE, text(c"/"), 1, address(&attributes), 32]);
        one("open_tree_attr", SYS_OPEN_TREE_ATTR, call)
    }),
    case("mount-setattr", "mounts", "Clears the read-only flag of a mount by mount_setattr", FILTER, |_| {
        let clear_read_only = [0u64, 1, 0, 0];
        let call = args(&[HERE, text(NOWHERE), 0, address(&clear_read_only), 32]);
        one("mount_setattr", libc::SYS_mount_setattr, call)
    }),
    case("mount-listing", "mounts", "Asks statmount and listmount about mounts", FILTER, |_| {
        let request = [24u64, u64::MAX, 0];
        let mut list = [0u64; 16];
        let out = crate::sys::room_for(&mut list);
        all_refused(&[
            ("statmount", SYS_STATMOUNT, args(&[address(&request), out, 128, 0])),
            ("listmount", SYS_LISTMOUNT, args(&[address(&request), out, 16, 0])),
        ])
    }),
    case("remount-writable", "mounts", "Remounts /usr writable, and writes to it", FILTER, remount),
    case(
        "mount-flags",
        "mounts",
        "Looks for a mount that honours setuid bits or device nodes",
        MOUNTNS,
        flags,
    ),
    case(
        "mount-propagation",
        "mounts",
        "Looks for a mount whose changes reach the host",
        MOUNTNS,
        propagation,
    ),
];

const FILTER: &[&str] = &["seccomp"];
const FILTER_AND_CAPS: &[&str] = &["seccomp", "caps"];
const MOUNTNS: &[&str] = &["mountns"];
/// A path that does not exist: where nothing stops the call it answers ENOENT, which is enough to know, and the
/// room is not changed for the next case.
const NOWHERE: &CStr = c"/tmp/.workroom-attack-nowhere";
const HERE: usize = libc::AT_FDCWD as usize;
// Younger than the libc crate's tables for every target.
const SYS_STATMOUNT: libc::c_long = 457;
const SYS_LISTMOUNT: libc::c_long = 458;
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;

fn one(name: &str, nr: libc::c_long, call: Args) -> Outcome {
    all_refused(&[(name, nr, call)])
}

fn remount(_: &Context) -> Outcome {
    let call = |flags: libc::c_ulong| {
        args(&[0, text(c"/usr"), 0, (libc::MS_REMOUNT | libc::MS_BIND | flags) as usize, 0])
    };
    let refused = all_refused(&[("remount /usr", libc::SYS_mount, call(0))]);
    let target = format!("/usr/.workroom-attack-{}", std::process::id());
    let written = std::fs::write(&target, "x").is_ok();
    let _ = std::fs::remove_file(&target);
    if let Outcome::Breached(_) = refused {
        // As it should be, for the cases after this one.
        ask(libc::SYS_mount, call(libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV));
    }
    if written { Outcome::Breached("wrote a file into /usr".to_owned()) } else { refused }
}

/// One line of mountinfo, as far as it matters here.
struct Mount {
    point: String,
    flags: Vec<String>,
    propagation: String,
    kind: String,
}

fn mounts() -> Result<Vec<Mount>, String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| format!("/proc/self/mountinfo cannot be read: {error}"))?;
    let mount = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let fields: Vec<&str> = left.split(' ').collect();
        Some(Mount {
            point: fields.get(4)?.replace("\\040", " ").replace("\\134", "\\"),
            flags: fields.get(5)?.split(',').map(str::to_owned).collect(),
            propagation: fields.get(6..)?.join(" "),
            kind: right.split(' ').next()?.to_owned(),
        })
    };
    Ok(table.lines().filter_map(mount).collect())
}

fn flags(_: &Context) -> Outcome {
    let mounts = match mounts() {
        Ok(mounts) => mounts,
        Err(reason) => return Outcome::Skipped(reason),
    };
    let mut weak = Vec::new();
    for mount in &mounts {
        let has = |flag: &str| mount.flags.iter().any(|have| have == flag);
        // nodev would make a bound device node, and every terminal of a devpts, useless.
        let is_device = std::fs::metadata(&mount.point).is_ok_and(|it| it.file_type().is_char_device());
        if !has("nosuid") {
            weak.push(format!("{} lacks nosuid", mount.point));
        }
        if !has("nodev") && !is_device && mount.kind != "devpts" {
            weak.push(format!("{} lacks nodev", mount.point));
        }
    }
    none_found(weak, format!("{} mounts are nosuid and nodev", mounts.len()))
}

fn propagation(_: &Context) -> Outcome {
    match mounts() {
        Err(reason) => Outcome::Skipped(reason),
        Ok(mounts) => {
            let count = mounts.len();
            let shared = |mount: Mount| {
                mount.propagation.contains("shared:").then(|| format!("{} is shared", mount.point))
            };
            none_found(
                mounts.into_iter().filter_map(shared).collect(),
                format!("{count} mounts, none shared"),
            )
        }
    }
}
