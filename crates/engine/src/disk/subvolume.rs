//! Layers that are subvolumes of btrfs, each with a limit on its quota group.
//!
//! A subvolume numbers its files by itself, and an overlay passes the numbers of all that is on one file system on as
//! they are. In a stack with two subvolumes, or with one and a plain directory, different files would seem to be the
//! same one, and `cp` refuses to copy one over the other. So a subvolume is the top of a stack with nothing beneath it,
//! and is never frozen: whoever wants it frozen has it copied ([`super::kind_of`] tells).

use super::{open, trial};
use rustix::fs::Mode;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use workroom_sys::btrfs::{self, Quotas};

/// What the kernel needs to mount a layer that is full: btrfs refuses it to root too.
const TO_MOUNT: u64 = 4 << 20;

/// The subvolume that a layer is.
pub(super) fn of(layer: &Path) -> Option<u64> {
    open(layer).and_then(|dir| btrfs::subvolume_at(dir.as_fd())).ok().flatten()
}

/// Makes a layer's directory: a subvolume that is closed to others.
pub(super) fn make(layer: &Path) -> io::Result<()> {
    let name = layer.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    btrfs::make_subvolume(above(layer)?.as_fd(), &CString::new(name.as_bytes())?)?;
    Ok(rustix::fs::chmod(layer, Mode::RWXU)?)
}

/// Sets the limit of a subvolume, or takes it away. Said from outside: whoever says it from a subvolume that is full needs
/// space in that.
pub(super) fn set(layer: &Path, subvolume: u64, bytes: Option<u64>) -> io::Result<()> {
    btrfs::limit_subvolume(above(layer)?.as_fd(), subvolume, bytes)
}

fn above(layer: &Path) -> io::Result<OwnedFd> {
    open(layer.parent().ok_or(io::ErrorKind::InvalidFilename)?)
}

/// The same with what it takes to mount a layer that is full.
pub(super) fn set_for_mounting(layer: &Path, subvolume: u64, bytes: u64) -> io::Result<()> {
    set(layer, subvolume, Some(bytes.max(usage(layer, subvolume)? + TO_MOUNT)))
}

pub(super) fn usage(layer: &Path, subvolume: u64) -> io::Result<u64> {
    btrfs::subvolume_usage(open(layer)?.as_fd(), subvolume)
}

/// Whether the quotas of the file system that a place is on, or will be, hold anybody back now. An operator may switch them
/// off; and where they are inconsistent the kernel lets everything pass.
pub(super) fn are_counted(place: &Path) -> io::Result<()> {
    match btrfs::quotas(above(place)?.as_fd())? {
        Quotas::On => Ok(()),
        Quotas::Off => Err(io::Error::other("quotas are not switched on")),
        Quotas::Inconsistent => {
            Err(io::Error::other("quotas are inconsistent, and hold once `btrfs quota rescan` has ended"))
        }
    }
}

/// Whether a subvolume's limit holds in a place that is not there yet, and what is used of it can be told. Quotas are
/// switched on by nobody but the operator.
pub(super) fn try_here(place: &Path) -> io::Result<()> {
    are_counted(place)?;
    trial::in_passing(place, make, |place| {
        let subvolume = of(place).ok_or_else(|| io::Error::other("what was made is no subvolume"))?;
        let most = 1 << 20;
        set(place, subvolume, Some(most))?;
        trial::write_beyond(place, 4 << 20)?;
        match usage(place, subvolume)? {
            0 => Err(io::Error::other("what a subvolume uses is not counted")),
            _ => set(place, subvolume, None),
        }
    })
}
