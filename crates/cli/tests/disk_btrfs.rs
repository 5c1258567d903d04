//! Sessions whose layers are subvolumes: a real btrfs with quotas, and a server with its state on it.
//!
//! Where the kernel has no btrfs, or its programs are not installed, these say so and are skipped (`make btrfs`).

use serde_json::{Value, json};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Output};
use workroom_sys::mount::{Attributes, directory, make_private};
use workroom_sys::namespace::{Namespaces, unshare};
use workroom_testkit::types::{
    DiffQuery, ForkSession, Layer, MergeSession, Policy, ResetSession, TakeSnapshot, UpdateSession,
    UsageQuery,
};
use workroom_testkit::{Server, Setup, TestSession, User, as_root, eventually};

const MIB: u64 = 1 << 20;

/// Quotas as an operator may have switched them on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quotas {
    Off,
    Simple,
    Full,
}

/// A btrfs in a file, mounted where this thread and what it starts see it, and nobody else.
struct Pool {
    place: PathBuf,
}

impl Pool {
    /// Of a size that no test here comes near.
    fn new(user: &User, quotas: Quotas) -> Option<Pool> {
        let known = std::fs::read_to_string("/proc/filesystems").expect("file systems");
        if !known.lines().any(|line| line.trim() == "btrfs") {
            println!("skipped: this kernel has no btrfs");
            return None;
        }
        if Command::new("mkfs.btrfs").arg("--version").output().is_err() {
            println!("skipped: mkfs.btrfs is not installed; `make btrfs` does that");
            return None;
        }
        unshare(Namespaces::MOUNT).expect("mounts of its own");
        make_private(directory("/").expect("/").as_fd(), Attributes::NONE).expect("mounts that stay here");
        let image = user.path(&format!("btrfs-{quotas:?}"));
        std::fs::File::create(&image).and_then(|file| file.set_len(4 << 30)).expect("a file");
        let place = user.make_dir(&format!("pool-{quotas:?}"));
        let (from, to) = (image.to_str().expect("a name"), place.to_str().expect("a name"));
        done(&["mkfs.btrfs", "--quiet", from]);
        // It commits often, so that what is deleted is soon gone.
        done(&["mount", "-o", "loop,commit=1", from, to]);
        let pool = Pool { place: place.clone() };
        match quotas {
            Quotas::Off => {}
            Quotas::Full => drop(done(&["btrfs", "quota", "enable", to])),
            Quotas::Simple => {
                // Older programs know nothing of them; the kernel does.
                let ioctl = "use Fcntl; sysopen(my $d, $ARGV[0], O_RDONLY) or die $!; \
                             my $b = pack('QQ', 4, 0); ioctl($d, 0xc0109428, $b) or die $!";
                let known = command(&["btrfs", "quota", "enable", "--simple", to]);
                if !known.status.success() {
                    done(&["perl", "-e", ioctl, to]);
                }
            }
        }
        Some(pool)
    }

    fn server<'a>(&self, user: &'a User) -> Server<'a> {
        Setup::of(user).state(&self.place.join("state")).start()
    }

    fn subvolumes(&self) -> Vec<String> {
        lines(&done(&["btrfs", "subvolume", "list", &self.path()]))
    }

    /// Groups of subvolumes, but for that of the whole.
    fn groups(&self) -> Vec<String> {
        let shown = lines(&done(&["btrfs", "qgroup", "show", "-r", "--raw", &self.path()]));
        shown.into_iter().filter(|line| line.starts_with("0/") && !line.starts_with("0/5 ")).collect()
    }

    /// What `workroom doctor` says of sessions' disks there.
    fn doctor(&self, user: &User) -> String {
        let mut command = user.command(user.program());
        let output = command.args(["doctor", "--json", "--state"]).arg(self.place.join("state")).output();
        let told: Value = serde_json::from_slice(&output.expect("a doctor").stdout).expect("JSON");
        let facts = told["machine"].as_array().expect("facts");
        let fact = facts.iter().find(|fact| fact["name"] == "quota").expect("a word on quotas");
        fact["value"].as_str().expect("words").to_owned()
    }

    fn path(&self) -> String {
        self.place.display().to_string()
    }

    /// The kernel throws away what is deleted with one of the next commits.
    async fn expect_nothing_left(&self) {
        eventually(async || {
            done(&["btrfs", "filesystem", "sync", &self.path()]);
            match (self.subvolumes(), self.groups()) {
                (subvolumes, groups) if subvolumes.is_empty() && groups.is_empty() => Ok(()),
                left => Err(format!("{left:?}")),
            }
        })
        .await;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Should something still be in there, it goes with that.
        command(&["umount", "--lazy", &self.path()]);
    }
}

fn command(words: &[&str]) -> Output {
    Command::new(words[0]).args(&words[1..]).output().unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

#[track_caller]
fn done(words: &[&str]) -> Output {
    let output = command(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    output
}

fn lines(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

async fn limited(server: &Server<'_>, policy: Value) -> TestSession {
    server.session_like(json!({ "policy": policy })).await
}

/// Writes more than there is room for, and says how many bytes a file holds then.
async fn fill(session: &TestSession, file: &str) -> u64 {
    let script = format!("head -c 200000000 /dev/zero > {file}; sync {file}; stat -c %s {file}");
    let result = session.sh(&script).await;
    let refused = ["No space left", "quota exceeded"].iter().any(|words| result.stderr.contains(words));
    assert!(refused, "{result:?}");
    result.stdout.trim().parse().expect("a size")
}

#[track_caller]
fn assert_near(size: u64, limit: u64) {
    assert!((limit - 2 * MIB..=limit + MIB).contains(&size), "{size} bytes under a limit of {limit}");
}

async fn limited_by(session: &TestSession) -> String {
    let enforced = session.show().await.enforced;
    assert!(enforced.holds(Layer::Disk), "{enforced:?}");
    let shown = serde_json::to_value(enforced).expect("JSON");
    shown["disk"]["by"].as_str().expect("words").to_owned()
}

const SUBVOLUME: &str = "quota of a btrfs subvolume";
const IMAGE: &str = "ext4 image of the layer's own";

async fn set_policy(session: &TestSession, policy: Policy) -> Vec<String> {
    session.update(UpdateSession { policy: Some(policy), ..UpdateSession::default() }).await;
    session.client().policy(&session.id).await.expect("a policy").pending
}

/// So many files that some would have the numbers of those in another layer, were both numbered from the beginning.
const MANY: &str = "mkdir e && cd e && seq 3000 | xargs touch";

/// Files that seem to be another one.
async fn look_alikes(session: &TestSession) -> String {
    let numbers = "find / -xdev \\( -type d -o -links 1 \\) -printf '%D:%i\\n' 2>/dev/null | sort | uniq -d";
    session.says(numbers).await
}

#[test]
fn a_session_ends_where_its_subvolume_does_and_nothing_is_left_of_it() {
    as_root(async |user| {
        for quotas in [Quotas::Simple, Quotas::Full] {
            println!("--- {quotas:?}");
            let Some(pool) = Pool::new(user, quotas) else { return };
            let mut server = pool.server(user);
            let session = limited(&server, json!({ "disk": 16 * MIB, "require": ["disk"] })).await;
            assert_eq!(limited_by(&session).await, SUBVOLUME);
            assert_eq!(pool.subvolumes().len(), 1, "{:?}", pool.subvolumes());

            assert_near(fill(&session, "full").await, 16 * MIB);
            let entry = session.event("limit.disk").await;
            assert_eq!((&entry.body["limit"], &entry.body["enforced"]), (&json!(16 * MIB), &json!(true)));
            assert_near(entry.body["used"].as_u64().expect("bytes"), 16 * MIB);
            let usage = session.client().usage(&session.id, UsageQuery::default()).await.expect("figures");
            let now = usage.now.expect("figures of now");
            assert_near(now.disk.expect("bytes"), 16 * MIB);
            assert!(now.inodes.is_none() && usage.unknown.contains_key("inodes"), "nobody counts files");

            let pending = set_policy(&session, Policy { disk: Some(24 * MIB), ..Policy::default() }).await;
            assert!(!pending.contains(&"disk".to_owned()), "{pending:?}");
            session.says("head -c 4000000 /dev/zero > more").await;
            assert_near(fill(&session, "full2").await, 24 * MIB - 16 * MIB - 4_000_000);

            // As full as it can be, by many small files too.
            session.sh("for i in $(seq 300); do echo $i > small$i; done").await;
            session.stop().await;
            session.start().await;
            session.says("rm -f full full2 small*").await;
            session.says("head -c 8000000 /dev/zero > f && sync f && rm f more").await;

            session.says("echo kept > f").await;
            server.kill();
            server.restart();
            let session = TestSession::new(server.client(), session.id);
            assert_eq!(session.says("cat f").await, "kept\n");
            assert_eq!(limited_by(&session).await, SUBVOLUME);
            assert_near(fill(&session, "full").await, 24 * MIB);
            // A limit below what there is: nothing more, and deleting.
            let pending = set_policy(&session, Policy { disk: Some(8 * MIB), ..Policy::default() }).await;
            assert!(!pending.contains(&"disk".to_owned()), "{pending:?}");
            assert_ne!(session.sh("head -c 1000000 /dev/zero > more").await.exit_code, 0);
            session.stop().await;
            session
                .says("rm -f full more; mkdir -p a/b; head -c 4000000 /dev/zero > a/b/more; sync a/b/more")
                .await;
            assert_near(fill(&session, "a/b/full").await, 4 * MIB);

            // As full as it is.
            session.delete().await;
            server.expect_no_leaks().await;
            pool.expect_nothing_left().await;
        }
    });
}

#[test]
fn a_session_in_a_subvolume_has_a_past_and_relatives_without_files_that_look_alike() {
    as_root(async |user| {
        for quotas in [Quotas::Simple, Quotas::Full] {
            println!("--- {quotas:?}");
            let Some(pool) = Pool::new(user, quotas) else { return };
            let server = pool.server(user);
            let session = limited(&server, json!({ "disk": 16 * MIB })).await;
            session.says("mkdir d && for i in 1 2 3 4 5 6 7 8 9; do echo $i > d/$i; mkdir d/d$i; done").await;
            session.says("head -c 6000000 /dev/zero > six && echo first > f").await;
            let snapshot = TakeSnapshot { name: Some("one".into()) };
            session.client().take_snapshot(&session.id, &snapshot).await.expect("a snapshot");
            // What is deleted is given back although the snapshot has it still.
            session.says("rm six && echo second > f && sync f").await;
            assert_near(fill(&session, "full").await, 16 * MIB);
            session.says("rm full").await;
            assert_eq!(limited_by(&session).await, SUBVOLUME);

            let diff = session.client().diff(&session.id, &DiffQuery::default()).await.expect("a difference");
            assert!(diff.entries.iter().any(|change| change.path == "f"), "{diff:?}");
            let forked = session.client().fork(&session.id, &ForkSession::default()).await.expect("a fork");
            let fork = TestSession::new(server.client(), forked.forks[0].session.id.clone());
            fork.says(MANY).await;
            assert_eq!(fork.says("cat f").await, "second\n");
            assert_eq!(look_alikes(&fork).await, "");
            assert_near(fill(&fork, "full").await, 16 * MIB);
            fork.says("rm -r full e && echo forked > g").await;

            let merge = MergeSession { from: fork.id.clone(), restart: true, ..MergeSession::default() };
            session.client().merge(&session.id, &merge).await.expect("merged");
            assert_eq!(session.says("cat g").await, "forked\n");
            assert_eq!(look_alikes(&session).await, "");
            assert_near(fill(&session, "full").await, 16 * MIB);

            let reset = ResetSession { to: Some("one".into()) };
            session.client().reset(&session.id, &reset).await.expect("reset");
            assert_eq!(session.says("cat f; ls").await, "first\nd\nf\nsix\n");
            session.says(MANY).await;
            assert_eq!(look_alikes(&session).await, "");
            assert_near(fill(&session, "full").await, 16 * MIB);
            session.client().reset(&session.id, &ResetSession { to: None }).await.expect("reset");
            assert_eq!(session.says("ls").await, "", "as new");
            assert_eq!(limited_by(&session).await, SUBVOLUME);

            session.says("echo out > f").await;
            let mut file = session.client().export_session(&session.id).await.expect("an export");
            let mut bytes = Vec::new();
            while let Some(piece) = file.next().await.expect("a piece") {
                bytes.extend_from_slice(&piece);
            }
            let upload = workroom_testkit::client::Upload::from(bytes);
            let imported = session.client().import_session(upload).await.expect("an import");
            let imported = TestSession::new(server.client(), imported.id);
            assert_eq!(imported.says("cat f").await, "out\n");
            assert_near(fill(&imported, "full").await, 16 * MIB);

            for session in [&session, &fork, &imported] {
                session.delete().await;
            }
            server.expect_no_leaks().await;
            pool.expect_nothing_left().await;
        }
    });
}

#[test]
fn what_a_subvolume_cannot_do_an_image_does() {
    as_root(async |user| {
        let Some(pool) = Pool::new(user, Quotas::Simple) else { return };
        let told = pool.doctor(user);
        assert!(told.contains("btrfs subvolume"), "{told}");
        let server = pool.server(user);
        let session = limited(&server, json!({ "disk": 16 * MIB, "inodes": 200 })).await;
        assert_eq!(limited_by(&session).await, IMAGE);
        let many = "mkdir d; i=0; while [ $i -lt 500 ] && : > d/$i; do i=$((i+1)); done 2>/dev/null; echo $i";
        let made: u64 = session.says(many).await.trim().parse().expect("a count");
        assert!((180..260).contains(&made), "{made} files");
        assert_eq!(pool.subvolumes(), [""; 0]);

        // One that wants its files counted later gets an image with the next room, and keeps them.
        let session = limited(&server, json!({ "disk": 16 * MIB })).await;
        session.says("echo before > f").await;
        let policy = Policy { disk: Some(16 * MIB), inodes: Some(200), ..Policy::default() };
        let pending = set_policy(&session, policy).await;
        assert!(pending.contains(&"inodes".to_owned()), "{pending:?}");
        assert_eq!(limited_by(&session).await, SUBVOLUME);
        session.stop().await;
        assert_eq!(session.says("cat f").await, "before\n");
        assert_eq!(limited_by(&session).await, IMAGE);
        assert_eq!(session.says("mkdir e && cat f && cp f e && ls e").await, "before\nf\n");
        assert_eq!(look_alikes(&session).await, "");
        pool.expect_nothing_left().await;
    });
}

#[test]
fn without_quotas_a_layer_on_btrfs_is_an_image() {
    as_root(async |user| {
        let Some(pool) = Pool::new(user, Quotas::Off) else { return };
        let told = pool.doctor(user);
        assert!(told.contains("ext4 image") && told.contains("btrfs quota enable"), "{told}");
        let server = pool.server(user);
        let session = limited(&server, json!({ "disk": 16 * MIB, "require": ["disk"] })).await;
        assert_eq!(limited_by(&session).await, IMAGE);
        assert_near(fill(&session, "full").await, 16 * MIB);
        assert_eq!(pool.subvolumes(), [""; 0]);
        let said = command(&["btrfs", "qgroup", "show", &pool.path()]);
        assert!(!said.status.success(), "the operator's file system is as it was: {said:?}");
    });
}

#[test]
fn a_limit_that_is_taken_away_is_gone_and_one_that_is_wanted_again_is_there() {
    as_root(async |user| {
        let Some(pool) = Pool::new(user, Quotas::Simple) else { return };
        let server = pool.server(user);
        let session = limited(&server, json!({ "disk": 16 * MIB })).await;
        fill(&session, "full").await;
        assert!(set_policy(&session, Policy::default()).await.is_empty());
        session.says("head -c 20000000 /dev/zero > more && sync more").await;
        assert!(!session.show().await.enforced.holds(Layer::Disk), "nobody asks for it");
        session.stop().await;
        session.says("head -c 20000000 /dev/zero > more2 && sync more2").await;
        let again = Policy { disk: Some(64 * MIB), ..Policy::default() };
        assert!(set_policy(&session, again).await.is_empty());
        assert_eq!(limited_by(&session).await, SUBVOLUME);
        session.says("rm *").await;
        assert_near(fill(&session, "full").await, 64 * MIB);
    });
}

#[test]
fn what_a_session_is_seeded_with_is_what_it_goes_back_to() {
    as_root(async |user| {
        let Some(pool) = Pool::new(user, Quotas::Simple) else { return };
        let server = pool.server(user);
        let session = limited(&server, json!({ "disk": 16 * MIB })).await;
        session.says("echo seed > f").await;
        session.client().set_baseline(&session.id).await.expect("a baseline");
        session.says("rm f").await;
        assert_near(fill(&session, "full").await, 16 * MIB);
        session.client().reset(&session.id, &ResetSession { to: None }).await.expect("reset");
        assert_eq!(session.says("cat *").await, "seed\n");
        // It stands on a layer now.
        assert_eq!(limited_by(&session).await, IMAGE);
        pool.expect_nothing_left().await;
    });
}

#[test]
fn quotas_that_are_switched_off_are_told_of_and_the_next_room_has_an_image() {
    as_root(async |user| {
        let Some(pool) = Pool::new(user, Quotas::Simple) else { return };
        let server = pool.server(user);
        let session = limited(&server, json!({ "disk": 16 * MIB })).await;
        session.says("echo kept > f").await;
        done(&["btrfs", "quota", "disable", &pool.path()]);
        eventually(async || {
            session.says("true").await;
            match session.show().await.enforced.holds(Layer::Disk) {
                false => Ok(()),
                true => Err("it is said to hold".into()),
            }
        })
        .await;
        session.says("head -c 20000000 /dev/zero > more && rm more").await;
        session.stop().await;
        assert_eq!(session.says("cat f").await, "kept\n");
        assert_eq!(limited_by(&session).await, IMAGE);
        assert_near(fill(&session, "full").await, 16 * MIB);
        eventually(async || match pool.subvolumes() {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        })
        .await;
    });
}
