//! Whatever a room left behind can be deleted: by the API, with a reset, with a snapshot, with the session. Nothing stays.

mod leftovers;

use leftovers::{Mess, make_mess};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::time::{Duration, Instant};
use workroom_testkit::client::Client;
use workroom_testkit::types::{
    DiskUse, ExecRequest, FilePath, ListFiles, ResetSession, RoomUser, TakeSnapshot,
};
use workroom_testkit::{Server, TestSession, User, eventually, for_each_user, processes, run};

/// What the program in the room is told by, in its environment: how wide and how deep.
const INSIDE: &str = "WORKROOM_TEST_MESS";

/// A million of anything takes its time.
const PATIENCE: Duration = Duration::from_secs(1200);

#[test]
fn whatever_a_room_left_can_be_deleted() {
    for_each_user(async |user| delete_in_every_way(user, Mess { wide: 1000, deep: 500 }).await);
}

/// Landlock looks at everything above a name, so in a room the time that this takes grows with the square of the depth,
/// for `rm` as for the API. Layers are deleted outside of it.
#[test]
fn a_tree_deeper_than_any_path_can_be_deleted() {
    let (by_api, with_layers) = (Mess { wide: 10, deep: 3000 }, Mess { wide: 10, deep: 10_000 });
    run(delete_by_api_and_with_layers(&User::running_the_tests(), by_api, with_layers));
}

/// Making them takes longest.
#[test]
fn a_directory_of_many_entries_can_be_deleted() {
    let (by_api, with_layers) = (Mess { wide: 200_000, deep: 10 }, Mess { wide: 20_000, deep: 10 });
    run(delete_by_api_and_with_layers(&User::running_the_tests(), by_api, with_layers));
}

#[test]
#[ignore = "long"]
fn soak_a_directory_of_a_million_entries_can_be_deleted() {
    for_each_user(async |user| delete_in_every_way(user, Mess { wide: 1_000_000, deep: 10_000 }).await);
}

/// Not a test: the program that the room runs, which is this one.
#[test]
#[ignore = "does nothing but in a room"]
fn leaves_a_mess_inside_a_room() {
    let Ok(told) = std::env::var(INSIDE) else { return };
    let (wide, deep) = told.split_once(' ').expect("two numbers");
    make_mess(&Mess { wide: wide.parse().expect("a number"), deep: deep.parse().expect("a number") });
}

/// Whoever deletes something large is stopped in the middle of it: what else there is to delete goes all the same, and
/// what is stopped goes when it may.
#[test]
fn something_large_keeps_nothing_else_from_being_deleted() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let trash = server.state().join("trash");
        let large = trash.join("large");
        std::fs::create_dir(&large).expect("a directory");
        for number in 0..100_000 {
            std::fs::File::create(large.join(number.to_string())).expect("a file");
        }
        server.session().await.delete().await;
        let remover = loop {
            let all = processes();
            let is_spawner = |pid: i32| all.iter().any(|it| it.pid == pid && it.parent == server.pid());
            let begun = || std::fs::read_dir(&large).is_ok_and(|left| left.count() < 100_000);
            let found = all.iter().find(|it| is_spawner(it.parent) && is_called(it.pid, "spawner"));
            match found.and_then(|it| Pid::from_raw(it.pid)) {
                Some(pid) if begun() => break pid,
                _ => assert!(large.exists(), "nobody was seen deleting it"),
            }
        };
        kill_process(remover, Signal::STOP).expect("stopped");
        for _ in 0..6 {
            server.session().await.delete().await;
        }
        let only_large = || match names(&trash) {
            names if names == ["large"] => Ok(()),
            names => Err(format!("{names:?}")),
        };
        eventually(async || only_large()).await;
        kill_process(remover, Signal::CONT).expect("goes on");
        server.expect_no_leaks().await;
    });
}

fn is_called(pid: i32, name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

async fn delete_by_api_and_with_layers(user: &User, by_api: Mess, with_layers: Mess) {
    let server = Server::of(user);
    let (session, client) = (server.session().await, server.client());
    bring_the_program(&server, &session).await;
    leave(user, &session, &by_api).await;
    delete(&client, &session, "mess").await;
    expect_nothing_but_the_program(&client, &session).await;

    leave(user, &session, &with_layers).await;
    let request = TakeSnapshot { name: Some("mess".into()) };
    client.take_snapshot(&session.id, &request).await.expect("a snapshot");
    reset(&client, &session, "baseline").await;
    // At once: what is still being measured goes too.
    client.delete_snapshot(&session.id, "mess").await.expect("deleted");
    expect_layers(&server, 1).await;

    bring_the_program(&server, &session).await;
    leave(user, &session, &with_layers).await;
    client.delete(&session.id).await.expect("deleted");
    patiently(|| server.leaks()).await;
}

async fn delete_in_every_way(user: &User, mess: Mess) {
    let server = Server::of(user);
    let session = server.session().await;
    let client = server.client();
    bring_the_program(&server, &session).await;

    // By the API, all of it in the room's own layer.
    leave(user, &session, &mess).await;
    let there = used(&client, &session).await;
    assert_eq!(there.files, mess.files() + 1, "the program is one: {there:?}");
    assert!(there.directories > mess.deep && there.symlinks >= 5 && there.others >= 2, "{there:?}");
    delete(&client, &session, "mess").await;
    expect_nothing_but_the_program(&client, &session).await;

    // By the API again, where it lies in a layer that is frozen: what hides it must be well made.
    leave(user, &session, &mess).await;
    let request = TakeSnapshot { name: Some("mess".into()) };
    client.take_snapshot(&session.id, &request).await.expect("a snapshot");
    delete(&client, &session, "mess").await;
    expect_nothing_but_the_program(&client, &session).await;
    // In its place is something else, which nothing of the old shines through.
    assert_eq!(session.says("mkdir mess && ls -A mess").await, "");

    // Back to it, and away from it: a reset deletes what the room has written meanwhile.
    reset(&client, &session, "mess").await;
    assert_eq!(used(&client, &session).await, there);
    session.says("rm mess/wide/f-1 && echo more > mess/wide/more && chmod 700 mess").await;
    reset(&client, &session, "baseline").await;
    assert_eq!(used(&client, &session).await, DiskUse { directories: 0, files: 0, ..DiskUse::default() });
    client.delete_snapshot(&session.id, "mess").await.expect("deleted");
    expect_layers(&server, 1).await;

    // With a session that is full of it, in its own layer and in a frozen one.
    bring_the_program(&server, &session).await;
    leave(user, &session, &mess).await;
    client.take_snapshot(&session.id, &request).await.expect("a snapshot");
    session.says("chmod -R u+rwX mess/closed && echo more > mess/closed/more && chmod 000 mess/closed").await;
    client.delete(&session.id).await.expect("deleted");
    patiently(|| server.leaks()).await;
}

async fn bring_the_program(server: &Server<'_>, session: &TestSession) {
    let own = std::env::current_exe().and_then(std::fs::read).expect("this program");
    server.http().body(own).put(&session.path("/files/program?mode=0755")).await.expect(201);
}

/// Has the room make the mess, and its root some of it.
async fn leave(user: &User, session: &TestSession, mess: &Mess) {
    let argv = ["./program", "--ignored", "--exact", "leaves_a_mess_inside_a_room"];
    let run_as = async |user: Option<RoomUser>, env: &[(&str, String)], argv: &[&str]| {
        let request = ExecRequest {
            argv: Some(argv.iter().map(|&word| word.to_owned()).collect()),
            env: env.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
            user,
            timeout_ms: Some(PATIENCE.as_millis() as u64),
            ..ExecRequest::default()
        };
        let made = session.client().exec(&session.id, &request).await.expect("a mess");
        assert_eq!(made.exit_code, 0, "{made:?}");
    };
    let told = format!("{} {}", mess.wide, mess.deep);
    run_as(None, &[(INSIDE, told)], &argv).await;
    let roots = "mkdir -p mess/root/inner && echo secret > mess/root/inner/file && chmod 000 mess/root/inner \
                 && chmod 700 mess/root";
    // Without privileges there is one user, and this is its own.
    let root = user.is_root().then_some(RoomUser::Root);
    run_as(root, &[], &["sh", "-c", roots]).await;
}

async fn used(client: &Client, session: &TestSession) -> DiskUse {
    let used = client.disk_use(&session.id, &FilePath::default()).await.expect("an answer");
    // How much of the disk that is, the file system decides; a directory's own size too.
    DiskUse { bytes: 0, allocated: 0, ..used }
}

async fn delete(client: &Client, session: &TestSession, path: &str) {
    let request = FilePath { path: path.into(), root: false };
    let refused = client.delete_file(&session.id, &request, false).await.expect_err("it is not empty");
    assert_eq!(refused.code(), "wrong_kind");
    let gone = client.delete_file(&session.id, &request, true).await.expect("deleted");
    assert!(gone.deleted > 0, "{gone:?}");
    assert_eq!(client.delete_file(&session.id, &request, true).await.expect("deleted").deleted, 0);
}

async fn expect_nothing_but_the_program(client: &Client, session: &TestSession) {
    let all = ListFiles { recursive: true, ..ListFiles::default() };
    let list = client.list_files(&session.id, &all).await.expect("a list");
    let left: Vec<&str> = list.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(left, ["program"]);
}

async fn reset(client: &Client, session: &TestSession, to: &str) {
    let request = ResetSession { to: Some(to.into()) };
    client.reset(&session.id, &request).await.expect("reset");
}

async fn expect_layers(server: &Server<'_>, count: usize) {
    patiently(|| {
        let names =
            |dir: &str| -> usize { std::fs::read_dir(server.state().join(dir)).map_or(0, Iterator::count) };
        match (names("layers"), names("trash")) {
            (layers, 0) if layers == count => Ok(()),
            there => Err(format!("{there:?} layers and thrown away ones")),
        }
    })
    .await;
}

async fn patiently(check: impl Fn() -> Result<(), String>) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(objection) = check() {
        assert!(Instant::now() < deadline, "{objection}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
