//! Pausing and resuming, stopping and starting, a thousand times: no byte is lost and no step is skipped.

mod violence;

use violence::line::Line;
use violence::machine::{text, verify_journals};
use violence::{Dice, in_threads};
use workroom_testkit::{Server, User, eventually};

#[test]
fn a_process_does_not_notice_that_it_is_paused() {
    pause_and_resume(15);
}

#[test]
#[ignore = "long"]
fn soak_a_process_does_not_notice_that_it_is_paused() {
    pause_and_resume(1000);
}

#[test]
fn files_outlive_rooms() {
    stop_and_start(15);
}

#[test]
#[ignore = "long"]
fn soak_files_outlive_rooms() {
    stop_and_start(1000);
}

/// Writes numbers without end, each on a line of its own.
const COUNT: &str = "i=0; while :; do i=$((i + 1)); echo $i; done > count 2> errors & echo $! > pid";

/// Whether the numbers are there from the first to the last; says how many.
const CHECK: &str = "kill $(cat pid) && while kill -0 $(cat pid) 2>/dev/null; do :; done; \
                     awk '$1 != NR { print \"line\", NR, \"is\", $1; exit 1 } END { print NR }' count && cat errors";

fn pause_and_resume(cycles: u32) {
    let mut dice = Dice::new();
    let user = User::running_the_tests();
    let server = Server::of(&user);
    let line = Line::of(&server);
    in_threads(async {
        let made = line.post("/v1/sessions", None).await;
        let id = text(made.expect(201), "id").to_owned();
        line.says(&id, COUNT).await;
        // What the room wrote is looked at from outside while nothing in it can be asked.
        let count = server.state().join("layers").join(&id).join("fs/workspace/count");
        let size = || std::fs::metadata(&count).map_or(0, |file| file.len());
        eventually(async || if size() > 0 { Ok(()) } else { Err("it does not count".into()) }).await;
        let mut before = 0;
        for _ in 0..cycles {
            let paused = line.post(format!("/v1/sessions/{id}/pause"), None).await;
            assert_eq!(text(paused.expect(200), "state"), "paused");
            let stood = size();
            assert!(stood > before, "it had gone on");
            tokio::time::sleep(dice.moment(3)).await;
            assert_eq!(size(), stood, "it stands still");
            before = stood;
            let resumed = line.post(format!("/v1/sessions/{id}/resume"), None).await;
            assert_eq!(text(resumed.expect(200), "state"), "running");
            eventually(async || if size() > stood { Ok(()) } else { Err("it does not go on".into()) }).await;
        }
        let counted = line.says(&id, CHECK).await;
        println!("{cycles} times paused and resumed; it had counted to {}", counted.trim());
        verify_journals(&server);
    });
}

/// A tree with every kind of thing in it that a layer has to keep.
const TREE: &str = r"
mkdir -p tree/a/b/c tree/empty
for n in $(seq 100); do head -c $((n * 97)) /dev/urandom > tree/a/b/c/$n; done
ln -s ../a/b/c/1 tree/empty/link; ln tree/a/b/c/2 tree/a/second
chmod 600 tree/a/b/c/3; chmod 755 tree/a/b/c/4; touch -d @1000000000 tree/a/b/c/5
mkfifo tree/pipe; printf 'x' > 'tree/a name with spaces'; truncate -s 1M tree/sparse";

/// Everything about the tree in one line.
const HASH: &str = r"cd tree && { find . -printf '%p %y %m %T@ %s %l %n\n' | sort
find . -type f -print0 | sort -z | xargs -0 sha256sum; } | sha256sum";

fn stop_and_start(cycles: u32) {
    let mut dice = Dice::new();
    let user = User::running_the_tests();
    let mut server = Server::of(&user);
    let line = Line::of(&server);
    in_threads(async {
        let made = line.post("/v1/sessions", None).await;
        let id = text(made.expect(201), "id").to_owned();
        line.says(&id, TREE).await;
        let tree = line.says(&id, HASH).await;
        let mut log = String::new();
        for number in 1..=cycles {
            line.says(&id, &format!("echo {number} >> log")).await;
            log.push_str(&format!("{number}\n"));
            let stopped = line.post(format!("/v1/sessions/{id}/stop"), None).await;
            assert_eq!(text(stopped.expect(200), "state"), "stopped");
            if dice.below(20) == 0 {
                server.kill();
                server.restart();
            }
            // By being told to, or because something is asked of it.
            if dice.below(2) == 0 {
                let started = line.post(format!("/v1/sessions/{id}/start"), None).await;
                assert_eq!(text(started.expect(200), "state"), "running");
            }
            if dice.below(5) == 0 {
                assert_eq!(line.says(&id, HASH).await, tree, "after {number} rooms");
            }
        }
        assert_eq!(line.says(&id, "cat log").await, log);
        assert_eq!(line.says(&id, HASH).await, tree);
        println!("{cycles} times stopped and started");
        verify_journals(&server);
    });
}
