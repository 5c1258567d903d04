//! Request ids: the caller's own where it has a plain one, else ours.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Ids are this process's own prefix and a count: unique across restarts without a random number for each.
pub(crate) struct RequestIds {
    prefix: u32,
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new() -> RequestIds {
        let mut bytes = [0; 4];
        let prefix = match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(4) => u32::from_ne_bytes(bytes),
            _ => std::process::id(),
        };
        RequestIds { prefix, next: AtomicU64::new(1) }
    }

    pub(crate) fn choose(&self, headers: &HeaderMap) -> HeaderValue {
        if let Some(given) = headers.get(&X_REQUEST_ID)
            && is_plain(given.as_bytes())
        {
            return given.clone();
        }
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        HeaderValue::from_str(&format!("{:08x}-{count:x}", self.prefix))
            .unwrap_or_else(|_| HeaderValue::from_static("unnamed"))
    }
}

fn is_plain(id: &[u8]) -> bool {
    (1..=64).contains(&id.len())
        && id.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(given: &[u8]) -> HeaderValue {
        let mut headers = HeaderMap::new();
        headers.insert(X_REQUEST_ID, HeaderValue::from_bytes(given).expect("a header"));
        RequestIds::new().choose(&headers)
    }

    #[test]
    fn a_plain_id_is_kept_and_any_other_is_replaced_by_a_plain_one() {
        for kept in [&b"a"[..], b"Trace_1.2-3", &[b'x'; 64]] {
            assert_eq!(chosen(kept).as_bytes(), kept);
        }
        for replaced in [&b""[..], b"a b", b"a\"b", b"\xff", &[b'x'; 65]] {
            let made = chosen(replaced);
            assert_ne!(made.as_bytes(), replaced);
            assert!(is_plain(made.as_bytes()), "{made:?}");
        }
    }

    #[test]
    fn no_two_are_the_same() {
        let ids = RequestIds::new();
        let none = HeaderMap::new();
        assert_ne!(ids.choose(&none), ids.choose(&none));
    }
}
