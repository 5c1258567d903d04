//! Whether a network policy can be enforced as it is written, and whether its owner may have it.

use std::net::IpAddr;
use workroom_egress::cidr::{Cidr, CidrError};
use workroom_egress::special::{special, special_range_of};
use workroom_types::{Ceiling, NetworkMode, NetworkPolicy, Problem, ProblemCode};

/// Whether a network policy says something, and only what can be enforced.
pub(crate) fn check_document(policy: &NetworkPolicy) -> Result<(), Problem> {
    read(policy).map(drop)
}

/// Whether a ceiling's ranges are some.
pub(crate) fn check_ranges(cidrs: &[String]) -> Result<(), Problem> {
    let wrong = |error: CidrError| Problem::invalid(format!("cidrs: {error}"), "");
    cidrs.iter().try_for_each(|text| text.parse::<Cidr>().map(drop).map_err(wrong))
}

/// Whether special addresses that a policy names are granted to its owner. How wide its mode is, is judged elsewhere.
pub(crate) fn check_ceiling(policy: &NetworkPolicy, ceiling: &Ceiling) -> Result<(), Problem> {
    let granted = granted(ceiling);
    for cidr in read(policy)?.cidrs() {
        if let Some(what) = surplus(cidr, &granted) {
            return Err(Problem::new(
                ProblemCode::Forbidden,
                format!(
                    "network.cidrs has {cidr}, which is {what}, and its owner's ceiling grants no such address"
                ),
                "leave it out, or ask the operator to add it to the ceiling's cidrs",
            ));
        }
    }
    Ok(())
}

/// The policy, less special addresses that are not granted any more. Nothing is left of one that named no others.
pub(crate) fn capped(mut policy: NetworkPolicy, ceiling: &Ceiling) -> NetworkPolicy {
    let granted = granted(ceiling);
    policy.cidrs.retain(|text| text.parse().is_ok_and(|cidr| surplus(&cidr, &granted).is_none()));
    if policy.mode == NetworkMode::Allow && policy.domains.is_empty() && policy.cidrs.is_empty() {
        return NetworkPolicy::default();
    }
    policy
}

fn granted(ceiling: &Ceiling) -> Vec<Cidr> {
    ceiling.cidrs.iter().filter_map(|text| text.parse().ok()).collect()
}

/// What a cidr opens that is not granted, in words.
fn surplus(cidr: &Cidr, granted: &[Cidr]) -> Option<&'static str> {
    // As in a policy itself, only a range inside a special one names its addresses.
    let names = |range: &Cidr, special: &Cidr| cidr.is_within(range) && range.is_within(special);
    match special_range_of(cidr) {
        Some(special) => {
            let is_granted = granted.iter().any(|range| names(range, &special.range));
            (!is_granted).then_some(special.what)
        }
        None => {
            (is_of_the_machine(cidr) && !granted.contains(cidr)).then_some("an address of the machine itself")
        }
    }
}

/// The policy as it will be enforced.
fn read(policy: &NetworkPolicy) -> Result<workroom_egress::Policy, Problem> {
    serde_json::to_string(policy).and_then(|text| workroom_egress::Policy::from_json(&text)).map_err(
        |error| {
            // Where in the document the writer of this text knows better.
            let text = error.to_string();
            let sentence = text.rsplit_once(" at line ").map_or(text.as_str(), |(sentence, _)| sentence);
            Problem::invalid(format!("network: {sentence}"), "")
        },
    )
}

/// A single address that is this machine's own: naming exactly that is what would open it.
fn is_of_the_machine(cidr: &Cidr) -> bool {
    cidr.only().is_some_and(|address: IpAddr| special(address).is_none() && workroom_egress::is_own(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn checked(policy: serde_json::Value, ceiling: serde_json::Value) -> Result<(), String> {
        let policy = serde_json::from_value(policy).expect("a document");
        let ceiling = serde_json::from_value(ceiling).expect("a ceiling");
        check_document(&policy)
            .and_then(|()| check_ceiling(&policy, &ceiling))
            .map_err(|problem| problem.to_string())
    }

    #[test]
    fn what_may_be_had_is_had() {
        let generous = json!({"cidrs": ["127.0.0.0/8", "10.0.0.0/8"]});
        for (policy, ceiling) in [
            (json!({"mode": "off"}), json!({"network": "off"})),
            (json!({"mode": "open"}), json!({})),
            (json!({"mode": "allow", "domains": ["a.example"]}), json!({"network": "allow"})),
            (json!({"mode": "allow", "cidrs": ["8.8.8.0/24", "0.0.0.0/0"]}), json!({})),
            (json!({"mode": "open", "cidrs": ["127.7.0.1/32", "10.0.0.0/8"]}), generous),
        ] {
            assert_eq!(checked(policy.clone(), ceiling), Ok(()), "{policy}");
        }
    }

    #[test]
    fn what_is_not_granted_any_more_is_left_out() {
        let policy = |value| serde_json::from_value::<NetworkPolicy>(value).expect("a document");
        let ceiling: Ceiling = serde_json::from_value(json!({"cidrs": ["10.1.0.0/16"]})).expect("a ceiling");
        let left =
            capped(policy(json!({"mode": "open", "cidrs": ["10.1.2.0/24", "127.0.0.1/32"]})), &ceiling);
        assert_eq!(left.cidrs, ["10.1.2.0/24"]);
        let left = capped(policy(json!({"mode": "allow", "cidrs": ["127.0.0.1/32"]})), &ceiling);
        assert_eq!(left, NetworkPolicy::default());
    }

    #[test]
    fn what_may_not_is_refused_with_the_reason() {
        for (policy, ceiling, words) in [
            (json!({"mode": "allow"}), json!({}), "allows nothing"),
            (json!({"mode": "off", "domains": ["a.example"]}), json!({}), "would do nothing"),
            (json!({"mode": "allow", "domains": ["0x7f.1"]}), json!({}), "127.0.0.1"),
            (json!({"mode": "allow", "domains": ["*"]}), json!({}), "open"),
            (json!({"mode": "allow", "domains": ["a.example"], "ports": [0]}), json!({}), "port 0"),
            (json!({"mode": "open", "cidrs": ["127.0.0.1/32"]}), json!({}), "loopback"),
            (
                json!({"mode": "open", "cidrs": ["169.254.169.254/32"]}),
                json!({"cidrs": ["10.0.0.0/8"]}),
                "metadata",
            ),
            (json!({"mode": "open", "cidrs": ["10.0.0.0/8"]}), json!({"cidrs": ["10.1.0.0/16"]}), "private"),
            (
                json!({"mode": "open", "cidrs": ["169.254.169.254/32"]}),
                json!({"cidrs": ["169.254.0.0/16"]}),
                "metadata",
            ),
            (json!({"mode": "open", "cidrs": ["10.0.0.1/32"]}), json!({"cidrs": ["0.0.0.0/0"]}), "private"),
            (json!({"mode": "allow", "cidrs": ["::1/128"]}), json!({"cidrs": ["127.0.0.0/8"]}), "loopback"),
        ] {
            let refused = checked(policy.clone(), ceiling).expect_err(&policy.to_string());
            assert!(refused.contains(words), "{policy}: {refused}");
            assert!(!refused.contains(" at line "), "{refused}");
        }
    }
}
