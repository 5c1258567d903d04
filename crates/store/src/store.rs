//! The store as its users hold it: opening, committing, noting, listening, closing.

use crate::ballast::Ballast;
use crate::batch::{Item, Work};
use crate::chain::Signer;
use crate::error::StoreError;
use crate::heads::Heads;
use crate::layout::Layout;
use crate::rows::{Change, Counters, Outcome};
use crate::schema;
use crate::scribe::{Job, Scribe, Settings, Tally};
use sqlx::sqlite::SqlitePool;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use workroom_types::JournalEntry;

/// Commits and notes that may wait for the scribe; who comes later waits to be let in.
const QUEUE: usize = 1024;
/// Entries that a listener may be behind before it has to read them from the journal.
const LISTENERS_LAG: usize = 4096;

/// The durable store of a state directory. Clones are the same store.
#[derive(Clone)]
pub struct Store {
    pub(crate) readers: SqlitePool,
    pub(crate) signer: Signer,
    jobs: mpsc::Sender<Job>,
    /// Rings where the scribe is not to wait until notes are due.
    urgent: Arc<Notify>,
    entries: broadcast::Sender<Arc<JournalEntry>>,
    tally: Arc<Tally>,
}

impl Store {
    /// Opens the store of a state directory, making what is not there yet.
    pub async fn open(dir: &Path) -> Result<Store, StoreError> {
        Store::open_with(dir, Settings::default()).await
    }

    pub async fn open_with(dir: &Path, settings: Settings) -> Result<Store, StoreError> {
        let layout = Layout::new(dir);
        layout.make_dir()?;
        let used = layout.make_database()?;
        let signer = layout.signer(!used)?;
        let options = schema::options(&layout.database());
        let mut connection = schema::writer(&options).await?;
        schema::migrate(&mut connection).await?;
        let readers = schema::readers(&options).await?;

        let (jobs, queue) = mpsc::channel(QUEUE);
        let urgent = Arc::new(Notify::new());
        let entries = broadcast::Sender::new(LISTENERS_LAG);
        let tally = Arc::new(Tally::default());
        let scribe = Scribe {
            jobs: queue,
            urgent: urgent.clone(),
            options,
            connection: Some(connection),
            heads: Heads::new(signer.clone()),
            ballast: Ballast::new(&layout.dir, layout.ballast()),
            tally: tally.clone(),
            entries: entries.clone(),
            settings,
        };
        // A thread of its own: every statement is a word with SQLite's thread and back, and a runtime that serves
        // connections too takes longer to notice the answer.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| StoreError::file("start the scribe of", dir, &error))?;
        std::thread::Builder::new()
            .name("store-scribe".into())
            .spawn(move || runtime.block_on(scribe.run()))
            .map_err(|error| StoreError::file("start the scribe of", dir, &error))?;
        Ok(Store { readers, signer, jobs, urgent, entries, tally })
    }

    /// All of it or nothing; durable when this returns Ok.
    ///
    /// When a session to be inserted is there already, the last outcome is `Exists` and nothing was applied.
    pub async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Outcome>, StoreError> {
        // With nothing to write it is a way to wait for what was noted before.
        if changes.is_empty() && self.tally.waiting.load(Ordering::Relaxed) == 0 {
            return Ok(Vec::new());
        }
        self.write(Work::Changes(changes)).await
    }

    /// Durable within 50 ms, in order with the commits of the same caller. While the store cannot write, notes
    /// are kept in memory and written when it can again; how many were lost is counted.
    pub async fn note(&self, change: Change) {
        self.tally.waiting.fetch_add(1, Ordering::Relaxed);
        if self.jobs.send(Job::Write(Item::Note(Box::new(change)))).await.is_err() {
            self.tally.waiting.fetch_sub(1, Ordering::Relaxed);
            self.tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if self.jobs.capacity() < QUEUE / 2 {
            self.urgent.notify_one();
        }
    }

    /// Every entry from now on, once it is durable, in order. Who falls behind is told so and reads the rest
    /// from the journal.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<JournalEntry>> {
        self.entries.subscribe()
    }

    pub fn counters(&self) -> Counters {
        self.tally.read()
    }

    /// Whether the store takes new things: a small write that really reaches the disk.
    pub async fn writable(&self) -> Result<(), StoreError> {
        self.write(Work::Pulse).await.map(drop)
    }

    /// Writes everything that was noted and closes the files. Later calls are told that the store is closed.
    pub async fn close(&self) {
        let (done, finished) = oneshot::channel();
        if self.jobs.send(Job::Close(done)).await.is_ok() {
            self.urgent.notify_one();
            // An error says that the scribe has ended, which is what is waited for.
            let _ = finished.await;
        }
        self.readers.close().await;
    }

    async fn write(&self, work: Work) -> Result<Vec<Outcome>, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = Job::Write(Item::Commit(work, reply));
        self.jobs.send(job).await.map_err(|_| StoreError::closed())?;
        self.urgent.notify_one();
        answer.await.map_err(|_| StoreError::closed())?
    }
}
