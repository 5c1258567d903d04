//! The machine's clock jumps, by days and back again, while sessions, leases, tokens and timers run: nothing ends too early
//! or too late in a server that lives, and everything keeps its order.
//!
//! Debug builds let a test set the clock of one server (`WORKROOM_TEST_CLOCK`); a release build has nothing to set.

mod violence;

use serde_json::{Value, json};
use std::path::PathBuf;
use violence::machine::verify_journals;
use violence::{Dice, in_threads};
use workroom_testkit::types::{SessionState, Timestamp};
use workroom_testkit::{Server, Setup, TestPool, TestSession, User, eventually};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

#[test]
fn a_clock_that_jumps_ends_nothing_and_mixes_nothing_up() {
    jump_about(&User::running_the_tests(), 5);
}

#[test]
#[ignore = "long"]
fn soak_a_clock_that_jumps_ends_nothing_and_mixes_nothing_up() {
    jump_about(&User::running_the_tests(), 60);
    jump_about(&User::ordinary(), 60);
}

fn jump_about(user: &User, jumps: u32) {
    if !cfg!(debug_assertions) {
        println!("skipped: the clock of a release build cannot be set");
        return;
    }
    let mut dice = Dice::new();
    let clock = Clock::new(user);
    let mut server = Setup::of(user)
        .environment("WORKROOM_TEST_CLOCK", clock.0.to_str().expect("a path"))
        .config("[serve.quotas]\ncreated_per_user_per_day = 0\n")
        .start();
    in_threads(async {
        let world = World::new(&server).await;
        // What every run is to see: a day ahead, a day back, and right again.
        let fixed = [DAY, -DAY, 0];
        let kinds = [-400 * DAY, -DAY, -HOUR, -1, 0, HOUR + 60_000, DAY, 3 * DAY, 400 * DAY];
        for number in 0..fixed.len() + jumps as usize {
            let offset = match fixed.get(number) {
                Some(offset) => *offset,
                None => kinds[dice.below(kinds.len() as u64) as usize],
            };
            println!("jump {number}: the clock is wrong by {offset} ms");
            let mortal = server.session_like(json!({"ttl": 1})).await;
            let lazy = server.session_like(json!({"idle_timeout": 1})).await;
            let brief = world.pool.acquire_for("brief", 300).await.lease;
            clock.set(offset);
            world.stands(&server, number, offset).await;
            // What was begun before the jump ends when it would have, and for the same reason.
            for (session, why) in [(&mortal, "time to live"), (&lazy, "idle")] {
                let stopped = session.event("session.stopped").await;
                assert!(
                    stopped.body["reason"].as_str().is_some_and(|said| said.contains(why)),
                    "{stopped:?}"
                );
            }
            eventually(async || {
                match server.http().get(&format!("/v1/sessions/{}", brief.session)).await.status {
                    404 => Ok(()),
                    status => Err(format!("a lease of 300 ms is not over: {status}")),
                }
            })
            .await;
            // And so does what was begun after it.
            let mortal = server.session_like(json!({"ttl": 1, "on_expiry": "delete"})).await;
            eventually(async || match server.http().get(&mortal.path("")).await.status {
                404 => Ok(()),
                status => Err(format!("a second is not over: {status}")),
            })
            .await;
        }
        clock.set(0);
        world.stands(&server, usize::MAX, 0).await;
        server.kill();
        server.restart();
        world.is_found_again(&server).await;
        verify_journals(&server);
    });
}

/// By how much the server's clock is wrong.
struct Clock(PathBuf);

impl Clock {
    fn new(user: &User) -> Clock {
        Clock(user.make_file("clock", "0"))
    }

    fn set(&self, offset: i64) {
        // As a whole: half a number is another one.
        let next = self.0.with_extension("next");
        std::fs::write(&next, offset.to_string()).expect("a clock");
        std::fs::rename(next, &self.0).expect("the clock");
    }
}

/// What lasts for an hour or longer, and is there from the beginning to the end.
struct World {
    /// Would be deleted when its time is over, with a room and without.
    mortal: TestSession,
    stopped: TestSession,
    /// Would be stopped.
    idle: TestSession,
    pool: TestPool,
    leased: String,
    token: String,
    remembered: Value,
}

impl World {
    async fn new(server: &Server<'_>) -> World {
        let mortal = server.session_like(json!({"ttl": 3600, "on_expiry": "delete"})).await;
        let stopped =
            server.session_like(json!({"ttl": 3600, "idle_timeout": 3600, "on_expiry": "delete"})).await;
        stopped.stop().await;
        let idle = server.session_like(json!({"idle_timeout": 3600})).await;
        // It measures its own time, by the clock that is never set.
        idle.says("setsid -f sleep 1000").await;
        let pool = TestPool::set(server.client(), "p", json!({"max": 2})).await;
        let leased = pool.acquire_for("holder", HOUR as u64).await.lease.session;
        let request = json!({"scope": "user", "owner": "ada", "expires_in": 3600});
        let token = server.http().json(&request).post("/v1/tokens").await.expect(201);
        let token = token["token"].as_str().expect("a token").to_owned();
        let remembered = create_under_key(server).await;
        World { mortal, stopped, idle, pool, leased, token, remembered }
    }

    /// All of it is as it was, whatever the clock says.
    async fn stands(&self, server: &Server<'_>, number: usize, offset: i64) {
        // Whoever is spoken to looks at the clock again.
        self.mortal.says(&format!("echo {number} > file")).await;
        assert_eq!(self.idle.says("pgrep -c sleep").await, "1\n");
        assert_eq!(self.idle.state().await, SessionState::Running);
        server
            .http()
            .json(&json!({"name": format!("n{number}")}))
            .patch(&self.stopped.path(""))
            .await
            .expect(200);
        assert_eq!(self.stopped.state().await, SessionState::Stopped);

        // The same slot, and what is asked for less long does not make the lease shorter.
        let again = self.pool.acquire_for("holder", 1).await;
        assert_eq!(again.lease.session, self.leased);
        again.session.says("true").await;

        // What is told as a moment is one: a token is over when the clock says so, and only then.
        let status = server.http().token(&self.token).get("/v1/sessions").await.status;
        assert_eq!(
            status,
            if offset < HOUR { 200 } else { 401 },
            "with a clock that is wrong by {offset} ms"
        );
        assert_eq!(create_under_key(server).await, self.remembered, "the key is remembered");

        // The last snapshot is the one that was taken last, and an entry comes behind those before it.
        let name = json!({"name": format!("taken-{number}")});
        server.http().json(&name).post(&self.mortal.path("/snapshots")).await.expect(201);
        self.mortal.says("echo more > file").await;
        server.http().json(&json!({"to": "last"})).post(&self.mortal.path("/reset")).await.expect(200);
        assert_eq!(self.mortal.says("cat file").await, format!("{number}\n"));
        let before = Timestamp::now().0 + offset;
        let event = json!({"kind": "jumped", "body": {"number": number.to_string()}});
        server.http().json(&event).post(&self.mortal.path("/events")).await.expect(201);
        let journal = self.mortal.journal().await;
        assert!(journal.iter().map(|entry| entry.seq).eq(1..=journal.len() as i64), "{journal:?}");
        let last = journal.iter().rev().find(|entry| entry.kind == "caller.jumped").expect("the entry");
        assert_eq!(last.body["number"], number.to_string());
        assert!((last.at.0 - before).abs() < HOUR / 2, "entries say what the clock said: {last:?}");
    }

    async fn is_found_again(&self, server: &Server<'_>) {
        for (session, state) in [
            (&self.mortal, SessionState::Running),
            (&self.idle, SessionState::Running),
            (&self.stopped, SessionState::Stopped),
        ] {
            let session = TestSession::new(server.client(), session.id.clone());
            assert_eq!(session.state().await, state, "{:?}", session.journal().await);
        }
        let pool = TestPool::of(server.client(), "p");
        assert_eq!(pool.acquire("holder").await.lease.session, self.leased);
        server.http().token(&self.token).get("/v1/sessions").await.expect(200);
        assert_eq!(create_under_key(server).await, self.remembered);
    }
}

/// The id of the one session that there is under this key.
async fn create_under_key(server: &Server<'_>) -> Value {
    server.http().key("once").json(&json!({"name": "once"})).post("/v1/sessions").await.expect(201)["id"]
        .clone()
}
