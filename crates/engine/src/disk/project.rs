//! Layers that are projects: directories whose files are counted and limited together.

use super::{DiskLimit, open, trial};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use workroom_sys::project_quota::{self, ProjectUsage};

/// Project ids that are ours; an operator's own are smaller.
const PROJECTS: std::ops::Range<u32> = 0x4000_0000..0x7fff_0000;

/// How many ids are tried for one that nobody has.
const MOST_TRIES: usize = 100;

/// What the kernel needs to mount a layer that is full: XFS refuses it to root too, and the room could not even delete.
const TO_MOUNT: ProjectUsage = ProjectUsage { bytes: 4 << 20, inodes: 64 };

/// The project that a layer is.
pub(super) fn of(layer: &Path) -> Option<u32> {
    let project = open(layer).and_then(|dir| project_quota::project_of(dir.as_fd())).ok()?;
    PROJECTS.contains(&project).then_some(project)
}

/// Makes an empty layer a project with a limit.
pub(super) fn begin(layer: &Path, limit: DiskLimit) -> io::Result<()> {
    let dir = open(layer)?;
    let project = free_project(&dir)?;
    project_quota::set_project(dir.as_fd(), project)?;
    set(layer, project, Some(limit))
}

/// Sets the limit of a project, or takes it away.
pub(super) fn set(layer: &Path, project: u32, limit: Option<DiskLimit>) -> io::Result<()> {
    let (bytes, inodes) = limit.map_or((0, 0), |limit| (limit.bytes, limit.files()));
    project_quota::limit_project(open(layer)?.as_fd(), project, bytes, inodes)
}

/// The same with what it takes to mount a layer that is full.
pub(super) fn set_for_mounting(layer: &Path, project: u32, limit: DiskLimit) -> io::Result<()> {
    let used = usage(layer, project)?;
    let inodes = limit.files().max(used.inodes + TO_MOUNT.inodes);
    let limit = DiskLimit { bytes: limit.bytes.max(used.bytes + TO_MOUNT.bytes), inodes: Some(inodes) };
    set(layer, project, Some(limit))
}

pub(super) fn usage(layer: &Path, project: u32) -> io::Result<ProjectUsage> {
    project_quota::project_usage(open(layer)?.as_fd(), project)
}

fn free_project(on: &OwnedFd) -> io::Result<u32> {
    for _ in 0..MOST_TRIES {
        let project = PROJECTS.start + crate::state_dir::random_u32()? % (PROJECTS.end - PROJECTS.start);
        match project_quota::project_usage(on.as_fd(), project) {
            // Nothing is known of one that was never used.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(project),
            Ok(usage) if usage.inodes == 0 => return Ok(project),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("no project id is free"))
}

/// Whether a project's limit holds in a place that is not there yet.
pub(super) fn try_here(place: &Path) -> io::Result<()> {
    trial::in_passing(place, crate::state_dir::make_dir, |place| {
        begin(place, DiskLimit { bytes: 64 << 10, inodes: Some(16) })?;
        let tried = trial::write_beyond(place, 256 << 10);
        if let Some(project) = of(place) {
            set(place, project, None)?;
        }
        tried
    })
}
