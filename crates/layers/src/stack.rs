//! Where a worker works: a root of its own with nothing in it but the layers of its task, and stacks of them as rooms
//! see them.
//!
//! ```text
//!  /skeleton     what every room begins with
//!  /0 /1 …       what each layer of the task holds
//!  /made         the directory that the task makes or fills
//!  /empty        an overlay without an upper needs two lowers
//!  /view0 …      stacks
//! ```

use crate::walk::Tree;
use rustix::fs::{CWD, Mode};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use workroom_sys::mount::{Attributes, FsOption, attach, change_root, make, make_overlay, set_attributes};
use workroom_sys::namespace::new_user_namespace;
use workroom_types::LAYER_ID;

/// Detached mounts of what a task is about.
pub struct Mounts {
    pub skeleton: OwnedFd,
    /// What layers hold, each with the path of its directory.
    pub layers: Vec<(PathBuf, OwnedFd)>,
    pub made: Option<OwnedFd>,
}

/// As root: whose ids are mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maps {
    None,
    /// Files of the skeleton get the ids that they would have in a layer.
    Skeleton,
    /// And what is made can be the upper of an overlay.
    SkeletonAndMade,
}

fn map(mount: &OwnedFd, map: &str) -> io::Result<()> {
    let proc = workroom_sys::mount::directory("/proc")?;
    let namespace = new_user_namespace(proc.as_fd(), LAYER_ID, map, map)?;
    set_attributes(mount.as_fd(), Attributes::NONE, Some(namespace.as_fd()))
}

/// The root that the worker stands in.
pub(crate) struct Workshop {
    layers: Vec<PathBuf>,
    pub(crate) as_root: bool,
    views: Cell<u32>,
}

const PLAIN: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NODEV)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

impl Workshop {
    /// Makes the root and enters it.
    pub(crate) fn enter(mounts: Mounts, as_root: bool, maps: Maps) -> io::Result<Workshop> {
        if maps != Maps::None {
            map(&mounts.skeleton, &format!("0 {LAYER_ID} 65536"))?;
        }
        if let (Maps::SkeletonAndMade, Some(made)) = (maps, &mounts.made) {
            // As in a room: what the overlay does by itself, as the machine's root, gets an id of its own.
            map(made, &format!("{LAYER_ID} {LAYER_ID} 65536\n{} 0 1", LAYER_ID + 65536))?;
        }
        let root = make("tmpfs", &[FsOption::Set("size", "1m"), FsOption::Set("mode", "755")], PLAIN)?;
        attach(root.as_fd(), CWD, "/root")?;
        let put = |name: &str, mount: Option<&OwnedFd>| -> io::Result<()> {
            rustix::fs::mkdirat(&root, name, Mode::from_raw_mode(0o755))?;
            mount.map_or(Ok(()), |mount| attach(mount.as_fd(), root.as_fd(), name))
        };
        put("skeleton", Some(&mounts.skeleton))?;
        put("empty", None)?;
        if mounts.made.is_some() {
            put("made", mounts.made.as_ref())?;
        }
        for (number, (_, layer)) in mounts.layers.iter().enumerate() {
            put(&number.to_string(), Some(layer))?;
        }
        change_root(root.as_fd())?;
        let layers = mounts.layers.into_iter().map(|(path, _)| path).collect();
        Ok(Workshop { layers, as_root, views: Cell::new(0) })
    }

    /// Where a layer's files are.
    fn place(&self, layer: &Path) -> io::Result<String> {
        let number = self.layers.iter().position(|known| known == layer).ok_or(Errno::NOENT)?;
        Ok(format!("/{number}"))
    }

    pub(crate) fn layer(&self, layer: &Path) -> io::Result<Tree> {
        Tree::at(&self.place(layer)?)
    }

    pub(crate) fn layer_fd(&self, layer: &Path) -> io::Result<OwnedFd> {
        Ok(rustix::fs::open(self.place(layer)?, crate::walk::DIRECTORY, Mode::empty())?)
    }

    /// What the task makes or fills.
    pub(crate) fn made(&self) -> io::Result<OwnedFd> {
        Ok(rustix::fs::open("/made", crate::walk::DIRECTORY, Mode::empty())?)
    }

    /// A stack over the skeleton as a room sees it, to read.
    pub(crate) fn view(&self, stack: &[PathBuf]) -> io::Result<View> {
        self.mount(stack, &[])
    }

    /// The same to write to; what is written goes to the layer that is made. Not synchronised with the disk when it is
    /// let go of.
    pub(crate) fn writable(&self, stack: &[PathBuf]) -> io::Result<View> {
        let options = [
            FsOption::Set("upperdir", "/made/fs"),
            FsOption::Set("workdir", "/made/work"),
            FsOption::Flag("volatile"),
        ];
        self.mount(stack, &options)
    }

    fn mount(&self, stack: &[PathBuf], above: &[FsOption<'_>]) -> io::Result<View> {
        let mut lowers = stack.iter().rev().map(|layer| self.place(layer)).collect::<io::Result<Vec<_>>>()?;
        if above.is_empty() && lowers.is_empty() {
            lowers.push("/empty".into());
        }
        lowers.push("/skeleton".into());
        let mut options = above.to_vec();
        match self.as_root {
            true if above.is_empty() => options.push(FsOption::Set("redirect_dir", "follow")),
            true => options.extend([FsOption::Set("redirect_dir", "on"), FsOption::Set("metacopy", "off")]),
            false => options.push(FsOption::Flag("userxattr")),
        }
        let mount = make_overlay(&lowers, &options, PLAIN)?;
        let place = format!("/view{}", self.views.replace(self.views.get() + 1));
        rustix::fs::mkdir(&place, Mode::from_raw_mode(0o755))?;
        attach(mount.as_fd(), CWD, &place)?;
        drop(mount);
        Ok(View { tree: Tree::at(&place)?, place })
    }
}

/// A mounted stack.
pub(crate) struct View {
    pub(crate) tree: Tree,
    place: String,
}

impl View {
    /// Takes it off again; all that was written is in its layer then.
    pub(crate) fn unmount(self) -> io::Result<()> {
        drop(self.tree);
        Ok(rustix::mount::unmount(self.place.as_str(), UnmountFlags::empty())?)
    }
}
