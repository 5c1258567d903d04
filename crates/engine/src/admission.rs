//! Who may have a room now, and who waits: quotas, and a queue that is fair between owners.

use crate::config::Quotas;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use workroom_types::Problem;

/// Seconds after which another try makes sense: rooms come and go, and nobody can know when.
const RETRY_AFTER: u64 = 5;

#[derive(Clone)]
pub(crate) struct Admission {
    shared: Arc<Mutex<Books>>,
    quotas: Quotas,
}

#[derive(Default)]
struct Books {
    live: u64,
    by_owner: HashMap<String, u64>,
    /// Those who wait, by owner; and the owners in the order in which they are served.
    waiting: HashMap<String, VecDeque<(u64, oneshot::Sender<Place>)>>,
    turns: VecDeque<String>,
    queued: u64,
    next_ticket: u64,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({})", self.owner)
    }
}

/// The right to one room. Given back when it is dropped.
pub(crate) struct Place {
    owner: String,
    admission: Admission,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut books = self.admission.books();
        books.live = books.live.saturating_sub(1);
        if let Some(count) = books.by_owner.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                books.by_owner.remove(&self.owner);
            }
        }
        let granted = self.admission.grant(&mut books);
        drop(books);
        // Outside the lock: a place that nobody takes any more is dropped here, and comes back this way.
        for (waiter, place) in granted {
            let _ = waiter.send(place);
        }
    }
}

impl Admission {
    pub(crate) fn new(quotas: Quotas) -> Admission {
        Admission { shared: Arc::default(), quotas }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place now, or a refusal that names the quota.
    pub(crate) fn try_enter(&self, owner: &str) -> Result<Place, Problem> {
        let mut books = self.books();
        self.refusal(&books, owner).map_or(Ok(()), Err)?;
        Ok(self.enter(&mut books, owner))
    }

    /// A place for a room that is there already, whatever the quotas say by now.
    pub(crate) fn enter_anyway(&self, owner: &str) -> Place {
        self.enter(&mut self.books(), owner)
    }

    /// A place, now or within `wait`.
    pub(crate) async fn enter_within(&self, owner: &str, wait: Duration) -> Result<Place, Problem> {
        let (ticket, waiter) = {
            let mut books = self.books();
            // Those who wait already are before us.
            let refusal = self.refusal(&books, owner);
            if refusal.is_none() && !books.waiting.contains_key(owner) {
                return Ok(self.enter(&mut books, owner));
            }
            // A full queue is full for those who wait in it; for others there is as much again, one place each.
            let most = if books.waiting.contains_key(owner) {
                self.quotas.queue
            } else {
                self.quotas.queue.saturating_mul(2)
            };
            if books.queued >= most {
                let detail = format!("{} sessions wait for a place already", books.queued);
                return Err(Problem::limit("queue", detail, "try again later").retry_after(RETRY_AFTER));
            }
            let (sender, receiver) = oneshot::channel();
            let ticket = books.next_ticket;
            books.next_ticket += 1;
            books.queued += 1;
            if !books.waiting.contains_key(owner) {
                books.turns.push_back(owner.to_owned());
            }
            books.waiting.entry(owner.to_owned()).or_default().push_back((ticket, sender));
            (ticket, receiver)
        };
        // Also when the caller gives up: its place in the queue is not left behind.
        let leave = LeaveQueue { admission: self, owner, ticket };
        let wait = wait.min(self.quotas.longest_wait);
        let waited = tokio::time::timeout(wait, waiter).await;
        drop(leave);
        match waited {
            Ok(Ok(place)) => Ok(place),
            _ => Err(self.refusal(&self.books(), owner).unwrap_or_else(|| {
                Problem::limit("queue", format!("no place was free within {} s", wait.as_secs_f32()), "")
                    .retry_after(RETRY_AFTER)
            })),
        }
    }

    pub(crate) fn live(&self) -> u64 {
        self.books().live
    }

    pub(crate) fn queued(&self) -> u64 {
        self.books().queued
    }

    fn enter(&self, books: &mut Books, owner: &str) -> Place {
        books.live += 1;
        *books.by_owner.entry(owner.to_owned()).or_default() += 1;
        Place { owner: owner.to_owned(), admission: self.clone() }
    }

    fn refusal(&self, books: &Books, owner: &str) -> Option<Problem> {
        let over = |quota: u64, used: u64| quota > 0 && used >= quota;
        let hint = "stop or delete a session, or wait for a place with ?wait=SECONDS";
        if over(self.quotas.live, books.live) {
            let detail = format!("{} sessions have rooms, which is the most here", books.live);
            return Some(Problem::limit("live", detail, hint).retry_after(RETRY_AFTER));
        }
        let own = books.by_owner.get(owner).copied().unwrap_or(0);
        if over(self.quotas.live_per_user, own) {
            let detail = format!("{own} sessions of {owner} have rooms, which is the most for one user");
            return Some(Problem::limit("live_per_user", detail, hint).retry_after(RETRY_AFTER));
        }
        None
    }

    /// Gives free places to those who wait: one to each owner in turn.
    fn grant(&self, books: &mut Books) -> Vec<(oneshot::Sender<Place>, Place)> {
        let mut granted = Vec::new();
        // Who cannot be served now keeps their turn; who was served goes to the end.
        let (mut passed_over, mut served) = (VecDeque::new(), VecDeque::new());
        while let Some(owner) = books.turns.pop_front() {
            if self.refusal(books, &owner).is_some() {
                passed_over.push_back(owner);
                continue;
            }
            let queue = books.waiting.get_mut(&owner);
            let Some((_, waiter)) = queue.and_then(VecDeque::pop_front) else {
                books.waiting.remove(&owner);
                continue;
            };
            books.queued -= 1;
            granted.push((waiter, self.enter(books, &owner)));
            if books.waiting.get(&owner).is_some_and(VecDeque::is_empty) {
                books.waiting.remove(&owner);
            } else {
                served.push_back(owner);
            }
        }
        books.turns = passed_over;
        books.turns.append(&mut served);
        granted
    }
}

struct LeaveQueue<'a> {
    admission: &'a Admission,
    owner: &'a str,
    ticket: u64,
}

impl Drop for LeaveQueue<'_> {
    fn drop(&mut self) {
        let mut books = self.admission.books();
        let Some(queue) = books.waiting.get_mut(self.owner) else { return };
        let before = queue.len();
        queue.retain(|(ticket, _)| *ticket != self.ticket);
        let left = before - queue.len();
        if queue.is_empty() {
            books.waiting.remove(self.owner);
            books.turns.retain(|owner| owner != self.owner);
        }
        books.queued -= left as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(live: u64, live_per_user: u64, queue: u64) -> Admission {
        Admission::new(Quotas {
            live,
            live_per_user,
            created_per_user_per_day: 0,
            queue,
            longest_wait: Duration::from_secs(60),
        })
    }

    #[tokio::test]
    async fn a_quota_is_named_and_a_place_comes_back() {
        let admission = admission(2, 1, 10);
        let first = admission.try_enter("ann").expect("a place");
        let refused = admission.try_enter("ann").expect_err("refused");
        assert_eq!(refused.limit.as_deref(), Some("live_per_user"));
        let _second = admission.try_enter("bob").expect("a place");
        assert_eq!(admission.try_enter("cay").err().and_then(|p| p.limit).as_deref(), Some("live"));
        drop(first);
        assert!(admission.try_enter("cay").is_ok());
    }

    /// One owner with a long queue does not keep another waiting behind all of it.
    #[tokio::test]
    async fn the_queue_serves_owners_in_turn() {
        let admission = admission(1, 0, 10);
        let mut place = Some(admission.try_enter("ann").expect("a place"));
        let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
        for (ahead, owner) in ["ann", "ann", "ann", "bob"].into_iter().enumerate() {
            let (queue, served) = (admission.clone(), served.clone());
            tokio::spawn(async move {
                if let Ok(place) = queue.enter_within(owner, Duration::from_secs(30)).await {
                    let _ = served.send((owner, place));
                }
            });
            // In this order.
            while admission.queued() <= ahead as u64 {
                tokio::task::yield_now().await;
            }
        }
        let mut seen = Vec::new();
        for _ in 0..4 {
            drop(place.take());
            let (owner, next) = order.recv().await.expect("served");
            seen.push(owner);
            place = Some(next);
        }
        assert_eq!(seen, ["ann", "bob", "ann", "ann"]);
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_who_leaves_makes_room() {
        let admission = admission(1, 0, 1);
        let _held = admission.try_enter("ann").expect("a place");
        let waiting = admission.clone();
        let waits =
            tokio::spawn(async move { waiting.enter_within("bob", Duration::from_secs(30)).await.is_ok() });
        while admission.queued() == 0 {
            tokio::task::yield_now().await;
        }
        let refused = admission.enter_within("bob", Duration::from_secs(30)).await.expect_err("refused");
        assert_eq!(refused.limit.as_deref(), Some("queue"));
        // One owner's long queue is not the end of everybody's: another is still taken into it.
        let other = admission.enter_within("cay", Duration::from_millis(5)).await.expect_err("refused");
        assert_eq!(other.limit.as_deref(), Some("live"));
        waits.abort();
        let _ = waits.await;
        assert_eq!(admission.queued(), 0);
        let late = admission.enter_within("cay", Duration::from_millis(5)).await.expect_err("refused");
        assert_eq!(late.limit.as_deref(), Some("live"));
        assert_eq!(admission.queued(), 0);
    }
}
