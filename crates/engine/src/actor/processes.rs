//! The session's process table: who is in it, and what its owner does when one is started, ends, or is lost.

use super::commands::Known;
use super::{Actor, Reply};
use crate::processes::entry::{Ends, Entry};
use crate::processes::plan::{SpawnMemo, SpawnPlan};
use crate::processes::sizes::Sizes;
use crate::room::gone;
use crate::secrets::redactors::clean_text;
use crate::state_dir::make_dir;
use crate::storage;
use rustix::fs::{Mode, OFlags};
use serde::Deserialize;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use workroom_proto::{Answer, Input, Question, Spawn, ToGuest};
use workroom_store::Change;
use workroom_types::{Problem, ProblemCode, Process, ProcessState, RoomError, RunReport};

/// What kind of part of a session an entry is, in the store.
pub(crate) const PART: &str = "process";

/// How soon the record of an end is durable. Until then the guest keeps the end, for a server that comes after this one.
const RECORDED_WITHIN: Duration = Duration::from_secs(2);

/// The entries of a session.
#[derive(Default)]
pub(super) struct Table {
    /// By their ids; not there until somebody asks.
    entries: Option<HashMap<String, Arc<Entry>>>,
    /// Those that the guest knows, by their numbers.
    running: HashMap<u32, Running>,
    /// What the output of those that have ended takes.
    ended_bytes: u64,
    /// Whether the entries agree with what runs.
    is_settled: bool,
}

struct Running {
    entry: Arc<Entry>,
    memo: SpawnMemo,
    has_input: bool,
    has_channel: bool,
    /// Of one that is being started.
    reply: Option<Reply<Arc<Entry>>>,
}

impl Table {
    pub(super) fn has(&self, command: u32) -> bool {
        self.running.contains_key(&command)
    }

    /// Bytes that those which run have written.
    pub(super) fn written(&self) -> u64 {
        let of = |running: &Running| {
            let info = running.entry.info();
            info.stdout.written + info.stderr.written
        };
        self.running.values().map(of).sum()
    }

    /// What those which run are.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        self.running.values().map(|running| crate::validate::shown(&running.entry.known().command))
    }

    /// The numbers that the guest knows.
    pub(super) fn commands(&self) -> Vec<u32> {
        self.running.keys().copied().collect()
    }
}

impl Actor {
    fn output_dir(&self) -> PathBuf {
        self.shared.state.output().join(&self.row.session.id)
    }

    /// All entries, read from the store the first time.
    async fn entries(&mut self) -> Result<&mut HashMap<String, Arc<Entry>>, Problem> {
        if self.table.entries.is_none() {
            let parts = self.shared.store.parts(&self.row.session.id, PART).await.map_err(storage)?;
            let dir = self.output_dir();
            let mut entries = HashMap::new();
            for (id, doc) in parts {
                let sizes = doc.get("sizes").and_then(|sizes| Sizes::deserialize(sizes).ok());
                match serde_json::from_value::<Process>(doc) {
                    Ok(process) => {
                        let ring = dir.join(&id);
                        let sizes = sizes.unwrap_or_else(|| Sizes::new(process.pty));
                        entries.insert(id, Entry::with_sizes(process, ring, sizes));
                    }
                    Err(error) => {
                        tracing::warn!(session = %self.row.session.id, id, %error, "an entry cannot be read");
                    }
                }
            }
            for running in self.table.running.values() {
                entries.insert(running.entry.id(), running.entry.clone());
            }
            let ended = entries.values().filter(|entry| !entry.is_running());
            self.table.ended_bytes = ended.map(|entry| entry.kept_bytes()).sum();
            let recorded = entries.values().filter(|entry| entry.is_recorded() && !entry.is_running());
            self.shared.recordings.finish(&self.row.session.id, recorded.cloned().collect());
            self.table.entries = Some(entries);
        }
        Ok(self.table.entries.get_or_insert_default())
    }

    /// What is recorded as running, and no guest knows of, was lost. For when all that the guest knows is known here.
    pub(super) async fn settle_table(&mut self) -> Result<(), Problem> {
        if std::mem::replace(&mut self.table.is_settled, true) {
            return Ok(());
        }
        let known: HashSet<String> = self.table.running.values().map(|running| running.entry.id()).collect();
        let entries = self.entries().await?;
        let is_lost = |entry: &Arc<Entry>| entry.is_running() && !known.contains(&entry.id());
        let lost: Vec<Arc<Entry>> = entries.values().filter(|entry| is_lost(entry)).cloned().collect();
        for entry in lost {
            entry.lost("its room ended");
            self.record(&entry).await;
            self.shared.recordings.finish(&self.row.session.id, vec![entry]);
        }
        Ok(())
    }

    pub(super) async fn all_processes(&mut self) -> Result<Vec<Arc<Entry>>, Problem> {
        self.settle_table().await?;
        Ok(self.entries().await?.values().cloned().collect())
    }

    pub(super) async fn process(&mut self, id: &str) -> Result<Arc<Entry>, Problem> {
        self.settle_table().await?;
        let entries = self.entries().await?;
        let found = entries.get(id).cloned().or_else(|| {
            let pid: i32 = id.parse().ok()?;
            entries.values().find(|entry| entry.is_running() && entry.info().pid == pid).cloned()
        });
        found.ok_or_else(|| {
            Problem::new(
                ProblemCode::NotFound,
                format!("there is no process \"{id}\" in this session"),
                "`workroom ps --all`, or `GET …/processes`, lists those that there are",
            )
        })
    }

    pub(super) async fn spawn_process(&mut self, plan: SpawnPlan, reply: Reply<Arc<Entry>>) {
        if let Err((reply, problem)) = self.try_spawn(plan, reply).await {
            let _ = reply.send(Err(problem));
        }
    }

    async fn try_spawn(
        &mut self,
        plan: SpawnPlan,
        reply: Reply<Arc<Entry>>,
    ) -> Result<(), (Reply<Arc<Entry>>, Problem)> {
        let (run, fds, running) = match self.prepare_spawn(plan).await {
            Ok(prepared) => prepared,
            Err(problem) => return Err((reply, problem)),
        };
        let Spawn { command, .. } = run;
        let entry = running.entry.clone();
        self.table.running.insert(command, Running { reply: Some(reply), ..running });
        let Some(room) = &self.room else { return Ok(()) };
        if let Err(problem) = room.send(&ToGuest::Spawn(Box::new(run)), &fds).await {
            remove_ring(entry.ring());
            if let Some(reply) = self.table.running.remove(&command).and_then(|running| running.reply) {
                return Err((reply, problem));
            }
        }
        Ok(())
    }

    async fn prepare_spawn(
        &mut self,
        mut plan: SpawnPlan,
    ) -> Result<(Spawn, Vec<OwnedFd>, Running), Problem> {
        self.room_for_work(&plan.memo.actor).await?;
        let most = self.shared.config.processes.running;
        self.settle_table().await?;
        let entries = self.entries().await?;
        let process = &plan.memo.process;
        let is_named = |entry: &Arc<Entry>| {
            let info = entry.info();
            info.state == ProcessState::Running && info.kind == process.kind && info.name == process.name
        };
        if process.name.is_some() && entries.values().any(is_named) {
            let name = process.name.clone().unwrap_or_default();
            return Err(Problem::new(
                ProblemCode::AlreadyExists,
                format!("there is one by the name \"{name}\" already"),
                "close it first, or choose another name",
            ));
        }
        if self.table.running.len() as u64 >= most {
            let detail = format!("{most} processes run in this session, which is the most");
            return Err(Problem::limit("processes", detail, "wait for one to end").retry_after(1));
        }
        let command = self.next_command;
        self.next_command = self.next_command.wrapping_add(1);
        self.let_guest_forget().await;
        let hidden = self.give_secrets(command, &mut plan.spec, &plan.secrets).await?;
        hidden.clean_process(&mut plan.memo.process);
        let ring = self.output_dir().join(&plan.memo.process.id);
        let path = ring.clone();
        let file = crate::blocking(move || make_ring(&path)).await?;
        plan.memo.process.started = workroom_types::Timestamp::now();
        let entry = Entry::new(plan.memo.process.clone(), ring);
        self.tell_of_proxy(&mut plan.spec);
        entry.hide(hidden.shared(&self.redactor));
        let run = Spawn {
            command,
            output: plan.rule,
            input: plan.input,
            channel: plan.channel,
            timeout_ms: plan.timeout_ms,
            memo: serde_json::to_vec(&plan.memo).unwrap_or_default(),
            spec: plan.spec,
        };
        let has_input = run.input == Input::Pipe || run.spec.terminal.is_some();
        let fds: Vec<OwnedFd> = [file].into_iter().chain(plan.stdin).collect();
        let running = Running { entry, memo: plan.memo, has_input, has_channel: run.channel, reply: None };
        Ok((run, fds, running))
    }

    /// The guest says that it runs.
    pub(super) async fn process_started(&mut self, command: u32, pid: i32, fds: Vec<OwnedFd>) {
        let Some(running) = self.table.running.get_mut(&command) else { return };
        let Some(ends) = Ends::from_fds(fds, running.has_input, running.has_channel) else { return };
        let (entry, reply) = (running.entry.clone(), running.reply.take());
        let actor = running.memo.actor.clone();
        entry.started(command, pid, ends);
        self.shared.recordings.start(&self.row.session.id, &entry);
        if let Some(entries) = &mut self.table.entries {
            entries.insert(entry.id(), entry.clone());
        }
        self.record(&entry).await;
        let info = entry.info();
        let body = json!({
            "id": info.id, "kind": info.kind, "name": info.name, "command": info.command, "pid": pid,
        });
        self.shared.store.note(self.entry("process.started", &actor, body)).await;
        if let Some(reply) = reply {
            let _ = reply.send(Ok(entry));
        }
    }

    pub(super) async fn process_not_started(&mut self, command: u32, mut error: RoomError) {
        let Some(running) = self.table.running.remove(&command) else { return };
        if let Some(redactor) = running.entry.redactor() {
            clean_text(&redactor.get(), &mut error.detail);
        }
        remove_ring(running.entry.ring());
        let body = json!({
            "command": running.memo.process.command, "code": error.code, "reason": error.to_string(),
        });
        let entry = self.entry("process.refused", &running.memo.actor, body);
        self.shared.store.note(entry).await;
        if let Some(reply) = running.reply {
            let _ = reply.send(Err(error.into()));
        }
    }

    pub(super) async fn process_finished(&mut self, command: u32, report: RunReport) {
        let Some(running) = self.table.running.remove(&command) else { return };
        self.touch();
        let not_before = Some(Instant::now() + RECORDED_WITHIN);
        self.to_forget.push(Known { command, not_before, spooled: 0 });
        running.entry.finished(&report);
        let info = running.entry.known();
        self.count_end(&report, &info.command, Some(info.pid));
        // One that ended before it was seen to run.
        self.shared.recordings.start(&self.row.session.id, &running.entry);
        self.ended(&running, "process.exited").await;
        if let Some(reply) = running.reply {
            let _ = reply.send(Ok(running.entry));
        }
    }

    /// The room is gone, and all that ran in it.
    pub(super) async fn processes_are_gone(&mut self, why: &str) {
        for (_, running) in std::mem::take(&mut self.table.running) {
            running.entry.lost(why);
            match running.reply {
                Some(reply) => {
                    remove_ring(running.entry.ring());
                    let _ = reply.send(Err(gone(why)));
                }
                None => self.ended(&running, "process.lost").await,
            }
        }
    }

    async fn ended(&mut self, running: &Running, kind: &str) {
        self.record(&running.entry).await;
        let info = running.entry.info();
        let body = json!({
            "id": info.id,
            "kind": info.kind,
            "name": info.name,
            "command": info.command,
            "exit": info.exit,
            "reason": info.reason,
            "started": info.started,
            "stdout_bytes": info.stdout.written,
            "stderr_bytes": info.stderr.written,
        });
        self.shared.store.note(self.entry(kind, &running.memo.actor, body)).await;
        if self.table.entries.is_some() {
            self.table.ended_bytes += running.entry.kept_bytes();
        }
        self.drop_oldest().await;
    }

    /// Forgets the processes that ended first, once there are too many or they take too much space.
    async fn drop_oldest(&mut self) {
        let limits = self.shared.config.processes;
        let Table { entries: Some(entries), running, ended_bytes, .. } = &self.table else { return };
        let (mut count, mut bytes) = (entries.len().saturating_sub(running.len()), *ended_bytes);
        if count <= limits.ended && bytes <= limits.ended_output {
            return;
        }
        let mut ended: Vec<Arc<Entry>> =
            entries.values().filter(|entry| !entry.is_running()).cloned().collect();
        ended.sort_by_key(|entry| entry.ended_at());
        for entry in ended {
            if count <= limits.ended && bytes <= limits.ended_output {
                return;
            }
            bytes = bytes.saturating_sub(entry.kept_bytes());
            count -= 1;
            self.forget_process(&entry).await;
        }
    }

    async fn forget_process(&mut self, entry: &Arc<Entry>) {
        let id = entry.id();
        if let Some(entries) = &mut self.table.entries
            && entries.remove(&id).is_some()
        {
            self.table.ended_bytes = self.table.ended_bytes.saturating_sub(entry.kept_bytes());
        }
        remove_ring(entry.ring());
        let (session, kind) = (self.row.session.id.clone(), PART.to_owned());
        self.shared.store.note(Change::DropPart { session, kind, id }).await;
    }

    pub(super) async fn remove_process(&mut self, id: &str, actor: &str) -> Result<(), Problem> {
        let entry = self.process(id).await?;
        if entry.is_running() {
            return Err(Problem::new(ProblemCode::WrongState, format!("process {id} runs"), "end it first"));
        }
        let id = entry.id();
        let (session, kind) = (self.row.session.id.clone(), PART.to_owned());
        let changes = vec![
            Change::DropPart { session, kind, id: id.clone() },
            self.entry("process.removed", actor, json!({ "id": id })),
        ];
        self.shared.store.commit(changes).await.map_err(storage)?;
        self.forget_process(&entry).await;
        Ok(())
    }

    /// Writes what is known of a process down, a moment later.
    pub(super) async fn record(&self, entry: &Arc<Entry>) {
        let info = entry.info();
        let mut doc = serde_json::to_value(&info).unwrap_or_default();
        {
            let sizes = entry.sizes();
            if sizes.has_changed() {
                doc["sizes"] = json!(*sizes);
            }
        }
        let change = Change::PutPart {
            session: self.row.session.id.clone(),
            kind: PART.to_owned(),
            id: info.id.clone(),
            doc,
        };
        self.shared.store.note(change).await;
    }

    /// Takes up a process of a room that was found again, or of a line that was lost.
    pub(super) async fn take_up_process(
        &mut self,
        command: u32,
        (memo, pid): (Vec<u8>, i32),
        (has_input, has_channel): (bool, bool),
        fds: Vec<OwnedFd>,
    ) {
        let Some(ends) = Ends::from_fds(fds, has_input, has_channel) else { return };
        if let Some(running) = self.table.running.get_mut(&command) {
            running.entry.started(command, pid, ends);
            return;
        }
        let Ok(memo) = serde_json::from_slice::<SpawnMemo>(&memo) else { return };
        let id = memo.process.id.clone();
        // What is known of it may have changed since it was started.
        let entry = match self.entries().await {
            Ok(entries) => match entries.get(&id) {
                Some(entry) => entry.clone(),
                None => {
                    let ring = self.output_dir().join(&id);
                    Entry::new(memo.process.clone(), ring)
                }
            },
            Err(_) => Entry::new(memo.process.clone(), self.output_dir().join(&id)),
        };
        entry.update(|info| {
            info.state = ProcessState::Running;
            (info.ended, info.reason, info.exit) = (None, None, None);
        });
        entry.hide(self.redactor.clone());
        entry.started(command, pid, ends);
        if !has_input {
            entry.drop_input();
        }
        self.shared.recordings.start(&self.row.session.id, &entry);
        if let Some(entries) = &mut self.table.entries {
            entries.insert(id, entry.clone());
        }
        self.record(&entry).await;
        let running = Running { entry, memo, has_input, has_channel, reply: None };
        self.table.running.insert(command, running);
    }

    /// Asks once more about a command whose line was lost.
    pub(super) async fn attach_again(&mut self, command: u32) {
        if let Ok((Answer::AttachedSpawned { memo, pid, has_input, has_channel }, fds)) =
            self.ask(Question::Attach { command }).await
        {
            Box::pin(self.take_up_process(command, (memo, pid), (has_input, has_channel), fds)).await;
        }
    }
}

/// The file that a process's output goes to.
fn make_ring(path: &Path) -> Result<OwnedFd, Problem> {
    let make = || -> io::Result<OwnedFd> {
        if let Some(dir) = path.parent() {
            make_dir(dir)?;
        }
        // What an attempt that was cut short has left is of no use.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?)
    };
    make().map_err(|error| {
        Problem::new(
            ProblemCode::StorageUnavailable,
            format!("the process's output has no place: {error}"),
            "free some space in the state directory",
        )
        .retry_after(1)
    })
}

fn remove_ring(path: &Path) {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || std::fs::remove_file(path));
}
