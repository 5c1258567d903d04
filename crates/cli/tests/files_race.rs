//! File work through directories that a process of the room exchanges with links as fast as it can: nothing outside the
//! workspace is made, changed, deleted or told.

mod race;
mod violence;

use race::deeds::{DEEDS, Deed, Outcomes, Worker};
use race::{ARENA, CANARY, FILES, ONLY_OUTSIDE, OUTSIDE_SIZE, TRAPS};
use std::collections::BTreeMap;
use std::path::Path;
use tokio::task::JoinSet;
use violence::{Dice, in_threads};
use workroom_testkit::{Server, TestSession, User, eventually};

/// Callers at the same time.
const CALLERS: u64 = 3;

/// What the hostile program is told by, in its environment.
const INSIDE: &str = "WORKROOM_TEST_SWAPS";

#[test]
fn no_race_leads_out_of_the_workspace() {
    race(&User::running_the_tests(), 3000);
}

#[test]
fn no_race_leads_out_of_the_workspace_of_an_ordinary_user() {
    race(&User::ordinary(), 3000);
}

#[test]
#[ignore = "long"]
fn soak_no_race_leads_out_of_the_workspace() {
    race(&User::running_the_tests(), 100_000);
}

#[test]
#[ignore = "long"]
fn soak_no_race_leads_out_of_the_workspace_of_an_ordinary_user() {
    race(&User::ordinary(), 100_000);
}

/// Not a test: the program that the room runs, which is this one.
#[test]
#[ignore = "does nothing but in a room"]
fn swaps_inside_a_room() {
    if let Ok(round) = std::env::var(INSIDE) {
        let traps = TRAPS[round.parse::<usize>().expect("a number")];
        println!("exchanges: {}", race::swapper::swap_until_told(traps));
    }
}

fn race(user: &User, operations: u64) {
    let mut dice = Dice::new();
    let server = Server::of(user);
    in_threads(async {
        let session = server.session().await;
        let host = host_canary(user);
        prepare(&server, &session).await;
        let before = (outside(&session).await, host_listing(&host));
        let archive = archive(&server, &session).await;
        let mut workers: Vec<Worker> = (0..CALLERS)
            .map(|_| Worker::new(server.http(), session.path(""), archive.clone(), dice.fork()))
            .collect();
        let mut exchanges = 0;
        for (round, traps) in TRAPS.into_iter().enumerate() {
            start_swapping(&session, round).await;
            let mut working = JoinSet::new();
            for worker in workers.drain(..) {
                working.spawn(worker.work(traps, operations / CALLERS / TRAPS.len() as u64));
            }
            while let Some(worker) = working.join_next().await {
                workers.push(worker.expect("answers that say nothing of outside"));
            }
            exchanges += stop_swapping(&session).await;
        }
        let mut book: BTreeMap<Deed, Outcomes> = BTreeMap::new();
        for (deed, outcomes) in workers.iter().flat_map(|worker| &worker.book) {
            let sum = book.entry(*deed).or_default();
            sum.done += outcomes.done;
            sum.outside += outcomes.outside;
            sum.other += outcomes.other;
        }
        println!("{operations} operations during {exchanges} exchanges: {book:#?}");
        let after = (outside(&session).await, host_listing(&host));
        let same = before == after;
        assert!(same, "{}", difference(&before.0, &after.0));
        // A copy or a move would have brought it in.
        let search = format!("! grep -rl {CANARY} /workspace --exclude=swapper");
        session.says(&search).await;
        assert!(exchanges > operations, "it was no race: {exchanges} exchanges");
        for deed in DEEDS {
            let Outcomes { done, outside, .. } = book[&deed];
            assert!(done > 0 && outside > 0, "{deed:?} never saw one of the two: {book:#?}");
        }
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

/// Something of the machine that nothing has business with.
fn host_canary(user: &User) -> std::path::PathBuf {
    let dir = user.make_dir("outside");
    user.make_file("outside/canary", CANARY);
    dir
}

fn host_listing(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let above = dir.parent().expect("a scratch directory");
    let names = |dir: &Path| -> Vec<std::path::PathBuf> {
        std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()).collect()
    };
    let mut found: Vec<_> = names(dir)
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).expect("a file")))
        .chain(names(above).into_iter().map(|path| (path, Vec::new())))
        .collect();
    found.sort();
    found
}

/// What is outside the workspace, with the names that are inside too; and the program that swaps.
async fn prepare(server: &Server<'_>, session: &TestSession) {
    let files = FILES.join(" ");
    session
        .says(&format!(
            "mkdir -p /tmp/outside /home/agent {ARENA}/safe && for top in /tmp/outside /home/agent; do \
             mkdir -p $top/sub $top/outside/sub && for dir in $top $top/sub $top/outside $top/outside/sub; do \
             for file in {files}; do echo {CANARY} > $dir/$file; done; \
             truncate -s {OUTSIDE_SIZE} $dir/{ONLY_OUTSIDE}; done; done"
        ))
        .await;
    let own = std::env::current_exe().and_then(std::fs::read).expect("this program");
    let put = server.http().body(own).put(&session.path("/files/swapper?mode=0755")).await;
    put.expect(201);
}

/// Everything in the room but the workspace and what the machine lends it: names, modes, links, content, and when each was
/// last changed in any way.
async fn outside(session: &TestSession) -> String {
    session
        .says(
            "find / -xdev \\( -path /workspace -o -path /proc -o -path /dev -o -path /sys \\) -prune -o \
             -printf '%p %y %m %s %C@ %l\\n' 2>/dev/null | sort; \
             find /tmp /home /etc -xdev -type f -size -1000 -exec md5sum {} + 2>/dev/null | sort; true",
        )
        .await
}

fn difference(before: &str, after: &str) -> String {
    let missing = |all: &str, of: &str| -> String {
        of.lines()
            .filter(|line| !all.lines().any(|other| other == *line))
            .take(20)
            .collect::<Vec<_>>()
            .join("\n")
    };
    format!("outside there was\n{}\nand now\n{}", missing(after, before), missing(before, after))
}

/// An archive whose entries are files that are inside and outside.
async fn archive(server: &Server<'_>, session: &TestSession) -> Vec<u8> {
    session
        .says(
            "mkdir -p made/sub made/outside && echo imported | tee made/a made/sub/b made/outside/new > made/canary \
             && tar -C made -cf packed.tar a canary sub outside && rm -r made",
        )
        .await;
    server.http().get(&session.path("/files/packed.tar")).await.body
}

async fn start_swapping(session: &TestSession, round: usize) {
    session
        .says(&format!(
            "cd {ARENA} && rm -rf stop ../swaps && ({INSIDE}={round} ../swapper --ignored --exact --nocapture swaps_inside_a_room > ../swaps 2>&1; \
             echo over >> ../swaps) > /dev/null 2>&1 &"
        ))
        .await;
    let made = format!("test -e {ARENA}/{}/a", TRAPS[round][0].0);
    eventually(async || match session.sh(&made).await.exit_code {
        0 => Ok(()),
        _ => Err(format!("it has not begun: {:?}", session.sh("cat swaps").await)),
    })
    .await;
}

async fn stop_swapping(session: &TestSession) -> u64 {
    session.says(&format!("touch {ARENA}/stop")).await;
    eventually(async || match session.says("cat swaps").await {
        said if said.ends_with("over\n") => Ok(()),
        said => Err(format!("it goes on: {said}")),
    })
    .await;
    let said = session.says("cat swaps").await;
    let count = said.lines().find_map(|line| line.split_once("exchanges: ")?.1.trim().parse().ok());
    count.unwrap_or_else(|| panic!("it says no count: {said}"))
}
