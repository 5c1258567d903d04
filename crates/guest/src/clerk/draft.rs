//! A file that is being written and shows itself only when it is whole.

use super::copy::copy_contents;
use super::place::DIRECTORY;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, fchmod, fstat, linkat, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// What a new name may take the place of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Nothing,
    /// Whatever has the name, a directory excepted.
    Files,
}

impl Over {
    pub(crate) fn rename_flags(self) -> RenameFlags {
        match self {
            Over::Nothing => RenameFlags::NOREPLACE,
            Over::Files => RenameFlags::empty(),
        }
    }
}

/// Bytes on their way to a name. Without a name of its own where the file system knows such files, so that nothing is
/// left of it however this process ends; else under a hidden one.
pub(crate) struct Draft {
    file: OwnedFd,
    hidden: Option<(OwnedFd, CString)>,
}

impl Draft {
    /// Begins a file, for this process alone to read, on the file system of `dir`.
    pub(crate) fn new(dir: BorrowedFd<'_>) -> Result<Draft, Errno> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match openat(dir, c".", flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(Draft { file, hidden: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => Draft::named(dir),
            Err(error) => Err(error),
        }
    }

    fn named(dir: BorrowedFd<'_>) -> Result<Draft, Errno> {
        let name = hidden_name()?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(dir, name.as_c_str(), flags, Mode::RUSR | Mode::WUSR)?;
        let dir = openat(dir, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Draft { file, hidden: Some((dir, name)) })
    }

    pub(crate) fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub(crate) fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        // Bits that would let a program have another's rights are for nobody to set by way of a clerk.
        fchmod(&self.file, Mode::from_raw_mode(mode & 0o777))
    }

    /// Gives it its name, in one step that others see whole or not at all.
    pub(crate) fn install(&mut self, dir: BorrowedFd<'_>, name: &CStr, over: Over) -> Result<(), Errno> {
        match self.try_install(dir, name, over) {
            // It was begun on another file system.
            Err(Errno::XDEV) => {
                let mut closer = Draft::new(dir)?;
                let stat = fstat(&self.file)?;
                copy_contents(&self.file, closer.file(), stat.st_size as u64)?;
                closer.set_mode(stat.st_mode)?;
                closer.try_install(dir, name, over)?;
                *self = closer;
                Ok(())
            }
            other => other,
        }
    }

    fn try_install(&mut self, dir: BorrowedFd<'_>, name: &CStr, over: Over) -> Result<(), Errno> {
        if let Some((home, hidden)) = &self.hidden {
            renameat_with(home, hidden.as_c_str(), dir, name, over.rename_flags())?;
            self.hidden = None;
            return Ok(());
        }
        match self.link(dir, name) {
            Err(Errno::EXIST) if over == Over::Files => {}
            other => return other,
        }
        let hidden = hidden_name()?;
        self.link(dir, &hidden)?;
        let renamed = renameat_with(dir, hidden.as_c_str(), dir, name, RenameFlags::empty());
        if renamed.is_err() {
            let _ = unlinkat(dir, hidden.as_c_str(), AtFlags::empty());
        }
        renamed
    }

    fn link(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        match linkat(&self.file, c"", dir, name, AtFlags::EMPTY_PATH) {
            // Older kernels want a capability for this, and the way through /proc for everybody else.
            Err(Errno::NOENT) => {
                let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, own, dir, name, AtFlags::SYMLINK_FOLLOW)
            }
            other => other,
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some((home, hidden)) = &self.hidden {
            let _ = unlinkat(home, hidden.as_c_str(), AtFlags::empty());
        }
    }
}

/// A name that nobody in the room can have guessed.
pub(crate) fn hidden_name() -> Result<CString, Errno> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    CString::new(format!(".workroom-{:016x}", u64::from_ne_bytes(random))).map_err(|_| Errno::INVAL)
}

/// Writes all of it, wherever the file's end or position is.
pub(crate) fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Brings a directory's names to the disk.
pub(crate) fn sync_directory(dir: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::fsync(openat(dir, c".", DIRECTORY, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clerk::scratch::Scratch;
    use std::os::fd::AsFd;

    #[test]
    fn a_draft_is_seen_whole_or_not_at_all() {
        let scratch = Scratch::new();
        let dir = scratch.open();
        for make in [Draft::new, Draft::named] {
            let mut draft = make(dir.as_fd()).unwrap();
            write_all(draft.file(), b"new").unwrap();
            assert!(!scratch.exists("name"));
            draft.install(dir.as_fd(), c"name", Over::Nothing).unwrap();
            drop(draft);
            assert_eq!(scratch.read("name"), b"new");
            let mut second = make(dir.as_fd()).unwrap();
            write_all(second.file(), b"newer").unwrap();
            let refused = second.install(dir.as_fd(), c"name", Over::Nothing);
            assert_eq!(refused.unwrap_err(), Errno::EXIST);
            second.install(dir.as_fd(), c"name", Over::Files).unwrap();
            drop(second);
            assert_eq!(scratch.read("name"), b"newer");
            scratch.mkdir("dir");
            let mut third = make(dir.as_fd()).unwrap();
            assert!(third.install(dir.as_fd(), c"dir", Over::Files).is_err());
            drop(third);
            drop(make(dir.as_fd()).unwrap());
            unlinkat(&dir, c"name", AtFlags::empty()).unwrap();
            let left: Vec<_> = std::fs::read_dir(scratch.inside("")).unwrap().collect();
            assert_eq!(left.len(), 1, "{left:?}");
        }
    }
}
