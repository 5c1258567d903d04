//! Who a room is on the host: a uid range of its own where we may give one, the caller's uid elsewhere.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;

/// Ids in a room's range.
const RANGE: u32 = 65536;

/// Where ranges begin: above what distributions and systemd give to users and containers.
const FIRST: u32 = 0x7000_0000;
const COUNT: u32 = 0x7fff;

/// A range that no other room on this machine has, for as long as `lock` is open anywhere.
///
/// The claim is an abstract socket name of the host's network namespace: atomic, and gone with the last
/// process that holds it, so a killed room never leaves a claim behind.
#[derive(Debug)]
pub(crate) struct UidRange {
    pub(crate) base: u32,
    pub(crate) lock: OwnedFd,
}

impl UidRange {
    /// Claims a free range. Starting at a random place keeps two spawners from racing down the same list.
    pub(crate) fn claim() -> io::Result<UidRange> {
        let start = random_u32()? % COUNT;
        for step in 0..COUNT {
            let index = (start + step) % COUNT;
            let name = format!("workroom/uid-range/{index}");
            let lock =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
            match rustix::net::bind(&lock, &SocketAddrUnix::new_abstract_name(name.as_bytes())?) {
                Ok(()) => return Ok(UidRange { base: FIRST + index * RANGE, lock }),
                Err(Errno::ADDRINUSE) => continue,
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::other("every uid range is in use"))
    }

    /// The map of the room's user namespace: root and all of the range, nothing of the host's.
    pub(crate) fn map(&self) -> String {
        format!("0 {} {RANGE}", self.base)
    }

    /// A map that shows files of `owner` as files of the room's `inside`, and creates them as such.
    pub(crate) fn owner_map(&self, owner: u32, inside: u32) -> String {
        format!("{owner} {} 1", self.base + inside)
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
                inside == Some(0) && count.is_some_and(|count| count > u64::from(FIRST) + 0x7fff_0000)
            })
        });
        if capable && all_ids { Privilege::Root } else { Privilege::Rootless }
    }
}
