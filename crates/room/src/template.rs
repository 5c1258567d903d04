//! The `host` template: this machine's `/usr`, read-only, over a small skeleton of everything else.
//!
//! A spawner prepares it once, in a mount namespace that holds nothing but what rooms are made of:
//!
//! ```text
//!  /proc          the machine's, to write id maps through
//!  /skeleton      the lower layer of every room: directories, generated /etc, every mount point
//!  /source/...    read-only binds that each room gets: usr, parts of etc, dev with its six devices
//!  /upper /lower /root    where a room's builder attaches its own mounts
//! ```
//!
//! As root the template stands on another mount, which is this process's working directory and has nothing in it but a
//! place for the room. There a room's root is built, and takes the template's place in the end (`replace_root`).
//! Without privileges no mount of a copied namespace can be taken off, and the template is the only one.
//!
//! Copying a mount namespace costs by its mounts, so a room made from here costs the same on a laptop with
//! five hundred mounts.

use crate::identity::Privilege;
use crate::mounts::{
    Attributes, FsOption, PLAIN, attach, attach_on, change_root, clone_tree, clone_tree_at, directory, make,
    make_private, set_attributes,
};
use crate::step::During;
use rustix::fs::{CWD, Mode};
use rustix::mount::MountAttrFlags;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use workroom_sys::namespace::{Namespaces, enter, unshare};
use workroom_types::{HostMount, RoomError};

#[path = "skeleton.rs"]
mod skeleton;

pub(crate) use skeleton::Skeleton;

/// Top-level directories of the machine that are either links into `/usr` or bound like it.
const SYSTEM_DIRS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Parts of the machine's `/etc` that programs under `/usr` read and that say nothing about its people.
const ETC_DIRS: [&str; 6] =
    ["alternatives", "ssl/certs", "ld.so.conf.d", "pki/ca-trust", "pki/tls/certs", "crypto-policies"];

pub(crate) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What a room's builder attaches from the template: where from, and where to in the room.
pub(crate) struct Template {
    pub(crate) binds: Vec<(PathBuf, PathBuf)>,
    /// The machine's own mounts, to take host directories from.
    host_mounts: OwnedFd,
    /// The template's.
    own_mounts: OwnedFd,
    /// As root: what the template stands on.
    beneath: Option<OwnedFd>,
    pub(crate) skeleton: Skeleton,
}

impl Template {
    /// Moves this process into a mount namespace of its own and prepares the template there.
    pub(crate) fn prepare(privilege: Privilege) -> Result<Template, RoomError> {
        if privilege == Privilege::Rootless {
            enter_own_user_namespace()?;
        }
        let host_mounts = mount_namespace().during("open mount namespace")?;
        let mut sources = Vec::new();
        for name in SYSTEM_DIRS {
            let path = Path::new("/").join(name);
            if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
                sources.push((PathBuf::from(name), source(&path, false).during("bind the system")?));
            }
        }
        for name in etc_dirs() {
            let path = Path::new("/etc").join(&name);
            if path.is_dir() {
                sources.push((Path::new("etc").join(&name), source(&path, false).during("bind /etc")?));
            }
        }
        let devices = DEVICES
            .iter()
            .map(|name| Ok((*name, source(&Path::new("/dev").join(name), true)?)))
            .collect::<io::Result<Vec<_>>>()
            .during("bind devices")?;
        let proc = clone_tree("/proc").during("bind /proc")?;
        let host_root = directory("/").during("open the machine's root")?;

        unshare(Namespaces::MOUNT).during("mount namespace")?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let options = [FsOption::Set("size", "16m"), FsOption::Set("mode", "755")];
        let root = make("tmpfs", &options, attributes).during("template file system")?;
        make_private(directory("/").during("template root")?.as_fd(), Attributes::NONE)
            .during("private mounts")?;
        // Any directory would do to stand on for a moment; this one is always there.
        attach(root.as_fd(), CWD, "/usr").during("template root")?;
        let beneath = match privilege {
            Privilege::Root => stand_on_empty(root.as_fd()).map(Some),
            Privilege::Rootless => change_root(root.as_fd()).map(|()| None),
        }
        .during("template root")?;

        let binds = lay_out(sources, devices, proc).during("template layout")?;
        let skeleton = Skeleton::new(host_root, privilege == Privilege::Root).during("skeleton")?;
        let own_mounts = mount_namespace().during("open mount namespace")?;
        Ok(Template { binds, host_mounts, own_mounts, beneath, skeleton })
    }

    /// Writes the skeleton, unless that is done. Rooms cloned before wait for it.
    pub(crate) fn complete(&self) -> Result<(), RoomError> {
        self.skeleton.complete(&self.binds).during("skeleton")
    }

    /// Takes detached copies of host directories, to be attached in a room.
    pub(crate) fn take(&self, wanted: &[(impl AsRef<Path>, bool)]) -> Result<Vec<OwnedFd>, RoomError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        self.on_the_machine(|| {
            wanted
                .iter()
                .map(|(path, read_only)| {
                    let tree = open_host(path.as_ref())?;
                    let extra = if *read_only { Attributes::READ_ONLY } else { Attributes::NONE };
                    make_private(tree.as_fd(), PLAIN.and(extra))?;
                    Ok(tree)
                })
                .collect::<io::Result<Vec<_>>>()
        })?
        .during("bind a host directory")
    }

    /// What a clone of this process must keep open to use this.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = i32> {
        let mounts = [&self.host_mounts, &self.own_mounts].into_iter().chain(&self.beneath);
        mounts.map(AsRawFd::as_raw_fd).chain([self.skeleton.descriptor()])
    }

    /// Does something where the machine's own file system is in sight.
    pub(crate) fn on_the_machine<T>(&self, action: impl FnOnce() -> T) -> Result<T, RoomError> {
        enter(self.host_mounts.as_fd(), Namespaces::MOUNT).during("enter the machine's mounts")?;
        let done = action();
        let step = "enter the template's mounts";
        enter(self.own_mounts.as_fd(), Namespaces::MOUNT).during(step)?;
        if let Some(beneath) = &self.beneath {
            rustix::process::fchdir(beneath).during(step)?;
        }
        Ok(done)
    }
}

/// A copy of a host directory that is nowhere yet. A layer, or what one holds, may be in a file system of its own.
fn open_host(path: &Path) -> io::Result<OwnedFd> {
    if workroom_layers::is_image(path) {
        return workroom_layers::mount_image(path);
    }
    match path.parent().filter(|layer| path.ends_with("fs") && workroom_layers::is_image(layer)) {
        Some(layer) => workroom_layers::take_files(layer),
        None => clone_tree(path),
    }
}

/// Where a room's root is built, from the working directory.
pub(crate) const ROOM: &str = "root";

/// Makes `root` the root of this process, upon an empty directory of the same file system that becomes its working
/// directory.
fn stand_on_empty(root: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(0o755);
    rustix::fs::mkdirat(root, "beneath", mode)?;
    rustix::fs::mkdirat(root, Path::new("beneath").join(ROOM), mode)?;
    let beneath = clone_tree_at(root, "beneath")?;
    set_attributes(beneath.as_fd(), PLAIN.and(Attributes::READ_ONLY).and(Attributes::NO_EXEC), None)?;
    // Always there too, and not the place that the template itself is at.
    attach(beneath.as_fd(), CWD, "/proc")?;
    attach_on(root, beneath.as_fd())?;
    change_root(beneath.as_fd())?;
    rustix::process::fchdir(root)?;
    rustix::process::chroot(".")?;
    rustix::process::fchdir(&beneath)?;
    Ok(beneath)
}

fn mount_namespace() -> io::Result<OwnedFd> {
    fs::File::open("/proc/self/ns/mnt").map(OwnedFd::from)
}

/// A detached, private, read-only copy of a host path.
fn source(path: &Path, device: bool) -> io::Result<OwnedFd> {
    let tree = clone_tree(path)?;
    // `nodev` on the bind of a device node would disable it.
    let attributes =
        if device { Attributes::NO_SUID.and(Attributes::NO_EXEC) } else { PLAIN.and(Attributes::READ_ONLY) };
    make_private(tree.as_fd(), attributes)?;
    Ok(tree)
}

fn etc_dirs() -> Vec<String> {
    let mut names: Vec<String> = ETC_DIRS.iter().map(|name| (*name).to_owned()).collect();
    let entries = fs::read_dir("/etc").into_iter().flatten().flatten();
    // Java and Python keep what they cannot start without in versioned directories.
    names.extend(
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("java-") || name.starts_with("python3")),
    );
    names
}

/// Builds the directories that the module's picture shows, and returns what each room attaches.
fn lay_out(
    sources: Vec<(PathBuf, OwnedFd)>,
    devices: Vec<(&str, OwnedFd)>,
    proc: OwnedFd,
) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    for dir in ["proc", "skeleton", "source/etc", "source/dev", "upper", "lower", "places", ROOM] {
        fs::create_dir_all(Path::new("/").join(dir))?;
    }
    attach(proc.as_fd(), CWD, "/proc")?;
    let mut binds = Vec::new();
    for (name, tree) in sources {
        let from = Path::new("/source").join(&name);
        fs::create_dir_all(&from)?;
        attach(tree.as_fd(), CWD, &from)?;
        binds.push((from, name));
    }
    // One read-only tree with the devices in it: a room attaches all of /dev in one call.
    let dev = clone_tree("/source/dev")?;
    attach(dev.as_fd(), CWD, "/source/dev")?;
    for (name, tree) in devices {
        let at = Path::new("/source/dev").join(name);
        fs::write(&at, "")?;
        attach(tree.as_fd(), CWD, &at)?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, Path::new("/source/dev").join(name))?;
    }
    fs::create_dir("/source/dev/pts")?;
    fs::create_dir("/source/dev/shm")?;
    // Read-only binds of devices still take writes.
    set_attributes(dev.as_fd(), Attributes::READ_ONLY.and(Attributes::NO_EXEC), None)?;
    binds.push(("/source/dev".into(), "dev".into()));

    // What masked files and directories of /proc look like.
    fs::create_dir("/source/empty")?;
    fs::write("/source/empty/file", "")?;
    fs::set_permissions("/source/empty/file", fs::Permissions::from_mode(0o444))?;
    fs::create_dir("/source/empty/directory")?;
    let empty = clone_tree("/source/empty")?;
    attach(empty.as_fd(), CWD, "/source/empty")?;
    set_attributes(empty.as_fd(), PLAIN.and(Attributes::READ_ONLY).and(Attributes::NO_EXEC), None)?;
    Ok(binds)
}

/// Without privileges: a user namespace in which we may mount, with no id but our own.
fn enter_own_user_namespace() -> Result<(), RoomError> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(Namespaces::USER.and(Namespaces::MOUNT)).during("user namespace")?;
    let proc = directory("/proc/self").during("open /proc")?;
    write_own_maps(proc.as_fd(), (uid, uid), (gid, gid)).during("map ids")
}

/// Maps one uid and one gid: (inside, outside) each.
pub(crate) fn write_own_maps(proc_self: BorrowedFd<'_>, uid: (u32, u32), gid: (u32, u32)) -> io::Result<()> {
    use workroom_sys::namespace::write_at;
    write_at(proc_self, "setgroups", "deny")?;
    write_at(proc_self, "uid_map", &format!("{} {} 1", uid.0, uid.1))?;
    write_at(proc_self, "gid_map", &format!("{} {} 1", gid.0, gid.1))
}

/// Checks a host directory that a caller names, as the caller.
pub fn check_host_mount(mount: &HostMount) -> Result<(), RoomError> {
    if !mount.target.is_absolute() || mount.target.components().any(|part| part.as_os_str() == "..") {
        return Err(RoomError::invalid(
            format!("the place {} in the room is not an absolute path", mount.target.display()),
            "write it like --ro /opt/tools:/opt/tools",
        ));
    }
    let first = mount.target.components().nth(1);
    let taken =
        ["proc", "sys", "dev", "usr", "etc", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "workspace"];
    if first.is_none_or(|first| taken.iter().any(|name| first.as_os_str() == *name)) {
        return Err(RoomError::invalid(
            format!("{} in the room is the room's own", mount.target.display()),
            "choose a place such as /opt/NAME",
        ));
    }
    Ok(())
}
