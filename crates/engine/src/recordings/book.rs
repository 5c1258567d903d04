//! The recordings of one session: which are being made, how much space all of them take, and which go when that is too
//! much.

use super::file::{self, Reached, Standing};
use crate::config::RecordingLimits;
use crate::processes::entry::Entry;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

const SUFFIX: &str = ".cast";

pub(crate) struct Book {
    dir: PathBuf,
    limits: RecordingLimits,
    live: Mutex<HashMap<String, Arc<Live>>>,
    /// Bytes of each, once somebody has looked. Held while files are made and removed, on threads that may wait.
    sizes: Mutex<Sizes>,
}

#[derive(Default)]
struct Sizes {
    by_id: Option<HashMap<String, u64>>,
    /// The session is gone: nothing is made any more.
    is_closed: bool,
}

/// A recording that is being made.
pub(super) struct Live {
    pub(super) entry: Arc<Entry>,
    /// How far it is written. Over when this is.
    pub(super) reached: watch::Sender<Reached>,
    /// It was deleted meanwhile.
    is_dropped: AtomicBool,
    /// Somebody waits for what was not written yet.
    is_waited_for: AtomicBool,
}

impl Live {
    pub(super) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Relaxed)
    }

    /// Has all written soon that there is.
    pub(super) fn wait_for(&self) {
        self.is_waited_for.store(true, Relaxed);
        self.entry.wake();
    }

    /// Whether somebody waits who did not when this was last asked.
    pub(super) fn take_wait(&self) -> bool {
        self.is_waited_for.swap(false, Relaxed)
    }
}

impl Book {
    pub(super) fn new(dir: PathBuf, limits: RecordingLimits) -> Book {
        Book { dir, limits, live: Mutex::default(), sizes: Mutex::default() }
    }

    pub(super) fn limits(&self) -> RecordingLimits {
        self.limits
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sizes(&self) -> MutexGuard<'_, Sizes> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn path(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}{SUFFIX}"))
    }

    /// Enters one that is going to be made; nothing if it is there already.
    pub(super) fn begin(&self, id: &str, entry: &Arc<Entry>) -> Option<Arc<Live>> {
        let mut live = self.live();
        if live.contains_key(id) {
            return None;
        }
        let reached = watch::channel(Reached::default()).0;
        let (is_dropped, is_waited_for) = Default::default();
        let begun = Arc::new(Live { entry: entry.clone(), reached, is_dropped, is_waited_for });
        live.insert(id.to_owned(), begun.clone());
        Some(begun)
    }

    pub(super) fn end(&self, id: &str, ended: &Arc<Live>) {
        let mut live = self.live();
        if live.get(id).is_some_and(|there| Arc::ptr_eq(there, ended)) {
            live.remove(id);
        }
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<Live>> {
        self.live().get(id).cloned()
    }

    pub(super) fn live_ids(&self) -> Vec<String> {
        self.live().keys().cloned().collect()
    }

    /// Opens a recording's file; with `is_new` makes it, and makes room for it.
    pub(super) fn open(&self, id: &str, is_new: bool) -> io::Result<File> {
        let mut sizes = self.sizes();
        if sizes.is_closed {
            return Err(io::ErrorKind::NotFound.into());
        }
        let opened = file::open(&self.path(id), is_new)?;
        let by_id = sizes.look(&self.dir);
        by_id.entry(id.to_owned()).or_insert(0);
        self.drop_oldest(by_id);
        Ok(opened)
    }

    /// A recording has this size now: whether there is room for more.
    pub(super) fn grew(&self, id: &str, bytes: u64) -> bool {
        let mut sizes = self.sizes();
        let by_id = sizes.look(&self.dir);
        by_id.insert(id.to_owned(), bytes);
        self.drop_oldest(by_id);
        by_id.values().sum::<u64>() < self.limits.session_size
    }

    /// Removes those that ended first until the others are not too many and not too much.
    fn drop_oldest(&self, by_id: &mut HashMap<String, u64>) {
        let is_too_much = |by_id: &HashMap<String, u64>| {
            by_id.len() > self.limits.count || by_id.values().sum::<u64>() >= self.limits.session_size
        };
        if !is_too_much(by_id) {
            return;
        }
        let last_written = |id: &String| {
            let modified = std::fs::symlink_metadata(self.path(id)).and_then(|meta| meta.modified());
            modified.unwrap_or(std::time::UNIX_EPOCH)
        };
        let live = self.live();
        let mut ended: Vec<_> = by_id
            .keys()
            .filter(|id| !live.contains_key(*id))
            .map(|id| (last_written(id), id.clone()))
            .collect();
        drop(live);
        ended.sort();
        for (_, id) in ended {
            if !is_too_much(by_id) {
                return;
            }
            if remove(&self.path(&id)).is_ok() {
                by_id.remove(&id);
            }
        }
    }

    /// The ids of all that are there.
    pub(super) fn ids(&self) -> io::Result<Vec<String>> {
        list(&self.dir).map(|sizes| sizes.into_keys().collect())
    }

    pub(super) fn remove(&self, id: &str) -> io::Result<()> {
        let mut sizes = self.sizes();
        // No longer found as one that is being made; whoever makes it learns of it.
        if let Some(live) = self.live().remove(id) {
            live.is_dropped.store(true, Relaxed);
            live.entry.wake();
        }
        remove(&self.path(id))?;
        if let Some(by_id) = &mut sizes.by_id {
            by_id.remove(id);
        }
        Ok(())
    }

    /// The session is gone, and its directory is about to go.
    pub(super) fn close(&self) {
        self.sizes().is_closed = true;
        for (_, live) in std::mem::take(&mut *self.live()) {
            live.is_dropped.store(true, Relaxed);
            live.entry.wake();
        }
    }
}

impl Sizes {
    fn look(&mut self, dir: &Path) -> &mut HashMap<String, u64> {
        self.by_id.get_or_insert_with(|| list(dir).unwrap_or_default())
    }
}

fn list(dir: &Path) -> io::Result<HashMap<String, u64>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        Err(error) => return Err(error),
    };
    let mut sizes = HashMap::new();
    for entry in entries {
        let entry = entry?;
        if let Some(id) = entry.file_name().to_str().and_then(|name| name.strip_suffix(SUFFIX)) {
            sizes.insert(id.to_owned(), entry.metadata().map_or(0, |meta| meta.len()));
        }
    }
    Ok(sizes)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether nothing will be added to it.
pub(super) fn is_over(reached: &Reached) -> bool {
    reached.checkpoint.state != Standing::Recording
}
