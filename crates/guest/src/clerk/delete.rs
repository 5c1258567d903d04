//! Deleting: any depth, any modes, and no link followed.

use super::failure::{busy, problem, quoted, wrong_kind};
use super::place::{Base, DIRECTORY, Last, is_directory};
use super::walk::{Done, Entry, Next, Order, Visitor, walk};
use rustix::fs::{AtFlags, Mode, openat, unlinkat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use workroom_sys::place::is_mount_root;
use workroom_types::{Problem, ProblemCode, RoomPath};

/// How often a directory is looked into again that is not empty when it should be.
const MOST_LOOKS: u32 = 16;

/// Deletes what a path names and says how much that was. What is not there is deleted already.
pub(crate) fn delete(base: &Base, path: &RoomPath, recursive: bool) -> Result<u64, Problem> {
    if path.is_top() {
        let top = if path.root { "the room's root directory" } else { "the workspace itself" };
        return Err(Problem::invalid(
            format!("{top} cannot be deleted"),
            "delete what is in it, or the session",
        ));
    }
    let spot = match base.spot(path, Last::Stay) {
        Err(problem) if problem.code == ProblemCode::NotFound => return Ok(0),
        other => other?,
    };
    let Some(stat) = spot.stat().map_err(|error| problem(error, path, "deleted"))? else { return Ok(0) };
    if !is_directory(&stat) {
        return match unlinkat(&spot.dir, spot.name.as_c_str(), AtFlags::empty()) {
            Ok(()) => Ok(1),
            Err(Errno::NOENT) => Ok(0),
            Err(Errno::ISDIR) => Err(busy(path, "deleted")),
            Err(error) => Err(problem(error, path, "deleted")),
        };
    }
    if !recursive {
        return Err(wrong_kind(path, "a directory", "say `recursive` to delete it with all that is in it"));
    }
    remove_tree(spot.dir.as_fd(), &spot.name, path)
}

/// Deletes a directory with all that is in it.
pub(crate) fn remove_tree(dir: BorrowedFd<'_>, name: &CStr, path: &RoomPath) -> Result<u64, Problem> {
    if is_mount_root(dir, name).unwrap_or(false) {
        return Err(mounted(path));
    }
    let mut deleter = Deleter { at: path, deleted: 0, looks: HashMap::new() };
    for _ in 0..MOST_LOOKS {
        match openat(dir, name, DIRECTORY, Mode::empty()) {
            Ok(top) => walk(top, path, Order::AsFound, &mut deleter)?,
            Err(Errno::NOENT) => return Ok(deleter.deleted),
            Err(Errno::NOTDIR | Errno::LOOP) => break,
            Err(error) => return Err(problem(error, path, "deleted")),
        }
        match unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Ok(()) => return Ok(deleter.deleted + 1),
            Err(Errno::NOENT) => return Ok(deleter.deleted),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(Errno::BUSY) => return Err(mounted(path)),
            Err(Errno::NOTDIR) => break,
            Err(error) => return Err(problem(error, path, "deleted")),
        }
    }
    Err(busy(path, "deleted"))
}

fn mounted(path: &RoomPath) -> Problem {
    Problem::new(
        ProblemCode::Busy,
        format!("{} cannot be deleted: something of the host is mounted there", quoted(path)),
        "delete what is in it",
    )
}

struct Deleter<'a> {
    at: &'a RoomPath,
    deleted: u64,
    /// Directories that were found full when they should have been empty, and how often.
    looks: HashMap<Vec<u8>, u32>,
}

impl Deleter<'_> {
    fn fault(&self, entry: &Entry<'_>, error: Errno) -> Problem {
        problem(error, &self.at.join(entry.path), "deleted")
    }
}

impl Visitor for Deleter<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem> {
        if is_directory(entry.stat) {
            // What is beyond is the host's.
            return match is_mount_root(entry.dir, entry.name) {
                Ok(true) => Err(mounted(&self.at.join(entry.path))),
                _ => Ok(Next::Into),
            };
        }
        match unlinkat(entry.dir, entry.name, AtFlags::empty()) {
            Ok(()) => self.deleted += 1,
            // Another's work, or another thing by now, which the next look finds.
            Err(Errno::NOENT | Errno::ISDIR) => {}
            Err(error) => return Err(self.fault(entry, error)),
        }
        Ok(Next::Past)
    }

    fn leave(&mut self, entry: &Entry<'_>) -> Result<Done, Problem> {
        match unlinkat(entry.dir, entry.name, AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.deleted += 1;
                self.looks.remove(entry.path);
                Ok(Done::Yes)
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(Done::Yes),
            // Entries may be passed over while others are taken away, and processes of the room may add some.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                let looks = self.looks.entry(entry.path.to_vec()).or_default();
                *looks += 1;
                if *looks > MOST_LOOKS { Err(busy(self.at, "deleted")) } else { Ok(Done::Again) }
            }
            Err(Errno::BUSY) => Err(mounted(&self.at.join(entry.path))),
            Err(error) => Err(self.fault(entry, error)),
        }
    }

    fn shut(&mut self, entry: &Entry<'_>, error: Errno) -> Result<(), Problem> {
        Err(self.fault(entry, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clerk::scratch::{Scratch, path};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn one_thing_or_a_tree_and_what_links_point_to_stays() {
        let scratch = Scratch::new();
        scratch.mkdir("tree/a/b");
        scratch.write("tree/a/file", "");
        scratch.link(scratch.outside(""), "tree/a/b/out");
        scratch.link("../outside", "tree/link");
        scratch.fifo("tree/fifo");
        scratch.link(scratch.outside("deeper"), "link");
        let delete = |at: &str, recursive| delete(&scratch.base(), &path(at), recursive);
        assert_eq!(delete("tree", false).unwrap_err().code, ProblemCode::WrongKind);
        assert_eq!(delete("tree", true).unwrap(), 7);
        assert_eq!(delete("tree", true).unwrap(), 0);
        assert_eq!(delete("tree/a/b/c", false).unwrap(), 0);
        assert_eq!(delete("link/secret", false).unwrap_err().code, ProblemCode::PathOutsideWorkspace);
        assert_eq!(delete("link", false).unwrap(), 1);
        assert_eq!(delete("", true).unwrap_err().code, ProblemCode::InvalidArgument);
        scratch.write("file", "");
        assert_eq!(delete("file/x", false).unwrap(), 0);
        assert_eq!(delete("file", true).unwrap(), 1);
        assert!(scratch.outside_is_untouched());
    }

    #[test]
    fn closed_and_deep_and_wide_trees_go() {
        let scratch = Scratch::new();
        scratch.mkdir("closed/inner");
        scratch.write("closed/inner/file", "");
        for (at, mode) in [("closed/inner", 0o000), ("closed", 0o555)] {
            std::fs::set_permissions(scratch.inside(at), PermissionsExt::from_mode(mode)).unwrap();
        }
        assert_eq!(delete(&scratch.base(), &path("closed"), true).unwrap(), 3);
        scratch.deep(10_000);
        for number in 0..5000 {
            scratch.write(format!("deep/a-name-of-some-length-{number}"), "");
        }
        assert_eq!(delete(&scratch.base(), &path("deep"), true).unwrap(), 15_001);
        assert!(!scratch.exists("deep"));
    }
}
