//! Names for what is there only while a clerk works.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::CString;

/// A name that nobody has, hidden, and easy to tell should it ever be left behind.
pub(super) fn name() -> Result<CString, Errno> {
    let mut random = [0u8; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    CString::new(format!(".workroom-{:016x}", u64::from_ne_bytes(random))).map_err(|_| Errno::INVAL)
}
