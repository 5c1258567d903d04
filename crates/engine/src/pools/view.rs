//! A pool as its callers see it.

use crate::pools::keeper::Keeper;
use crate::pools::slots;
use crate::shared::Shared;
use std::collections::HashMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use workroom_types::{Pool, PoolSummary, Slot, SlotCounts, SlotState};

/// Whether a command runs in a session.
fn is_at_work(shared: &Shared, session: &str) -> bool {
    shared.owner_of(session).is_some_and(|it| it.working.load(Relaxed)) || shared.shells.at_work(session)
}

/// How many slots a command runs in, by the owner and the name of their pool.
pub(super) fn executing(shared: &Shared) -> HashMap<(String, String), u32> {
    let leased = shared.pools.leased.read().unwrap_or_else(PoisonError::into_inner).clone();
    let mut counts = HashMap::new();
    for session in leased.iter().filter(|session| is_at_work(shared, session)) {
        let seen = shared.owner_of(session).map(|handle| handle.session_for_its_owner());
        if let Some((owner, pool)) = seen.and_then(|seen| Some((seen.owner, seen.pool?))) {
            *counts.entry((owner, pool)).or_default() += 1;
        }
    }
    counts
}

impl Keeper {
    /// How many slots are in which state, as far as the pool knows: whether commands run is not looked at.
    pub(super) fn counts(&self) -> SlotCounts {
        let mut counts = SlotCounts::default();
        self.slots.iter().for_each(|(_, slot)| counts.count(slot.state()));
        counts
    }

    fn seen(&self, number: u32, slot: &slots::Slot) -> Slot {
        let record = &slot.record;
        let works = |session: &String| is_at_work(&self.shared, session);
        let state = match slot.state() {
            SlotState::Acquired if record.session.as_ref().is_some_and(works) => SlotState::Executing,
            state => state,
        };
        Slot {
            slot: number,
            state,
            session: record.session.clone(),
            trajectory: record.held.as_ref().map(|held| held.trajectory.clone()),
            lease_end: record.held.as_ref().map(|held| held.lease_end),
            uses: record.uses,
            reason: slot.reason.clone(),
        }
    }

    pub(super) fn show(&self) -> Pool {
        let slots: Vec<Slot> = self.slots.iter().map(|(number, slot)| self.seen(number, slot)).collect();
        let mut states = SlotCounts::default();
        slots.iter().for_each(|slot| states.count(slot.state));
        let summary = PoolSummary {
            name: self.pool.name.clone(),
            owner: self.pool.owner.clone(),
            spec: self.pool.spec.clone(),
            created: self.pool.created,
            states,
            spares: self.stock.len() as u32,
            waiting: self.waiters.len() as u32,
            metrics: self.figures.metrics(&states),
        };
        Pool { summary, slots }
    }
}
