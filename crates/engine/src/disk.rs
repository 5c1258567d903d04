//! How much a session's rooms may write: what this machine can do about it, and layers that are made with a limit.
//!
//! ```text
//!  project quota    the layer is a directory whose files are counted together; where the operator has switched it on
//!  image            the layer is a file system of its own in a file; as root, with loop devices
//!  advisory         the layer is measured now and then, and nothing holds anybody back
//! ```
//!
//! The limit is that of the layer that rooms write to. What lies below it is frozen, and was limited when it was written.

use crate::shared::Shared;
use crate::state_dir::StateDir;
use rustix::fs::{Mode, OFlags};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use workroom_layers::{BYTES_PER_INODE, ImageSize};
use workroom_sys::project_quota;
use workroom_types::{
    DISK_IN_MEMORY, DiskGauge, LAYER_ID, Layer, LayerState, Limits, Policy, Problem, ProblemCode, RoomSpec,
    Session,
};

/// What a layer may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskLimit {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

impl DiskLimit {
    /// What a policy asks for, if it asks for anything.
    pub(crate) fn of(policy: &Policy) -> Option<DiskLimit> {
        let required = policy.require.iter().any(|layer| layer == Layer::Disk.name());
        if policy.disk.is_none() && policy.inodes.is_none() && !required {
            return None;
        }
        let bytes = match policy.inodes {
            Some(_) if policy.disk.is_none() => MOST_BYTES,
            _ => policy.disk.unwrap_or(Limits::default().disk),
        };
        let by_size = (bytes / BYTES_PER_INODE).max(LEAST_INODES);
        Some(DiskLimit { bytes, inodes: policy.inodes.unwrap_or(by_size) })
    }

    /// What the layer of a session is to be limited to: where rooms write to memory, nothing is written to it.
    pub(crate) fn of_layer(policy: &Policy) -> Option<DiskLimit> {
        DiskLimit::of(policy).filter(|_| policy.ephemeral != Some(true))
    }

    /// What a room's layer is to be limited to.
    pub(crate) fn of_room(spec: &RoomSpec) -> Option<DiskLimit> {
        let asked = matches!(spec.disk, Some(LayerState::Enforced(_))) && !spec.in_memory;
        asked.then_some(DiskLimit { bytes: spec.limits.disk, inodes: spec.limits.inodes })
    }

    /// How a layer stands whose limit was changed to this where it is.
    pub(crate) fn state_of_changed(limit: Option<DiskLimit>) -> LayerState {
        match limit {
            Some(_) => LayerState::Enforced(BY_PROJECT.into()),
            None => LayerState::Missing("no limit was asked for".into()),
        }
    }

    fn as_image(self) -> ImageSize {
        ImageSize { bytes: self.bytes, inodes: self.inodes }
    }
}

/// As many as the smallest layer can hold.
const LEAST_INODES: u64 = 1024;

/// What there is where only files are counted: 64 GiB. The larger, the longer it takes to make.
const MOST_BYTES: u64 = 64 << 30;

const BY_PROJECT: &str = "project quota";

/// What the kernel needs to mount a layer that is full: XFS refuses it to root too, and the room could not even delete.
const TO_MOUNT: DiskLimit = DiskLimit { bytes: 4 << 20, inodes: 64 };

/// What this machine has to limit a layer with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Means {
    Project,
    Image,
    /// Nothing, and why.
    Nothing(String),
}

/// Found out when it is first needed.
#[derive(Default)]
pub(crate) struct Disks {
    means: OnceLock<Means>,
}

/// How a layer that is there is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not at all.
    Plain,
    Project(u32),
    /// By a file of this length.
    Image(u64),
}

pub(crate) fn kind_of(layer: &Path) -> Kind {
    if let Some(length) = workroom_layers::image_length(layer) {
        return Kind::Image(length);
    }
    match open(layer).and_then(|dir| project_quota::project_of(dir.as_fd())) {
        Ok(project) if PROJECTS.contains(&project) => Kind::Project(project),
        _ => Kind::Plain,
    }
}

/// Project ids that are ours; an operator's own are smaller.
const PROJECTS: std::ops::Range<u32> = 0x4000_0000..0x7fff_0000;

/// How many ids are tried for one that nobody has.
const MOST_TRIES: usize = 100;

impl Disks {
    fn means(&self, state: &StateDir, is_root: bool) -> &Means {
        self.means.get_or_init(|| {
            if !is_root {
                return Means::Nothing("it takes root, or an ephemeral session".into());
            }
            let dir = state.trash();
            match try_project(&dir) {
                Ok(()) => return Means::Project,
                Err(error) => tracing::debug!(%error, "the state directory has no project quota"),
            }
            match workroom_layers::can_mount_images(&dir) {
                Ok(()) => Means::Image,
                Err(error) => Means::Nothing(format!(
                    "the state directory's file system has no project quota, and an image cannot be mounted: {error}"
                )),
            }
        })
    }

    /// How a layer under this limit stands. Looks at the machine the first time, which takes a moment.
    pub(crate) fn state(&self, state: &StateDir, is_root: bool) -> LayerState {
        match self.means(state, is_root) {
            Means::Project => LayerState::Enforced(BY_PROJECT.into()),
            Means::Image => LayerState::Enforced("ext4 image of the layer's own".into()),
            Means::Nothing(why) => LayerState::Partial(format!("advisory, measured and told only: {why}")),
        }
    }

    /// Whether a layer that is there is limited as this asks. One that is not there yet is.
    pub(crate) fn fits(&self, layer: &Path, limit: Option<DiskLimit>) -> bool {
        if !layer.exists() {
            return true;
        }
        match (kind_of(layer), limit, self.means.get()) {
            (Kind::Plain, None, _) => true,
            (Kind::Plain, Some(_), means) => matches!(means, None | Some(Means::Nothing(_))),
            // Its limit is changed where it is, unless the file system has lost its quotas.
            (Kind::Project(_), Some(_), means) => !matches!(means, Some(Means::Image)),
            (Kind::Project(_), None, _) => false,
            (Kind::Image(length), Some(limit), _) => length == workroom_layers::length_for(limit.as_image()),
            (Kind::Image(_), None, _) => false,
        }
    }

    /// Makes a layer under a limit, unless it is there.
    pub(crate) fn make_layer(&self, state: &StateDir, name: &str, limit: DiskLimit) -> io::Result<PathBuf> {
        let layer = state.layers().join(name);
        match (self.means(state, true), kind_of(&layer)) {
            (Means::Image, Kind::Image(_)) => Ok(layer),
            (Means::Image, _) if layer.join("fs").exists() => {
                Err(io::Error::other("it was begun without a limit on its size"))
            }
            (Means::Image, _) => {
                crate::state_dir::make_dir(&layer)?;
                workroom_layers::make_image(&layer, limit.as_image(), LAYER_ID)?;
                Ok(layer)
            }
            (Means::Project, Kind::Project(project)) => {
                // Once the room stands its limit is what it is to be (`Room::create_in`).
                let used = project_quota::project_usage(open(&layer)?.as_fd(), project)?;
                let while_mounting = DiskLimit {
                    bytes: limit.bytes.max(used.bytes + TO_MOUNT.bytes),
                    inodes: limit.inodes.max(used.inodes + TO_MOUNT.inodes),
                };
                limit_project(&layer, project, while_mounting)?;
                state.layer(name, true)
            }
            (Means::Project, _) => {
                crate::state_dir::make_dir(&layer)?;
                let dir = open(&layer)?;
                let project = free_project(&dir)?;
                project_quota::set_project(dir.as_fd(), project)?;
                limit_project(&layer, project, limit)?;
                state.layer(name, true)
            }
            (Means::Nothing(why), _) => Err(io::Error::other(why.clone())),
        }
    }

    /// Changes the limit of a layer that is in use; false where that cannot be done.
    pub(crate) fn change(&self, layer: &Path, limit: Option<DiskLimit>) -> bool {
        match (kind_of(layer), limit) {
            (Kind::Project(project), Some(limit)) => limit_project(layer, project, limit).is_ok(),
            (Kind::Project(project), None) => {
                limit_project(layer, project, DiskLimit { bytes: 0, inodes: 0 }).is_ok()
            }
            _ => false,
        }
    }

    /// What is in a layer that is a project, against this limit; `None` if it is none. The file system itself would tell
    /// of everybody's files where the limit is larger than it, or there is none.
    pub(crate) fn gauge(&self, layer: &Path, limit: Option<DiskLimit>) -> Option<DiskGauge> {
        let Kind::Project(project) = kind_of(layer) else { return None };
        let used = project_quota::project_usage(open(layer).ok()?.as_fd(), project).ok()?;
        let limit = limit.unwrap_or(DiskLimit { bytes: u64::MAX, inodes: u64::MAX });
        Some(DiskGauge {
            bytes: limit.bytes.max(used.bytes),
            bytes_free: limit.bytes.saturating_sub(used.bytes),
            inodes: limit.inodes.max(used.inodes),
            inodes_free: limit.inodes.saturating_sub(used.inodes),
        })
    }

    /// A layer is on its way out: nothing is to remember its limit, also if a server before this one has set it.
    pub(crate) fn forget(&self, layer: &Path) {
        if matches!(kind_of(layer), Kind::Project(_)) && !self.change(layer, None) {
            tracing::debug!(layer = %layer.display(), "its project keeps its limit");
        }
    }
}

impl Shared {
    /// How a layer under this policy is limited; `None` if nobody asks for it.
    pub(crate) fn disk_state(&self, policy: &Policy) -> Option<LayerState> {
        if policy.ephemeral == Some(true) {
            return Some(LayerState::Enforced(DISK_IN_MEMORY.into()));
        }
        DiskLimit::of(policy).map(|_| self.disks.state(&self.state, self.machine.is_root))
    }

    /// Returns once all that a room has written to a file system of its own is in that, and that is on the disk.
    pub(crate) async fn flush_image(&self, root: Option<OwnedFd>, top: &str) {
        let layer = self.layer_dir(top);
        let flushed = tokio::task::spawn_blocking(move || -> io::Result<()> {
            let Some(root) = root.filter(|_| workroom_layers::is_image(&layer)) else { return Ok(()) };
            // It was opened only to be held.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok(rustix::fs::syncfs(rustix::fs::openat(&root, ".", flags, Mode::empty())?)?)
        });
        if let Ok(Err(error)) = flushed.await {
            tracing::warn!(layer = top, %error, "files of a session are not flushed");
        }
    }
}

/// Fails if a session's files are, for the most part, where only its room sees them.
pub(crate) fn check_on_disk(session: &Session) -> Result<(), Problem> {
    match session.enforced.get(Layer::Disk) {
        Some(LayerState::Enforced(by)) if by == DISK_IN_MEMORY => Err(Problem::new(
            ProblemCode::WrongState,
            "what the session has written is in its room's memory only, as its policy says (ephemeral)",
            "copy files out; or stop the session, which leaves what was there before its room was",
        )),
        _ => Ok(()),
    }
}

fn open(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}

fn limit_project(layer: &Path, project: u32, limit: DiskLimit) -> io::Result<()> {
    project_quota::limit_project(open(layer)?.as_fd(), project, limit.bytes, limit.inodes)
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

/// Whether a project's limit holds here: by running into one.
fn try_project(dir: &Path) -> io::Result<()> {
    let place = dir.join(format!("quota-{}", std::process::id()));
    crate::state_dir::make_dir(&place)?;
    let tried = fill_a_project(&place);
    let _ = std::fs::remove_dir_all(&place);
    tried
}

fn fill_a_project(place: &Path) -> io::Result<()> {
    let dir = open(place)?;
    let project = free_project(&dir)?;
    project_quota::set_project(dir.as_fd(), project)?;
    let limit = DiskLimit { bytes: 64 << 10, inodes: 16 };
    limit_project(place, project, limit)?;
    let file = place.join("full");
    // A thread of its own gives up the right to go beyond, as a room's overlay does.
    let filled = std::thread::spawn(move || {
        let mut sets = rustix::thread::capabilities(None)?;
        sets.effective.remove(rustix::thread::CapabilitySet::SYS_RESOURCE);
        rustix::thread::set_capabilities(None, sets)?;
        let mut file = std::fs::File::create(file)?;
        file.write_all(&[1; 256 << 10])?;
        file.sync_all()
    });
    let filled = filled.join().unwrap_or_else(|_| Err(io::Error::other("the trial did not end well")));
    limit_project(place, project, DiskLimit { bytes: 0, inodes: 0 })?;
    match filled {
        Err(error) if is_full(&error) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(io::Error::other("a project's limit holds nobody back")),
    }
}

fn is_full(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_what_somebody_asks_for() {
        assert_eq!(DiskLimit::of(&Policy::default()), None);
        let disk = Policy { disk: Some(40 << 20), ..Policy::default() };
        assert_eq!(DiskLimit::of(&disk), Some(DiskLimit { bytes: 40 << 20, inodes: 10240 }));
        let inodes = Policy { inodes: Some(10), ..Policy::default() };
        assert_eq!(DiskLimit::of(&inodes), Some(DiskLimit { bytes: MOST_BYTES, inodes: 10 }));
        let required = Policy { require: vec!["disk".into()], ..Policy::default() };
        assert_eq!(DiskLimit::of(&required).map(|limit| limit.bytes), Some(1 << 30));
    }
}
