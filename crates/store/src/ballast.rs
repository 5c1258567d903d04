//! Space set aside: a file of zeros that is given up when the disk is full, so that sessions can still be
//! stopped and deleted then.

use crate::layout::open_private;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const SIZE: u64 = 16 << 20;
/// It is filled only where this much is free: on a small disk it would be the reason for the lack.
const FILL_ABOVE: u64 = 64 << 20;
/// What others must have freed, beyond what the ballast gave, before new things are taken in again.
const MARGIN: u64 = 4 << 20;

#[derive(Clone)]
pub(crate) struct Ballast {
    path: PathBuf,
    dir: PathBuf,
    /// Filling and releasing exclude each other.
    turn: Arc<Mutex<()>>,
}

impl Ballast {
    pub(crate) fn new(dir: &Path, path: PathBuf) -> Ballast {
        Ballast { path, dir: dir.to_path_buf(), turn: Arc::default() }
    }

    /// Bytes that this process may still write on the disk of the store.
    pub(crate) fn available(&self) -> Option<u64> {
        let state = rustix::fs::statvfs(&self.dir).ok()?;
        Some(state.f_bavail.saturating_mul(state.f_frsize))
    }

    /// Whether more is free than what was set aside for stopping and deleting.
    pub(crate) fn has_room_to_grow(&self) -> bool {
        // Where the question cannot be asked, the write itself is the answer.
        self.available().is_none_or(|free| free >= SIZE + MARGIN)
    }

    /// Whether it was given up, by this process or one before it, and not filled again.
    pub(crate) fn is_spent(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| file.len() == 0)
    }

    /// Gives the space back to the disk. False if there was none to give. Blocks.
    pub(crate) fn release(&self) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(file) = std::fs::OpenOptions::new().write(true).open(&self.path) else { return false };
        let held = file.metadata().map(|file| file.len()).unwrap_or_default();
        held > 0 && file.set_len(0).and_then(|()| file.sync_all()).is_ok()
    }

    /// Sets the space aside, if it is not yet and the disk has plenty. Blocks.
    pub(crate) fn fill(&self) -> std::io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let held = std::fs::metadata(&self.path).map(|file| file.len()).unwrap_or_default();
        if held == SIZE || self.available().is_none_or(|free| free < FILL_ABOVE) {
            return Ok(());
        }
        let mut file = open_private(&self.path)?;
        file.set_len(0)?;
        let zeros = [0u8; 64 << 10];
        let written = (0..SIZE / zeros.len() as u64)
            .try_for_each(|_| file.write_all(&zeros))
            // The length is only ever reached with the blocks really there.
            .and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = file.set_len(0);
        }
        written
    }
}
