//! Whether a granted directory is there, and which one it is.
//!
//! What is found here is only looked at. Whoever builds the room finds it again, by the same way, and takes it only if
//! it is the same.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};
use workroom_sys::place::{identity, open_beneath};
use workroom_types::DenialCode;

/// The device and inode of a directory of the host that a room may have.
pub(crate) fn find(state: &Path, anchor: &Path, beneath: &Path) -> Result<(u64, u64), (DenialCode, String)> {
    let failed = |error: io::Error| {
        let (code, why) = match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => (DenialCode::PathNotFound, "there is no such directory".to_owned()),
            Some(Errno::NOTDIR) => (DenialCode::PathNotFound, "it is not a directory".to_owned()),
            Some(Errno::LOOP | Errno::XDEV) => {
                (DenialCode::PathEscape, "there is a link on the way, and none is followed".to_owned())
            }
            _ => (DenialCode::ResolutionFailed, format!("it cannot be opened: {error}")),
        };
        (code, why)
    };
    let opened = open_beneath(anchor, beneath).map_err(failed)?;
    let found = identity(opened.as_fd()).map_err(failed)?;
    let whole = std::fs::canonicalize(anchor).map_err(failed)?.join(beneath);
    match std::fs::canonicalize(state) {
        // Tokens, journals and every session's files: whoever has those has all.
        Ok(state) if state.starts_with(&whole) || whole.starts_with(&state) => {
            Err((DenialCode::GlobalBlocked, "the server's own files are there".into()))
        }
        _ => Ok(found),
    }
}

/// The path of a directory, as people write it.
pub(super) fn whole(anchor: &Path, beneath: &Path) -> PathBuf {
    if beneath.as_os_str().is_empty() { anchor.to_owned() } else { anchor.join(beneath) }
}

/// Makes what is missing of a directory, from the anchor downwards and over no link.
pub(crate) fn make(anchor: &Path, beneath: &Path) -> io::Result<()> {
    let mut at = open_beneath(anchor, Path::new(""))?;
    let mut made = PathBuf::new();
    for part in beneath.components() {
        let Component::Normal(name) = part else { return Err(Errno::INVAL.into()) };
        made.push(name);
        match rustix::fs::mkdirat(&at, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = rustix::fs::openat(&at, name, flags, Mode::empty())?;
    }
    Ok(())
}
