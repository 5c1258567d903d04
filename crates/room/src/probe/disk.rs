//! What the state directory's file system offers to sessions whose disk is limited.

use super::{Fact, fact};
use crate::identity::Privilege;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use workroom_sys::btrfs::{self, Quotas};
use workroom_sys::project_quota;

/// What is told of images, which do without anything of the file system's.
const IMAGES: &str = "an ext4 image for each session with a limit";

/// `state`: where a server of this user has its state, or will have it.
pub(super) fn quota(state: &Path) -> Fact {
    if Privilege::detect() == Privilege::Rootless {
        let value =
            "memory for `run`; for sessions it is advisory: measured and told, and nothing is refused";
        return fact("quota", value, false, "run the server as root to have limits that hold");
    }
    let Ok(dir) = nearest(state) else {
        return fact(
            "quota",
            format!("{} cannot be opened", state.display()),
            false,
            "look at its directories",
        );
    };
    if has_projects(&dir) {
        return fact("quota", "project quota, for bytes and files of each session with a limit", true, "");
    }
    let quotas = btrfs::quotas(dir.as_fd());
    let instead = match quotas {
        Ok(Quotas::On) => {
            let value = "a btrfs subvolume with a quota for each session with a limit; where files are counted, or \
                         a snapshot lies beneath, an ext4 image";
            return fact("quota", value, true, "");
        }
        Ok(Quotas::Off) => "subvolumes do without images once quotas are on: btrfs quota enable --simple",
        Ok(Quotas::Inconsistent) => {
            "subvolumes do without images once quotas are counted anew: btrfs quota rescan"
        }
        Err(_) => match rustix::fs::fstatfs(&dir).map(|stat| stat.f_type as u64) {
            Ok(EXT4) => {
                "project quota does without images: tune2fs -O project -Q prjquota, and mount with prjquota"
            }
            Ok(XFS) => "project quota does without images: mount with prjquota",
            _ => "",
        },
    };
    match workroom_layers::can_mount_images(&std::env::temp_dir()) {
        Ok(()) if instead.is_empty() => fact("quota", IMAGES, true, ""),
        Ok(()) => fact("quota", format!("{IMAGES}; {instead}"), true, ""),
        Err(error) => {
            let value = format!("advisory for sessions: an ext4 image cannot be mounted: {error}");
            fact(
                "quota",
                value,
                false,
                "modprobe loop ext4, or switch on the quotas of the state directory's file system",
            )
        }
    }
}

const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;

/// A directory, or the first above it that is there.
fn nearest(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for dir in path.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
        match rustix::fs::open(dir, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => {}
            other => return Ok(other?),
        }
    }
    Ok(rustix::fs::open(".", flags, Mode::empty())?)
}

/// Whether the kernel keeps account of projects there.
fn has_projects(dir: &OwnedFd) -> bool {
    match project_quota::project_usage(dir.as_fd(), 0) {
        Ok(_) => true,
        // It does, and has seen none of this number.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}
