//! The second wall around the file tree, and the wall that keeps signals and abstract sockets inside.
//!
//! Landlock is entered once, by the launcher, so all commands of a room share one domain and can debug each
//! other, while the guest stays outside it. Landlock's rules for TCP name ports and not addresses; they could
//! not tell the room's own loopback from anywhere else, so the network namespace alone decides there
//! (docs/decisions/0005-landlock-without-tcp-rules.md).

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, PathFdError, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

/// Directories that every command may change, where they exist. What is not here nobody changes, whatever its owner and
/// mount allow.
const WRITABLE: [&str; 7] = ["/workspace", "/home", "/tmp", "/var/tmp", "/run", "/dev/pts", "/dev/shm"];

/// Those that the room's root may change too. In a room with two ids their owners keep `agent` out of them.
const WRITABLE_BY_ROOT: [&str; 7] = ["/root", "/var", "/etc", "/opt", "/srv", "/mnt", "/media"];

/// Devices that commands may write to.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// The Landlock version that this kernel offers, 0 without Landlock.
pub(crate) fn version() -> i32 {
    workroom_sys::landlock_version()
}

/// What the wall is made of in a particular room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) files: bool,
    pub(crate) scope: bool,
    /// The room's root works here, alone or with file owners that keep `agent` apart.
    pub(crate) for_root: bool,
    /// A read-only mount still lets FIFOs be written to.
    pub(crate) read_only_workspace: bool,
}

/// Enters the wall. Paths are those of the room, so this runs after its root is in place.
pub(crate) fn restrict(rules: Rules) -> io::Result<()> {
    let Rules { files, scope, for_root, read_only_workspace } = rules;
    let abi = ABI::V5;
    let other = |error: landlock::RulesetError| io::Error::other(error.to_string());
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    if files {
        ruleset = ruleset.handle_access(AccessFs::from_all(abi)).map_err(other)?;
    }
    if scope {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal).map_err(other)?;
    }
    let mut created = ruleset.create().map_err(other)?;
    if files {
        let read = AccessFs::from_read(abi);
        created = created.add_rule(PathBeneath::new(open("/")?, read)).map_err(other)?;
        let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::Truncate;
        for path in DEVICES {
            if let Some(fd) = open_if_there(path)? {
                created = created.add_rule(PathBeneath::new(fd, device)).map_err(other)?;
            }
        }
        let for_root = if for_root { WRITABLE_BY_ROOT.as_slice() } else { &[] };
        let writable = |path: &&&str| !(read_only_workspace && **path == "/workspace");
        for path in WRITABLE.iter().chain(for_root).filter(writable) {
            if let Some(fd) = open_if_there(path)? {
                // Everything but making device nodes, which no room has a use for.
                let change = AccessFs::from_all(abi) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
                created = created.add_rule(PathBeneath::new(fd, change)).map_err(other)?;
            }
        }
    }
    // The launcher set no_new_privs already, or leaves it out on purpose.
    let status = created.no_new_privs(false).restrict_self().map_err(other)?;
    match status.ruleset {
        landlock::RulesetStatus::NotEnforced => Err(io::ErrorKind::Unsupported.into()),
        _ => Ok(()),
    }
}

fn open(path: &str) -> io::Result<PathFd> {
    PathFd::new(path).map_err(|error| match error {
        PathFdError::OpenCall { source, .. } => source,
        other => io::Error::other(other.to_string()),
    })
}

/// A link in the place of such a directory was made by the room, and opens nothing: the rule would be for what it
/// points to.
fn open_if_there(path: &str) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
