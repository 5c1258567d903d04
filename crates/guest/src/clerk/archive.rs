//! Archives: whole trees that come in and go out through a pipe.

mod bzip2;
mod codec;
mod export;
mod import;
mod member;
mod stage;
mod tar;
#[cfg(test)]
mod tests;
mod zip;
mod zip_writer;

use super::failure::problem;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::os::fd::OwnedFd;
use workroom_types::{Problem, RoomPath};

pub(crate) use export::export;
pub(crate) use import::import;

/// The host's pipe, as one whose reads and writes wait.
fn waiting(pipe: OwnedFd, at: &RoomPath) -> Result<File, Problem> {
    fcntl_getfl(&pipe)
        .and_then(|flags| fcntl_setfl(&pipe, flags - OFlags::NONBLOCK))
        .map_err(|error| problem(error, at, "streamed"))?;
    Ok(File::from(pipe))
}
