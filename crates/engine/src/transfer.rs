//! A whole session as one file, to be taken up on another machine: layers, snapshots, what it is, what happened.
//!
//! The file is `tar.zst`: first `word`, which is [`Word`] as JSON, then the layers. Tokens, private files and, one day,
//! secrets are never in it.

use crate::files::contents::Source;
use crate::idempotency::intent;
use crate::layers::Hold;
use crate::past::at_a_moment;
use crate::pipes::{Inflow, Outflow};
use crate::state_dir::make_dir;
use crate::workers::{Worker, broken};
use crate::{Engine, Permit, actor::Ask, sessions, storage, validate};
use bytes::Bytes;
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek, Write};
use workroom_proto::{FromWorker, LayerTask};
use workroom_store::{Change, SessionStack, SnapshotRow};
use workroom_types::{
    Caller, CreateSession, JournalEntry, Problem, ProblemCode, Session, SessionState, Timestamp,
};

/// Raised when a file can no longer be read as the ones before it.
const FORMAT: u32 = 1;

/// Bytes of a journal that travel with its session: the newest entries.
const MOST_JOURNAL: usize = 8 << 20;

/// What the host says of a session.
#[derive(Serialize, Deserialize)]
struct Word {
    format: u32,
    session: Session,
    baseline: Vec<String>,
    layers: Vec<String>,
    on: Option<String>,
    snapshots: Vec<SnapshotRow>,
    journal: Vec<JournalEntry>,
    /// Entries before those, which are too many for one file.
    #[serde(default)]
    journal_left_out: usize,
}

/// A session on its way out.
pub struct SessionExport {
    pieces: Outflow,
    worker: Option<Worker>,
    _hold: Hold,
}

impl SessionExport {
    /// The next piece of the file. There is nothing more only when it is whole.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        if let Some(piece) = self.pieces.next().await? {
            return Ok(Some(piece));
        }
        let Some(worker) = self.worker.take() else { return Ok(None) };
        match worker.answer().await? {
            FromWorker::Done => Ok(None),
            _ => Err(broken("it answered something else")),
        }
    }
}

impl Engine {
    pub async fn export_session(&self, caller: &Caller, id: &str) -> Result<SessionExport, Problem> {
        self.open_for_work()?;
        let shared = &self.shared;
        let handle = sessions::handle(shared, caller, id).await?;
        let kept = at_a_moment(shared, &handle, id, |copying, reply| Ask::Keep { copying, reply }).await?;
        let snapshots = shared.store.snapshots(id).await.map_err(storage)?;
        let mut layers = kept.stack.baseline.clone();
        for layer in kept.layers.iter().chain(snapshots.iter().flat_map(|row| &row.layers)) {
            if !layers.contains(layer) {
                layers.push(layer.clone());
            }
        }
        let hold = shared.borrow(layers.clone());
        let mut journal = self.whole_journal(id).await?;
        let journal_left_out = too_much_of(&journal);
        journal.drain(..journal_left_out);
        let word = Word {
            format: FORMAT,
            session: handle.session(),
            baseline: kept.stack.baseline.clone(),
            layers: kept.layers.clone(),
            on: kept.stack.on.clone(),
            snapshots,
            journal,
            journal_left_out,
        };
        let failed = |error: std::io::Error| broken(&error.to_string());
        let word = serde_json::to_vec(&word).map_err(|error| broken(&error.to_string()))?;
        let memory = rustix::fs::memfd_create("word", MemfdFlags::CLOEXEC);
        let mut memory = File::from(memory.map_err(|error| failed(error.into()))?);
        memory.write_all(&word).map_err(failed)?;
        memory.rewind().map_err(failed)?;
        let (pieces, writer) = Outflow::new()?;
        let named = layers.into_iter().map(|layer| (layer.clone(), shared.layer_dir(&layer))).collect();
        let task = LayerTask::Export { layers: named };
        let worker = Worker::start(&shared.spawners, task, vec![memory.into(), writer]).await?;
        Ok(SessionExport { pieces, worker: Some(worker), _hold: hold })
    }

    async fn whole_journal(&self, id: &str) -> Result<Vec<JournalEntry>, Problem> {
        // What was done a moment ago is on its way to the store: it goes first.
        self.shared.store.commit(Vec::new()).await.ok();
        let mut all = Vec::new();
        loop {
            let after = all.last().map_or(0, |entry: &JournalEntry| entry.seq);
            let page = self.shared.store.journal(id, after, 1000).await.map_err(storage)?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// Takes up a session from a file, which is read to its end. It gets an id of its own, and is the caller's.
    pub async fn import_session(
        &self,
        caller: &Caller,
        source: &mut impl Source,
        permit: Option<&Permit>,
    ) -> Result<Session, Problem> {
        self.open_for_work()?;
        let shared = &self.shared;
        if let Some(id) = permit.and_then(|permit| permit.resource.as_deref()) {
            return self.get(caller, id).await;
        }
        let owner = sessions::acting_for(caller, None)?;
        shared.filter_session_import(&owner)?;
        sessions::check_daily_quota(shared, &owner, 1).await?;
        let failed = |error: std::io::Error| {
            Problem::new(ProblemCode::StorageUnavailable, format!("there is no place for it: {error}"), "")
        };
        // Under a name of a layer that nobody needs: what is left of it after a crash is garbage.
        let place = shared.new_layer()?;
        let into = shared.layer_dir(&place.layers[0]);
        make_dir(&into).map_err(failed)?;
        let task = LayerTask::Import { into: into.clone(), most_bytes: u64::MAX };
        let imported = match self.unpack(task, source).await {
            Ok((word, layers)) => self.take_up(caller, owner, &into, (&word, layers), permit).await,
            Err(problem) => Err(problem),
        };
        shared.discard_layer(&place.layers[0]);
        shared.trash.notify_one();
        imported
    }

    async fn unpack(
        &self,
        task: LayerTask,
        source: &mut impl Source,
    ) -> Result<(Vec<u8>, Vec<String>), Problem> {
        let (pipe, file) = Inflow::new()?;
        let worker = Worker::start(&self.shared.spawners, task, vec![file]).await?;
        if let Err((problem, _pipe)) = pipe.feed(source).await {
            // What is there of it goes with the place that it is in.
            return Err(problem);
        }
        match worker.answer().await? {
            FromWorker::Imported { word, layers } => Ok((word, layers)),
            _ => Err(broken("it answered something else")),
        }
    }

    async fn take_up(
        &self,
        caller: &Caller,
        owner: String,
        from: &std::path::Path,
        (word, layers): (&[u8], Vec<String>),
        permit: Option<&Permit>,
    ) -> Result<Session, Problem> {
        let shared = &self.shared;
        let word = read_word(word)?;
        let old = &word.session;
        let request = CreateSession {
            name: Some(old.name.clone()),
            labels: old.labels.clone(),
            template: Some(old.template.clone()),
            policy: Some(old.policy.clone()),
            ttl: old.ttl,
            idle_timeout: old.idle_timeout,
            on_expiry: Some(old.on_expiry),
            keep_alive: Some(old.keep_alive),
            ..CreateSession::default()
        };
        validate::create(&request)?;
        crate::policy::check(shared, &owner, &old.policy)?;
        let mut row = sessions::new_row(owner, request, None)?;
        row.session.state = SessionState::Stopped;
        let id = row.session.id.clone();
        let mut names: HashMap<String, String> = HashMap::new();
        let mut holds = Vec::new();
        for layer in layers {
            let new = shared.new_layer()?;
            names.insert(layer, new.layers[0].clone());
            holds.push(new);
        }
        let renamed = |layers: &[String]| {
            layers
                .iter()
                .map(|layer| names.get(layer).cloned())
                .collect::<Option<Vec<String>>>()
                .ok_or_else(|| not_whole("it names a layer that is not in it"))
        };
        let top = shared.new_layer()?;
        let stack = SessionStack {
            baseline: renamed(&word.baseline)?,
            frozen: renamed(&word.layers)?,
            top: top.layers[0].clone(),
            on: word.on.clone(),
            family: id.clone(),
            ..SessionStack::default()
        };
        let mut changes =
            vec![Change::InsertSession { row: row.clone() }, Change::PutStack { session: id.clone(), stack }];
        for snapshot in &word.snapshots {
            validate::snapshot_name(&snapshot.snapshot.name)?;
            let row = SnapshotRow { layers: renamed(&snapshot.layers)?, ..snapshot.clone() };
            changes.push(Change::PutSnapshot { session: id.clone(), row });
        }
        let entry = |kind: String, body| Change::Journal {
            session: id.clone(),
            at: Timestamp::now(),
            actor: caller.name.clone(),
            kind,
            body,
        };
        // What the file says happened elsewhere is a word of whoever brings it, and so it stands here.
        for past in &word.journal {
            changes.push(entry(format!("imported.{}", past.kind), json!(past)));
        }
        changes.push(entry(
            "session.imported".into(),
            json!({
                "from": old.id, "owner": row.session.owner, "journal_left_out": word.journal_left_out,
            }),
        ));
        changes.extend(permit.map(|permit| intent(permit, &id)));
        for (layer, new) in &names {
            let moved = std::fs::rename(from.join(layer), shared.layer_dir(new));
            moved.map_err(|error| broken(&error.to_string()))?;
        }
        let recorded = match shared.flush_layers().await {
            Ok(_) => shared.store.commit(changes).await.map_err(storage),
            Err(problem) => Err(problem),
        };
        drop(holds);
        if let Err(problem) = recorded {
            shared.discard_unused(names.into_values()).await;
            return Err(problem);
        }
        shared.metrics.sessions_created.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(row.session)
    }
}

/// How many of the oldest entries do not fit.
fn too_much_of(journal: &[JournalEntry]) -> usize {
    let mut bytes = 0;
    let size = |entry: &JournalEntry| serde_json::to_vec(entry).map_or(0, |text| text.len() + 1);
    let fits = journal.iter().rev().take_while(|entry| {
        bytes += size(entry);
        bytes <= MOST_JOURNAL
    });
    journal.len() - fits.count()
}

fn read_word(word: &[u8]) -> Result<Word, Problem> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let version: Version =
        serde_json::from_slice(word).map_err(|_| not_whole("it does not say what it is"))?;
    if version.format != FORMAT {
        return Err(not_whole(&format!(
            "it has the format {}, and this server reads {FORMAT}",
            version.format
        )));
    }
    serde_json::from_slice(word).map_err(|error| not_whole(&format!("it says what makes no sense: {error}")))
}

fn not_whole(why: &str) -> Problem {
    Problem::new(
        ProblemCode::ArchiveRefused,
        format!("the file is not a session's: {why}"),
        "export the session again with `workroom export`",
    )
}
