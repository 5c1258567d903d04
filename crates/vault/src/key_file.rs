//! The file with the master keys: nobody else's, readable by nobody else, and whole after a crash at any moment.

use crate::key::{KeyError, random};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

const PRIVATE: u32 = 0o600;

/// Far more than the keys there may be.
const LARGEST: u64 = 64 * 1024;

/// The file's text; nothing if there is no file. One that somebody else could read, or have put there, is refused:
/// its key may be known.
pub(crate) fn read(path: &Path) -> Result<Option<Zeroizing<String>>, KeyError> {
    // Not to hang on a FIFO that was put in its place.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => {
            let hint = "name the file itself, so that nobody else decides which one it is";
            return Err(refused(path, "is a symbolic link", hint));
        }
        Err(error) => return Err(failed("open", path, &error.into())),
    };
    let metadata = file.metadata().map_err(|error| failed("look at", path, &error))?;
    check(path, &metadata)?;
    // As large as it can get: what grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(LARGEST as usize + 1));
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| failed("read", path, &error))?;
    if text.len() as u64 > LARGEST {
        return Err(refused(path, "is larger than any key file", "is it the right file?"));
    }
    Ok(Some(text))
}

fn check(path: &Path, metadata: &std::fs::Metadata) -> Result<(), KeyError> {
    let own = rustix::process::geteuid().as_raw();
    if !FileType::from_raw_mode(metadata.mode()).is_file() {
        return Err(refused(path, "is not a plain file", "name a file with the key in it"));
    }
    if metadata.uid() != own {
        let what = format!("belongs to the user {}, and not to {own}", metadata.uid());
        return Err(refused(path, &what, "make sure who wrote it, then `chown` it"));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        let what = format!("has mode {mode:04o}, so others may have read it");
        return Err(refused(path, &what, "`chmod 600` it and rotate the key"));
    }
    Ok(())
}

/// Makes the file with `text` in it. If there is one by now, that one stays.
pub(crate) fn create(path: &Path, text: &str) -> Result<(), KeyError> {
    let temporary = write_beside(path, text)?;
    // A link, because a rename would replace what somebody else has made meanwhile.
    let linked = rustix::fs::linkat(CWD, &temporary, CWD, path, AtFlags::empty());
    let _ = std::fs::remove_file(&temporary);
    match linked {
        Ok(()) | Err(rustix::io::Errno::EXIST) => sync_directory(path),
        Err(error) => Err(failed("make", path, &error.into())),
    }
}

/// Puts `text` in the place of what was there, in one step.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), KeyError> {
    let temporary = write_beside(path, text)?;
    std::fs::rename(&temporary, path).map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        failed("replace", path, &error)
    })?;
    sync_directory(path)
}

/// A new private file with the text, on the disk. Its name is its own: what a crash left of another is not in its way.
fn write_beside(path: &Path, text: &str) -> Result<PathBuf, KeyError> {
    let mut number = [0; 8];
    random(&mut number).ok_or(KeyError::NoRandomness)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}.new", u64::from_ne_bytes(number)));
    let temporary = path.with_file_name(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let write = || -> io::Result<()> {
        let mut file = File::from(rustix::fs::open(&temporary, flags, Mode::from_raw_mode(PRIVATE))?);
        // Whatever the umask took.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(PRIVATE))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        failed("write", path, &error)
    })?;
    Ok(temporary)
}

fn sync_directory(path: &Path) -> Result<(), KeyError> {
    let directory = match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    };
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| failed("put on the disk", path, &error))
}

fn refused(path: &Path, what: &str, hint: &str) -> KeyError {
    KeyError::Unsafe { path: path.display().to_string(), what: what.into(), hint: hint.into() }
}

fn failed(doing: &'static str, path: &Path, error: &io::Error) -> KeyError {
    KeyError::File { doing, path: path.display().to_string(), error: error.to_string() }
}
