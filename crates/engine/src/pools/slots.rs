//! The slots of a pool: which there are, who has them, which are free, which wait for a room.

use crate::pools::record::{FoundSlot, Held, SlotRecord, Term, boot};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use tokio::time::Instant;
use workroom_types::{SlotState, Timestamp};

pub(super) struct Slot {
    pub(super) record: SlotRecord,
    /// Since when it is as it is.
    pub(super) since: Instant,
    /// When the lease of who has it is over.
    until: Option<Instant>,
    /// Why it could not be made as new.
    pub(super) reason: Option<String>,
    /// Whether it was in use before: what it is doing without a session is then a reset.
    was_used: bool,
}

impl Slot {
    pub(super) fn state(&self) -> SlotState {
        match (&self.record.session, &self.record.held, &self.reason) {
            (Some(_), Some(_), _) => SlotState::Acquired,
            (Some(_), None, _) => SlotState::Available,
            (None, _, None) => SlotState::Resetting,
            (None, _, Some(_)) => SlotState::Error,
        }
    }

    pub(super) fn is_available(&self) -> bool {
        self.state() == SlotState::Available
    }
}

/// Every change goes through here, so that the books agree.
#[derive(Default)]
pub(super) struct Slots {
    all: BTreeMap<u32, Slot>,
    available: BTreeSet<u32>,
    by_trajectory: HashMap<String, u32>,
    /// Those without a session, the one that waits longest first.
    wanting: VecDeque<u32>,
    /// Those whose record is not written down yet, and those that are to be struck out.
    pub(super) unwritten: BTreeSet<u32>,
}

impl Slots {
    /// As an earlier server has left them. Leases go on from what the time is.
    pub(super) fn found(slots: Vec<FoundSlot>, now: Timestamp) -> Slots {
        let mut books = Slots::default();
        for FoundSlot { number, record } in slots {
            match (&record.session, &record.held) {
                (None, _) => books.wanting.push_back(number),
                (Some(_), None) => {
                    books.available.insert(number);
                }
                (Some(_), Some(_)) => {}
            }
            if let Some(held) = &record.held {
                books.by_trajectory.insert(held.trajectory.clone(), number);
            }
            let was_used = record.uses > 0;
            let until = record.held.as_ref().map(|held| held.until(now));
            books.all.insert(number, Slot { record, since: Instant::now(), until, reason: None, was_used });
        }
        books
    }

    pub(super) fn len(&self) -> u32 {
        self.all.len() as u32
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.all.iter().map(|(number, slot)| (*number, slot))
    }

    pub(super) fn get(&self, number: u32) -> Option<&Slot> {
        self.all.get(&number)
    }

    pub(super) fn of(&self, trajectory: &str) -> Option<u32> {
        self.by_trajectory.get(trajectory).copied()
    }

    pub(super) fn first_available(&self) -> Option<u32> {
        self.available.first().copied()
    }

    /// Slots that wait for a session and that nobody has: those who wait for a slot may hope for them.
    pub(super) fn coming(&self) -> usize {
        self.wanting.iter().filter(|number| self.all[number].record.held.is_none()).count()
    }

    pub(super) fn wanting(&self) -> usize {
        self.wanting.len()
    }

    pub(super) fn add(&mut self) {
        let number = (0..).find(|number| !self.all.contains_key(number)).unwrap_or_default();
        let slot = Slot {
            record: SlotRecord::default(),
            since: Instant::now(),
            until: None,
            reason: None,
            was_used: false,
        };
        self.all.insert(number, slot);
        self.wanting.push_back(number);
        self.unwritten.insert(number);
    }

    /// Takes a slot out of the books; its session, if it has one, is the caller's to end.
    pub(super) fn remove(&mut self, number: u32) -> Option<String> {
        let slot = self.all.remove(&number)?;
        self.available.remove(&number);
        self.wanting.retain(|other| *other != number);
        if let Some(held) = slot.record.held {
            self.by_trajectory.remove(&held.trajectory);
        }
        self.unwritten.insert(number);
        slot.record.session
    }

    pub(super) fn hold(&mut self, number: u32, trajectory: String, term: Term) {
        let Some(slot) = self.all.get_mut(&number) else { return };
        self.available.remove(&number);
        self.by_trajectory.insert(trajectory.clone(), number);
        slot.record.held = Some(Held::new(trajectory, term));
        slot.until = Some(term.until);
        slot.record.uses += 1;
        slot.since = Instant::now();
        slot.was_used = true;
        self.unwritten.insert(number);
    }

    /// Gives the lease another term.
    pub(super) fn extend(&mut self, number: u32, term: Term) {
        let Some(slot) = self.all.get_mut(&number) else { return };
        if let Some(held) = slot.record.held.as_mut() {
            *held = Held::new(std::mem::take(&mut held.trajectory), term);
            slot.until = Some(term.until);
            self.unwritten.insert(number);
        }
    }

    /// Nobody has it any more.
    pub(super) fn let_go(&mut self, number: u32) -> Option<Held> {
        let slot = self.all.get_mut(&number)?;
        let held = slot.record.held.take()?;
        slot.until = None;
        self.by_trajectory.remove(&held.trajectory);
        self.unwritten.insert(number);
        Some(held)
    }

    /// Takes its session away, which is the caller's to end; it waits for another.
    pub(super) fn empty(&mut self, number: u32) -> Option<String> {
        let slot = self.all.get_mut(&number)?;
        self.available.remove(&number);
        let session = slot.record.session.take()?;
        slot.since = Instant::now();
        self.wanting.push_back(number);
        self.unwritten.insert(number);
        Some(session)
    }

    /// Gives a session to the slot that waits longest. Its number, and since when it waits if that is a reset.
    pub(super) fn supply(&mut self, session: String, generation: u64) -> Option<(u32, Option<Instant>)> {
        let number = self.wanting.pop_front()?;
        let slot = self.all.get_mut(&number)?;
        slot.record.session = Some(session);
        slot.record.generation = generation;
        slot.record.boot = Some(boot().to_owned());
        slot.reason = None;
        let waited = slot.was_used.then_some(slot.since);
        slot.since = Instant::now();
        if slot.record.held.is_none() {
            self.available.insert(number);
        }
        self.unwritten.insert(number);
        Some((number, waited))
    }

    /// No session can be made for those that wait for one.
    pub(super) fn fail(&mut self, reason: &str) {
        for number in &self.wanting {
            if let Some(slot) = self.all.get_mut(number) {
                slot.reason = Some(reason.to_owned());
            }
        }
    }

    /// Those whose lease is over by now.
    pub(super) fn expired(&self, now: Instant) -> Vec<u32> {
        let over = |slot: &Slot| slot.until.is_some_and(|until| until <= now);
        self.iter().filter(|(_, slot)| over(slot)).map(|(number, _)| number).collect()
    }

    pub(super) fn lease_end(&self, number: u32) -> Option<Instant> {
        self.all.get(&number)?.until
    }

    pub(super) fn next_lease_end(&self) -> Option<Instant> {
        self.all.values().filter_map(|slot| slot.until).min()
    }

    /// The last of those that nobody has, which goes first when there are too many.
    pub(super) fn beyond(&self) -> Option<u32> {
        self.all.iter().rev().find(|(_, slot)| slot.record.held.is_none()).map(|(number, _)| *number)
    }

    /// The last of those that nobody has wanted since before then.
    pub(super) fn idle(&self, since: Instant) -> Option<u32> {
        self.available.iter().rev().copied().find(|number| self.all[number].since <= since)
    }

    /// When the first of those that wait for somebody began to.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.available.iter().map(|number| self.all[number].since).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn term(lasts: Duration) -> Term {
        Term::of(lasts.as_millis() as u64)
    }

    fn hold(slots: &mut Slots, number: u32, trajectory: &str) {
        slots.hold(number, trajectory.into(), term(Duration::from_secs(100)));
    }

    #[test]
    fn a_slot_goes_from_hand_to_hand_with_another_session_each_time() {
        let mut slots = Slots::default();
        slots.add();
        slots.add();
        assert_eq!((slots.first_available(), slots.coming()), (None, 2));
        assert_eq!(slots.supply("s1".into(), 1), Some((0, None)));
        hold(&mut slots, 0, "t");
        assert_eq!((slots.of("t"), slots.first_available(), slots.coming()), (Some(0), None, 1));
        let end = slots.next_lease_end().expect("a lease");
        assert_eq!(slots.expired(end - Duration::from_millis(1)), Vec::<u32>::new());
        assert_eq!(slots.expired(end), [0]);
        assert_eq!(slots.let_go(0).map(|held| held.trajectory), Some("t".to_owned()));
        assert_eq!((slots.next_lease_end(), slots.expired(end)), (None, Vec::new()));
        assert_eq!(slots.empty(0), Some("s1".into()));
        assert_eq!(slots.empty(0), None);
        // The other one has waited longer.
        assert_eq!(slots.supply("s2".into(), 1).map(|(number, _)| number), Some(1));
        let (number, waited) = slots.supply("s3".into(), 1).expect("one that waits");
        assert_eq!((number, waited.is_some()), (0, true));
        assert_eq!(slots.supply("s4".into(), 1), None);
        assert_eq!(slots.of("t"), None);
    }

    #[test]
    fn one_that_is_reset_for_its_holder_stays_the_holders() {
        let mut slots = Slots::default();
        slots.add();
        slots.supply("s1".into(), 1);
        hold(&mut slots, 0, "t");
        assert_eq!(slots.empty(0), Some("s1".into()));
        assert_eq!(slots.coming(), 0);
        slots.supply("s2".into(), 1);
        assert_eq!((slots.of("t"), slots.first_available()), (Some(0), None));
    }

    #[test]
    fn what_goes_first_is_what_nobody_has_or_waits_in() {
        let mut slots = Slots::default();
        (0..3).for_each(|_| slots.add());
        for number in 0..2 {
            slots.supply(format!("s{number}"), 1);
        }
        hold(&mut slots, 0, "t");
        let long_ago = Instant::now() - Duration::from_secs(1);
        assert_eq!((slots.beyond(), slots.idle(long_ago)), (Some(2), None));
        assert_eq!(slots.remove(2), None);
        assert_eq!((slots.beyond(), slots.idle(Instant::now())), (Some(1), Some(1)));
        assert_eq!(slots.remove(1), Some("s1".into()));
        assert_eq!((slots.beyond(), slots.idle(Instant::now())), (None, None));
        slots.add();
        assert_eq!(slots.iter().map(|(number, _)| number).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_lease_that_is_found_goes_on_for_what_is_left_of_it_and_never_for_more() {
        const HOUR: i64 = 3_600_000;
        let noon = Timestamp(1_767_225_600_000);
        let left_at = |now: i64, lease_ms: Option<u64>| {
            let held = Held { trajectory: "t".into(), lease_end: Timestamp(noon.0 + HOUR), lease_ms };
            let record = SlotRecord { session: Some("s".into()), held: Some(held), ..SlotRecord::default() };
            let slots = Slots::found(vec![FoundSlot { number: 0, record }], Timestamp(now));
            let left = slots.next_lease_end().expect("a lease").saturating_duration_since(Instant::now());
            // To the minute: some time has passed since.
            (left.as_secs() + 30) / 60
        };
        let hour = Some(HOUR as u64);
        assert_eq!(left_at(noon.0, hour), 60);
        assert_eq!(left_at(noon.0 + HOUR / 2, hour), 30);
        assert_eq!(left_at(noon.0 + 2 * HOUR, hour), 0);
        assert_eq!(left_at(noon.0 - 24 * HOUR, hour), 60, "the clock was set back meanwhile");
        assert_eq!(left_at(noon.0, None), 60, "a record from before");
    }
}
