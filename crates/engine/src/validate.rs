//! What callers may write: each rule once, each refusal one sentence.

use std::collections::BTreeMap;
use workroom_types::{Channel, CreateSession, Layer, LayerSet, Policy, Problem, UpdateSession};

pub(crate) const MOST_NAME: usize = 120;
const MOST_LABELS: usize = 64;
/// Ids that others make are theirs; only their length is ours.
const MOST_FOREIGN: usize = 256;
/// Seconds: a hundred years.
const LONGEST: u64 = 3_155_760_000;
const LEAST_MEMORY: u64 = 8 << 20;

/// Ids that we make.
pub(crate) fn id(id: &str) -> Result<(), Problem> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=64).contains(&id.len()) && id.bytes().all(plain) {
        return Ok(());
    }
    Err(Problem::invalid(format!("\"{}\" is not an id", shown(id)), "ids are 1 to 64 of a-z, 0-9 and -"))
}

pub(crate) fn create(request: &CreateSession) -> Result<(), Problem> {
    name(request.name.as_deref())?;
    labels(&request.labels)?;
    for (what, value) in [
        ("owner", &request.owner),
        ("key", &request.key),
        ("group", &request.group),
        ("thread", &request.thread),
    ] {
        foreign(what, value.as_deref())?;
    }
    channel(request.channel.as_ref(), request.thread.as_deref())?;
    if let Some(template) = request.template.as_deref().filter(|template| *template != "host") {
        return Err(Problem::invalid(format!("there is no template \"{}\"", shown(template)), "use host"));
    }
    request.policy.as_ref().map_or(Ok(()), policy)?;
    seconds("ttl", request.ttl, 1)?;
    seconds("idle_timeout", request.idle_timeout, 1)
}

pub(crate) fn update(change: &UpdateSession) -> Result<(), Problem> {
    name(change.name.as_deref())?;
    change.labels.as_ref().map_or(Ok(()), labels)?;
    change.policy.as_ref().map_or(Ok(()), policy)?;
    seconds("ttl", change.ttl, 0)?;
    seconds("idle_timeout", change.idle_timeout, 0)
}

pub(crate) fn name(name: Option<&str>) -> Result<(), Problem> {
    let Some(name) = name else { return Ok(()) };
    let length = name.chars().count();
    if length > MOST_NAME {
        return Err(Problem::invalid(
            format!("a name of {length} characters is longer than {MOST_NAME}"),
            "",
        ));
    }
    no_control("name", name)
}

pub(crate) fn snapshot_name(name: &str) -> Result<(), Problem> {
    if !is_word(name, 64) {
        return Err(Problem::invalid(
            format!("\"{}\" is not a snapshot's name", shown(name)),
            "names are 1 to 64 letters, digits, ., _ and -, and begin with a letter or digit",
        ));
    }
    if ["baseline", "now", "last"].contains(&name) {
        return Err(Problem::invalid(format!("{name} is the name of something else"), "choose another name"));
    }
    Ok(())
}

/// What a terminal may be called; ids of terminals are such names too.
pub(crate) fn terminal_name(name: &str) -> Result<(), Problem> {
    if is_word(name, 64) {
        return Ok(());
    }
    Err(Problem::invalid(
        format!("\"{}\" is not a terminal's name", shown(name)),
        "names are 1 to 64 letters, digits, ., _ and -, and begin with a letter or digit",
    ))
}

pub(crate) fn pool_name(name: &str) -> Result<(), Problem> {
    if is_word(name, 64) {
        return Ok(());
    }
    Err(Problem::invalid(
        format!("\"{}\" is not a pool's name", shown(name)),
        "names are 1 to 64 letters, digits, ., _ and -, and begin with a letter or digit",
    ))
}

fn labels(labels: &BTreeMap<String, String>) -> Result<(), Problem> {
    if labels.len() > MOST_LABELS {
        return Err(Problem::invalid(format!("{} labels are more than {MOST_LABELS}", labels.len()), ""));
    }
    for (key, value) in labels {
        if !is_word(key, 64) {
            return Err(Problem::invalid(
                format!("\"{}\" is not a label's key", shown(key)),
                "keys are 1 to 64 letters, digits, ., _ and -, and begin with a letter or digit",
            ));
        }
        if value.chars().count() > MOST_NAME {
            return Err(Problem::invalid(
                format!("the value of the label {key} is longer than {MOST_NAME} characters"),
                "",
            ));
        }
        no_control("label", value)?;
    }
    Ok(())
}

/// A letter or digit, then letters, digits, `.`, `_` and `-`.
fn is_word(text: &str, most: usize) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=most).contains(&text.len()) && text.as_bytes()[0].is_ascii_alphanumeric() && text.bytes().all(inner)
}

/// The same where there must be one.
pub(crate) fn named(what: &str, value: &str) -> Result<(), Problem> {
    match value {
        "" => Err(Problem::invalid(format!("{what} is empty"), "give it a name of your own")),
        value => foreign(what, Some(value)),
    }
}

pub(crate) fn foreign(what: &str, value: Option<&str>) -> Result<(), Problem> {
    match value {
        Some("") => Err(Problem::invalid(format!("{what} is empty"), "leave it out instead")),
        Some(value) if value.len() > MOST_FOREIGN => {
            Err(Problem::invalid(format!("{what} has {} bytes, more than {MOST_FOREIGN}", value.len()), ""))
        }
        Some(value) if value.contains('\0') => {
            Err(Problem::invalid(format!("{what} contains a NUL character"), ""))
        }
        _ => Ok(()),
    }
}

/// The thread may be said in the channel or beside it, but not differently.
pub(crate) fn channel(channel: Option<&Channel>, thread: Option<&str>) -> Result<(), Problem> {
    let Some(channel) = channel else { return Ok(()) };
    foreign("channel_type", Some(&channel.channel_type))?;
    foreign("platform_id", Some(&channel.platform_id))?;
    foreign("thread_id", channel.thread_id.as_deref())?;
    match (channel.thread_id.as_deref(), thread) {
        (Some(inner), Some(outer)) if inner != outer => Err(Problem::invalid(
            format!("the thread is \"{}\" and the channel's thread_id \"{}\"", shown(outer), shown(inner)),
            "give one of the two",
        )),
        _ => Ok(()),
    }
}

pub(crate) fn policy(policy: &Policy) -> Result<(), Problem> {
    if let Some(memory) = policy.memory.filter(|memory| *memory < LEAST_MEMORY) {
        return Err(Problem::invalid(
            format!("a memory limit of {memory} bytes is too little for any program"),
            format!("give at least {LEAST_MEMORY}"),
        ));
    }
    for (what, value, allowed) in [
        ("pids", policy.pids, 1..=4 << 20),
        // The kernel takes no less; and a room with fewer open files cannot be built.
        ("cpus_milli", policy.cpus_milli, 10..=1_000_000),
        ("open_files", policy.open_files, 16..=1 << 20),
        ("disk", policy.disk, 1 << 20..=1 << 50),
        ("inodes", policy.inodes, 64..=1 << 40),
        ("shm", policy.shm, 4096..=1 << 50),
    ] {
        if let Some(value) = value.filter(|value| !allowed.contains(value)) {
            let (least, most) = allowed.into_inner();
            return Err(Problem::invalid(format!("{what} {value} is outside {least} to {most}"), ""));
        }
    }
    if let Some(network) = &policy.network {
        crate::network::check_document(network)?;
    }
    policy.secrets.as_ref().map_or(Ok(()), crate::secrets::resolve::check_policy)?;
    layers(&policy.require)?;
    layers(&policy.allow_missing).map(drop)
}

pub(crate) fn layers(names: &[String]) -> Result<LayerSet, Problem> {
    names
        .iter()
        .map(|name| {
            Layer::from_name(name).ok_or_else(|| {
                let known: Vec<&str> = Layer::ALL.iter().map(|layer| layer.name()).collect();
                Problem::invalid(
                    format!("there is no layer \"{}\"", shown(name)),
                    format!("the layers are {}", known.join(", ")),
                )
            })
        })
        .collect()
}

pub(crate) fn seconds(what: &str, value: Option<u64>, least: u64) -> Result<(), Problem> {
    match value {
        Some(value) if value < least || value > LONGEST => {
            Err(Problem::invalid(format!("{what} {value} is outside {least} to {LONGEST} seconds"), ""))
        }
        _ => Ok(()),
    }
}

/// `[A-Za-z_][A-Za-z0-9_]{0,63}`, and a value without NUL.
pub(crate) fn variable(name: &str, value: &str) -> Result<(), Problem> {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if !first || name.len() > 64 || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(Problem::invalid(
            format!("\"{}\" is not a variable's name", shown(name)),
            "names are up to 64 letters, digits and _, and do not begin with a digit",
        ));
    }
    if value.contains('\0') {
        return Err(Problem::invalid(format!("the value of {name} contains a NUL character"), ""));
    }
    Ok(())
}

/// Of an appended event: `[a-z0-9][a-z0-9._-]{0,63}`.
pub(crate) fn event_kind(kind: &str) -> Result<(), Problem> {
    if is_word(kind, 64) && !kind.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Ok(());
    }
    Err(Problem::invalid(
        format!("\"{}\" is not an event's kind", shown(kind)),
        "kinds are 1 to 64 of a-z, 0-9, ., _ and -, and begin with a letter or digit",
    ))
}

/// Of a private file.
pub(crate) fn file_name(name: &str) -> Result<(), Problem> {
    if is_word(name, 120) {
        return Ok(());
    }
    Err(Problem::invalid(
        format!("\"{}\" is not a private file's name", shown(name)),
        "names are 1 to 120 letters, digits, ., _ and -, and begin with a letter or digit",
    ))
}

fn no_control(what: &str, text: &str) -> Result<(), Problem> {
    if text.chars().any(char::is_control) {
        return Err(Problem::invalid(format!("the {what} contains a control character"), ""));
    }
    Ok(())
}

/// A caller's text in one of our sentences: short, and of printable characters.
pub(crate) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_and_bad_words_are_told_apart() {
        for good in ["a", "A-b.c_d", "0"] {
            assert!(is_word(good, 64), "{good}");
        }
        for bad in ["", "-a", ".", "a b", "ä", &"x".repeat(65)] {
            assert!(!is_word(bad, 64), "{bad}");
        }
        assert!(id("20260101-000000-0123abcd").is_ok());
        for bad in ["", "A", "a/b", "..", &"x".repeat(65)] {
            assert!(id(bad).is_err(), "{bad}");
        }
        assert!(variable("_A1", "x").is_ok());
        for bad in ["1A", "A-B", "", "A=B", &"x".repeat(65)] {
            assert!(variable(bad, "").is_err(), "{bad}");
        }
        assert!(variable("A", "x\0").is_err());
        assert!(event_kind("agent.said").is_ok() && event_kind("Agent").is_err());
        assert!(file_name("notes.md").is_ok() && file_name("../x").is_err() && file_name(".x").is_err());
    }

    #[test]
    fn a_thread_said_twice_must_be_the_same() {
        let place =
            Channel { channel_type: "chat".into(), platform_id: "C1".into(), thread_id: Some("t1".into()) };
        assert!(channel(Some(&place), Some("t1")).is_ok());
        assert!(channel(Some(&place), None).is_ok());
        assert!(channel(Some(&place), Some("t2")).is_err());
    }
}
