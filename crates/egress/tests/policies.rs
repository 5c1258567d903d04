//! Good and bad policies, and what good ones decide.

mod support;

use serde_json::json;
use std::net::IpAddr;
use support::policy;
use workroom_egress::rules::Rules;
use workroom_egress::special::special;
use workroom_egress::{Permit, Policy, Reason, Target};

fn target(text: &str) -> Target {
    Target::parse(text, Some(443)).expect("a good target")
}

/// The verdict on a target and the address that it leads to, as a word.
fn decide(rules: &Rules, wanted: &str, address: Option<&str>) -> String {
    let target = target(wanted);
    let verdict = rules.judge_target(&target).and_then(|permit| match address {
        Some(address) => rules.judge_address(&permit, &target, address.parse().unwrap()),
        None => Ok(permit),
    });
    match verdict {
        Ok(permit) => permit.to_string(),
        Err(denial) => denial.reason.code().to_owned(),
    }
}

#[test]
fn good_policies_are_read_and_written_back() {
    for json in [
        json!({"mode": "off"}),
        json!({"mode": "open"}),
        json!({"mode": "open", "ports": [443], "cidrs": ["10.0.0.0/8"]}),
        json!({"mode": "allow", "domains": ["example.com", "*.example.org"]}),
        json!({"mode": "allow", "cidrs": ["127.0.0.1/32", "fd00::/8"], "ports": [22, "8000-8100"]}),
    ] {
        assert_eq!(serde_json::to_value(policy(json.clone())).unwrap(), json);
    }
    assert_eq!(policy(json!("off")), Policy::off());
    assert_eq!(policy(json!("open")), Policy::open());
    let normal = policy(json!({"mode": "allow", "domains": ["BÜCHER.example."], "cidrs": ["10.1.2.3"]}));
    assert_eq!(
        serde_json::to_value(normal).unwrap(),
        json!({"mode": "allow", "domains": ["xn--bcher-kva.example"], "cidrs": ["10.1.2.3/32"]})
    );
}

#[test]
fn bad_policies_are_refused_with_what_to_write() {
    let many: Vec<String> = (0..5000).map(|number| format!("n{number}.example")).collect();
    for (json, sentence) in [
        (json!("closed"), "expected \"off\", \"open\", or an object"),
        (json!("allow"), "allows nothing; name some"),
        (json!(null), "expected \"off\", \"open\", or an object"),
        (json!({}), "missing field `mode`"),
        (json!({"mode": "allow"}), "allows nothing; name some"),
        (json!({"mode": "allow", "ports": [443]}), "allows nothing; name some"),
        (json!({"mode": "off", "domains": ["a.example"]}), "\"off\" has domains beside it"),
        (json!({"mode": "off", "cidrs": ["10.0.0.0/8"]}), "\"off\" has cidrs beside it"),
        (json!({"mode": "off", "ports": [1]}), "\"off\" has ports beside it"),
        (json!({"mode": "open", "domains": ["a.example"]}), "every name is open"),
        (json!({"mode": "open", "domain": ["a.example"]}), "unknown field `domain`"),
        (json!({"mode": "allow", "domains": ["*"]}), "use mode \"open\""),
        (json!({"mode": "allow", "domains": ["a.*.example"]}), "as in *.example.com"),
        (json!({"mode": "allow", "domains": ["*.*.example"]}), "as in *.example.com"),
        (json!({"mode": "allow", "domains": ["*example.com"]}), "as in *.example.com"),
        (json!({"mode": "allow", "domains": ["https://a.example"]}), "write the bare name"),
        (json!({"mode": "allow", "domains": ["a.example/x"]}), "has \"/\" in it; write the bare name"),
        (json!({"mode": "allow", "domains": ["127.0.0.1"]}), "put it under cidrs"),
        (json!({"mode": "allow", "domains": ["*.127.0.0.1"]}), "put it under cidrs"),
        (json!({"mode": "allow", "domains": ["127.1"]}), "write 127.0.0.1"),
        (json!({"mode": "allow", "domains": [""]}), "the host is empty"),
        (json!({"mode": "allow", "domains": many}), "5000 domains, and 4096 is the most"),
        (json!({"mode": "allow", "cidrs": ["a.example"]}), "put names under domains"),
        (json!({"mode": "allow", "cidrs": ["10.1.2.3/8"]}), "write 10.0.0.0/8"),
        (json!({"mode": "allow", "cidrs": ["10.0.0.0/33"]}), "no prefix from 0 to 32"),
        (json!({"mode": "allow", "cidrs": ["10.0.0.0/"]}), "no prefix from 0 to 32"),
        (json!({"mode": "allow", "cidrs": ["10.0.0.0/+8"]}), "no prefix from 0 to 32"),
        (json!({"mode": "allow", "cidrs": ["::1/129"]}), "no prefix from 0 to 128"),
        (json!({"mode": "allow", "cidrs": ["::ffff:10.0.0.0/104"]}), "write it as IPv4"),
        (json!({"mode": "allow", "cidrs": ["0x7f000001/32"]}), "write 127.0.0.1"),
        (json!({"mode": "open", "ports": []}), "ports is empty"),
        (json!({"mode": "open", "ports": [0]}), "port 0 is neither"),
        (json!({"mode": "open", "ports": [65536]}), "port 65536 is neither"),
        (json!({"mode": "open", "ports": [-1]}), "port -1 is neither"),
        (json!({"mode": "open", "ports": ["90-80"]}), "port 90-80 is neither"),
        (json!({"mode": "open", "ports": ["https"]}), "port https is neither"),
    ] {
        let error = serde_json::from_value::<Policy>(json.clone()).expect_err(&json.to_string()).to_string();
        assert!(error.contains(sentence), "{json}: {error}");
    }
}

#[test]
fn names_are_matched_whole() {
    let rules =
        Rules::new(policy(json!({"mode": "allow", "domains": ["example.com", "*.example.org", "*.a.b.c"]})));
    for (name, verdict) in [
        ("example.com", "domain example.com"),
        ("EXAMPLE.COM.", "domain example.com"),
        ("www.example.com", "domain_not_allowed"),
        ("notexample.com", "domain_not_allowed"),
        ("example.com.evil.example", "domain_not_allowed"),
        ("example.org", "domain_not_allowed"),
        ("a.example.org", "domain *.example.org"),
        ("a.b.c.example.org", "domain *.example.org"),
        ("aexample.org", "domain_not_allowed"),
        ("b.c", "domain_not_allowed"),
        ("a.b.c", "domain_not_allowed"),
        ("x.a.b.c", "domain *.a.b.c"),
        ("93.184.216.34", "address_not_allowed"),
        ("10.0.0.1", "special_address"),
    ] {
        assert_eq!(decide(&rules, name, None), verdict, "{name}");
    }
}

#[test]
fn ports_hold_for_names_and_addresses() {
    let rules = Rules::new(policy(
        json!({"mode": "allow", "domains": ["a.example"], "cidrs": ["9.9.9.0/24"], "ports": [443, "8000-8002"]}),
    ));
    for (wanted, verdict) in [
        ("a.example:443", "domain a.example"),
        ("a.example:8001", "domain a.example"),
        ("a.example:8003", "port_not_allowed"),
        ("a.example:80", "port_not_allowed"),
        ("9.9.9.9:443", "cidr 9.9.9.0/24"),
        ("9.9.9.9:22", "port_not_allowed"),
    ] {
        assert_eq!(decide(&rules, wanted, None), verdict, "{wanted}");
    }
}

#[test]
fn no_mode_reaches_special_addresses_that_no_cidr_names() {
    let special_addresses = [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.0.1",
        "169.254.169.254",
        "169.254.170.2",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:0:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:2::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:c0a8:101::1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "8000::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ];
    let public = ["1.1.1.1", "93.184.216.34", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "2a00::1"];
    for json in [
        json!("open"),
        json!({"mode": "allow", "domains": ["a.example"]}),
        json!({"mode": "open", "cidrs": ["0.0.0.0/0", "::/0"]}),
        json!({"mode": "allow", "domains": ["a.example"], "cidrs": ["0.0.0.0/0", "::/0"]}),
        // Ranges that hold several special ones name none of them.
        json!({"mode": "open", "cidrs": ["0.0.0.0/1", "128.0.0.0/1", "168.0.0.0/6", "2000::/3", "::/1"]}),
    ] {
        let rules = Rules::new(policy(json.clone()));
        for address in special_addresses {
            assert_eq!(decide(&rules, "a.example", Some(address)), "special_address", "{json} {address}");
            let bare = Target { host: workroom_egress::Host::parse(address).unwrap(), port: 443 };
            let denial = rules.judge_target(&bare).expect_err(address);
            assert_eq!(denial.reason.code(), "special_address", "{json} {address}");
        }
        for address in public {
            assert_ne!(decide(&rules, "a.example", Some(address)), "special_address", "{json} {address}");
        }
    }
    let off = Rules::new(Policy::off());
    assert_eq!(decide(&off, "a.example", None), "network_off");
    assert_eq!(decide(&off, "1.1.1.1", None), "network_off");
}

#[test]
fn a_cidr_names_what_it_means_and_no_more() {
    let rules = Rules::new(policy(json!({
        "mode": "allow", "domains": ["a.example"],
        "cidrs": ["10.1.0.0/16", "169.254.0.0/16", "127.0.0.2/32", "2002:a00::/24", "64:ff9b::a9fe:a9fe/128"]
    })));
    for (address, allowed) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("10.2.0.1", false),
        ("169.254.1.1", true),
        // The metadata service is not the link that it is on.
        ("169.254.169.254", false),
        ("169.254.170.2", false),
        ("127.0.0.2", true),
        ("127.0.0.1", false),
        ("2002:a01::1", true),
        ("2002:7f00:1::", false),
        ("64:ff9b::a9fe:a9fe", true),
        ("64:ff9b::a9fe:a9fd", false),
    ] {
        let verdict = decide(&rules, "a.example", Some(address));
        assert_eq!(verdict == "domain a.example", allowed, "{address}: {verdict}");
    }
    let metadata = Rules::new(policy(json!({"mode": "open", "cidrs": ["169.254.169.254/32"]})));
    assert_eq!(decide(&metadata, "169.254.169.254", None), "cidr 169.254.169.254/32");
}

/// Every address is public or special, and the table agrees with the standard library where that has an opinion.
#[test]
fn the_table_of_special_ranges_is_no_weaker_than_the_standard_library() {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..200_000 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let v4 = std::net::Ipv4Addr::from_bits((random >> 32) as u32);
        let known = v4.is_private()
            || v4.is_loopback()
            || v4.is_link_local()
            || v4.is_multicast()
            || v4.is_broadcast()
            || v4.is_documentation()
            || v4.is_unspecified();
        assert!(!known || special(IpAddr::V4(v4)).is_some(), "{v4}");
    }
}

#[test]
fn every_denial_says_which_rule_and_how_to_allow_it() {
    let rules = Rules::new(policy(
        json!({"mode": "allow", "domains": ["a.example"], "ports": [443], "cidrs": ["8.8.8.0/24"]}),
    ));
    let sentence = |wanted: &str| rules.judge_target(&target(wanted)).unwrap_err().to_string();
    assert_eq!(
        sentence("b.example:443"),
        "b.example:443 denied [domain_not_allowed]: \"b.example\" is not among the policy's domains; add \"b.example\" to network.domains"
    );
    assert_eq!(
        sentence("a.example:22"),
        "a.example:22 denied [port_not_allowed]: port 22 is not among the policy's ports (443); add 22 to network.ports"
    );
    assert_eq!(
        sentence("9.9.9.9:443"),
        "9.9.9.9:443 denied [address_not_allowed]: address 9.9.9.9 is in none of the policy's cidrs; add \"9.9.9.9/32\" to network.cidrs"
    );
    assert_eq!(
        sentence("[fd00:ec2::254]:443"),
        "[fd00:ec2::254]:443 denied [special_address]: fd00:ec2::254 is a cloud's metadata service (fd00:ec2::254/128); add \"fd00:ec2::254/128\" to network.cidrs if it is meant to be reached"
    );
    let permit = Permit::Open;
    let denial =
        rules.judge_address(&permit, &target("a.example:443"), "10.0.0.7".parse().unwrap()).unwrap_err();
    assert!(matches!(denial.reason, Reason::Special { .. }));
    assert_eq!(
        denial.to_string(),
        "a.example:443 denied [special_address]: \"a.example\" leads to 10.0.0.7, which is a private network (10.0.0.0/8); add \"10.0.0.7/32\" to network.cidrs if it is meant to be reached"
    );
}
