//! `kill -9` of the host in the middle of a snapshot, a fork, a reset, a merge, an import: the old files or the new ones, never a
//! mixture, and nothing left.

mod violence;

use std::time::Duration;
use violence::{Dice, in_threads};
use workroom_testkit::client::{Client, ClientError};
use workroom_testkit::types::{ForkSession, ListSessions, MergeSession, ResetSession, TakeSnapshot};
use workroom_testkit::{Server, TestSession, User};

#[test]
fn a_past_is_whole_after_a_kill() {
    kill_in_the_middle(&User::running_the_tests(), 16);
}

#[test]
fn a_past_of_an_ordinary_user_is_whole_after_a_kill() {
    kill_in_the_middle(&User::ordinary(), 8);
}

#[test]
#[ignore = "long"]
fn soak_a_past_is_whole_after_a_kill() {
    kill_in_the_middle(&User::running_the_tests(), 300);
    kill_in_the_middle(&User::ordinary(), 100);
}

/// What is done while the host is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Snapshot,
    BusySnapshot,
    Reset,
    Fork,
    Merge,
    Import,
}

/// Files that all say the same: a mixture says two things.
fn write_all(word: &str) -> String {
    format!("for i in $(seq 40); do mkdir -p d$((i%5)); echo {word} > d$((i%5))/f$i; done")
}

const WORDS: &str = "cat d*/f* | sort | uniq -c | tr -s ' '";

fn says(word: &str) -> String {
    format!(" 40 {word}\n")
}

fn kill_in_the_middle(user: &User, kills: u64) {
    let mut dice = Dice::new();
    let mut server = Server::of(user);
    in_threads(async {
        let id = server.session().await.id;
        let at = |server: &Server<'_>| TestSession::new(server.client(), id.clone());
        at(&server).says(&write_all("base")).await;
        server.client().set_baseline(&id).await.expect("a baseline");
        for number in 0..kills {
            let deed =
                [Deed::Snapshot, Deed::BusySnapshot, Deed::Reset, Deed::Fork, Deed::Merge, Deed::Import]
                    [dice.below(6) as usize];
            println!("{number}: {deed:?}");
            one(&mut server, &id, deed, number, &mut dice).await;
        }
        for session in sessions(&server.client()).await {
            server.client().delete(&session).await.expect("deleted");
        }
        server.restart();
        server.expect_no_leaks().await;
    });
}

async fn sessions(client: &Client) -> Vec<String> {
    let page = client.list(&ListSessions::default()).await.expect("a list");
    page.sessions.into_iter().map(|session| session.id).collect()
}

async fn one(server: &mut Server<'_>, id: &str, deed: Deed, number: u64, dice: &mut Dice) {
    let session = TestSession::new(server.client(), id.to_owned());
    let (old, new) = (format!("old-{number}"), format!("new-{number}"));
    session.says(&write_all(&old)).await;
    let fork = match deed {
        Deed::Merge => {
            let made = session.client().fork(id, &ForkSession::default()).await.expect("a fork");
            let fork = TestSession::new(server.client(), made.forks[0].session.id.clone());
            fork.says(&write_all(&new)).await;
            Some(fork.id)
        }
        _ => None,
    };
    let mut file = Vec::new();
    if deed == Deed::Import {
        let mut export = session.client().export_session(id).await.expect("a file");
        while let Some(piece) = export.next().await.expect("whole") {
            file.extend_from_slice(&piece);
        }
    }
    if deed == Deed::BusySnapshot {
        session.says("sleep 1000 >/dev/null 2>&1 &").await;
    }
    let name = format!("s-{number}");
    let under_way =
        tokio::spawn(perform(server.client(), id.to_owned(), (deed, name.clone()), fork.clone(), file));
    let longest = if deed == Deed::Merge { 60 } else { 25 };
    tokio::time::sleep(dice.moment(longest)).await;
    server.kill();
    let acknowledged = under_way.await.expect("no panic").is_ok();
    if dice.below(4) == 0 {
        server.start_and_kill_after(Duration::from_millis(dice.below(80)));
    }
    server.restart();
    let client = server.client();
    let session = TestSession::new(client.clone(), id.to_owned());
    let found = session.says(WORDS).await;
    match deed {
        Deed::Snapshot | Deed::BusySnapshot => {
            assert_eq!(found, says(&old));
            let listed = client.snapshots(id).await.expect("a list").snapshots;
            let taken = listed.iter().any(|snapshot| snapshot.name == name);
            assert!(taken || !acknowledged, "a snapshot that was acknowledged is there");
            if taken {
                session.says(&write_all("spoilt")).await;
                client.reset(id, &ResetSession { to: Some(name.clone()) }).await.expect("reset");
                assert_eq!(session.says(WORDS).await, says(&old), "the snapshot holds what was");
                client.delete_snapshot(id, &name).await.expect("deleted");
            }
        }
        Deed::Reset => {
            let is_new = found == says("base");
            assert!(is_new || (!acknowledged && found == says(&old)), "{acknowledged}: {found}");
        }
        Deed::Fork | Deed::Import => {
            assert_eq!(found, says(&old));
            let forks: Vec<String> =
                sessions(&client).await.into_iter().filter(|known| known != id).collect();
            let all = if deed == Deed::Fork { 3 } else { 1 };
            assert!(forks.is_empty() || forks.len() == all, "all or none: {forks:?}");
            assert!(forks.len() == all || !acknowledged);
            for fork in forks {
                let fork = TestSession::new(client.clone(), fork);
                assert_eq!(fork.says(WORDS).await, says(&old));
                fork.delete().await;
            }
        }
        Deed::Merge => {
            let is_new = found == says(&new);
            assert!(is_new || (!acknowledged && found == says(&old)), "{acknowledged}: {found}");
            client.delete(&fork.expect("a fork")).await.expect("deleted");
        }
    }
    // The stack does not grow with the kills.
    client.reset(id, &ResetSession::default()).await.expect("reset");
    assert_eq!(session.says(WORDS).await, says("base"));
}

async fn perform(
    client: Client,
    id: String,
    (deed, name): (Deed, String),
    fork: Option<String>,
    file: Vec<u8>,
) -> Result<(), ClientError> {
    match deed {
        Deed::Snapshot | Deed::BusySnapshot => {
            client.take_snapshot(&id, &TakeSnapshot { name: Some(name) }).await.map(drop)
        }
        Deed::Reset => client.reset(&id, &ResetSession::default()).await.map(drop),
        Deed::Fork => {
            let request = ForkSession { count: Some(3), ..ForkSession::default() };
            client.fork(&id, &request).await.map(drop)
        }
        Deed::Merge => {
            let request = MergeSession { from: fork.unwrap_or_default(), ..MergeSession::default() };
            client.merge(&id, &request).await.map(drop)
        }
        Deed::Import => client.import_session(file.into()).await.map(drop),
    }
}
