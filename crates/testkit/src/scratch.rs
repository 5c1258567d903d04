//! Directories that are gone when the test is, whatever was put into them.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNTER: AtomicU32 = AtomicU32::new(0);

pub(crate) fn next_number() -> u32 {
    COUNTER.fetch_add(1, Ordering::Relaxed)
}

/// A name that no other test on this machine has.
pub fn unique() -> String {
    format!("{}-{}", std::process::id(), next_number())
}

/// A directory that everybody may look into.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    #[expect(clippy::new_without_default, reason = "making a directory is no default")]
    pub fn new() -> Scratch {
        // One that was killed may have left its own, and its number is another's by now.
        let path = loop {
            let path = std::env::temp_dir().join(format!("workroom-testkit-{}", unique()));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => break made.map(|()| path).expect("make a scratch directory"),
            }
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("open it to all");
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if fs::remove_dir_all(&self.0).is_err() {
            // What a room left may be closed to its own owner.
            open_all(&self.0);
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

fn open_all(dir: &Path) {
    let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_all(&entry.path());
        }
    }
}
