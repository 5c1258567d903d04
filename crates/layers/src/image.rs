//! A layer with a size: a file system of its own, in a file that takes only the space that is used of it.
//!
//! ```text
//!  layers/NAME/image   the file system, with fs/ and work/ in it
//!              loop    the number of the device that it was last seen on
//! ```
//!
//! It is mounted by whoever needs it, where nobody else sees it, and let go of with the last of them: nothing is left of
//! it on the machine when all are killed. All who have it at the same time have it through one device, and so see the
//! same: that is what the number is for. Whoever looks for the device, or makes one, holds a lock on `loop` meanwhile.

mod ext4;

use ext4::{BLOCK, Layout, MAGIC, MAGIC_AT};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use workroom_sys::loop_device::LoopDevice;
use workroom_sys::mount::{
    Attributes, FsOption, attach, clone_tree, clone_tree_at, directory, make, make_private,
};
use workroom_sys::namespace::{Namespaces, unshare};

const IMAGE: &str = "image";
const DEVICE: &str = "loop";
const FILES: &str = "fs";
/// As long as a number can be, so that writing one never takes space that there is not.
const DIGITS: usize = 10;

/// Bytes for each inode where nobody says how many there may be: a file takes at least a block or an inode.
pub const BYTES_PER_INODE: u64 = BLOCK;

/// How large a layer's file system is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSize {
    pub bytes: u64,
    pub inodes: u64,
}

/// Whether a layer has a file system of its own, whole enough to be mounted.
pub fn is_image(layer: &Path) -> bool {
    let mut magic = [0; 2];
    let read = File::open(layer.join(IMAGE)).and_then(|file| file.read_exact_at(&mut magic, MAGIC_AT));
    read.is_ok() && magic == MAGIC
}

/// How many bytes the file of a layer's file system has, holes included; `None` if it has none.
pub fn image_length(layer: &Path) -> Option<u64> {
    is_image(layer).then(|| std::fs::metadata(layer.join(IMAGE)).map(|meta| meta.len()).ok()).flatten()
}

/// How long that file is for a size.
pub fn length_for(size: ImageSize) -> u64 {
    Layout::new(size.bytes, size.inodes, 0, 0, [0; 16]).blocks * BLOCK
}

/// Makes an empty file system in a layer's directory, which is there. `owner`: whose its directories are.
pub fn make_image(layer: &Path, size: ImageSize, owner: u32) -> io::Result<()> {
    let mut id = [0; 16];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(u32::MAX));
    let new = layer.join("image.new");
    let file = File::create(&new)?;
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    Layout::new(size.bytes, size.inodes, owner, now, id).write(&file)?;
    std::fs::write(layer.join(DEVICE), " ".repeat(DIGITS))?;
    // It is there as it is to be or not at all.
    std::fs::rename(new, layer.join(IMAGE))
}

/// A mount of a layer's file system that is nowhere yet. Where the machine's devices are in sight.
pub fn mount_image(layer: &Path) -> io::Result<OwnedFd> {
    let path = layer.join(IMAGE);
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let image = rustix::fs::open(&path, flags, Mode::empty())?;
    // Of another opening than the device's own, which would keep the lock.
    let note = File::from(rustix::fs::open(layer.join(DEVICE), flags, Mode::empty())?);
    rustix::io::retry_on_intr(|| flock(&note, FlockOperation::LockExclusive))?;
    let device = match noted(&note).and_then(|number| LoopDevice::of(number, image.as_fd())) {
        Some(device) => device,
        None => {
            let device = LoopDevice::attach(image.as_fd(), BLOCK as u32)?;
            note.write_all_at(format!("{:<DIGITS$}", device.number).as_bytes(), 0)?;
            device
        }
    };
    let place = device.path().display().to_string();
    // What is deleted in it is given back to the file system that the image is on.
    let options = [FsOption::Set("source", &place), FsOption::Flag("discard")];
    let plain = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    make("ext4", &options, plain)
}

/// What a layer with a file system of its own holds, as a mount that is nowhere yet.
pub fn take_files(layer: &Path) -> io::Result<OwnedFd> {
    let mount = mount_image(layer)?;
    match clone_tree_at(mount.as_fd(), FILES) {
        // Before Linux 6.15 only what is somewhere can be copied.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => take_from_place(mount, layer),
        taken => taken,
    }
}

/// The same by way of a place that only this process sees. It stays among copies of the mounts that it was among.
fn take_from_place(mount: OwnedFd, layer: &Path) -> io::Result<OwnedFd> {
    unshare(Namespaces::MOUNT)?;
    make_private(directory("/")?.as_fd(), Attributes::NONE)?;
    attach(mount.as_fd(), CWD, layer)?;
    clone_tree(layer.join(FILES))
}

fn noted(note: &File) -> Option<u32> {
    let mut digits = [0; DIGITS];
    note.read_exact_at(&mut digits, 0).ok()?;
    str::from_utf8(&digits).ok()?.trim().parse().ok()
}

/// Whether this machine lets us limit a layer so: by doing it, in a directory that is removed again.
pub fn can_mount_images(dir: &Path) -> io::Result<()> {
    let place: PathBuf = dir.join(format!("probe-{}", std::process::id()));
    rustix::fs::mkdir(&place, Mode::RWXU).or_else(|error| match error {
        Errno::EXIST => Ok(()),
        error => Err(error),
    })?;
    let size = ImageSize { bytes: 1 << 20, inodes: 64 };
    let tried = make_image(&place, size, 0).and_then(|()| mount_image(&place)).map(drop);
    let _ = std::fs::remove_dir_all(&place);
    tried
}

#[cfg(test)]
#[path = "image/tests.rs"]
mod tests;
