//! The skeleton: what a room's file system is before anything happened in it.

use super::{SYSTEM_DIRS, give_to_agent};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Small files of the machine's `/etc` that programs read and that say nothing about its people.
const ETC_FILES: [&str; 12] = [
    "ld.so.cache",
    "ld.so.conf",
    "services",
    "protocols",
    "mime.types",
    "magic",
    "inputrc",
    "gai.conf",
    "ssl/openssl.cnf",
    "localtime",
    "timezone",
    "debian_version",
];

/// A file that is no configuration any more is not worth a copy in memory.
const LARGEST_ETC_FILE: u64 = 1 << 20;

/// What is taken from the machine, read before its file system is left behind.
pub(super) struct FromHost {
    links: Vec<(PathBuf, PathBuf)>,
    files: Vec<(PathBuf, Vec<u8>)>,
}

pub(super) fn read_host() -> FromHost {
    let mut from_host = FromHost { links: Vec::new(), files: Vec::new() };
    for name in SYSTEM_DIRS {
        if let Ok(target) = fs::read_link(Path::new("/").join(name)) {
            from_host.links.push((name.into(), target));
        }
    }
    for name in ETC_FILES {
        let path = Path::new("/etc").join(name);
        let at = Path::new("etc").join(name);
        match fs::read_link(&path) {
            // A link into /usr works as well in the room.
            Ok(target) if target.starts_with("/usr") => from_host.links.push((at, target)),
            _ => {
                let fits = fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= LARGEST_ETC_FILE);
                if fits && let Ok(content) = fs::read(&path) {
                    from_host.files.push((at, content));
                }
            }
        }
    }
    if let Ok(online) = fs::read("/sys/devices/system/cpu/online") {
        for name in ["online", "possible", "present"] {
            from_host.files.push((Path::new("sys/devices/system/cpu").join(name), online.clone()));
        }
    }
    from_host
}

/// Generated: a room has its own people, names and resolver, never the machine's.
const GENERATED: [(&str, &str); 9] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\n\
         agent:x:1000:1000:agent:/home/agent:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1 localhost room\n::1 localhost ip6-localhost\n"),
    ("etc/resolv.conf", "# This room has no network.\n"),
    ("etc/hostname", "room\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"),
    ("etc/shells", "/bin/sh\n/bin/bash\n"),
    ("etc/profile", "PS1='\\u@\\h:\\w\\$ '\n"),
    ("etc/machine-id", "00000000000000000000000000000000\n"),
];

/// Directories with their modes.
const DIRECTORIES: [(&str, u32); 25] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("etc/ssl", 0o755),
    ("home", 0o755),
    ("home/agent", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("srv", 0o755),
    ("sys", 0o555),
    ("sys/devices", 0o555),
    ("sys/devices/system", 0o555),
    ("sys/devices/system/cpu", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
    ("workspace", 0o755),
];

pub(super) fn write(
    root: &Path,
    from_host: &FromHost,
    binds: &[(PathBuf, PathBuf)],
    as_root: bool,
) -> io::Result<()> {
    for (name, _) in DIRECTORIES {
        fs::create_dir_all(root.join(name))?;
    }
    for (_, target) in binds {
        fs::create_dir_all(root.join(target))?;
    }
    for (name, target) in &from_host.links {
        symlink(target, root.join(name))?;
    }
    for (name, content) in &from_host.files {
        write_file(&root.join(name), content)?;
    }
    for (name, content) in GENERATED {
        write_file(&root.join(name), content.as_bytes())?;
    }
    symlink("/proc/self/mounts", root.join("etc/mtab"))?;
    symlink("../usr/lib/os-release", root.join("etc/os-release"))?;
    symlink("/run", root.join("var/run"))?;
    symlink("/run/lock", root.join("var/lock"))?;
    // Modes last: a read-only directory would refuse what is still to come.
    for (name, mode) in DIRECTORIES {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode))?;
    }
    for name in ["home/agent", "workspace"] {
        give_to_agent(&root.join(name), as_root)?;
    }
    fs::set_permissions(root, fs::Permissions::from_mode(0o755))
}

fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, content)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}
