//! The operator's word on mounts: which directories of the host exist for rooms, and for whom.

use globset::{Glob, GlobBuilder};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use workroom_types::MountMode;

/// What stands for the session's owner in a path.
const USER: &str = "{username}";

/// Names of `/workspace` that no alias takes.
const RESERVED: [&str; 11] = [
    "external",
    "persistent",
    "skills",
    "inbox",
    "outbox",
    "inbound.db",
    "outbound.db",
    ".heartbeat",
    ".workroom",
    ".claude",
    "output.yaml",
];

/// Where people keep what opens other doors.
const BLOCKED: [&str; 9] =
    [".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".password-store"];

/// What a path of people does not have, and a path that a program was talked into may.
const DANGEROUS: [&str; 4] = ["$(", "${", "`", "%2"];

/// What a host does by itself because of a name in a directory. Those that end with `/` are directories.
const PROTECTED: [&str; 20] = [
    ".git/hooks/",
    ".git/config",
    ".gitconfig",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshenv",
    ".zprofile",
    ".zshrc",
    ".zlogin",
    ".zlogout",
    ".envrc",
    ".vscode/",
    ".idea/",
    ".vimrc",
    ".claude/",
    ".cursor/",
    ".mcp.json",
];

const MOST_PER_SESSION: u64 = 32;
/// Of one room, whatever their kind.
pub(crate) const MOST_MOUNTS: usize = 128;

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// `[mounts]` of the operator's file. Without it there are none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MountRules {
    pub(crate) enabled: bool,
    pub(crate) external: Vec<External>,
    pub(crate) persistent: Option<Persistent>,
    pub(crate) original: Vec<Original>,
    pub(crate) bases: BTreeMap<String, MountBase>,
    /// Dynamic ones.
    pub(crate) max_per_session: u64,
    pub(crate) max_depth: u64,
    pub(crate) reserved_aliases: Vec<String>,
    /// Names, or absolute paths, that no base gives: patterns.
    pub(crate) blocked: Vec<String>,
    /// Pieces of text that no sub-path has.
    pub(crate) dangerous: Vec<String>,
    /// What stays as it is in writable directories.
    pub(crate) protect: Vec<String>,
}

impl Default for MountRules {
    fn default() -> MountRules {
        MountRules {
            enabled: true,
            external: Vec::new(),
            persistent: None,
            original: Vec::new(),
            bases: BTreeMap::new(),
            max_per_session: 10,
            max_depth: 10,
            reserved_aliases: owned(&RESERVED),
            blocked: owned(&BLOCKED),
            dangerous: owned(&DANGEROUS),
            protect: owned(&PROTECTED),
        }
    }
}

/// A directory at `/workspace/external/…/NAME`, of everybody or of one user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct External {
    pub(crate) name: String,
    pub(crate) path: HostPath,
    #[serde(default)]
    pub(crate) mode: MountMode,
    /// Whose alone; everybody's own, with `{username}` in the path.
    #[serde(default)]
    pub(crate) user: Option<String>,
    #[serde(default)]
    pub(crate) required: bool,
}

/// Every owner's own directory, at `/workspace/persistent`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Persistent {
    pub(crate) path: HostPath,
}

/// A directory at the place that it has on the host, read-only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Original {
    pub(crate) path: HostPath,
    #[serde(default)]
    pub(crate) users: Users,
    #[serde(default)]
    pub(crate) required: bool,
}

/// Where dynamic mounts come from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MountBase {
    pub(crate) path: HostPath,
    #[serde(default)]
    pub(crate) users: Users,
    /// Everybody may use it, each for a directory of their own: the path has `{username}` in it.
    #[serde(default)]
    pub(crate) self_only: bool,
    #[serde(default)]
    pub(crate) max_mode: MountMode,
    #[serde(default)]
    pub(crate) allow: Vec<String>,
    #[serde(default)]
    pub(crate) block: Vec<String>,
    #[serde(default)]
    pub(crate) except: Vec<String>,
}

impl MountBase {
    pub(crate) fn is_for(&self, owner: &str) -> bool {
        self.self_only || self.users.include(owner)
    }
}

/// Who may have something; `*` is everybody. Nobody, without.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Users(Vec<String>);

impl Users {
    pub(crate) fn include(&self, owner: &str) -> bool {
        self.0.iter().any(|user| user == "*" || user == owner)
    }
}

/// An absolute path, in which `{username}` may stand for the session's owner.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct HostPath(String);

impl HostPath {
    pub(crate) fn is_of_a_user(&self) -> bool {
        self.0.contains(USER)
    }

    /// Where the operator's part of the path ends, and what comes then. Links are followed in the first alone: a user
    /// may be able to change what is in a directory that is called after them. `None`: the owner's name cannot be put
    /// into a path.
    pub(crate) fn of(&self, owner: &str) -> Option<(PathBuf, PathBuf)> {
        if !self.is_of_a_user() {
            return Some((PathBuf::from(&self.0), PathBuf::new()));
        }
        if !is_component(owner) {
            return None;
        }
        let (mut anchor, mut beneath) = (PathBuf::new(), PathBuf::new());
        let mut is_users = false;
        for part in Path::new(&self.0).components() {
            let text = part.as_os_str().to_string_lossy();
            is_users |= text.contains(USER);
            let part = text.replace(USER, owner);
            if is_users { beneath.push(part) } else { anchor.push(part) }
        }
        // Put together, one component is still one.
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        beneath.components().all(plain).then_some((anchor, beneath))
    }

    fn check(&self, what: &str) -> Result<(), String> {
        let path = Path::new(&self.0);
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::RootDir);
        if !path.is_absolute() || !path.components().all(plain) || has_control(&self.0) {
            return Err(format!("{what}: {:?} is not an absolute path without ..", self.0));
        }
        let first = path.components().nth(1).map(|part| part.as_os_str().to_string_lossy().into_owned());
        match first.as_deref() {
            None => Err(format!("{what}: the machine's root directory is given to nobody")),
            Some("proc" | "sys" | "dev") => Err(format!("{what}: {} is the kernel's", self.0)),
            Some(first) if first.contains(USER) => {
                Err(format!("{what}: {} would let a user's name choose any directory of the machine", self.0))
            }
            Some(_) => Ok(()),
        }
    }
}

/// Whether a text can be one component of a path and mean nothing else.
pub(crate) fn is_component(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 255
        && text != "."
        && text != ".."
        && !text.contains(['/', '\\', '{', '}'])
        && !has_control(text)
}

pub(crate) fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// What may be called by this in a room: one component that no shell, and nobody, reads as something else.
pub(crate) fn is_alias(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with("..") && text != "."
}

pub(crate) fn pattern(text: &str) -> Result<Glob, String> {
    let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
    glob.map_err(|error| format!("the pattern {text:?} is not understood: {}", error.kind()))
}

impl MountRules {
    /// Whether what is written makes sense.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.max_per_session > MOST_PER_SESSION {
            return Err(format!("max_per_session is over {MOST_PER_SESSION}"));
        }
        if !(1..=64).contains(&self.max_depth) {
            return Err("max_depth is outside 1 to 64".into());
        }
        let mut names = Vec::new();
        for external in &self.external {
            let what = format!("external {:?}", external.name);
            if !is_alias(&external.name) {
                return Err(format!("{what}: names are 1 to 64 letters, digits, ., _ and -"));
            }
            external.path.check(&what)?;
            let place = (external.mode, external.user.clone(), external.path.is_of_a_user(), &external.name);
            if names.contains(&place) {
                return Err(format!("{what} is there twice"));
            }
            names.push(place);
        }
        if let Some(persistent) = &self.persistent {
            persistent.path.check("persistent")?;
            if !persistent.path.is_of_a_user() {
                return Err("persistent: the path has no {username}: all users would share one".into());
            }
        }
        for original in &self.original {
            original.path.check("original")?;
            check_original(&original.path)?;
        }
        for (name, base) in &self.bases {
            let what = format!("bases.{name}");
            if !is_alias(name) {
                return Err(format!("{what}: names are 1 to 64 letters, digits, ., _ and -"));
            }
            base.path.check(&what)?;
            if base.self_only && !base.path.is_of_a_user() {
                return Err(format!("{what}: self_only needs {{username}} in the path"));
            }
            if base.self_only && base.users != Users::default() {
                return Err(format!("{what}: self_only and users are two answers to one question"));
            }
            for text in base.allow.iter().chain(&base.block).chain(&base.except) {
                check_pattern(&what, text)?;
            }
        }
        for text in &self.blocked {
            pattern(text)?;
        }
        for path in &self.protect {
            let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
            if path.starts_with('/') || !parts.iter().all(|part| is_component(part)) {
                return Err(format!("protect: {path:?} is not a path in a directory"));
            }
        }
        Ok(())
    }
}

fn check_pattern(what: &str, text: &str) -> Result<(), String> {
    pattern(text)?;
    if text.is_empty() || text.starts_with('/') || text.split('/').any(|part| part == "..") {
        return Err(format!("{what}: {text:?} is not a pattern of paths beneath the base"));
    }
    Ok(())
}

/// Places that are the room's own: what is mounted there would hide what a room needs.
fn check_original(path: &HostPath) -> Result<(), String> {
    let parts: Vec<String> = Path::new(&path.0)
        .components()
        .skip(1)
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let is_own = match parts.as_slice() {
        ["usr" | "etc" | "bin" | "sbin" | "lib" | "lib32" | "lib64" | "libx32", ..] => true,
        ["workspace" | "run" | "root", ..] | ["home", "agent", ..] => true,
        ["tmp" | "var" | "home"] | ["var", "tmp"] | [] => true,
        ["home", name, ..] => name.contains(USER),
        _ => false,
    };
    if is_own { Err(format!("original: {} is the room's own place", path.0)) } else { Ok(()) }
}
