//! Pools of slots, as the server asks for them. One keeper, a task, owns each pool; this finds it.
//!
//! ```text
//!  acquire, release, extend ──▶ keeper.rs (one task for each pool) ──▶ make.rs: rooms that are new, and proven so
//!                                  │ slots.rs: who has what              end.rs: rooms that are over
//!                                  ▼
//!                                store: a session that never has a room, whose parts are the pool and its slots
//! ```
//!
//! A slot is never cleaned: it becomes another session, and the one that was used is deleted with all that belongs to it
//! (docs/decisions/0040-a-slot-is-reset-by-becoming-another-session.md).

mod asks;
mod end;
mod figures;
mod keeper;
mod look;
mod make;
mod record;
mod seed;
mod set;
mod slots;
mod view;

pub use figures::{PoolNumbers, Spread};

use crate::pools::asks::Ask;
use crate::pools::keeper::Keeper;
use crate::pools::record::{Definition, place};
use crate::shared::Shared;
use crate::{Engine, sessions, storage, validate};
use figures::Figures;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use workroom_store::{Change, InPool, SessionFilter, SessionRow};
use workroom_types::{
    AcquireSlot, Caller, CreateSession, ExtendLease, Lease, Pool, PoolList, PoolSpec, Problem, ProblemCode,
    ReleaseSlot, Released, Scope, Timestamp,
};

const MOST_SLOTS: u32 = 10_000;
const MOST_SPARES: u32 = 1000;
/// Milliseconds.
const USUAL_WAIT: u64 = 10_000;
const LONGEST_WAIT: u64 = 3_600_000;
const USUAL_LEASE: u64 = 600_000;
const LONGEST_LEASE: u64 = 30 * 24 * 3_600_000;
/// Pools that one owner may have.
const MOST_POOLS: usize = 256;

/// Where all keepers are found, and which sessions are theirs alone.
#[derive(Default)]
pub(crate) struct Pools {
    keepers: Mutex<BTreeMap<(String, String), KeeperHandle>>,
    closed: RwLock<HashSet<String>>,
    /// Sessions that a trajectory has.
    leased: RwLock<HashSet<String>>,
    ended: end::Ended,
}

#[derive(Clone)]
struct KeeperHandle {
    asks: mpsc::Sender<Ask>,
    figures: Arc<Figures>,
}

impl Pools {
    /// Whether a session may be used by those who may see it. One that waits for its trajectory may not, so that what
    /// a trajectory gets was touched by nobody; nor may one whose lease is over.
    pub(crate) fn check_open(&self, session: &str) -> Result<(), Problem> {
        if !self.closed.read().unwrap_or_else(PoisonError::into_inner).contains(session) {
            return Ok(());
        }
        Err(Problem::new(
            ProblemCode::WrongState,
            format!("session {session} belongs to a pool, and nobody has it"),
            "acquire a slot of the pool and use the session that it names",
        ))
    }

    /// Nobody may use it from here on.
    fn close(&self, session: &str) {
        self.leased.write().unwrap_or_else(PoisonError::into_inner).remove(session);
        self.closed.write().unwrap_or_else(PoisonError::into_inner).insert(session.to_owned());
    }

    /// A trajectory has it.
    fn lease(&self, session: &str) {
        self.leased.write().unwrap_or_else(PoisonError::into_inner).insert(session.to_owned());
        self.open(session);
    }

    /// It is no pool's any more.
    fn open(&self, session: &str) {
        self.closed.write().unwrap_or_else(PoisonError::into_inner).remove(session);
    }

    fn keepers(&self) -> MutexGuard<'_, BTreeMap<(String, String), KeeperHandle>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, owner: &str, name: &str) -> Option<KeeperHandle> {
        self.keepers().get(&(owner.to_owned(), name.to_owned())).cloned()
    }

    fn forget(&self, owner: &str, name: &str) {
        self.keepers().remove(&(owner.to_owned(), name.to_owned()));
    }
}

/// Takes up every pool where the last server left it. Sessions of pools that no slot is are over.
pub(crate) async fn at_start(shared: &Arc<Shared>) -> Result<(), Problem> {
    let mut in_use = HashSet::new();
    let mut pools = Vec::new();
    for id in shared.store.sessions_with(record::POOL).await.map_err(storage)? {
        let Some(mut found) = record::read(shared, &id).await? else { continue };
        shared.pools.close(&id);
        in_use.insert(id);
        let lost = found
            .slots
            .iter_mut()
            .filter_map(|slot| slot.record.outlive(record::boot()).then_some(slot.number));
        let lost: Vec<u32> = lost.collect();
        if !lost.is_empty() {
            tracing::warn!(pool = found.definition.name, slots = ?lost, "the machine was restarted: slots begin anew");
        }
        for slot in &found.slots {
            let Some(session) = &slot.record.session else { continue };
            in_use.insert(session.clone());
            match slot.record.held {
                Some(_) => shared.pools.lease(session),
                None => shared.pools.close(session),
            }
        }
        pools.push(found);
    }
    let mut filter = SessionFilter { pool: InPool::Any, limit: 500, ..SessionFilter::default() };
    loop {
        let page = shared.store.sessions(&filter).await.map_err(storage)?;
        let Some(last) = page.last() else { break };
        filter.before = Some((last.session.created.0, last.session.id.clone()));
        for row in page {
            if !in_use.contains(&row.session.id) {
                shared.pools.close(&row.session.id);
                tokio::spawn(end::end(shared.clone(), row.session.id));
            }
        }
    }
    // Not before: what their keepers make from here on is in no slot's record either.
    pools.into_iter().for_each(|found| start(shared, found));
    Ok(())
}

fn start(shared: &Arc<Shared>, found: record::Found) {
    let (asks, receiver) = mpsc::channel(1024);
    let figures = Arc::new(Figures::default());
    let key = (found.definition.owner.clone(), found.definition.name.clone());
    shared.pools.keepers().insert(key, KeeperHandle { asks, figures: figures.clone() });
    tokio::spawn(Keeper::new(shared.clone(), found, receiver, figures).run());
}

fn no_pool(name: &str) -> Problem {
    Problem::new(
        ProblemCode::NotFound,
        format!("there is no pool {}", validate::shown(name)),
        "`workroom pool ls`, or `GET /v1/pools`, lists those that there are; `workroom pool set`, or `PUT /v1/pools/{name}`, makes one",
    )
}

fn check_spec(spec: &PoolSpec) -> Result<(), Problem> {
    let as_session = CreateSession {
        template: spec.template.clone(),
        policy: spec.policy.clone(),
        ..CreateSession::default()
    };
    validate::create(&as_session)?;
    if !(1..=MOST_SLOTS).contains(&spec.max) {
        return Err(Problem::invalid(format!("max {} is outside 1 to {MOST_SLOTS}", spec.max), ""));
    }
    let min = spec.min.unwrap_or(0);
    if min > spec.max {
        return Err(Problem::invalid(format!("min {min} is more than max {}", spec.max), "raise max"));
    }
    validate::seconds("idle", spec.idle, 1)?;
    let spares = spec.reset.and_then(|reset| reset.spares).unwrap_or(0);
    if spares > MOST_SPARES {
        return Err(Problem::invalid(format!("{spares} spares are more than {MOST_SPARES}"), ""));
    }
    if let Some(seed) = &spec.seed {
        validate::id(&seed.session)?;
    }
    Ok(())
}

fn within(what: &str, value: Option<u64>, usual: u64, (least, most): (u64, u64)) -> Result<u64, Problem> {
    let value = value.unwrap_or(usual);
    if !(least..=most).contains(&value) {
        return Err(Problem::invalid(format!("{what} {value} is outside {least} to {most}"), ""));
    }
    Ok(value)
}

impl Engine {
    /// Makes a pool, or changes one to be as it is said here. Says whether it is new.
    pub async fn set_pool(
        &self,
        caller: &Caller,
        (owner, name): (Option<&str>, &str),
        spec: PoolSpec,
    ) -> Result<(Pool, bool), Problem> {
        self.open_for_work()?;
        let shared = &self.shared;
        validate::foreign("owner", owner)?;
        let owner = sessions::acting_for(caller, owner)?;
        validate::pool_name(name)?;
        check_spec(&spec)?;
        spec.policy.as_ref().map_or(Ok(()), |asked| crate::policy::check(shared, &owner, asked))?;
        // One at a time, so that two that come together make one pool.
        let _maker = shared.maker(&place(&owner, name)).await;
        if let Some(keeper) = shared.pools.find(&owner, name) {
            let actor = caller.name.clone();
            let seed = match &spec.seed {
                Some(seed)
                    if ask(&keeper, name, |reply| Ask::Seed { reply }).await?.as_ref() != Some(seed) =>
                {
                    Some(seed::take(self, caller, &owner, seed).await?)
                }
                _ => None,
            };
            let spec = Box::new(spec);
            let pool = ask(&keeper, name, |reply| Ask::Set { spec, seed, actor, reply }).await?;
            return Ok((pool, false));
        }
        let of_owner = shared.pools.keepers().keys().filter(|(known, _)| *known == owner).count();
        if of_owner >= MOST_POOLS {
            let detail = format!("{owner} has {of_owner} pools, which is the most");
            return Err(Problem::limit("pools", detail, "delete one first").retry_after(60));
        }
        let seed = match &spec.seed {
            Some(seed) => Some(seed::take(self, caller, &owner, seed).await?),
            None => None,
        };
        let keeper = self.make_pool(caller, (owner, name), spec, seed).await?;
        Ok((ask(&keeper, name, |reply| Ask::Show { reply }).await?, true))
    }

    async fn make_pool(
        &self,
        caller: &Caller,
        (owner, name): (String, &str),
        spec: PoolSpec,
        seed: Option<seed::Seed>,
    ) -> Result<KeeperHandle, Problem> {
        let shared = &self.shared;
        let request = CreateSession { name: Some(name.to_owned()), ..CreateSession::default() };
        let mut row = sessions::new_row(owner.clone(), request, Some(place(&owner, name)))?;
        row.session.pool = Some(name.to_owned());
        let SessionRow { session, .. } = &row;
        let definition = Definition {
            session: session.id.clone(),
            owner: owner.clone(),
            name: name.to_owned(),
            spec,
            created: session.created,
            generation: 1,
            layers: seed.as_ref().map(|seed| seed.layers.clone()).unwrap_or_default(),
            digest: seed.as_ref().map(|seed| seed.digest.clone()),
        };
        let mut changes = vec![
            Change::InsertSession { row: row.clone() },
            Change::Journal {
                session: session.id.clone(),
                at: Timestamp::now(),
                actor: caller.name.clone(),
                kind: "pool.made".into(),
                body: json!({ "pool": name, "owner": owner, "spec": definition.spec }),
            },
        ];
        changes.extend(record::put(&definition));
        shared.pools.close(&session.id);
        let id = session.id.clone();
        if let Err(error) = shared.store.commit(changes).await {
            shared.pools.open(&id);
            return Err(storage(error));
        }
        start(shared, record::Found { definition, slots: Vec::new() });
        shared.pools.find(&owner, name).ok_or_else(|| no_pool(name))
    }

    /// The pools that a caller may see: for an admin all, or those of one owner.
    pub async fn pools(&self, caller: &Caller, owner: Option<&str>) -> Result<PoolList, Problem> {
        validate::foreign("owner", owner)?;
        let only = match (&caller.scope, owner) {
            (Scope::Admin, owner) => owner.map(str::to_owned),
            _ => Some(sessions::acting_for(caller, owner)?),
        };
        let wanted = |owner: &String| only.as_ref().is_none_or(|only| only == owner);
        let found: Vec<_> = {
            let keepers = self.shared.pools.keepers();
            let of_caller = keepers.iter().filter(|((owner, _), _)| wanted(owner));
            of_caller.map(|((_, name), keeper)| (name.clone(), keeper.clone())).collect()
        };
        let mut pools = Vec::new();
        for (name, keeper) in found {
            // One that is deleted meanwhile is none.
            if let Ok(pool) = ask(&keeper, &name, |reply| Ask::Show { reply }).await {
                pools.push(pool.summary);
            }
        }
        Ok(PoolList { pools })
    }

    fn keeper(&self, caller: &Caller, owner: Option<&str>, name: &str) -> Result<KeeperHandle, Problem> {
        validate::foreign("owner", owner)?;
        validate::pool_name(name)?;
        let owner = sessions::acting_for(caller, owner)?;
        self.shared.pools.find(&owner, name).ok_or_else(|| no_pool(name))
    }

    pub async fn pool(&self, caller: &Caller, owner: Option<&str>, name: &str) -> Result<Pool, Problem> {
        let keeper = self.keeper(caller, owner, name)?;
        ask(&keeper, name, |reply| Ask::Show { reply }).await
    }

    /// Ends all slots of a pool, whoever has them. Deleting what is not there succeeds.
    pub async fn delete_pool(&self, caller: &Caller, owner: Option<&str>, name: &str) -> Result<(), Problem> {
        let keeper = match self.keeper(caller, owner, name) {
            Err(problem) if problem.code == ProblemCode::NotFound => return Ok(()),
            other => other?,
        };
        let actor = caller.name.clone();
        match ask(&keeper, name, |reply| Ask::Delete { actor, reply }).await {
            Err(problem) if problem.code == ProblemCode::NotFound => Ok(()),
            other => other,
        }
    }

    /// A slot for a trajectory: the one that it has, or one that nobody has had since it was made as new.
    pub async fn acquire(
        &self,
        caller: &Caller,
        (owner, name): (Option<&str>, &str),
        request: AcquireSlot,
    ) -> Result<Lease, Problem> {
        self.open_for_work()?;
        validate::named("the trajectory", &request.trajectory)?;
        let wait = within("wait_ms", request.wait_ms, USUAL_WAIT, (0, LONGEST_WAIT))?;
        let lease = within("lease_ms", request.lease_ms, USUAL_LEASE, (1, LONGEST_LEASE))?;
        let keeper = self.keeper(caller, owner, name)?;
        ask(&keeper, name, |reply| Ask::Acquire {
            trajectory: request.trajectory,
            wait: Duration::from_millis(wait).min(self.shared.config.quotas.longest_wait),
            lease_ms: lease,
            actor: caller.name.clone(),
            reply,
        })
        .await
    }

    /// Gives a slot back. Releasing what one does not have succeeds.
    pub async fn release(
        &self,
        caller: &Caller,
        (owner, name): (Option<&str>, &str),
        request: ReleaseSlot,
    ) -> Result<Released, Problem> {
        validate::named("the trajectory", &request.trajectory)?;
        let keeper = self.keeper(caller, owner, name)?;
        let released =
            ask(&keeper, name, |reply| Ask::Release { trajectory: request.trajectory, reply }).await?;
        Ok(Released { released })
    }

    pub async fn extend(
        &self,
        caller: &Caller,
        (owner, name): (Option<&str>, &str),
        request: ExtendLease,
    ) -> Result<Lease, Problem> {
        validate::named("the trajectory", &request.trajectory)?;
        let lease = within("lease_ms", Some(request.lease_ms), USUAL_LEASE, (1, LONGEST_LEASE))?;
        let keeper = self.keeper(caller, owner, name)?;
        ask(&keeper, name, |reply| Ask::Extend { trajectory: request.trajectory, lease_ms: lease, reply })
            .await
    }

    /// The slot that a trajectory has.
    pub async fn lease_of(
        &self,
        caller: &Caller,
        (owner, name): (Option<&str>, &str),
        request: ReleaseSlot,
    ) -> Result<Lease, Problem> {
        validate::named("the trajectory", &request.trajectory)?;
        let keeper = self.keeper(caller, owner, name)?;
        ask(&keeper, name, |reply| Ask::Find { trajectory: request.trajectory, reply }).await
    }

    /// Makes the slot that a trajectory has as new; it keeps the slot and its lease, and gets another session.
    pub async fn reset_slot(
        &self,
        caller: &Caller,
        (owner, name): (Option<&str>, &str),
        request: ReleaseSlot,
    ) -> Result<Lease, Problem> {
        self.open_for_work()?;
        validate::named("the trajectory", &request.trajectory)?;
        let keeper = self.keeper(caller, owner, name)?;
        ask(&keeper, name, |reply| Ask::Reset { trajectory: request.trajectory, reply }).await
    }

    /// Whose idempotency keys a caller's are when it asks something of a session: of a slot's they are the lease's, and
    /// whoever has the slot next may use them again.
    pub fn key_scope(&self, caller: &Caller, session: &str) -> String {
        let leased = self.shared.pools.leased.read().unwrap_or_else(PoisonError::into_inner);
        match leased.contains(session) {
            true => format!("{} in {session}", caller.name),
            false => caller.name.clone(),
        }
    }

    /// Numbers of every pool, for `/metrics`.
    pub fn pool_numbers(&self) -> Vec<PoolNumbers> {
        let executing = view::executing(&self.shared);
        let numbers = |(pool, keeper): (&(String, String), &KeeperHandle)| {
            let mut numbers = keeper.figures.numbers(&pool.0, &pool.1);
            let states = &mut numbers.states;
            states.executing = executing.get(pool).copied().unwrap_or(0).min(states.acquired);
            states.acquired -= states.executing;
            numbers
        };
        self.shared.pools.keepers().iter().map(numbers).collect()
    }
}

async fn ask<T>(
    keeper: &KeeperHandle,
    name: &str,
    ask: impl FnOnce(oneshot::Sender<Result<T, Problem>>) -> Ask,
) -> Result<T, Problem> {
    let (reply, answer) = oneshot::channel();
    if keeper.asks.send(ask(reply)).await.is_err() {
        return Err(no_pool(name));
    }
    // A keeper that goes without an answer does so because its pool was deleted.
    answer.await.unwrap_or_else(|_| Err(no_pool(name)))
}
