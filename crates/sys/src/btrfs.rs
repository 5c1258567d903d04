//! Subvolumes of btrfs, and the quota group that each of them has where quotas are switched on.
//!
//! An empty subvolume goes with `rmdir`, like any directory, and the kernel forgets its group by itself. What a group
//! uses is read from `/sys`: the file system's own tree is as old as the last commit, up to half a minute, and knows
//! nothing of what is on its way to the disk, which the kernel counts against the limit all the same.

use crate::check;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

const BTRFS_IOC_SUBVOL_CREATE: libc::Ioctl = 0x5000_940e_u32 as libc::Ioctl;
const BTRFS_IOC_INO_LOOKUP: libc::Ioctl = 0xd000_9412_u32 as libc::Ioctl;
const BTRFS_IOC_FS_INFO: libc::Ioctl = 0x8400_941f_u32 as libc::Ioctl;
const BTRFS_IOC_QGROUP_LIMIT: libc::Ioctl = 0x8030_942b_u32 as libc::Ioctl;

/// The number of the directory that is the top of a subvolume, and of nothing else.
const TOP: u64 = 256;

/// The limit that is given is that on what is referenced.
const BTRFS_QGROUP_LIMIT_MAX_RFER: u64 = 1;
/// The value that takes a limit away.
const NO_LIMIT: u64 = u64::MAX;

#[repr(C)]
struct VolArgs {
    fd: i64,
    name: [u8; 4088],
}

#[repr(C)]
struct InoLookup {
    tree: u64,
    object: u64,
    name: [u8; 4080],
}

#[repr(C)]
struct FsInfo {
    max_id: u64,
    devices: u64,
    id: [u8; 16],
    rest: [u64; 124],
}

#[repr(C)]
struct QgroupLimit {
    group: u64,
    flags: u64,
    most_referenced: u64,
    most_exclusive: u64,
    reserved: [u64; 2],
}

const _: () = assert!(size_of::<VolArgs>() == 4096 && size_of::<InoLookup>() == 4096);
const _: () = assert!(size_of::<FsInfo>() == 1024 && size_of::<QgroupLimit>() == 48);

/// Makes an empty subvolume in a directory.
pub fn make_subvolume(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let mut arguments = VolArgs { fd: 0, name: [0; 4088] };
    let name = name.to_bytes();
    // The last byte stays the one that ends the name.
    let place = arguments.name[..4087].get_mut(..name.len()).ok_or(io::ErrorKind::InvalidFilename)?;
    place.copy_from_slice(name);
    // SAFETY: BTRFS_IOC_SUBVOL_CREATE reads a `btrfs_ioctl_vol_args`, which `arguments` is; its name ends with a zero.
    let made = unsafe { libc::ioctl(directory.as_raw_fd(), BTRFS_IOC_SUBVOL_CREATE, &raw mut arguments) };
    check(made.into()).map(drop)
}

/// The id of the subvolume that a directory is the top of; `None` if it is none's.
pub fn subvolume_at(directory: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    if rustix::fs::fstat(directory)?.st_ino != TOP {
        return Ok(None);
    }
    let mut arguments = InoLookup { tree: 0, object: TOP, name: [0; 4080] };
    // SAFETY: BTRFS_IOC_INO_LOOKUP reads and writes a `btrfs_ioctl_ino_lookup_args`, which `arguments` is.
    let found = unsafe { libc::ioctl(directory.as_raw_fd(), BTRFS_IOC_INO_LOOKUP, &raw mut arguments) };
    match check(found.into()) {
        Ok(_) => Ok(Some(arguments.tree)),
        // Another file system, whose numbers mean nothing.
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Limits how many bytes a subvolume of the file system that this is on may refer to, or takes its limit away. It takes
/// a little space in the subvolume that `on` is in.
pub fn limit_subvolume(on: BorrowedFd<'_>, subvolume: u64, bytes: Option<u64>) -> io::Result<()> {
    let mut arguments = QgroupLimit {
        group: subvolume,
        flags: BTRFS_QGROUP_LIMIT_MAX_RFER,
        most_referenced: bytes.unwrap_or(NO_LIMIT),
        most_exclusive: 0,
        reserved: [0; 2],
    };
    // SAFETY: BTRFS_IOC_QGROUP_LIMIT reads a `btrfs_ioctl_qgroup_limit_args`, which `arguments` is.
    let set = unsafe { libc::ioctl(on.as_raw_fd(), BTRFS_IOC_QGROUP_LIMIT, &raw mut arguments) };
    check(set.into()).map(drop)
}

/// The bytes of a subvolume that count against its limit now: what it refers to, and what is on its way to the disk.
pub fn subvolume_usage(on: BorrowedFd<'_>, subvolume: u64) -> io::Result<u64> {
    let group = quotas_of(on)?.join(format!("0_{subvolume}"));
    let mut used = 0;
    for part in ["referenced", "rsv_data", "rsv_meta_pertrans", "rsv_meta_prealloc"] {
        used += number(&std::fs::read_to_string(group.join(part))?)?;
    }
    Ok(used)
}

/// Quotas of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quotas {
    Off,
    On,
    /// On, and the kernel does not vouch for its numbers before all is counted anew.
    Inconsistent,
}

/// Whether the file system that this is on has its quotas switched on. An error if it is not btrfs.
pub fn quotas(on: BorrowedFd<'_>) -> io::Result<Quotas> {
    match std::fs::read_to_string(quotas_of(on)?.join("inconsistent")) {
        Ok(text) if number(&text)? == 0 => Ok(Quotas::On),
        Ok(_) => Ok(Quotas::Inconsistent),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Quotas::Off),
        Err(error) => Err(error),
    }
}

/// Where the kernel tells of the groups of the file system that this is on.
fn quotas_of(on: BorrowedFd<'_>) -> io::Result<PathBuf> {
    let mut info = FsInfo { max_id: 0, devices: 0, id: [0; 16], rest: [0; 124] };
    // SAFETY: BTRFS_IOC_FS_INFO reads and writes a `btrfs_ioctl_fs_info_args`, which `info` is.
    let got = unsafe { libc::ioctl(on.as_raw_fd(), BTRFS_IOC_FS_INFO, &raw mut info) };
    check(got.into())?;
    let mut id: String = info.id.iter().map(|byte| format!("{byte:02x}")).collect();
    for dash in [20, 16, 12, 8] {
        id.insert(dash, '-');
    }
    Ok(PathBuf::from(format!("/sys/fs/btrfs/{id}/qgroups")))
}

fn number(text: &str) -> io::Result<u64> {
    text.trim().parse().map_err(|_| io::Error::other(format!("\"{}\" is no number of bytes", text.trim())))
}
