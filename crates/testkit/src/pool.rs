//! A pool under test, in as few words as a test is read with.

use crate::session::{TestSession, refused};
use crate::wait::{eventually, within};
use workroom_client::Client;
use workroom_types::{AcquireSlot, Lease, Pool, PoolSpec, Problem, Slot, SlotCounts};

pub struct TestPool {
    pub name: String,
    client: Client,
}

/// A slot that a test has.
pub struct TestLease {
    pub lease: Lease,
    pub session: TestSession,
}

impl TestPool {
    /// Set as the API has it.
    pub async fn set(client: Client, name: &str, spec: serde_json::Value) -> TestPool {
        let pool = TestPool { name: name.to_owned(), client };
        pool.change(spec).await;
        pool
    }

    /// One that is there.
    pub fn of(client: Client, name: &str) -> TestPool {
        TestPool { name: name.to_owned(), client }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub async fn change(&self, spec: serde_json::Value) -> Pool {
        let spec: PoolSpec = serde_json::from_value(spec).expect("a pool's fields");
        within("a pool", self.client.set_pool(self.name.as_str(), &spec)).await.expect("a pool").0
    }

    pub async fn show(&self) -> Pool {
        within("the pool", self.client.pool(self.name.as_str())).await.expect("the pool")
    }

    pub async fn states(&self) -> SlotCounts {
        self.show().await.summary.states
    }

    pub async fn slots(&self) -> Vec<Slot> {
        self.show().await.slots
    }

    /// Waits until the pool is as it should be.
    #[track_caller]
    pub fn until(&self, is_so: impl Fn(&Pool) -> bool) -> impl Future<Output = ()> {
        eventually(async move || {
            let pool = self.show().await;
            if is_so(&pool) { Ok(()) } else { Err(format!("{pool:?}")) }
        })
    }

    pub async fn acquire(&self, trajectory: &str) -> TestLease {
        self.acquire_for(trajectory, 600_000).await
    }

    /// For so many milliseconds.
    pub async fn acquire_for(&self, trajectory: &str, lease_ms: u64) -> TestLease {
        let request = AcquireSlot {
            trajectory: trajectory.to_owned(),
            wait_ms: Some(25_000),
            lease_ms: Some(lease_ms),
        };
        let lease = within("a slot", self.client.acquire(self.name.as_str(), &request)).await;
        let lease = lease.expect("a slot");
        let session = TestSession::new(self.client.clone(), lease.session.clone());
        TestLease { lease, session }
    }

    /// Why none is to be had within so many milliseconds.
    pub async fn refuses(&self, trajectory: &str, wait_ms: u64) -> Problem {
        let request =
            AcquireSlot { trajectory: trajectory.to_owned(), wait_ms: Some(wait_ms), lease_ms: None };
        refused(within("an answer", self.client.acquire(self.name.as_str(), &request)).await)
    }

    pub async fn release(&self, trajectory: &str) -> bool {
        within("a release", self.client.release(self.name.as_str(), trajectory)).await.expect("released")
    }

    pub async fn delete(&self) {
        within("a deletion", self.client.delete_pool(self.name.as_str())).await.expect("deleted");
    }
}
