//! The operator's file, `policy.toml`: what sessions are given unless they say otherwise, and the most that they may ask
//! for.
//!
//! It is looked at whenever something of it is needed and read again when it has changed, so that nobody restarts
//! anything. A file that cannot be understood changes nothing: the last good one holds, and the fault is told.

mod filters;
pub(crate) mod mounts;
mod trusted;

pub(crate) use filters::Filters;
pub use trusted::read_trusted;

use crate::{policy, validate};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use workroom_types::{Ceiling, OperatorStatus, Policy, Problem, Timestamp};

/// Whose sessions are an admin's own.
pub(crate) const ADMIN: &str = "admin";

/// What the file says. Without a file: nothing in particular.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OperatorFile {
    /// What a session gets where its own document says nothing.
    pub(crate) defaults: Policy,
    /// What every user's sessions may have at most.
    pub(crate) ceiling: Option<Ceiling>,
    /// What holds for one user instead, by owner.
    pub(crate) users: BTreeMap<String, UserRules>,
    /// What is not to be uploaded, and commands that are not to be given.
    pub(crate) filters: Filters,
    /// Which directories of the host rooms may have.
    pub(crate) mounts: Option<mounts::MountRules>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UserRules {
    pub(crate) ceiling: Option<Ceiling>,
}

impl OperatorFile {
    fn parse(text: &str) -> Result<OperatorFile, String> {
        let file: OperatorFile = policy::read_toml(text)?;
        let told = |part: &str, problem: Problem| format!("{part}: {problem}");
        validate::policy(&file.defaults).map_err(|problem| told("defaults", problem))?;
        let of_users = file.users.iter().map(|(name, rules)| (format!("users.{name}"), &rules.ceiling));
        for (part, ceiling) in of_users.chain([("ceiling".to_owned(), &file.ceiling)]) {
            if let Some(ceiling) = ceiling {
                policy::check_ceiling(ceiling).map_err(|problem| told(&part, problem))?;
            }
        }
        file.mounts.as_ref().map_or(Ok(()), |rules| rules.check().map_err(|why| format!("mounts: {why}")))?;
        Ok(file)
    }

    /// The most that an owner's sessions may have. An admin's own have no bound, unless the file sets one by name.
    pub(crate) fn ceiling_of(&self, owner: &str) -> Option<Ceiling> {
        let own = self.users.get(owner).and_then(|rules| rules.ceiling.clone());
        match own {
            Some(ceiling) => Some(ceiling),
            None if owner == ADMIN => None,
            None => Some(self.ceiling.clone().unwrap_or_default()),
        }
    }
}

/// Tells one version of a file from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Result<Option<Stamp>, std::io::Error> {
        match std::fs::metadata(path) {
            Ok(meta) => Ok(Some(Stamp {
                inode: (meta.dev(), meta.ino()),
                size: meta.size(),
                modified: (meta.mtime(), meta.mtime_nsec()),
                changed: (meta.ctime(), meta.ctime_nsec()),
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

pub(crate) struct Operator {
    path: PathBuf,
    /// What the server's configuration gives, below what the file says.
    base: Policy,
    read: Mutex<Read>,
}

struct Read {
    stamp: Option<Stamp>,
    good: Arc<OperatorFile>,
    loaded: Timestamp,
    fault: Option<String>,
}

impl Operator {
    /// A server does not begin with a file that it does not understand: there is no last good one.
    pub(crate) fn open(path: PathBuf, base: Policy) -> Result<Operator, Problem> {
        let told = |reason: String| {
            Problem::invalid(format!("the policy file {} is wrong: {reason}", path.display()), "mend it")
        };
        let stamp = Stamp::of(&path).map_err(|error| told(error.to_string()))?;
        let good = Arc::new(load(&path, stamp, &base).map_err(told)?);
        let read = Read { stamp, good, loaded: Timestamp::now(), fault: None };
        Ok(Operator { path, base, read: Mutex::new(read) })
    }

    /// What holds now.
    pub(crate) fn current(&self) -> Arc<OperatorFile> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = match Stamp::of(&self.path) {
            Ok(stamp) if stamp == read.stamp => return read.good.clone(),
            Ok(stamp) => stamp,
            Err(error) => {
                read.fault = Some(error.to_string());
                return read.good.clone();
            }
        };
        read.stamp = stamp;
        match load(&self.path, stamp, &self.base) {
            Ok(file) => {
                tracing::info!(path = %self.path.display(), "the policy file was read again");
                read.good = Arc::new(file);
                read.loaded = Timestamp::now();
                read.fault = None;
            }
            Err(reason) => {
                tracing::error!(path = %self.path.display(), reason, "the policy file is wrong; the last good one holds");
                read.fault = Some(reason);
            }
        }
        read.good.clone()
    }

    pub(crate) fn status(&self) -> OperatorStatus {
        self.current();
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        OperatorStatus {
            path: self.path.display().to_string(),
            exists: read.stamp.is_some(),
            loaded: read.loaded,
            fault: read.fault.clone(),
        }
    }
}

fn load(path: &Path, stamp: Option<Stamp>, base: &Policy) -> Result<OperatorFile, String> {
    let mut file = match stamp {
        None => OperatorFile::default(),
        Some(_) => OperatorFile::parse(&read_trusted(path).map_err(|error| error.to_string())?)?,
    };
    file.defaults = file.defaults.over(base);
    Ok(file)
}

#[cfg(test)]
#[path = "operator/tests.rs"]
mod tests;
