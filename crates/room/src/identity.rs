//! Who a room is on the host: a uid range of its own where we may give one, the caller's uid elsewhere.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use workroom_types::LAYER_ID;

/// Ids in a room's range.
const RANGE: u32 = 65536;

/// Where ranges begin: above what distributions, directory services and systemd give to users and containers.
const FIRST: u32 = 0x8000_0000;
const COUNT: u32 = 0x6fff;

/// Where claims are made; only root can open what is in it.
const CLAIMS_DIR: &str = "/run/workroom";

/// The book of claims: a file of which every room locks one byte.
///
/// A lock is gone with the last process that holds its descriptor, so a killed room never leaves a claim behind.
pub(crate) struct UidRanges {
    file: OwnedFd,
}

/// A range that no other room on this machine has, for as long as `lock` is open anywhere.
#[derive(Debug)]
pub(crate) struct UidRange {
    pub(crate) base: u32,
    pub(crate) lock: OwnedFd,
}

impl UidRanges {
    /// Opens the book, while the machine's file system is still in sight.
    pub(crate) fn open() -> io::Result<UidRanges> {
        match rustix::fs::mkdir(CLAIMS_DIR, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::open(CLAIMS_DIR, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&dir)?;
        if stat.st_uid != 0 || stat.st_mode & 0o022 != 0 {
            return Err(io::Error::other(format!("{CLAIMS_DIR} can be changed by others than root")));
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(UidRanges { file: rustix::fs::openat(&dir, "uid-ranges", flags, Mode::from_raw_mode(0o600))? })
    }

    /// Claims a free range. Starting at a random place keeps two spawners from racing down the same list.
    pub(crate) fn claim(&self) -> io::Result<UidRange> {
        // Locks belong to an opening of the file, and this one becomes the room's.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let lock = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let start = random_u32()? % COUNT;
        for step in 0..COUNT {
            let index = (start + step) % COUNT;
            if workroom_sys::lock::try_lock_byte(lock.as_fd(), index.into())? {
                return Ok(UidRange { base: FIRST + index * RANGE, lock });
            }
        }
        Err(io::Error::other("every uid range is in use"))
    }
}

impl UidRange {
    /// The map of the room's user namespace: root and all of the range, nothing of the host's.
    pub(crate) fn map(&self) -> String {
        format!("0 {} {RANGE}", self.base)
    }

    /// The map of a mount whose files have ids that are the same for every room. The one more is for what the overlay
    /// does there as the machine's root.
    pub(crate) fn layer_map(&self) -> String {
        format!("{LAYER_ID} {} {RANGE}\n{} 0 1", self.base, LAYER_ID + RANGE)
    }

    /// A map that shows files of `owner` as files of the room's `inside`, and creates them as such.
    pub(crate) fn owner_map(base: u32, owner: u32, inside: u32) -> String {
        format!("{owner} {} 1", base + inside)
    }
}

pub(crate) fn random_u32() -> io::Result<u32> {
    let mut bytes = [0u8; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(bytes))
}

/// What this process may do for the rooms it builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// May map any id and mount anywhere: rooms get ranges of their own.
    Root,
    /// Has only its own uid: rooms are that uid, in a user namespace.
    Rootless,
}

impl Privilege {
    /// Root means: the capabilities, and a user namespace in which all ids exist.
    pub fn detect() -> Privilege {
        use rustix::thread::CapabilitySet as Cap;
        let needed =
            Cap::SYS_ADMIN | Cap::SETUID | Cap::SETGID | Cap::CHOWN | Cap::DAC_OVERRIDE | Cap::NET_ADMIN;
        let capable = rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
        let all_ids = std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| {
            map.lines().any(|line| {
                let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().unwrap_or(0));
                let (inside, _, count) = (fields.next(), fields.next(), fields.next());
                inside == Some(0)
                    && count
                        .is_some_and(|count| count > u64::from(FIRST) + u64::from(COUNT) * u64::from(RANGE))
            })
        });
        if capable && all_ids { Privilege::Root } else { Privilege::Rootless }
    }
}
