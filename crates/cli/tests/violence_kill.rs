//! `kill -9` of the host at any moment, under traffic: nothing acknowledged is lost, nothing is doubled, nothing is left.

mod violence;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::task::JoinSet;
use violence::caller::Caller;
use violence::line::Line;
use violence::machine::{agrees, all_sessions, guests, text, verify_journals};
use violence::ticker::Ticker;
use violence::{Dice, in_threads};
use workroom_testkit::{Server, User, eventually, groups_of};

#[test]
fn a_killed_host_loses_and_doubles_nothing() {
    kill_many_times(&User::running_the_tests(), 8, 6, 3);
}

/// Without groups rooms are stopped by signals, and nothing but the end of PID 1 ends what is in them.
#[test]
fn a_killed_host_of_an_ordinary_user_loses_and_doubles_nothing() {
    kill_many_times(&User::ordinary(), 4, 4, 3);
}

#[test]
#[ignore = "long"]
fn soak_a_killed_host_loses_and_doubles_nothing() {
    kill_many_times(&User::running_the_tests(), 200, 50, 6);
}

#[test]
#[ignore = "long"]
fn soak_a_killed_host_of_an_ordinary_user_loses_and_doubles_nothing() {
    kill_many_times(&User::ordinary(), 50, 20, 6);
}

fn kill_many_times(user: &User, kills: u32, live_rooms: u32, callers: u32) {
    let mut dice = Dice::new();
    let mut server = Server::of(user);
    let line = Line::of(&server);
    in_threads(async {
        let began = Instant::now();
        let mut tickers = Vec::new();
        for number in 0..live_rooms {
            tickers.push(Arc::new(Ticker::new(&line, format!("ticker-{number}")).await));
        }
        let mut running = JoinSet::new();
        for ticker in &tickers {
            let (ticker, started) = (ticker.clone(), ticker.start().await);
            running.spawn(async move { ticker.run_to_end(started).await });
        }
        let mut books: Vec<Caller> =
            (0..callers).map(|number| Caller::new(format!("c{number}"), &line, dice.fork())).collect();

        for _ in 0..kills {
            books = one_kill(&mut server, books, &mut dice).await;
            agree(&server, &line, &mut books, &tickers).await;
            verify_journals(&server);
            let lost: Vec<_> = running.try_join_next().into_iter().collect();
            assert!(lost.is_empty(), "commands go on: {lost:?}");
        }

        for ticker in &tickers {
            ticker.enough().await;
        }
        while let Some(ended) = running.join_next().await {
            ended.expect("its output is whole");
        }
        let (mut deeds, mut broken, mut unknown) = (0, 0, 0);
        for book in &books {
            book.check_files().await;
            deeds += book.deeds();
            broken += book.broken;
            unknown += book.unknown;
        }
        println!(
            "{kills} kills with {live_rooms} rooms of long commands: {deeds} requests of {callers} callers, {broken} \
             broken attempts, {unknown} commands of unknown outcome, {:.1} s",
            began.elapsed().as_secs_f64()
        );
        leave_nothing(&mut server, &line, &books).await;
    });
}

/// Callers work; the host is killed in the middle, and sometimes its successor too; what was open is asked again.
async fn one_kill(server: &mut Server<'_>, books: Vec<Caller>, dice: &mut Dice) -> Vec<Caller> {
    let over = Arc::new(AtomicBool::new(false));
    let mut working = JoinSet::new();
    for mut book in books {
        let over = over.clone();
        working.spawn(async move {
            book.work(&over).await;
            book
        });
    }
    tokio::time::sleep(dice.moment(400)).await;
    server.kill();
    over.store(true, Ordering::Relaxed);
    while dice.below(3) == 0 {
        server.start_and_kill_after(dice.moment(150));
    }
    server.restart();
    let mut books = Vec::new();
    while let Some(book) = working.join_next().await {
        books.push(book.expect("books that agree with what the server says"));
    }
    books
}

/// What the server says, what is on the machine and what callers know are the same.
async fn agree(server: &Server<'_>, line: &Line, books: &mut [Caller], tickers: &[Arc<Ticker>]) {
    for book in books.iter_mut() {
        book.check_books().await;
    }
    let sessions = all_sessions(line).await;
    let mut known: Vec<&str> = tickers.iter().map(|ticker| ticker.session.as_str()).collect();
    known.extend(books.iter().flat_map(|book| &book.sessions).map(|known| known.id.as_str()));
    let listed: Vec<&str> = sessions.iter().map(|session| text(session, "id")).collect();
    assert_eq!(listed.len(), known.len(), "none is lost and none doubled");
    assert_eq!(BTreeSet::from_iter(listed), BTreeSet::from_iter(known));
    for ticker in tickers {
        let session = sessions.iter().find(|session| text(session, "id") == ticker.session);
        assert_eq!(session.map(|session| text(session, "state")), Some("running"));
    }
    eventually(async || agrees(server, &sessions)).await;
}

/// When all is deleted, nothing is on the machine that was not there before.
async fn leave_nothing(server: &mut Server<'_>, line: &Line, books: &[Caller]) {
    let mut ids: Vec<String> = books.iter().flat_map(|book| book.deleted.clone()).collect();
    for session in all_sessions(line).await {
        let id = text(&session, "id");
        line.delete(&format!("/v1/sessions/{id}")).await.expect(204);
        ids.push(id.to_owned());
    }
    eventually(async || agrees(server, &[])).await;
    assert_eq!(guests(server), []);
    // What rooms of killed hosts left among the groups goes when the next spawner makes its first room.
    server.restart();
    let made = line.post("/v1/sessions", None).await;
    let last = text(made.expect(201), "id").to_owned();
    eventually(async || match groups_of(&ids) {
        groups if groups.is_empty() => Ok(()),
        groups => Err(format!("groups are left: {groups:?}")),
    })
    .await;
    line.delete(&format!("/v1/sessions/{last}")).await.expect(204);
    server.expect_no_leaks().await;
    verify_journals(server);
}
