//! Text that others made, put into paths and queries without changing what it says.

use serde::Serialize;
use serde_json::Value;

/// One segment of a path, whatever it holds: `a/b` stays one segment.
pub(crate) fn segment(text: &str) -> String {
    // A segment of dots alone would be taken for a step up by whoever normalises the path.
    if matches!(text, "." | "..") {
        return text.replace('.', "%2E");
    }
    escaped(text)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// `?a=1&b=two` from the fields of a struct, those that are absent left out; empty when there are none.
pub(crate) fn query(fields: &impl Serialize) -> String {
    let Ok(Value::Object(fields)) = serde_json::to_value(fields) else { return String::new() };
    let pairs: Vec<String> = fields
        .iter()
        .filter_map(|(name, value)| {
            let value = match value {
                Value::Null => return None,
                Value::String(text) => escaped(text),
                other => escaped(&other.to_string()),
            };
            Some(format!("{}={value}", escaped(name)))
        })
        .collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workroom_types::{ListSessions, SessionState};

    #[test]
    fn a_segment_stays_one_segment() {
        assert_eq!(segment("20260131-120000-0a1b2c3d"), "20260131-120000-0a1b2c3d");
        assert_eq!(segment("../a?b#c d"), "..%2Fa%3Fb%23c%20d");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segment("ä"), "%C3%A4");
    }

    #[test]
    fn a_query_has_what_is_there() {
        assert_eq!(query(&ListSessions::default()), "");
        let filter = ListSessions {
            state: Some(SessionState::WaitingForInput),
            label: Some("team=a&b".into()),
            limit: Some(5),
            ..ListSessions::default()
        };
        let mut pairs: Vec<String> =
            query(&filter).trim_start_matches('?').split('&').map(str::to_owned).collect();
        pairs.sort();
        assert_eq!(pairs, ["label=team%3Da%26b", "limit=5", "state=waiting_for_input"]);
    }
}
