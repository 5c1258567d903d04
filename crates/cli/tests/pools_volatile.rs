//! What a slot writes does not wait for the disk: it outlives its room and its server, and not the machine.

use serde_json::json;
use std::fs;
use workroom_testkit::types::TakeSnapshot;
use workroom_testkit::{Server, TestPool, TestSession, User, for_each_user, run, within};

/// How the root of the session's room is mounted.
async fn root_of(session: &TestSession) -> String {
    session.says("grep ' / / ' /proc/self/mountinfo").await
}

#[test]
fn the_files_of_a_slot_wait_for_no_disk_and_outlive_its_room_and_its_server() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let pool = TestPool::set(server.client(), "p", json!({"max": 1})).await;
        let ordinary = server.session().await;
        assert!(
            !root_of(&ordinary).await.contains("volatile"),
            "a session's files are flushed when it says so"
        );
        let slot = pool.acquire("t").await.session;
        assert!(root_of(&slot).await.contains("volatile"));
        slot.says("echo kept > note; sync; sync note").await;
        for round in 0..2 {
            slot.stop().await;
            assert_eq!(slot.says("cat note").await, "kept\n", "in room {round} after the first");
            assert!(root_of(&slot).await.contains("volatile"));
        }
        let snapshot = TakeSnapshot { name: Some("s".into()) };
        within("a snapshot", server.client().take_snapshot(&slot.id, &snapshot)).await.expect("a snapshot");
        slot.says("echo more >> note").await;

        server.kill();
        server.restart();
        let again = TestPool::of(server.client(), "p").acquire("t").await;
        assert_eq!(again.lease.session, slot.id, "it is the same boot");
        assert_eq!(again.session.says("cat note").await, "kept\nmore\n");
        TestPool::of(server.client(), "p").delete().await;
        TestSession::new(server.client(), ordinary.id).delete().await;
        server.expect_no_leaks().await;
    });
}

/// The machine cannot be restarted here; what is written down of it can be changed.
#[test]
fn slots_begin_anew_when_the_machine_was_restarted() {
    run(async {
        let user = User::running_the_tests();
        let mut server = Server::of(&user);
        let pool = TestPool::set(server.client(), "p", json!({"min": 2, "max": 2})).await;
        pool.until(|pool| pool.summary.states.available == 2).await;
        let lost = pool.acquire("t").await.session;
        lost.says("echo unflushed > note").await;
        server.stop();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the boot's id");
        let store = server.state().join("store.db");
        let mut bytes = fs::read(&store).expect("the store");
        let places: Vec<usize> =
            (0..bytes.len() - 36).filter(|at| bytes[*at..].starts_with(boot.trim().as_bytes())).collect();
        assert!(places.len() >= 2, "each slot says of which boot its session is");
        for at in places {
            bytes[at..at + 36].copy_from_slice(b"00000000-0000-0000-0000-000000000000");
        }
        fs::write(&store, bytes).expect("another boot");
        server.restart();

        let pool = TestPool::of(server.client(), "p");
        assert!(!pool.release("t").await, "nobody has a slot any more");
        pool.until(|pool| pool.summary.states.available == 2).await;
        assert_eq!(server.http().get(&format!("/v1/sessions/{}", lost.id)).await.problem(404), "not_found");
        let next = pool.acquire("t").await.session;
        assert_ne!(next.id, lost.id);
        assert_eq!(next.says("ls -A").await, "");
        assert!(server.log().contains("the machine was restarted"), "{}", server.log());
        pool.delete().await;
        server.expect_no_leaks().await;
    });
}
