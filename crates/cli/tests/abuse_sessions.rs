//! What was found by attacking durable sessions, and stays closed: from inside a room, with somebody else's token,
//! and as another user of the machine.

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use workroom_testkit::types::ExecRequest;
use workroom_testkit::{PATIENCE, Server, Setup, TestSession, User, as_root, eventually, for_each_user, run};

fn command(fields: Value) -> ExecRequest {
    serde_json::from_value(fields).expect("a command's fields")
}

async fn token(server: &Server<'_>, request: Value) -> String {
    let made = server.http().json(&request).post("/v1/tokens").await.expect(201);
    made["token"].as_str().expect("a secret").to_owned()
}

#[test]
fn a_sessions_token_does_not_become_its_owners() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session_like(json!({"owner": "ada", "start": false})).await;
        let other = server.session_like(json!({"owner": "ada", "start": false})).await;
        let narrow = token(&server, json!({"scope": "session", "session": session.id})).await;
        for wider in
            [json!({"scope": "user"}), json!({"scope": "user", "owner": "ada"}), json!({"scope": "admin"})]
        {
            let refused = server.http().token(&narrow).json(&wider).post("/v1/tokens").await;
            assert_eq!(refused.problem(403), "forbidden", "{wider}");
        }
        let sibling = json!({"scope": "session", "session": other.id});
        let refused = server.http().token(&narrow).json(&sibling).post("/v1/tokens").await;
        assert_eq!(refused.problem(404), "not_found");
    });
}

#[test]
fn a_token_makes_none_that_outlives_it() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let short = token(&server, json!({"scope": "user", "owner": "ada", "expires_in": 600})).await;
        let listed = server.http().get("/v1/tokens").await.expect(200);
        let own = listed["tokens"].as_array().and_then(|all| all.iter().find(|one| one["owner"] == "ada"));
        let end = own.expect("her token")["expires"].as_str().expect("an end").to_owned();
        for asked in [json!({"scope": "user"}), json!({"scope": "user", "expires_in": 86_400})] {
            let made = server.http().token(&short).json(&asked).post("/v1/tokens").await.expect(201);
            assert_eq!(made["expires"], end.as_str(), "{asked}");
        }
        let shorter = json!({"scope": "user", "expires_in": 5});
        let made = server.http().token(&short).json(&shorter).post("/v1/tokens").await.expect(201);
        assert!(made["expires"].as_str().is_some_and(|expires| expires < end.as_str()), "{made}");
    });
}

#[test]
fn a_revoked_first_token_stays_revoked() {
    run(async {
        let user = User::running_the_tests();
        let mut server = Server::of(&user);
        let first = server.token().to_owned();
        let second = token(&server, json!({"scope": "admin"})).await;
        let id = first.split('_').nth(1).expect("an id").to_owned();
        server.http().token(&second).delete(&format!("/v1/tokens/{id}")).await.expect(204);
        server.restart();
        assert_eq!(server.http().token(&first).get("/v1/tokens").await.problem(401), "unauthorized");
        server.http().token(&second).get("/v1/tokens").await.expect(200);
        assert_ne!(server.token(), first, "there is a new one in the file");
        server.http().get("/v1/tokens").await.expect(200);
    });
}

/// Whoever has the directory could have put an admin token of their own into it.
#[test]
fn a_state_directory_of_another_user_is_refused() {
    as_root(async |user| {
        let state = user.make_dir("anothers-state");
        let planted = format!("wr_{}_{}\n", "a".repeat(12), "b".repeat(64));
        std::fs::write(state.join("token"), planted).expect("a token of theirs");
        std::os::unix::fs::chown(&state, Some(65_534), None).expect("theirs");
        let said = user.path("said");
        let mut serve = user.command(user.program());
        serve.args(["serve", "--listen", "127.0.0.1:0", "--state"]).arg(&state);
        serve.stderr(std::fs::File::create(&said).expect("a file")).stdout(std::process::Stdio::null());
        let mut server = serve.spawn().expect("it runs");
        let deadline = std::time::Instant::now() + PATIENCE;
        let status = loop {
            match server.try_wait().expect("a child") {
                Some(status) => break status,
                None if std::time::Instant::now() > deadline => {
                    server.kill().expect("a child");
                    panic!("it serves from a directory that is not its own");
                }
                None => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
        };
        let said = std::fs::read_to_string(&said).expect("what it said");
        assert!(!status.success() && said.contains("belongs to the user 65534"), "{said}");
    });
}

#[test]
fn what_was_refused_before_it_began_can_be_tried_again_under_its_key() {
    run(async {
        let user = User::running_the_tests();
        let config = "[serve.quotas]\nlive_per_user = 1\n[serve.exec]\nconcurrent = 1\n";
        let server = Setup::of(&user).config(config).start();
        let session = server.session().await;
        let (client, id) = (server.client(), session.id.clone());
        let long =
            tokio::spawn(async move { client.exec(&id, &command(json!({"argv": ["sleep", "600"]}))).await });
        eventually(async || {
            let runs = server.http().get(&session.path("/processes")).await.expect(200);
            if runs["in_room"].as_array().is_some_and(|all| !all.is_empty()) {
                Ok(())
            } else {
                Err(runs.to_string())
            }
        })
        .await;
        let exec = session.path("/exec");
        let ask = || server.http().key("once").json(&json!({"command": "echo done"})).post(&exec);
        assert_eq!(ask().await.problem(429), "limit_exceeded");
        session.stop().await;
        let _ = long.await;
        assert_eq!(ask().await.expect(200)["stdout"], "done\n");
        let again = ask().await;
        assert_eq!(again.header("idempotency-replayed"), Some("true"), "{again:?}");

        let make =
            || server.http().key("make").json(&json!({"name": "later"})).post("/v1/sessions?wait=0.05");
        assert_eq!(make().await.problem(429), "limit_exceeded");
        session.delete().await;
        let made = make().await.expect(201);
        assert_eq!(made["name"], "later");
        assert_eq!(make().await.expect(201)["id"], made["id"]);
    });
}

/// Makers under keys share a few locks: none is held while one waits for a place.
#[test]
fn one_users_waiting_sessions_hold_up_nobody_elses() {
    run(async {
        let user = User::running_the_tests();
        let server = Setup::of(&user).config("[serve.quotas]\nlive_per_user = 1\n").start();
        let first = server.session_like(json!({"owner": "ada"})).await;
        let waiting: Vec<_> = (0..200)
            .map(|number| json!({"owner": "ada", "key": format!("k{number}")}))
            .map(|request| tokio::spawn(server.http().json(&request).post("/v1/sessions?wait=300")))
            .collect();
        eventually(async || {
            let queued = server.http().get("/v1/sessions?state=queued&limit=1000").await.expect(200);
            match queued["sessions"].as_array().map_or(0, Vec::len) {
                200 => Ok(()),
                number => Err(format!("{number} wait")),
            }
        })
        .await;
        let made = server.http().json(&json!({"owner": "bob", "key": "his"})).post("/v1/sessions").await;
        assert_eq!(made.expect(201)["state"], "running");
        drop(first);
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

/// The builder has the machine's authority and sees the machine's `/proc`: a link in the room must lead it nowhere.
#[test]
fn no_link_in_a_room_leads_its_builder_out_of_it() {
    as_root(async |user| {
        let tools = user.make_dir("tools");
        let config = format!("[serve]\nro = [\"{}:/opt/tools/inner\"]\n", tools.display());
        let server = Setup::of(user).config(&config).start();
        let outside = user.make_dir("outside");
        let through_proc = format!("/proc/{}/root{}", server.pid(), outside.display());
        for target in [through_proc.as_str(), "/skeleton", "/source", "../../../.."] {
            let session = server.session().await;
            let swap = format!("mv /opt/tools /opt/old && ln -s {target} /opt/tools");
            let swapped = session.run(json!({"command": swap, "user": "root"})).await;
            assert_eq!(swapped.exit_code, 0, "{swapped:?}");
            session.stop().await;
            let refused = session.refuses(command(json!({"command": "true"}))).await;
            assert!(refused.detail.contains("/opt/tools/inner"), "{refused}");
            session.delete().await;
        }
        assert_eq!(std::fs::read_dir(&outside).expect("a directory").count(), 0, "the machine is as it was");
        let untouched = server.session().await;
        assert_eq!(untouched.sh("ls -d /inner").await.exit_code, 2, "no other room has anything of it");
    });
}

/// What the room's root does to its own `/etc` is its own affair, and no reason not to start again.
#[test]
fn a_room_whose_root_moved_a_mount_point_away_still_starts() {
    as_root(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let moved =
            session.run(json!({"command": "mv /etc/ssl /etc/gone; ln -s / /etc/ssl", "user": "root"})).await;
        assert_eq!(moved.exit_code, 0, "{moved:?}");
        session.stop().await;
        assert_eq!(session.says("readlink /etc/ssl").await, "/\n");
    });
}

#[test]
fn a_link_in_the_place_of_a_writable_directory_opens_nothing_else() {
    as_root(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let as_root = async |text: &str| session.run(json!({"command": text, "user": "root"})).await;
        assert_ne!(as_root("touch /mark").await.exit_code, 0, "the room's / is not to be written to");
        assert_eq!(as_root("rmdir /var/tmp && ln -s / /var/tmp").await.exit_code, 0);
        session.stop().await;
        assert_ne!(as_root("touch /mark").await.exit_code, 0, "nor through a link that the room made");
    });
}

/// A program that may be executed and not read hides from the room's own PID 1 whose it is.
#[test]
fn what_hides_does_not_outlive_its_commands_time() {
    as_root(async |user| {
        let tools = user.make_dir("tools");
        let hidden = tools.join("hidden");
        std::fs::copy("/bin/sleep", &hidden).expect("a program");
        set_mode(&hidden, 0o711);
        let config = format!("[serve]\nro = [\"{}:/opt/tools\"]\n", tools.display());
        let server = Setup::of(user).config(&config).start();
        let session = server.session().await;
        let bystander = session.sh("sleep 600 & echo $!").await;
        assert_eq!(bystander.exit_code, 0);
        let over = session
            .run(json!({"command": "setsid /opt/tools/hidden 600 & sleep 600", "timeout_ms": 300}))
            .await;
        assert!(over.timed_out, "{over:?}");
        expect_only(&session, "sleep 600").await;
    });
}

/// A chain of processes, each of which makes the next and ends, is over before anybody has looked at it.
/// Who has the launcher's uid in a room.
fn who(user: &User) -> &'static str {
    if user.is_root() { "root" } else { "agent" }
}

/// Finds the launcher.
const FIND_LAUNCHER: &str = "for (glob(q(/proc/[0-9]*/comm))) { open(F, $_) or next; \
                             $launcher = $1 if <F> eq qq(launcher\\n) and m(/(\\d+)/) } die unless $launcher;";

#[test]
fn a_launcher_that_is_stopped_goes_on_whoever_ends_in_the_same_moment() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        // An orphan is the guest's to reap: its end and the launcher's stop are told by one signal.
        let stops = format!("perl -e '{FIND_LAUNCHER} fork and exit; kill STOP => $launcher'");
        for turn in 0..60 {
            let stopped = session.run(json!({"command": stops, "user": who(user)})).await;
            assert_eq!((stopped.exit_code, stopped.stderr.as_str()), (0, ""), "turn {turn}");
            assert_eq!(session.says("echo on").await, "on\n", "turn {turn}");
        }
    });
}

#[test]
fn a_launcher_that_is_stopped_all_the_time_keeps_nobody_longer_than_they_said() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let stops = format!(
            "exec perl -e '{FIND_LAUNCHER} $| = 1; print qq(stops\\n); kill STOP => $launcher while 1'"
        );
        let stopper = session.process(json!({"command": stops, "user": who(user)})).await;
        stopper.says("stops").await;
        for _ in 0..5 {
            let ran = session.run(json!({"command": "echo on", "timeout_ms": 300})).await;
            assert!(ran.timed_out || ran.stdout == "on\n", "{ran:?}");
        }
        // The guest is not kept either.
        let listed = session.client().processes(&session.id).await.expect("a list");
        assert!(listed.in_room.iter().any(|one| one.command.contains("perl")), "{listed:?}");
        session.stop().await;
        assert_eq!(session.says("echo on").await, "on\n");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn what_is_made_and_ends_all_the_time_does_not_outlive_its_commands_time() {
    const MAYFLY: &str = r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <sched.h>
        #include <sys/mman.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        static char *stacks; static volatile long made; static int beat;
        static int live(void *nothing) {
            long number = ++made;
            if (number % 100 == 0) pwrite(beat, &number, sizeof number, 0);
            while (clone(live, stacks + (number % 64 + 1) * 8192, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND, 0) < 0);
            syscall(SYS_exit, 0);
            return 0;
        }
        int main(void) {
            beat = open("/tmp/beat", O_CREAT | O_WRONLY | O_TRUNC, 0644);
            stacks = mmap(0, 66 * 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            setsid();
            return live(0);
        }"#;
    for_each_user(async |user| {
        let Some(mayfly) = compiled(user, "mayfly", MAYFLY) else { return };
        let tools = mayfly.parent().expect("a directory").display().to_string();
        let server = Setup::of(user).config(&format!("[serve]\nro = [\"{tools}:/opt/tools\"]\n")).start();
        let session = server.session().await;
        for _ in 0..40 {
            let over =
                session.run(json!({"command": "/opt/tools/mayfly & sleep 600", "timeout_ms": 100})).await;
            assert!(over.timed_out, "{over:?}");
            // No list is sure to show it; its heart can be heard.
            let still = session.sh("cp /tmp/beat /tmp/before; sleep 0.1; cmp /tmp/beat /tmp/before").await;
            assert_eq!(still.exit_code, 0, "it goes on: {still:?}");
        }
    });
}

/// The list is cut where a message would be too long, and the room goes on.
#[test]
fn a_list_of_very_many_long_names_does_not_cost_the_room_its_line() {
    const CROWD: &str = r#"
        #include <string.h>
        #include <unistd.h>
        int main(int count, char **words) {
            for (int number = 0; number < 3500; number++) {
                if (fork() == 0) { memset(words[1], 0xff, strlen(words[1])); for (;;) pause(); }
            }
            return 0;
        }"#;
    as_root(async |user| {
        let Some(crowd) = compiled(user, "crowd", CROWD) else { return };
        let tools = crowd.parent().expect("a directory").display().to_string();
        let server = Setup::of(user).config(&format!("[serve]\nro = [\"{tools}:/opt/tools\"]\n")).start();
        let session = server.session_like(json!({"policy": {"pids": 4000}})).await;
        let many = session.sh("/opt/tools/crowd $(printf 'x%.0s' {1..2000})").await;
        assert_eq!(many.exit_code, 0, "{many:?}");
        let listed = server.http().get(&session.path("/processes")).await.expect(200);
        assert!(listed["in_room"].as_array().is_some_and(|all| all.len() > 500), "not even a part of it");
        assert_eq!(session.says("echo here").await, "here\n");
    });
}

/// Waits until nothing but such commands runs in the session.
async fn expect_only(session: &TestSession, spared: &str) {
    eventually(async || {
        let listed = session.client().processes(&session.id).await.map_err(|error| error.to_string())?;
        let left: Vec<_> =
            listed.in_room.iter().filter(|one| one.state != "Z" && one.command != spared).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    let processes = session.client().processes(&session.id).await.expect("a list").in_room;
    assert!(processes.iter().any(|one| one.command == spared), "the neighbour goes on: {processes:?}");
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

/// A program in C, where the machine can make one.
fn compiled(user: &User, name: &str, text: &str) -> Option<std::path::PathBuf> {
    let source = user.make_file(&format!("{name}.c"), text);
    let program = user.make_dir("compiled").join(name);
    let made = Command::new("cc").args(["-O2", "-static", "-o"]).arg(&program).arg(&source).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: needs a C compiler");
        return None;
    }
    set_mode(&program, 0o755);
    Some(program)
}

/// On the disk a room's root is nobody: a setuid file of its own would make nobody of whoever could start it there.
#[test]
fn a_setuid_file_of_the_rooms_root_is_not_one_of_the_hosts() {
    use std::os::unix::fs::MetadataExt;
    as_root(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let plant =
            json!({"command": "cp /usr/bin/id /var/planted; chmod 4755 /var/planted", "user": "root"});
        assert_eq!(session.run(plant).await.exit_code, 0);
        let layer = server.state().join("layers").join(&session.id);
        for path in [layer.clone(), layer.join("work"), layer.join("fs"), layer.join("fs/var/planted")] {
            let meta = std::fs::symlink_metadata(&path).expect("it is on the disk");
            assert!(meta.uid() != 0 && meta.gid() != 0, "{} belongs to {}", path.display(), meta.uid());
        }
        // And it is the room's root's own in the next room too.
        session.stop().await;
        assert_eq!(session.says("stat -c '%u %a' /var/planted").await, "0 4755\n");
    });
}
