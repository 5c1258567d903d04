//! Directories of the host in rooms: where they are, what may be done there, and how long they last.

mod mounts;

use mounts::{asks, host_dir, mount, operator_says, state_of, unmount, with_mounts};
use serde_json::json;
use std::fs;
use std::os::unix::fs::MetadataExt;
use workroom_testkit::types::{MountKind, MountState, TokenScope};
use workroom_testkit::{Server, TestSession, for_each_user, within};

#[test]
fn every_kind_of_mount_is_at_its_place_and_writes_arrive_with_their_owner() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let (data, shared) = (host_dir(user, "data"), host_dir(user, "shared"));
        let (own, of_other) = (host_dir(user, "own/admin"), host_dir(user, "other"));
        let (logs, base) = (host_dir(user, "logs"), host_dir(user, "projects/site"));
        let root = user.path("host");
        let root = root.display();
        operator_says(
            &server,
            &format!(
                r#"
                [mounts]
                external = [
                    {{ name = "data", path = "{root}/data" }},
                    {{ name = "shared", path = "{root}/shared", mode = "rw" }},
                    {{ name = "mine", path = "{root}/own/{{username}}", mode = "rw" }},
                    {{ name = "his", path = "{root}/other", user = "bob" }},
                    {{ name = "none", path = "{root}/none" }},
                ]
                persistent = {{ path = "{root}/{{username}}/kept" }}
                original = [{{ path = "{root}/logs", users = ["admin"] }}]
                [mounts.bases.projects]
                path = "{root}/projects"
                users = ["*"]
                max_mode = "rw"
                "#
            ),
        );
        let request =
            with_mounts(&[asks("site", "projects", "site", "rw"), asks("all", "projects", "", "ro")]);
        let session = server.session_like(request).await;
        let reads = async |place: &str| session.says(&format!("cat {place}/file")).await;
        assert_eq!(reads("/workspace/external/ro/data").await, "of data\n");
        assert_eq!(reads("/workspace/external/rw/shared").await, "of shared\n");
        assert_eq!(reads("/workspace/external/user-rw/mine").await, "of own/admin\n");
        assert_eq!(reads("/workspace/site").await, "of projects/site\n");
        assert_eq!(reads("/workspace/all/site").await, "of projects/site\n");
        assert_eq!(reads(&logs.display().to_string()).await, "of logs\n");
        assert_eq!(session.says("ls /workspace/external").await, "ro\nrw\nuser-rw\n");
        assert_eq!(session.says("ls /workspace/external/ro").await, "data\n");

        session.says("echo new > /workspace/external/rw/shared/new").await;
        session.says("echo new > /workspace/external/user-rw/mine/new").await;
        session.says("echo kept > /workspace/persistent/new").await;
        session.says("mkdir /workspace/site/dir && echo new > /workspace/site/dir/new").await;
        let kept = user.path("host/admin/kept");
        for written in [shared.join("new"), own.join("new"), kept.join("new"), base.join("dir/new")] {
            let meta = fs::metadata(&written).unwrap_or_else(|error| panic!("{written:?}: {error}"));
            assert_eq!((meta.uid(), meta.gid()), (user.uid(), user.uid()), "{written:?}");
        }
        assert_eq!(
            session.says("stat -c %U /workspace/site/dir/new /workspace/site").await,
            "agent\nagent\n"
        );
        for place in ["/workspace/external/ro/data", "/workspace/all/site", &logs.display().to_string()] {
            let said = session.sh(&format!("echo x > {place}/file")).await;
            assert!(said.exit_code != 0 && said.stderr.contains("Read-only"), "{place}: {said:?}");
        }
        assert_eq!(fs::read_to_string(data.join("file")).expect("it"), "of data\n");
        assert!(of_other.join("file").exists());

        let record = session.show().await.mounts;
        let missing: Vec<_> = record.iter().filter(|mount| mount.state == MountState::Missing).collect();
        assert_eq!(missing.len(), 1, "{record:?}");
        assert_eq!(missing[0].place, "/workspace/external/ro/none");
        assert!(missing[0].reason.is_some() && missing[0].code.is_some(), "{missing:?}");
        let original = record.iter().find(|mount| mount.kind == MountKind::Original).expect("the original");
        assert_eq!(original.host_path.as_deref(), logs.to_str());
        let granted = session.event("mount.granted").await;
        assert!(!granted.body.to_string().contains("host_path"), "{granted:?}");
        assert_eq!(session.event("mount.denied").await.body["place"], "/workspace/external/ro/none");
    });
}

#[test]
fn a_room_changes_nothing_about_its_mounts_whatever_it_tries() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let data = host_dir(user, "data");
        operator_says(
            &server,
            &format!("[mounts.bases.data]\npath = \"{}\"\nusers = [\"*\"]\n", data.display()),
        );
        let session = server.session_like(with_mounts(&[asks("data", "data", "", "ro")])).await;
        for (what, whom) in [("agent", "agent"), ("root", "root")] {
            if whom == "root" && !user.is_root() {
                continue;
            }
            for attempt in [
                "mount -o remount,rw /workspace/data",
                "mount -o remount,bind,rw /workspace/data",
                "umount /workspace/data",
                "umount -l /workspace/data",
                "mount --bind /workspace/data /tmp",
                "touch /workspace/data/x",
                "rmdir /workspace/data",
                "mv /workspace/data /workspace/moved",
                "unshare -Urm mount -o remount,rw /workspace/data",
                "ls /workspace/data/../../workspace/data/../data.secret",
            ] {
                let said = session.run(json!({"command": attempt, "user": whom})).await;
                assert_ne!(said.exit_code, 0, "{what}: {attempt}: {said:?}");
            }
        }
        assert_eq!(session.says("cat /workspace/data/file").await, "of data\n");
        assert_eq!(fs::read_dir(&data).expect("it").count(), 1);
        let options = session.says("grep ' /workspace/data ' /proc/self/mountinfo").await;
        for option in ["ro,", "nosuid", "nodev"] {
            assert!(options.contains(option), "{options}");
        }
    });
}

#[test]
fn mounts_come_and_go_in_a_room_that_runs() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let (one, two) = (host_dir(user, "projects/one"), host_dir(user, "projects/two"));
        let root = user.path("host");
        operator_says(
            &server,
            &format!(
                "[mounts.bases.projects]\npath = \"{}/projects\"\nusers = [\"*\"]\nmax_mode = \"rw\"\n",
                root.display()
            ),
        );
        let session = server.session().await;
        session.says("sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid").await;
        let made =
            mount(&session, &[asks("one", "projects", "one", "rw"), asks("two", "projects", "two", "ro")])
                .await
                .expect("mounted");
        assert!(made.iter().all(|mount| mount.state == MountState::Mounted), "{made:?}");
        assert_eq!(
            session.says("cat /workspace/one/file /workspace/two/file").await,
            "of projects/one\nof projects/two\n"
        );
        session.says("echo live > /workspace/one/live").await;
        assert_eq!(fs::metadata(one.join("live")).expect("it").uid(), user.uid());
        assert_ne!(session.sh("echo x > /workspace/two/x").await.exit_code, 0);
        session.says("kill -0 $(cat /tmp/pid)").await;

        unmount(&session, "one").await;
        unmount(&session, "one").await;
        assert_eq!(session.says("ls -A /workspace/one 2>/dev/null; ls /workspace/two").await, "file\n");
        assert!(one.join("live").exists() && two.join("file").exists());
        assert_eq!(session.event("mount.removed").await.body["alias"], "one");

        // What is not free is not hidden, and then the other is not mounted either.
        session.says("mkdir /workspace/full && touch /workspace/full/x").await;
        let refused =
            mount(&session, &[asks("free", "projects", "one", "ro"), asks("full", "projects", "two", "ro")])
                .await
                .expect_err("refused");
        assert_eq!(mounts::denials(&refused)[0].1, "already_exists", "{refused:?}");
        assert_ne!(session.sh("cat /workspace/free/file").await.exit_code, 0);
        assert_eq!(session.show().await.mounts.len(), 1);
    });
}

#[test]
fn mounts_are_back_after_a_stop_and_after_the_servers_death() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let data = host_dir(user, "data");
        let rules = format!(
            "[mounts]\npersistent = {{ path = \"{0}/{{username}}\" }}\n[mounts.bases.data]\npath = \"{0}/data\"\nusers = [\"*\"]\n",
            user.path("host").display()
        );
        operator_says(&server, &rules);
        let session = server.session().await;
        mount(&session, &[asks("data", "data", "", "ro")]).await.expect("mounted");
        session.says("echo one > /workspace/persistent/note").await;
        session.stop().await;
        assert_eq!(state_of(&session, "/workspace/data").await, MountState::Waiting);
        assert_eq!(
            session.says("cat /workspace/data/file /workspace/persistent/note").await,
            "of data\none\n"
        );

        // The room goes on without a server, and the next one knows what it has.
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        assert_eq!(state_of(&session, "/workspace/data").await, MountState::Mounted);
        assert_eq!(session.says("cat /workspace/data/file").await, "of data\n");
        unmount(&session, "data").await;
        assert_eq!(session.says("ls -A /workspace/data 2>/dev/null | wc -l").await, "0\n");
        mount(&session, &[asks("again", "data", "", "ro")]).await.expect("mounted");
        assert_eq!(session.says("cat /workspace/again/file").await, "of data\n");

        // What is given to nobody any more stays in a room that runs, and is not in the next one.
        operator_says(&server, &rules.replace("users = [\"*\"]", "users = [\"bob\"]"));
        assert_eq!(session.says("cat /workspace/again/file").await, "of data\n");
        session.stop().await;
        session.start().await;
        assert_eq!(state_of(&session, "/workspace/again").await, MountState::Missing);
        assert_ne!(session.sh("cat /workspace/again/file").await.exit_code, 0);
        operator_says(&server, &rules);
        session.stop().await;
        assert_eq!(session.says("cat /workspace/again/file").await, "of data\n");

        // A file that nobody understands changes nothing.
        operator_says(&server, "[mounts.bases.data]\npath = 7\n");
        session.stop().await;
        assert_eq!(session.says("cat /workspace/again/file").await, "of data\n");
        assert!(data.join("file").exists());
    });
}

#[test]
fn what_is_required_and_not_there_fails_the_start_and_says_so() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let root = user.path("host");
        user.make_dir("host");
        operator_says(
            &server,
            &format!(
                "[mounts]\nexternal = [{{ name = \"x\", path = \"{}/x\", required = true }}]\n",
                root.display()
            ),
        );
        let problem = mounts::not_made(&server, json!({})).await;
        assert!(problem.detail.contains("/workspace/external/ro/x"), "{problem:?}");
        host_dir(user, "x");
        let session = server.session().await;
        session.says("cat /workspace/external/ro/x/file").await;
        // A place for everybody's own that cannot be made.
        user.make_file("host/blocked", "");
        operator_says(
            &server,
            &format!("[mounts]\npersistent = {{ path = \"{}/blocked/{{username}}\" }}\n", root.display()),
        );
        let problem = mounts::not_made(&server, json!({})).await;
        assert!(problem.detail.contains("/workspace/persistent"), "{problem:?}");
    });
}

#[test]
fn paths_of_the_host_are_for_a_sessions_owner_and_its_token_chooses_nothing() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let data = host_dir(user, "data");
        operator_says(
            &server,
            &format!("[mounts.bases.data]\npath = \"{}\"\nusers = [\"*\"]\n", data.display()),
        );
        let session = server.session_like(with_mounts(&[asks("data", "data", "", "ro")])).await;
        assert_eq!(session.show().await.mounts[0].host_path.as_deref(), data.to_str());
        let token = json!({"scope": TokenScope::Session, "session": session.id});
        let token = serde_json::from_value(token).expect("a token's fields");
        let token = server.client().create_token(&token).await.expect("a token").token.expect("its secret");
        let client = server.client_with(&token);
        let inside = TestSession::new(client.clone(), session.id.clone());
        let seen = inside.show().await;
        assert_eq!((seen.mounts.len(), seen.mounts[0].host_path.clone()), (1, None));
        let listed = within("mounts", client.mounts(&session.id)).await.expect("a list");
        assert_eq!(listed.mounts[0].host_path, None);
        let offer = within("an offer", client.mount_offer()).await.expect("an offer");
        assert_eq!((offer.bases.len(), offer.bases[0].host_path.clone()), (1, None));
        let all = serde_json::to_string(&inside.journal().await).expect("JSON");
        assert!(!all.contains(data.to_str().expect("a path")), "{all}");
        let refused = mount(&inside, &[asks("more", "data", "", "ro")]).await.expect_err("refused");
        assert_eq!(mounts::denials(&refused)[0].1, "not_authorized");
        let error = client.remove_mount(&session.id, "data").await.expect_err("refused");
        assert_eq!(error.problem().expect("a problem").status, 403);
    });
}
