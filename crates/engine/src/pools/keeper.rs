//! The one owner of a pool: a task that holds its slots and its stock of new rooms, and gives out the one to the other.
//!
//! Making and ending rooms is done by tasks beside it, which say when they are done. What is asked of it in one moment is
//! written down in one commit, and answered when that is on the disk. An answer that could not be written down is a refusal;
//! what was done all the same is undone by the lease's end, or found by asking again.

use crate::pools::asks::{Answer, Ask, Reply, Waiter};
use crate::pools::end::end;
use crate::pools::figures::Figures;
use crate::pools::make::{Prepared, acquired, make, trace_in};
use crate::pools::record::{Definition, Found, Term, put_slot};
use crate::pools::slots::Slots;
use crate::shared::Shared;
use crate::storage;
use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use workroom_store::Change;
use workroom_types::{Lease, Problem, ProblemCode};

/// Calls that wait for a slot of one pool.
const MOST_WAITING: usize = 10_000;

/// What is asked in one moment and shares a commit.
const MOST_TOGETHER: usize = 512;

/// How often rooms that wait for somebody are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How soon a room that could not be made is tried again, at first and at most.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
const AGAIN_AFTER_AT_MOST: Duration = Duration::from_secs(15);

/// Seconds.
const USUAL_IDLE: u64 = 300;

pub(super) struct Keeper {
    pub(super) shared: Arc<Shared>,
    pub(super) pool: Arc<Definition>,
    pub(super) slots: Slots,
    /// New rooms that no slot has.
    pub(super) stock: VecDeque<Prepared>,
    pub(super) waiters: VecDeque<Waiter>,
    /// Those who have had their slot made as new, until it is.
    resets: Vec<(u32, Instant, Reply<Lease>)>,
    answers: Vec<Answer>,
    entries: Vec<Change>,
    /// Since when those waited who have a slot now, until that is written down.
    waited_since: Vec<Instant>,
    asks: mpsc::Receiver<Ask>,
    made: mpsc::UnboundedReceiver<Result<Prepared, Problem>>,
    says_made: mpsc::UnboundedSender<Result<Prepared, Problem>>,
    /// Rooms that are being made.
    making: usize,
    most_making: usize,
    /// Why the last room could not be made, how often in a row, and when the next is tried.
    pub(super) trouble: Option<(Problem, u32, Instant)>,
    pub(super) looked: Instant,
    /// When what could not be written down is tried again.
    write_again: Option<Instant>,
    pub(super) figures: Arc<Figures>,
    pub(super) deleted: bool,
}

impl Keeper {
    pub(super) fn new(
        shared: Arc<Shared>,
        found: Found,
        asks: mpsc::Receiver<Ask>,
        figures: Arc<Figures>,
    ) -> Keeper {
        let (says_made, made) = mpsc::unbounded_channel();
        let now = shared.clock.now();
        Keeper {
            shared,
            pool: Arc::new(found.definition),
            slots: Slots::found(found.slots, now),
            stock: VecDeque::new(),
            waiters: VecDeque::new(),
            resets: Vec::new(),
            answers: Vec::new(),
            entries: Vec::new(),
            waited_since: Vec::new(),
            asks,
            made,
            says_made,
            making: 0,
            most_making: std::thread::available_parallelism().map_or(4, |cores| cores.get()).clamp(2, 16),
            trouble: None,
            looked: Instant::now(),
            write_again: None,
            figures,
            deleted: false,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            if self.looked.elapsed() >= LOOK_EVERY {
                self.look_after().await;
            }
            self.tidy();
            self.settle().await;
            let deadline = self.deadline();
            tokio::select! {
                biased;
                Some(made) = self.made.recv() => self.on_made(made),
                ask = self.asks.recv() => match ask {
                    Some(ask) => self.on_ask(ask).await,
                    None => return,
                },
                () = tokio::time::sleep_until(deadline) => {}
            }
            // What else has come meanwhile shares the commit.
            for _ in 0..MOST_TOGETHER {
                if self.deleted {
                    break;
                } else if let Ok(made) = self.made.try_recv() {
                    self.on_made(made);
                } else if let Ok(ask) = self.asks.try_recv() {
                    self.on_ask(ask).await;
                } else {
                    break;
                }
            }
            if self.deleted {
                return self.leave();
            }
        }
    }

    /// Rooms that come now are for nobody; those that come later find nobody to tell.
    fn leave(mut self) {
        self.made.close();
        while let Ok(made) = self.made.try_recv() {
            if let Ok(prepared) = made {
                self.end(prepared.session);
            }
        }
    }

    async fn on_ask(&mut self, ask: Ask) {
        match ask {
            Ask::Show { reply } => drop(reply.send(Ok(self.show()))),
            Ask::Seed { reply } => drop(reply.send(Ok(self.pool.spec.seed.clone()))),
            Ask::Set { spec, seed, actor, reply } => {
                let done = self.set(*spec, seed, &actor).await;
                self.tidy();
                let _ = reply.send(done.map(|()| self.show()));
            }
            Ask::Delete { actor, reply } => drop(reply.send(self.delete(&actor).await)),
            Ask::Acquire { trajectory, wait, lease_ms, actor, reply } => {
                // Whoever has a session may have deleted it.
                let lost = |session: &String| self.shared.owner_of(session).is_none();
                let slot = self.slots.of(&trajectory).and_then(|number| self.slots.get(number));
                if slot.is_some_and(|slot| slot.record.session.as_ref().is_some_and(lost)) {
                    self.look_after().await;
                }
                if let Some(number) = self.slots.of(&trajectory) {
                    self.acquire_again(number, lease_ms, Duration::ZERO, reply);
                    return;
                }
                if self.waiters.len() >= MOST_WAITING {
                    let detail =
                        format!("{MOST_WAITING} calls wait for a slot of {} already", self.pool.name);
                    self.figures.refused.fetch_add(1, Relaxed);
                    let refusal = Problem::limit("pool_queue", detail, "try again later").retry_after(1);
                    let _ = reply.send(Err(refusal));
                    return;
                }
                let since = Instant::now();
                let waiter = Waiter { trajectory, lease_ms, since, deadline: since + wait, actor, reply };
                self.waiters.push_back(waiter);
            }
            Ask::Release { trajectory, reply } => {
                // Whoever waits for one on its behalf does so no longer.
                let (over, others): (VecDeque<Waiter>, _) =
                    take(&mut self.waiters).into_iter().partition(|waiter| waiter.trajectory == trajectory);
                self.waiters = others;
                over.into_iter().for_each(|waiter| drop(waiter.reply.send(Err(self.no_lease(&trajectory)))));
                let slot = self.slots.of(&trajectory);
                if let Some(number) = slot {
                    self.figures.released.fetch_add(1, Relaxed);
                    self.give_back(number);
                }
                self.answers.push(Answer::Released(reply, slot.is_some()));
            }
            Ask::Extend { trajectory, lease_ms, reply } => match self.slots.of(&trajectory) {
                Some(number) => {
                    self.slots.extend(number, Term::of(lease_ms));
                    self.answer(number, Duration::ZERO, reply);
                }
                None => drop(reply.send(Err(self.no_lease(&trajectory)))),
            },
            Ask::Find { trajectory, reply } => match self.slots.of(&trajectory) {
                Some(number) => self.answer(number, Duration::ZERO, reply),
                None => drop(reply.send(Err(self.no_lease(&trajectory)))),
            },
            Ask::Reset { trajectory, reply } => match self.slots.of(&trajectory) {
                Some(number) => {
                    self.vacate(number);
                    self.resets.push((number, Instant::now(), reply));
                }
                None => drop(reply.send(Err(self.no_lease(&trajectory)))),
            },
        }
    }

    fn on_made(&mut self, made: Result<Prepared, Problem>) {
        self.making -= 1;
        match made {
            Ok(prepared) if prepared.generation != self.pool.generation => self.end(prepared.session),
            Ok(prepared) => {
                self.trouble = None;
                self.stock.push_back(prepared);
            }
            Err(problem) => {
                self.failed(&format!("{}: {}", self.pool.name, problem));
                self.slots.fail(&problem.to_string());
                let now = Instant::now();
                let (times, again) =
                    self.trouble.as_ref().map_or((0, now), |(_, times, again)| (*times, *again));
                // Those that were being made at the same time have failed once, together.
                if again <= now {
                    let wait = (AGAIN_AFTER * 2u32.saturating_pow(times.min(10))).min(AGAIN_AFTER_AT_MOST);
                    self.trouble = Some((problem, times + 1, now + wait));
                }
            }
        }
    }

    pub(super) fn failed(&self, what: &str) {
        self.figures.failures.fetch_add(1, Relaxed);
        tracing::warn!(pool = %self.pool.name, owner = %self.pool.owner, what, "a slot's room is of no use");
    }

    /// Brings everything to where it is to be now: leases that are over, those who wait, slots that are too many or too
    /// few, and rooms to come.
    fn tidy(&mut self) {
        for number in self.slots.expired(Instant::now()) {
            self.figures.expired.fetch_add(1, Relaxed);
            self.give_back(number);
        }
        self.waiters.retain(|waiter| !waiter.reply.is_closed());
        self.shrink();
        self.supply();
        self.serve();
        self.grow();
        self.supply();
        self.serve();
        self.refuse();
        self.make_more();
        self.figures.stands(self.counts(), self.stock.len() as u32, self.waiters.len() as u32);
    }

    fn shrink(&mut self) {
        let idle = Duration::from_secs(self.pool.spec.idle.unwrap_or(USUAL_IDLE));
        while self.slots.len() > self.pool.spec.max
            && let Some(number) = self.slots.beyond()
        {
            self.drop_slot(number);
        }
        if let Some(long_ago) = Instant::now().checked_sub(idle) {
            while self.slots.len() > self.pool.spec.min.unwrap_or(0)
                && let Some(number) = self.slots.idle(long_ago)
            {
                self.drop_slot(number);
            }
        }
    }

    fn drop_slot(&mut self, number: u32) {
        if let Some(session) = self.slots.remove(number) {
            self.end(session);
        }
    }

    fn grow(&mut self) {
        let hoped_for = self.slots.coming();
        let more = self.waiters.len().saturating_sub(hoped_for) as u32;
        let wanted = (self.slots.len().saturating_add(more)).max(self.pool.spec.min.unwrap_or(0));
        for _ in self.slots.len()..wanted.min(self.pool.spec.max) {
            self.slots.add();
        }
    }

    /// Gives new rooms to slots that have none.
    fn supply(&mut self) {
        while self.slots.wanting() > 0 {
            let Some(Prepared { session, generation }) = self.stock.pop_front() else { return };
            if let Some(trace) = trace_in(&self.shared, &session) {
                self.failed(trace);
                self.end(session);
                continue;
            }
            let Some((number, resets_since)) = self.slots.supply(session.clone(), generation) else { return };
            // As of now it can be handed out; that it was is written down with whoever gets it.
            if let Some(since) = resets_since {
                self.figures.reset_in(since.elapsed());
            }
            if self.slots.get(number).is_some_and(|slot| slot.record.held.is_some()) {
                self.shared.pools.lease(&session);
            }
            let done = self.resets.extract_if(.., |(waits_for, ..)| *waits_for == number).collect::<Vec<_>>();
            for (number, since, reply) in done {
                self.answer(number, since.elapsed(), reply);
            }
        }
    }

    /// Gives slots to those who wait, in the order in which they came.
    fn serve(&mut self) {
        while let Some(waiter) = self.waiters.pop_front() {
            if let Some(number) = self.slots.of(&waiter.trajectory) {
                self.acquire_again(number, waiter.lease_ms, waiter.since.elapsed(), waiter.reply);
                continue;
            }
            let Some(number) = self.next_new() else {
                self.waiters.push_front(waiter);
                return;
            };
            let Waiter { trajectory, lease_ms, since, actor, reply, .. } = waiter;
            let term = Term::of(lease_ms);
            let session = self.slots.get(number).and_then(|slot| slot.record.session.clone());
            if let Some(session) = session {
                self.shared.pools.lease(&session);
                self.entries.push(acquired(&session, &actor, &trajectory, term.end));
            }
            self.slots.hold(number, trajectory, term);
            self.waited_since.push(since);
            self.answer(number, since.elapsed(), reply);
        }
    }

    /// The slot that the trajectory has, for at least as long as it wants from now on.
    fn acquire_again(&mut self, number: u32, lease_ms: u64, waited: Duration, reply: Reply<Lease>) {
        let term = Term::of(lease_ms);
        if self.slots.lease_end(number).is_some_and(|until| until < term.until) {
            self.slots.extend(number, term);
        }
        self.answer(number, waited, reply);
    }

    /// A slot that may be handed out.
    fn next_new(&mut self) -> Option<u32> {
        while let Some(number) = self.slots.first_available() {
            if self.is_new(number) {
                return Some(number);
            }
        }
        None
    }

    /// Whether a slot may be handed out. One that may not gets another room.
    pub(super) fn is_new(&mut self, number: u32) -> bool {
        let Some(slot) = self.slots.get(number) else { return false };
        let is_current = slot.record.generation == self.pool.generation;
        let trace = match &slot.record.session {
            Some(session) if is_current => trace_in(&self.shared, session),
            _ => None,
        };
        if let Some(trace) = trace {
            self.failed(trace);
        } else if is_current {
            return true;
        }
        self.vacate(number);
        false
    }

    fn refuse(&mut self) {
        let now = Instant::now();
        if self.waiters.iter().all(|waiter| waiter.deadline > now) {
            return;
        }
        let (late, early) = take(&mut self.waiters).into_iter().partition(|waiter| waiter.deadline <= now);
        self.waiters = early;
        let late: VecDeque<Waiter> = late;
        for waiter in late {
            self.figures.refused.fetch_add(1, Relaxed);
            let waited = waiter.since.elapsed().as_millis();
            let refusal = match &self.trouble {
                Some((problem, ..)) if self.slots.wanting() > 0 => problem.clone(),
                _ => {
                    let (name, max) = (&self.pool.name, self.pool.spec.max);
                    let detail = format!("no slot of {name} came free in {waited} ms; it has {max} at most");
                    Problem::limit("pool", detail, "wait longer, release slots, or raise the pool's max")
                        .retry_after(1)
                }
            };
            let _ = waiter.reply.send(Err(refusal));
        }
    }

    /// Has rooms made for slots without one, and for those that will be released.
    fn make_more(&mut self) {
        let spares = self.spares();
        while self.stock.len() > spares + self.slots.wanting() {
            if let Some(prepared) = self.stock.pop_back() {
                self.end(prepared.session);
            }
        }
        if self.trouble.as_ref().is_some_and(|(.., again)| *again > Instant::now()) {
            return;
        }
        let wanted = (self.slots.wanting() + spares).saturating_sub(self.stock.len());
        // While none can be made, one at a time is tried.
        let most = if self.trouble.is_some() { 1 } else { self.most_making };
        while self.making < wanted.min(most) {
            self.making += 1;
            let (shared, pool, says_made) = (self.shared.clone(), self.pool.clone(), self.says_made.clone());
            tokio::spawn(async move {
                let made = make(shared.clone(), pool).await;
                // The pool is gone: nobody will have it.
                if let Err(mpsc::error::SendError(Ok(prepared))) = says_made.send(made) {
                    end(shared, prepared.session).await;
                }
            });
        }
    }

    /// Rooms to be ready beside the slots, as long as there are any.
    fn spares(&self) -> usize {
        let usual = (self.pool.spec.max / 4).clamp(2, 16);
        let spares = self.pool.spec.reset.unwrap_or_default().spares.unwrap_or(usual);
        if self.slots.len() == 0 { 0 } else { spares as usize }
    }

    pub(super) fn give_back(&mut self, number: u32) {
        let held = self.slots.let_go(number);
        self.vacate(number);
        let in_vain = self.resets.extract_if(.., |(waits_for, ..)| *waits_for == number).collect::<Vec<_>>();
        let trajectory = held.map(|held| held.trajectory).unwrap_or_default();
        in_vain.into_iter().for_each(|(_, _, reply)| drop(reply.send(Err(self.no_lease(&trajectory)))));
    }

    pub(super) fn vacate(&mut self, number: u32) {
        if let Some(session) = self.slots.empty(number) {
            self.end(session);
        }
    }

    /// From here on nobody may use the session; it is gone a moment later.
    pub(super) fn end(&self, session: String) {
        self.shared.pools.close(&session);
        tokio::spawn(end(self.shared.clone(), session));
    }

    fn answer(&mut self, number: u32, waited: Duration, reply: Reply<Lease>) {
        let Some(slot) = self.slots.get(number) else { return };
        let (Some(session), Some(held)) = (&slot.record.session, &slot.record.held) else {
            // It is being reset: the answer is its new session.
            self.resets.push((number, Instant::now(), reply));
            return;
        };
        let lease = Lease {
            pool: self.pool.name.clone(),
            slot: number,
            session: session.clone(),
            trajectory: held.trajectory.clone(),
            lease_end: held.lease_end,
            waited_ms: (waited.as_secs_f64() * 1e6).round() / 1e3,
        };
        self.answers.push(Answer::Lease(reply, lease));
    }

    /// Writes down what has changed, then says so to those who asked for it.
    async fn settle(&mut self) {
        let mut changes: Vec<Change> = Vec::new();
        for number in &self.slots.unwritten {
            let record = self.slots.get(*number).map(|slot| &slot.record);
            changes.push(put_slot(&self.pool.session, *number, record));
        }
        changes.append(&mut self.entries);
        let written = match changes.is_empty() {
            true => Ok(()),
            false => self.shared.store.commit(changes).await.map(drop).map_err(storage),
        };
        match &written {
            Ok(()) => {
                self.slots.unwritten.clear();
                self.write_again = None;
            }
            Err(problem) => {
                tracing::warn!(pool = %self.pool.name, %problem, "slots are not written down yet");
                self.write_again = Some(Instant::now() + Duration::from_secs(1));
            }
        }
        self.waited_since.drain(..).for_each(|since| self.figures.waited(since.elapsed()));
        for answer in self.answers.drain(..) {
            match answer {
                Answer::Lease(reply, lease) => drop(reply.send(written.clone().map(|()| lease))),
                Answer::Released(reply, done) => drop(reply.send(written.clone().map(|()| done))),
            }
        }
    }

    fn deadline(&self) -> Instant {
        let now = Instant::now();
        let lease = self.slots.next_lease_end();
        let waiter = self.waiters.iter().map(|waiter| waiter.deadline).min();
        let idle = Duration::from_secs(self.pool.spec.idle.unwrap_or(USUAL_IDLE));
        let has_more = self.slots.len() > self.pool.spec.min.unwrap_or(0);
        let shrink = self.slots.idle_since().filter(|_| has_more).and_then(|since| since.checked_add(idle));
        let trouble = self.trouble.as_ref().map(|(.., again)| *again).filter(|again| *again > now);
        let look = Some(self.looked + LOOK_EVERY);
        [lease, waiter, shrink, trouble, self.write_again, look].into_iter().flatten().min().unwrap_or(now)
    }

    fn no_lease(&self, trajectory: &str) -> Problem {
        Problem::new(
            ProblemCode::NotFound,
            format!("{} has no slot of {}", crate::validate::shown(trajectory), self.pool.name),
            "its lease may be over; acquire one",
        )
    }
}
