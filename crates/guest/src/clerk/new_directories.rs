//! Directories that are made on the way to something, and are taken back if it fails.

use super::place::{Base, Last};
use rustix::fs::{AtFlags, unlinkat};
use workroom_types::{Problem, ProblemCode, RoomPath};

/// Dropped before they are kept, they are removed again, as far as nothing is in them.
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
