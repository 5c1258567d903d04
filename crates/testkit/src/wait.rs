//! Waiting, never for longer than a test may take.

use std::future::Future;
use std::time::{Duration, Instant};

/// Far more than anything here takes on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How often something is looked at for which no event is sent.
pub(crate) const PAUSE: Duration = Duration::from_millis(3);

/// Waits for something that must happen.
#[track_caller]
pub fn within<T, F: Future<Output = T>>(what: &'static str, work: F) -> impl Future<Output = T> + use<T, F> {
    let caller = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, work).await {
            Ok(done) => done,
            Err(_) => panic!("{caller}: {what}: not within {PATIENCE:?}"),
        }
    }
}

/// Waits until something is so, for which no event is sent; fails with the last objection.
#[track_caller]
pub fn eventually(check: impl AsyncFn() -> Result<(), String>) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + PATIENCE;
        while let Err(objection) = check().await {
            assert!(Instant::now() < deadline, "{caller}: after {PATIENCE:?}: {objection}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The same, where nothing else is to be done meanwhile.
#[track_caller]
pub fn settle(check: impl Fn() -> Result<(), String>) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(objection) = check() {
        assert!(Instant::now() < deadline, "after {PATIENCE:?}: {objection}");
        std::thread::sleep(PAUSE);
    }
}
