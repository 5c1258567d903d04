//! Forks: independent sessions over the same files, and what they do to each other, which is nothing.

use serde_json::json;
use workroom_testkit::types::{DiffQuery, Fork, ForkSession, MergeSession, SessionState};
use workroom_testkit::{Server, TestSession, User, eventually, for_each_user, run};

async fn fork(session: &TestSession, request: ForkSession) -> Vec<Fork> {
    session.client().fork(&session.id, &request).await.expect("forks").forks
}

fn of(server: &Server<'_>, fork: &Fork) -> TestSession {
    TestSession::new(server.client(), fork.session.id.clone())
}

#[test]
fn a_fork_goes_on_from_where_its_source_was() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let source = server.session().await;
        source.says("mkdir d && echo source > d/f && echo other > g").await;
        let request = ForkSession { count: Some(3), name: Some("try".into()), ..ForkSession::default() };
        let forks = fork(&source, request).await;
        let names: Vec<&str> = forks.iter().map(|fork| fork.session.name.as_str()).collect();
        assert_eq!(names, ["try-1", "try-2", "try-3"]);
        for (number, made) in forks.iter().enumerate() {
            assert_eq!(made.session.state, SessionState::Stopped);
            assert_eq!(made.session.parent.as_deref(), Some(source.id.as_str()));
            let session = of(&server, made);
            assert_eq!(session.says("cat d/f g").await, "source\nother\n");
            session.says(&format!("echo {number} > d/f; rm g; echo mine > h")).await;
        }
        source.says("echo after > d/f").await;
        for (number, made) in forks.iter().enumerate() {
            assert_eq!(of(&server, made).says("cat d/f; ls").await, format!("{number}\nd\nh\n"));
        }
        assert_eq!(source.says("cat d/f; ls").await, "after\nd\ng\n");

        // A fork of a fork, and the end of both its ancestors.
        let grandchild = of(&server, &fork(&of(&server, &forks[0]), ForkSession::default()).await[0]);
        source.delete().await;
        of(&server, &forks[0]).delete().await;
        assert_eq!(grandchild.says("cat d/f h").await, "0\nmine\n");
        for made in &forks[1..] {
            of(&server, made).delete().await;
        }
        grandchild.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_forks_token_goes_with_it() {
    run(async {
        let user = User::running_the_tests();
        let mut server = Server::of(&user);
        let fields = json!({"scope": "user", "owner": "ada"});
        let made = server.http().json(&fields).post("/v1/tokens").await.expect(201);
        let ada = made["token"].as_str().expect("told once").to_owned();
        let client = server.client_with(&ada);
        let (source, _) = client.create(&Default::default(), None).await.expect("a session");
        let tokens = async |server: &Server<'_>| {
            let list = server.client_with(&ada).tokens().await.expect("a list").tokens;
            list.into_iter().filter(|token| token.session.is_some()).count()
        };
        let mut last = None;
        for round in 0..3 {
            let request = ForkSession { count: Some(40), ..ForkSession::default() };
            let forks = client.fork(&source.id, &request).await.expect("forks").forks;
            assert_eq!(tokens(&server).await, 40, "round {round}");
            for fork in &forks {
                client.delete(&fork.session.id).await.expect("deleted");
            }
            assert_eq!(tokens(&server).await, 0, "round {round}");
            last = forks.into_iter().last().and_then(|fork| fork.token.token);
        }
        let dead = last.expect("a token");
        server.http().token(&dead).get("/v1/sessions").await.problem(401);
        server.restart();
        assert_eq!(tokens(&server).await, 0);
        server.http().token(&dead).get("/v1/sessions").await.problem(401);
    });
}

#[test]
fn a_forks_token_is_told_once() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let source = server.session().await;
        let ask = async || {
            let asked = server.http().key("k").json(&json!({"count": 2})).post(&source.path("/fork")).await;
            asked.expect(201)["forks"].as_array().expect("forks").clone()
        };
        let (first, again) = (ask().await, ask().await);
        for (fork, again) in first.iter().zip(&again) {
            assert_eq!(fork["session"]["id"], again["session"]["id"]);
            assert_eq!(fork["token"]["id"], again["token"]["id"]);
            assert!(fork["token"]["token"].is_string() && again["token"].get("token").is_none(), "{again}");
        }
        assert_eq!(again.len(), 2);
    });
}

#[test]
fn forks_of_one_source_are_not_alike() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let source = server.session().await;
        source.says("echo x > f").await;
        let request = ForkSession { count: Some(2), start: true, ..ForkSession::default() };
        let forks = fork(&source, request).await;
        let mut seen = std::collections::HashSet::new();
        for made in &forks {
            assert_eq!(made.session.state, SessionState::Running);
            let session = of(&server, made);
            seen.insert(
                session.says("cat /proc/sys/kernel/random/uuid; head -c 16 /dev/urandom | md5sum").await,
            );
            // Its token opens it, and nothing else.
            let token = made.token.token.as_deref().expect("a token");
            let own = server.http().token(token);
            own.get(&session.path("")).await.expect(200);
            assert_eq!(server.http().token(token).get(&source.path("")).await.problem(404), "not_found");
            assert_eq!(
                server.http().token(token).post(&session.path("/fork")).await.problem(403),
                "forbidden"
            );
        }
        assert_eq!(seen.len(), 2);
        for made in &forks {
            of(&server, made).delete().await;
        }
        source.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_fork_of_what_runs_holds_a_moment_of_it() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let source = server.session().await;
        // Two files that are changed one after the other: no moment has the second ahead of the first.
        source
            .says("(i=0; while :; do i=$((i+1)); echo $i > a.new; mv a.new a; echo $i > b.new; mv b.new b; done) >/dev/null 2>&1 & echo $! > pid")
            .await;
        eventually(async || {
            let there = source.sh("test -s b").await.exit_code == 0;
            if there { Ok(()) } else { Err("it has not begun".into()) }
        })
        .await;
        for _ in 0..5 {
            let made = source.client().fork(&source.id, &ForkSession::default()).await.expect("a fork");
            assert!(made.pause_ms > 0.0);
            let session = of(&server, &made.forks[0]);
            let said = session.says("cat a b").await;
            let numbers: Vec<u64> = said.lines().map(|line| line.parse().expect("a number")).collect();
            let [a, b] = numbers[..] else { panic!("{said}") };
            assert!(a == b || a == b + 1, "no moment had a={a} b={b}");
            session.delete().await;
        }
        source.says("kill -0 $(cat pid)").await;
        source.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn forks_of_a_snapshot_and_of_the_baseline() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let source = server.session().await;
        source.says("echo seeded > f").await;
        source.client().set_baseline(&source.id).await.expect("a baseline");
        source.says("echo snap > f").await;
        let http = server.http().json(&json!({"name": "s"}));
        http.post(&source.path("/snapshots")).await.expect(201);
        source.says("echo now > f").await;
        for (from, expected) in [("baseline", "seeded\n"), ("s", "snap\n"), ("now", "now\n")] {
            let request = ForkSession { from: Some(from.into()), ..ForkSession::default() };
            let session = of(&server, &fork(&source, request).await[0]);
            assert_eq!(session.says("cat f").await, expected, "{from}");
            // Its own baseline is where it began.
            session.says("echo x > f").await;
            server.http().post(&session.path("/reset")).await.expect(200);
            assert_eq!(session.says("cat f").await, expected, "{from}, reset");
            session.delete().await;
        }
        let lineage = source.client().lineage(&source.id).await.expect("a tree");
        assert_eq!(lineage.nodes.len(), 1, "deleted relatives are none: {lineage:?}");
        assert_eq!(lineage.nodes[0].snapshots, ["s"]);
        let code = server.http().post(&source.path("/baseline")).await.problem(409);
        assert_eq!(code, "already_exists");
        for wrong in [json!({"count": 0}), json!({"count": 101}), json!({"name": "x".repeat(121)})] {
            server.http().json(&wrong).post(&source.path("/fork")).await.problem(400);
        }
        let nowhere = server.http().json(&json!({"from": "nope"})).post(&source.path("/fork")).await;
        assert_eq!(nowhere.problem(404), "not_found");
        source.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_fork_that_never_had_a_room_is_compared_and_merged_with() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let source = server.session().await;
        source.says("echo one > f").await;
        let fork = of(&server, &fork(&source, ForkSession::default()).await[0]);
        source.says("echo two > f; echo new > g").await;
        let client = server.client();
        assert!(client.digest(&fork.id).await.expect("a digest").pristine);
        let query = DiffQuery { from: Some(format!("{}:now", fork.id)), ..DiffQuery::default() };
        let diff = client.diff(&source.id, &query).await.expect("a difference");
        let paths: Vec<&str> = diff.entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["f", "g"]);
        let request = MergeSession { from: source.id.clone(), ..MergeSession::default() };
        assert!(client.merge(&fork.id, &request).await.expect("merged").applied);
        assert_eq!(fork.says("cat f g").await, "two\nnew\n");
        source.delete().await;
        fork.delete().await;
        server.expect_no_leaks().await;
    });
}
