//! A disk that fails for a while: what was acknowledged is there, what was refused is not, and it goes on.

mod support;

use std::process::Command;
use support::{Dir, entry, numbers, open, with_entries};
use workroom_store::Store;

/// strace counts calls by thread, and each connection to the database has one: every new connection works for a
/// few commits and then fails.
const CHILD: &str = "WORKROOM_STORE_FAILING_CHILD";

/// The child: one commit after the other, a word about each.
async fn commit_and_tell(dir: String) {
    let store = Store::open(dir.as_ref()).await.expect("the store opens");
    for number in 1..=60 {
        if number % 4 == 0 {
            store.note(entry("s", number)).await;
            println!("\nnoted {number}");
            continue;
        }
        match store.commit(vec![entry("s", number)]).await {
            Ok(_) => println!("\nyes {number}"),
            Err(error) => {
                assert!(error.is_io(), "{error}");
                println!("\nno {number}");
            }
        }
        assert!(store.session("s").await.expect("reads go on").is_some());
    }
    store.close().await;
    assert_eq!(store.counters().dropped, 0);
}

async fn under(injection: &str, test: &str) {
    if let Ok(dir) = std::env::var(CHILD) {
        return commit_and_tell(dir).await;
    }
    let dir = Dir::new();
    let store = open(&dir).await;
    with_entries(&store, "s", 0).await;
    store.close().await;
    let traced = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", injection])
        .arg(std::env::current_exe().expect("this test's own binary"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, dir.path())
        .output();
    let Ok(output) = traced else {
        println!("skipped: there is no strace here");
        return;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("ptrace") || errors.contains("PTRACE") {
        println!("skipped: strace may not trace here: {errors}");
        return;
    }
    assert!(output.status.success(), "{}\n{errors}", String::from_utf8_lossy(&output.stdout));
    let words = String::from_utf8(output.stdout).expect("words");
    let of = |word: &str| -> Vec<i64> {
        words.lines().filter_map(|line| line.strip_prefix(word)?.trim().parse().ok()).collect()
    };
    let (yes, no, noted) = (of("yes "), of("no "), of("noted "));
    assert_eq!((yes.len() + no.len(), noted.len()), (45, 15), "{words}");
    assert!(!no.is_empty() && yes.last() > no.first(), "it failed and it recovered: {words}");

    let store = open(&dir).await;
    let mut stored = numbers(&store, "s").await;
    stored.sort();
    let mut expected = [yes, noted].concat();
    expected.sort();
    assert_eq!(stored, expected);
    assert_eq!(store.verify(None).await.expect("a verification").faults, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushes_that_fail() {
    under("inject=fsync,fdatasync:error=EIO:when=5..40", "flushes_that_fail").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_fail() {
    under("inject=pwrite64:error=EIO:when=40..70", "writes_that_fail").await;
}
