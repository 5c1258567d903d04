//! Mounts and what works on a session's files: neither walks through a mount to the host's.

mod mounts;

use mounts::{asks, host_dir, mount, operator_says, with_mounts};
use serde_json::json;
use std::fs;
use workroom_testkit::{Server, for_each_user, within};

#[test]
fn deleting_stops_at_a_mount_and_snapshots_diffs_and_resets_do_not_see_it() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let data = host_dir(user, "data");
        operator_says(
            &server,
            &format!(
                "[mounts]\npersistent = {{ path = \"{0}/{{username}}\" }}\n[mounts.bases.data]\npath = \"{0}/data\"\nusers = [\"*\"]\nmax_mode = \"rw\"\n",
                user.path("host").display()
            ),
        );
        let session = server.session_like(with_mounts(&[asks("data", "data", "", "rw")])).await;
        let client = session.client();
        session.says("echo kept > /workspace/persistent/note; echo more > /workspace/data/more").await;

        // The places of mounts are nothing that the session has made.
        let changed = async || {
            let answer = server.http().get(&session.path("/diff")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            answer.json()["entries"].clone()
        };
        assert_eq!(changed().await, json!([]));

        for (path, recursive) in [("data", true), ("persistent", true), ("data/file/..", true)] {
            let answer =
                server.http().delete(&session.path(&format!("/files/{path}?recursive={recursive}"))).await;
            assert!(answer.status >= 400, "{path}: {answer:?}");
        }
        session.says("mkdir /workspace/dir").await;
        mount(&session, &[asks("late", "data", "", "rw")]).await.expect("mounted");
        let answer = server.http().delete(&session.path("/files/?recursive=true")).await;
        assert!(answer.status >= 400, "{answer:?}");
        let code = server.http().delete(&session.path("/files/late?recursive=true")).await.problem(409);
        assert_eq!(code, "busy");
        assert_eq!(fs::read_to_string(data.join("more")).expect("it"), "more\n");

        // What is read there is read by the room.
        let listed = server.http().get(&session.path("/files/data/more")).await;
        assert_eq!((listed.status, listed.text().as_str()), (200, "more\n"));

        // An archive of the workspace is of the session's own; one of a mount is of what is there.
        let tar = server.http().get(&session.path("/archive?format=tar")).await;
        assert_eq!(tar.status, 200, "{tar:?}");
        assert!(!tar.text().contains("of data\n") && tar.text().contains("persistent"), "the host's files");
        let tar = server.http().get(&session.path("/archive?format=tar&path=data")).await;
        assert!(tar.status == 200 && tar.text().contains("of data\n"), "{tar:?}");

        // A moment of the session is of its own files; the host's are as they are.
        session.says("echo one > /workspace/own").await;
        within(
            "a snapshot",
            client.take_snapshot(&session.id, &serde_json::from_value(json!({"name": "one"})).expect("it")),
        )
        .await
        .expect("a snapshot");
        session.says("echo two > /workspace/own; echo two > /workspace/data/more").await;
        let back = server.http().json(&json!({"to": "one"})).post(&session.path("/reset")).await;
        assert_eq!(back.status, 200, "{back:?}");
        assert_eq!(
            session.says("cat /workspace/own /workspace/data/more /workspace/persistent/note").await,
            "one\ntwo\nkept\n"
        );
        let back = server.http().json(&json!({"to": "baseline"})).post(&session.path("/reset")).await;
        assert_eq!(back.status, 200, "{back:?}");
        assert_eq!(
            session.says("cat /workspace/data/more; ls /workspace").await,
            "two\ndata\nlate\npersistent\n"
        );
        assert_eq!(changed().await, json!([]));
        session.delete().await;
        assert_eq!(fs::read_to_string(data.join("more")).expect("it"), "two\n");
        assert_eq!(fs::read_to_string(user.path("host/admin/note")).expect("it"), "kept\n");
    });
}
