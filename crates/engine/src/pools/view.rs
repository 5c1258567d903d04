//! A pool as its callers see it.

use crate::pools::keeper::Keeper;
use crate::pools::slots;
use std::sync::atomic::Ordering::Relaxed;
use workroom_types::{Pool, PoolSummary, Slot, SlotCounts, SlotState};

impl Keeper {
    /// How many slots are in which state, as far as the pool knows: whether commands run is not looked at.
    pub(super) fn counts(&self) -> SlotCounts {
        let mut counts = SlotCounts::default();
        self.slots.iter().for_each(|(_, slot)| counts.count(slot.state()));
        counts
    }

    fn seen(&self, number: u32, slot: &slots::Slot) -> Slot {
        let record = &slot.record;
        let works = |session: &String| {
            let of_actor = self.shared.owner_of(session).is_some_and(|it| it.working.load(Relaxed));
            of_actor || self.shared.shells.at_work(session)
        };
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
