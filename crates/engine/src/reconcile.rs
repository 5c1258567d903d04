//! Making what is there agree with what is recorded: at the start, and every minute.

use crate::actor::{Ask, Beginning, spawn};
use crate::idempotency::REMEMBERED_FOR;
use crate::room::{Room, layer_of, remove_room_dir};
use crate::shared::Shared;
use crate::storage;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use workroom_store::{Change, SessionFilter, SessionRow};
use workroom_types::{OnExpiry, Problem, SessionState, Timestamp};

const EVERY: Duration = Duration::from_secs(60);

/// Milliseconds for which the record of a deleted session is kept.
const DELETED_KEPT_FOR: i64 = 30 * 24 * 3600 * 1000;

/// The same of a slot's. Its pool forgets those before the last thousand sooner.
const SLOT_KEPT_FOR: i64 = 24 * 3600 * 1000;

/// Things that are deleted at the same time.
const DELETED_AT_ONCE: usize = 4;

/// How soon what could not be deleted is tried again.
const TRASH_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Rows looked at in one go.
const PAGE: u32 = 500;

/// Before anything is served: every live room gets its owner back, or its end.
pub(crate) async fn at_start(shared: &Arc<Shared>) -> Result<(), Problem> {
    let ids: HashMap<String, SessionState> =
        shared.store.all_ids().await.map_err(storage)?.into_iter().collect();
    // Before any of them is found to be gone: what a room has made in a directory of the host, another may need.
    for (id, state) in &ids {
        if state.is_live()
            && let Some(row) = shared.store.session(id).await.map_err(storage)?
            && let Some(room) = &row.session.room_binds
        {
            shared.host_directories.add(id, &room.binds);
        }
    }
    let mut with_room = HashSet::new();
    for (session, mut rooms) in rooms_by_session(&shared.state.rooms()) {
        // The last one on the session's own layer: any other was about to go, or was not to be yet.
        let top = shared.stack_of(&session).await?.top;
        rooms.sort_by_key(|(number, _)| *number);
        let on_top = |(_, dir): &(u64, PathBuf)| layer_of(dir).unwrap_or_else(|| session.clone()) == top;
        let last = rooms.last().map_or(0, |(number, _)| *number);
        let chosen = rooms.iter().rposition(on_top).map(|at| rooms.remove(at));
        let row =
            shared.store.session(&session).await.map_err(storage)?.filter(|_| ids.contains_key(&session));
        let row = match row {
            Some(row) => Some(number_after(shared, row, last).await?),
            None => None,
        };
        rooms.into_iter().for_each(|(_, dir)| end_stray(dir));
        let Some((_, dir)) = chosen else { continue };
        match row {
            Some(row) => {
                with_room.insert(session);
                spawn(shared, row, Beginning::Adopt { dir });
            }
            None => end_stray(dir),
        }
    }
    for (id, state) in ids {
        let waits = state == SessionState::Queued;
        if (state.is_live() || waits) && !with_room.contains(&id) {
            let reason = if waits {
                "the server ended while it waited"
            } else {
                "its room did not outlive the last server"
            };
            settle(shared, &id, reason).await?;
        }
    }
    shared.access.sweep(&shared.store, shared.clock.now()).await?;
    discard_orphans(shared).await?;
    shared.trash.notify_one();
    Ok(())
}

/// The word of a room's start may not have reached the store. No room gets the number of another: it would be ended in
/// that one's place.
async fn number_after(shared: &Shared, mut row: SessionRow, last: u64) -> Result<SessionRow, Problem> {
    if row.session.counters.starts < last {
        row.session.counters.starts = last;
        let save = Change::SaveSession { row: row.clone() };
        shared.store.commit(vec![save]).await.map_err(storage)?;
    }
    Ok(row)
}

/// Records that a session has no room.
async fn settle(shared: &Arc<Shared>, id: &str, reason: &str) -> Result<(), Problem> {
    let Some(mut row) = shared.store.session(id).await.map_err(storage)? else { return Ok(()) };
    tracing::info!(session = id, reason, "stopped");
    row.session.state = SessionState::Stopped;
    row.session.reason = Some(reason.into());
    row.session.enforced = Default::default();
    crate::mounts::tidy::room_is_gone(shared, &mut row.session).await;
    let body = serde_json::json!({ "reason": reason });
    let entry = Change::Journal {
        session: id.into(),
        at: Timestamp::now(),
        actor: "server".into(),
        kind: "session.stopped".into(),
        body,
    };
    shared.store.commit(vec![Change::SaveSession { row }, entry]).await.map_err(storage)?;
    Ok(())
}

/// The rooms that have a directory, by session, with the number of each.
fn rooms_by_session(rooms: &Path) -> HashMap<String, Vec<(u64, PathBuf)>> {
    let mut found: HashMap<String, Vec<(u64, PathBuf)>> = HashMap::new();
    for entry in std::fs::read_dir(rooms).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if let Some((session, number)) = name.rsplit_once('-')
            && let Ok(number) = number.parse()
        {
            found.entry(session.to_owned()).or_default().push((number, entry.path()));
        } else {
            end_stray(entry.path());
        }
    }
    found
}

/// Ends a room that is nobody's.
fn end_stray(dir: PathBuf) {
    tokio::spawn(async move {
        tracing::warn!(room = %dir.display(), "a room without a session: ending it");
        if let Some(adopted) = Room::adopt(&dir).await {
            let root = adopted.room.end().await;
            let _ = tokio::task::spawn_blocking(move || drop(root)).await;
        }
        remove_room_dir(&dir);
    });
}

/// Files of sessions that are not recorded, or are deleted, go to the trash.
async fn discard_orphans(shared: &Shared) -> Result<(), Problem> {
    let mut beside = Vec::new();
    for dir in [shared.state.private(), shared.state.output(), shared.state.recordings()] {
        beside.extend(std::fs::read_dir(dir).into_iter().flatten().flatten());
    }
    for entry in beside {
        let Ok(id) = entry.file_name().into_string() else { continue };
        // One that is being made is not recorded yet, and has an owner.
        if shared.owner_of(&id).is_some() {
            continue;
        }
        let row = shared.store.session(&id).await.map_err(storage)?;
        let wanted = row.is_some_and(|row| row.session.state != SessionState::Deleted);
        if !wanted && shared.owner_of(&id).is_none() {
            tracing::info!(session = id, "files kept beside no session: deleting them");
            shared.discard_private(&id);
        }
    }
    for layer in shared.unused_layers().await? {
        tracing::info!(layer, "a layer that nobody needs: deleting it");
        shared.discard_layer(&layer);
    }
    Ok(())
}

/// Runs for as long as the server does.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(EVERY).await;
        if let Err(problem) = pass(&shared).await {
            tracing::warn!(%problem, "this minute's repairs are left for the next");
        }
        // Thousands of sessions may have ended.
        let _ = tokio::task::spawn_blocking(workroom_sys::memory::give_back).await;
    }
}

async fn pass(shared: &Arc<Shared>) -> Result<(), Problem> {
    // What a clock that jumped calls old is not deleted yet.
    let now = shared.clock.now();
    shared
        .store
        .commit(vec![Change::ForgetIdempotent { before: Timestamp(now.0 - REMEMBERED_FOR) }])
        .await
        .map_err(storage)?;
    shared.access.sweep(&shared.store, now).await?;
    discard_orphans(shared).await?;
    for session in shared.networks.sessions() {
        if let Some(handle) = shared.owner_of(&session) {
            let _ = handle.asks.send(Ask::NetworkAgain).await;
        }
    }
    for (session, rooms) in rooms_by_session(&shared.state.rooms()) {
        if shared.owner_of(&session).is_none() {
            rooms.into_iter().for_each(|(_, dir)| end_stray(dir));
        }
    }
    let live = [SessionState::Starting, SessionState::Running, SessionState::Paused, SessionState::Stopping];
    for row in rows(shared, live.to_vec()).await? {
        if shared.owner_of(&row.session.id).is_none() {
            settle(shared, &row.session.id, "its room was lost").await?;
        }
    }
    for row in rows(shared, vec![SessionState::Stopped, SessionState::Failed]).await? {
        if is_over(&row, now) && shared.owner_of(&row.session.id).is_none() {
            let handle = spawn(shared, row, Beginning::AsItIs);
            let (reply, done) = oneshot::channel();
            let _ = handle.asks.send(Ask::Delete { actor: "server".into(), reply }).await;
            let _ = done.await;
        }
    }
    let (deleted, slots) = (Timestamp(now.0 - DELETED_KEPT_FOR), Timestamp(now.0 - SLOT_KEPT_FOR));
    loop {
        let old = shared.store.deleted_before(deleted, slots, PAGE).await.map_err(storage)?;
        let more = old.len() as u32 == PAGE;
        for id in old {
            shared.store.commit(vec![Change::PurgeSession { id }]).await.map_err(storage)?;
        }
        if !more {
            break;
        }
    }
    shared.spawners.sweep().await;
    shared.trash.notify_one();
    Ok(())
}

/// Whether a session without a room is to be deleted by now.
fn is_over(row: &SessionRow, now: Timestamp) -> bool {
    let session = &row.session;
    let over = |from: Timestamp, seconds: Option<u64>| seconds.is_some_and(|s| from.plus_seconds(s) <= now);
    session.on_expiry == OnExpiry::Delete
        && (over(session.created, session.ttl) || over(session.last_active, session.idle_timeout))
}

async fn rows(shared: &Shared, states: Vec<SessionState>) -> Result<Vec<SessionRow>, Problem> {
    let mut filter = SessionFilter {
        owner: None,
        group: None,
        states,
        label: None,
        only: None,
        pool: Default::default(),
        before: None,
        limit: PAGE,
    };
    let mut all = Vec::new();
    loop {
        let page = shared.store.sessions(&filter).await.map_err(storage)?;
        let full = page.len() as u32 == PAGE;
        filter.before = page.last().map(|row| (row.session.created.0, row.session.id.clone()));
        all.extend(page);
        if !full {
            return Ok(all);
        }
    }
}

/// Deletes what is in the trash, a few things at a time: one that is large does not keep the others, nor those that come
/// while it is deleted.
pub(crate) async fn empty_trash(shared: Arc<Shared>) {
    let mut waiting = VecDeque::new();
    let mut under_way = JoinSet::new();
    // By name, until they are gone: the next look finds them again.
    let mut known = HashSet::new();
    loop {
        while under_way.len() < DELETED_AT_ONCE
            && let Some(path) = waiting.pop_front()
        {
            let shared = shared.clone();
            under_way.spawn(async move { delete(&shared, path).await });
        }
        tokio::select! {
            () = shared.trash.notified() => {
                let entries = std::fs::read_dir(shared.state.trash()).into_iter().flatten().flatten();
                waiting.extend(entries.map(|entry| entry.path()).filter(|path| known.insert(path.clone())));
            }
            Some(done) = under_way.join_next() => match done {
                Ok((path, is_gone)) => {
                    known.remove(&path);
                    if !is_gone {
                        shared.trash.notify_one();
                    }
                }
                Err(error) => tracing::error!(%error, "something stays in the trash until the next start"),
            },
        }
    }
}

/// Whether it is gone now. A failure is told a moment later: a spawner that was killed meanwhile is replaced, a disk that fails
/// may work again.
async fn delete(shared: &Shared, path: PathBuf) -> (PathBuf, bool) {
    let done = shared.spawners.remove(path.clone()).await;
    if let Err(problem) = &done {
        tracing::warn!(%problem, "something stays in the trash for now");
        tokio::time::sleep(TRASH_AGAIN_AFTER).await;
    }
    (path, done.is_ok())
}
