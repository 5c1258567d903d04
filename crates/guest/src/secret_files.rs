//! The files under `/run/secrets`: one set at a time, of which the next takes the place in one step.
//!
//! ```text
//!  /run/secrets ──▶ .secrets/current/          what commands see: plain files, 0400, of the room's user
//!                   .secrets/next-3/           the next set while it is written; then the two change places
//! ```
//!
//! Whoever has a directory of secrets open keeps the old one; whoever opens it anew sees the new one, whole.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use workroom_proto::Secret;
use workroom_types::AGENT_ID;

const CURRENT: &str = "current";

pub(crate) struct SecretFiles {
    /// The file system that they are in. Nothing in it is looked up by a path that the room can change.
    place: Option<OwnedFd>,
    /// Whether files can be given to another user than the guest's own.
    switches_users: bool,
    /// Where clerks see which file system they must not go into.
    device: &'static AtomicU64,
    sets: u64,
}

impl SecretFiles {
    pub(crate) fn new(
        place: Option<OwnedFd>,
        switches_users: bool,
        device: &'static AtomicU64,
    ) -> SecretFiles {
        let mut files = SecretFiles { place: None, switches_users, device, sets: 0 };
        place.into_iter().for_each(|place| files.settle(place));
        files
    }

    pub(crate) fn has_place(&self) -> bool {
        self.place.is_some()
    }

    /// Takes the first place that there is; it is closed to clerks before anything is in it.
    pub(crate) fn settle(&mut self, place: OwnedFd) {
        let Ok(stat) = rustix::fs::fstat(&place) else { return };
        if self.place.is_some() {
            return;
        }
        self.device.store(stat.st_dev, Ordering::Release);
        // An empty set, so that the place is there; one that cannot be made is told of when it is needed.
        let _ = rustix::fs::mkdirat(&place, CURRENT, Mode::from_raw_mode(0o755));
        self.place = Some(place);
    }

    /// Puts this set in the place of the one that is there: all of it, or nothing changes.
    pub(crate) fn replace(&mut self, files: &[Secret]) -> io::Result<()> {
        let Some(place) = &self.place else {
            return Err(io::Error::other("/run is not as it was made, and has no place for secrets"));
        };
        self.sets += 1;
        let next = format!("next-{}", self.sets);
        let written = self.write(place, &next, files).and_then(|()| {
            // Where somebody has removed what was there, nothing is to be exchanged.
            match rustix::fs::renameat_with(place, &next, place, CURRENT, RenameFlags::EXCHANGE) {
                Err(Errno::NOENT) => Ok(rustix::fs::renameat(place, &next, place, CURRENT)?),
                exchanged => Ok(exchanged?),
            }
        });
        // By now that is the old set, or what was made of the new one.
        remove(place, &next);
        written
    }

    fn write(&self, place: &OwnedFd, name: &str, files: &[Secret]) -> io::Result<()> {
        rustix::fs::mkdirat(place, name, Mode::from_raw_mode(0o755))?;
        let directory = open_directory(place, name)?;
        // A umask is no part of what was decided.
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(0o755))?;
        files.iter().try_for_each(|secret| self.write_file(&directory, secret))
    }

    /// It has no name until it is whole and another's: the room's root has the guest's id, and would read it before.
    fn write_file(&self, directory: &OwnedFd, secret: &Secret) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, c".", flags, Mode::from_raw_mode(0o400))?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o400))?;
        if self.switches_users {
            let (uid, gid) = (Uid::from_raw(AGENT_ID), Gid::from_raw(AGENT_ID));
            rustix::fs::fchown(&file, Some(uid), Some(gid))?;
        }
        let mut rest = secret.value.as_slice();
        while !rest.is_empty() {
            rest = &rest[rustix::io::retry_on_intr(|| rustix::io::write(&file, rest))?..];
        }
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(rustix::fs::linkat(CWD, own, directory, &secret.name, AtFlags::SYMLINK_FOLLOW)?)
    }
}

fn open_directory(place: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(place, name, flags, Mode::empty())?)
}

/// A set is a directory of files; whatever else the room has put there takes the room's own memory and stays.
fn remove(place: &OwnedFd, name: &str) {
    let Ok(directory) = open_directory(place, name) else { return };
    let Ok(entries) = rustix::fs::Dir::read_from(&directory) else { return };
    for entry in entries.flatten() {
        let _ = rustix::fs::unlinkat(&directory, entry.file_name(), AtFlags::empty());
    }
    let _ = rustix::fs::unlinkat(place, name, AtFlags::REMOVEDIR);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "nobody swaps paths in a test's own directory")]

    use super::*;
    use rustix::fs::inotify;
    use std::os::unix::fs::MetadataExt;

    fn secret(name: &str, value: &str) -> Secret {
        Secret { name: name.into(), value: value.into() }
    }

    #[test]
    fn a_set_takes_the_place_of_another_and_who_holds_the_old_one_keeps_it() {
        let path = std::env::temp_dir().join(format!("secret-files-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        let place = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let device = Box::leak(Box::new(AtomicU64::new(0)));
        let mut files = SecretFiles::new(Some(place), false, device);
        assert_eq!(device.load(Ordering::Acquire), std::fs::metadata(&path).unwrap().dev());
        files.replace(&[secret("a", "one"), secret("b", "two")]).unwrap();
        let current = path.join(CURRENT);
        assert_eq!(std::fs::read_to_string(current.join("a")).unwrap(), "one");
        assert_eq!(std::fs::metadata(current.join("b")).unwrap().mode() & 0o7777, 0o400);
        let held = std::fs::File::open(current.join("a")).unwrap();
        files.replace(&[secret("a", "new")]).unwrap();
        assert_eq!(std::io::read_to_string(held).unwrap(), "one");
        assert_eq!(std::fs::read_to_string(current.join("a")).unwrap(), "new");
        assert!(!current.join("b").exists(), "the set is replaced whole");
        // A name that cannot be written changes nothing.
        assert!(files.replace(&[secret("c", "x"), secret("no/such", "y")]).is_err());
        assert_eq!(std::fs::read_dir(&current).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "nothing else is left");
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_file_that_has_a_name_is_changed_no_more() {
        let path = std::env::temp_dir().join(format!("secret-file-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        let directory = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let seen = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&seen, &path, inotify::WatchFlags::ALL_EVENTS).unwrap();
        let files = SecretFiles::new(None, false, Box::leak(Box::new(AtomicU64::new(0))));
        files.write_file(&directory, &secret("a", "one")).unwrap();
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&seen, &mut buffer);
        let mut events = Vec::new();
        while let Ok(event) = reader.next() {
            if event.file_name() == Some(c"a") {
                events.push(event.events());
            }
        }
        assert_eq!(events, [inotify::ReadFlags::CREATE]);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
