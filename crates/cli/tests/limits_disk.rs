//! The disk of a session ends where its policy says, for it alone, through everything that is done to its files.

use serde_json::json;
use workroom_testkit::types::{
    DiffQuery, ForkSession, Layer, MergeSession, Policy, ResetSession, SessionState, TakeSnapshot,
    UpdateSession,
};
use workroom_testkit::{Server, TestSession, as_ordinary_user, as_root, eventually};

const MIB: u64 = 1 << 20;

/// Fills a file until there is no more space, and says how many bytes it holds.
async fn fill(session: &TestSession, file: &str) -> u64 {
    let script = format!("head -c 100000000 /dev/zero > {file}; stat -c %s {file}");
    let result = session.sh(&script).await;
    assert!(result.stderr.contains("No space left"), "{result:?}");
    result.stdout.trim().parse().expect("a size")
}

async fn limited(server: &Server<'_>, policy: serde_json::Value) -> TestSession {
    server.session_like(json!({ "policy": policy })).await
}

/// Loop devices that have a file of this server's as their content, the deleted ones included.
fn devices_of(server: &Server<'_>) -> Vec<String> {
    let state = server.state().display().to_string();
    let devices = std::fs::read_dir("/sys/block").expect("block devices").flatten();
    let content =
        |device: std::fs::DirEntry| std::fs::read_to_string(device.path().join("loop/backing_file")).ok();
    devices.filter_map(content).filter(|file| file.contains(&state)).collect()
}

async fn expect_no_devices(server: &Server<'_>) {
    eventually(async || match devices_of(server) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("devices are left: {left:?}")),
    })
    .await;
}

#[test]
fn a_session_that_fills_its_disk_is_told_and_its_neighbour_does_not_notice() {
    as_root(async |user| {
        let server = Server::of(user);
        let session = limited(&server, json!({ "disk": 16 * MIB, "require": ["disk"] })).await;
        let neighbour = limited(&server, json!({ "disk": 16 * MIB })).await;
        assert!(session.show().await.enforced.holds(Layer::Disk));
        for file in ["/workspace/f", "/tmp/f", "/home/agent/f"] {
            let size = fill(&session, file).await;
            assert!((14 * MIB..=17 * MIB).contains(&size), "{size} bytes in {file}");
            session.says(&format!("rm {file} && echo ok > {file} && cat {file}")).await;
        }
        fill(&session, "full").await;
        neighbour.says("head -c 8000000 /dev/zero > f").await;
        let free = session.says("df --output=size -B1 / | tail -1").await;
        assert!(free.trim().parse::<u64>().expect("a size") < 40 * MIB, "{free}");
        let entry = session.event("limit.disk").await;
        assert_eq!(entry.body["limit"], 16 * MIB, "{entry:?}");
        // An upload that does not fit is told which limit it is, not that the server is unwell.
        let large = workroom_testkit::client::Upload::from(vec![0; 20 * MIB as usize]);
        let to = workroom_testkit::client::WriteFile { path: "large".into(), ..Default::default() };
        let refused = session.client().upload(&session.id, &to, large).await;
        let problem = refused.expect_err("too large").problem().cloned().expect("a problem");
        assert_eq!((problem.status, problem.limit.as_deref()), (429, Some("disk")), "{problem:?}");
        assert_ne!(session.sh("test -e large").await.exit_code, 0);
        session.delete().await;
        neighbour.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn files_end_where_their_number_does() {
    as_root(async |user| {
        let server = Server::of(user);
        let session = limited(&server, json!({ "inodes": 200 })).await;
        let many = "mkdir d; i=0; while [ $i -lt 500 ] && : > d/$i; do i=$((i+1)); done 2>/dev/null; echo $i";
        let made: u64 = session.says(many).await.trim().parse().expect("a count");
        assert!((180..260).contains(&made), "{made} files");
        // There is space for more in those that there are.
        session.says("head -c 5000000 /dev/zero > d/1").await;
    });
}

#[test]
fn a_limit_holds_through_snapshots_forks_resets_merges_and_exports() {
    as_root(async |user| {
        let server = Server::of(user);
        let session = limited(&server, json!({ "disk": 16 * MIB })).await;
        session.says("head -c 6000000 /dev/zero > six && echo first > f").await;
        let snapshot = TakeSnapshot { name: Some("one".into()) };
        session.client().take_snapshot(&session.id, &snapshot).await.expect("a snapshot");
        session.says("cat f && echo second > f").await;

        let forked = session.client().fork(&session.id, &ForkSession::default()).await.expect("a fork");
        let fork = TestSession::new(server.client(), forked.forks[0].session.id.clone());
        assert_eq!(fork.says("cat f").await, "second\n");
        assert!(fork.show().await.enforced.holds(Layer::Disk), "a fork has its source's policy");
        assert!((14 * MIB..=17 * MIB).contains(&fill(&fork, "f2").await));
        fork.says("rm f2 && echo forked > g").await;

        // While something runs the layer is copied where it is.
        session.says("sleep 300 > /dev/null 2>&1 &").await;
        let busy = TakeSnapshot { name: Some("busy".into()) };
        let taken = session.client().take_snapshot(&session.id, &busy).await.expect("a snapshot");
        assert_eq!(taken.name, "busy");
        session.says("pkill sleep; cat f").await;

        let diff = session.client().diff(&session.id, &DiffQuery::default()).await.expect("a difference");
        assert!(diff.entries.iter().any(|change| change.path == "f"), "{diff:?}");
        let merge = MergeSession { from: fork.id.clone(), restart: true, ..MergeSession::default() };
        session.client().merge(&session.id, &merge).await.expect("merged");
        assert_eq!(session.says("cat g").await, "forked\n");
        assert!((14 * MIB..=17 * MIB).contains(&fill(&session, "again").await), "and after a merge");

        let reset = ResetSession { to: Some("one".into()) };
        session.client().reset(&session.id, &reset).await.expect("reset");
        assert_eq!(session.says("cat f; ls").await, "first\nf\nsix\n");

        let mut file = session.client().export_session(&session.id).await.expect("an export");
        let mut bytes = Vec::new();
        while let Some(piece) = file.next().await.expect("a piece") {
            bytes.extend_from_slice(&piece);
        }
        let upload = workroom_testkit::client::Upload::from(bytes);
        let imported = session.client().import_session(upload).await.expect("an import");
        let imported = TestSession::new(server.client(), imported.id);
        assert_eq!(imported.says("cat f").await, "first\n");
        assert!((14 * MIB..=17 * MIB).contains(&fill(&imported, "full").await));

        session.stop().await;
        session.start().await;
        assert_eq!(session.says("cat f").await, "first\n", "it is there after a stop");
        for session in [&session, &fork, &imported] {
            session.delete().await;
        }
        expect_no_devices(&server).await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_limit_that_changes_holds_from_the_next_start_and_files_stay() {
    as_root(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.says("echo before > f").await;
        for disk in [12 * MIB, 24 * MIB] {
            let policy = Policy { disk: Some(disk), ..Policy::default() };
            session.update(UpdateSession { policy: Some(policy), ..UpdateSession::default() }).await;
            let view = session.client().policy(&session.id).await.expect("a policy");
            assert!(view.pending.contains(&"disk".to_owned()), "{view:?}");
            session.stop().await;
            assert_eq!(session.says("cat f").await, "before\n");
            let size = fill(&session, "full").await;
            assert!((disk - 2 * MIB..=disk + MIB).contains(&size), "{size} of {disk}");
            session.says("rm full").await;
        }
    });
}

#[test]
fn nothing_is_left_mounted_when_servers_and_rooms_are_killed() {
    as_root(async |user| {
        let mut server = Server::of(user);
        let session = limited(&server, json!({ "disk": 16 * MIB })).await;
        session.says("echo kept > f && sync").await;
        server.kill();
        server.restart();
        let session = TestSession::new(server.client(), session.id);
        assert_eq!(session.says("cat f").await, "kept\n", "its room went on");
        assert!(session.show().await.enforced.holds(Layer::Disk));
        for process in server.room_processes() {
            let pid = rustix::process::Pid::from_raw(process.pid).expect("a pid");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        eventually(async || match session.state().await {
            SessionState::Stopped => Ok(()),
            state => Err(format!("{state:?}")),
        })
        .await;
        expect_no_devices(&server).await;
        assert_eq!(session.says("cat f").await, "kept\n", "and so did its files");
        session.delete().await;
        expect_no_devices(&server).await;
        let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
        assert!(!mounts.contains("/dev/loop"), "{mounts}");
    });
}

#[test]
fn where_nothing_can_hold_it_a_limit_is_advisory_and_cannot_be_required() {
    as_ordinary_user(async |user| {
        let server = Server::of(user);
        let session = limited(&server, json!({ "disk": 2 * MIB })).await;
        let shown = serde_json::to_value(session.show().await.enforced).expect("JSON");
        assert_eq!(shown["disk"]["state"], "partial", "{shown}");
        assert!(shown["disk"]["by"].as_str().is_some_and(|by| by.starts_with("advisory")), "{shown}");
        let asked = json!({ "policy": { "disk": 2 * MIB, "require": ["disk"] } });
        let refused = server.http().json(&asked).post("/v1/sessions").await;
        assert_eq!(refused.problem(422), "layer_missing");
    });
}

/// What looks like a layer's file system, in a directory that somebody else has filled, is a file like any other.
#[test]
fn nothing_is_mounted_because_of_what_is_in_a_host_directory() {
    as_root(async |user| {
        let dir = user.make_dir("workspace");
        let mut image = vec![0; 4096];
        image[1080..1082].copy_from_slice(&[0x53, 0xef]);
        for place in ["image", "loop", "fs/image", "fs/loop"] {
            std::fs::create_dir_all(dir.join("fs")).expect("a directory");
            std::fs::write(dir.join(place), &image).expect("a file");
        }
        for (source, listed) in [(dir.clone(), "fs\nimage\nloop\n"), (dir.join("fs"), "image\nloop\n")] {
            let workspace = source.display().to_string();
            let run =
                user.command(user.program()).args(["run", "--workspace", &workspace, "--", "ls"]).output();
            let output = run.expect("workroom run");
            assert_eq!(String::from_utf8_lossy(&output.stdout), listed, "{output:?}");
        }
    });
}
