//! Directories of the host in a room: the workspace, and what is shown read-only.

use super::{Builder, Made};
use crate::binds::{guard, refused};
use crate::identity::UidRange;
use crate::mounts::{Attributes, attach_on, in_room, set_attributes};
use crate::step::During;
use crate::template::Wanted;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::process::{Gid, Uid};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use workroom_sys::namespace::new_user_namespace;
use workroom_sys::place::make_place;
use workroom_types::{ErrorCode, RoomError, RoomSpec, RoomUser};

/// Directories of the host that a room has copies of: the layer that it writes to first, then those below it and the
/// workspace.
pub(crate) fn host_paths(spec: &RoomSpec) -> Vec<Wanted> {
    let layer = spec.layer.iter().filter(|_| !spec.in_memory).cloned().map(Wanted::Layer);
    let uppermost = spec.layer.iter().filter(|_| spec.in_memory);
    let lowers = spec.lowers.iter().chain(uppermost).cloned().map(Wanted::Files);
    let of = |workspace: &workroom_types::Workspace| {
        Wanted::Directory(workspace.source.clone(), workspace.read_only)
    };
    let workspace = spec.workspace.iter().map(of);
    let mounts = spec.mounts.iter().map(|mount| Wanted::Directory(mount.source.clone(), true));
    layer.chain(lowers).chain(workspace).chain(mounts).collect()
}

pub(super) fn take_host_directories(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    builder.host_trees = builder.template.take(&host_paths(builder.spec))?;
    builder.bind_trees = crate::binds::take(builder.template, &builder.spec.binds)?;
    tell_layers_apart(builder, made)
}

pub(super) fn tell_layers_apart(builder: &mut Builder<'_>, _: &mut Made) -> Result<(), RoomError> {
    let spec = builder.spec;
    let writes_to_layer = spec.layer.is_some() && !spec.in_memory;
    builder.layer = writes_to_layer.then(|| builder.host_trees.remove(0));
    let lowers = spec.lowers.len() + usize::from(spec.layer.is_some() && spec.in_memory);
    builder.lowers = builder.host_trees.drain(..lowers).collect();
    Ok(())
}

pub(super) fn bind_host_directories(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    let root = made.root()?;
    let spec = builder.spec;
    let mut trees = std::mem::take(&mut builder.host_trees).into_iter();
    if let (Some(workspace), Some(tree)) =
        (&spec.workspace, spec.workspace.as_ref().and_then(|_| trees.next()))
    {
        if let Some(range) = &builder.range {
            map_owner(range.base, made.proc()?.as_fd(), &tree, spec.user.id()).or_else(|error| {
                // Without a map the directory is seen as a stranger would see it, which suffices for reading.
                if workspace.read_only { Ok(()) } else { Err(error) }
            })?;
        }
        builder.attach(tree.as_fd(), root.as_fd(), Path::new("workspace")).during("/workspace")?;
    } else if let (Some(range), RoomUser::Root) = (&builder.range, spec.user) {
        // Some programs work only in what is their user's own.
        let (uid, gid) = (Uid::from_raw(range.base), Gid::from_raw(range.base));
        rustix::fs::chownat(&root, "workspace", Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .during("/workspace")?;
    }
    for (mount, tree) in spec.mounts.iter().zip(trees) {
        let step = format!("mount {}", mount.target.display());
        let target = mount.target.strip_prefix("/").unwrap_or(&mount.target);
        open_way(&root, target).during(&step)?;
        let place = make_mount_point(&root, target, &tree).during(&step)?;
        attach_on(tree.as_fd(), place.as_fd()).during(&step)?;
    }
    Ok(())
}

/// The directories that the operator grants, each with what is protected in it. Their places are there: the lowest
/// layer has them.
pub(super) fn bind_granted_directories(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    let root = made.root()?;
    let spec = builder.spec;
    let trees = std::mem::take(&mut builder.bind_trees);
    for (bind, tree) in spec.binds.iter().zip(trees) {
        if let Some(range) = &builder.range {
            map_owner(range.base, made.proc()?.as_fd(), &tree, spec.user.id())
                .or_else(|error| if bind.read_only { Ok(()) } else { Err(error) })?;
        }
        let owner = builder.range.as_ref().map(|range| range.base + spec.user.id());
        let attached = make_place(root.as_fd(), &bind.target, |_| owner.map(|id| (id, id)))
            .and_then(|place| attach_on(tree.as_fd(), place.as_fd()))
            .and_then(|()| guard(tree.as_fd(), bind));
        attached.map_err(|error| refused(bind, &error))?;
    }
    Ok(())
}

/// Shows the host directory's owner as the room's user, so that files keep sane owners on both sides. `base`: the first
/// of the room's ids.
pub(crate) fn map_owner(
    base: u32,
    proc: BorrowedFd<'_>,
    tree: &OwnedFd,
    inside: u32,
) -> Result<(), RoomError> {
    let stat = rustix::fs::fstat(tree).during("map the owner of a host directory")?;
    let uid_map = UidRange::owner_map(base, stat.st_uid, inside);
    let gid_map = UidRange::owner_map(base, stat.st_gid, inside);
    let namespace = new_user_namespace(proc, base, &uid_map, &gid_map).during("user namespace")?;
    set_attributes(tree.as_fd(), Attributes::NONE, Some(namespace.as_fd())).map_err(|error| {
        RoomError::new(
            ErrorCode::RoomSetup,
            format!("the file system of a host directory does not allow mapped ids: {error}"),
            "use a directory on ext4, xfs, btrfs or tmpfs, or mount it read-only",
        )
    })
}

/// What is shown below root's home is shown to whoever the room's user is: the way to it is open, and the rest is not.
fn open_way(root: &OwnedFd, target: &Path) -> std::io::Result<()> {
    const HOME: &str = "root";
    if !target.strip_prefix(HOME).is_ok_and(|below| !below.as_os_str().is_empty()) {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(root, HOME, flags, Mode::empty()) {
        Ok(home) => {
            let mode = rustix::fs::fstat(&home)?.st_mode & 0o7777;
            Ok(rustix::fs::fchmod(&home, Mode::from_raw_mode(mode | 0o011))?)
        }
        // A durable room's own commands may have put something else there.
        Err(_) => Ok(()),
    }
}

/// Makes an empty directory, or an empty file for a file, for a mount to cover. In a durable room the tree is as its
/// commands left it: each step is taken from a descriptor of the one before, and over no link.
fn make_mount_point(root: &OwnedFd, target: &Path, tree: &OwnedFd) -> std::io::Result<OwnedFd> {
    let is_dir = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(tree)?.st_mode).is_dir();
    let mut at = root.try_clone()?;
    let mut parts = target.components().peekable();
    while let Some(part) = parts.next() {
        let name = part.as_os_str();
        let made = if parts.peek().is_some() || is_dir {
            rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755))
        } else {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&at, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        };
        match made {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        at = in_room(at.as_fd(), Path::new(name))?;
    }
    Ok(at)
}
