//! A directory for tests to play the workspace in.
#![allow(clippy::disallowed_methods, reason = "nobody swaps paths in a test's own directory")]

use super::place::{Base, DIRECTORY};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use workroom_types::RoomPath;

pub(crate) struct Scratch {
    outer: PathBuf,
}

impl Scratch {
    /// `inside` plays the workspace; `outside` is beside it, with a secret in it.
    pub(crate) fn new() -> Scratch {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let outer = std::env::temp_dir().join(format!("workroom-clerk-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&outer);
        std::fs::create_dir_all(outer.join("inside")).unwrap();
        std::fs::create_dir_all(outer.join("outside/deeper")).unwrap();
        std::fs::write(outer.join("outside/secret"), "secret").unwrap();
        Scratch { outer }
    }

    pub(crate) fn inside(&self, path: impl AsRef<Path>) -> PathBuf {
        self.outer.join("inside").join(path)
    }

    pub(crate) fn outside(&self, path: impl AsRef<Path>) -> PathBuf {
        self.outer.join("outside").join(path)
    }

    pub(crate) fn base(&self) -> Base {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Base::workspace(rustix::fs::openat(CWD, self.inside(""), flags, Mode::empty()).unwrap())
    }

    pub(crate) fn open(&self) -> OwnedFd {
        rustix::fs::openat(CWD, self.inside(""), DIRECTORY, Mode::empty()).unwrap()
    }

    pub(crate) fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        std::fs::write(self.inside(path), content).unwrap();
    }

    pub(crate) fn read(&self, path: impl AsRef<Path>) -> Vec<u8> {
        std::fs::read(self.inside(path)).unwrap()
    }

    pub(crate) fn mkdir(&self, path: impl AsRef<Path>) {
        std::fs::create_dir_all(self.inside(path)).unwrap();
    }

    pub(crate) fn link(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.inside(path)).unwrap();
    }

    pub(crate) fn fifo(&self, path: impl AsRef<Path>) {
        rustix::fs::mknodat(CWD, self.inside(path), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    }

    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        std::fs::symlink_metadata(self.inside(path)).is_ok()
    }

    /// Directories one in another, deeper than any path may be long, with a file at the end.
    pub(crate) fn deep(&self, depth: usize) {
        let mut at = self.open();
        for _ in 0..depth {
            rustix::fs::mkdirat(&at, "deep", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "deep", DIRECTORY, Mode::empty()).unwrap();
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&at, "end", flags, Mode::RUSR).unwrap();
        rustix::io::write(file, b"the end").unwrap();
    }

    /// What the standard library would need a descriptor for each directory for: the way down, then up again.
    pub(crate) fn remove_deep(&self) {
        let mut way = super::walk::Descent::new(self.open()).unwrap();
        let mut depth = 0;
        while let Ok(below) = rustix::fs::openat(way.here().unwrap(), "deep", DIRECTORY, Mode::empty()) {
            way.down(below).unwrap();
            depth += 1;
        }
        rustix::fs::unlinkat(way.here().unwrap(), "end", AtFlags::empty()).unwrap();
        for _ in 0..depth {
            way.up().unwrap();
            rustix::fs::unlinkat(way.here().unwrap(), "deep", AtFlags::REMOVEDIR).unwrap();
        }
    }

    /// Nothing outside was changed.
    pub(crate) fn outside_is_untouched(&self) -> bool {
        let names = |path: &Path| {
            let mut names: Vec<_> =
                std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        std::fs::read(self.outside("secret")).is_ok_and(|content| content == b"secret")
            && names(&self.outside("")) == ["deeper", "secret"]
            && names(&self.outside("deeper")).is_empty()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.outer);
    }
}

/// A path as a caller would write it.
pub(crate) fn path(text: &str) -> RoomPath {
    RoomPath::parse(text, false).unwrap()
}
