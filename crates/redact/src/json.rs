//! JSON values without secrets: for journals, errors and events.

use crate::redactor::Redactor;
use serde_json::{Map, Value};
use std::borrow::Cow;

impl Redactor {
    /// Redacts every string, every key and every number in it. A number that is a secret becomes a string.
    /// Keys that become equal are told apart by `~2`, `~3` and so on: nothing gets lost.
    pub fn redact_json(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                if let Cow::Owned(redacted) = self.redact_text(&number.to_string()) {
                    *value = Value::String(redacted);
                }
            }
            Value::String(text) => {
                if let Cow::Owned(redacted) = self.redact_text(text) {
                    *text = redacted;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_json(item)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| self.redact_json(field));
                if fields.keys().any(|key| matches!(self.redact_text(key), Cow::Owned(_))) {
                    *fields = self.redact_keys(std::mem::take(fields));
                }
            }
        }
    }

    fn redact_keys(&self, fields: Map<String, Value>) -> Map<String, Value> {
        let mut redacted = Map::new();
        for (key, field) in fields {
            let key = self.redact_text(&key).into_owned();
            let unique = (1..)
                .map(|number| if number == 1 { key.clone() } else { format!("{key}~{number}") })
                .find(|key| !redacted.contains_key(key));
            redacted.insert(unique.unwrap_or(key), field);
        }
        redacted
    }
}
