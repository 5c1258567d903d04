//! The place of a session's secrets: memory of the room's own, which no layer ever has.

use super::{Builder, Made, is_elsewhere};
use crate::mounts::{FsOption, make};
use crate::step::During;
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountAttrFlags;
use std::os::fd::AsFd;
use std::path::Path;
use workroom_types::{Lifetime, RoomError};

/// Where it is. `/run/secrets` of the skeleton leads into it: so the guest can put one directory in the place of another.
const PLACE: &str = "run/.secrets";

/// Two sets at once: one is written before the other goes.
const SIZE: &str = "20m";
const INODES: &str = "2048";

/// Only rooms of sessions have secrets.
pub(super) fn mount_secrets(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    if builder.spec.lifetime != Lifetime::Durable {
        return Ok(());
    }
    // As root this is made with ids of the machine; the guest is going to be the first of the room's own.
    let owner = builder.range.as_ref().map(|range| range.base.to_string());
    let mut options =
        vec![FsOption::Set("size", SIZE), FsOption::Set("nr_inodes", INODES), FsOption::Set("mode", "0755")];
    if let Some(owner) = &owner {
        options.extend([FsOption::Set("uid", owner), FsOption::Set("gid", owner)]);
    }
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = make("tmpfs", &options, quiet).during("/run/secrets")?;
    match builder.attach(mount.as_fd(), made.root()?.as_fd(), Path::new(PLACE)) {
        Ok(()) => {}
        // The room's root has changed its own /run: it has no secrets as files, and whoever gives it some is told.
        Err(error) if is_elsewhere(&error) => return Ok(()),
        refused => refused.during("/run/secrets")?,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    made.secrets = Some(rustix::fs::openat(&mount, ".", flags, Mode::empty()).during("/run/secrets")?);
    Ok(())
}
