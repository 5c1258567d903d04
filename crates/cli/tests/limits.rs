//! Limits of a room that a command runs into: it is told, and the room goes on.

mod support;

use std::fs;
use std::process::Stdio;
use support::pty::Watch;
use support::traces::spawner_of;
use support::{collect, finish, for_each_privilege, installed};

#[test]
fn the_disk_ends_where_it_was_said_to() {
    for_each_privilege(|caller| {
        for place in ["/tmp/f", "/workspace/f", "/home/agent/f", "/var/tmp/f"] {
            let script = format!(
                "head -c 40000000 /dev/zero > {place}; stat -c %s {place}; \
                rm {place}; echo ok > {place}; cat {place}"
            );
            let outcome = caller.sh(&["--disk", "16M"], &script);
            assert!(outcome.err.contains("No space left"), "{place}: {outcome:?}");
            let mut lines = outcome.out.lines();
            let size: u64 = lines.next().and_then(|line| line.parse().ok()).expect("a size");
            assert!((12 << 20..=16 << 20).contains(&size), "{size} bytes at {place}");
            assert_eq!(lines.next(), Some("ok"), "and it goes on");
        }
        let shared = "head -c 10000000 /dev/zero > /tmp/a && head -c 10000000 /dev/zero > /workspace/b";
        assert_ne!(caller.sh(&["--disk", "16M"], shared).code, 0, "one limit for all of it");
        assert_eq!(caller.says(&["--disk", "64M"], shared), "");
    });
}

#[test]
fn many_small_files_end_too() {
    for_each_privilege(|caller| {
        if !installed("perl") {
            return;
        }
        let script =
            "for ($n = 0; $n < 100000; $n++) { open(F, '>', \"/tmp/$n\") or last; close F } print \"$n $!\"";
        let said = finish(caller.run(&["--disk", "16M"], &["perl", "-e", script])).good();
        let (count, why) = said.split_once(' ').expect("a count and a reason");
        assert!(count.parse::<u32>().expect("a count") < 20_000, "{said}");
        assert!(why.contains("No space left"), "{said}");
    });
}

/// Starts children until it cannot, and says how many there are.
const FORKS: &str = "while ($n < 500) { \
    my $p = fork; last unless defined $p; if (!$p) { sleep 1000; exit } $n++ } print \"$n $!\"";

#[test]
fn processes_end_where_they_were_said_to() {
    for_each_privilege(|caller| {
        if !installed("perl") {
            return;
        }
        for limit in [8, 64] {
            let text = limit.to_string();
            assert_eq!(caller.layer(&["--pids", &text], "pids"), "enforced");
            let said = finish(caller.run(&["--pids", &text], &["perl", "-e", FORKS])).good();
            let count: u32 = said.split(' ').next().and_then(|count| count.parse().ok()).expect("a count");
            assert_eq!(count, limit - 1, "perl itself is one of {limit}: {said}");
            assert!(said.contains("temporarily unavailable"), "{said}");
        }
    });
}

#[test]
fn rooms_do_not_share_their_process_limit() {
    for_each_privilege(|caller| {
        if !installed("perl") {
            return;
        }
        let run = || finish(caller.run(&["--pids", "40"], &["perl", "-e", FORKS])).good();
        std::thread::scope(|scope| {
            let rooms: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
            for room in rooms {
                assert!(room.join().expect("a room").starts_with("39 "));
            }
        });
    });
}

#[test]
fn threads_count_as_processes() {
    for_each_privilege(|caller| {
        if !installed("python3") {
            return;
        }
        let script = "
import threading
stop, made = threading.Event(), []
try:
    while len(made) < 500:
        t = threading.Thread(target=stop.wait); t.start(); made.append(t)
except RuntimeError:
    pass
print(len(made)); stop.set()";
        let said = finish(caller.run(&["--pids", "30"], &["python3", "-c", script])).good();
        assert!((20..=30).contains(&said.trim().parse::<u32>().expect("a count")), "{said}");
    });
}

#[test]
fn memory_is_for_all_of_the_room_where_it_is_enforced() {
    for_each_privilege(|caller| {
        let options = ["--memory", "48M"];
        if caller.layer(&options, "memory") != "enforced" {
            println!("skipped: no memory limit for all of a room here");
            return;
        }
        // Each of them would fit.
        let script = "for i in 1 2 3; do head -c 30000000 /dev/zero > /dev/shm/$i & done; wait; echo end";
        let result = caller.json(&options, &["sh", "-c", script]);
        assert_eq!(result["oom_killed"], true, "{result}");
        assert_eq!(
            caller.says(&["--memory", "48M"], "head -c 20000000 /dev/zero | tail -c 1 | wc -c").trim(),
            "1"
        );
    });
}

#[test]
fn cpu_time_is_limited_where_it_is_enforced() {
    for_each_privilege(|caller| {
        let options = ["--cpus", "0.2"];
        if caller.layer(&options, "cpu") != "enforced" {
            println!("skipped: no cpu limit here");
            return;
        }
        let spin = "while :; do :; done";
        let result = caller
            .json(&["--cpus", "0.2", "--timeout", "1500ms"], &["sh", "-c", &format!("({spin}) & {spin}")]);
        assert_eq!(result["timed_out"], true);
        assert_eq!(result["enforced"]["cpu"]["state"], "enforced");
        let result = caller
            .json(&["--cpus", "0.2"], &["sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]);
        let (wall, cpu) =
            (result["duration_ms"].as_f64().expect("ms"), result["cpu_ms"].as_f64().expect("ms"));
        // Ten periods' worth at a fifth of a CPU: far from what it would be without the limit.
        assert!(cpu < 150.0 || wall > 2.0 * cpu, "{cpu} ms of cpu in {wall} ms");
    });
}

#[test]
fn open_files_are_limited() {
    for_each_privilege(|caller| {
        let said = caller.says(&[], "ulimit -n; ulimit -Hn");
        assert_eq!(said, "16384\n16384\n");
    });
}

/// Root of a container may be no more than others there: it needs CAP_SYS_RESOURCE.
fn may_lower_scores() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("read a status");
    let sets = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("capabilities");
    u64::from_str_radix(sets.trim(), 16).expect("a set") & (1 << 24) != 0
}

/// When the machine is out of memory, rooms go before what made them.
#[test]
fn rooms_are_the_first_to_go_when_memory_is_short() {
    for_each_privilege(|caller| {
        // The command itself, the guest, and the launcher, by their names.
        let script = "cat /proc/self/oom_score_adj; for process in /proc/[0-9]*; do \
            read -r name < $process/comm; case $name in guest|launcher) \
            read -r score < $process/oom_score_adj; echo $name $score; esac; done; echo ready; read -r forever";
        let mut child = caller.run(&[], &["sh", "-c", script]).stdin(Stdio::piped()).spawn().expect("start");
        let mut out = Watch::new(child.stdout.take().expect("stdout"));
        let said = out.wait_for("ready\n");
        let own = |pid: i32| fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("read a score");
        let (spawner, us) = (spawner_of(child.id() as i32).expect("a spawner"), std::process::id() as i32);
        let (spawner, us) = (own(spawner), own(us));
        drop(child.stdin.take());
        collect(child);
        let scores: Vec<&str> = said.lines().collect();
        assert_eq!(scores, ["500", "guest 500", "launcher 500", "ready"]);
        let expected = if caller.is_root() && may_lower_scores() { "-900\n" } else { &us };
        assert_eq!(spawner, expected);
    });
}
