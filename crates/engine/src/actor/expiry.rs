//! When a session's time is over, and what happens then.

use super::Actor;
use std::time::Duration;
use tokio::time::Instant;
use workroom_proto::{Answer, Question};
use workroom_types::{OnExpiry, SessionState, Timestamp};

/// How long an owner without a room and without work stays in memory.
const RETIRE_AFTER: Duration = Duration::from_secs(30);

/// A room that uses less than this share of one CPU is idle.
const BUSY_SHARE: f64 = 0.01;

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
        self.to_forget.iter().filter_map(|(_, not_before)| *not_before).min().filter(|_| self.room.is_some())
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
        let from_wall = |at: Timestamp| {
            let left = at.0.saturating_sub(Timestamp::now().0).max(0) as u64;
            Instant::now() + Duration::from_millis(left)
        };
        let ttl = session.ttl.map(|ttl| from_wall(session.created.plus_seconds(ttl)));
        // What is asked for and not answered yet is activity.
        let idle = session
            .idle_timeout
            .filter(|_| self.commands.is_empty() && session.state != SessionState::Paused)
            .map(|idle| match self.room {
                Some(_) => self.last_active + Duration::from_secs(idle),
                None => from_wall(session.last_active.plus_seconds(idle)),
            });
        ttl.into_iter().chain(idle).min()
    }

    pub(super) async fn expire(&mut self) {
        let session = &self.row.session;
        let lived =
            Timestamp::now().0 >= session.ttl.map_or(i64::MAX, |ttl| session.created.plus_seconds(ttl).0);
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
                    self.last_active = Instant::now();
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
