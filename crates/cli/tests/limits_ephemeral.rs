//! What an ephemeral session writes ends where its policy says, also without privileges, and ends with its room.

use serde_json::json;
use workroom_testkit::types::{
    DiffQuery, ForkSession, Layer, Policy, ProblemCode, ResetSession, SessionState, TakeSnapshot,
    UpdateSession,
};
use workroom_testkit::{Server, TestPool, TestSession, for_each_user};

const MIB: u64 = 1 << 20;

#[test]
fn its_disk_is_hard_for_everybody_and_survives_the_server_but_not_the_room() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let policy = json!({ "ephemeral": true, "disk": 16 * MIB, "inodes": 300, "require": ["disk"] });
        let session = server.session_like(json!({ "policy": policy })).await;
        assert!(session.show().await.enforced.holds(Layer::Disk));
        for file in ["/workspace/f", "/tmp/f", "/home/agent/f"] {
            let script = format!("head -c 100000000 /dev/zero > {file}; stat -c %s {file}; rm {file}");
            let result = session.sh(&script).await;
            assert!(result.stderr.contains("No space left"), "{result:?}");
            let size: u64 = result.stdout.trim().parse().expect("a size");
            assert!((14 * MIB..=16 * MIB).contains(&size), "{size} bytes in {file}");
        }
        let many = "mkdir d; i=0; while [ $i -lt 500 ] && : > d/$i; do i=$((i+1)); done 2>/dev/null; echo $i; rm -r d";
        let made: u64 = session.says(many).await.trim().parse().expect("a count");
        assert!((200..300).contains(&made), "{made} files");
        session.sh("head -c 100000000 /dev/zero > full").await;
        let event = session.event("limit.disk").await;
        assert_eq!(
            (&event.body["limit"], &event.body["enforced"]),
            (&json!(16 * MIB), &json!(true)),
            "{event:?}"
        );

        session.says("rm full; echo kept > f").await;
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id);
        assert_eq!(session.says("cat f").await, "kept\n", "its room went on");
        assert!(session.show().await.enforced.holds(Layer::Disk));
        session.stop().await;
        assert_eq!(session.says("ls -A").await, "", "nothing is left of the room");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn it_stands_on_what_was_kept_and_nothing_is_told_of_what_is_not() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.says("echo kept > f").await;
        let id = session.id.as_str();
        let client = session.client();
        client.take_snapshot(id, &TakeSnapshot { name: Some("one".into()) }).await.expect("a snapshot");
        session.says("echo more > g").await;
        let ephemeral = Policy { ephemeral: Some(true), ..Policy::default() };
        session.update(UpdateSession { policy: Some(ephemeral), ..UpdateSession::default() }).await;
        let view = client.policy(id).await.expect("a policy");
        assert_eq!(view.pending, ["ephemeral"]);
        client.diff(id, &DiffQuery::default()).await.expect("its room still writes to the disk");

        session.stop().await;
        assert_eq!(session.says("cat f g; rm f; echo other > g; echo new > h").await, "kept\nmore\n");
        let state = |refused: Result<(), workroom_testkit::client::ClientError>| {
            refused.expect_err("in memory").problem().map(|problem| (problem.status, problem.code))
        };
        let refused = Some((409, ProblemCode::WrongState));
        assert_eq!(state(client.take_snapshot(id, &TakeSnapshot::default()).await.map(drop)), refused);
        assert_eq!(state(client.fork(id, &ForkSession::default()).await.map(drop)), refused);
        assert_eq!(state(client.diff(id, &DiffQuery::default()).await.map(drop)), refused);
        assert_eq!(state(client.digest(id).await.map(drop)), refused);
        assert_eq!(state(client.export_session(id).await.map(drop)), refused);
        assert_eq!(session.says("cat g h; ls").await, "other\nnew\ng\nh\n", "nothing happened to it");

        session.stop().await;
        // Now nothing is anywhere but on the disk.
        client.diff(id, &DiffQuery::default()).await.expect("a difference");
        assert_eq!(session.says("cat f g; ls").await, "kept\nmore\nf\ng\n");
        let to = ResetSession { to: Some("one".into()) };
        client.reset(id, &to).await.expect("reset");
        assert_eq!(session.says("ls; echo x > x").await, "f\n");
        assert_eq!(session.state().await, SessionState::Running);
    });
}

#[test]
fn slots_in_memory_stand_on_their_seed_and_the_next_trajectory_finds_nothing() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let seed = server.session().await;
        seed.says("echo seeded > seed").await;
        let policy = json!({ "ephemeral": true, "disk": 4 * MIB, "require": ["disk"] });
        let spec = json!({ "max": 1, "policy": policy, "seed": { "session": seed.id } });
        let pool = TestPool::set(server.client(), "p", spec).await;
        for trajectory in ["one", "two"] {
            let slot = pool.acquire(trajectory).await;
            assert_eq!(slot.session.says("ls; cat seed; rm seed; echo x > left").await, "seed\nseeded\n");
            let full = slot.session.sh("head -c 9000000 /dev/zero > full").await;
            assert!(full.stderr.contains("No space left"), "{full:?}");
            assert!(pool.release(trajectory).await);
        }
        pool.delete().await;
        seed.delete().await;
        server.expect_no_leaks().await;
    });
}
