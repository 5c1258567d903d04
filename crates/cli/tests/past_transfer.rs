//! Whole sessions as files, and sessions that begin with files: out, in, elsewhere, and refused.

use std::fs;
use workroom_testkit::types::{ResetSession, SessionState, TakeSnapshot};
use workroom_testkit::{Server, TestSession, User, for_each_user, run};

const TREE: &str = "find . -mindepth 1 -printf '%P %y %m %l\\n' | LC_ALL=C sort; find . -type f -exec md5sum {} + | LC_ALL=C sort -k2";

/// Runs a verb that must succeed; what it says.
fn cli(server: &Server<'_>, arguments: &[&str]) -> String {
    let output = server.cli(arguments).output().expect("run");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

async fn lived_in(server: &Server<'_>) -> TestSession {
    let session = server.session_like(serde_json::json!({"name": "origin", "labels": {"a": "1"}})).await;
    session.says("mkdir -p a/b && echo seed > a/f && ln -s f a/l && echo x > gone && chmod 750 a/b").await;
    session.client().set_baseline(&session.id).await.expect("a baseline");
    session.says("rm gone && printf 'one\\0two' > a/b/bytes && mkfifo a/pipe").await;
    let request = TakeSnapshot { name: Some("mid".into()) };
    session.client().take_snapshot(&session.id, &request).await.expect("a snapshot");
    session.says("echo later > a/f && head -c 300000 /dev/urandom > big").await;
    session
}

#[test]
fn a_session_goes_to_another_server_with_its_past() {
    for_each_user(async |user| {
        let (here, there) = (Server::of(user), Server::of(user));
        let origin = lived_in(&here).await;
        let file = user.make_dir("exports").join(format!("{}.workroom", origin.id));
        cli(&here, &["export", &origin.id, file.to_str().expect("a path")]);
        let id = cli(&there, &["import", file.to_str().expect("a path")]);
        assert_ne!(id, origin.id);
        let copy = TestSession::new(there.client(), id);
        let shown = copy.show().await;
        assert_eq!((shown.name.as_str(), shown.state), ("origin", SessionState::Stopped));
        assert_eq!(copy.says(TREE).await, origin.says(TREE).await);
        for to in ["mid", "baseline"] {
            let request = ResetSession { to: Some(to.into()) };
            copy.client().reset(&copy.id, &request).await.expect("reset");
            origin.client().reset(&origin.id, &request).await.expect("reset");
            assert_eq!(copy.says(TREE).await, origin.says(TREE).await, "{to}");
        }
        assert!(copy.client().digest(&copy.id).await.expect("a digest").pristine);
        let kinds: Vec<String> = copy.journal().await.into_iter().map(|entry| entry.kind).collect();
        assert!(kinds.contains(&"imported.snapshot.taken".into()), "{kinds:?}");
        assert!(kinds.contains(&"session.imported".into()), "{kinds:?}");
        fs::remove_file(file).expect("the file");
        copy.delete().await;
        origin.delete().await;
        // Both are of one user, whose processes are counted.
        drop(here);
        there.expect_no_leaks().await;
    });
}

/// What a root's server wrote is taken up by one without privileges, and the other way round.
#[test]
fn a_session_goes_between_servers_of_different_privileges() {
    run(async {
        let (Some(root), ordinary) = (root(), User::ordinary()) else { return };
        for (from, to) in [(&root, &ordinary), (&ordinary, &root)] {
            let (here, there) = (Server::of(from), Server::of(to));
            let origin = lived_in(&here).await;
            let mut file = Vec::new();
            let mut download = origin.client().export_session(&origin.id).await.expect("a file");
            while let Some(piece) = download.next().await.expect("whole") {
                file.extend_from_slice(&piece);
            }
            let copy = there.client().import_session(file.into()).await.expect("taken up");
            let copy = TestSession::new(there.client(), copy.id);
            assert_eq!(copy.says(TREE).await, origin.says(TREE).await);
            copy.delete().await;
            origin.delete().await;
            here.expect_no_leaks().await;
            there.expect_no_leaks().await;
        }
    });
}

fn root() -> Option<User> {
    let user = User::running_the_tests();
    (user.uid() == 0).then_some(user)
}

#[test]
fn what_is_no_session_is_refused_and_leaves_nothing() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let origin = lived_in(&server).await;
        let mut whole = Vec::new();
        let mut download = origin.client().export_session(&origin.id).await.expect("a file");
        while let Some(piece) = download.next().await.expect("whole") {
            whole.extend_from_slice(&piece);
        }
        origin.delete().await;
        let mut turned = whole.clone();
        let middle = turned.len() / 2;
        turned[middle] ^= 0x40;
        for (what, bytes) in [
            ("nothing", Vec::new()),
            ("words", b"this is no session".to_vec()),
            ("half of one", whole[..middle].to_vec()),
            ("all but the last byte", whole[..whole.len() - 1].to_vec()),
            ("one with a bit turned", turned),
        ] {
            let answer = server.client().import_session(bytes.into()).await;
            let error = answer.expect_err(what);
            assert_eq!(error.code(), "archive_refused", "{what}: {error}");
        }
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_session_begins_with_a_directory_an_archive_or_a_bundle() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let dir = user.make_dir("seeds");
        let _ = fs::remove_dir_all(dir.join("tree"));
        let make = "mkdir -p tree/sub && echo one > tree/a && echo two > tree/sub/b && ln -sf a tree/link \
            && tar czf tree.tgz -C tree . && cd tree && git init -q . && git add -A \
            && git -c user.name=t -c user.email=t@t commit -qm t && git bundle create -q ../tree.bundle HEAD \
            && rm -rf .git";
        let made = user.command("sh").args(["-c", make]).current_dir(&dir).status().expect("sh");
        assert!(made.success(), "the seeds");
        for seed in ["tree", "tree.tgz", "tree.bundle"] {
            let path = dir.join(seed);
            let id = cli(&server, &["create", "--seed", path.to_str().expect("a path")]);
            let session = TestSession::new(server.client(), id);
            let says = "ls; cat a sub/b link; readlink link";
            assert_eq!(session.says(says).await, "a\nlink\nsub\none\ntwo\none\na\n", "{seed}");
            assert!(session.client().digest(&session.id).await.expect("a digest").pristine, "{seed}");
            session.says("rm -rf sub; echo spoilt > a").await;
            let spoilt = session.client().digest(&session.id).await.expect("a digest");
            assert!(!spoilt.pristine && spoilt.changes > 0, "{seed}: {spoilt:?}");
            session.client().reset(&session.id, &ResetSession::default()).await.expect("reset");
            assert_eq!(session.says("cat a sub/b").await, "one\ntwo\n", "{seed}");
            session.delete().await;
        }
        // One that cannot be seeded is not there.
        fs::write(dir.join("no.archive"), "nothing of the kind").expect("a file");
        let refused = server.cli(&["create", "--seed", dir.join("no.archive").to_str().expect("a path")]);
        assert!(!{ refused }.output().expect("run").status.success());
        server.expect_no_leaks().await;
    });
}
