//! Measures the store on a directory of this machine: how long a commit takes, how many go at once, how long
//! lists take. `cargo run --release -p workroom-store --example measure -- DIR`

use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use workroom_store::{Change, SessionFilter, SessionRow, Store, StoreError};
use workroom_types::{Counters, Enforced, OnExpiry, Policy, Session, SessionState, Timestamp};

#[tokio::main]
async fn main() -> Result<(), StoreError> {
    let dir = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("workroom-store-measure-{}", std::process::id()));
    let begun = Instant::now();
    let store = Store::open(&dir).await?;
    println!("open a new store: {:?}", begun.elapsed());
    floor(&dir);

    let mut times = Vec::new();
    for number in 0..500 {
        let begun = Instant::now();
        store.commit(create(number)).await?;
        times.push(begun.elapsed());
    }
    report("commit of a session and its first entry, one at a time", times);

    let mut times = Vec::new();
    for _ in 0..500 {
        let begun = Instant::now();
        store.commit(vec![entry(1)]).await?;
        times.push(begun.elapsed());
    }
    report("commit of one entry, one at a time", times);

    for callers in [8, 64] {
        let each = 40;
        let begun = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for caller in 0..callers {
            let store = store.clone();
            tasks.spawn(async move {
                let mut times = Vec::new();
                for step in 0..each {
                    let begun = Instant::now();
                    store.commit(create(callers * 100_000 + caller * each + step)).await?;
                    times.push(begun.elapsed());
                }
                Ok::<_, StoreError>(times)
            });
        }
        let mut times = Vec::new();
        for outcome in tasks.join_all().await {
            times.extend(outcome?);
        }
        let rate = times.len() as f64 / begun.elapsed().as_secs_f64();
        report(&format!("the same by {callers} callers at once, {rate:.0} commits/s"), times);
    }

    let begun = Instant::now();
    for number in 0..20_000 {
        store.note(entry(number % 500)).await;
    }
    store.commit(vec![entry(0)]).await?;
    println!("20,000 notes: {:?}", begun.elapsed());

    let chunks: Vec<i64> = (1_000_000..1_007_000).collect();
    for chunk in chunks.chunks(500) {
        store.commit(chunk.iter().flat_map(|number| create(*number)).collect()).await?;
    }
    println!("{} sessions from here on", store.all_ids().await?.len());
    let page = SessionFilter { limit: 100, ..Default::default() };
    let label = |value: &str| Some(("env".to_owned(), Some(value.to_owned())));
    for (name, filter) in [
        ("list of 100", page.clone()),
        ("list of 100 of an owner", SessionFilter { owner: Some("owner3".into()), ..page.clone() }),
        ("list of 100 with a label", SessionFilter { label: label("e2"), ..page.clone() }),
        (
            "list of a state that none is in, with a label",
            SessionFilter { label: label("e2"), states: vec![SessionState::Failed], ..page.clone() },
        ),
        (
            "list of a state that none is in",
            SessionFilter { states: vec![SessionState::Failed], ..page.clone() },
        ),
    ] {
        let mut times = Vec::new();
        for _ in 0..100 {
            let begun = Instant::now();
            store.sessions(&filter).await?;
            times.push(begun.elapsed());
        }
        report(name, times);
    }
    let mut times = Vec::new();
    for number in 0..500 {
        let begun = Instant::now();
        store.session(&id(number)).await?;
        times.push(begun.elapsed());
    }
    report("one session", times);
    let begun = Instant::now();
    let verification = store.verify(None).await?;
    println!(
        "verify {} entries: {:?}, {} faults",
        verification.entries,
        begun.elapsed(),
        verification.faults.len()
    );
    let begun = Instant::now();
    store.close().await;
    println!("close: {:?}", begun.elapsed());
    let begun = Instant::now();
    let store = Store::open(&dir).await?;
    println!("open it again: {:?}", begun.elapsed());
    store.close().await;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

/// What the disk itself takes to make 4 KiB durable.
fn floor(dir: &std::path::Path) {
    use std::io::Write;
    let Ok(mut file) = std::fs::File::create(dir.join("floor")) else { return };
    let mut times = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        if file.write_all(&[7; 4096]).and_then(|()| file.sync_data()).is_err() {
            return;
        }
        times.push(begun.elapsed());
    }
    report("floor: write 4 KiB and fdatasync", times);
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{name}: p50 {:?}, p99 {:?}", at(50), at(99));
}

fn id(number: i64) -> String {
    format!("20260101-000000-{number:08x}")
}

fn entry(number: i64) -> Change {
    Change::Journal {
        session: id(number),
        at: Timestamp::now(),
        actor: "token:abc".into(),
        kind: "exec.finished".into(),
        body: json!({ "command": "make test", "exit_code": 0, "duration_ms": 12 }),
    }
}

fn create(number: i64) -> Vec<Change> {
    let session = Session {
        id: id(number),
        name: "a session".into(),
        labels: BTreeMap::from([("env".into(), format!("e{}", number % 3))]),
        owner: format!("owner{}", number % 7),
        key: None,
        group: None,
        channel: None,
        thread: None,
        template: "host".into(),
        policy: Policy::default(),
        policy_version: 1,
        policy_changed: None,
        room_policy: None,
        mounts: Vec::new(),
        room_binds: None,
        state: SessionState::Running,
        reason: None,
        created: Timestamp::now(),
        last_active: Timestamp::now(),
        ttl: None,
        idle_timeout: Some(600),
        on_expiry: OnExpiry::Stop,
        keep_alive: false,
        enforced: Enforced::default(),
        counters: Counters::default(),
        reset_count: 0,
        parent: None,
        pool: None,
    };
    let row = SessionRow { session, place: None, waiting: false };
    vec![Change::InsertSession { row }, entry(number)]
}
