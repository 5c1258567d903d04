//! A session's past and its relatives, as the server asks for them: snapshots, forks, differences, merges.

use crate::actor::{Ask, Copying, Frozen, Handle, Kept, MergePlan, NewForks, no_snapshot};
use crate::idempotency::intent;
use crate::shared::Shared;
use crate::state_dir::random_u32;
use crate::workers::{Worker, broken};
use crate::{Engine, Permit, sessions, storage, validate};
use std::sync::Arc;
use tokio::sync::oneshot;
use workroom_proto::{DiffRule, FromWorker, LayerTask};
use workroom_store::SessionStack;
use workroom_types::{
    BASELINE, Caller, CreateToken, Diff, DiffQuery, Digest, Fork, ForkSession, Forks, Garbage, Lineage,
    LineageNode, MergeSession, Merged, NOW, Problem, ProblemCode, ResetSession, RoomPath, Session, Snapshot,
    SnapshotList, TakeSnapshot, Timestamp, TokenScope, WORKSPACE,
};

const MOST_FORKS: u32 = 100;
const DIFF_ENTRIES: u32 = 1000;
const MOST_DIFF_ENTRIES: u32 = 100_000;

/// Asks for a moment of a session; where processes run, copies first what can be copied while they do.
pub(crate) async fn at_a_moment<T>(
    shared: &Arc<Shared>,
    handle: &Handle,
    id: &str,
    ask: impl Fn(Option<Copying>, oneshot::Sender<Result<Frozen<T>, Problem>>) -> Ask,
) -> Result<T, Problem> {
    let mut copying = None;
    // Each time round the session was put on another stack meanwhile.
    for _ in 0..4 {
        let top = match sessions::ask(handle, id, |reply| ask(copying.take(), reply)).await? {
            Frozen::Done(done) => return Ok(done),
            Frozen::CopyFirst { top } => top,
        };
        let copy = shared.new_layer()?;
        let task = LayerTask::Copy { from: shared.layer_dir(&top), to: shared.layer_dir(&copy.layers[0]) };
        let worker = Worker::start(&shared.spawners, task, Vec::new()).await?;
        match worker.answer().await? {
            FromWorker::Copied { .. } => copying = Some(Copying { worker, top, copy }),
            _ => return Err(broken("it answered something else")),
        }
    }
    Err(Problem::new(ProblemCode::Busy, "the session's files were replaced again and again", "try again"))
}

impl Engine {
    pub async fn take_snapshot(
        &self,
        caller: &Caller,
        id: &str,
        request: TakeSnapshot,
        permit: Option<&Permit>,
    ) -> Result<Snapshot, Problem> {
        self.open_for_work()?;
        let shared = &self.shared;
        let handle = sessions::handle(shared, caller, id).await?;
        if let Some(name) = permit.and_then(|permit| permit.resource.as_deref())
            && let Some(row) = shared.store.snapshot(id, name).await.map_err(storage)?
        {
            return Ok(row.snapshot);
        }
        let name = match request.name {
            Some(name) => {
                validate::snapshot_name(&name)?;
                name
            }
            None => made_up_name()?,
        };
        let intent = permit.map(|permit| intent(permit, &name));
        let actor = caller.name.clone();
        at_a_moment(shared, &handle, id, |copying, reply| Ask::Snapshot {
            name: name.clone(),
            actor: actor.clone(),
            copying,
            intent: intent.clone(),
            reply,
        })
        .await
    }

    pub async fn snapshots(&self, caller: &Caller, id: &str) -> Result<SnapshotList, Problem> {
        sessions::get(&self.shared, caller, id).await?;
        // What was counted a moment ago is on its way to the store.
        self.shared.store.commit(Vec::new()).await.ok();
        let rows = self.shared.store.snapshots(id).await.map_err(storage)?;
        Ok(SnapshotList { snapshots: rows.into_iter().map(|row| row.snapshot).collect() })
    }

    /// Deleting what is gone succeeds.
    pub async fn delete_snapshot(&self, caller: &Caller, id: &str, name: &str) -> Result<(), Problem> {
        if name == BASELINE || name == NOW {
            return Err(Problem::invalid(format!("{name} is no snapshot that can be deleted"), ""));
        }
        let (name, actor) = (name.to_owned(), caller.name.clone());
        self.ask(caller, id, |reply| Ask::DropSnapshot { name, actor, reply }).await
    }

    pub async fn reset(
        &self,
        caller: &Caller,
        id: &str,
        request: ResetSession,
        permit: Option<&Permit>,
    ) -> Result<Session, Problem> {
        self.open_for_work()?;
        if permit.is_some_and(|permit| permit.resource.is_some()) {
            return self.get(caller, id).await;
        }
        let to = request.to.unwrap_or_else(|| BASELINE.into());
        let (actor, intent) = (caller.name.clone(), permit.map(|permit| intent(permit, &to)));
        self.ask(caller, id, |reply| Ask::Reset { to, actor, intent, reply }).await
    }

    /// What a session is now becomes its baseline.
    pub async fn set_baseline(&self, caller: &Caller, id: &str) -> Result<Session, Problem> {
        let actor = caller.name.clone();
        self.ask(caller, id, |reply| Ask::SetBaseline { actor, reply }).await
    }

    pub async fn fork(
        &self,
        caller: &Caller,
        id: &str,
        request: ForkSession,
        permit: Option<&Permit>,
    ) -> Result<Forks, Problem> {
        self.open_for_work()?;
        let shared = &self.shared;
        let handle = sessions::handle(shared, caller, id).await?;
        if let Some(made) = permit.and_then(|permit| permit.resource.as_deref()) {
            return self.forks_made_before(caller, made).await;
        }
        let count = request.count.unwrap_or(1);
        if !(1..=MOST_FORKS).contains(&count) {
            return Err(Problem::invalid(format!("count {count} is outside 1 to {MOST_FORKS}"), ""));
        }
        sessions::acting_for(caller, None)?;
        let source = handle.session();
        let mut rows = Vec::new();
        for number in 1..=count {
            let name = match &request.name {
                Some(name) if count > 1 => Some(format!("{name}-{number}")),
                name => name.clone(),
            };
            validate::name(name.as_deref())?;
            rows.push(sessions::fork_row(&source, name)?);
        }
        sessions::check_daily_quota(shared, &source.owner, count.into()).await?;
        let mut minted = Vec::new();
        for row in &rows {
            let wanted = token_for(&row.session.id);
            minted.push(shared.access.mint(caller, wanted, Some(source.owner.clone()))?);
        }
        let ids: Vec<&str> = rows.iter().map(|row| row.session.id.as_str()).collect();
        let forks = NewForks {
            from: request.from.unwrap_or_else(|| NOW.into()),
            tokens: minted.iter().map(|(row, _)| row.clone()).collect(),
            intent: permit.map(|permit| intent(permit, &ids.join(","))),
            rows: rows.clone(),
        };
        let actor = caller.name.clone();
        let cost = at_a_moment(shared, &handle, id, |copying, reply| Ask::Fork {
            forks: forks.clone(),
            actor: actor.clone(),
            copying,
            reply,
        })
        .await?;
        let mut sessions: Vec<Session> = rows.into_iter().map(|row| row.session).collect();
        if request.start {
            self.start_all(caller, &mut sessions).await;
        }
        let mut made = Vec::new();
        for (session, (row, token)) in sessions.into_iter().zip(minted) {
            shared.access.insert(row);
            shared.metrics.sessions_created.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            made.push(Fork { session, token });
        }
        Ok(Forks { forks: made, pause_ms: cost.pause_ms, sync_ms: cost.sync_ms })
    }

    /// One that cannot be started is there all the same, and says why when it is asked for.
    async fn start_all(&self, caller: &Caller, sessions: &mut [Session]) {
        let mut starts = tokio::task::JoinSet::new();
        for (number, session) in sessions.iter().enumerate() {
            let (engine, caller, id) = (self.clone(), caller.clone(), session.id.clone());
            starts.spawn(async move { (number, engine.act(&caller, &id, crate::Verb::Start, None).await) });
        }
        while let Some(started) = starts.join_next().await {
            match started {
                Ok((number, Ok(running))) => sessions[number] = running,
                Ok((_, Err(problem))) => tracing::warn!(%problem, "a fork was not started"),
                Err(error) => tracing::error!(%error, "a fork was not started"),
            }
        }
    }

    /// Of a request that was cut short: the forks are there, their tokens were never told to anybody.
    async fn forks_made_before(&self, caller: &Caller, ids: &str) -> Result<Forks, Problem> {
        let mut forks = Vec::new();
        for id in ids.split(',') {
            let session = self.get(caller, id).await?;
            let (access, owner) = (&self.shared.access, Some(session.owner.clone()));
            let token = access.create(&self.shared.store, caller, token_for(id), owner, |_| None).await?;
            forks.push(Fork { session, token });
        }
        Ok(Forks { forks, pause_ms: 0.0, sync_ms: 0.0 })
    }

    /// One side of a difference: `now`, `baseline`, a snapshot, or one of these of another session.
    async fn side(
        &self,
        caller: &Caller,
        (id, own): (&str, &SessionStack),
        name: &str,
    ) -> Result<Vec<String>, Problem> {
        let shared = &self.shared;
        let (session, moment) = match name.split_once(':') {
            Some((session, moment)) => (session, moment),
            None => (id, name),
        };
        let other;
        let stack = if session == id {
            own
        } else {
            sessions::get(shared, caller, session).await?;
            other = shared.stack_of(session).await?;
            if other.family != own.family {
                return Err(not_related(id, session));
            }
            &other
        };
        match moment {
            NOW => {
                crate::disk::check_on_disk(&sessions::get(shared, caller, session).await?)?;
                Ok(shared.layers_now(stack))
            }
            BASELINE => Ok(stack.baseline.clone()),
            name => match shared.store.snapshot(session, name).await.map_err(storage)? {
                Some(row) => Ok(row.layers),
                None => Err(no_snapshot(name)),
            },
        }
    }

    pub async fn diff(&self, caller: &Caller, id: &str, query: DiffQuery) -> Result<Diff, Problem> {
        let shared = &self.shared;
        let path = RoomPath::parse(&query.path, query.root)?;
        let limit = query.limit.unwrap_or(DIFF_ENTRIES);
        if !(1..=MOST_DIFF_ENTRIES).contains(&limit) {
            return Err(Problem::invalid(format!("limit {limit} is outside 1 to {MOST_DIFF_ENTRIES}"), ""));
        }
        sessions::get(shared, caller, id).await?;
        let own = shared.stack_of(id).await?;
        let (from, to) =
            (query.from.unwrap_or_else(|| BASELINE.into()), query.to.unwrap_or_else(|| NOW.into()));
        let sides = (self.side(caller, (id, &own), &from).await?, self.side(caller, (id, &own), &to).await?);
        let _hold = shared.hold(sides.0.iter().chain(&sides.1).cloned().collect());
        let workspace = WORKSPACE.trim_start_matches('/').as_bytes().to_vec();
        let (under, shown_from) = if query.root {
            (path.bytes, Vec::new())
        } else {
            let below = RoomPath { root: true, bytes: workspace.clone() };
            let under = if path.is_top() { below } else { below.join(&path.bytes) };
            (under.bytes, workspace)
        };
        let rule = DiffRule { under, shown_from, patch: query.patch, collapse: query.collapse, limit };
        let task =
            LayerTask::Diff { from: shared.layer_dirs(&sides.0), to: shared.layer_dirs(&sides.1), rule };
        match Worker::run(&shared.spawners, task, Vec::new()).await? {
            FromWorker::Diff(diff) => Ok(Diff { from, to, ..diff }),
            _ => Err(broken("it answered something else")),
        }
    }

    pub async fn digest(&self, caller: &Caller, id: &str) -> Result<Digest, Problem> {
        let shared = &self.shared;
        let handle = sessions::handle(shared, caller, id).await?;
        crate::disk::check_on_disk(&handle.session())?;
        let stack = shared.stack_of(id).await?;
        let _hold = shared.hold(stack.baseline.iter().cloned().chain(stack.whole()).collect());
        let baseline = match stack.baseline_digest.clone() {
            Some(digest) => digest,
            None => {
                let task = LayerTask::Content { stack: shared.layer_dirs(&stack.baseline) };
                let FromWorker::Digest { digest, .. } =
                    Worker::run(&shared.spawners, task, Vec::new()).await?
                else {
                    return Err(broken("it answered something else"));
                };
                let known = digest.clone();
                sessions::ask(&handle, id, |reply| Ask::BaselineDigest { digest: known, reply }).await?;
                digest
            }
        };
        let task = LayerTask::Changes {
            from: shared.layer_dirs(&stack.baseline),
            to: shared.layer_dirs(&shared.layers_now(&stack)),
        };
        let FromWorker::Digest { digest: changed, count } =
            Worker::run(&shared.spawners, task, Vec::new()).await?
        else {
            return Err(broken("it answered something else"));
        };
        let digest = match count {
            0 => baseline.clone(),
            _ => sha256(&format!("{baseline}\n{changed}\n")),
        };
        Ok(Digest { digest, pristine: count == 0, baseline, changes: count })
    }

    /// The files of a session as they are, kept as they are for as long as the answer is.
    pub(crate) async fn keep(&self, caller: &Caller, id: &str) -> Result<Kept, Problem> {
        let handle = sessions::handle(&self.shared, caller, id).await?;
        at_a_moment(&self.shared, &handle, id, |copying, reply| Ask::Keep { copying, reply }).await
    }

    pub async fn merge(
        &self,
        caller: &Caller,
        id: &str,
        request: MergeSession,
        permit: Option<&Permit>,
    ) -> Result<Merged, Problem> {
        self.open_for_work()?;
        let shared = &self.shared;
        let handle = sessions::handle(shared, caller, id).await?;
        validate::id(&request.from)?;
        if request.from == id {
            return Err(Problem::invalid("a session cannot be merged into itself", "name a fork of it"));
        }
        if permit.is_some_and(|permit| permit.resource.is_some()) {
            return Ok(Merged { applied: true, ..Merged::default() });
        }
        let own = shared.stack_of(id).await?;
        sessions::get(shared, caller, &request.from).await?;
        if shared.stack_of(&request.from).await?.family != own.family {
            return Err(not_related(id, &request.from));
        }
        let theirs = self.keep(caller, &request.from).await?;
        let base = parting(id, &own, &request.from, &theirs.stack);
        let intent = permit.map(|permit| intent(permit, &request.from)).filter(|_| !request.dry_run);
        let plan = MergePlan { base, theirs: theirs.layers.clone(), request, intent };
        let actor = caller.name.clone();
        sessions::ask(&handle, id, |reply| Ask::Merge { plan: Box::new(plan), actor, reply }).await
    }

    pub async fn lineage(&self, caller: &Caller, id: &str) -> Result<Lineage, Problem> {
        let shared = &self.shared;
        sessions::get(shared, caller, id).await?;
        let stack = shared.stack_of(id).await?;
        let mut family = shared.store.family(&stack.family).await.map_err(storage)?;
        if family.is_empty() {
            family.push((id.to_owned(), stack));
        }
        let mut nodes = Vec::new();
        for (relative, stack) in family {
            let Ok(other) = sessions::get(shared, caller, &relative).await else { continue };
            let snapshots = shared.store.snapshots(&relative).await.map_err(storage)?;
            nodes.push(LineageNode {
                session: relative,
                name: other.name,
                parent: stack.parent,
                at: stack.parent_at,
                created: other.created,
                snapshots: snapshots.into_iter().map(|row| row.snapshot.name).collect(),
            });
        }
        nodes.sort_by(|a, b| (a.created, &a.session).cmp(&(b.created, &b.session)));
        Ok(Lineage { nodes })
    }

    /// For the operator: what is no longer of use to any session.
    pub async fn collect_garbage(&self, caller: &Caller, dry_run: bool) -> Result<Garbage, Problem> {
        if !caller.is_admin() {
            return Err(Problem::new(
                ProblemCode::Forbidden,
                "only an admin token may do this",
                "ask whoever runs the server",
            ));
        }
        self.shared.collect_garbage(dry_run).await
    }
}

/// The layers of the moment at which two relatives parted.
fn parting(id: &str, own: &SessionStack, other_id: &str, other: &SessionStack) -> Vec<String> {
    if other.parent.as_deref() == Some(id) {
        return other.fork_base.clone();
    }
    if own.parent.as_deref() == Some(other_id) {
        return own.fork_base.clone();
    }
    let side = |stack: &SessionStack| {
        if stack.fork_base.is_empty() { stack.frozen.clone() } else { stack.fork_base.clone() }
    };
    let (a, b) = (side(own), side(other));
    a.into_iter().zip(b).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
}

fn not_related(id: &str, other: &str) -> Problem {
    Problem::invalid(
        format!("session {other} is no relative of {id}"),
        "`workroom snapshot --tree`, or `GET …/lineage`, lists those that there are",
    )
}

fn token_for(fork: &str) -> CreateToken {
    CreateToken {
        scope: TokenScope::Session,
        owner: None,
        session: Some(fork.to_owned()),
        read_only: false,
        expires_in: None,
        name: "fork".into(),
    }
}

fn made_up_name() -> Result<String, Problem> {
    let random = random_u32()
        .map_err(|error| Problem::new(ProblemCode::Internal, format!("no randomness: {error}"), ""))?;
    Ok(format!("{}-{:04x}", Timestamp::now().compact(), random & 0xffff))
}

fn sha256(text: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
