//! Clients that take slots and die: their leases end, and nothing of them is left.

mod violence;

use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use violence::Dice;
use workroom_testkit::types::AcquireSlot;
use workroom_testkit::{Server, TestPool, User, eventually, run};

const CLIENTS: usize = 8;

#[test]
fn slots_of_clients_that_died_come_back() {
    abandon(150);
}

#[test]
#[ignore = "long"]
fn soak_slots_of_ten_thousand_clients_that_died_come_back() {
    abandon(10_000);
}

/// Open descriptors of the server, and its memory in KiB.
fn cost_of(server: &Server<'_>) -> (usize, u64) {
    let of = |what: &str| format!("/proc/{}/{what}", server.pid());
    let files = std::fs::read_dir(of("fd")).expect("descriptors").count();
    let status = std::fs::read_to_string(of("status")).expect("a status");
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("memory");
    (files, memory.trim().trim_end_matches(" kB").parse().expect("a number"))
}

fn abandon(leases: usize) {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let pool = TestPool::set(server.client(), "p", json!({"min": 2, "max": CLIENTS, "idle": 1})).await;
        let mut dice = Dice::new();
        // What is made once, is made by now.
        let warm = leases / 10;
        take(&server, warm, &mut dice).await;
        quiet(&pool).await;
        let before = cost_of(&server);
        let mut taken = warm;
        while taken < leases {
            let some = (leases - taken).min(2000);
            take(&server, some, &mut dice).await;
            taken += some;
            println!("{taken} abandoned: {:?}", cost_of(&server));
        }
        quiet(&pool).await;
        let after = cost_of(&server);
        println!("descriptors and KiB: {before:?}, then {after:?}");
        assert!(after.0 <= before.0 + 64, "descriptors: {before:?}, then {after:?}");
        assert!(after.1 <= before.1 + (64 << 10), "memory: {before:?}, then {after:?}");
        let metrics = pool.show().await.summary.metrics;
        assert_eq!(metrics.acquired, metrics.expired, "{metrics:?}");
        assert_eq!(metrics.failures, 0, "{metrics:?}");
        // Of all those sessions only the slots, the spares and what stands for the pool itself are there.
        eventually(async || {
            let listed = server.http().get("/v1/sessions?pool=p&limit=1000").await.expect(200);
            let count = listed["sessions"].as_array().expect("a list").len();
            let shown = pool.show().await;
            let expected = shown.slots.len() + shown.summary.spares as usize + 1;
            if count <= expected {
                Ok(())
            } else {
                Err(format!("{count} sessions, and {expected} are to be"))
            }
        })
        .await;
        pool.delete().await;
        server.expect_no_leaks().await;
    });
}

/// Until every lease is over and the pool has shrunk.
async fn quiet(pool: &TestPool) {
    pool.until(|pool| {
        let summary = &pool.summary;
        summary.states.available == 2 && pool.slots.len() == 2 && summary.waiting == 0
    })
    .await;
}

/// So many leases of clients that do not come back.
async fn take(server: &Server<'_>, leases: usize, dice: &mut Dice) {
    let left = Arc::new(AtomicUsize::new(leases));
    let mut clients = tokio::task::JoinSet::new();
    for client_number in 0..CLIENTS {
        let (left, mut dice) = (left.clone(), dice.fork());
        let http = server.client();
        clients.spawn(async move {
            while left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                let trajectory = format!("{client_number}-{:x}", dice.next());
                let lease_ms = 1 + dice.below(60);
                let request = AcquireSlot { trajectory, wait_ms: Some(25_000), lease_ms: Some(lease_ms) };
                let wish = http.acquire("p", &request);
                if dice.below(5) == 0 {
                    // Dies before it is answered.
                    let _ = tokio::time::timeout(dice.moment(5), wish).await;
                    continue;
                }
                let lease = wish.await.expect("a slot");
                if dice.below(3) == 0 {
                    let command =
                        serde_json::from_value(json!({"command": "echo x > x; sleep 1000 & sleep 1000"}));
                    let exec = command.expect("a command");
                    let _ = tokio::time::timeout(dice.moment(20), http.exec(&lease.session, &exec)).await;
                }
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client that did as it should");
    }
}
