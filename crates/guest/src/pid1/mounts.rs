//! Directories of the host that come into a room while it runs, where the room's mounts are the guest's own.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use workroom_proto::Answer;
use workroom_sys::mount::directory;
use workroom_sys::place::{attach_on, check_free, free_place, make_place};

/// Attaches the tree that came with the question.
pub(super) fn mount(target: &Path, tree: &[OwnedFd]) -> Answer {
    let [tree] = tree else { return Answer::Failed { why: "the tree did not come along".into() } };
    let attached = directory("/").and_then(|root| {
        let place = make_place(root.as_fd(), target, |_| None)?;
        check_free(place.as_fd())?;
        attach_on(tree.as_fd(), place.as_fd())
    });
    match attached {
        Ok(()) => Answer::Done,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Answer::Occupied,
        Err(error) => Answer::Failed { why: error.to_string() },
    }
}

pub(super) fn unmount(target: &Path, remove_place: bool) -> Answer {
    let freed = directory("/").and_then(|root| free_place(root.as_fd(), target, remove_place));
    let _ = rustix::process::chdir("/");
    match freed {
        Ok(true) => Answer::Done,
        Ok(false) => Answer::Failed { why: "it is not where it was mounted: the room has moved it".into() },
        Err(error) => Answer::Failed { why: error.to_string() },
    }
}
