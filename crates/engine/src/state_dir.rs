//! The state directory: who may use it, what is where in it, and writing files that survive.
//!
//! ```text
//!  STATE/            0700, whatever the umask
//!    lock            held by the server that uses the directory
//!    token           the first admin token
//!    store.db …      the store's own
//!    layers/NAME/    fs/ and work/: what a session's rooms have written; the first one has the session's name
//!    private/SESSION/ files kept beside the session
//!    output/SESSION/ what its processes wrote: a ring for each
//!    recordings/SESSION/ID.cast  what its processes showed, with times
//!    rooms/SESSION-N/ guest.sock: the way to a live room; layer: the name of the one that it writes to
//!    trash/          what is being deleted
//!    trial/          there while it is found out what the file system can do
//! ```

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, mkdirat, open, openat, renameat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use workroom_types::{LAYER_ID, Problem, ProblemCode};

const PRIVATE_DIR: Mode = Mode::RWXU;
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

#[derive(Debug)]
pub(crate) struct StateDir {
    root: PathBuf,
    /// Held for as long as this is.
    _lock: OwnedFd,
}

impl StateDir {
    /// Makes what is missing and takes the directory for this process.
    pub(crate) fn open(root: &Path) -> Result<StateDir, Problem> {
        let failed = |error: io::Error| {
            Problem::new(
                ProblemCode::StorageUnavailable,
                format!("the state directory {} cannot be used: {error}", root.display()),
                "name one that you may write to with --state or WORKROOM_STATE",
            )
        };
        make_all(root).map_err(failed)?;
        // Through the real path: the rooms' builder sees it from another mount namespace.
        let root = root.canonicalize().map_err(failed)?;
        check_owner(&root).map_err(failed)?;
        rustix::fs::chmod(&root, PRIVATE_DIR).map_err(|error| failed(error.into()))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = open(root.join("lock"), flags, PRIVATE_FILE).map_err(|error| failed(error.into()))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Problem::new(
                    ProblemCode::StorageUnavailable,
                    format!("another server is using {}", root.display()),
                    "stop it first, or name another directory with --state",
                ));
            }
            Err(error) => return Err(failed(error.into())),
        }
        let state = StateDir { root, _lock: lock };
        for dir in [state.layers(), state.output(), state.private(), state.rooms(), state.trash()] {
            make_dir(&dir).map_err(failed)?;
        }
        make_dir(&state.recordings()).map_err(failed)?;
        Ok(state)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    pub(crate) fn private(&self) -> PathBuf {
        self.root.join("private")
    }

    /// Where the output of a session's processes is kept.
    pub(crate) fn output(&self) -> PathBuf {
        self.root.join("output")
    }

    /// Where the recordings of a session's processes are kept.
    pub(crate) fn recordings(&self) -> PathBuf {
        self.root.join("recordings")
    }

    pub(crate) fn rooms(&self) -> PathBuf {
        self.root.join("rooms")
    }

    pub(crate) fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }

    /// Not in the trash, where it would be deleted.
    pub(crate) fn trial(&self) -> PathBuf {
        self.root.join("trial")
    }

    /// A layer, made if it is not there yet. `of_rooms`: its files get ids that are rooms' own, which
    /// takes root.
    pub(crate) fn layer(&self, name: &str, of_rooms: bool) -> io::Result<PathBuf> {
        let layer = self.layers().join(name);
        make_dir(&layer)?;
        // What the room's root sees as its `/`. It is there as it is to be or not at all: later its mode is the room's.
        let (fs, work, new) = (layer.join("fs"), layer.join("work"), layer.join("new"));
        if let Err(Errno::NOENT) = rustix::fs::lstat(&fs) {
            make_dir(&new)?;
            rustix::fs::chmod(&new, Mode::from_raw_mode(0o755))?;
            give_to_rooms(&new, of_rooms)?;
            renameat(CWD, &new, CWD, &fs)?;
        }
        make_dir(&work)?;
        for dir in [&layer, &work] {
            give_to_rooms(dir, of_rooms)?;
        }
        Ok(layer)
    }

    /// Moves something out of the way, to be deleted at leisure. What is not there is gone already.
    pub(crate) fn discard(&self, path: &Path, name: &str) -> io::Result<()> {
        let target = self.trash().join(format!("{name}-{:08x}", random_u32()?));
        match renameat(CWD, path, CWD, &target) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whoever has the directory can put a token or a store of their own into it. Whoever has one above it can put another
/// directory in its place.
fn check_owner(root: &Path) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let owner = rustix::fs::stat(root)?.st_uid;
    if owner != own {
        return Err(io::Error::other(format!("it belongs to the user {owner}, and this is the user {own}")));
    }
    for above in root.ancestors().skip(1) {
        let stat = rustix::fs::stat(above)?;
        let open_to_all = stat.st_mode & 0o1002 == 0o002;
        if open_to_all || !matches!(stat.st_uid, 0) && stat.st_uid != own {
            tracing::warn!(directory = %above.display(), "others can replace the state directory through this one");
        }
    }
    Ok(())
}

/// Whether nothing is in a directory, or it is not there. What is in it is not looked at.
pub(crate) fn is_empty_dir(path: &Path) -> bool {
    std::fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
}

/// Made now, or by a server that ended before it came to this.
fn give_to_rooms(dir: &Path, of_rooms: bool) -> io::Result<()> {
    if of_rooms && rustix::fs::lstat(dir)?.st_uid == 0 {
        let (uid, gid) = (Uid::from_raw(LAYER_ID), Gid::from_raw(LAYER_ID));
        rustix::fs::chownat(CWD, dir, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// Makes a directory that is closed to others, unless it is there.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    match mkdirat(CWD, path, PRIVATE_DIR) {
        Ok(()) => Ok(rustix::fs::chmod(path, PRIVATE_DIR)?),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn make_all(path: &Path) -> io::Result<()> {
    match make_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            make_dir(path)
        }
        other => other,
    }
}

/// Writes a file so that, whatever happens, either the old one is there or the new one: a temporary one, flushed,
/// moved into place, and the directory flushed.
pub(crate) fn write_durably(dir: &Path, name: &str, data: &[u8]) -> io::Result<()> {
    let dir = open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // No name that comes from a caller begins with a dot.
    let temporary = format!(".new-{:08x}", random_u32()?);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let written = (|| {
        let mut file = std::fs::File::from(openat(&dir, &temporary, flags, PRIVATE_FILE)?);
        rustix::fs::fchmod(file.as_fd(), PRIVATE_FILE)?;
        file.write_all(data)?;
        file.sync_all()?;
        renameat(&dir, &temporary, &dir, name)?;
        Ok(rustix::fs::fsync(&dir)?)
    })();
    if written.is_err() {
        let _ = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
    }
    written
}

pub(crate) fn random_u32() -> io::Result<u32> {
    let mut bytes = [0u8; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
    }

    /// A server that ended in the middle left one that nobody may enter; what rooms do to theirs is theirs.
    #[test]
    fn a_layer_that_was_half_made_is_made_whole_and_a_whole_one_is_left_alone() {
        let root = std::env::temp_dir().join(format!("workroom-state-{}", std::process::id()));
        let state = StateDir::open(&root).expect("a state directory");
        make_dir(&state.layers().join("a")).expect("a layer");
        make_dir(&state.layers().join("a/new")).expect("the beginning of its files");
        let layer = state.layer("a", false).expect("whole");
        assert_eq!((mode(&layer.join("fs")), mode(&layer.join("work"))), (0o755, 0o700));
        assert!(!layer.join("new").exists());
        std::fs::set_permissions(layer.join("fs"), std::fs::Permissions::from_mode(0o711)).expect("a mode");
        state.layer("a", false).expect("as it is");
        assert_eq!(mode(&layer.join("fs")), 0o711);
        std::fs::remove_dir_all(&root).expect("removed");
    }
}
