//! `workroom doctor`: every fact and every layer, advice where something is missing, and what is not so where it is refused.

use serde_json::Value;
use std::os::fd::OwnedFd;
use std::process::{Output, Stdio};
use workroom_testkit::types::Layer;
use workroom_testkit::{User, for_each_user};

const FACTS: [&str; 15] = [
    "kernel",
    "privilege",
    "user namespaces",
    "overlay",
    "idmapped mounts",
    "landlock",
    "seccomp",
    "cgroup v2",
    "cgroup v1",
    "limits",
    "tun",
    "reflink",
    "quota",
    "kvm",
    "runsc",
];

fn doctor(user: &User, words: &[&str], stdout: Stdio) -> Output {
    let mut command = user.command(user.program());
    command.arg("doctor").args(words).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
    command.spawn().and_then(|child| child.wait_with_output()).expect("the program")
}

#[test]
fn every_fact_and_layer_is_told_with_advice_where_it_is_missing() {
    for_each_user(async |user| {
        let done = doctor(user, &["--json"], Stdio::piped());
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        let told: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        let facts = told["machine"].as_array().expect("facts");
        let names: Vec<&str> = facts.iter().filter_map(|fact| fact["name"].as_str()).collect();
        assert_eq!(names, FACTS);
        for fact in facts {
            let (good, advice) =
                (fact["good"].as_bool().expect("good"), fact["advice"].as_str().expect("advice"));
            assert_eq!(good, advice.is_empty(), "{fact}");
            assert!(!fact["value"].as_str().expect("a value").is_empty(), "{fact}");
        }
        let layers = told["room"]["layers"].as_object().expect("layers");
        assert_eq!(layers.len(), Layer::ALL.len(), "{layers:?}");
        for layer in Layer::ALL {
            let (state, advice) = (&layers[layer.name()]["state"], layers[layer.name()]["advice"].as_str());
            assert_eq!(state == "enforced", advice == Some(""), "{layer:?}: {state} {advice:?}");
            // Whoever is root already is not told to become it.
            let to_root = user.is_root() && advice.is_some_and(|advice| advice.contains("as root"));
            assert!(!to_root, "{layer:?}: {advice:?}");
        }
        let limits = facts.iter().find(|fact| fact["name"] == "limits").expect("limits");
        assert!(!user.is_root() || !limits["advice"].to_string().contains("as root"), "{limits}");

        let done = doctor(user, &[], Stdio::piped());
        let table = String::from_utf8_lossy(&done.stdout);
        for name in FACTS.into_iter().chain(Layer::ALL.map(Layer::name)) {
            assert!(table.lines().any(|line| line.starts_with(name)), "{name}: {table}");
        }
    });
}

#[test]
fn an_answer_that_nobody_takes_is_no_crash() {
    let user = User::running_the_tests();
    for words in [&[][..], &["--json"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let done = doctor(&user, words, OwnedFd::from(writer).into());
        assert_eq!((done.status.code(), done.stderr.len()), (Some(0), 0), "{done:?}");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let done = doctor(&user, words, full.into());
        let sentence = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(125), "{sentence}");
        assert!(sentence.starts_with("workroom: ") && sentence.lines().count() == 1, "{sentence}");
    }
}

/// As in a container whose filter allows no namespaces: the room's own does not.
#[test]
fn namespaces_that_a_filter_refuses_are_not_said_to_be_there() {
    for_each_user(async |user| {
        let program = user.program().to_str().expect("a plain path");
        let mut command = user.command(program);
        command.args(["run", "--ro", program, "--", program, "doctor", "--json", "--state", "/tmp"]);
        let done = command.stdin(Stdio::null()).output().expect("the program");
        let words = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "no room in a room: {words}");
        let told: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        let facts = told["machine"].as_array().expect("facts");
        let fact = facts.iter().find(|fact| fact["name"] == "user namespaces").expect("namespaces");
        assert_eq!(fact["good"], false, "{fact}");
        assert!(fact["value"].as_str().is_some_and(|value| value.starts_with("refused: ")), "{fact}");
        assert!(fact["advice"].as_str().is_some_and(|advice| advice.contains("seccomp")), "{fact}");
        assert!(told["room"]["error"]["code"].is_string(), "{told}");
    });
}
