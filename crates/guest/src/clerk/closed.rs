//! What clerks do not go into although they could: the room's secrets. Whoever may use a session is given them by its
//! commands, but no call of the server's answers with one.
//!
//! They are known by the file system that they are in, which nothing else is in. Where that is, the room can change; and
//! a room may get it when its clerks have worked for long. So nobody looks for it: the guest says which one it is, before
//! anything is in it, in memory that all clerks have from it.

use rustix::fs::fstat;
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use workroom_sys::memory::shared_number;

/// The device of the file system; zero, which no file system has, while there is none.
static DEVICE: OnceLock<&AtomicU64> = OnceLock::new();

/// In the guest, before it has a launcher: where it says the device.
pub(crate) fn device() -> io::Result<&'static AtomicU64> {
    if let Some(device) = DEVICE.get() {
        return Ok(device);
    }
    let made = shared_number()?;
    Ok(DEVICE.get_or_init(|| made))
}

/// Refuses what is in it.
pub(crate) fn check(thing: impl AsFd) -> Result<(), Errno> {
    match DEVICE.get().map_or(0, |device| device.load(Ordering::Acquire)) {
        0 => Ok(()),
        device if fstat(thing)?.st_dev == device => Err(Errno::ACCESS),
        _ => Ok(()),
    }
}
