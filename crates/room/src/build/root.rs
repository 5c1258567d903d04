//! The root file system of a room: an overlay.

use super::{Builder, LEFT_OUT, Made};
use crate::identity::Privilege;
use crate::mounts::{Attributes, FsOption, attach, clone_tree, make, make_overlay, set_attributes};
use crate::step::During;
use crate::template::ROOM;
use rustix::fs::{AtFlags, CWD, Mode, unlinkat};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::process::{Gid, Uid};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use workroom_sys::namespace::new_user_namespace;
use workroom_types::{AGENT_ID, DISK_IN_MEMORY, ErrorCode, Layer, RoomError};

/// One overlay: the skeleton below, then the layers that the room goes on from, and above them what it writes: a
/// directory of the host's, or a file system in memory that is as large as the disk limit.
pub(super) fn mount_root(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    let step = "root file system";
    builder.template.skeleton.wait().during("skeleton")?;
    let plain = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let (layer, lowers) = (builder.layer.take(), std::mem::take(&mut builder.lowers));
    map_ids(builder, made, lowers.iter().chain(&layer))?;
    let mut stack = attach_lowers(lowers)?;
    let is_volatile = builder.spec.volatile && layer.is_some();
    let upper = match layer {
        Some(layer) => attach_layer(builder, made, layer)?,
        None => attach_memory(builder, made)?,
    };
    let mut lowest = "/skeleton";
    if let (Some(_), Some(user_namespace)) = (&builder.range, &made.user_namespace) {
        // The skeleton is written with the ids that the room sees; for this room they are of its range.
        let mapped = clone_tree("/skeleton").during(step)?;
        set_attributes(mapped.as_fd(), Attributes::NONE, Some(user_namespace.as_fd()))
            .during("idmapped mount")?;
        attach(mapped.as_fd(), CWD, "/lower").during(step)?;
        lowest = "/lower";
    }
    stack.extend(attach_places(builder)?);
    stack.push(lowest.to_owned());
    let mut options = vec![FsOption::Set("upperdir", upper), FsOption::Set("workdir", "/upper/work")];
    match builder.privilege {
        // A file whose permissions change is copied whole, whatever the kernel's default: a layer stands for itself.
        Privilege::Root => {
            options.extend([FsOption::Set("redirect_dir", "on"), FsOption::Set("metacopy", "off")]);
        }
        Privilege::Rootless => options.push(FsOption::Flag("userxattr")),
    }
    if is_volatile {
        forget_volatile().during(step)?;
        options.push(FsOption::Flag("volatile"));
    }
    let root = make_overlay(&stack, &options, plain).during("overlay")?;
    attach(root.as_fd(), CWD, ROOM).during(step)?;
    made.root = Some(root);
    Ok(())
}

/// An overlay that was mounted so is mounted again only if somebody says that the machine has not crashed meanwhile, by
/// taking this mark away. Whoever asks for such a room sees to that.
fn forget_volatile() -> Result<(), Errno> {
    let mark = "/upper/work/work/incompat/volatile";
    for (path, kind) in [(&*format!("{mark}/dirty"), AtFlags::empty()), (mark, AtFlags::REMOVEDIR)] {
        match unlinkat(CWD, path, kind) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A layer with the places of granted directories and nothing else, so that none of them counts as something that the
/// room has made.
fn attach_places(builder: &Builder<'_>) -> Result<Option<String>, RoomError> {
    let step = "places of host directories";
    if builder.spec.binds.is_empty() {
        return Ok(None);
    }
    let options = [FsOption::Set("size", "1m"), FsOption::Set("mode", "755")];
    let plain = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let layer = make("tmpfs", &options, plain).during(step)?;
    attach(layer.as_fd(), CWD, "/places").during(step)?;
    let base = builder.range.as_ref().map(|range| range.base);
    let own = |path: &Path, (uid, gid): (u32, u32)| match base {
        Some(base) => {
            let (uid, gid) = (Uid::from_raw(base + uid), Gid::from_raw(base + gid));
            rustix::fs::chownat(&layer, path, Some(uid), Some(gid), AtFlags::empty())
        }
        None => Ok(()),
    };
    own(Path::new("."), (0, 0)).during(step)?;
    for bind in &builder.spec.binds {
        let mut path = PathBuf::new();
        for part in bind.target.components() {
            let std::path::Component::Normal(name) = part else { continue };
            path.push(name);
            // A directory of two layers has the look of the upper one.
            let below = rustix::fs::stat(Path::new("/skeleton").join(&path)).ok();
            let mode = below.as_ref().map_or(0o755, |stat| stat.st_mode & 0o7777);
            match rustix::fs::mkdirat(&layer, &path, Mode::empty()) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error).during(step),
            }
            let in_workspace = path.starts_with("workspace");
            let id = if in_workspace { AGENT_ID } else { 0 };
            own(&path, below.map_or((id, id), |stat| (stat.st_uid, stat.st_gid))).during(step)?;
            rustix::fs::chmodat(&layer, &path, Mode::from_raw_mode(mode), AtFlags::empty()).during(step)?;
        }
    }
    Ok(Some("/places".into()))
}

fn attach_memory(builder: &Builder<'_>, made: &mut Made) -> Result<&'static str, RoomError> {
    let step = "root file system";
    let limited = builder.has(Layer::Disk);
    let disk = builder.spec.limits.disk;
    let size = if limited { disk } else { 0 };
    // A file takes at least a page or an inode; neither can be used up before the other's share.
    let inodes = match builder.spec.limits.inodes {
        _ if !limited => 0,
        0 => (disk / 4096).max(1024),
        asked => asked,
    };
    let (size, inodes) = (size.to_string(), inodes.to_string());
    let options =
        [FsOption::Set("size", &size), FsOption::Set("nr_inodes", &inodes), FsOption::Set("mode", "755")];
    let plain = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let upper = make("tmpfs", &options, plain).during(step)?;
    attach(upper.as_fd(), CWD, "/upper").during(step)?;
    for dir in ["upper", "work"] {
        rustix::fs::mkdirat(&upper, dir, Mode::from_raw_mode(0o755)).during(step)?;
    }
    if let Some(range) = &builder.range {
        let (uid, gid) = (Uid::from_raw(range.base), Gid::from_raw(range.base));
        rustix::fs::chownat(&upper, "upper", Some(uid), Some(gid), AtFlags::empty()).during(step)?;
    }
    if limited {
        made.holds(Layer::Disk, DISK_IN_MEMORY);
    } else {
        made.lacks(Layer::Disk, LEFT_OUT);
    }
    Ok("/upper/upper")
}

/// Files are stored with the ids that the room sees, so that any room with any range can go on with them.
fn map_ids<'a>(
    builder: &Builder<'_>,
    made: &mut Made,
    layers: impl Iterator<Item = &'a OwnedFd>,
) -> Result<(), RoomError> {
    let mut layers = layers.peekable();
    if let (Some(range), Some(_)) = (&builder.range, layers.peek()) {
        let map = range.layer_map();
        let proc = made.proc()?;
        let namespace = new_user_namespace(proc.as_fd(), range.base, &map, &map).during("user namespace")?;
        for layer in layers {
            set_attributes(layer.as_fd(), Attributes::NONE, Some(namespace.as_fd())).map_err(|error| {
                RoomError::new(
                    ErrorCode::RoomSetup,
                    format!("the file system of the state directory does not allow mapped ids: {error}"),
                    "put the state directory on ext4, xfs, btrfs or tmpfs",
                )
            })?;
        }
    }
    Ok(())
}

/// Answers where they are, the uppermost first.
fn attach_lowers(lowers: Vec<OwnedFd>) -> Result<Vec<String>, RoomError> {
    let mut stack = Vec::with_capacity(lowers.len());
    for (number, lower) in lowers.iter().enumerate().rev() {
        let place = format!("/layer{number}");
        // In the template's own file system, where an earlier room of as many layers has made it already.
        match rustix::fs::mkdir(&place, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error).during("root file system"),
        }
        attach(lower.as_fd(), CWD, &place).during("root file system")?;
        stack.push(place);
    }
    Ok(stack)
}

fn attach_layer(builder: &Builder<'_>, made: &mut Made, layer: OwnedFd) -> Result<&'static str, RoomError> {
    attach(layer.as_fd(), CWD, "/upper").during("root file system")?;
    match builder.spec.disk.clone() {
        Some(state) => made.enforced.set(Layer::Disk, state),
        None => made.lacks(Layer::Disk, "no limit was asked for"),
    }
    Ok("/upper/fs")
}
