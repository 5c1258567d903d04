//! Waiting for something to happen in a terminal: for text, for quiet, for its end.
//!
//! Text is looked for in two places. On the screen, because a full-screen program draws a word in pieces; and in the
//! stream, because what scrolls by may never be on the screen when somebody looks.

use super::models::InUse;
use super::view::{ScreenQuery, view};
use super::{TerminalHandle, check_cursor};
use crate::blocking;
use crate::processes::Followed;
use std::future::pending;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use workroom_terminal::{AlternateScreen, Pattern, PatternError, PlainOptions, TextLog, Waiter};
use workroom_types::{Awaited, Problem, ProcessState, TerminalWaited, WaitForTerminal};

const USUAL_TIMEOUT: u64 = 30_000;
const LONGEST_TIMEOUT: u64 = 24 * 3600 * 1000;

/// Text of the stream that is searched: more than one piece of output makes.
const SEARCHED: usize = 1 << 20;

/// How long the screen may take to be drawn at the beginning, and at the end, when it is told.
const DRAWN_WITHIN: Duration = Duration::from_secs(2);

/// What is looked for, and in what was written.
struct Search {
    wanted: Vec<(Awaited, Pattern, Waiter)>,
    log: TextLog,
    /// Whether the screen counts too.
    on_screen: bool,
}

struct Found {
    what: Awaited,
    text: String,
    pattern: Pattern,
}

impl TerminalHandle {
    /// Waits for the first of what is asked for; the screen is as it is then.
    pub async fn wait(&self, request: WaitForTerminal) -> Result<TerminalWaited, Problem> {
        let timeout = request.timeout_ms.unwrap_or(USUAL_TIMEOUT);
        if timeout > LONGEST_TIMEOUT {
            return Err(Problem::invalid(
                format!("timeout_ms {timeout} is more than {LONGEST_TIMEOUT}"),
                "wait less, and wait again",
            ));
        }
        if let Some(idle) = request.idle_ms.filter(|idle| *idle > LONGEST_TIMEOUT) {
            return Err(Problem::invalid(format!("idle_ms {idle} is more than {LONGEST_TIMEOUT}"), ""));
        }
        check_cursor(request.cursor)?;
        let quiet = request.idle_ms.map(Duration::from_millis);
        let patterns = patterns(&request)?;
        if patterns.is_empty() && quiet.is_none() && !request.exit {
            return Err(Problem::invalid(
                "there is nothing to wait for",
                "give one or more of text, regex, idle_ms and exit",
            ));
        }
        let until = Instant::now() + Duration::from_millis(timeout);
        let model = self.model()?;
        let info = self.info();
        let cursor = request.cursor.unwrap_or(info.stdout.written);
        let mut follower = self.process.follow([Some(cursor), None])?;
        let options = PlainOptions {
            terminal_columns: info.pty.map(|size| size.cols),
            alternate_screen: AlternateScreen::Keep,
            ..PlainOptions::default()
        };
        let log = TextLog::new(SEARCHED, options);
        let wanted = patterns.into_iter().map(|(what, pattern)| {
            let waiter = Waiter::since(pattern.clone(), 0);
            (what, pattern, waiter)
        });
        let mut search = Search { wanted: wanted.collect(), log, on_screen: request.cursor.is_none() };
        let mut drawn = model.0.progress();
        // What is there already counts, however short the time is.
        model.0.caught_up(info.stdout.written, Instant::now() + DRAWN_WITHIN).await;
        let mut found;
        (search, found) = search.on_screen(&model).await?;
        let mut idle_at = quiet.map(|quiet| Instant::now() + quiet);
        let mut waited = TerminalWaited::default();
        while found.is_none() {
            let idle = async {
                match idle_at {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                next = follower.next() => match next {
                    Ok(Followed::Output { data, .. }) => {
                        idle_at = quiet.map(|quiet| Instant::now() + quiet);
                        (search, found) = search.in_stream(data).await?;
                    }
                    Ok(Followed::Ended(info)) => {
                        model.0.caught_up(info.stdout.written, until).await;
                        (_, found) = search.on_screen(&model).await?;
                        waited.matched = request.exit.then_some(Awaited::Exit);
                        break;
                    }
                    Err(_) => break,
                },
                Ok(()) = drawn.changed(), if search.looks_at_screen() => {
                    (search, found) = search.on_screen(&model).await?;
                }
                () = idle => {
                    waited.matched = Some(Awaited::Idle);
                    break;
                }
                () = sleep_until(until) => {
                    waited.timed_out = true;
                    break;
                }
            }
        }
        self.told(model, found, waited).await
    }

    async fn told(
        &self,
        model: InUse,
        found: Option<Found>,
        mut waited: TerminalWaited,
    ) -> Result<TerminalWaited, Problem> {
        let info = self.info();
        model.0.caught_up(info.stdout.written, Instant::now() + DRAWN_WITHIN).await;
        blocking(move || {
            let drawn = model.0.drawn();
            if let Some(Found { what, text, pattern }) = found {
                waited.row = pattern.on_screen(&drawn.screen).map(|found| found.row);
                (waited.matched, waited.text) = (Some(what), Some(text));
            }
            // A time that is over and an end at the same moment: the end is what is told.
            waited.timed_out &= info.state == ProcessState::Running;
            waited.screen = view(&drawn, ScreenQuery::default(), info.state);
            drop(drawn);
            Ok(waited)
        })
        .await
    }
}

impl Search {
    fn looks_at_screen(&self) -> bool {
        self.on_screen && !self.wanted.is_empty()
    }

    /// Looks at what was written, where it holds nobody up.
    async fn in_stream(mut self, data: Vec<u8>) -> Result<(Search, Option<Found>), Problem> {
        if self.wanted.is_empty() {
            return Ok((self, None));
        }
        blocking(move || {
            self.log.feed(&data);
            let found = self.wanted.iter_mut().find_map(|(what, pattern, waiter)| {
                let text = waiter.check(&self.log)?.text;
                Some(Found { what: *what, text, pattern: pattern.clone() })
            });
            Ok((self, found))
        })
        .await
    }

    /// Looks at the screen, which others may be drawing on.
    async fn on_screen(self, model: &InUse) -> Result<(Search, Option<Found>), Problem> {
        if !self.looks_at_screen() {
            return Ok((self, None));
        }
        let model = model.0.clone();
        blocking(move || {
            let drawn = model.drawn();
            let found = self.wanted.iter().find_map(|(what, pattern, _)| {
                let text = pattern.on_screen(&drawn.screen)?.text;
                Some(Found { what: *what, text, pattern: pattern.clone() })
            });
            drop(drawn);
            Ok((self, found))
        })
        .await
    }
}

fn patterns(request: &WaitForTerminal) -> Result<Vec<(Awaited, Pattern)>, Problem> {
    let wrong = |error: PatternError| Problem::invalid(error.to_string(), "");
    let text = request.text.as_deref().map(Pattern::text).transpose().map_err(wrong)?;
    let regex = request.regex.as_deref().map(Pattern::regex).transpose().map_err(wrong)?;
    let both = [(Awaited::Text, text), (Awaited::Regex, regex)];
    Ok(both.into_iter().filter_map(|(what, pattern)| Some((what, pattern?))).collect())
}
