//! What callers are told of a file: its kind, size, permissions, age, and an etag that changes when it does.

use super::failure::problem;
use super::place::{Base, Last, is_directory, is_link, is_regular};
use rustix::fs::{Stat, fstat};
use std::os::fd::AsFd;
use workroom_types::{FileInfo, FileKind, Problem, ProblemCode, RoomPath, Timestamp, escape};

/// Tells of a file by its own attributes; of a link, not of what it points to.
pub(crate) fn stat(base: &Base, path: &RoomPath) -> Result<FileInfo, Problem> {
    let thing = base.open(path, Last::Stay)?;
    let stat = fstat(&thing).map_err(|error| problem(error, path, "looked at"))?;
    let target = is_link(&stat).then(|| link_target(&thing, c"")).flatten();
    Ok(info(path, &stat, target))
}

/// Where a link points; nothing if it is none any more.
pub(crate) fn link_target(dir: impl AsFd, name: &std::ffi::CStr) -> Option<String> {
    let target = rustix::fs::readlinkat(dir, name, Vec::new()).ok()?;
    Some(escape(target.to_bytes()))
}

pub(crate) fn info(path: &RoomPath, stat: &Stat, target: Option<String>) -> FileInfo {
    let kind = kind(stat);
    // What a directory's own table takes says nothing of what is in it.
    let size = if matches!(kind, FileKind::File | FileKind::Symlink) { stat.st_size as u64 } else { 0 };
    FileInfo {
        path: path.shown(),
        kind,
        size,
        mode: format!("{:04o}", stat.st_mode & 0o7777),
        mtime: Timestamp(stat.st_mtime.saturating_mul(1000) + stat.st_mtime_nsec as i64 / 1_000_000),
        target,
        etag: etag(stat),
    }
}

pub(crate) fn kind(stat: &Stat) -> FileKind {
    if is_regular(stat) {
        FileKind::File
    } else if is_directory(stat) {
        FileKind::Directory
    } else if is_link(stat) {
        FileKind::Symlink
    } else {
        FileKind::Other
    }
}

/// The device is left out: the same room has another one after a restart.
pub(crate) fn etag(stat: &Stat) -> String {
    let nanos = |seconds: i64, nanos: u64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    format!(
        "{:x}-{:x}-{:x}-{:x}",
        stat.st_ino,
        stat.st_size,
        nanos(stat.st_mtime, stat.st_mtime_nsec),
        nanos(stat.st_ctime, stat.st_ctime_nsec)
    )
}

/// Whether what is there is what the caller knew.
pub(crate) fn check_match(path: &RoomPath, wanted: &str, found: Option<&Stat>) -> Result<(), Problem> {
    let failed =
        |why: String| Problem::new(ProblemCode::PreconditionFailed, why, "read it again, then decide");
    let name = super::failure::quoted(path);
    match found {
        None => Err(failed(format!("{name} was to be changed only if it is there, and it is not"))),
        Some(_) if wanted == "*" => Ok(()),
        Some(stat) => {
            let etag = etag(stat);
            if etag == wanted.trim_matches('"') {
                return Ok(());
            }
            Err(failed(format!("{name} has changed: its etag is {etag}")))
        }
    }
}
