//! What is there only while a clerk works, or until it is known that the work succeeds.

use super::place::{Base, Last};
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};
use workroom_types::{Problem, ProblemCode, RoomPath};

/// A name that nobody has, hidden, and easy to tell should it ever be left behind.
pub(super) fn name() -> Result<CString, Errno> {
    let mut random = [0u8; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    CString::new(format!(".workroom-{:016x}", u64::from_ne_bytes(random))).map_err(|_| Errno::INVAL)
}

/// A file without a name in a directory, to be read and written.
pub(super) fn unnamed(dir: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    match openat(dir, c".", flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
        other => return other,
    }
    let name = name()?;
    let file = openat(dir, &name, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
    unlinkat(dir, &name, AtFlags::empty())?;
    Ok(file)
}

/// Directories that were made on the way to something. Dropped before they are kept, they are removed again, as far as
/// nothing is in them.
pub(super) struct NewDirectories<'a> {
    base: &'a Base,
    made: Vec<RoomPath>,
}

impl<'a> NewDirectories<'a> {
    pub(super) fn new(base: &'a Base) -> NewDirectories<'a> {
        NewDirectories { base, made: Vec::new() }
    }

    /// Remembers which directories above `path` are not there yet.
    pub(super) fn expect_above(&mut self, path: &RoomPath) {
        for (end, _) in path.bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            self.expect(&RoomPath { root: path.root, bytes: path.bytes[..end].to_vec() });
        }
    }

    /// Remembers `path` if it is not there yet.
    pub(super) fn expect(&mut self, path: &RoomPath) {
        let missing = |problem: Problem| problem.code == ProblemCode::NotFound;
        if self.base.open(path, Last::Follow).is_err_and(missing) {
            self.made.push(path.clone());
        }
    }

    pub(super) fn keep(&mut self) {
        self.made.clear();
    }
}

impl Drop for NewDirectories<'_> {
    fn drop(&mut self) {
        for made in self.made.iter().rev() {
            if let Ok(spot) = self.base.spot(made, Last::Stay) {
                let _ = unlinkat(&spot.dir, &spot.name, AtFlags::REMOVEDIR);
            }
        }
    }
}
