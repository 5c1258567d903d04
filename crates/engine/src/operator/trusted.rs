//! Reading files that decide what rooms see of the host.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Reads a file that only we or root can have written.
pub fn read_trusted(path: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let meta = file.metadata()?;
    let us = rustix::process::geteuid().as_raw();
    if ![0, us].contains(&meta.uid()) || meta.mode() & 0o022 != 0 {
        return Err(std::io::Error::other("it belongs to, or can be changed by, someone else"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}
