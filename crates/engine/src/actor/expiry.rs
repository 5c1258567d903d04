//! When a session's time is over, and what happens then.

use super::Actor;
use crate::clock;
use crate::shared::Shared;
use std::time::Duration;
use tokio::time::Instant;
use workroom_proto::{Answer, Question};
use workroom_types::{OnExpiry, Session, SessionState};

/// How long an owner without a room and without work stays in memory.
const RETIRE_AFTER: Duration = Duration::from_secs(30);

/// A room that uses less than this share of one CPU is idle.
const BUSY_SHARE: f64 = 0.01;

/// How soon a session that could not be deleted is tried again.
const DELETE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How things stood when the owner of a session began. From then on the monotonic clock counts, which does not jump.
pub(super) struct Began {
    at: Instant,
    /// Of the session, and since its last sign of life.
    age: Duration,
    silence: Duration,
    /// Whether there was a sign of life since.
    pub(super) touched: bool,
    /// Not to be ended before, because that has just failed.
    not_before: Option<Instant>,
}

impl Began {
    pub(super) fn now(shared: &Shared, session: &Session) -> Began {
        let (age, silence) = (shared.clock.age(session.created), shared.clock.age(session.last_active));
        Began { at: Instant::now(), age, silence, touched: false, not_before: None }
    }
}

impl Actor {
    /// When something is to be looked at, should nothing happen before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.room {
            Some(_) => self.expires_at().into_iter().chain(self.forgets_at()).chain(self.looks_at()).min(),
            None => {
                let retires = self.last_active + RETIRE_AFTER;
                Some(self.expires_at().map_or(retires, |expires| expires.min(retires)))
            }
        }
    }

    /// When the guest may forget what it keeps for a while.
    pub(super) fn forgets_at(&self) -> Option<Instant> {
        self.to_forget.iter().filter_map(|known| known.not_before).min().filter(|_| self.room.is_some())
    }

    pub(super) fn expires_at(&self) -> Option<Instant> {
        let session = &self.row.session;
        let over = match session.state {
            SessionState::Running => true,
            SessionState::Paused => session.on_expiry != OnExpiry::Pause,
            SessionState::Stopped | SessionState::Failed => session.on_expiry == OnExpiry::Delete,
            _ => false,
        };
        if !over {
            return None;
        }
        // What is asked for and not answered yet is activity.
        let idle = session
            .idle_timeout
            .filter(|_| self.commands.is_empty() && session.state != SessionState::Paused)
            .map(Duration::from_secs)
            .map(|idle| match self.room.is_some() || self.began.touched {
                true => clock::end(self.last_active, Duration::ZERO, idle),
                false => clock::end(self.began.at, self.began.silence, idle),
            });
        let end = self.dies_at().into_iter().chain(idle).min()?;
        Some(self.began.not_before.map_or(end, |not_before| end.max(not_before)))
    }

    /// When its time to live is over.
    fn dies_at(&self) -> Option<Instant> {
        let ttl = Duration::from_secs(self.row.session.ttl?);
        Some(clock::end(self.began.at, self.began.age, ttl))
    }

    pub(super) async fn expire(&mut self) {
        let session = &self.row.session;
        let lived = self.dies_at().is_some_and(|at| at <= Instant::now());
        let files_at_work = self.clerks.as_ref().is_some_and(|clerks| clerks.at_work());
        let shells_at_work = self.shared.shells.at_work(&session.id);
        if !lived && self.room.is_some() && (files_at_work || shells_at_work || self.works().await) {
            self.last_active = Instant::now();
            return;
        }
        let why = if lived { "its time to live is over" } else { "it was idle" };
        match self.row.session.on_expiry {
            OnExpiry::Stop => self.stop("server", Some(why)).await,
            OnExpiry::Pause if self.state() == SessionState::Running => {
                if self.freeze(true, "server").await.is_err() {
                    self.stop("server", Some(why)).await;
                }
            }
            OnExpiry::Pause => {}
            OnExpiry::Delete => {
                if self.delete("server").await.is_err() {
                    // The store will not have it now; not to be tried again at once.
                    self.began.not_before = Some(Instant::now() + DELETE_AGAIN_AFTER);
                }
            }
        }
    }

    /// Whether the room has done something since it was last looked at; with `keep_alive`, whether anything runs.
    pub(super) async fn works(&mut self) -> bool {
        let idle = self.row.session.idle_timeout.unwrap_or(1).max(1);
        match self.ask(Question::Usage).await {
            Ok((Answer::Usage { cpu_micros, processes, .. }, _)) => {
                let used = cpu_micros.saturating_sub(self.cpu_seen);
                self.cpu_seen = cpu_micros;
                used as f64 > idle as f64 * 1e6 * BUSY_SHARE || self.row.session.keep_alive && processes > 0
            }
            _ => false,
        }
    }
}
