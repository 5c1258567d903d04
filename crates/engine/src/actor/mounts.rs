//! A session's directories of the host: planned for its next room, mounted into the one that runs, taken off.

use super::Actor;
use crate::mounts::mounter::Mounter;
use crate::mounts::plan::{WantedBind, plan};
use crate::mounts::{check_lengths, check_requests, denied, of_denial, tidy};
use crate::policy;
use crate::room::gone;
use serde_json::json;
use std::path::PathBuf;
use workroom_proto::{Answer, MountTask, Question};
use workroom_store::Change;
use workroom_types::{
    AGENT_ID, Bind, DenialCode, MountDenial, MountKind, MountPolicy, MountRequest, MountState, Policy,
    Problem, ProblemCode, RoomBinds, RoomSpec, SessionMount, Timestamp,
};

impl Actor {
    fn wanted_mounts(&self) -> MountPolicy {
        policy::effective(&self.shared, &self.row.session).mounts.unwrap_or_default()
    }

    /// Looks for everything of the host that the next room is to have, and puts it into the room's spec and the
    /// session's record.
    pub(super) async fn plan_mounts(&mut self, spec: &mut RoomSpec) -> Result<(), Problem> {
        let (shared, owner, wanted) =
            (self.shared.clone(), self.row.session.owner.clone(), self.wanted_mounts());
        let file = shared.operator.current();
        if file.mounts.is_none() && wanted.dynamic.is_empty() {
            self.row.session.mounts.clear();
            self.row.session.room_binds = None;
            return Ok(());
        }
        // A file system that does not answer holds nobody else up.
        // What its maker asked for a moment ago is there, or the session is not made. Later, a room is better than none.
        let is_new = self.being_made;
        let planned = tokio::task::spawn_blocking(move || {
            plan(&shared.config.state, file.mounts.as_ref(), &owner, (&wanted, is_new))
        });
        let planned = planned.await.map_err(|error| {
            Problem::new(ProblemCode::Internal, format!("mounts cannot be planned: {error}"), "try again")
        })??;
        spec.binds.clone_from(&planned.binds.binds);
        spec.writes_to_host = planned.binds.writes_to_host;
        self.shared.host_directories.add(&self.row.session.id, &planned.binds.binds);
        self.row.session.mounts = planned.records;
        self.row.session.room_binds = Some(Box::new(planned.binds));
        Ok(())
    }

    /// The room stands with what was planned for it. `before`: what the session had the last time.
    pub(super) async fn mounts_stand(&mut self, before: &[SessionMount], actor: &str) {
        let is_first = self.row.session.counters.starts <= 1;
        let mut entries = Vec::new();
        for mount in &mut self.row.session.mounts {
            match mount.state {
                MountState::Missing => entries.push(("mount.denied", of_record(mount))),
                _ => {
                    mount.state = MountState::Mounted;
                    let same = |other: &&SessionMount| {
                        (&other.place, other.mode, &other.host_path)
                            == (&mount.place, mount.mode, &mount.host_path)
                    };
                    let had = |other: &SessionMount| other.state != MountState::Missing && !is_first;
                    if !before.iter().find(same).is_some_and(had) {
                        entries.push(("mount.granted", of_record(mount)));
                    }
                }
            }
        }
        for (kind, body) in entries {
            self.shared.store.note(self.entry(kind, actor, body)).await;
        }
        let binds = self.binds().binds;
        tidy::uses_only(&self.shared, &self.row.session.id, &binds).await;
    }

    /// There is no room any more.
    pub(super) async fn mounts_are_gone(&mut self) {
        tidy::room_is_gone(&self.shared, &mut self.row.session).await;
    }

    fn binds(&self) -> RoomBinds {
        self.row.session.room_binds.as_deref().cloned().unwrap_or_default()
    }

    /// Whether the session may have what a new policy asks for; what is denied is noted.
    pub(super) async fn check_mounts(&self, asked: &Policy, actor: &str) -> Result<(), Problem> {
        let Some(mounts) = &asked.mounts else { return Ok(()) };
        check_lengths(mounts)?;
        let owner = &self.row.session.owner;
        match check_requests(&self.shared, owner, (mounts, &[]), &mounts.dynamic).await {
            Ok(_) => Ok(()),
            Err(denials) => Err(self.deny(&mounts.dynamic, denials, actor).await),
        }
    }

    pub(super) async fn add_mounts(
        &mut self,
        requests: Vec<MountRequest>,
        actor: &str,
    ) -> Result<(), Problem> {
        let mut wanted = self.wanted_mounts();
        let has: Vec<String> = wanted.dynamic.iter().map(|mount| mount.alias.clone()).collect();
        let owner = self.row.session.owner.clone();
        let found = match check_requests(&self.shared, &owner, (&wanted, &has), &requests).await {
            Ok(found) => found,
            Err(denials) => return Err(self.deny(&requests, denials, actor).await),
        };
        if self.room.is_some()
            && let Err(problem) = self.attach_binds(&found).await
        {
            let code = match problem.code {
                ProblemCode::AlreadyExists => DenialCode::AlreadyExists,
                // It has changed since it was judged.
                ProblemCode::NotFound => DenialCode::ResolutionFailed,
                _ => return Err(problem),
            };
            // Which of them it was, is said by its place.
            let alias = requests
                .iter()
                .find(|request| problem.detail.contains(&format!("/workspace/{} ", request.alias)))
                .map(|request| request.alias.clone())
                .unwrap_or_default();
            let denial = MountDenial { code, alias, detail: problem.detail };
            return Err(self.deny(&requests, vec![denial], actor).await);
        }
        wanted.dynamic.extend(requests);
        let before = self.row.clone();
        self.take_in(found);
        let granted: Vec<Change> = self.row.session.mounts[before.session.mounts.len()..]
            .iter()
            .map(|mount| self.entry("mount.granted", actor, of_record(mount)))
            .collect();
        let kept = self.keep_policy(wanted, granted, actor).await;
        if let Err(problem) = kept {
            let targets = self.row.session.mounts[before.session.mounts.len()..]
                .iter()
                .map(|mount| PathBuf::from(&mount.place))
                .collect();
            self.row = before;
            let _ = self.detach_binds(targets, true).await;
            let binds = self.binds().binds;
            tidy::uses_only(&self.shared, &self.row.session.id, &binds).await;
            return Err(problem);
        }
        Ok(())
    }

    pub(super) async fn remove_mount(&mut self, alias: &str, actor: &str) -> Result<(), Problem> {
        let mut wanted = self.wanted_mounts();
        let count = wanted.dynamic.len();
        wanted.dynamic.retain(|mount| mount.alias != alias);
        if wanted.dynamic.len() == count {
            return Ok(());
        }
        let body = json!({ "alias": alias });
        let entry = self.entry("mount.removed", actor, body);
        self.keep_policy(wanted, vec![entry], actor).await?;
        self.let_go_of(&[alias.to_owned()]).await
    }

    /// Brings the dynamic mounts of a room that runs to what its policy says now. What else it says of mounts holds
    /// from the next room on.
    pub(super) async fn apply_mounts(&mut self, held: &mut Policy, wanted: &Policy) {
        let mut has = held.mounts.clone().unwrap_or_default();
        let wants = wanted.mounts.clone().unwrap_or_default();
        let gone: Vec<String> = has
            .dynamic
            .iter()
            .filter(|mount| !wants.dynamic.contains(mount))
            .map(|mount| mount.alias.clone())
            .collect();
        if self.let_go_of(&gone).await.is_ok() {
            has.dynamic.retain(|mount| !gone.contains(&mount.alias));
        }
        let new: Vec<MountRequest> =
            wants.dynamic.iter().filter(|mount| !has.dynamic.contains(mount)).cloned().collect();
        if !new.is_empty() {
            let owner = self.row.session.owner.clone();
            let added = match check_requests(&self.shared, &owner, (&wants, &[]), &new).await {
                Ok(found) => match self.attach_binds(&found).await {
                    Ok(()) => Ok(found),
                    Err(problem) => Err(problem),
                },
                Err(denials) => Err(denied(&denials)),
            };
            match added {
                Ok(found) => {
                    has.dynamic.extend(new);
                    let from = self.row.session.mounts.len();
                    self.take_in(found);
                    for mount in &self.row.session.mounts[from..] {
                        let entry = self.entry("mount.granted", "server", of_record(mount));
                        self.shared.store.note(entry).await;
                    }
                }
                Err(problem) => {
                    let body = json!({ "reason": problem.to_string(), "report": problem.report });
                    self.shared.store.note(self.entry("mount.denied", "server", body)).await;
                }
            }
        }
        let is_nothing = has == MountPolicy::default() && wanted.mounts.is_none();
        held.mounts = if is_nothing { None } else { Some(has) };
    }

    /// Notes what was denied, and says it.
    async fn deny(&self, requests: &[MountRequest], denials: Vec<MountDenial>, actor: &str) -> Problem {
        for denial in &denials {
            let body = of_denial(requests, denial);
            self.shared.store.note(self.entry("mount.denied", actor, body)).await;
        }
        denied(&denials)
    }

    /// A new list of mounts in the session's own document, with what else is to be recorded.
    async fn keep_policy(
        &mut self,
        wanted: MountPolicy,
        mut changes: Vec<Change>,
        actor: &str,
    ) -> Result<(), Problem> {
        let before = self.row.clone();
        let session = &mut self.row.session;
        session.policy.mounts = Some(wanted.clone());
        session.policy_version += 1;
        session.policy_changed = Some(Timestamp::now());
        if let Some(held) = session.room_policy.as_mut().filter(|_| self.room.is_some()) {
            held.mounts = Some(wanted);
        }
        let body = json!({
            "version": session.policy_version, "from": before.session.policy, "to": session.policy,
        });
        changes.push(self.entry("policy.changed", actor, body));
        changes.push(self.save());
        if let Err(error) = self.shared.store.commit(changes).await {
            self.row = before;
            return Err(crate::storage(error));
        }
        Ok(())
    }

    /// Records what was found, and is mounted if there is a room.
    fn take_in(&mut self, found: Vec<WantedBind>) {
        let state = if self.room.is_some() { MountState::Mounted } else { MountState::Waiting };
        let mut binds = self.binds();
        for WantedBind { record, bind } in found {
            self.row.session.mounts.push(SessionMount { state, ..record });
            if self.room.is_some() {
                binds.binds.push(bind);
            }
        }
        self.row.session.room_binds = Some(Box::new(binds));
    }

    /// Mounts directories into the room that runs: all, or none.
    async fn attach_binds(&mut self, found: &[WantedBind]) -> Result<(), Problem> {
        let binds: Vec<Bind> = found.iter().map(|one| one.bind.clone()).collect();
        let is_writable = binds.iter().any(|bind| !bind.read_only);
        if is_writable && !self.binds().writes_to_host {
            return Err(Problem::new(
                ProblemCode::WrongState,
                "the room was started when its owner could ask for no writable directory, and its commands may \
                 make setuid files",
                "stop the session, and ask again",
            ));
        }
        let shared = self.shared.clone();
        let _mounting = shared.host_directories.mounting().await;
        shared.host_directories.add(&self.row.session.id, &binds);
        let mounted = self.attach_now(&binds).await;
        drop(_mounting);
        if mounted.is_err() {
            let before = self.binds().binds;
            tidy::uses_only(&shared, &self.row.session.id, &before).await;
        }
        mounted
    }

    async fn attach_now(&mut self, binds: &[Bind]) -> Result<(), Problem> {
        let Some(room) = &self.room else { return Err(gone("the session has no room")) };
        let task = MountTask::Attach { binds: binds.to_vec(), user: AGENT_ID };
        let trees = Mounter::run(&self.shared, task, Some(room.process())).await?;
        let mut mounted = Vec::new();
        for (bind, tree) in binds.iter().zip(trees) {
            let target = bind.target.clone();
            let answer = self.ask_with(Question::Mount { target: target.clone() }, vec![tree]).await;
            let failure = match answer {
                Ok((Answer::Done, _)) => {
                    mounted.push(target);
                    continue;
                }
                Ok((Answer::Occupied, _)) => Problem::new(
                    ProblemCode::AlreadyExists,
                    format!("{} in the room is not free for a directory of the host", target.display()),
                    "remove what is there, or use another alias",
                ),
                Ok((Answer::Failed { why }, _)) => Problem::new(
                    ProblemCode::RoomSetup,
                    format!("{} cannot be mounted into the room that runs: {why}", target.display()),
                    "stop the session, ask again, and it is there in the next room",
                ),
                // One of an earlier server, that does not know the question.
                Ok(_) => Problem::new(
                    ProblemCode::WrongState,
                    "the room was made by an older server, and takes no directories while it runs",
                    "stop the session, and ask again",
                ),
                Err(problem) => problem,
            };
            let _ = self.detach_binds(mounted, true).await;
            return Err(failure);
        }
        Ok(())
    }

    /// Takes dynamic mounts off the room that runs, and out of the record.
    async fn let_go_of(&mut self, aliases: &[String]) -> Result<(), Problem> {
        let is_one = |mount: &SessionMount| mount.kind == MountKind::Dynamic && aliases.contains(&mount.name);
        let (gone, kept): (Vec<_>, Vec<_>) = self.row.session.mounts.clone().into_iter().partition(is_one);
        if gone.is_empty() {
            return Ok(());
        }
        let mounted = gone.iter().filter(|mount| mount.state == MountState::Mounted);
        let targets: Vec<PathBuf> = mounted.map(|mount| PathBuf::from(&mount.place)).collect();
        let mut binds = self.binds();
        if self.room.is_some() && !targets.is_empty() {
            self.detach_binds(targets, false).await?;
        }
        binds.binds.retain(|bind| !gone.iter().any(|mount| bind.target.as_os_str() == mount.place.as_str()));
        self.row.session.mounts = kept;
        tidy::uses_only(&self.shared, &self.row.session.id, &binds.binds).await;
        self.row.session.room_binds = Some(Box::new(binds));
        self.shared.store.note(self.save()).await;
        Ok(())
    }

    async fn detach_binds(&mut self, targets: Vec<PathBuf>, remove_places: bool) -> Result<(), Problem> {
        let Some(room) = &self.room else { return Ok(()) };
        if self.shared.machine.is_root {
            let task = MountTask::Detach { targets, remove_places };
            return Mounter::run(&self.shared, task, Some(room.process())).await.map(drop);
        }
        for target in targets {
            let question = Question::Unmount { target: target.clone(), remove_place: remove_places };
            match self.ask(question).await? {
                (Answer::Done, _) => {}
                (Answer::Failed { why }, _) => {
                    let detail = format!("{} cannot be taken off the room: {why}", target.display());
                    return Err(Problem::new(ProblemCode::RoomSetup, detail, "stop the session"));
                }
                _ => return Err(gone("the room does not answer as it should")),
            }
        }
        Ok(())
    }
}

/// A mount in the journal, which more people read than may know the host's paths.
fn of_record(mount: &SessionMount) -> serde_json::Value {
    let shown = SessionMount { host_path: None, ..mount.clone() };
    serde_json::to_value(shown).unwrap_or_default()
}
