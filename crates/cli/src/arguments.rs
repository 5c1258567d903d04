//! Options as people write them, for the verbs that talk to a server.

use crate::remote::Failure;
use std::ffi::OsString;
use workroom_types::{Channel, RoomUser, SessionState, parse_duration};

/// Whom a name that was already looked at stands for.
pub(crate) fn user(name: &str) -> RoomUser {
    if name == "root" { RoomUser::Root } else { RoomUser::Agent }
}

/// A program and its arguments, as a request has them; none where there are no words.
pub(crate) fn argv(words: Vec<OsString>) -> Result<Option<Vec<String>>, Failure> {
    let text = |word: OsString| {
        word.into_string().map_err(|word| {
            let detail = format!("the argument {word:?} is not UTF-8");
            Failure::problem(detail, "put such bytes into a file or on stdin")
        })
    };
    let words = words.into_iter().map(text).collect::<Result<Vec<String>, Failure>>()?;
    Ok((!words.is_empty()).then_some(words))
}

/// `90s`, `10m`, `1h`, as whole seconds; a started one counts.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let time = parse_duration(text)?;
    Ok(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

/// `500ms`, `1s`, `2m`, or nothing at all: `0s`.
pub(crate) fn span_of_time(text: &str) -> Result<std::time::Duration, String> {
    if matches!(text, "0" | "0s") { Ok(std::time::Duration::ZERO) } else { parse_duration(text) }
}

/// `500ms`, `30s`, as milliseconds.
pub(crate) fn milliseconds(text: &str) -> Result<u64, String> {
    let millis = parse_duration(text)?.as_millis().max(1);
    u64::try_from(millis).map_err(|_| format!("\"{text}\" is longer than can be counted"))
}

/// `team=search`: a label's key and value.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("\"{text}\" has no value; write it like team=search"))?;
    let inside = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !key.starts_with(|c: char| c.is_ascii_alphanumeric()) || !key.chars().all(inside) || key.len() > 64 {
        return Err(format!(
            "\"{key}\" is not a label's key; use up to 64 letters, digits, '.', '_' and '-', a letter or digit first"
        ));
    }
    if value.chars().count() > 120 {
        return Err(format!(
            "the value of label {key} is over 120 characters; keep long text in the workspace"
        ));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// `NAME=value`: a variable of the environment.
pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("\"{text}\" has no value; write it like NAME=value"))?;
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let first = |c: char| inside(c) && !c.is_ascii_digit();
    if !name.starts_with(first) || !name.chars().all(inside) || name.len() > 64 {
        return Err(format!(
            "\"{name}\" is not a variable's name; use up to 64 letters, digits and '_', and no digit first"
        ));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// `slack:C0123`: what kind of place, and its id there, which may itself hold colons.
pub(crate) fn channel(text: &str) -> Result<Channel, String> {
    match text.split_once(':') {
        Some((kind, id)) if !kind.is_empty() && !id.is_empty() => {
            Ok(Channel { channel_type: kind.to_owned(), platform_id: id.to_owned(), thread_id: None })
        }
        _ => Err(format!("\"{text}\" is not a channel; write it like slack:C0123")),
    }
}

pub(crate) fn state(text: &str) -> Result<SessionState, String> {
    SessionState::from_name(text).ok_or_else(|| {
        let names = SessionState::ALL.map(SessionState::as_str);
        format!("\"{text}\" is not a state; the states are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> Result<(String, String), String> {
        Ok((key.into(), value.into()))
    }

    #[test]
    fn labels() {
        assert_eq!(label("team=search"), pair("team", "search"));
        assert_eq!(label("a.b-c_1="), pair("a.b-c_1", ""));
        assert_eq!(label("k=a=b"), pair("k", "a=b"));
        let long_value = format!("k={}", "ä".repeat(120));
        assert!(label(&long_value).is_ok(), "characters are counted, not bytes");
        let long_key = format!("{}=v", "k".repeat(65));
        let too_long_value = format!("{long_value}x");
        for text in ["team", "=v", ".a=v", "a b=v", "ä=v", &long_key, &too_long_value] {
            assert!(label(text).is_err(), "{text}");
        }
    }

    #[test]
    fn variables() {
        assert_eq!(variable("PATH=/bin:/usr/bin"), pair("PATH", "/bin:/usr/bin"));
        assert_eq!(variable("_x1="), pair("_x1", ""));
        for text in ["PATH", "=v", "1a=v", "a-b=v", "a b=v"] {
            assert!(variable(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(seconds("1h"), Ok(3600));
        assert_eq!(seconds("1500ms"), Ok(2));
        assert_eq!(milliseconds("1.5s"), Ok(1500));
        assert_eq!(milliseconds("0.1ms"), Ok(1));
        assert!(seconds("soon").is_err() && milliseconds("0").is_err());
    }

    #[test]
    fn channels_and_states() {
        let found = channel("matrix:!room:example.org").unwrap();
        assert_eq!(
            (found.channel_type.as_str(), found.platform_id.as_str()),
            ("matrix", "!room:example.org")
        );
        assert!(channel("slack").is_err() && channel(":x").is_err() && channel("x:").is_err());
        assert_eq!(state("waiting_for_input"), Ok(SessionState::WaitingForInput));
        assert!(state("asleep").unwrap_err().contains("stopped"));
    }
}
