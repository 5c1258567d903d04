//! The attack suite: every wall holds, and each case is stopped by the layers that it names.

mod support;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Caller, as_ordinary_user, as_root, collect_within, finish, for_each_privilege};
use workroom_attacks::cases;

/// Which cases go red when which layers are left out.
const MUTATIONS: &str = include_str!("../../../attacks/golden/mutations.txt");

/// All cases, in two rooms each, take longer than what else is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the suite and returns each case's verdict and what was got.
#[track_caller]
fn attack(caller: &Caller, options: &[&str]) -> BTreeMap<String, (String, String)> {
    let mut command = caller.command(caller.program());
    command.args(["doctor", "--attack", "--json"]).args(options);
    let outcome = collect_within(PATIENCE, command.spawn().expect("start"));
    let result: Value = serde_json::from_str(&outcome.out)
        .unwrap_or_else(|error| panic!("{error}: {} {}", outcome.out, outcome.err));
    let cases = result["cases"].as_array().expect("a list of cases");
    let text = |case: &Value, field: &str| case[field].as_str().unwrap_or_default().to_owned();
    cases.iter().map(|case| (text(case, "case"), (text(case, "verdict"), text(case, "got")))).collect()
}

#[test]
fn every_wall_holds() {
    for_each_privilege(|caller| {
        let cases = attack(caller, &[]);
        assert!(cases.len() > 100, "{} cases", cases.len());
        let red: Vec<_> = cases.iter().filter(|(_, (verdict, _))| verdict == "breached").collect();
        assert!(red.is_empty(), "{red:#?}");
        // Only limits that the room does not claim may go untried.
        let limits = ["memory", "pids", "cpu"].map(|layer| caller.layer(&["--cpus", "1"], layer));
        if limits.iter().all(|state| state == "enforced") {
            let skipped: Vec<_> = cases.iter().filter(|(_, (verdict, _))| verdict == "skipped").collect();
            assert!(skipped.is_empty(), "{skipped:#?}");
        }
    });
}

/// One line of the record: `MODE LAYERS: CASES`.
struct Mutation {
    mode: &'static str,
    layers: &'static str,
    cases: Vec<&'static str>,
}

fn mutations() -> Vec<Mutation> {
    let lines = MUTATIONS.lines().filter(|line| !line.is_empty() && !line.starts_with(['#']));
    lines
        .filter(|line| !line.starts_with("never "))
        .map(|line| {
            let (what, cases) = line.split_once(": ").expect(line);
            let (mode, layers) = what.split_once(' ').expect(line);
            Mutation { mode, layers, cases: cases.split(' ').collect() }
        })
        .collect()
}

fn never_red() -> Vec<&'static str> {
    MUTATIONS
        .lines()
        .filter_map(|line| line.strip_prefix("never ")?.split_once(": "))
        .map(|(case, _)| case)
        .collect()
}

/// Limits that this machine does not keep, and which can therefore not be left out either.
fn unlimited(caller: &Caller) -> Vec<&'static str> {
    let layers = ["memory", "pids", "cpu"];
    layers.into_iter().filter(|layer| caller.layer(&["--cpus", "1"], layer) != "enforced").collect()
}

/// The lines of the record that can be tried here.
fn lines_of(caller: &Caller, mode: &str) -> Vec<Mutation> {
    let unlimited = unlimited(caller);
    let v1 = caller.json(&[], &["true"])["enforced"]["memory"]["by"] == "cgroup v1";
    let mut lines = mutations();
    lines.retain(|line| line.mode == mode || v1 && line.mode == format!("{mode}-v1"));
    lines.retain(|line| {
        let can = !line.layers.split(',').any(|layer| unlimited.contains(&layer));
        if !can {
            println!("not tried here: without {}", line.layers);
        }
        can
    });
    lines
}

/// Leaves the layers of each line out and wants every case of the line red.
fn replay(caller: &Caller, mode: &str) {
    let mut held = Vec::new();
    for line in lines_of(caller, mode) {
        let cases = line.cases.join(",");
        let mut options = vec!["--case", &cases];
        if mode.starts_with("bare") {
            options.push("--bare");
        } else {
            options.extend(["--without", line.layers]);
        }
        for (case, (verdict, got)) in attack(caller, &options) {
            if verdict != "breached" {
                held.push(format!("{case} without {}: {verdict}: {got}", line.layers));
            }
        }
    }
    assert!(held.is_empty(), "these passed for another reason than the layers they name: {held:#?}");
}

/// Puts each layer of each line back in its place, and wants every case of the line held: by that layer alone.
fn replay_with_one_in_place(caller: &Caller, mode: &str) {
    let mut red = Vec::new();
    for line in lines_of(caller, mode) {
        let layers: Vec<&str> = line.layers.split(',').collect();
        // A line of one layer has nothing left to leave out: that is every case with every layer.
        for kept in layers.iter().filter(|_| layers.len() > 1) {
            let without: Vec<&str> = layers.iter().copied().filter(|layer| layer != kept).collect();
            let options = ["--case", &line.cases.join(","), "--without", &without.join(",")];
            for (case, (verdict, got)) in attack(caller, &options) {
                if verdict != "held" {
                    red.push(format!("{case} with {kept} of {}: {verdict}: {got}", line.layers));
                }
            }
        }
    }
    assert!(red.is_empty(), "these are not held by each layer of their set: {red:#?}");
}

#[test]
fn cases_go_red_without_their_layers_as_root() {
    as_root(|caller| replay(caller, "root"));
}

#[test]
fn cases_go_red_without_their_layers_as_an_ordinary_user() {
    as_ordinary_user(|caller| replay(caller, "user"));
}

#[test]
fn cases_go_red_without_a_room() {
    as_ordinary_user(|caller| replay(caller, "bare"));
    as_root(|caller| replay(caller, "bare-root"));
}

#[test]
fn each_layer_of_a_set_holds_alone_as_root() {
    as_root(|caller| replay_with_one_in_place(caller, "root"));
}

#[test]
fn each_layer_of_a_set_holds_alone_as_an_ordinary_user() {
    as_ordinary_user(|caller| replay_with_one_in_place(caller, "user"));
}

#[test]
fn every_case_is_on_record_once() {
    let mut recorded = BTreeSet::new();
    let red = mutations().into_iter().flat_map(|mutation| mutation.cases);
    for case in red.chain(never_red()) {
        assert!(recorded.insert(case), "{case} is on record twice");
    }
    let all: BTreeSet<&str> = cases().map(|case| case.name).collect();
    assert_eq!(all, recorded, "the cases, and attacks/golden/mutations.txt");
}

/// What is shown as expected is what was seen to guard.
#[test]
fn cases_name_the_layers_that_they_go_red_without() {
    let guards: BTreeMap<&str, BTreeSet<&str>> =
        cases().map(|case| (case.name, case.guards.iter().copied().collect())).collect();
    for line in mutations().iter().filter(|line| line.layers != "-") {
        let layers: BTreeSet<&str> = line.layers.split(',').collect();
        for case in &line.cases {
            assert_eq!(guards[case], layers, "the guards of {case}, and its line");
        }
    }
}

/// Others may take most of a machine: what a room without a limit takes is still too much.
#[test]
fn a_missing_limit_of_processors_is_seen_on_a_busy_machine() {
    as_root(|caller| {
        if unlimited(caller).contains(&"cpu") {
            return println!("not tried here: without cpu");
        }
        let (ended, begin) = (AtomicBool::new(false), Instant::now());
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let cases = std::thread::scope(|scope| {
            for _ in 0..2 * processors {
                // Not for ever, should the attack fail.
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) && begin.elapsed() < PATIENCE {
                        std::hint::spin_loop();
                    }
                });
            }
            let cases = attack(caller, &["--case", "cpu-spin", "--without", "cpu"]);
            ended.store(true, Ordering::Relaxed);
            cases
        });
        assert_eq!(cases["cpu-spin"].0, "breached", "{cases:?}");
    });
}

#[test]
fn an_unknown_case_is_refused() {
    for_each_privilege(|caller| {
        let mut command = caller.command(caller.program());
        command.args(["doctor", "--attack", "--case", "no-such-attack"]);
        let outcome = finish(command);
        assert_eq!((outcome.code, outcome.out.as_str()), (125, ""));
        assert!(outcome.err.contains("no-such-attack"), "{}", outcome.err);
    });
}
