//! Values as Python takes and shows them: what the clients of the slot API see in its texts.

use serde_json::Value;
use std::time::Duration;

/// What a condition makes of a value.
pub(super) fn truthy(value: Option<&Value>, default: bool) -> bool {
    match value {
        None => default,
        Some(Value::Null) => false,
        Some(Value::Bool(yes)) => *yes,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
    }
}

/// `str(value)`, as far as a message needs it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => self::float(float),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// `str.strip()`: four control characters are blanks too.
pub(super) fn strip(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c))
}

/// `repr(float)`: the shortest digits that are this number, with an exponent from 1e16 on and below 1e-4.
pub(super) fn float(number: f64) -> String {
    if !number.is_finite() {
        return match number {
            _ if number.is_nan() => "nan".into(),
            _ if number > 0.0 => "inf".into(),
            _ => "-inf".into(),
        };
    }
    let plain = format!("{number:e}");
    let (digits, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let fixed = format!("{number}");
        return if fixed.contains('.') { fixed } else { format!("{fixed}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// `float(value)`; nothing for what is no number.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(yes) => Some(f64::from(u8::from(*yes))),
        Value::Number(number) => number.as_f64(),
        Value::String(text) => strip(text).parse().ok(),
        _ => None,
    }
}

/// `int(value)` within bounds; the default for what is no number.
pub(super) fn clamped(value: Option<&Value>, default: u64, least: u64, most: u64) -> u64 {
    let whole = match value {
        Some(Value::String(text)) => strip(text).parse::<i64>().ok().map(|whole| whole as f64),
        Some(other) => number(other).filter(|number| number.is_finite()).map(f64::trunc),
        None => None,
    };
    // Casts of floats stop at the ends.
    whole.map_or(default, |whole| (whole as u64).clamp(least, most))
}

/// The first characters of a text that has more, with a word that there are more.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}\n... (output truncated)", &text[..end]),
        None => text.to_owned(),
    }
}

/// How long a call may take, and how its message shows that.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Timeout {
    shown: String,
    seconds: f64,
}

/// The longest that anything is waited for.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl Timeout {
    /// Of a request that may say nothing of it: half a minute. With `null` it may take as long as anything may.
    pub(super) fn of(value: Option<&Value>) -> Option<Timeout> {
        match value {
            None => Some(Timeout::seconds(30.0)),
            Some(Value::Null) => Some(Timeout { shown: "None".into(), seconds: f64::INFINITY }),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => {
                Some(Timeout { shown: shown(value), seconds: number(value)? })
            }
            Some(_) => None,
        }
    }

    pub(super) fn seconds(seconds: f64) -> Timeout {
        Timeout { shown: float(seconds), seconds }
    }

    pub(super) fn as_seconds(&self) -> f64 {
        self.seconds
    }

    /// `30.0s`, or `30s` if it was written so.
    pub(super) fn shown(&self) -> String {
        format!("{}s", self.shown)
    }

    /// Nothing if there is no time at all.
    pub(super) fn duration(&self) -> Option<Duration> {
        let duration = Duration::try_from_secs_f64(self.seconds.min(LONGEST.as_secs_f64())).ok()?;
        (!duration.is_zero()).then_some(duration.max(Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn floats_are_shown_as_python_shows_them() {
        for (number, text) in [
            (30.0, "30.0"),
            (0.5, "0.5"),
            (0.1, "0.1"),
            (2.25, "2.25"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e20, "1.5e+20"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (1e100, "1e+100"),
            (-3.0, "-3.0"),
            (0.0, "0.0"),
            (123456.789, "123456.789"),
        ] {
            assert_eq!(float(number), text);
        }
    }

    #[test]
    fn a_timeout_is_shown_as_it_was_written() {
        let shown = |value| Timeout::of(Some(&value)).map(|timeout| timeout.shown());
        assert_eq!(shown(json!(5)).as_deref(), Some("5s"));
        assert_eq!(shown(json!(5.0)).as_deref(), Some("5.0s"));
        assert_eq!(shown(json!(0.25)).as_deref(), Some("0.25s"));
        assert_eq!(Timeout::of(None).map(|timeout| timeout.shown()).as_deref(), Some("30.0s"));
        assert_eq!(shown(json!("5")), None);
        assert_eq!(Timeout::seconds(0.0).duration(), None);
        assert_eq!(Timeout::seconds(-1.0).duration(), None);
        assert_eq!(Timeout::seconds(0.5).duration(), Some(Duration::from_millis(500)));
        assert_eq!(Timeout::of(Some(&json!(null))).and_then(|none| none.duration()), Some(LONGEST));
    }

    #[test]
    fn conditions_and_whole_numbers_are_pythons() {
        let yes = [json!(true), json!(1), json!("false"), json!([0]), json!(0.5)];
        assert!(yes.iter().all(|value| truthy(Some(value), false)));
        let no = [json!(false), json!(0), json!(0.0), json!(""), json!(null), json!([]), json!({})];
        assert!(no.iter().all(|value| !truthy(Some(value), true)));
        assert!(truthy(None, true) && !truthy(None, false));
        let clamp = |value| clamped(Some(&value), 7, 1, 10);
        assert_eq!([clamp(json!(3)), clamp(json!(0)), clamp(json!(-5)), clamp(json!(99))], [3, 1, 1, 10]);
        assert_eq!(
            [clamp(json!(2.9)), clamp(json!(" 4 ")), clamp(json!("x")), clamp(json!(null))],
            [2, 4, 7, 7]
        );
        assert_eq!(clamped(None, 7, 1, 10), 7);
    }

    #[test]
    fn blanks_and_characters_are_pythons() {
        assert_eq!(strip("\x1c\u{a0} a\x1f b\u{3000}\n"), "a\x1f b");
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöü!", 3), "äöü\n... (output truncated)");
    }
}
