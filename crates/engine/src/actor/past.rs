//! A session's files as layers: put on another stack, frozen as they are, put back to an earlier moment.
//!
//! ```text
//!  template ── frozen layers (shared, never written) ── top (the room's own)
//!
//!  push:    frozen + [top], and a new top      nothing runs: the room is replaced by one on the new stack
//!  copy:    frozen + [copy of top]             something runs: it goes on where it is, and stands still for a moment
//!  reset:   frozen of then, and a new top      the room is replaced; what ran is gone
//! ```
//!
//! A stack counts from the moment that it is recorded. The room's directory names the layer that the room writes to, so
//! a server that comes after this one takes up the room that belongs to the record, and no other.

use super::{Actor, Reply, room_spec};
use crate::disk::{Beneath, is_subvolume};
use crate::layers::Hold;
use crate::policy;
use crate::room::Room;
use crate::state_dir::is_empty_dir;
use crate::storage;
use crate::workers::Worker;
use serde_json::json;
use std::sync::PoisonError;
use std::time::Instant;
use workroom_proto::{Answer, FromWorker, LayerTask, Question};
use workroom_store::{Change, SessionStack, SnapshotRow};
use workroom_types::{BASELINE, Problem, ProblemCode, RoomSpec, Session, SessionState, Snapshot, Timestamp};

/// A copy of a session's top layer under way, made while the room goes on.
pub(crate) struct Copying {
    pub(crate) worker: Worker,
    /// What is copied, and into what.
    pub(crate) top: String,
    pub(crate) copy: Hold,
}

/// A session's files at one moment, as layers that nothing writes to.
pub(crate) struct Moment {
    pub(crate) layers: Vec<String>,
    /// The stack that the session is to stand on from then on.
    next: Option<SessionStack>,
    pub(crate) pause_ms: f64,
    /// Layers that are not recorded yet.
    _new: Vec<Hold>,
}

/// What asking for a moment comes to.
pub(crate) enum Frozen<T> {
    Done(T),
    /// Processes run: copy the layer of this name, then ask again.
    CopyFirst {
        top: String,
    },
}

impl Actor {
    pub(super) async fn stack(&mut self) -> Result<SessionStack, Problem> {
        if self.stack.is_none() {
            self.stack = Some(self.shared.stack_of(&self.row.session.id).await?);
        }
        Ok(self.stack.clone().unwrap_or_default())
    }

    /// What a room on this stack is to be.
    pub(super) fn spec_on(&mut self, stack: &SessionStack, number: u64) -> Result<RoomSpec, Problem> {
        let shared = self.shared.clone();
        let policy = policy::effective(&shared, &self.row.session);
        self.row.session.room_policy = Some(Box::new(policy.clone()));
        let layer = shared.layer_dir(&stack.top);
        let id = format!("{}-{number}", self.row.session.id);
        let lowers = shared.layer_dirs(&stack.frozen);
        let disk = shared.disk_state(&policy, &layer, Beneath::of(&lowers));
        let spec = room_spec(id, &policy, (layer, lowers), disk, &shared.config.mounts)?;
        // A slot whose machine was restarted begins anew, so nobody has a use for what it would have flushed.
        Ok(RoomSpec { volatile: self.row.session.pool.is_some(), ..spec })
    }

    /// Records that the session stands on another stack, and replaces its room by one on it. When this fails, all is as
    /// it was. Returns how long it took until the files were on the disk, if that was asked for.
    pub(super) async fn switch(
        &mut self,
        next: SessionStack,
        changes: Vec<Change>,
        (flush, why): (bool, &str),
    ) -> Result<f64, Problem> {
        self.switch_and_tell(next, changes, (flush, why), |_| {}).await
    }

    /// The same; `tell` is told of the session as soon as it stands on the new stack and what ran before is gone, which
    /// may be a moment before its new room stands.
    async fn switch_and_tell(
        &mut self,
        next: SessionStack,
        mut changes: Vec<Change>,
        (flush, why): (bool, &str),
        tell: impl FnOnce(Session),
    ) -> Result<f64, Problem> {
        let before = self.row.clone();
        let shared = self.shared.clone();
        let had_room = self.room.is_some();
        let number = self.row.session.counters.starts + 1;
        let mut spec = if had_room { Some(self.spec_on(&next, number)?) } else { None };
        if let Some(spec) = &mut spec {
            self.plan_mounts(spec).await?;
        }
        if had_room {
            self.row.session.counters.starts = number;
            self.row.session.state = SessionState::Running;
        }
        changes.push(Change::PutStack { session: self.row.session.id.clone(), stack: next.clone() });
        changes.push(self.save());
        let mut told = self.seen();
        told.state = if had_room { SessionState::Starting } else { told.state };
        let snapshot = self.snapshot.clone();
        let old = self.room.take();
        let on = self.stack.as_ref().map_or(self.row.session.id.clone(), |stack| stack.top.clone());
        let build = async {
            match spec {
                Some(spec) => {
                    let _mounting = shared.host_directories.mounting().await;
                    Some(Room::create(&shared, spec).await)
                }
                None => None,
            }
        };
        let record = async {
            if let (true, Some(old)) = (flush, &old) {
                shared.flush_image(old.root(), &on).await;
            }
            let flushed = if flush { shared.flush_layers().await } else { Ok(0.0) };
            let recorded = match flushed {
                Ok(sync_ms) => shared.store.commit(changes).await.map(|_| sync_ms).map_err(storage),
                Err(problem) => Err(problem),
            };
            match (recorded, old) {
                (Err(problem), old) => Err((problem, old)),
                (Ok(sync_ms), old) => {
                    let root = match old {
                        Some(old) => old.end().await,
                        None => None,
                    };
                    *snapshot.lock().unwrap_or_else(PoisonError::into_inner) = told.clone();
                    tell(told);
                    Ok((sync_ms, root))
                }
            }
        };
        // At the same time: each takes a millisecond or two.
        let (built, recorded) = tokio::join!(build, record);
        let (sync_ms, root) = match recorded {
            Ok(done) => done,
            Err((problem, old)) => {
                self.room = old;
                self.row = before;
                if let Some(Ok((room, _))) = built {
                    room.end().await;
                }
                shared.discard_unused([next.top]).await;
                return Err(problem);
            }
        };
        tokio::task::spawn_blocking(move || drop(root));
        self.move_to(next);
        if had_room {
            let place = self.place.take();
            self.room_is_gone(why).await;
            self.place = place;
        }
        match built {
            Some(Ok((room, enforced))) => {
                self.move_in(room);
                self.cpu_seen = 0;
                self.row.session.enforced = enforced;
                self.mounts_stand(&before.session.mounts, "server").await;
                Box::pin(self.connect_network()).await;
                self.enter(SessionState::Running, None);
                self.secrets_at_start().await;
                self.tell_services();
            }
            Some(Err(problem)) => {
                self.place = None;
                self.mounts_are_gone().await;
                self.enter(SessionState::Failed, Some(problem.to_string()));
                self.note("session.failed", "server", json!({ "reason": problem.to_string() })).await;
            }
            None => self.publish(),
        }
        Ok(sync_ms)
    }

    /// Whether replacing the room would be noticed by nobody.
    pub(super) async fn is_quiet(&mut self) -> Result<bool, Problem> {
        if self.room.is_none() {
            return Ok(true);
        }
        let files_at_work = self.clerks.as_ref().is_some_and(|clerks| clerks.at_work());
        let is_idle = self.commands.is_empty() && !files_at_work && self.state() == SessionState::Running;
        Ok(is_idle && self.in_room().await?.is_empty())
    }

    /// The session's files as they are now. `copying`: what the last time said was to be done first.
    pub(super) async fn moment(&mut self, copying: Option<Copying>) -> Result<Frozen<Moment>, Problem> {
        crate::disk::check_on_disk(&self.row.session)?;
        let stack = self.stack().await?;
        let top = self.shared.layer_dir(&stack.top);
        // What is in a file system of its own is not to be seen from here.
        let unwritten = !workroom_layers::is_image(&top) && is_empty_dir(&top.join("fs"));
        if unwritten && self.is_quiet().await? {
            let moment = Moment { layers: stack.frozen, next: None, pause_ms: 0.0, _new: Vec::new() };
            return Ok(Frozen::Done(moment));
        }
        if let Some(copying) = copying.filter(|copying| copying.top == stack.top) {
            return self.finish_copy(stack, copying).await.map(Frozen::Done);
        }
        // The session goes on in a subvolume that it has; what is put upon layers is none.
        if is_subvolume(&top) || !self.is_quiet().await? {
            return Ok(Frozen::CopyFirst { top: stack.top });
        }
        self.pushed(stack).await.map(Frozen::Done)
    }

    /// The same of a session in which nothing runs: it is to stand on what it was, with a new layer upon it.
    async fn pushed(&mut self, stack: SessionStack) -> Result<Moment, Problem> {
        let new = self.shared.new_layer()?;
        let (mut layers, mut squashed) = self.shallow(stack.frozen.clone()).await?;
        layers.push(stack.top.clone());
        if squashed.is_none() {
            (layers, squashed) = self.freezable(layers).await?;
        }
        let next = SessionStack { frozen: layers.clone(), top: new.layers[0].clone(), ..stack };
        let new = [Some(new), squashed].into_iter().flatten().collect();
        Ok(Moment { layers, next: Some(next), pause_ms: 0.0, _new: new })
    }

    async fn finish_copy(&mut self, stack: SessionStack, copying: Copying) -> Result<Moment, Problem> {
        let stands = self.room.is_none() || self.state() == SessionState::Paused;
        let since = Instant::now();
        if !stands {
            self.hold_still(true).await?;
        }
        let copied = match copying.worker.again() {
            Ok(()) => copying.worker.answer().await,
            Err(problem) => Err(problem),
        };
        if !stands {
            self.hold_still(false).await?;
        }
        let pause_ms = if stands { 0.0 } else { since.elapsed().as_secs_f64() * 1000.0 };
        match copied? {
            FromWorker::Copied { .. } => {}
            _ => return Err(crate::workers::broken("it answered something else")),
        }
        let (mut layers, squashed) = self.shallow(stack.frozen).await?;
        layers.push(copying.copy.layers[0].clone());
        let new = [Some(copying.copy), squashed].into_iter().flatten().collect();
        Ok(Moment { layers, next: None, pause_ms, _new: new })
    }

    async fn hold_still(&mut self, on: bool) -> Result<(), Problem> {
        match self.ask(Question::Hold { on }).await? {
            (Answer::Done, _) => Ok(()),
            (Answer::Failed { why }, _) => Err(Problem::new(
                ProblemCode::Internal,
                format!("the room's processes cannot be held still: {why}"),
                "",
            )),
            _ => Err(crate::room::gone("the room does not answer as it should")),
        }
    }

    /// Records what is made of a moment, and moves the session onto its next stack if it has one. `changed`: what else
    /// changes in the stack. Returns how long it took until the files were on the disk.
    pub(super) async fn settle(
        &mut self,
        moment: &mut Moment,
        mut changes: Vec<Change>,
        changed: impl FnOnce(&mut SessionStack),
    ) -> Result<f64, Problem> {
        let why = "the session's room was replaced";
        if let Some(mut next) = moment.next.take() {
            changed(&mut next);
            let sync_ms = self.switch(next, changes, (true, why)).await?;
            self.squash_later();
            return Ok(sync_ms);
        }
        let mut stack = self.stack().await?;
        changed(&mut stack);
        let sync_ms = self.shared.flush_layers().await?;
        changes.push(Change::PutStack { session: self.row.session.id.clone(), stack: stack.clone() });
        self.shared.store.commit(changes).await.map_err(storage)?;
        self.stack = Some(stack);
        Ok(sync_ms)
    }

    pub(super) async fn snapshot(
        &mut self,
        (name, actor): (&str, &str),
        copying: Option<Copying>,
        intent: Option<Change>,
    ) -> Result<Frozen<Snapshot>, Problem> {
        let id = self.row.session.id.clone();
        if self.shared.store.snapshot(&id, name).await.map_err(storage)?.is_some() {
            return Err(Problem::new(
                ProblemCode::AlreadyExists,
                format!("there is a snapshot {name}"),
                "delete it first, or choose another name",
            ));
        }
        let mut moment = match self.moment(copying).await? {
            Frozen::Done(moment) => moment,
            Frozen::CopyFirst { top } => return Ok(Frozen::CopyFirst { top }),
        };
        let mut snapshot = Snapshot {
            name: name.to_owned(),
            created: self.later_than_all_snapshots().await?,
            parent: self.stack().await?.on,
            size: None,
            entries: None,
            layers: moment.layers.len() as u32,
            pause_ms: moment.pause_ms,
            sync_ms: 0.0,
        };
        let row = SnapshotRow { snapshot: snapshot.clone(), layers: moment.layers.clone() };
        let body = json!({ "name": name, "layers": moment.layers.len(), "pause_ms": moment.pause_ms });
        let mut changes =
            vec![Change::PutSnapshot { session: id.clone(), row }, self.entry("snapshot.taken", actor, body)];
        changes.extend(intent);
        let on = Some(name.to_owned());
        snapshot.sync_ms = self.settle(&mut moment, changes, |stack| stack.on = on).await?;
        self.measure_later(&snapshot, moment.layers.last());
        Ok(Frozen::Done(snapshot))
    }

    /// Now, or the moment after the newest there is: which one is the last is told by their times, and clocks are set back.
    async fn later_than_all_snapshots(&self) -> Result<Timestamp, Problem> {
        let all = self.shared.store.snapshots(&self.row.session.id).await.map_err(storage)?;
        let newest = all.last().map_or(i64::MIN, |row| row.snapshot.created.0);
        Ok(Timestamp(Timestamp::now().0.max(newest.saturating_add(1))))
    }

    /// Counting takes as long as there are files: nobody waits for it.
    fn measure_later(&self, snapshot: &Snapshot, layer: Option<&String>) {
        let Some(layer) = layer.cloned() else { return };
        let (shared, session, name) =
            (self.shared.clone(), self.row.session.id.clone(), snapshot.name.clone());
        tokio::spawn(async move {
            let hold = shared.hold(vec![layer.clone()]);
            let task = LayerTask::Measure { layer: shared.layer_dir(&layer) };
            if let Ok(FromWorker::Measured { bytes, entries }) =
                Worker::run(&shared.spawners, task, Vec::new()).await
            {
                shared.store.note(Change::MeasureSnapshot { session, name, size: bytes, entries }).await;
            }
            drop(hold);
            // The snapshot may be gone by now, and could not take it along.
            shared.discard_unused([layer]).await;
        });
    }

    /// Every layer that the session or a snapshot of it is made of.
    pub(super) async fn all_layers(&mut self) -> Vec<String> {
        let stack = self.stack().await.unwrap_or_else(|_| SessionStack::new(&self.row.session.id));
        let snapshots = self.shared.store.snapshots(&self.row.session.id).await.unwrap_or_default();
        let mut layers = stack.whole();
        layers.extend(stack.baseline.into_iter().chain(stack.fork_base));
        layers.extend(snapshots.into_iter().flat_map(|row| row.layers));
        layers.sort();
        layers.dedup();
        layers
    }

    /// The layers of a named moment.
    pub(super) async fn layers_of(&mut self, name: &str) -> Result<Vec<String>, Problem> {
        if name == BASELINE {
            return Ok(self.stack().await?.baseline);
        }
        let row = self.shared.store.snapshot(&self.row.session.id, name).await.map_err(storage)?;
        row.map(|row| row.layers).ok_or_else(|| no_snapshot(name))
    }

    pub(super) async fn reset(
        &mut self,
        (to, actor): (&str, &str),
        intent: Option<Change>,
        reply: Reply<Session>,
    ) {
        let mut reply = Some(reply);
        let done = self.go_back(to, actor, intent, &mut reply).await;
        if let (Err(problem), Some(reply)) = (done, reply) {
            let _ = reply.send(Err(problem));
        }
    }

    async fn go_back(
        &mut self,
        to: &str,
        actor: &str,
        intent: Option<Change>,
        reply: &mut Option<Reply<Session>>,
    ) -> Result<(), Problem> {
        let stack = self.stack().await?;
        let to = match to {
            "last" => {
                let all = self.shared.store.snapshots(&self.row.session.id).await.map_err(storage)?;
                all.into_iter().last().map_or(BASELINE.to_owned(), |row| row.snapshot.name)
            }
            name => name.to_owned(),
        };
        let frozen = self.layers_of(&to).await?;
        let new = self.shared.new_layer()?;
        let on = Some(to.clone()).filter(|name| name != BASELINE);
        let next = SessionStack { frozen, top: new.layers[0].clone(), on, ..stack.clone() };
        let before = self.row.clone();
        self.row.session.reset_count += 1;
        let mut changes = vec![self.entry("session.reset", actor, json!({ "to": to }))];
        changes.extend(intent);
        // The caller need not wait for the new room: whatever is asked next does.
        let tell = |session: Session| {
            if let Some(reply) = reply.take() {
                let _ = reply.send(Ok(session));
            }
        };
        let why = "the session was reset";
        if let Err(problem) = self.switch_and_tell(next, changes, (false, why), tell).await {
            self.row.session.reset_count = before.session.reset_count;
            return Err(problem);
        }
        self.publish();
        Ok(())
    }

    /// What the session is now becomes what it is put back to. Once, before there is anything to compare with it.
    pub(super) async fn set_baseline(&mut self, actor: &str) -> Result<(), Problem> {
        let stack = self.stack().await?;
        let has_past = !self.shared.store.snapshots(&self.row.session.id).await.map_err(storage)?.is_empty();
        if has_past || !stack.frozen.is_empty() {
            return Err(Problem::new(
                ProblemCode::AlreadyExists,
                "the session has a baseline, or a snapshot, already",
                "seed a session right after it was made",
            ));
        }
        let mut moment = match self.moment(None).await? {
            Frozen::Done(moment) => moment,
            // A subvolume. Few files are in it yet.
            Frozen::CopyFirst { .. } if self.is_quiet().await? => self.pushed(stack.clone()).await?,
            Frozen::CopyFirst { .. } => {
                return Err(Problem::new(
                    ProblemCode::Busy,
                    "processes run in the session",
                    "wait for them, or seed a session right after it was made",
                ));
            }
        };
        let layers = moment.layers.clone();
        let changes = vec![self.entry("session.seeded", actor, json!({}))];
        self.settle(&mut moment, changes, |stack| {
            stack.baseline = layers;
            stack.baseline_digest = None;
        })
        .await?;
        Ok(())
    }

    /// The baseline never changes, so neither does this.
    pub(super) async fn keep_baseline_digest(&mut self, digest: String) -> Result<(), Problem> {
        let stack = SessionStack { baseline_digest: Some(digest), ..self.stack().await? };
        let put = Change::PutStack { session: self.row.session.id.clone(), stack: stack.clone() };
        self.shared.store.commit(vec![put]).await.map_err(storage)?;
        self.stack = Some(stack);
        Ok(())
    }

    pub(super) async fn drop_snapshot(&mut self, name: &str, actor: &str) -> Result<(), Problem> {
        let session = self.row.session.id.clone();
        let Some(row) = self.shared.store.snapshot(&session, name).await.map_err(storage)? else {
            return Ok(());
        };
        let mut changes = vec![
            Change::DropSnapshot { session: session.clone(), name: name.to_owned() },
            self.entry("snapshot.deleted", actor, json!({ "name": name })),
        ];
        let mut stack = self.stack().await?;
        if stack.on.as_deref() == Some(name) {
            stack.on = row.snapshot.parent;
            changes.push(Change::PutStack { session, stack: stack.clone() });
        }
        self.shared.store.commit(changes).await.map_err(storage)?;
        self.stack = Some(stack);
        self.shared.discard_unused(row.layers).await;
        Ok(())
    }
}

pub(crate) fn no_snapshot(name: &str) -> Problem {
    Problem::new(
        ProblemCode::NotFound,
        format!("there is no snapshot {}", crate::validate::shown(name)),
        "`workroom snapshot --list`, or `GET …/snapshots`, lists those that there are",
    )
}
