//! What clerks do not go into although they could: the room's secrets. Whoever may use a session is given them by its
//! commands, but no call of the server's answers with one.

use rustix::fs::{AtFlags, CWD, fstat, statat};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::OnceLock;

/// The file system that they are in, which nothing else is in.
fn device() -> Option<u64> {
    static DEVICE: OnceLock<Option<u64>> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        let look = |path| statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| stat.st_dev);
        look("/run/.secrets").filter(|device| look("/run") != Some(*device))
    })
}

/// Refuses what is in it.
pub(crate) fn check(thing: impl AsFd) -> Result<(), Errno> {
    match device() {
        Some(device) if fstat(thing)?.st_dev == device => Err(Errno::ACCESS),
        _ => Ok(()),
    }
}
