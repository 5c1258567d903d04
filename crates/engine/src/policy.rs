//! What a session's policy comes to: its own document over the operator's defaults, under its owner's ceiling.

use crate::shared::Shared;
use crate::{network, validate};
use serde::de::DeserializeOwned;
use workroom_types::{
    Ceiling, NetworkMode, Policy, PolicyView, Problem, ProblemCode, ServerPolicy, Session, Timestamp,
    parse_bytes, parse_cpus,
};

/// Counts, by name, of a policy and of a ceiling.
fn counts(policy: &Policy) -> [(&'static str, Option<u64>); 7] {
    [
        ("memory", policy.memory),
        ("cpus_milli", policy.cpus_milli),
        ("pids", policy.pids),
        ("open_files", policy.open_files),
        ("disk", policy.disk),
        ("inodes", policy.inodes),
        ("shm", policy.shm),
    ]
}

/// The same counts as a policy would have them.
fn as_policy(ceiling: &Ceiling) -> Policy {
    Policy {
        memory: ceiling.memory,
        cpus_milli: ceiling.cpus_milli,
        pids: ceiling.pids,
        open_files: ceiling.open_files,
        disk: ceiling.disk,
        inodes: ceiling.inodes,
        shm: ceiling.shm,
        ..Policy::default()
    }
}

/// Whether an operator's ceiling makes sense.
pub(crate) fn check_ceiling(ceiling: &Ceiling) -> Result<(), Problem> {
    validate::policy(&as_policy(ceiling))?;
    network::check_ranges(&ceiling.cidrs)?;
    validate::layers(&ceiling.allow_missing).map(drop)
}

/// Whether an owner's session may have this document.
pub(crate) fn check(shared: &Shared, owner: &str, policy: &Policy) -> Result<(), Problem> {
    validate::policy(policy)?;
    match shared.operator.current().ceiling_of(owner) {
        Some(ceiling) => under(policy, &ceiling, owner),
        None => Ok(()),
    }
}

fn under(policy: &Policy, ceiling: &Ceiling, owner: &str) -> Result<(), Problem> {
    let owner = validate::shown(owner);
    for ((what, asked), (_, most)) in counts(policy).into_iter().zip(counts(&as_policy(ceiling))) {
        if let (Some(asked), Some(most)) = (asked, most)
            && asked > most
        {
            let detail = format!("{what} {asked} is over {most}, which is the most that {owner} may have");
            return Err(Problem { status: 403, ..Problem::limit(what, detail, "ask for less") });
        }
    }
    let denied = |what: &str, hint: &str| Problem::new(ProblemCode::Forbidden, what, hint);
    if let (Some(network), Some(widest)) = (&policy.network, ceiling.network)
        && network.mode > widest
    {
        let word = |mode: NetworkMode| match mode {
            NetworkMode::Off => "off",
            NetworkMode::Allow => "allow",
            NetworkMode::Open => "open",
        };
        let detail = format!(
            "the network mode {} is wider than {}, which is the widest that {owner} may have",
            word(network.mode),
            word(widest)
        );
        return Err(denied(&detail, "ask for less"));
    }
    if let Some(network) = &policy.network {
        network::check_ceiling(network, ceiling)?;
    }
    match policy.allow_missing.iter().find(|layer| !ceiling.allow_missing.contains(layer)) {
        Some(layer) => Err(denied(
            &format!("{owner} may not do without the layer {}", validate::shown(layer)),
            "the operator's policy file names those that may be missing, under ceiling.allow_missing",
        )),
        None => Ok(()),
    }
}

/// What holds for a session.
pub(crate) fn effective(shared: &Shared, session: &Session) -> Policy {
    let file = shared.operator.current();
    let policy = session.policy.over(&file.defaults);
    match file.ceiling_of(&session.owner) {
        Some(ceiling) => capped(policy, &ceiling),
        None => policy,
    }
}

/// A ceiling that came down after a document was accepted, or that is below the defaults, holds all the same.
fn capped(policy: Policy, ceiling: &Ceiling) -> Policy {
    let cap = |asked: Option<u64>, most: Option<u64>| match (asked, most) {
        (Some(asked), Some(most)) => Some(asked.min(most)),
        (asked, most) => asked.or(most),
    };
    let network = match (policy.network, ceiling.network) {
        (Some(network), Some(widest)) if network.mode > widest => None,
        (network, _) => network.map(|network| network::capped(network, ceiling)),
    };
    Policy {
        memory: cap(policy.memory, ceiling.memory),
        cpus_milli: cap(policy.cpus_milli, ceiling.cpus_milli),
        pids: cap(policy.pids, ceiling.pids),
        open_files: cap(policy.open_files, ceiling.open_files),
        disk: cap(policy.disk, ceiling.disk),
        inodes: cap(policy.inodes, ceiling.inodes),
        shm: cap(policy.shm, ceiling.shm),
        network,
        ..policy
    }
}

/// Names of the parts in which two policies differ.
pub(crate) fn differences(one: &Policy, other: &Policy) -> Vec<String> {
    let named = |policy: &Policy| match serde_json::to_value(policy) {
        Ok(serde_json::Value::Object(parts)) => parts,
        _ => serde_json::Map::new(),
    };
    let (one, other) = (named(one), named(other));
    let mut names: Vec<String> = one.keys().chain(other.keys()).cloned().collect();
    names.sort();
    names.dedup();
    names.retain(|name| one.get(name) != other.get(name));
    names
}

pub(crate) fn view(shared: &Shared, session: &Session) -> PolicyView {
    let effective = effective(shared, session);
    let pending = match &session.room_policy {
        Some(room) if session.state.is_live() => differences(room, &effective),
        _ => Vec::new(),
    };
    PolicyView {
        version: session.policy_version,
        changed: session.policy_changed.unwrap_or(session.created),
        policy: session.policy.clone(),
        ceiling: shared.operator.current().ceiling_of(&session.owner),
        enforced: session.enforced.clone(),
        effective,
        pending,
    }
}

/// What a caller's sessions get, and may have.
pub(crate) fn server_policy(shared: &Shared, owner: &str, is_admin: bool) -> ServerPolicy {
    let file = shared.operator.current();
    ServerPolicy {
        defaults: file.defaults.clone(),
        ceiling: file.ceiling_of(owner),
        file: is_admin.then(|| shared.operator.status()),
    }
}

/// A new document for a session, if it is still at the version that the caller knew.
pub(crate) fn replace(session: &mut Session, policy: Policy, known: Option<u64>) -> Result<bool, Problem> {
    if known.is_some_and(|known| known != session.policy_version) {
        return Err(Problem::new(
            ProblemCode::PreconditionFailed,
            format!("the policy is at version {}, and another was to be replaced", session.policy_version),
            "read it again and change that",
        ));
    }
    if session.policy == policy {
        return Ok(false);
    }
    session.policy = policy;
    session.policy_version += 1;
    session.policy_changed = Some(Timestamp::now());
    Ok(true)
}

/// A document as people write it: sizes like `"2G"`, and `cpus = 1.5`.
pub fn policy_from_toml(text: &str) -> Result<Policy, Problem> {
    read_toml(text).map_err(|reason| {
        Problem::invalid(
            format!("the policy is not understood: {reason}"),
            "docs/reference/policy.md shows every key",
        )
    })
}

pub(crate) fn read_toml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let first_line = |message: &str| message.lines().next().unwrap_or_default().to_owned();
    let mut table: toml::Table = toml::from_str(text).map_err(|error| first_line(error.message()))?;
    plain_numbers(&mut table)?;
    T::deserialize(table).map_err(|error| first_line(error.message()))
}

/// Keys that hold a number of bytes, wherever they are.
const SIZES: [&str; 3] = ["memory", "disk", "shm"];

fn plain_numbers(table: &mut toml::Table) -> Result<(), String> {
    if let Some(cpus) = table.remove("cpus") {
        let text = match &cpus {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            _ => return Err("cpus is not a number; write it like 2 or 0.5".into()),
        };
        let milli = parse_cpus(&text)?;
        table.insert("cpus_milli".into(), i64::try_from(milli).map_err(|error| error.to_string())?.into());
    }
    for (key, value) in table.iter_mut() {
        match value {
            toml::Value::String(text) if SIZES.contains(&key.as_str()) => {
                let bytes = parse_bytes(text)?;
                *value = i64::try_from(bytes).map_err(|_| format!("{key} of {text} is too large"))?.into();
            }
            toml::Value::Table(inner) => plain_numbers(inner)?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "policy/tests.rs"]
mod tests;
