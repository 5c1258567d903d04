//! Keeps everything bounded in time: a thread that ends what hangs, and removes what would be left.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long one sample may take before its process is ended, and the whole run after that.
const CHILD_PATIENCE: u64 = 30;
const PATIENCE: u64 = 60;

static START: OnceLock<Instant> = OnceLock::new();
static LAST_SIGN: AtomicU64 = AtomicU64::new(0);
static CHILD: AtomicI32 = AtomicI32::new(0);
static UNDO: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());

fn seconds() -> u64 {
    START.get_or_init(Instant::now).elapsed().as_secs()
}

/// Starts to watch. Spawners and floor helpers end by themselves when this process does.
pub(crate) fn watch() {
    alive();
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let silent = seconds().saturating_sub(LAST_SIGN.load(Ordering::Relaxed));
            if silent >= PATIENCE {
                eprintln!("workroom-bench: nothing has happened for {silent} s: giving up");
                clean();
                std::process::exit(3);
            }
            if silent >= CHILD_PATIENCE {
                end_child();
            }
        }
    });
}

/// Said by whatever makes progress.
pub(crate) fn alive() {
    LAST_SIGN.store(seconds(), Ordering::Relaxed);
}

/// Names the process that is waited for, 0 for none.
pub(crate) fn waiting_for(child: u32) {
    CHILD.store(child as i32, Ordering::SeqCst);
}

fn end_child() {
    let number = CHILD.load(Ordering::SeqCst);
    let Some(pid) = Pid::from_raw(number) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // Still waited for after it was opened: the handle is that child's, not a later owner's of its number.
    if CHILD.load(Ordering::SeqCst) == number {
        let _ = pidfd_send_signal(handle, Signal::KILL);
    }
}

/// Has something undone at the end, also when the run is given up.
pub(crate) fn undo_later(undo: impl FnOnce() + Send + 'static) {
    UNDO.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(undo));
}

/// Undoes what is to be undone, the latest first.
pub(crate) fn clean() {
    let undo = std::mem::take(&mut *UNDO.lock().unwrap_or_else(PoisonError::into_inner));
    undo.into_iter().rev().for_each(|step| step());
}

/// A directory of this run's own that everyone may read; removed at the end.
pub(crate) fn scratch() -> std::io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let path = std::env::temp_dir().join(format!("workroom-bench-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o755).create(&path)?;
    let created = path.clone();
    undo_later(move || drop(std::fs::remove_dir_all(created)));
    Ok(path)
}
