//! Making, finding and listing sessions: what happens before a session's owner is asked.

use crate::actor::{Ask, Beginning, Handle, room_spec, spawn};
use crate::disk::Beneath;
use crate::idempotency::intent;
use crate::policy;
use crate::room::Room;
use crate::secrets::redactors::clean_problem;
use crate::shared::Shared;
use crate::state_dir::random_u32;
use crate::{Permit, storage, validate};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::oneshot;
use workroom_store::{Change, InPool, Outcome, SessionFilter, SessionRow};
use workroom_types::{
    Caller, Capabilities, Counters, CreateSession, Enforced, ListSessions, Problem, ProblemCode, ResolveMode,
    ResolveSession, Resolved, Scope, Session, SessionPage, SessionState, Timestamp,
};

/// Held by whoever makes a session under a key, until the session is recorded.
type Maker<'a> = tokio::sync::MutexGuard<'a, ()>;

const PAGE: u32 = 100;
const LARGEST_PAGE: u32 = 1000;

/// The owner of a session that the caller may see. What is not there, what is deleted and what is another's take
/// the same way to the same answer.
pub(crate) async fn handle(shared: &Arc<Shared>, caller: &Caller, id: &str) -> Result<Handle, Problem> {
    validate::id(id)?;
    if let Some(handle) = shared.owner_of(id)
        && caller.may_see(id, &handle.owner)
    {
        shared.pools.check_open(id)?;
        return Ok(handle);
    }
    let row = stored(shared, caller, id).await?;
    shared.pools.check_open(id)?;
    Ok(spawn(shared, row, Beginning::AsItIs))
}

/// One that is recorded and not deleted, and that the caller may see.
async fn stored(shared: &Shared, caller: &Caller, id: &str) -> Result<SessionRow, Problem> {
    let row = recorded(shared, caller, id).await?;
    row.filter(|row| is_visible(caller, row)).ok_or_else(|| Problem::no_session(id))
}

/// Others' take the way of those that there are not: the same question, which finds nothing.
async fn recorded(shared: &Shared, caller: &Caller, id: &str) -> Result<Option<SessionRow>, Problem> {
    let owner = match &caller.scope {
        Scope::Admin => None,
        Scope::User { owner } => Some(owner.as_str()),
        Scope::Session { session, owner } if session == id => Some(owner.as_str()),
        // Nobody's.
        Scope::Session { .. } => Some(""),
    };
    shared.store.session_of(id, owner).await.map_err(storage)
}

fn is_visible(caller: &Caller, row: &SessionRow) -> bool {
    row.session.state != SessionState::Deleted && caller.may_see(&row.session.id, &row.session.owner)
}

/// Asks a session's owner and waits for the answer.
pub(crate) async fn ask<T>(
    handle: &Handle,
    id: &str,
    ask: impl FnOnce(oneshot::Sender<Result<T, Problem>>) -> Ask,
) -> Result<T, Problem> {
    let (reply, answer) = oneshot::channel();
    if handle.asks.send(ask(reply)).await.is_err() {
        return Err(Problem::no_session(id));
    }
    // An owner that goes without an answer does so because its session was deleted.
    let answered = answer.await.unwrap_or_else(|_| Err(Problem::no_session(id)));
    answered.map_err(|problem| clean_problem(&handle.redactor.get(), problem))
}

pub(crate) async fn get(shared: &Arc<Shared>, caller: &Caller, id: &str) -> Result<Session, Problem> {
    validate::id(id)?;
    // Whose it is comes first: what is not the caller's is not even copied.
    if let Some(handle) = shared.owner_of(id).filter(|handle| caller.may_see(id, &handle.owner)) {
        let session = handle.session_for_its_owner();
        if session.state != SessionState::Deleted {
            return Ok(for_caller(caller, session));
        }
    }
    Ok(for_caller(caller, seen_by_its_owner(stored(shared, caller, id).await?)))
}

/// Whether there was such a session, of this caller's.
pub(crate) async fn was_deleted(shared: &Shared, caller: &Caller, id: &str) -> Result<bool, Problem> {
    let row = recorded(shared, caller, id).await?;
    Ok(row.is_some_and(|row| caller.may_see(id, &row.session.owner)))
}

/// Where a session's directories lie on the host is for its owner to see, and not for what has only its token.
fn for_caller(caller: &Caller, session: Session) -> Session {
    match caller.scope {
        Scope::Session { .. } => crate::mounts::without_host_paths(session),
        _ => session,
    }
}

fn seen(row: SessionRow) -> Session {
    crate::mounts::without_host_paths(seen_by_its_owner(row))
}

fn seen_by_its_owner(row: SessionRow) -> Session {
    let mut session = row.session;
    session.room_policy = None;
    session.room_binds = None;
    if session.state == SessionState::Running && row.waiting {
        session.state = SessionState::WaitingForInput;
    }
    session
}

/// On whose behalf a caller acts.
pub(crate) fn acting_for(caller: &Caller, asked: Option<&str>) -> Result<String, Problem> {
    match (&caller.scope, asked) {
        (Scope::Session { .. }, _) => Err(Problem::new(
            ProblemCode::Forbidden,
            "a token for one session cannot make others",
            "ask with a user's or an admin token",
        )),
        (Scope::Admin, Some(owner)) => Ok(owner.to_owned()),
        (_, Some(owner)) if owner != caller.owner() => Err(Problem::new(
            ProblemCode::Forbidden,
            format!("only an admin token may act for {}", validate::shown(owner)),
            "leave owner out",
        )),
        _ => Ok(caller.owner().to_owned()),
    }
}

pub(crate) async fn create(
    shared: &Arc<Shared>,
    caller: &Caller,
    request: CreateSession,
    place_key: Option<String>,
    wait: Option<Duration>,
    permit: Option<&Permit>,
) -> Result<(Session, bool), Problem> {
    validate::create(&request)?;
    let owner = acting_for(caller, request.owner.as_deref())?;
    // Made by an earlier attempt under the same idempotency key.
    if let Some(id) = permit.and_then(|permit| permit.resource.as_deref())
        && shared.store.session(id).await.map_err(storage)?.is_some()
    {
        return get(shared, caller, id).await.map(|session| (session, true));
    }
    let maker = match request.key.as_ref().or(place_key.as_ref()) {
        Some(key) => Some(shared.maker(key).await),
        None => None,
    };
    if let Some(key) = &request.key
        && let Some(row) = shared.store.session_by_key(&owner, key).await.map_err(storage)?
    {
        return Ok((current(shared, row), false));
    }
    if let Some(place) = &place_key
        && let Some(row) = shared.store.session_by_place(place).await.map_err(storage)?
    {
        return Ok((current(shared, row), false));
    }
    check_daily_quota(shared, &owner, 1).await?;
    let starts = request.start.unwrap_or(true);
    request.policy.as_ref().map_or(Ok(()), |asked| policy::check(shared, &owner, asked))?;
    let mut row = new_row(owner, request, place_key)?;
    row.session.mounts = crate::mounts::check_new(shared, &caller.name, &row).await?;
    let made = if starts {
        start_new(shared, caller, row, (wait, maker), permit).await
    } else {
        record(shared, caller, &row, permit).await.map(|made| match made {
            Recorded::New => (row.session, true),
            Recorded::There(row) => (current(shared, *row), false),
        })
    };
    if let Ok((_, true)) = &made {
        shared.metrics.sessions_created.fetch_add(1, Relaxed);
    }
    made
}

/// The session as its owner sees it now, or as it is recorded.
fn current(shared: &Shared, row: SessionRow) -> Session {
    shared.owner_of(&row.session.id).map_or_else(|| seen(row), |handle| handle.session())
}

pub(crate) async fn check_daily_quota(shared: &Shared, owner: &str, more: u64) -> Result<(), Problem> {
    let quota = shared.config.quotas.created_per_user_per_day;
    if quota == 0 {
        return Ok(());
    }
    let since = Timestamp(shared.clock.now().0 - 24 * 3600 * 1000);
    let made = shared.store.created_since(owner, since).await.map_err(storage)?;
    if made + more <= quota {
        return Ok(());
    }
    let detail = format!("{made} sessions of {owner} were made within a day, which is the most");
    Err(Problem::limit("created_per_user_per_day", detail, "use one that is there").retry_after(3600))
}

pub(crate) fn new_row(
    owner: String,
    request: CreateSession,
    place: Option<String>,
) -> Result<SessionRow, Problem> {
    let created = Timestamp::now();
    let random = random_u32()
        .map_err(|error| Problem::new(ProblemCode::Internal, format!("no randomness: {error}"), ""))?;
    let thread = request.thread.or_else(|| request.channel.as_ref()?.thread_id.clone());
    let session = Session {
        id: format!("{}-{random:08x}", created.compact()),
        name: request.name.unwrap_or_default(),
        labels: request.labels,
        owner,
        key: request.key,
        group: request.group,
        channel: request.channel,
        thread,
        template: request.template.unwrap_or_else(|| "host".into()),
        policy: request.policy.unwrap_or_default(),
        policy_version: 1,
        policy_changed: None,
        room_policy: None,
        mounts: Vec::new(),
        room_binds: None,
        state: SessionState::Stopped,
        reason: None,
        created,
        last_active: created,
        ttl: request.ttl,
        idle_timeout: request.idle_timeout,
        on_expiry: request.on_expiry.unwrap_or_default(),
        keep_alive: request.keep_alive.unwrap_or(false),
        enforced: Enforced::default(),
        counters: Counters::default(),
        reset_count: 0,
        parent: None,
        pool: None,
    };
    Ok(SessionRow { session, place, waiting: false })
}

/// A session to be that goes on from another's files: of the same owner, with the same wishes, and no place of its own.
pub(crate) fn fork_row(source: &Session, name: Option<String>) -> Result<SessionRow, Problem> {
    let request = CreateSession {
        name: Some(name.unwrap_or_else(|| fork_name(&source.name))),
        labels: source.labels.clone(),
        template: Some(source.template.clone()),
        policy: Some(source.policy.clone()),
        ttl: source.ttl,
        idle_timeout: source.idle_timeout,
        on_expiry: Some(source.on_expiry),
        keep_alive: Some(source.keep_alive),
        group: source.group.clone(),
        ..CreateSession::default()
    };
    let mut row = new_row(source.owner.clone(), request, None)?;
    row.session.parent = Some(source.id.clone());
    Ok(row)
}

/// Another name than the source's, by which people tell the two apart.
fn fork_name(source: &str) -> String {
    if source.is_empty() {
        return String::new();
    }
    let kept: String = source.chars().take(validate::MOST_NAME - 5).collect();
    format!("{kept}-fork")
}

enum Recorded {
    New,
    There(Box<SessionRow>),
}

/// Records a new session, with the word of its making and the key that it is made under: all or nothing.
async fn record(
    shared: &Shared,
    caller: &Caller,
    row: &SessionRow,
    permit: Option<&Permit>,
) -> Result<Recorded, Problem> {
    let session = &row.session;
    let mut changes = vec![
        Change::InsertSession { row: row.clone() },
        Change::Journal {
            session: session.id.clone(),
            at: session.created,
            actor: caller.name.clone(),
            kind: "session.created".into(),
            body: json!({ "owner": session.owner, "name": session.name, "policy": session.policy }),
        },
    ];
    changes.extend(permit.map(|permit| intent(permit, &session.id)));
    let outcomes = shared.store.commit(changes).await.map_err(storage)?;
    match outcomes.into_iter().next() {
        Some(Outcome::Exists(id)) => match shared.store.session(&id).await.map_err(storage)? {
            Some(row) => Ok(Recorded::There(Box::new(row))),
            None => Err(Problem::no_session(&id)),
        },
        _ => Ok(Recorded::New),
    }
}

/// A new session with a room: recorded and built at the same time, since both take a while.
async fn start_new(
    shared: &Arc<Shared>,
    caller: &Caller,
    mut row: SessionRow,
    (wait, maker): (Option<Duration>, Option<Maker<'_>>),
    permit: Option<&Permit>,
) -> Result<(Session, bool), Problem> {
    let id = row.session.id.clone();
    let place = match (shared.admission.try_enter(&row.session.owner), wait) {
        (Ok(place), _) => place,
        (Err(problem), None) => return Err(problem),
        (Err(_), Some(wait)) => return start_queued(shared, caller, row, (wait, maker), permit).await,
    };
    row.session.state = SessionState::Starting;
    let (reply, started) = oneshot::channel();
    let handle = spawn(shared, row.clone(), Beginning::Start { place, reply });
    let (recorded, started) = tokio::join!(record(shared, caller, &row, permit), started);
    match recorded {
        Ok(Recorded::New) => {}
        Ok(Recorded::There(there)) => {
            abandon(&handle, &id).await;
            return Ok((current(shared, *there), false));
        }
        Err(problem) => {
            abandon(&handle, &id).await;
            return Err(problem);
        }
    }
    finish_start(shared, &handle, &id, started).await
}

/// A new session that waits for its place; seen from outside as `queued` meanwhile.
async fn start_queued(
    shared: &Arc<Shared>,
    caller: &Caller,
    mut row: SessionRow,
    (wait, maker): (Duration, Option<Maker<'_>>),
    permit: Option<&Permit>,
) -> Result<(Session, bool), Problem> {
    let id = row.session.id.clone();
    row.session.state = SessionState::Queued;
    if let Recorded::There(there) = record(shared, caller, &row, permit).await? {
        return Ok((current(shared, *there), false));
    }
    // It is found by its key from here on. Others share the lock, and are not to wait for our place.
    drop(maker);
    let place = match shared.admission.enter_within(&row.session.owner, wait).await {
        Ok(place) => place,
        Err(problem) => {
            unmake(shared, &id).await;
            return Err(problem);
        }
    };
    let waits = |row: &SessionRow| row.session.state == SessionState::Queued;
    match shared.store.session(&id).await.map_err(storage)? {
        Some(still) if waits(&still) && shared.owner_of(&id).is_none() => {
            let (reply, started) = oneshot::channel();
            let handle = spawn(shared, row, Beginning::Start { place, reply });
            let started = started.await;
            finish_start(shared, &handle, &id, started).await
        }
        // Somebody else has started or deleted it meanwhile.
        _ => get(shared, caller, &id).await.map(|session| (session, true)),
    }
}

/// A session whose room cannot be built is not made: its maker is told why, and nothing of it stays.
async fn finish_start(
    shared: &Arc<Shared>,
    handle: &Handle,
    id: &str,
    started: Result<Result<Session, Problem>, oneshot::error::RecvError>,
) -> Result<(Session, bool), Problem> {
    match started {
        Ok(Ok(session)) => Ok((session, true)),
        Ok(Err(problem)) => {
            abandon(handle, id).await;
            unmake(shared, id).await;
            Err(problem)
        }
        Err(_) => Err(Problem::no_session(id)),
    }
}

pub(crate) async fn abandon(handle: &Handle, id: &str) {
    let _ = ask(handle, id, |reply| Ask::Abandon { reply }).await;
}

pub(crate) async fn unmake(shared: &Shared, id: &str) {
    if let Err(error) = shared.store.commit(vec![Change::PurgeSession { id: id.to_owned() }]).await {
        tracing::warn!(session = id, %error, "a session that was not made stays recorded");
    }
}

pub(crate) async fn resolve(
    shared: &Arc<Shared>,
    caller: &Caller,
    request: ResolveSession,
    permit: Option<&Permit>,
) -> Result<Resolved, Problem> {
    validate::foreign("group", Some(&request.group))?;
    validate::foreign("thread", request.thread.as_deref())?;
    validate::channel(request.channel.as_ref(), request.thread.as_deref())?;
    let mut create_request = request.create.unwrap_or_default();
    if create_request.owner.is_some() && request.owner.is_some() && create_request.owner != request.owner {
        return Err(Problem::invalid("owner and create.owner differ", "give one of the two"));
    }
    create_request.owner = request.owner.or(create_request.owner);
    let CreateSession { key, group, thread, .. } = &create_request;
    if create_request.channel.is_some() || [key, group, thread].into_iter().any(Option::is_some) {
        return Err(Problem::invalid(
            "a session that is found by its place has no key and no other place",
            "leave key, group, channel and thread of create out",
        ));
    }
    let owner = acting_for(caller, create_request.owner.as_deref())?;
    let thread = request.thread.or_else(|| request.channel.as_ref()?.thread_id.clone());
    let channel = request.channel.as_ref().map(|channel| (&channel.channel_type, &channel.platform_id));
    // Written so that no two places are written alike, whatever their names contain.
    let place = match (request.mode, channel) {
        (ResolveMode::GroupShared, _) => Some(json!([owner, "group", request.group])),
        (ResolveMode::Shared, Some(channel)) => Some(json!([owner, "shared", request.group, channel])),
        (ResolveMode::PerThread, Some(channel)) => {
            Some(json!([owner, "thread", request.group, channel, thread]))
        }
        (ResolveMode::Shared | ResolveMode::PerThread, None) => None,
    };
    create_request.group = Some(request.group);
    create_request.channel = request.channel;
    create_request.thread = thread;
    let place = place.map(|place| place.to_string());
    let (session, created) = create(shared, caller, create_request, place, None, permit).await?;
    Ok(Resolved { session, created })
}

pub(crate) async fn list(
    shared: &Arc<Shared>,
    caller: &Caller,
    filter: ListSessions,
) -> Result<SessionPage, Problem> {
    let limit = filter.limit.unwrap_or(PAGE);
    if limit == 0 || limit > LARGEST_PAGE {
        return Err(Problem::invalid(format!("limit {limit} is outside 1 to {LARGEST_PAGE}"), ""));
    }
    let before = filter.cursor.as_deref().map(read_cursor).transpose()?;
    let (owner, only) = match &caller.scope {
        Scope::Admin => (filter.owner, None),
        Scope::User { owner } => (Some(owner.clone()), None),
        Scope::Session { session, .. } => (None, Some(session.clone())),
    };
    let states = match filter.state {
        Some(SessionState::WaitingForInput) => vec![SessionState::Running],
        Some(SessionState::Deleted) => return Ok(SessionPage { sessions: Vec::new(), next: None }),
        Some(state) => vec![state],
        None => Vec::new(),
    };
    let label = filter.label.map(|label| match label.split_once('=') {
        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
        None => (label, None),
    });
    // What was done a moment ago is on its way to the store: it goes first. Without a store that writes, what is
    // there is still to be read.
    shared.store.commit(Vec::new()).await.ok();
    let pool = match filter.pool.as_deref() {
        _ if only.is_some() => InPool::AnyOrNone,
        None => InPool::None,
        Some("*") => InPool::AnyOrNone,
        Some(name) => InPool::Named(name.to_owned()),
    };
    let filter_row =
        SessionFilter { owner, group: filter.group, states, label, only, pool, before, limit: limit + 1 };
    let mut rows = shared.store.sessions(&filter_row).await.map_err(storage)?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = rows.last().filter(|_| more).map(|row| write_cursor(&row.session));
    let wanted = |session: &Session| filter.state.is_none_or(|state| session.state == state);
    let sessions = rows.into_iter().map(|row| current(shared, row)).filter(wanted).collect();
    Ok(SessionPage { sessions, next })
}

/// Where a page ended: the time and the id of its last session.
fn write_cursor(session: &Session) -> String {
    format!("{}.{}", session.created.0, session.id)
}

fn read_cursor(cursor: &str) -> Result<(i64, String), Problem> {
    let parsed = cursor.split_once('.').and_then(|(created, id)| {
        validate::id(id).ok()?;
        Some((created.parse().ok()?, id.to_owned()))
    });
    parsed.ok_or_else(|| {
        Problem::invalid(
            format!("\"{}\" is not a cursor", validate::shown(cursor)),
            "use `next` of the page before, as it is",
        )
    })
}

/// Builds a room of the default policy, asks what is in force in it, and ends it.
pub(crate) async fn find_capabilities(shared: &Arc<Shared>) -> Result<Capabilities, Problem> {
    let request = CreateSession { labels: BTreeMap::new(), ..CreateSession::default() };
    let row = new_row("server".into(), request, None)?;
    let id = format!("{}-0", row.session.id);
    let layer = shared.layer_dir(&row.session.id);
    let policy = policy::effective(shared, &row.session);
    let disk = shared.disk_state(&policy, &layer, Beneath::Nothing);
    let spec = room_spec(id, &policy, (layer, Vec::new()), disk, &shared.config.mounts);
    let made = match spec {
        Ok(spec) => Room::create(shared, spec).await,
        Err(problem) => Err(problem),
    };
    let found = match made {
        Ok((mut room, enforced)) => {
            let by_group = room.freezes_by_group().await;
            let root = room.end().await;
            tokio::task::spawn_blocking(move || drop(root));
            Ok(Capabilities {
                version: env!("CARGO_PKG_VERSION").into(),
                privilege: if shared.machine.is_root { "root" } else { "rootless" }.into(),
                enforced,
                tree_kill: "label".into(),
                freezer: if by_group { "cgroup" } else { "signals" }.into(),
                session_disk: shared.disks.described(),
            })
        }
        Err(problem) => Err(problem),
    };
    shared.discard_layer(&row.session.id);
    shared.trash.notify_one();
    found
}
