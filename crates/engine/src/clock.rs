//! The time by which is decided what is over, and what a jump of the machine's clock does to it: nothing too early.
//!
//! What runs in a live server runs by the monotonic clock. What has to be judged by recorded times (a session that nobody
//! has in memory, an answer that is remembered) is judged by this clock.
//!
//! ```text
//!            agrees                        agrees
//!           ┌──────┐    ahead by more     ┌──────┐
//!           ▼      │ ──────────────────▶  │      ▼
//!         follows the wall              doubts: runs on by itself
//!              ▲   ◀──────────────────    │
//!              │   agrees again, or went back, or was ahead by the same for an hour
//!              └── behind: follows at once, for that makes nothing older
//! ```

use rustix::time::{ClockId, clock_gettime};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use workroom_types::Timestamp;

/// Milliseconds by which a clock is corrected without having jumped.
const SLACK: i64 = 10_000;

/// Milliseconds for which the wall clock has to stand by a jump ahead until it is believed.
const DOUBTED_FOR: i64 = 3_600_000;

pub(crate) struct Clock(Mutex<Belief>);

/// All in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Belief {
    /// By the wall, when it was last believed.
    wall: i64,
    /// The same moment since the machine was started, suspended or not.
    at: i64,
    doubt: Option<Doubt>,
}

#[derive(Debug, Clone, Copy)]
struct Doubt {
    since: i64,
    ahead: i64,
}

impl Belief {
    fn judge(&mut self, wall: i64, at: i64) -> i64 {
        let own = self.wall.saturating_add(at - self.at);
        let ahead = wall.saturating_sub(own);
        let doubt = match self.doubt {
            Some(doubt) if (doubt.ahead - ahead).abs() <= SLACK => doubt,
            _ => Doubt { since: at, ahead },
        };
        if ahead > SLACK && at - doubt.since < DOUBTED_FOR {
            self.doubt = Some(doubt);
            return own;
        }
        *self = Belief { wall, at, doubt: None };
        wall
    }
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock(Mutex::new(Belief { wall: Timestamp::now().0, at: since_boot(), doubt: None }))
    }

    /// What time it is, when asked what is over. To be asked now and then, for the small corrections in between.
    pub(crate) fn now(&self) -> Timestamp {
        let mut belief = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Timestamp(belief.judge(Timestamp::now().0, since_boot()))
    }

    /// How old something is: never less than nothing, though it may seem to come from the future.
    pub(crate) fn age(&self, since: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.now().0.saturating_sub(since.0)).unwrap_or(0))
    }
}

/// When something is over that lasts for so long and has lasted for `age` of it at a certain moment.
pub(crate) fn end(moment: Instant, age: Duration, lasts: Duration) -> Instant {
    let left = lasts.saturating_sub(age);
    // More than a century is for ever.
    moment.checked_add(left).unwrap_or_else(|| moment + Duration::from_secs(100 * 365 * 24 * 3600))
}

fn since_boot() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_767_225_600_000;
    const DAY: i64 = 24 * 3600 * 1000;
    const MINUTE: i64 = 60_000;

    /// What is believed, minute by minute, of a wall clock that is wrong by so much at each.
    fn believed(wrong_by: impl IntoIterator<Item = i64>) -> Vec<i64> {
        let mut belief = Belief { wall: NOON, at: 0, doubt: None };
        let minutes = wrong_by.into_iter().zip(1..);
        minutes
            .map(|(wrong, minute)| {
                let real = NOON + minute * MINUTE;
                belief.judge(real + wrong, minute * MINUTE) - real
            })
            .collect()
    }

    #[test]
    fn a_jump_ahead_and_back_again_is_as_if_nothing_had_been() {
        assert_eq!(believed([0, DAY, DAY, DAY, 0, 0]), [0; 6]);
        assert_eq!(believed([0, DAY, 3 * DAY, DAY, 0]), [0; 5]);
    }

    #[test]
    fn a_clock_that_was_set_right_is_believed_after_an_hour() {
        let believed = believed([DAY; 62]);
        assert!(believed[..60].iter().all(|wrong| *wrong == 0), "{believed:?}");
        assert_eq!(believed[60..], [DAY, DAY]);
    }

    #[test]
    fn one_that_keeps_jumping_is_never_believed() {
        let believed = believed((0..600).map(|minute| if minute % 2 == 0 { DAY } else { 2 * DAY }));
        assert!(believed.iter().all(|wrong| *wrong == 0), "{believed:?}");
    }

    #[test]
    fn going_back_is_believed_at_once_and_coming_back_from_there_is_not() {
        assert_eq!(believed([0, -DAY, -DAY, 0, 0]), [0, -DAY, -DAY, -DAY, -DAY]);
    }

    #[test]
    fn small_corrections_are_followed_however_many() {
        assert_eq!(
            believed((1..100).map(|minute| minute * 5_000)),
            (1..100).map(|m| m * 5_000).collect::<Vec<_>>()
        );
    }

    #[test]
    fn what_is_old_is_over_and_what_is_from_the_future_lasts_no_longer_than_it_says() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        assert_eq!(end(now, second, 3 * second), now + 2 * second);
        assert_eq!(end(now, 5 * second, 3 * second), now);
        assert!(end(now, second, Duration::MAX) > now + Duration::from_secs(1 << 30));
        let clock = Clock::new();
        assert_eq!(clock.age(Timestamp(clock.now().0 + DAY)), Duration::ZERO);
    }
}
