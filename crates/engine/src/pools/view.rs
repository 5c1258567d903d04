//! A pool as its callers see it.

use crate::pools::keeper::Keeper;
use std::sync::atomic::Ordering::Relaxed;
use workroom_types::{Pool, PoolSummary, Slot, SlotCounts, SlotState};

impl Keeper {
    pub(super) fn states(&self) -> (SlotCounts, Vec<Slot>) {
        let mut counts = SlotCounts::default();
        let mut slots = Vec::new();
        for (number, slot) in self.slots.iter() {
            let record = &slot.record;
            let state = match (&record.session, &record.held, &slot.reason) {
                (Some(_), Some(_), _) => SlotState::Acquired,
                (Some(_), None, _) => SlotState::Available,
                (None, _, None) => SlotState::Resetting,
                (None, _, Some(_)) => SlotState::Error,
            };
            counts.count(state);
            slots.push(Slot {
                slot: number,
                state,
                session: record.session.clone(),
                trajectory: record.held.as_ref().map(|held| held.trajectory.clone()),
                lease_end: record.held.as_ref().map(|held| held.lease_end),
                uses: record.uses,
                reason: slot.reason.clone(),
            });
        }
        (counts, slots)
    }

    pub(super) fn show(&self) -> Pool {
        let (_, mut slots) = self.states();
        let mut states = SlotCounts::default();
        for slot in &mut slots {
            let works = |session: &String| {
                let of_actor = self.shared.owner_of(session).is_some_and(|it| it.working.load(Relaxed));
                of_actor || self.shared.shells.at_work(session)
            };
            if slot.state == SlotState::Acquired && slot.session.as_ref().is_some_and(works) {
                slot.state = SlotState::Executing;
            }
            states.count(slot.state);
        }
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
