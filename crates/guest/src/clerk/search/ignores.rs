//! `.gitignore` and `.ignore` files, read from the directories on the way.

use super::super::place::{Base, open_regular};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use workroom_types::RoomPath;

/// The later of the two wins.
const NAMES: [&std::ffi::CStr; 2] = [c".gitignore", c".ignore"];

/// A longer one is read to here.
const LARGEST: u64 = 1 << 20;

/// The rules of each directory from where paths begin to where the walk is.
pub(super) struct Ignores {
    levels: Vec<Vec<Gitignore>>,
}

impl Ignores {
    /// With the rules of the directories above `at`.
    pub(super) fn above(base: &Base, at: &RoomPath) -> Ignores {
        let mut ignores = Ignores { levels: Vec::new() };
        let mut ends: Vec<usize> = if at.is_top() { Vec::new() } else { vec![0] };
        ends.extend(at.bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end));
        for end in ends {
            let above = RoomPath { root: at.root, bytes: at.bytes[..end].to_vec() };
            if let Ok(dir) = base.open_directory(&above) {
                ignores.enter(dir.as_fd(), &above.bytes);
            }
        }
        ignores
    }

    pub(super) fn enter(&mut self, dir: BorrowedFd<'_>, path: &[u8]) {
        self.levels.push(NAMES.iter().filter_map(|name| rules(dir, name, path)).collect());
    }

    pub(super) fn leave(&mut self) {
        self.levels.pop();
    }

    /// Whether the nearest rule that says anything of a path says to leave it out.
    pub(super) fn match_path(&self, path: &[u8], is_directory: bool) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        for rules in self.levels.iter().rev().flat_map(|level| level.iter().rev()) {
            match rules.matched(path, is_directory) {
                Match::None => {}
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }
}

/// What cannot be read has no rules, and a line that is none is passed over, as git does.
fn rules(dir: BorrowedFd<'_>, name: &std::ffi::CStr, path: &[u8]) -> Option<Gitignore> {
    let (file, _) = open_regular(dir, name, OFlags::RDONLY).ok()?.ok()?;
    let mut text = Vec::new();
    std::fs::File::from(file).take(LARGEST).read_to_end(&mut text).ok()?;
    let mut builder = GitignoreBuilder::new(OsStr::from_bytes(path));
    for line in String::from_utf8_lossy(&text).lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}
