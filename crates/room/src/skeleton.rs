//! The skeleton: what a room's file system is before anything happened in it.

use super::SYSTEM_DIRS;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use workroom_types::AGENT_ID;

/// Small files of the machine's `/etc` that programs read and that say nothing about its people.
const ETC_FILES: [&str; 7] =
    ["ld.so.cache", "ld.so.conf", "services", "protocols", "mime.types", "ssl/openssl.cnf", "localtime"];

/// A file that is no configuration any more is not worth a copy in memory.
const LARGEST_ETC_FILE: u64 = 1 << 20;

/// What is taken from the machine.
struct FromHost {
    links: Vec<(PathBuf, PathBuf)>,
    files: Vec<(PathBuf, fs::File, u64)>,
}

/// Reads it below `root`, the machine's root directory, which this process may have left behind.
fn read_host(root: &OwnedFd) -> FromHost {
    let mut from_host = FromHost { links: Vec::new(), files: Vec::new() };
    let link = |path: &Path| {
        let target = rustix::fs::readlinkat(root, path, Vec::new()).ok()?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))
    };
    for name in SYSTEM_DIRS {
        if let Some(target) = link(Path::new(name)) {
            from_host.links.push((name.into(), target));
        }
    }
    for name in ETC_FILES {
        let path = Path::new("etc").join(name);
        match link(&path) {
            // A link into /usr works as well in the room.
            Some(target) if target.starts_with("/usr") => from_host.links.push((path, target)),
            _ => {
                if let Some((file, length)) = open_file(root, &path) {
                    from_host.files.push((path, file, length));
                }
            }
        }
    }
    from_host
}

/// A small plain file, and its length.
fn open_file(root: &OwnedFd, path: &Path) -> Option<(fs::File, u64)> {
    // Never waits: a FIFO in the place of a configuration file is no file.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // A link is followed as the machine would, from its own root.
    let inside = rustix::fs::ResolveFlags::IN_ROOT;
    let file = fs::File::from(rustix::fs::openat2(root, path, flags, Mode::empty(), inside).ok()?);
    let meta = file.metadata().ok().filter(|meta| meta.is_file() && meta.len() <= LARGEST_ETC_FILE)?;
    Some((file, meta.len()))
}

/// A skeleton that may still have to be written. The first room of a spawner is cloned before it is, and makes
/// its namespaces meanwhile.
pub(crate) struct Skeleton {
    /// The machine's root directory, while the skeleton is unwritten.
    unwritten: RefCell<Option<(OwnedFd, OwnedFd)>>,
    /// Says nothing and ends when the skeleton stands; says something if it could not be written.
    told: OwnedFd,
    as_root: bool,
}

impl Skeleton {
    pub(super) fn new(host_root: OwnedFd, as_root: bool) -> io::Result<Skeleton> {
        let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        Ok(Skeleton { unwritten: RefCell::new(Some((host_root, tell))), told, as_root })
    }

    /// Writes it, unless that is done.
    pub(super) fn complete(&self, binds: &[(PathBuf, PathBuf)]) -> io::Result<()> {
        let Some((host_root, tell)) = self.unwritten.borrow_mut().take() else { return Ok(()) };
        let umask = rustix::process::umask(Mode::empty());
        let written = write(Path::new("/skeleton"), &read_host(&host_root), binds, self.as_root);
        rustix::process::umask(umask);
        if written.is_err() {
            let _ = rustix::io::write(&tell, b"x");
        }
        written
    }

    /// What a room that is being built must keep open to wait with.
    pub(crate) fn descriptor(&self) -> i32 {
        self.told.as_raw_fd()
    }

    /// In a room that is being built: waits until the skeleton stands.
    pub(crate) fn wait(&self) -> io::Result<()> {
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.told, &mut [0u8; 1]))? {
            0 => Ok(()),
            _ => Err(io::Error::other("the skeleton could not be written")),
        }
    }
}

/// Generated: a room has its own people, names and resolver, never the machine's.
const GENERATED: [(&str, &str); 8] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\n\
         agent:x:1000:1000:agent:/home/agent:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1 localhost room\n::1 localhost ip6-localhost\n"),
    // Whom the host answers for in rooms that have a network. In the others there is no way to it, and so no wait for it.
    ("etc/resolv.conf", "nameserver 198.18.0.1\noptions timeout:5 attempts:2\n"),
    ("etc/hostname", "room\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    ),
    ("etc/shells", "/bin/sh\n/bin/bash\n"),
    ("etc/profile", "PS1='\\u@\\h:\\w\\$ '\n"),
];

/// Directories with their modes.
const DIRECTORIES: [(&str, u32); 24] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("etc/ssl", 0o755),
    ("home", 0o755),
    ("home/agent", 0o775),
    ("media", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("run/.secrets", 0o755),
    ("run/.secrets/current", 0o755),
    ("run/lock", 0o1777),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
    ("workspace", 0o775),
];

/// Writes it all below `root`, everything born with its final mode.
fn write(root: &Path, from_host: &FromHost, binds: &[(PathBuf, PathBuf)], as_root: bool) -> io::Result<()> {
    let root = crate::mounts::directory(root)?;
    for (name, mode) in DIRECTORIES {
        rustix::fs::mkdirat(&root, name, Mode::from_raw_mode(mode))?;
    }
    for (_, target) in binds {
        make_parents(&root, &target.join("below"))?;
    }
    for (name, target) in &from_host.links {
        rustix::fs::symlinkat(target, &root, name)?;
    }
    for (name, file, length) in &from_host.files {
        // The kernel copies it, past this process's own memory, which every room is a copy of. One that cannot be
        // read ends where it could not.
        let _ = io::copy(&mut io::Read::take(file, *length), &mut make_file(&root, name)?);
    }
    for (name, content) in GENERATED {
        io::Write::write_all(&mut make_file(&root, Path::new(name))?, content.as_bytes())?;
    }
    for (name, target) in [
        ("etc/mtab", "/proc/self/mounts"),
        ("etc/os-release", "../usr/lib/os-release"),
        // What the guest puts there is in memory, and is replaced whole.
        ("run/secrets", ".secrets/current"),
        ("var/run", "/run"),
        ("var/lock", "/run/lock"),
    ] {
        rustix::fs::symlinkat(target, &root, name)?;
    }
    if as_root {
        // The room's root has no capability to write to what is another's: it does as one of the group.
        let (uid, gid) = (Uid::from_raw(AGENT_ID), Gid::ROOT);
        for name in ["home/agent", "workspace"] {
            rustix::fs::chownat(&root, name, Some(uid), Some(gid), AtFlags::empty())?;
        }
    }
    Ok(())
}

fn make_file(root: &OwnedFd, name: &Path) -> io::Result<fs::File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(root, name, flags, Mode::from_raw_mode(0o644));
    let file = match open() {
        Err(Errno::NOENT) => {
            make_parents(root, name)?;
            open()?
        }
        other => other?,
    };
    Ok(file.into())
}

fn make_parents(root: &OwnedFd, name: &Path) -> io::Result<()> {
    let parents: Vec<&Path> = name.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
    for parent in parents.into_iter().rev() {
        match rustix::fs::mkdirat(root, parent, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
