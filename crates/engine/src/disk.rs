//! How much a session's rooms may write: what this machine can do about it, and layers that are made with a limit.
//!
//! ```text
//!  project quota    the layer is a directory whose files are counted together; where the operator has switched it on
//!  subvolume        the layer is a subvolume of btrfs with a quota group; where the operator has switched quotas on,
//!                   nobody wants files counted, and no layers are beneath it
//!  image            the layer is a file system of its own in a file; as root, with loop devices
//!  advisory         the layer is measured now and then, and nothing holds anybody back
//! ```
//!
//! The limit is that of the layer that rooms write to. What lies below it is frozen, and was limited when it was written.

mod project;
mod subvolume;
mod trial;

use crate::shared::Shared;
use crate::state_dir::StateDir;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use workroom_layers::{BYTES_PER_INODE, ImageSize};
use workroom_types::{
    DISK_IN_MEMORY, DiskGauge, LAYER_ID, Layer, LayerState, Limits, Policy, Problem, ProblemCode, RoomSpec,
    Session,
};

/// What a layer may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskLimit {
    pub(crate) bytes: u64,
    /// As many as somebody wants counted. Otherwise as many as the bytes allow for.
    pub(crate) inodes: Option<u64>,
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
        Some(DiskLimit { bytes, inodes: policy.inodes })
    }

    /// What the layer of a session is to be limited to: where rooms write to memory, nothing is written to it.
    pub(crate) fn of_layer(policy: &Policy) -> Option<DiskLimit> {
        DiskLimit::of(policy).filter(|_| policy.ephemeral != Some(true))
    }

    /// What a room's layer is to be limited to.
    pub(crate) fn of_room(spec: &RoomSpec) -> Option<DiskLimit> {
        let asked = matches!(spec.disk, Some(LayerState::Enforced(_))) && !spec.in_memory;
        let inodes = Some(spec.limits.inodes).filter(|inodes| *inodes != 0);
        asked.then_some(DiskLimit { bytes: spec.limits.disk, inodes })
    }

    /// How many files there may be, where a number has to be given.
    fn files(self) -> u64 {
        self.inodes.unwrap_or((self.bytes / BYTES_PER_INODE).max(LEAST_INODES))
    }

    fn as_image(self) -> ImageSize {
        ImageSize { bytes: self.bytes, inodes: self.files() }
    }
}

/// As many as the smallest layer can hold.
const LEAST_INODES: u64 = 1024;

/// What there is where only files are counted: 64 GiB. The larger, the longer it takes to make.
const MOST_BYTES: u64 = 64 << 30;

/// What a layer stands on, beside what every room begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beneath {
    Nothing,
    Layers,
}

impl Beneath {
    pub(crate) fn of<T>(frozen: &[T]) -> Beneath {
        if frozen.is_empty() { Beneath::Nothing } else { Beneath::Layers }
    }
}

/// What a layer can be limited with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Means {
    Project,
    Subvolume,
    Image,
    /// Nothing, and why.
    Nothing(String),
}

impl Means {
    fn state(&self) -> LayerState {
        match self {
            Means::Project => LayerState::Enforced("project quota".into()),
            Means::Subvolume => LayerState::Enforced("quota of a btrfs subvolume".into()),
            Means::Image => LayerState::Enforced("ext4 image of the layer's own".into()),
            Means::Nothing(why) => LayerState::Partial(format!("advisory, measured and told only: {why}")),
        }
    }
}

/// What the state directory's own file system has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Native {
    Projects,
    Subvolumes,
    Neither,
}

/// What there is on this machine, found out when it is first needed.
pub(crate) struct Disks {
    is_root: bool,
    /// A directory that is there while something is tried in it.
    trial: PathBuf,
    native: OnceLock<Native>,
    images: OnceLock<Result<(), String>>,
}

/// How a layer that is there is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not at all.
    Plain,
    Project(u32),
    /// By the quota group of this number. Never to be frozen as it is.
    Subvolume(u64),
    /// By a file of this length.
    Image(u64),
}

pub(crate) fn kind_of(layer: &Path) -> Kind {
    if let Some(length) = workroom_layers::image_length(layer) {
        return Kind::Image(length);
    }
    if let Some(subvolume) = subvolume::of(layer) {
        return Kind::Subvolume(subvolume);
    }
    project::of(layer).map_or(Kind::Plain, Kind::Project)
}

pub(crate) fn is_subvolume(layer: &Path) -> bool {
    matches!(kind_of(layer), Kind::Subvolume(_))
}

impl Disks {
    pub(crate) fn new(state: &StateDir, is_root: bool) -> Disks {
        Disks { is_root, trial: state.trial(), native: OnceLock::new(), images: OnceLock::new() }
    }

    /// What a new layer would be limited with. Looks at the machine the first time, which takes a moment.
    fn means(&self, limit: DiskLimit, beneath: Beneath) -> Means {
        if !self.is_root {
            return Means::Nothing("it takes root, or an ephemeral session".into());
        }
        let native = *self.native.get_or_init(|| {
            let tried = project::try_here(&self.trial).map(|()| Native::Projects).or_else(|error| {
                tracing::debug!(%error, "the state directory has no project quota");
                subvolume::try_here(&self.trial).map(|()| Native::Subvolumes)
            });
            tried.unwrap_or_else(|error| {
                tracing::debug!(%error, "the state directory has no subvolumes with a quota");
                Native::Neither
            })
        });
        match native {
            Native::Projects => return Means::Project,
            Native::Subvolumes
                if limit.inodes.is_none()
                    && beneath == Beneath::Nothing
                    && subvolume::are_counted(&self.trial).is_ok() =>
            {
                return Means::Subvolume;
            }
            _ => {}
        }
        let images = self.images.get_or_init(|| {
            let tried =
                trial::in_passing(&self.trial, crate::state_dir::make_dir, workroom_layers::can_mount_images);
            tried.map_err(|error| error.to_string())
        });
        match images {
            Ok(()) => Means::Image,
            Err(error) => Means::Nothing(format!(
                "the state directory's file system has no quota for it, and an image cannot be mounted: {error}"
            )),
        }
    }

    /// How a layer under this limit stands: one that is there as it is, another as it will be made.
    fn state(&self, layer: &Path, limit: DiskLimit, beneath: Beneath) -> LayerState {
        let means = match kind_of(layer) {
            Kind::Plain => self.means(limit, beneath),
            Kind::Project(_) => Means::Project,
            Kind::Subvolume(_) => Means::Subvolume,
            Kind::Image(_) => Means::Image,
        };
        means.state()
    }

    /// How a layer with a limit stands while its room runs, where that may change by itself.
    pub(crate) fn state_now(&self, layer: &Path) -> Option<LayerState> {
        let Kind::Subvolume(_) = kind_of(layer) else { return None };
        let means = match subvolume::are_counted(layer) {
            Ok(()) => Means::Subvolume,
            Err(error) => Means::Nothing(error.to_string()),
        };
        Some(means.state())
    }

    /// What limits sessions here, in words.
    pub(crate) fn described(&self) -> String {
        let limit = DiskLimit { bytes: MOST_BYTES, inodes: None };
        match self.means(limit, Beneath::Nothing).state() {
            LayerState::Enforced(by) | LayerState::Partial(by) | LayerState::Missing(by) => by,
        }
    }

    /// Whether a layer that is there is limited as this asks. One that is not there yet is.
    pub(crate) fn fits(&self, layer: &Path, limit: Option<DiskLimit>, beneath: Beneath) -> bool {
        if !layer.exists() {
            return true;
        }
        let Some(limit) = limit else {
            // A subvolume's limit is taken away where it is.
            return matches!(kind_of(layer), Kind::Plain | Kind::Subvolume(_));
        };
        match kind_of(layer) {
            Kind::Plain => matches!(self.means(limit, beneath), Means::Nothing(_)),
            // The limit of these is changed where it is, unless the file system has lost its quotas.
            Kind::Project(_) => matches!(self.means(limit, beneath), Means::Project | Means::Nothing(_)),
            Kind::Subvolume(_) => self.means(limit, beneath) == Means::Subvolume,
            Kind::Image(length) => length == workroom_layers::length_for(limit.as_image()),
        }
    }

    /// Makes a layer under a limit, unless it is there. Once the room stands its limit is what it is to be
    /// (`Room::create_in`).
    pub(crate) fn make_layer(
        &self,
        state: &StateDir,
        name: &str,
        limit: DiskLimit,
        beneath: Beneath,
    ) -> io::Result<PathBuf> {
        let layer = state.layers().join(name);
        match kind_of(&layer) {
            Kind::Image(_) => return Ok(layer),
            Kind::Project(project) => {
                project::set_for_mounting(&layer, project, limit)?;
                return state.layer(name, true);
            }
            Kind::Subvolume(subvolume) => {
                subvolume::set_for_mounting(&layer, subvolume, limit.bytes)?;
                return state.layer(name, true);
            }
            Kind::Plain if layer.join("fs").exists() => {
                return Err(io::Error::other("it was begun without a limit on its size"));
            }
            Kind::Plain => {}
        }
        match self.means(limit, beneath) {
            Means::Image => {
                crate::state_dir::make_dir(&layer)?;
                workroom_layers::make_image(&layer, limit.as_image(), LAYER_ID)?;
                Ok(layer)
            }
            Means::Project => {
                crate::state_dir::make_dir(&layer)?;
                project::begin(&layer, limit)?;
                state.layer(name, true)
            }
            Means::Subvolume => {
                subvolume::make(&layer)?;
                let Kind::Subvolume(subvolume) = kind_of(&layer) else {
                    return Err(io::Error::other("what was made is no subvolume"));
                };
                subvolume::set(&layer, subvolume, Some(limit.bytes))?;
                state.layer(name, true)
            }
            Means::Nothing(why) => Err(io::Error::other(why)),
        }
    }

    /// Changes the limit of a layer that is in use, and says how it stands then; `None` where that cannot be done.
    pub(crate) fn change(&self, layer: &Path, limit: Option<DiskLimit>) -> Option<LayerState> {
        let (means, changed) = match kind_of(layer) {
            Kind::Project(project) => (Means::Project, project::set(layer, project, limit)),
            Kind::Subvolume(subvolume) if limit.is_none_or(|limit| limit.inodes.is_none()) => {
                (Means::Subvolume, subvolume::set(layer, subvolume, limit.map(|limit| limit.bytes)))
            }
            Kind::Subvolume(_) | Kind::Plain | Kind::Image(_) => return None,
        };
        changed.ok()?;
        Some(match limit {
            Some(_) => means.state(),
            None => LayerState::Missing("no limit was asked for".into()),
        })
    }

    /// What is in a layer, against this limit. `told`: what its room sees, which is everybody's files unless the layer
    /// is a file system of its own, or a project whose limit is smaller than that.
    pub(crate) fn gauge(&self, layer: &Path, limit: Option<DiskLimit>, told: DiskGauge) -> Option<DiskGauge> {
        let most = limit.map_or(u64::MAX, |limit| limit.bytes);
        match kind_of(layer) {
            Kind::Project(project) => {
                let Ok(used) = project::usage(layer, project) else { return Some(told) };
                let files = limit.map_or(u64::MAX, DiskLimit::files);
                Some(DiskGauge {
                    bytes: most.max(used.bytes),
                    bytes_free: most.saturating_sub(used.bytes),
                    inodes: files.max(used.inodes),
                    inodes_free: files.saturating_sub(used.inodes),
                })
            }
            Kind::Subvolume(subvolume) => {
                let used = subvolume::usage(layer, subvolume).ok()?;
                let (bytes, bytes_free) = (most.max(used), most.saturating_sub(used));
                Some(DiskGauge { bytes, bytes_free, inodes: 0, inodes_free: 0 })
            }
            Kind::Plain | Kind::Image(_) => Some(told),
        }
    }

    /// A layer is on its way out: nothing is to remember its limit, also if a server before this one has set it, and
    /// nothing is to be in the way of deleting what is in it.
    pub(crate) fn forget(&self, layer: &Path) {
        let is_limited = matches!(kind_of(layer), Kind::Project(_) | Kind::Subvolume(_));
        if is_limited && self.change(layer, None).is_none() {
            tracing::debug!(layer = %layer.display(), "it keeps its limit");
        }
    }
}

impl Shared {
    /// How a layer under this policy is limited; `None` if nobody asks for it.
    pub(crate) fn disk_state(&self, policy: &Policy, layer: &Path, beneath: Beneath) -> Option<LayerState> {
        if policy.ephemeral == Some(true) {
            return Some(LayerState::Enforced(DISK_IN_MEMORY.into()));
        }
        DiskLimit::of(policy).map(|limit| self.disks.state(layer, limit, beneath))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_what_somebody_asks_for() {
        assert_eq!(DiskLimit::of(&Policy::default()), None);
        let disk = Policy { disk: Some(40 << 20), ..Policy::default() };
        let limit = DiskLimit::of(&disk).expect("a limit");
        assert_eq!((limit.bytes, limit.inodes, limit.files()), (40 << 20, None, 10240));
        let inodes = Policy { inodes: Some(10), ..Policy::default() };
        assert_eq!(DiskLimit::of(&inodes), Some(DiskLimit { bytes: MOST_BYTES, inodes: Some(10) }));
        let required = Policy { require: vec!["disk".into()], ..Policy::default() };
        assert_eq!(DiskLimit::of(&required).map(|limit| limit.bytes), Some(1 << 30));
    }
}
