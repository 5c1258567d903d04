//! The place of a session's secrets: memory of the room's own, which no layer ever has.
//!
//! A file system more is more than it seems: the kernel keeps a slot for each in every memory cgroup of the machine. Where root makes
//! rooms, those that are given no secrets as files have none, and a room that runs gets one when it is given some.

use super::{Builder, Made, is_elsewhere};
use crate::identity::Privilege;
use crate::mounts::{FsOption, attach_on, directory_in_room, in_directory, make};
use crate::step::During;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountAttrFlags, UnmountFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use workroom_sys::place::identity;
use workroom_types::{Lifetime, RoomError};

/// Where it is. `/run/secrets` of the skeleton leads into it: so the guest can put one directory in the place of another.
const PLACE: &str = "run/.secrets";

/// Two sets at once: one is written before the other goes.
const SIZE: &str = "20m";
const INODES: &str = "2048";

/// Only rooms of sessions have secrets.
pub(super) fn mount_secrets(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    let is_made_later = builder.privilege == Privilege::Root && !builder.spec.secret_files;
    if builder.spec.lifetime != Lifetime::Durable || is_made_later {
        return Ok(());
    }
    let owner = builder.range.as_ref().map(|range| range.base);
    match mount_in(made.root()?.as_fd(), owner) {
        Ok(place) => made.secrets = Some(place),
        // The room's root has changed its own /run: it has no secrets as files, and whoever gives it some is told.
        Err(error) if is_elsewhere(&error) => {}
        Err(error) => return Err(error).during("/run/secrets"),
    }
    Ok(())
}

/// Makes it in a room's tree; answers its root directory. As root this is made with ids of the machine: `owner` is the first of the
/// room's, which the guest has.
pub(crate) fn mount_in(root: BorrowedFd<'_>, owner: Option<u32>) -> io::Result<OwnedFd> {
    let owner = owner.map(|owner| owner.to_string());
    let mut options =
        vec![FsOption::Set("size", SIZE), FsOption::Set("nr_inodes", INODES), FsOption::Set("mode", "0755")];
    if let Some(owner) = &owner {
        options.extend([FsOption::Set("uid", owner), FsOption::Set("gid", owner)]);
    }
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = make("tmpfs", &options, quiet)?;
    let place = Path::new(PLACE);
    attach_on(mount.as_fd(), directory_in_room(root, place)?.as_fd())?;
    // The root of a room that runs may have moved the place between the two, but does not move what is mounted.
    let found = directory_in_room(root, place).and_then(|found| identity(found.as_fd()));
    if !matches!(found, Ok(found) if found == identity(mount.as_fd())?) {
        in_directory(mount.as_fd(), || Ok(rustix::mount::unmount(".", UnmountFlags::DETACH)?))?;
        return Err(io::Error::other("the room's root has moved the place while it was mounted"));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&mount, ".", flags, Mode::empty())?)
}
