//! A full disk: no acknowledgement, no damage, reads go on, and it works again by itself once there is space.

mod support;

use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Dir, entry, insert, numbers, session, with_entries};
use workroom_store::{Change, Settings, Store};
use workroom_types::{SessionState, Timestamp};

/// A file system of a few megabytes, where root may mount one.
struct Small(Dir);

impl Small {
    fn mount(megabytes: u32) -> Option<Small> {
        let dir = Dir::new();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(dir.path())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Small(dir));
        }
        println!("skipped: a tmpfs cannot be mounted here");
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all the space there is.
    fn fill(&self) {
        let mut filler = std::fs::File::create(self.path().join("filler")).expect("a file");
        for size in [1 << 20, 4096, 1] {
            let bytes = vec![1u8; size];
            while filler.write_all(&bytes).is_ok() {}
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.path().join("filler")).expect("the filler is removed");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn big(session: &str, number: i64) -> Change {
    let Change::Journal { at, actor, kind, .. } = entry(session, number) else { unreachable!() };
    let body = json!({ "number": number, "text": "x".repeat(100_000) });
    Change::Journal { session: session.into(), at, actor, kind, body }
}

#[tokio::test]
async fn commits_fail_reads_go_on_and_it_recovers() {
    let Some(small) = Small::mount(24) else { return };
    let store = Store::open(small.path()).await.expect("the store opens");
    with_entries(&store, "s", 10).await;
    small.fill();

    let mut acknowledged: Vec<i64> = (1..=10).collect();
    let mut failed = 0;
    for number in 100..200 {
        match store.commit(vec![big("s", number), insert(session(&format!("n{number}")))]).await {
            Ok(_) => acknowledged.push(number),
            Err(error) => {
                assert!(error.is_full(), "{error}");
                assert!(error.to_string().contains("free some space"), "{error}");
                failed += 1;
                assert_eq!(store.session(&format!("n{number}")).await.unwrap(), None, "half applied");
            }
        }
    }
    assert!(failed > 50, "{failed}");
    store.note(big("s", 500)).await;
    assert!(store.writable().await.is_err());
    assert_eq!(numbers(&store, "s").await, acknowledged, "reads go on");
    assert_eq!(store.verify(None).await.unwrap().faults, []);
    assert_eq!(store.counters().waiting, 1);

    small.free();
    store.commit(vec![entry("s", 600)]).await.expect("it works again");
    store.writable().await.expect("it works again");
    acknowledged.extend([500, 600]);
    assert_eq!(numbers(&store, "s").await, acknowledged, "the note that waited comes before what came later");
    assert_eq!(store.verify(None).await.unwrap().faults, []);
    assert_eq!((store.counters().waiting, store.counters().dropped), (0, 0));
    store.close().await;
}

#[tokio::test]
async fn what_was_set_aside_lets_sessions_be_stopped_and_deleted() {
    let Some(small) = Small::mount(128) else { return };
    let settings = Settings {
        ballast_first: Duration::ZERO,
        ballast_every: Duration::from_millis(50),
        ..Settings::default()
    };
    let store = Store::open_with(small.path(), settings).await.expect("the store opens");
    for number in 0..100 {
        with_entries(&store, &format!("s{number}"), 1).await;
    }
    let ballast = small.path().join("ballast");
    let ballast_is = |size: u64| {
        let ballast = ballast.clone();
        async move {
            let deadline = Instant::now() + Duration::from_secs(20);
            while std::fs::metadata(&ballast).map_or(0, |file| file.len()) != size {
                assert!(Instant::now() < deadline, "the ballast is not of {size} bytes");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    ballast_is(16 << 20).await;
    small.fill();

    // Grow until there is nothing left to grow into.
    let mut number = 1000;
    let error = loop {
        if let Err(error) = store.commit(vec![big("s0", number)]).await {
            break error;
        }
        number += 1;
    };
    assert!(error.is_full(), "{error}");
    ballast_is(0).await;
    for number in 0..50 {
        let error = store.commit(vec![insert(session(&format!("new{number}")))]).await.unwrap_err();
        assert!(error.is_full() && error.to_string().contains("kept for stopping and deleting"), "{error}");
    }
    for number in 0..100 {
        let id = format!("s{number}");
        let mut row = session(&id);
        row.session.state = SessionState::Stopped;
        store.commit(vec![Change::SaveSession { row }, entry(&id, 2)]).await.expect("stopping works");
        let delete = Change::DeleteSession { id: id.clone(), at: Timestamp(1) };
        store.commit(vec![delete, entry(&id, 3)]).await.expect("deleting works");
    }
    assert!(store.writable().await.unwrap_err().is_full(), "it is not ready for new things");

    small.free();
    with_entries(&store, "new", 1).await;
    ballast_is(16 << 20).await;
    assert_eq!(store.verify(None).await.unwrap().faults, []);
    store.close().await;
}
