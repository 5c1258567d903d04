//! The one task that writes. It takes everything that waits, writes it as one transaction, and answers all:
//! a hundred callers at once pay for one flush of the disk.
//!
//! ```text
//!  commit ─┐                      ┌─ ok ──▶ publish entries, answer everybody
//!  commit ─┼─▶ queue ─▶ one ──────┤
//!  note ───┘            transaction└─ not ─▶ rolled back; each commit by itself, so that one that fails
//!                                           touches no other; notes that could not be written stay in
//!                                           the backlog and are tried again
//! ```

use crate::ballast::Ballast;
use crate::batch::{Item, Soundness, Trouble, transact};
use crate::error::{StoreError, StoreErrorKind};
use crate::heads::Heads;
use crate::rows::{Change, Counters, Outcome};
use crate::schema;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use workroom_types::JournalEntry;

/// One transaction takes at most this many commits and notes.
const BATCH: usize = 512;
/// So many notes go into one attempt when the store has been failing.
const BACKLOG_CHUNK: usize = 256;
/// Notes that are kept while nothing can be written.
const BACKLOG: usize = 10_000;
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);
/// With less than this on the disk, an I/O error is a full disk.
const NOTHING_FREE: u64 = 256 << 10;

/// How patient the store is. The defaults are what a server wants.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long a note may wait for company.
    pub note_delay: Duration,
    /// When space is first set aside, after the store is opened.
    pub ballast_first: Duration,
    /// How often it is looked whether space can be set aside again.
    pub ballast_every: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            // A note is promised to be durable within 50 ms: half of it is for the write.
            note_delay: Duration::from_millis(25),
            ballast_first: Duration::from_secs(1),
            ballast_every: Duration::from_secs(10),
        }
    }
}

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) commits: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) entries: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) waiting: AtomicU64,
}

impl Tally {
    pub(crate) fn read(&self) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            commits: get(&self.commits),
            failures: get(&self.failures),
            entries: get(&self.entries),
            dropped: get(&self.dropped),
            waiting: get(&self.waiting),
        }
    }
}

pub(crate) enum Job {
    Write(Item),
    Close(oneshot::Sender<()>),
}

pub(crate) struct Scribe {
    pub(crate) jobs: mpsc::Receiver<Job>,
    /// Rings for what does not wait until notes are due.
    pub(crate) urgent: Arc<Notify>,
    pub(crate) options: SqliteConnectOptions,
    /// None after it failed: the next transaction opens another.
    pub(crate) connection: Option<SqliteConnection>,
    pub(crate) heads: Heads,
    pub(crate) ballast: Ballast,
    pub(crate) tally: Arc<Tally>,
    pub(crate) entries: broadcast::Sender<Arc<JournalEntry>>,
    pub(crate) settings: Settings,
}

/// What the task carries from one round to the next.
struct Desk {
    queue: Vec<Item>,
    /// When the oldest note of the queue has waited long enough.
    notes_due: Option<Instant>,
    /// Notes that could not be written yet, oldest first.
    backlog: VecDeque<Box<Change>>,
    retry_at: Instant,
    retry_pause: Duration,
    /// The ballast was given up and nobody has freed space since: only what stops and deletes is written.
    tight: bool,
    closing: Option<oneshot::Sender<()>>,
}

impl Scribe {
    pub(crate) async fn run(mut self) {
        let mut desk = Desk {
            queue: Vec::new(),
            notes_due: None,
            backlog: VecDeque::new(),
            retry_at: Instant::now(),
            retry_pause: RETRY_FIRST,
            tight: self.ballast.is_spent() && !self.ballast.has_room_to_grow(),
            closing: None,
        };
        let first = Instant::now() + self.settings.ballast_first;
        let mut look_after = tokio::time::interval_at(first, self.settings.ballast_every);
        look_after.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let open = self.gather(&mut desk, &mut look_after).await;
            self.write(&mut desk).await;
            if !open {
                break;
            }
        }
        self.finish(desk).await;
    }

    /// Waits until something is to be written. False when nothing more will come.
    async fn gather(&mut self, desk: &mut Desk, look_after: &mut tokio::time::Interval) -> bool {
        loop {
            while desk.queue.len() < BATCH {
                match self.jobs.try_recv() {
                    Ok(job) => self.take(desk, job),
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => return false,
                }
            }
            let now = Instant::now();
            let due = match (desk.notes_due, desk.backlog.is_empty()) {
                (_, false) => Some(desk.retry_at),
                (due, true) => due,
            };
            let commit_waits = desk.queue.iter().any(|item| matches!(item, Item::Commit(..)));
            if commit_waits || desk.queue.len() >= BATCH || due.is_some_and(|due| due <= now) {
                return true;
            }
            // While notes wait, the queue is not listened to: who sends one more need not wake us for it, and a command
            // that ends sends one.
            tokio::select! {
                job = self.jobs.recv(), if due.is_none() => match job {
                    Some(job) => self.take(desk, job),
                    None => return false,
                },
                () = self.urgent.notified(), if due.is_some() => {}
                () = tokio::time::sleep_until(due.unwrap_or(now)), if due.is_some() => {}
                _ = look_after.tick() => self.look_after_ballast(desk),
            }
        }
    }

    fn take(&mut self, desk: &mut Desk, job: Job) {
        match job {
            Job::Write(item) => {
                if matches!(item, Item::Note(_)) && desk.notes_due.is_none() {
                    desk.notes_due = Some(Instant::now() + self.settings.note_delay);
                }
                desk.queue.push(item);
            }
            Job::Close(done) => {
                // What was sent before is still taken; what comes later is told that the store is closed.
                self.jobs.close();
                desk.closing = Some(done);
            }
        }
    }

    async fn write(&mut self, desk: &mut Desk) {
        desk.notes_due = None;
        let mut items = std::mem::take(&mut desk.queue);
        self.write_backlog(desk).await;
        if !desk.backlog.is_empty() {
            // Nothing overtakes the notes that wait already, but for commits, whose callers want an answer.
            items = self.put_notes_aside(desk, items);
        }
        if desk.tight {
            items = self.turn_away_growth(desk, items);
        }
        if items.is_empty() {
            return;
        }
        match self.transact(&items).await {
            Ok(outcomes) => self.settle(items, outcomes),
            Err(trouble) => {
                let gave_room = self.make_room(desk, &trouble).await;
                match <[Item; 1]>::try_from(items) {
                    Ok([item @ Item::Commit(..)]) if !gave_room => self.settle_trouble(item, trouble),
                    Ok(alone) => self.write_each(desk, alone.into()).await,
                    Err(several) => self.write_each(desk, several).await,
                }
            }
        }
    }

    /// After a transaction over all of them failed.
    async fn write_each(&mut self, desk: &mut Desk, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Note(change) => self.keep(desk, change),
                commit => {
                    self.write_backlog(desk).await;
                    self.write_one(desk, commit).await;
                }
            }
        }
        self.write_backlog(desk).await;
    }

    async fn write_one(&mut self, desk: &mut Desk, commit: Item) {
        if desk.tight && commit.only_adds() {
            return self.turn_away(commit);
        }
        let alone = [commit];
        let mut attempt = self.transact(&alone).await;
        if let Err(trouble) = &attempt
            && self.make_room(desk, trouble).await
            && !alone[0].only_adds()
        {
            attempt = self.transact(&alone).await;
        }
        let [commit] = alone;
        match attempt {
            Ok(outcomes) => self.settle(vec![commit], outcomes),
            Err(trouble) => self.settle_trouble(commit, trouble),
        }
    }

    async fn transact(&mut self, items: &[Item]) -> Result<Vec<Vec<Outcome>>, Trouble> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => schema::writer(&self.options).await.map_err(|error| self.refined(error.into()))?,
        };
        match transact(&mut connection, &mut self.heads, items).await {
            Ok(outcomes) => {
                self.connection = Some(connection);
                Ok(outcomes)
            }
            Err((trouble, soundness)) => {
                self.heads.forget_all();
                match soundness {
                    Soundness::Sound => self.connection = Some(connection),
                    Soundness::Broken => drop(connection.close().await),
                }
                Err(self.refined(trouble))
            }
        }
    }

    fn refined(&self, trouble: Trouble) -> Trouble {
        match trouble {
            Trouble::Storage(error)
                if error.is_io() && self.ballast.available().is_some_and(|free| free < NOTHING_FREE) =>
            {
                Trouble::Storage(error.into_full())
            }
            other => other,
        }
    }

    fn settle(&mut self, items: Vec<Item>, outcomes: Vec<Vec<Outcome>>) {
        let publish = self.entries.receiver_count() > 0;
        for entry in outcomes.iter().flatten().filter_map(|outcome| match outcome {
            Outcome::Entry(entry) => Some(entry),
            _ => None,
        }) {
            self.tally.entries.fetch_add(1, Ordering::Relaxed);
            if publish {
                // An error says that the last receiver has just gone.
                let _ = self.entries.send(Arc::new(entry.clone()));
            }
        }
        for (item, outcomes) in items.into_iter().zip(outcomes) {
            match item {
                Item::Note(_) => {
                    self.tally.waiting.fetch_sub(1, Ordering::Relaxed);
                }
                Item::Commit(_, reply) => {
                    self.tally.commits.fetch_add(1, Ordering::Relaxed);
                    // A caller that went away is no reason to undo what it asked for.
                    let _ = reply.send(Ok(outcomes));
                }
            }
        }
    }

    fn settle_trouble(&mut self, commit: Item, trouble: Trouble) {
        let Item::Commit(_, reply) = commit else { return };
        let answer = match trouble {
            Trouble::Exists(outcomes) => {
                self.tally.commits.fetch_add(1, Ordering::Relaxed);
                Ok(outcomes)
            }
            // Of one that looks there is no such thing.
            Trouble::Contested => return,
            Trouble::Unfit(error) | Trouble::Storage(error) => {
                self.tally.failures.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        };
        let _ = reply.send(answer);
    }

    /// Writes the notes that wait, oldest first, as far as the store lets it.
    async fn write_backlog(&mut self, desk: &mut Desk) {
        while !desk.backlog.is_empty() && !desk.tight {
            let size = desk.backlog.len().min(BACKLOG_CHUNK);
            let chunk: Vec<Item> = desk.backlog.drain(..size).map(Item::Note).collect();
            match self.transact(&chunk).await {
                Ok(outcomes) => {
                    self.settle(chunk, outcomes);
                    desk.retry_pause = RETRY_FIRST;
                }
                Err(trouble @ Trouble::Storage(_)) => {
                    put_back(desk, chunk);
                    return self.pause(desk, trouble).await;
                }
                // One of them is to blame: it goes, the others are written.
                Err(_) => {
                    let mut rest = VecDeque::from(chunk);
                    while let Some(note) = rest.pop_front() {
                        let alone = [note];
                        let attempt = self.transact(&alone).await;
                        let note = alone.into_iter();
                        match attempt {
                            Ok(outcomes) => self.settle(note.collect(), outcomes),
                            Err(trouble @ Trouble::Storage(_)) => {
                                put_back(desk, note.chain(rest));
                                return self.pause(desk, trouble).await;
                            }
                            Err(Trouble::Unfit(error)) => self.drop_note(&error.to_string()),
                            Err(Trouble::Exists(_) | Trouble::Contested) => {
                                self.drop_note("the session is there already")
                            }
                        }
                    }
                }
            }
        }
        if desk.tight {
            desk.retry_at = Instant::now() + RETRY_LAST;
        }
    }

    async fn pause(&mut self, desk: &mut Desk, trouble: Trouble) {
        self.tally.failures.fetch_add(1, Ordering::Relaxed);
        if let Trouble::Storage(error) = &trouble {
            tracing::warn!(waiting = desk.backlog.len(), "notes cannot be written and are kept: {error}");
        }
        self.make_room(desk, &trouble).await;
        desk.retry_at = Instant::now() + desk.retry_pause;
        desk.retry_pause = (desk.retry_pause * 2).min(RETRY_LAST);
    }

    fn put_notes_aside(&mut self, desk: &mut Desk, items: Vec<Item>) -> Vec<Item> {
        let mut commits = Vec::new();
        for item in items {
            match item {
                Item::Note(change) => self.keep(desk, change),
                commit => commits.push(commit),
            }
        }
        commits
    }

    fn keep(&mut self, desk: &mut Desk, change: Box<Change>) {
        if desk.backlog.len() >= BACKLOG {
            return self.drop_note("too many wait for the store to work again");
        }
        desk.backlog.push_back(change);
    }

    fn drop_note(&mut self, why: &str) {
        self.tally.dropped.fetch_add(1, Ordering::Relaxed);
        self.tally.waiting.fetch_sub(1, Ordering::Relaxed);
        tracing::warn!("a note is lost: {why}");
    }

    /// Gives up the ballast if the disk is full. True when that made room.
    async fn make_room(&mut self, desk: &mut Desk, trouble: &Trouble) -> bool {
        let Trouble::Storage(error) = trouble else { return false };
        if !error.is_full() {
            return false;
        }
        let ballast = self.ballast.clone();
        let gave_room = tokio::task::spawn_blocking(move || ballast.release()).await.unwrap_or(false);
        if gave_room {
            desk.tight = true;
            tracing::error!("the disk is full: from here on sessions can be stopped and deleted, not made");
        }
        gave_room
    }

    fn turn_away_growth(&mut self, desk: &mut Desk, items: Vec<Item>) -> Vec<Item> {
        if self.ballast.has_room_to_grow() {
            desk.tight = false;
            desk.retry_at = Instant::now();
            return items;
        }
        let items = self.put_notes_aside(desk, items);
        let (growing, others) = items.into_iter().partition::<Vec<_>, _>(Item::only_adds);
        growing.into_iter().for_each(|commit| self.turn_away(commit));
        others
    }

    fn turn_away(&mut self, commit: Item) {
        let words = "the disk is full, and what is left is kept for stopping and deleting";
        let error = StoreError::new(StoreErrorKind::Full, words);
        self.settle_trouble(commit, Trouble::Storage(error));
    }

    fn look_after_ballast(&mut self, desk: &mut Desk) {
        if desk.tight && self.ballast.has_room_to_grow() {
            desk.tight = false;
            desk.retry_at = Instant::now();
        }
        let ballast = self.ballast.clone();
        // Sixteen megabytes take a while: not on the task that everybody waits for.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = ballast.fill() {
                tracing::warn!("no space could be set aside for a full disk: {error}");
            }
        });
    }

    /// The last words: what waits is written, the write-ahead log goes into the database.
    async fn finish(mut self, mut desk: Desk) {
        // Each attempt has a connection of its own: what fails once may well work then.
        for _ in 0..3 {
            self.write_backlog(&mut desk).await;
        }
        for _ in 0..desk.backlog.len() {
            self.drop_note("the store was closed while it could not write");
        }
        if let Some(mut connection) = self.connection.take() {
            if desk.closing.is_some() {
                let _ = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await;
            }
            let _ = connection.close().await;
        }
        if let Some(done) = desk.closing {
            let _ = done.send(());
        }
    }
}

fn put_back(desk: &mut Desk, notes: impl IntoIterator<Item = Item, IntoIter: DoubleEndedIterator>) {
    for note in notes.into_iter().rev() {
        if let Item::Note(change) = note {
            desk.backlog.push_front(change);
        }
    }
}
