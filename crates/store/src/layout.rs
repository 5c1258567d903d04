//! The store's files: where they are, readable by nobody else, made so that a crash leaves none half made.

use crate::chain::{Signer, hex, unhex};
use crate::error::{StoreError, StoreErrorKind};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const PRIVATE: u32 = 0o600;

/// The paths of a store in its state directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
}

impl Layout {
    pub(crate) fn new(dir: &Path) -> Layout {
        Layout { dir: dir.to_path_buf() }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.dir.join("store.db")
    }

    pub(crate) fn ballast(&self) -> PathBuf {
        self.dir.join("ballast")
    }

    fn journal_key(&self) -> PathBuf {
        self.dir.join("journal.key")
    }

    pub(crate) fn make_dir(&self) -> Result<(), StoreError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .map_err(|error| StoreError::file("make", &self.dir, &error))
    }

    /// Makes the database's file before SQLite does: SQLite gives its -wal and -shm the mode of the database,
    /// and would itself make that readable for everybody. Says whether it was there with something in it.
    pub(crate) fn make_database(&self) -> Result<bool, StoreError> {
        let path = self.database();
        let failed = |error| StoreError::file("open", &path, &error);
        let file = open_private(&path).map_err(failed)?;
        let used = file.metadata().map_err(failed)?.len() > 0;
        self.sync_dir()?;
        Ok(used)
    }

    /// The key that signs journals. One is made for a new store; an old store without its key is refused,
    /// because a new key would make every journal in it look forged.
    pub(crate) fn signer(&self, store_is_new: bool) -> Result<Signer, StoreError> {
        let path = self.journal_key();
        match fs::read_to_string(&path) {
            Ok(text) => unhex(text.trim()).filter(|secret| secret.len() == 32).map_or_else(
                || {
                    let what = format!("{} is not a journal key: 64 hex digits", path.display());
                    Err(StoreError::new(StoreErrorKind::Corrupt, what)
                        .with_hint("restore it from the backup of this state directory"))
                },
                |secret| Ok(Signer::new(&secret)),
            ),
            Err(error) if error.kind() == ErrorKind::NotFound && store_is_new => self.make_key(&path),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let what = format!("{} is missing, and journals here are signed with it", path.display());
                Err(StoreError::new(StoreErrorKind::Corrupt, what)
                    .with_hint("restore it from the backup of this state directory"))
            }
            Err(error) => Err(StoreError::file("read", &path, &error)),
        }
    }

    fn make_key(&self, path: &Path) -> Result<Signer, StoreError> {
        let mut secret = [0u8; 32];
        // The kernel's own: the library's generator takes longer to set up than all else at the first start.
        match rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty()) {
            Ok(filled) if filled == secret.len() => {}
            _ => {
                let what = "the system gave no random bytes for a key";
                return Err(StoreError::new(StoreErrorKind::Other, what));
            }
        }
        let temporary = self.dir.join("journal.key.new");
        let write = || {
            let mut file = open_private(&temporary)?;
            file.set_len(0)?;
            file.write_all(format!("{}\n", hex(&secret)).as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        write().map_err(|error| StoreError::file("write", path, &error))?;
        self.sync_dir()?;
        Ok(Signer::new(&secret))
    }

    fn sync_dir(&self) -> Result<(), StoreError> {
        File::open(&self.dir)
            .and_then(|dir| dir.sync_all())
            .map_err(|error| StoreError::file("sync", &self.dir, &error))
    }
}

/// Opens for writing, made if need be, and 0600 whatever the umask took or left.
pub(crate) fn open_private(path: &Path) -> std::io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(PRIVATE).open(path)?;
    if file.metadata()?.permissions().mode() & 0o777 != PRIVATE {
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    Ok(file)
}
