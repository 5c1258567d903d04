//! Playing a recording: its events with how long to wait before each, from any point, at any speed.

use crate::cast::{CastError, Event, EventKind, Reader};
use crate::screen::Screen;
use crate::size::Size;
use std::io::BufRead;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub struct ReplayOptions {
    /// 2.0 is twice as fast.
    pub speed: f64,
    /// A longer pause is made this long, before the speed is applied.
    pub idle_limit: Option<Duration>,
    /// Where to begin, in the time of the recording. What was before is given without waiting.
    pub from: Duration,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        ReplayOptions { speed: 1.0, idle_limit: None, from: Duration::ZERO }
    }
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("a recording cannot be played at {speed} times its speed; use a number from 0.01 to 1000")]
pub struct SpeedError {
    pub speed: f64,
}

/// An event, and how long to wait before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub wait: Duration,
    /// The event is from before the point where playing begins: it is needed to draw the screen at that point.
    pub is_catching_up: bool,
    pub event: Event,
}

/// Gives the steps of a recording; the caller waits.
#[derive(Debug)]
pub struct Replay<I> {
    events: I,
    options: ReplayOptions,
    now: Duration,
}

impl<I: Iterator<Item = Result<Event, CastError>>> Replay<I> {
    pub fn new(events: I, options: ReplayOptions) -> Result<Replay<I>, SpeedError> {
        if !(0.01..=1000.0).contains(&options.speed) {
            return Err(SpeedError { speed: options.speed });
        }
        let now = options.from;
        Ok(Replay { events, options, now })
    }
}

impl<I: Iterator<Item = Result<Event, CastError>>> Iterator for Replay<I> {
    type Item = Result<Step, CastError>;

    fn next(&mut self) -> Option<Self::Item> {
        let event = match self.events.next()? {
            Ok(event) => event,
            Err(error) => return Some(Err(error)),
        };
        let is_catching_up = event.at < self.options.from;
        let pause = event.at.saturating_sub(self.now);
        self.now = self.now.max(event.at);
        let pause = self.options.idle_limit.map_or(pause, |limit| pause.min(limit));
        // A recording may claim to last for ages, and slowly played that is more than fits.
        let wait =
            Duration::try_from_secs_f64(pause.as_secs_f64() / self.options.speed).unwrap_or(Duration::MAX);
        Some(Ok(Step { wait, is_catching_up, event }))
    }
}

/// The screen as it was at a point of a recording.
pub fn screen_at<R: BufRead>(reader: Reader<R>, at: Duration) -> Result<Screen, CastError> {
    let term = &reader.header().term;
    let mut screen = Screen::new(Size::nearest(term.cols, term.rows));
    for event in reader {
        let event = event?;
        if event.at > at {
            break;
        }
        match event.kind {
            EventKind::Output(text) => screen.feed(text.as_bytes()),
            EventKind::Resize { cols, rows } => screen.resize(Size::nearest(cols, rows)),
            EventKind::Input(_) | EventKind::Marker(_) | EventKind::Exit(_) | EventKind::Other { .. } => {}
        }
    }
    Ok(screen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Reader<&'static [u8]> {
        let cast = concat!(
            "{\"version\": 3, \"term\": {\"cols\": 80, \"rows\": 24}}\n",
            "[1.0, \"o\", \"one\\r\\n\"]\n",
            "[10.0, \"o\", \"two\\r\\n\"]\n",
            "[0.5, \"r\", \"100x30\"]\n",
            "[2.0, \"o\", \"three\"]\n",
        );
        Reader::new(cast.as_bytes()).expect("a recording")
    }

    fn waits(options: ReplayOptions) -> Vec<u64> {
        let replay = Replay::new(recording(), options).expect("a speed");
        replay.map(|step| step.expect("an event").wait.as_millis() as u64).collect()
    }

    #[test]
    fn pauses_are_as_recorded_faster_or_shortened() {
        assert_eq!(waits(ReplayOptions::default()), [1000, 10_000, 500, 2000]);
        assert_eq!(waits(ReplayOptions { speed: 2.0, ..Default::default() }), [500, 5000, 250, 1000]);
        let idle_limit = Some(Duration::from_secs(2));
        assert_eq!(waits(ReplayOptions { idle_limit, ..Default::default() }), [1000, 2000, 500, 2000]);
        assert_eq!(
            waits(ReplayOptions { idle_limit, speed: 0.5, ..Default::default() }),
            [2000, 4000, 1000, 4000]
        );
    }

    #[test]
    fn playing_from_the_middle_catches_up_at_once() {
        let options = ReplayOptions { from: Duration::from_secs(10), ..Default::default() };
        assert_eq!(waits(options.clone()), [0, 1000, 500, 2000]);
        let replay = Replay::new(recording(), options).expect("a speed");
        let caught_up: Vec<bool> = replay.map(|step| step.expect("an event").is_catching_up).collect();
        assert_eq!(caught_up, [true, false, false, false]);
        let past_the_end = ReplayOptions { from: Duration::from_secs(100), ..Default::default() };
        assert_eq!(waits(past_the_end), [0, 0, 0, 0]);
    }

    #[test]
    fn speeds_that_are_none_are_refused() {
        for speed in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(
                Replay::new(recording(), ReplayOptions { speed, ..Default::default() }).is_err(),
                "{speed}"
            );
        }
    }

    #[test]
    fn ages_slowly_played_do_not_overflow() {
        let cast =
            "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}}\n[1e19,\"o\",\"x\"]\n[1e19,\"o\",\"y\"]\n";
        let reader = Reader::new(cast.as_bytes()).expect("a recording");
        let replay =
            Replay::new(reader, ReplayOptions { speed: 0.01, ..Default::default() }).expect("a speed");
        assert_eq!(replay.filter_map(Result::ok).count(), 2);
    }

    #[test]
    fn the_screen_of_any_moment_can_be_drawn() {
        let text = |seconds: f64| {
            let screen = screen_at(recording(), Duration::from_secs_f64(seconds)).expect("a screen");
            (screen.whole_text(), screen.size().cols())
        };
        assert_eq!(text(0.5), (vec![], 80));
        assert_eq!(text(11.0), (vec!["one".to_owned(), "two".to_owned()], 80));
        assert_eq!(text(99.0), (vec!["one".to_owned(), "two".to_owned(), "three".to_owned()], 100));
    }
}
