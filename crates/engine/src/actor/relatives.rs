//! Forks of a session, and what comes back from them.

use super::Actor;
use super::past::{Copying, Frozen};
use crate::storage;
use crate::workers::{Worker, broken};
use serde_json::json;
use workroom_proto::{FromWorker, LayerTask};
use workroom_store::{Change, SessionRow, SessionStack, TokenRow};
use workroom_types::{MergeSession, Merged, NOW, Problem, ProblemCode, Timestamp};

/// Forks that are to be recorded, with a token for each.
#[derive(Clone)]
pub(crate) struct NewForks {
    pub(crate) rows: Vec<SessionRow>,
    pub(crate) tokens: Vec<TokenRow>,
    /// `now`, `baseline` or a snapshot.
    pub(crate) from: String,
    pub(crate) intent: Option<Change>,
}

/// How long a fork took of its source's time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForkCost {
    pub(crate) pause_ms: f64,
    pub(crate) sync_ms: f64,
}

/// A moment of a session that is kept for as long as this is.
pub(crate) struct Kept {
    pub(crate) stack: SessionStack,
    pub(crate) layers: Vec<String>,
    pub(crate) _hold: crate::layers::Hold,
}

/// What to merge: layers of the moment of parting and of the other side.
pub(crate) struct MergePlan {
    pub(crate) base: Vec<String>,
    pub(crate) theirs: Vec<String>,
    pub(crate) request: MergeSession,
    pub(crate) intent: Option<Change>,
}

impl Actor {
    pub(super) async fn fork(
        &mut self,
        forks: NewForks,
        actor: &str,
        copying: Option<Copying>,
    ) -> Result<Frozen<ForkCost>, Problem> {
        let stack = self.stack().await?;
        let is_now = forks.from == NOW;
        let (mut moment, layers) = if is_now {
            match self.moment(copying).await? {
                Frozen::Done(moment) => {
                    let layers = moment.layers.clone();
                    (Some(moment), layers)
                }
                Frozen::CopyFirst { top } => return Ok(Frozen::CopyFirst { top }),
            }
        } else {
            (None, self.layers_of(&forks.from).await?)
        };
        let at = Some(forks.from.clone()).filter(|_| !is_now);
        let mut changes = Vec::new();
        for row in &forks.rows {
            let session = row.session.id.clone();
            let of_fork = SessionStack {
                baseline: layers.clone(),
                frozen: layers.clone(),
                top: session.clone(),
                on: None,
                baseline_digest: None,
                family: stack.family.clone(),
                parent: Some(self.row.session.id.clone()),
                parent_at: at.clone(),
                fork_base: layers.clone(),
            };
            let entry = Change::Journal {
                session: session.clone(),
                at: Timestamp::now(),
                actor: actor.to_owned(),
                kind: "session.created".into(),
                body: json!({ "owner": row.session.owner, "name": row.session.name,
                    "parent": self.row.session.id, "at": forks.from }),
            };
            changes.push(Change::InsertSession { row: row.clone() });
            changes.push(entry);
            changes.push(Change::PutStack { session, stack: of_fork });
        }
        changes.extend(forks.tokens.into_iter().map(|row| Change::PutToken { row }));
        let ids: Vec<&str> = forks.rows.iter().map(|row| row.session.id.as_str()).collect();
        changes.push(self.entry("session.forked", actor, json!({ "from": forks.from, "forks": ids })));
        changes.extend(forks.intent);
        let cost = match &mut moment {
            Some(moment) => {
                let sync_ms = self.settle(moment, changes, |_| {}).await?;
                ForkCost { pause_ms: moment.pause_ms, sync_ms }
            }
            None => {
                // Its own stack too: a relative is found by it.
                let session = self.row.session.id.clone();
                changes.push(Change::PutStack { session, stack });
                self.shared.store.commit(changes).await.map_err(storage)?;
                ForkCost { pause_ms: 0.0, sync_ms: 0.0 }
            }
        };
        Ok(Frozen::Done(cost))
    }

    /// The files as they are, kept as they are.
    pub(super) async fn keep(&mut self, copying: Option<Copying>) -> Result<Frozen<Kept>, Problem> {
        let mut moment = match self.moment(copying).await? {
            Frozen::Done(moment) => moment,
            Frozen::CopyFirst { top } => return Ok(Frozen::CopyFirst { top }),
        };
        let hold = self.shared.borrow(moment.layers.clone());
        self.settle(&mut moment, Vec::new(), |_| {}).await?;
        let stack = self.stack().await?;
        Ok(Frozen::Done(Kept { stack, layers: moment.layers.clone(), _hold: hold }))
    }

    /// First what would happen, with everything as it is; then, if nothing is in the way, without a room; then a room
    /// on what came of it.
    pub(super) async fn merge(&mut self, plan: MergePlan, actor: &str) -> Result<Merged, Problem> {
        crate::disk::check_on_disk(&self.row.session)?;
        let stack = self.stack().await?;
        let MergePlan { base, theirs, request, intent } = plan;
        let into = self.shared.new_layer()?;
        let (shared, ours) = (self.shared.clone(), self.shared.layers_now(&stack));
        let task = |ours: &[String], dry_run: bool| LayerTask::Merge {
            base: shared.layer_dirs(&base),
            ours: shared.layer_dirs(ours),
            theirs: shared.layer_dirs(&theirs),
            into: shared.layer_dir(&into.layers[0]),
            dry_run,
            choices: request.choices.clone(),
            prefer: request.prefer,
        };
        let rehearsed = self.merged(task(&ours, true)).await?;
        if request.dry_run {
            return Ok(rehearsed);
        }
        if !rehearsed.conflicts.is_empty() {
            return Err(conflicted(&rehearsed));
        }
        let was_live = self.room.is_some();
        if was_live && !request.restart && !(self.commands.is_empty() && self.in_room().await?.is_empty()) {
            return Err(Problem::new(
                ProblemCode::Busy,
                "processes run in the session, and would have to end",
                "wait for them, or merge with `restart`",
            ));
        }
        let place = self.place.take();
        self.end_room("another session was merged into this one").await;
        self.place = place;
        let (ours, held) = match self.freezable(ours).await {
            Ok(frozen) => frozen,
            Err(problem) => {
                self.come_back(was_live, actor).await;
                return Err(problem);
            }
        };
        let done = match self.merged(task(&ours, false)).await {
            Ok(merged) if merged.conflicts.is_empty() && merged.applied => {
                let next =
                    SessionStack { frozen: ours.clone(), top: into.layers[0].clone(), ..stack.clone() };
                let paths: Vec<&str> =
                    merged.changes.iter().take(100).map(|change| change.path.as_str()).collect();
                let body = json!({ "from": request.from, "changes": merged.changes.len(), "paths": paths });
                let mut changes = vec![self.entry("session.merged", actor, body)];
                changes.extend(intent);
                self.switch(next, changes, (true, "")).await.map(|_| merged)
            }
            // It changed between the two.
            Ok(merged) => Err(conflicted(&merged)),
            Err(problem) => Err(problem),
        };
        if done.is_err() {
            self.shared.discard_layer(&into.layers[0]);
        }
        // Where it failed, what layers were put together or copied to is not needed.
        if held.is_some() {
            drop(held);
            self.discard_replaced(ours);
        }
        self.come_back(was_live, actor).await;
        done
    }

    async fn merged(&self, task: LayerTask) -> Result<Merged, Problem> {
        match Worker::run(&self.shared.spawners, task, Vec::new()).await? {
            FromWorker::Merged(merged) => Ok(merged),
            _ => Err(broken("it answered something else")),
        }
    }

    /// A room again after one that was ended for a moment.
    async fn come_back(&mut self, was_live: bool, actor: &str) {
        if !was_live {
            return;
        }
        let place = self.place.take();
        if let Err(problem) = self.start(place, actor).await {
            tracing::warn!(session = %self.row.session.id, %problem, "a room did not come back");
        }
    }
}

fn conflicted(merged: &Merged) -> Problem {
    let first: Vec<&str> = merged.conflicts.iter().take(3).map(|conflict| conflict.path.as_str()).collect();
    let count = merged.conflicts.len();
    let mut problem = Problem::new(
        ProblemCode::MergeConflict,
        format!("both sides have changed {count} paths differently, such as {}", first.join(", ")),
        "say `ours` or `theirs` for each in `choices`, or for all in `prefer`",
    );
    problem.report = serde_json::to_value(merged).ok();
    problem
}
