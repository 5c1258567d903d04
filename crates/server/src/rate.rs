//! How often one caller may call: a bucket of permissions each, refilled evenly.

use crate::config::RateLimit;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use workroom_types::Problem;

/// Enough that callers on different cores rarely meet.
const SHARDS: usize = 16;
/// Above this, buckets that are full again are forgotten: they say nothing.
const KEPT: usize = 1024;

pub(crate) struct RateLimiter {
    limit: RateLimit,
    hasher: RandomState,
    shards: [Mutex<HashMap<String, Bucket>>; SHARDS],
}

struct Bucket {
    permissions: f64,
    at: Instant,
}

impl RateLimiter {
    pub(crate) fn new(limit: RateLimit) -> RateLimiter {
        // A burst of nothing would refuse everything.
        let limit = RateLimit { burst: limit.burst.max(1), ..limit };
        RateLimiter { limit, hasher: RandomState::new(), shards: Default::default() }
    }

    pub(crate) fn take(&self, caller: &str, now: Instant) -> Result<(), Problem> {
        if self.limit.per_second == 0 {
            return Ok(());
        }
        let shard = &self.shards[self.hasher.hash_one(caller) as usize % SHARDS];
        let mut buckets = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = match buckets.get_mut(caller) {
            Some(bucket) => bucket.take(self.limit, now),
            None => {
                if buckets.len() >= KEPT {
                    buckets.retain(|_, bucket| bucket.refilled(self.limit, now) < self.limit.burst as f64);
                }
                let mut bucket = Bucket { permissions: self.limit.burst as f64, at: now };
                let taken = bucket.take(self.limit, now);
                buckets.insert(caller.to_owned(), bucket);
                taken
            }
        };
        if taken { Ok(()) } else { Err(self.refusal()) }
    }

    fn refusal(&self) -> Problem {
        let rate = self.limit.per_second;
        Problem::limit(
            "rate_limit",
            format!("this caller makes more than {rate} requests a second"),
            "wait, or raise rate_limit in the server's configuration",
        )
        .retry_after(1)
    }
}

impl Bucket {
    fn refilled(&self, limit: RateLimit, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        (self.permissions + since * limit.per_second as f64).min(limit.burst as f64)
    }

    fn take(&mut self, limit: RateLimit, now: Instant) -> bool {
        self.permissions = self.refilled(limit, now);
        self.at = self.at.max(now);
        let may = self.permissions >= 1.0;
        if may {
            self.permissions -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn granted(limiter: &RateLimiter, caller: &str, tries: usize, now: Instant) -> usize {
        (0..tries).filter(|_| limiter.take(caller, now).is_ok()).count()
    }

    #[test]
    fn a_burst_is_granted_and_then_only_what_time_gives_back() {
        let limiter = RateLimiter::new(RateLimit { per_second: 10, burst: 20 });
        let start = Instant::now();
        assert_eq!(granted(&limiter, "a", 50, start), 20);
        assert_eq!(granted(&limiter, "a", 50, start + Duration::from_millis(500)), 5);
        assert_eq!(granted(&limiter, "a", 50, start + Duration::from_millis(500)), 0);
        // A long pause gives no more than a burst.
        assert_eq!(granted(&limiter, "a", 50, start + Duration::from_secs(3600)), 20);
    }

    #[test]
    fn one_caller_does_not_use_up_anothers() {
        let limiter = RateLimiter::new(RateLimit { per_second: 1, burst: 2 });
        let now = Instant::now();
        assert_eq!(granted(&limiter, "a", 9, now), 2);
        assert_eq!(granted(&limiter, "b", 9, now), 2);
    }

    #[test]
    fn a_refusal_says_when_to_come_back_and_names_the_limit() {
        let limiter = RateLimiter::new(RateLimit { per_second: 1, burst: 1 });
        let now = Instant::now();
        assert!(limiter.take("a", now).is_ok());
        let problem = limiter.take("a", now).expect_err("a second at once is one too many");
        assert_eq!((problem.status, problem.retry_after), (429, Some(1)));
        assert_eq!(problem.limit.as_deref(), Some("rate_limit"));
    }

    #[test]
    fn zero_is_no_limit() {
        let limiter = RateLimiter::new(RateLimit { per_second: 0, burst: 0 });
        assert_eq!(granted(&limiter, "a", 1000, Instant::now()), 1000);
    }

    #[test]
    fn callers_that_are_quiet_again_are_forgotten() {
        let limiter = RateLimiter::new(RateLimit { per_second: 1000, burst: 2 });
        let start = Instant::now();
        for caller in 0..SHARDS * KEPT * 3 {
            let now = start + Duration::from_secs(caller as u64);
            assert!(limiter.take(&format!("caller-{caller}"), now).is_ok());
        }
        let kept: usize =
            limiter.shards.iter().map(|shard| shard.lock().expect("no test panics here").len()).sum();
        assert!(kept <= SHARDS * KEPT, "{kept}");
    }
}
