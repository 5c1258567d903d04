//! A hostile user hides a word wherever a process, or a call, can leave one; whoever has the slot next finds none.

mod violence;

use serde_json::{Value, json};
use violence::Dice;
use workroom_testkit::types::{ExecRequest, ExecResult, RoomUser};
use workroom_testkit::{Server, TestLease, TestPool, User, for_each_user, run, within};

const HIDE: &str = include_str!("contamination/hide.py");
const FIND: &str = include_str!("contamination/find.py");

/// What processes of the room can do.
const IN_ROOM: [&str; 21] = [
    "everywhere",
    "odd_names",
    "attributes",
    "closed_trees",
    "fifo_and_socket",
    "processes",
    "stopped_process",
    "many_processes",
    "writer",
    "abstract_socket",
    "listener",
    "shared_memory",
    "message_queue",
    "posix_queue",
    "keyring",
    "full_disk",
    "deleted_but_open",
    "start_files",
    "kernel_names",
    "frozen",
    "stopped_session",
];

/// What can be asked of the session.
const BY_CALLS: [&str; 11] = [
    "terminal", "service", "shell", "process", "port", "private", "snapshot", "labels", "event", "baseline",
    "token",
];

struct Trial<'a> {
    server: &'a Server<'a>,
    pool: TestPool,
}

impl Trial<'_> {
    /// Those that a room has: without privileges, one.
    fn users(&self) -> &'static [RoomUser] {
        if self.server.user().is_root() { &[RoomUser::Agent, RoomUser::Root] } else { &[RoomUser::Agent] }
    }

    async fn python(
        &self,
        lease: &TestLease,
        script: &str,
        arguments: &[&str],
        word: &str,
        user: RoomUser,
    ) -> ExecResult {
        lease.session.exec(request(script, arguments, word, user)).await
    }

    /// Whether it could be hidden there, by either user of the room.
    async fn hide_in_room(&self, lease: &TestLease, kind: &str, word: &str) -> bool {
        let way = match kind {
            "frozen" => "processes",
            "stopped_session" => "everywhere",
            other => other,
        };
        let mut told = Vec::new();
        for &user in self.users() {
            told.push(self.python(lease, HIDE, &[way], word, user).await);
            // Where files are closed to others both have their own; else one is enough.
            if told[0].stdout.trim() == "hidden" && !["everywhere", "start_files"].contains(&way) {
                break;
            }
        }
        match kind {
            "frozen" => drop(lease.session.pause().await),
            "stopped_session" => drop(lease.session.stop().await),
            _ => {}
        }
        let is_hidden = told.iter().any(|told| told.stdout.trim() == "hidden");
        if !is_hidden {
            assert!(told.iter().any(|told| told.stdout.starts_with("cannot:")), "{kind}: {told:?}");
            println!("{kind}: {}", told[0].stdout.trim());
        }
        is_hidden
    }

    async fn hide_by_call(&self, lease: &TestLease, kind: &str, word: &str) {
        let path = |rest: &str| lease.session.path(rest);
        let http = || self.server.http();
        let echo = format!("echo {word}; exec sleep 1000");
        match kind {
            "terminal" => {
                http().json(&json!({"name": "t"})).post(&path("/terminals")).await.expect(201);
                http()
                    .json(&json!({"text": format!("echo {word}")}))
                    .post(&path("/terminals/t/input"))
                    .await
                    .expect(200);
            }
            "service" => {
                let spec = json!({"command": echo, "autostart": true, "restart": "always"});
                http().json(&spec).put(&path("/services/s?wait=false")).await.expect(201);
            }
            "shell" => {
                let command = json!({"command": format!("export WORD={word}; cd /tmp; sleep 1000 &")});
                http().json(&command).post(&path("/shells/default/run")).await.expect(200);
            }
            "process" => {
                http()
                    .json(&json!({"command": echo, "tag": "x", "record": true}))
                    .post(&path("/processes"))
                    .await
                    .expect(201);
            }
            "port" => {
                drop(http().json(&json!({"port": 4000, "name": "w"})).post(&path("/ports")).await.expect(201))
            }
            "private" => drop(http().body(word).put(&path("/private/x")).await.expect(204)),
            "snapshot" => {
                lease.session.says(&format!("echo {word} > w")).await;
                http().json(&json!({"name": "s"})).post(&path("/snapshots")).await.expect(201);
            }
            "labels" => {
                let change = json!({"name": word, "labels": {"w": word}, "keep_alive": true, "ttl": 5000});
                http().json(&change).patch(&path("")).await.expect(200);
            }
            "event" => drop(
                http()
                    .json(&json!({"kind": "w", "body": {"w": word}}))
                    .post(&path("/events"))
                    .await
                    .expect(201),
            ),
            "baseline" => {
                lease.session.says(&format!("echo {word} > w")).await;
                http().post(&path("/baseline")).await.expect(200);
            }
            "token" => {
                let token = json!({"scope": "session", "session": lease.session.id});
                let made = http().json(&token).post("/v1/tokens").await.expect(201);
                let single = made["token"].as_str().expect("told once").to_owned();
                http().token(&single).get(&path("")).await.expect(200);
            }
            other => panic!("{other}"),
        }
    }

    /// Where a word is found by somebody who is in the room.
    async fn found_in_room(&self, lease: &TestLease, word: &str) -> String {
        let mut found = String::new();
        for &user in self.users() {
            found.push_str(&self.found_by(lease, word, user).await);
        }
        found
    }

    async fn found_by(&self, lease: &TestLease, word: &str, user: RoomUser) -> String {
        let told = self.python(lease, FIND, &[], word, user).await;
        assert_eq!(told.exit_code, 0, "{told:?}");
        told.stdout.trim().to_owned()
    }

    /// What calls tell of a session that nothing was done in.
    async fn found_by_calls(&self, lease: &TestLease, word: &str) {
        let path = |rest: &str| lease.session.path(rest);
        let get = async |rest: &str| self.server.http().get(&path(rest)).await.expect(200);
        for (what, list) in [
            ("/processes", "processes"),
            ("/terminals", "terminals"),
            ("/shells", "shells"),
            ("/services", "services"),
            ("/recordings", "recordings"),
            ("/snapshots", "snapshots"),
            ("/private", "files"),
            ("/files?recursive=true&hidden=true", "entries"),
        ] {
            let answer = get(what).await;
            let empty = answer[list].as_array().unwrap_or_else(|| panic!("{what}: {answer}")).is_empty();
            assert!(empty, "{what}: {answer}");
        }
        let ports = get("/ports").await;
        assert_eq!(ports["published"], json!([]), "{ports}");
        let session = get("").await;
        assert_eq!((&session["labels"], &session["name"]), (&json!({}), &json!("p")), "{session}");
        assert_eq!(
            (&session["counters"]["starts"], &session["reset_count"]),
            (&json!(1), &json!(0)),
            "{session}"
        );
        assert!(session.get("ttl").is_none(), "{session}");
        let digest = get("/digest").await;
        assert_eq!(digest["pristine"], true, "{digest}");
        let journal = format!("{:?}", lease.session.journal().await);
        assert!(!journal.contains(word), "{journal}");
    }
}

fn request(script: &str, arguments: &[&str], word: &str, user: RoomUser) -> ExecRequest {
    let mut argv = vec!["python3".to_owned(), "-c".into(), script.into()];
    argv.extend(arguments.iter().map(|&argument| argument.to_owned()));
    ExecRequest {
        argv: Some(argv),
        stdin: Some(format!("{word}\n")),
        user: Some(user),
        cwd: Some("/".into()),
        ..ExecRequest::default()
    }
}

async fn trial<'a>(server: &'a Server<'a>) -> Trial<'a> {
    let spec = json!({"min": 1, "max": 1, "policy": {"pids": 256, "memory": 512 << 20}});
    Trial { server, pool: TestPool::set(server.client(), "p", spec).await }
}

fn word(dice: &mut Dice) -> String {
    format!("canary{:016x}", dice.next())
}

/// Each kind by itself: that it can be found by whoever is there while it is hidden shows that looking is worth something.
#[test]
fn every_kind_of_trace_is_found_before_a_reset_and_none_after_it() {
    for_each_user(async |user| {
        let mut dice = Dice::new();
        let server = Server::of(user);
        let trial = trial(&server).await;
        let mut found_at_all = Vec::new();
        for kind in IN_ROOM {
            let word = word(&mut dice);
            let lease = trial.pool.acquire("hostile").await;
            let is_hidden = trial.hide_in_room(&lease, kind, &word).await;
            if is_hidden && !["frozen", "stopped_session"].contains(&kind) {
                let mut found = trial.found_by(&lease, &word, RoomUser::Agent).await;
                if found.is_empty() {
                    found = trial.found_in_room(&lease, &word).await;
                }
                assert!(!found.is_empty(), "{kind} is not found where it is");
                found_at_all.push(kind);
            }
            trial.pool.release("hostile").await;
            let next = trial.pool.acquire("next").await;
            trial.found_by_calls(&next, &word).await;
            assert_eq!(trial.found_in_room(&next, &word).await, "", "{kind}");
            trial.pool.release("next").await;
        }
        println!("found before the reset: {found_at_all:?}");
        assert!(found_at_all.len() >= 14, "{found_at_all:?}");
        for kind in BY_CALLS {
            let word = word(&mut dice);
            let lease = trial.pool.acquire("hostile").await;
            trial.hide_by_call(&lease, kind, &word).await;
            trial.pool.release("hostile").await;
            let next = trial.pool.acquire("next").await;
            trial.found_by_calls(&next, &word).await;
            assert_eq!(trial.found_by(&next, &word, RoomUser::Agent).await, "", "{kind}");
            trial.pool.release("next").await;
        }
        trial.pool.delete().await;
        server.expect_no_leaks().await;
    });
}

/// Keys that the last one used are new to the next one, and what it did not get an answer to is not answered to another.
#[test]
fn an_idempotency_key_is_the_leases() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let trial = trial(&server).await;
        let exec = async |lease: &TestLease, command: &str| -> Value {
            let request = json!({"command": command});
            server.http().key("step-1").json(&request).post(&lease.session.path("/exec")).await.expect(200)
        };
        let first = trial.pool.acquire("first").await;
        assert_eq!(exec(&first, "echo one").await["stdout"], "one\n");
        assert_eq!(exec(&first, "echo one").await["stdout"], "one\n");
        assert_eq!(first.session.show().await.counters.execs, 1, "it was done once");
        trial.pool.release("first").await;
        let second = trial.pool.acquire("second").await;
        assert_eq!(exec(&second, "echo two").await["stdout"], "two\n");
    });
}

#[test]
fn hostile_users_one_after_the_other_leave_nothing() {
    as_anybody(8);
}

#[test]
#[ignore = "long"]
fn soak_a_thousand_hostile_users_leave_nothing() {
    as_anybody(1000);
}

/// Several kinds at once, by whichever user of the room; whoever comes next does the same.
fn as_anybody(rounds: usize) {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let trial = trial(&server).await;
        let mut dice = Dice::new();
        let mut words = Vec::new();
        for round in 0..rounds {
            let lease = trial.pool.acquire(&format!("t{round}")).await;
            // Of the last one, and now and then of somebody long ago.
            let old: Option<&String> = words.last();
            if let Some(old) = old {
                trial.found_by_calls(&lease, old).await;
                assert_eq!(trial.found_in_room(&lease, old).await, "", "round {round}");
            }
            let word = word(&mut dice);
            let first = dice.below(BY_CALLS.len() as u64) as usize;
            for kind in BY_CALLS.iter().cycle().skip(first).take(1 + dice.below(2) as usize) {
                // Some cannot be done after another.
                if !["baseline", "snapshot"].contains(kind) {
                    trial.hide_by_call(&lease, kind, &word).await;
                }
            }
            for _ in 0..=dice.below(4) {
                let kind = IN_ROOM[dice.below(19) as usize];
                let user = trial.users()[dice.below(trial.users().len() as u64) as usize];
                // What one kind has closed another cannot write to, and there may be no process left to be had: that it
                // fails is no matter here.
                let hide = request(HIDE, &[kind], &word, user);
                let _ = within("an answer", lease.session.client().exec(&lease.session.id, &hide)).await;
            }
            words.push(word);
            trial.pool.release(&format!("t{round}")).await;
        }
        trial.pool.delete().await;
        server.expect_no_leaks().await;
    });
}
