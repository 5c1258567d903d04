//! The attack suite: every wall holds, and each case is stopped by the layers that it names.

mod support;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use support::{Caller, as_ordinary_user, as_root, finish, for_each_privilege};

/// Which cases go red when which layers are left out.
const MUTATIONS: &str = include_str!("../../../attacks/golden/mutations.txt");

/// Runs the suite and returns each case's verdict and what was got.
#[track_caller]
fn attack(caller: &Caller, options: &[&str]) -> BTreeMap<String, (String, String)> {
    let mut command = caller.command(caller.program());
    command.args(["doctor", "--attack", "--json"]).args(options);
    let outcome = finish(command);
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

/// Leaves the layers of each line out and wants every case of the line red.
fn replay(caller: &Caller, mode: &str) {
    // What this machine cannot limit cannot be left out either.
    let unlimited: Vec<&str> = ["memory", "pids", "cpu"]
        .into_iter()
        .filter(|layer| caller.layer(&["--cpus", "1"], layer) != "enforced")
        .collect();
    let mut held = Vec::new();
    let v1 = caller.json(&[], &["true"])["enforced"]["memory"]["by"] == "cgroup v1";
    let applies = |mutation: &&Mutation| mutation.mode == mode || v1 && mutation.mode == format!("{mode}-v1");
    for mutation in mutations().iter().filter(applies) {
        if mutation.layers.split(',').any(|layer| unlimited.contains(&layer)) {
            println!("not tried here: without {}", mutation.layers);
            continue;
        }
        let cases = mutation.cases.join(",");
        let mut options = vec!["--case", &cases];
        if mode == "bare" {
            options.push("--bare");
        } else {
            options.extend(["--without", mutation.layers]);
        }
        for (case, (verdict, got)) in attack(caller, &options) {
            if verdict != "breached" {
                held.push(format!("{case} without {}: {verdict}: {got}", mutation.layers));
            }
        }
    }
    assert!(held.is_empty(), "these passed for another reason than the layers they name: {held:#?}");
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
}

#[test]
fn every_case_is_on_record_once() {
    as_ordinary_user(|caller| {
        let mut recorded = BTreeSet::new();
        let red = mutations().into_iter().flat_map(|mutation| mutation.cases);
        for case in red.chain(never_red()) {
            assert!(recorded.insert(case), "{case} is on record twice");
        }
        let all = attack(caller, &[]);
        let unrecorded: Vec<_> = all.keys().filter(|case| !recorded.contains(case.as_str())).collect();
        assert!(unrecorded.is_empty(), "{unrecorded:?} are not in attacks/golden/mutations.txt");
        assert_eq!(all.len(), recorded.len());
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
