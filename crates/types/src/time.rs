//! Moments, as programs and people read them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 in UTC; RFC 3339 with milliseconds in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub fn now() -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        #[cfg(debug_assertions)]
        let millis = millis.saturating_add(jump::millis());
        Timestamp(millis)
    }

    /// `2026-01-31T12:00:00.000Z`
    pub fn to_rfc3339(self) -> String {
        let moment = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        format!("{moment:.3}")
    }

    /// `20260131-120000`, the beginning of a session's id.
    pub fn compact(self) -> String {
        let moment = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        moment.strftime("%Y%m%d-%H%M%S").to_string()
    }

    pub fn parse(text: &str) -> Option<Timestamp> {
        text.parse::<jiff::Timestamp>().ok().map(|moment| Timestamp(moment.as_millisecond()))
    }

    pub fn plus_seconds(self, seconds: u64) -> Timestamp {
        let millis = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000);
        Timestamp(self.0.saturating_add(millis))
    }
}

/// A wall clock that jumps, for tests: the machine's own cannot be set for one server alone. Not there in release builds.
#[cfg(debug_assertions)]
mod jump {
    use std::ffi::OsString;
    use std::sync::LazyLock;

    /// Names a file that says by how many milliseconds the clock is wrong.
    static FILE: LazyLock<Option<OsString>> = LazyLock::new(|| std::env::var_os("WORKROOM_TEST_CLOCK"));

    pub(super) fn millis() -> i64 {
        let Some(file) = FILE.as_ref() else { return 0 };
        std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_rfc3339())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(deserializer)?;
        Timestamp::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("\"{text}\" is not a time")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_for_people_and_read_back() {
        let moment = Timestamp(1_767_225_599_042);
        assert_eq!(moment.to_rfc3339(), "2025-12-31T23:59:59.042Z");
        assert_eq!(moment.compact(), "20251231-235959");
        assert_eq!(Timestamp::parse(&moment.to_rfc3339()), Some(moment));
        assert_eq!(Timestamp::parse("yesterday"), None);
    }
}
