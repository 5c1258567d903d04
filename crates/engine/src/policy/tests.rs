//! Tables of good and bad documents.

use super::*;
use workroom_types::NetworkPolicy;

#[test]
fn documents_are_read_as_people_write_them() {
    let policy = policy_from_toml(
        "memory = \"1.5G\"\ncpus = 0.5\npids = 100\ndisk = 4096\n\
         [network]\nmode = \"allow\"\ndomains = [\"example.com\"]\nports = [443, \"8000-8100\"]\n\
         [mounts]\npersistent = false\n[[mounts.dynamic]]\nalias = \"data\"\nbase = \"sets\"\nmode = \"rw\"\n\
         [secrets]\nenv = { TOKEN = \"token\" }\ninject = [\"user\"]\n",
    )
    .unwrap();
    assert_eq!((policy.memory, policy.cpus_milli, policy.disk), (Some(3 << 29), Some(500), Some(4096)));
    assert_eq!(policy.network.unwrap().domains, ["example.com"]);
    assert_eq!(policy.mounts.unwrap().dynamic[0].alias, "data");
    assert_eq!(policy.secrets.unwrap().env["TOKEN"], "token");
}

#[test]
fn what_is_not_understood_is_said_in_one_sentence() {
    for (text, words) in [
        ("memory = \"lots\"", "not a size"),
        ("memory = true", "invalid type"),
        ("cpus = \"many\"", "not a number of CPUs"),
        ("memorry = 1", "unknown field `memorry`"),
        ("[network]\nmode = \"ajar\"", "unknown variant `ajar`"),
        ("[network]\ndomains = []", "missing field `mode`"),
        ("[mounts]\ndynamic = [{alias = \"a\"}]", "missing field `base`"),
        ("[secrets]\ninject = [\"everything\"]", "unknown variant"),
        ("memory = 1\nmemory = 2", "duplicate key"),
        ("disk = \"9000000T\"", "too large"),
        ("= 1", ""),
    ] {
        let problem = policy_from_toml(text).unwrap_err();
        assert!(problem.detail.contains(words), "{text:?}: {problem}");
        assert!(!problem.detail.contains('\n'), "{text:?}: {problem}");
        assert_eq!(problem.status, 400);
    }
}

fn ceiling() -> Ceiling {
    Ceiling {
        memory: Some(1 << 30),
        pids: Some(64),
        network: Some(NetworkMode::Allow),
        allow_missing: vec!["disk".into()],
        ..Ceiling::default()
    }
}

fn network(mode: NetworkMode) -> Option<NetworkPolicy> {
    let domains = if mode == NetworkMode::Allow { vec!["a.example".to_owned()] } else { Vec::new() };
    Some(NetworkPolicy { mode, domains, ..NetworkPolicy::default() })
}

#[test]
fn no_document_goes_over_a_ceiling() {
    let good = [
        Policy::default(),
        Policy { memory: Some(1 << 30), pids: Some(64), cpus_milli: Some(9000), ..Policy::default() },
        Policy { network: network(NetworkMode::Allow), ..Policy::default() },
        Policy { allow_missing: vec!["disk".into()], ..Policy::default() },
    ];
    for policy in good {
        under(&policy, &ceiling(), "ann").unwrap();
    }
    let bad = [
        (Policy { memory: Some((1 << 30) + 1), ..Policy::default() }, "limit_exceeded", "memory"),
        (Policy { pids: Some(65), ..Policy::default() }, "limit_exceeded", "pids 65 is over 64"),
        (
            Policy { network: network(NetworkMode::Open), ..Policy::default() },
            "forbidden",
            "wider than allow",
        ),
        (Policy { allow_missing: vec!["seccomp".into()], ..Policy::default() }, "forbidden", "seccomp"),
    ];
    for (policy, code, words) in bad {
        let problem = under(&policy, &ceiling(), "ann").unwrap_err();
        assert_eq!(problem.status, 403);
        assert_eq!(serde_json::to_value(problem.code).unwrap(), code);
        assert!(problem.detail.contains(words) && problem.detail.contains("ann"), "{problem}");
    }
}

#[test]
fn a_ceiling_holds_for_defaults_and_for_what_was_accepted_before_it_came_down() {
    let before = Policy { memory: Some(4 << 30), network: network(NetworkMode::Open), ..Policy::default() };
    let now = capped(before, &ceiling());
    assert_eq!((now.memory, now.pids), (Some(1 << 30), Some(64)));
    assert_eq!(now.network, None, "a mode that is too wide is off");
    let small = Policy { memory: Some(1 << 20), ..Policy::default() };
    assert_eq!(capped(small, &ceiling()).memory, Some(1 << 20));
}

#[test]
fn what_differs_is_named() {
    let one = Policy { memory: Some(1), pids: Some(2), ..Policy::default() };
    let other = Policy { memory: Some(1), shm: Some(3), ..Policy::default() };
    assert_eq!(differences(&one, &other), ["pids", "shm"]);
    assert!(differences(&one, &one).is_empty());
}
