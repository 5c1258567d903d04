//! Loop devices: a file as a disk, for as long as something uses it.

use crate::check;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;

/// The device lets go of its file when the last one who has it open, a mount included, lets go of the device: whoever
/// is killed leaves none behind.
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// How often another free device is asked for when somebody else was faster.
const MOST_TRIES: usize = 64;

#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// A loop device that is held open.
pub struct LoopDevice {
    pub number: u32,
    device: OwnedFd,
}

impl LoopDevice {
    /// Where it is, among the machine's devices.
    pub fn path(&self) -> PathBuf {
        path_of(self.number)
    }

    /// Makes a file the content of a free device.
    pub fn attach(file: BorrowedFd<'_>, block_size: u32) -> io::Result<LoopDevice> {
        let control = rustix::fs::open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        for _ in 0..MOST_TRIES {
            // SAFETY: the call takes no argument and answers a number.
            let free = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            let number = check(free.into())? as u32;
            let device = open(number)?;
            // SAFETY: `LoopConfig` is plain data; zeroes are valid.
            let mut config: LoopConfig = unsafe { std::mem::zeroed() };
            config.fd = file.as_raw_fd() as u32;
            config.block_size = block_size;
            config.info.flags = LO_FLAGS_AUTOCLEAR;
            // SAFETY: LOOP_CONFIGURE reads a `loop_config`, which `config` is; the descriptor in it is open.
            let set = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw mut config) };
            match check(set.into()) {
                Ok(_) => return Ok(LoopDevice { number, device }),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("other programs take every free loop device"))
    }

    /// The device of this number, if this file is its content now.
    pub fn of(number: u32, file: BorrowedFd<'_>) -> Option<LoopDevice> {
        let device = open(number).ok()?;
        // SAFETY: `LoopInfo64` is plain data; zeroes are valid.
        let mut info: LoopInfo64 = unsafe { std::mem::zeroed() };
        // SAFETY: LOOP_GET_STATUS64 writes a `loop_info64`, which `info` is.
        let got = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
        check(got.into()).ok()?;
        let stat = rustix::fs::fstat(file).ok()?;
        let is_it = info.inode == stat.st_ino && info.device == stat.st_dev;
        is_it.then_some(LoopDevice { number, device })
    }
}

impl std::fmt::Debug for LoopDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "loop{} ({})", self.number, self.device.as_raw_fd())
    }
}

fn path_of(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

fn open(number: u32) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path_of(number), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}
