//! A session's states and the ways between them, as [`SessionState`] draws them.

use super::{Actor, Waiter};
use crate::admission::Place;
use crate::disk::DiskLimit;
use crate::exec::Memo;
use crate::room::{Room, gone};
use crate::{Verb, policy, validate};
use serde_json::json;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use workroom_proto::{Answer, Question};
use workroom_store::Change;
use workroom_types::{
    Enforced, HostMount, LayerState, Lifetime, Limits, Network, Policy, Problem, ProblemCode, RoomSpec,
    RoomUser, SessionState, Timestamp, UpdateSession,
};

impl Actor {
    pub(super) async fn act(&mut self, verb: Verb, place: Option<Place>, actor: &str) -> Result<(), Problem> {
        use SessionState::{Failed, Paused, Queued, Running, Stopped};
        match (verb, self.state()) {
            (Verb::Start, Running | Paused) | (Verb::Resume, Running) | (Verb::Pause, Paused) => Ok(()),
            (Verb::Stop, Stopped) => Ok(()),
            (Verb::Start, Stopped | Failed | Queued) => self.start(place, actor).await,
            (Verb::Stop, Running | Paused) => {
                self.stop(actor, None).await;
                Ok(())
            }
            (Verb::Pause, Running) => self.freeze(true, actor).await,
            (Verb::Resume, Paused) => self.freeze(false, actor).await,
            (verb, state) => Err(Problem::wrong_state(state, verb.participle())),
        }
    }

    pub(super) async fn start(&mut self, place: Option<Place>, actor: &str) -> Result<(), Problem> {
        let place = match place {
            Some(place) => place,
            None => self.shared.admission.try_enter(&self.row.session.owner)?,
        };
        self.enter(SessionState::Starting, None);
        let mounts = self.row.session.mounts.clone();
        match self.build().await {
            Ok((room, enforced)) => {
                self.shared.metrics.rooms_started.fetch_add(1, Relaxed);
                self.move_in(room);
                self.place = Some(place);
                self.cpu_seen = 0;
                self.row.session.enforced = enforced;
                self.row.session.counters.starts += 1;
                self.mounts_stand(&mounts, actor).await;
                Box::pin(self.connect_network()).await;
                self.enter(SessionState::Running, None);
                self.secrets_at_start().await;
                let layers = self.missing_layers();
                self.note("session.running", actor, json!({ "missing": layers })).await;
                self.tell_services();
                Ok(())
            }
            Err(problem) => {
                self.shared.metrics.rooms_failed.fetch_add(1, Relaxed);
                self.mounts_are_gone().await;
                self.enter(SessionState::Failed, Some(problem.to_string()));
                let detail = json!({ "code": problem.code, "reason": problem.to_string() });
                self.note("session.failed", actor, detail).await;
                Err(problem)
            }
        }
    }

    pub(super) fn missing_layers(&self) -> Vec<String> {
        let lacks = |(layer, state): &(workroom_types::Layer, workroom_types::LayerState)| match state {
            workroom_types::LayerState::Enforced(_) => None,
            _ => Some(layer.name().to_owned()),
        };
        self.row.session.enforced.0.iter().filter_map(lacks).collect()
    }

    pub(super) async fn build(&mut self) -> Result<(Room, Enforced), Problem> {
        let stack = self.stack_with_fitting_top().await?;
        let mut spec = self.spec_on(&stack, self.row.session.counters.starts + 1)?;
        self.plan_mounts(&mut spec).await?;
        let shared = self.shared.clone();
        let _mounting = shared.host_directories.mounting().await;
        Room::create(&shared, spec).await
    }

    pub(super) async fn adopt(&mut self, dir: PathBuf) {
        match Room::adopt(&dir).await {
            Some(adopted) => {
                self.shared.metrics.rooms_adopted.fetch_add(1, Relaxed);
                self.place = Some(self.shared.admission.enter_anyway(&self.row.session.owner));
                self.row.session.enforced = self.enforced_in(adopted.enforced);
                self.hold_to_limit().await;
                self.look_on();
                let state = if adopted.frozen { SessionState::Paused } else { SessionState::Running };
                self.enter(state, None);
                self.move_in(adopted.room);
                Box::pin(self.connect_network()).await;
                Box::pin(self.secrets_of_adopted()).await;
                self.attach_all(&adopted.commands).await;
                let commands = adopted.commands.len();
                tracing::info!(session = %self.row.session.id, commands, "its room is taken up again");
                self.note("session.adopted", "server", json!({ "commands": commands })).await;
                self.tell_services();
            }
            None => {
                tracing::info!(session = %self.row.session.id, "its room did not outlive the last server");
                crate::room::remove_room_dir(&dir);
                self.mounts_are_gone().await;
                self.enter(SessionState::Stopped, Some("its room did not outlive the last server".into()));
                let reason = self.row.session.reason.clone();
                self.note("session.stopped", "server", json!({ "reason": reason })).await;
            }
        }
    }

    /// Takes up the commands of an earlier server where it left them.
    pub(super) async fn attach_all(&mut self, commands: &[u32]) {
        self.unattached = commands.to_vec();
        self.recorded = self.recorded_ends(commands).await;
        for &command in commands {
            self.next_command = self.next_command.max(command.wrapping_add(1));
            let attached = self.ask(Question::Attach { command }).await;
            self.unattached.retain(|waiting| *waiting != command);
            let memo = match attached {
                Ok((Answer::Attached { memo }, _)) => serde_json::from_slice::<Memo>(&memo).ok(),
                Ok((Answer::AttachedSpawned { memo, pid, has_input, has_channel }, fds)) => {
                    Box::pin(self.take_up_process(command, (memo, pid), (has_input, has_channel), fds)).await;
                    None
                }
                _ => None,
            };
            let Some(memo) = memo else { continue };
            if let Some(key) = memo.key.clone() {
                self.adopted_waiters.entry(key).or_default();
            }
            let started = memo.started.unwrap_or_else(Timestamp::now);
            let waiter = Waiter { memo, started, live: None, reply: None, redactor: None };
            self.shared.metrics.execs_running.fetch_add(1, Relaxed);
            self.commands.insert(command, waiter);
        }
        if let Err(problem) = self.settle_table().await {
            tracing::warn!(session = %self.row.session.id, %problem, "lost processes are not recorded yet");
        }
    }

    /// Ends every process and keeps every file: what was written is on the disk when this returns.
    pub(super) async fn stop(&mut self, actor: &str, reason: Option<&str>) {
        self.last_look().await;
        self.enter(SessionState::Stopping, None);
        let root = self.take_room_down("the session was stopped").await;
        let top = self.stack.as_ref().map_or(self.row.session.id.clone(), |stack| stack.top.clone());
        self.shared.flush_image(root, &top).await;
        if let Err(problem) = self.shared.flush_layers().await {
            tracing::warn!(session = %self.row.session.id, %problem, "files of a stopped session are not flushed");
        }
        self.enter(SessionState::Stopped, reason.map(str::to_owned));
        let body = reason.map_or(json!({}), |reason| json!({ "reason": reason }));
        // The room is gone whatever the store says, and without a room this is what a next server would find.
        let changes = vec![self.save(), self.entry("session.stopped", actor, body)];
        if self.shared.store.commit(changes.clone()).await.is_err() {
            for change in changes {
                self.shared.store.note(change).await;
            }
        }
    }

    pub(super) async fn end_room(&mut self, why: &str) {
        let root = self.take_room_down(why).await;
        // Letting go of the room's file system may flush it: not here.
        tokio::task::spawn_blocking(move || drop(root));
    }

    /// From here on this is the session's room.
    pub(super) fn move_in(&mut self, mut room: Room) {
        self.bell.hang(room.take_bell());
        self.room = Some(room);
    }

    /// Ends the room, and gives what holds its file system.
    async fn take_room_down(&mut self, why: &str) -> Option<OwnedFd> {
        let root = match self.room.take() {
            Some(room) => room.end().await,
            None => None,
        };
        self.mounts_are_gone().await;
        self.room_is_gone(why).await;
        root
    }

    /// Whoever waits for a command of the room learns that it will not end.
    pub(super) async fn room_is_gone(&mut self, why: &str) {
        self.place = None;
        self.bell.hang(None);
        Box::pin(self.disconnect_network()).await;
        self.shared.ports.cut(&self.row.session.id);
        if let Some(clerks) = self.clerks.take() {
            clerks.end();
        }
        self.to_forget.clear();
        Box::pin(self.record_usage()).await;
        self.row.session.enforced = Enforced::default();
        self.row.waiting = false;
        for (_, waiter) in std::mem::take(&mut self.commands) {
            self.shared.metrics.execs_running.fetch_sub(1, Relaxed);
            let body = json!({ "command": waiter.memo.text, "started": waiter.started, "ended_by": why });
            if !waiter.memo.quiet {
                self.shared.store.note(self.entry("exec.lost", &waiter.memo.actor, body)).await;
            }
            if let Some(reply) = waiter.reply {
                let _ = reply.send(Err(gone(why)));
            }
        }
        Box::pin(self.processes_are_gone(why)).await;
        for reply in std::mem::take(&mut self.adopted_waiters).into_values().flatten() {
            let _ = reply.send(Err(gone(why)));
        }
        self.tell_services();
    }

    pub(super) async fn freeze(&mut self, on: bool, actor: &str) -> Result<(), Problem> {
        match self.ask(Question::Freeze { on }).await? {
            (Answer::Done, _) => {}
            (Answer::Failed { why }, _) => {
                return Err(Problem::new(
                    ProblemCode::Internal,
                    format!("the room cannot be paused: {why}"),
                    "",
                ));
            }
            _ => return Err(gone("the room does not answer as it should")),
        }
        let (state, kind) = if on {
            (SessionState::Paused, "session.paused")
        } else {
            (SessionState::Running, "session.resumed")
        };
        self.enter(state, None);
        self.note(kind, actor, json!({})).await;
        Ok(())
    }

    pub(super) async fn update(
        &mut self,
        change: UpdateSession,
        known: Option<u64>,
        actor: &str,
    ) -> Result<(), Problem> {
        validate::update(&change)?;
        let before = self.row.clone();
        let body = serde_json::to_value(&change).unwrap_or_default();
        if let Some(asked) = &change.policy {
            policy::check(&self.shared, &self.row.session.owner, asked)?;
            self.check_mounts(asked, actor).await?;
        }
        let session = &mut self.row.session;
        if let Some(name) = change.name {
            session.name = name;
        }
        if let Some(labels) = change.labels {
            session.labels = labels;
        }
        let policy_changed = match change.policy {
            Some(policy) => policy::replace(session, policy, known)?,
            None => false,
        };
        let positive = |seconds: u64| Some(seconds).filter(|seconds| *seconds > 0);
        session.ttl = change.ttl.map_or(session.ttl, positive);
        session.idle_timeout = change.idle_timeout.map_or(session.idle_timeout, positive);
        session.on_expiry = change.on_expiry.unwrap_or(session.on_expiry);
        session.keep_alive = change.keep_alive.unwrap_or(session.keep_alive);
        if let Some(waiting) = change.waiting_for_input {
            if waiting && session.state != SessionState::Running {
                let state = session.state;
                self.row = before;
                return Err(Problem::wrong_state(state, "waiting for input"));
            }
            self.row.waiting = waiting;
        }
        let mut changes = vec![self.save(), self.entry("session.updated", actor, body)];
        if policy_changed {
            let session = &self.row.session;
            let body = json!({ "version": session.policy_version, "from": before.session.policy, "to": session.policy });
            changes.push(self.entry("policy.changed", actor, body));
        }
        if let Err(error) = self.shared.store.commit(changes).await {
            self.row = before;
            return Err(crate::storage(error));
        }
        if policy_changed && self.room.is_some() {
            self.policy_changed().await;
        }
        Ok(())
    }

    /// First the processes, then the record, then the files: whatever is cut short, a next server finishes.
    pub(super) async fn delete(&mut self, actor: &str) -> Result<(), Problem> {
        self.end_room("the session was deleted").await;
        let id = self.row.session.id.clone();
        let at = Timestamp::now();
        let layers = self.all_layers().await;
        let tokens = self.shared.access.of_session(&id);
        let mut changes = vec![
            self.entry("session.deleted", actor, json!({})),
            Change::DeleteSession { id: id.clone(), at },
        ];
        changes.extend(tokens.iter().cloned().map(|id| Change::DeleteToken { id }));
        if let Err(error) = self.shared.store.commit(changes).await {
            self.enter(SessionState::Stopped, Some("its room was ended to delete it".into()));
            self.publish();
            return Err(crate::storage(error));
        }
        self.row.session.state = SessionState::Deleted;
        self.deleted = true;
        self.shared.access.forget(&tokens);
        self.shared.ports.forget(&id);
        self.shared.usage.forget(&id);
        self.shared.protect_listeners().await;
        self.shared.discard_private(&id);
        self.shared.discard_unused(layers).await;
        Ok(())
    }

    pub(super) fn enter(&mut self, state: SessionState, reason: Option<String>) {
        self.row.session.state = state;
        self.row.session.reason = reason;
        self.publish();
    }
}

/// What a room under this policy is to be.
pub(crate) fn room_spec(
    id: String,
    policy: &Policy,
    (layer, lowers): (PathBuf, Vec<PathBuf>),
    disk: Option<LayerState>,
    mounts: &[(PathBuf, PathBuf)],
) -> Result<RoomSpec, Problem> {
    let standard = Limits::default();
    let on_disk = DiskLimit::of(policy);
    let limits = Limits {
        memory: policy.memory,
        cpus_milli: policy.cpus_milli,
        pids: policy.pids,
        open_files: policy.open_files.unwrap_or(standard.open_files),
        disk: on_disk.map_or(standard.disk, |limit| limit.bytes),
        inodes: on_disk.and_then(|limit| limit.inodes).unwrap_or(standard.inodes),
        shm: policy.shm.unwrap_or(standard.shm),
    };
    let mounts =
        mounts.iter().map(|(source, target)| HostMount { source: source.clone(), target: target.clone() });
    Ok(RoomSpec {
        id,
        user: RoomUser::Agent,
        limits,
        network: Network::None,
        workspace: None,
        layer: Some(layer),
        in_memory: policy.ephemeral == Some(true),
        volatile: false,
        lowers,
        disk,
        mounts: mounts.collect(),
        binds: Vec::new(),
        writes_to_host: false,
        secret_files: policy.secrets.as_ref().is_some_and(|secrets| !secrets.files.is_empty()),
        lifetime: Lifetime::Durable,
        require: validate::layers(&policy.require)?,
        // Where nothing can limit what is written the record says so; a policy may require it.
        allow_missing: validate::layers(&policy.allow_missing)?.with(workroom_types::Layer::Disk),
        without: Default::default(),
    })
}
