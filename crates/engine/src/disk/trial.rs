//! Whether a limit holds: by running into it.

use std::io::{self, Write};
use std::path::Path;

/// Fills a file in a directory that may hold less than this. Fine if that is refused.
pub(super) fn write_beyond(place: &Path, bytes: usize) -> io::Result<()> {
    let file = place.join("full");
    // A thread of its own gives up the right to go beyond, as a room's overlay does.
    let filled = std::thread::spawn(move || {
        let mut sets = rustix::thread::capabilities(None)?;
        sets.effective.remove(rustix::thread::CapabilitySet::SYS_RESOURCE);
        rustix::thread::set_capabilities(None, sets)?;
        let mut file = std::fs::File::create(file)?;
        file.write_all(&vec![1; bytes])?;
        file.sync_all()
    });
    match filled.join().unwrap_or_else(|_| Err(io::Error::other("the trial did not end well"))) {
        Err(error) if is_full(&error) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(io::Error::other("a limit holds nobody back")),
    }
}

fn is_full(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Does something in a directory that is made for it, and gone afterwards.
pub(super) fn in_passing(
    place: &Path,
    make: impl FnOnce(&Path) -> io::Result<()>,
    try_it: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    // Of a server that was killed in the middle of this.
    let _ = std::fs::remove_dir_all(place);
    make(place)?;
    let tried = try_it(place);
    let _ = std::fs::remove_dir_all(place);
    tried
}
