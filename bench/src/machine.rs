//! What of this machine a room shows, so that the floor and bwrap show the same.
//!
//! The lists repeat those of crates/room/src/{template,build}.rs, which are that crate's own. The report
//! counts the mounts of a floor's room, a bwrap sandbox and a room, so that a difference shows.

use std::fs;
use std::path::{Path, PathBuf};

/// Top-level directories that are either links into `/usr` or bound like it.
const SYSTEM_DIRS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

const ETC_DIRS: [&str; 6] =
    ["alternatives", "ssl/certs", "ld.so.conf.d", "pki/ca-trust", "pki/tls/certs", "crypto-policies"];

pub(crate) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

const MASKED_FILES: [&str; 13] = [
    "cmdline",
    "config.gz",
    "interrupts",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "latency_stats",
    "modules",
    "sched_debug",
    "sysrq-trigger",
    "timer_list",
];
const MASKED_DIRS: [&str; 8] =
    ["acpi", "asound", "bus", "driver", "dynamic_debug", "irq", "scsi", "sys/fs/binfmt_misc"];

/// Directories bound read-only, as paths below `/`.
pub(crate) fn bound_dirs() -> Vec<PathBuf> {
    let real = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let system = SYSTEM_DIRS.iter().map(PathBuf::from).filter(|name| real(&Path::new("/").join(name)));
    let mut etc: Vec<PathBuf> = ETC_DIRS.iter().map(PathBuf::from).collect();
    etc.extend(
        fs::read_dir("/etc").into_iter().flatten().flatten().map(|entry| entry.file_name()).filter_map(
            |name| {
                let name = name.into_string().ok()?;
                (name.starts_with("java-") || name.starts_with("python3")).then(|| name.into())
            },
        ),
    );
    let etc = etc.into_iter().map(|name| Path::new("etc").join(name));
    system.chain(etc.filter(|path| Path::new("/").join(path).is_dir())).collect()
}

/// Links at the top of the file system: name and target.
pub(crate) fn links() -> Vec<(&'static str, PathBuf)> {
    let target = |name: &'static str| Some((name, fs::read_link(Path::new("/").join(name)).ok()?));
    SYSTEM_DIRS.into_iter().filter_map(target).collect()
}

/// Files and directories of `/proc` that are masked, as paths below it.
pub(crate) fn masks() -> (Vec<&'static str>, Vec<&'static str>) {
    let there = |name: &&'static str| Path::new("/proc").join(name).exists();
    (MASKED_FILES.into_iter().filter(there).collect(), MASKED_DIRS.into_iter().filter(there).collect())
}
