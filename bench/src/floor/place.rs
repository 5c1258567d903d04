//! The floor's file system: prepared once in the helper, then built anew in each of its rooms with the same
//! kinds and number of mounts as crates/room's template.rs and build.rs make.

use super::kernel::{
    NO_DEV, NO_EXEC, NO_SUID, READ_ONLY, loopback_up, make_private, set_attributes, unshare_mounts,
    unshare_the_rest, unshare_user,
};
use crate::machine;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// What each of the floor's rooms is made from.
pub(super) struct Place {
    /// Where from in the helper's mount namespace, and where to in the room.
    binds: Vec<(PathBuf, PathBuf)>,
    masked_files: Vec<&'static str>,
    masked_dirs: Vec<&'static str>,
    /// A room that root makes has its skeleton mounted once more, with its own ids.
    skeleton_mount: bool,
    uid: u32,
    gid: u32,
}

impl Place {
    /// Moves this process into a mount namespace that holds nothing but what rooms are made of.
    pub(super) fn prepare() -> io::Result<Place> {
        let as_root = rustix::process::geteuid().is_root();
        let mut place = Place {
            binds: Vec::new(),
            masked_files: Vec::new(),
            masked_dirs: Vec::new(),
            skeleton_mount: as_root,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        (place.masked_files, place.masked_dirs) = machine::masks();
        if !as_root {
            unshare_user()?;
            map_ids((place.uid, place.uid), (place.gid, place.gid))?;
            unshare_mounts()?;
        }
        let mut sources = Vec::new();
        for name in machine::bound_dirs() {
            let tree = clone_tree(Path::new("/").join(&name))?;
            make_private(tree.as_fd(), NO_SUID | NO_DEV | READ_ONLY)?;
            sources.push((name, tree));
        }
        let mut devices = Vec::new();
        for name in machine::DEVICES {
            let tree = clone_tree(Path::new("/dev").join(name))?;
            make_private(tree.as_fd(), NO_SUID | NO_EXEC)?;
            devices.push((name, tree));
        }
        let proc = clone_tree("/proc")?;
        let links = machine::links();
        let loader_cache = fs::read("/etc/ld.so.cache").ok();

        unshare_mounts()?;
        let root = make("tmpfs", &[("size", "16m"), ("mode", "755")])?;
        make_private(directory("/")?.as_fd(), 0)?;
        attach(root.as_fd(), CWD, "/usr")?;
        change_root(root.as_fd())?;
        for dir in ["proc", "skeleton/etc", "source/dev", "upper", "lower", "root"] {
            fs::create_dir_all(dir)?;
        }
        attach(proc.as_fd(), CWD, "/proc")?;
        for (name, tree) in sources {
            let from = Path::new("/source").join(&name);
            fs::create_dir_all(&from)?;
            fs::create_dir_all(Path::new("/skeleton").join(&name))?;
            attach(tree.as_fd(), CWD, &from)?;
            place.binds.push((from, name));
        }
        lay_out_devices(devices)?;
        place.binds.push(("/source/dev".into(), "dev".into()));
        lay_out_masks()?;
        for dir in ["dev", "home/agent", "proc", "root", "run", "tmp", "var/tmp", "workspace"] {
            fs::create_dir_all(Path::new("/skeleton").join(dir))?;
        }
        for (name, target) in links {
            symlink(target, Path::new("/skeleton").join(name))?;
        }
        if let Some(cache) = loader_cache {
            fs::write("/skeleton/etc/ld.so.cache", cache)?;
        }
        Ok(place)
    }

    /// Runs in a fresh clone: makes the rest of the namespaces and every mount, and enters the new root.
    pub(super) fn build(&self) -> io::Result<()> {
        map_ids((0, self.uid), (0, self.gid))?;
        unshare_the_rest()?;
        loopback_up()?;
        let proc = make("proc", &[])?;
        let upper = make("tmpfs", &[("size", "1073741824"), ("nr_inodes", "262144"), ("mode", "755")])?;
        attach(upper.as_fd(), CWD, "/upper")?;
        for dir in ["upper", "work"] {
            rustix::fs::mkdirat(&upper, dir, Mode::from_raw_mode(0o755))?;
        }
        let mut lower = "/skeleton";
        if self.skeleton_mount {
            attach(clone_tree("/skeleton")?.as_fd(), CWD, "/lower")?;
            lower = "/lower";
        }
        let options = [
            ("lowerdir", lower),
            ("upperdir", "/upper/upper"),
            ("workdir", "/upper/work"),
            // A flag: a room that root makes has redirect_dir instead.
            ("userxattr", ""),
        ];
        let root = make("overlay", &options)?;
        attach(root.as_fd(), CWD, "/root")?;
        for (from, to) in &self.binds {
            attach(clone_tree(from)?.as_fd(), root.as_fd(), to)?;
        }
        let pts = make("devpts", &[("ptmxmode", "0666"), ("mode", "0620")])?;
        attach(pts.as_fd(), root.as_fd(), "dev/pts")?;
        let shm = make("tmpfs", &[("size", "67108864"), ("nr_inodes", "16384"), ("mode", "1777")])?;
        attach(shm.as_fd(), root.as_fd(), "dev/shm")?;
        attach(proc.as_fd(), root.as_fd(), "proc")?;
        for name in &self.masked_files {
            attach(clone_tree("/source/empty/file")?.as_fd(), proc.as_fd(), name)?;
        }
        for name in &self.masked_dirs {
            attach(clone_tree("/source/empty/directory")?.as_fd(), proc.as_fd(), name)?;
        }
        set_attributes(proc.as_fd(), READ_ONLY)?;
        change_root(root.as_fd())
    }
}

fn lay_out_devices(devices: Vec<(&str, OwnedFd)>) -> io::Result<()> {
    let dev = make("tmpfs", &[("size", "64k"), ("mode", "755")])?;
    attach(dev.as_fd(), CWD, "/source/dev")?;
    for (name, tree) in devices {
        let at = Path::new("/source/dev").join(name);
        fs::write(&at, "")?;
        attach(tree.as_fd(), CWD, &at)?;
    }
    fs::create_dir("/source/dev/pts")?;
    fs::create_dir("/source/dev/shm")?;
    set_attributes(dev.as_fd(), READ_ONLY | NO_SUID | NO_EXEC)
}

fn lay_out_masks() -> io::Result<()> {
    let empty = make("tmpfs", &[("size", "16k"), ("mode", "755")])?;
    fs::create_dir("/source/empty")?;
    attach(empty.as_fd(), CWD, "/source/empty")?;
    fs::write("/source/empty/file", "")?;
    fs::set_permissions("/source/empty/file", fs::Permissions::from_mode(0o444))?;
    fs::create_dir("/source/empty/directory")?;
    set_attributes(empty.as_fd(), NO_SUID | NO_DEV | NO_EXEC | READ_ONLY)
}

/// (inside, outside) each.
fn map_ids(uid: (u32, u32), gid: (u32, u32)) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{} {} 1", uid.0, uid.1))?;
    fs::write("/proc/self/gid_map", format!("{} {} 1", gid.0, gid.1))
}

fn clone_tree(path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(CWD, path.as_ref(), flags)?)
}

fn attach(mount: BorrowedFd<'_>, dir: BorrowedFd<'_>, target: impl AsRef<Path>) -> io::Result<()> {
    Ok(move_mount(mount, "", dir, target.as_ref(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// A new, detached file system. An option without a value is a flag.
fn make(kind: &str, options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        match *value {
            "" => fsconfig_set_flag(context.as_fd(), *key)?,
            value => fsconfig_set_string(context.as_fd(), *key, value)?,
        }
    }
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn directory(path: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn change_root(new_root: BorrowedFd<'_>) -> io::Result<()> {
    rustix::process::fchdir(new_root)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}
