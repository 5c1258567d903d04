//! Somebody swaps what a mount is made of while it is made: directories, links to outside, names above it.

mod mounts;

use mounts::{asks, host_dir, mount, operator_says, unmount, with_mounts};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use workroom_testkit::{Server, User, for_each_user};

/// How long a race goes on in the normal tests.
const FOR: Duration = Duration::from_secs(4);

/// Exchanges two names, as fast as it can, until it is dropped.
struct Swapper {
    over: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Swapper {
    fn of(user: &User, one: &str, other: &str) -> Swapper {
        let (over, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (one, other) = (user.path(one), user.path(other));
        let (ended, counted) = (over.clone(), swaps.clone());
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("exchanged");
                counted.fetch_add(1, Ordering::Relaxed);
                // Long enough for a whole mount now and then, short enough to come between its steps.
                std::thread::sleep(Duration::from_micros(counted.load(Ordering::Relaxed) % 500));
            }
        });
        Swapper { over, swaps, thread: Some(thread) }
    }

    fn swaps(&self) -> u64 {
        self.swaps.load(Ordering::Relaxed)
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A base with a directory that may be mounted, and a secret beside the base.
fn prepare(user: &User, server: &Server<'_>) {
    host_dir(user, "base/inner/deep");
    host_dir(user, "outside/deep");
    user.make_file("host/outside/canary", "escaped\n");
    user.make_file("host/outside/deep/canary", "escaped\n");
    operator_says(
        server,
        &format!(
            "[mounts.bases.base]\npath = \"{}/base\"\nusers = [\"*\"]\nmax_mode = \"rw\"\n",
            user.path("host").display()
        ),
    );
}

async fn race(user: &User, subpath: &str, lasting: Duration) {
    let server = Server::of(user);
    prepare(user, &server);
    // A link to outside stands where the directory was, and the other way round.
    symlink(user.path("host/outside"), user.path("host/base/link")).expect("a link");
    let swapper = Swapper::of(user, "host/base/inner", "host/base/link");
    let live = server.session().await;
    let (mut mounted, mut refused, mut starts) = (0, 0, 0);
    let until = Instant::now() + lasting;
    while Instant::now() < until || mounted == 0 || refused == 0 {
        assert!(Instant::now() < until + Duration::from_secs(60), "{mounted} mounted, {refused} refused");
        match mount(&live, &[asks("m", "base", subpath, "rw")]).await {
            Ok(_) => {
                mounted += 1;
                let seen = live.says("ls /workspace/m; cat /workspace/m/canary 2>/dev/null || true").await;
                assert!(!seen.contains("canary") && !seen.contains("escaped"), "{seen}");
                unmount(&live, "m").await;
            }
            Err(problem) => {
                let code = mounts::denials(&problem).remove(0).1;
                assert!(
                    ["path_escape", "path_not_found", "resolution_failed"].contains(&&*code),
                    "{problem:?}"
                );
                refused += 1;
            }
        }
        // And a whole room now and then, in which it is there from the start.
        if (mounted + refused) % 8 == 0 {
            let request =
                serde_json::from_value(with_mounts(&[asks("m", "base", subpath, "ro")])).expect("it");
            if let Ok((session, _)) = server.client().create(&request, None).await {
                starts += 1;
                let session = workroom_testkit::TestSession::new(server.client(), session.id);
                let seen = session.says("ls -R /workspace/m").await;
                assert!(!seen.contains("canary"), "{seen}");
                session.delete().await;
            }
        }
    }
    println!(
        "{subpath}: {mounted} mounted, {refused} refused, {starts} rooms, {} swaps, 0 escapes",
        swapper.swaps()
    );
    drop(swapper);
}

#[test]
fn a_directory_that_is_swapped_for_a_link_to_outside_leads_nowhere() {
    for_each_user(async |user| race(user, "inner", FOR).await);
}

#[test]
fn a_directory_above_it_that_is_swapped_leads_nowhere() {
    for_each_user(async |user| race(user, "inner/deep", FOR).await);
}

#[test]
#[ignore = "a minute and more; make soak"]
fn soak_swapped_directories_lead_nowhere() {
    for_each_user(async |user| race(user, "inner/deep", Duration::from_secs(60)).await);
}
