//! Project quotas: a directory whose files, however they got there, are counted and limited together.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820_u32 as libc::Ioctl;
const FS_XFLAG_PROJINHERIT: u32 = 0x200;

const Q_GETQUOTA: u32 = 0x80_0007;
const Q_SETQUOTA: u32 = 0x80_0008;
const PRJQUOTA: u32 = 2;
/// Limits on blocks and on inodes are given.
const QIF_LIMITS: u32 = 1 | 4;
/// What the kernel counts limits on space in.
const UNIT: u64 = 1024;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FsXattr {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Dqblk {
    space_hard: u64,
    space_soft: u64,
    space: u64,
    inodes_hard: u64,
    inodes_soft: u64,
    inodes: u64,
    space_time: u64,
    inodes_time: u64,
    valid: u32,
}

/// What a project uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectUsage {
    pub bytes: u64,
    pub inodes: u64,
}

/// Makes an empty directory the top of a project: what is made in it belongs to that.
pub fn set_project(directory: BorrowedFd<'_>, project: u32) -> io::Result<()> {
    let mut attributes = FsXattr::default();
    // SAFETY: FS_IOC_FSGETXATTR writes an `fsxattr`, which `attributes` is.
    let got = unsafe { libc::ioctl(directory.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut attributes) };
    check(got.into())?;
    attributes.project = project;
    attributes.flags |= FS_XFLAG_PROJINHERIT;
    // SAFETY: FS_IOC_FSSETXATTR reads an `fsxattr`, which `attributes` is.
    let set = unsafe { libc::ioctl(directory.as_raw_fd(), FS_IOC_FSSETXATTR, &raw mut attributes) };
    check(set.into()).map(drop)
}

/// The project that a directory belongs to; 0 is none.
pub fn project_of(directory: BorrowedFd<'_>) -> io::Result<u32> {
    let mut attributes = FsXattr::default();
    // SAFETY: as above.
    let got = unsafe { libc::ioctl(directory.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut attributes) };
    check(got.into()).map(|_| attributes.project)
}

/// Limits a project on the file system that this is on; 0 is no limit.
pub fn limit_project(on: BorrowedFd<'_>, project: u32, bytes: u64, inodes: u64) -> io::Result<()> {
    let mut limits = Dqblk {
        space_hard: bytes.div_ceil(UNIT),
        inodes_hard: inodes,
        valid: QIF_LIMITS,
        ..Dqblk::default()
    };
    control(on, Q_SETQUOTA, project, &mut limits)
}

pub fn project_usage(on: BorrowedFd<'_>, project: u32) -> io::Result<ProjectUsage> {
    let mut usage = Dqblk::default();
    control(on, Q_GETQUOTA, project, &mut usage)?;
    Ok(ProjectUsage { bytes: usage.space, inodes: usage.inodes })
}

fn control(on: BorrowedFd<'_>, what: u32, project: u32, block: &mut Dqblk) -> io::Result<()> {
    let command = (what << 8 | PRJQUOTA) as libc::c_uint;
    // SAFETY: both commands read or write one `if_dqblk`, which `block` is, and nothing else.
    let done = unsafe {
        libc::syscall(libc::SYS_quotactl_fd, on.as_raw_fd(), command, project, std::ptr::from_mut(block))
    };
    check(done).map(drop)
}
