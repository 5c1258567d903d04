//! What may be asked for: a table of good and bad requests, with the code of each denial.

use super::*;
use crate::operator::mounts::MountRules;

fn rules(toml: &str) -> MountRules {
    let rules: MountRules = toml::from_str(toml).expect("rules");
    rules.check().expect("rules that make sense");
    rules
}

fn some_rules() -> MountRules {
    rules(
        r#"
        max_per_session = 3
        blocked = [".ssh", "*.pem", "/srv/*/hidden"]
        [bases.open]
        path = "/srv/open"
        users = ["*"]
        max_mode = "rw"
        [bases.shown]
        path = "/srv/shown"
        users = ["alice", "bob"]
        [bases.own]
        path = "/home/{username}/work"
        self_only = true
        max_mode = "rw"
        [bases.some]
        path = "/srv/some"
        users = ["*"]
        allow = ["public", "teams/*/docs"]
        except = ["private/readme"]
        [bases.most]
        path = "/srv/most"
        users = ["*"]
        block = ["private", "*/secret"]
        except = ["private/shared", "x/secret/ok"]
        "#,
    )
}

fn asked(alias: &str, base: &str, subpath: &str, mode: MountMode) -> MountRequest {
    MountRequest { alias: alias.into(), base: base.into(), subpath: subpath.into(), mode }
}

fn verdict(rules: Option<&MountRules>, owner: &str, request: MountRequest) -> Result<PathBuf, DenialCode> {
    let asking = Asking { owner, has: &["there".to_owned()], unprotect: &[] };
    let judged = judge(rules, &asking, &[request]).remove(0);
    judged.map(|allowed| allowed.anchor.join(allowed.beneath)).map_err(|denial| {
        assert!(!denial.detail.is_empty());
        denial.code
    })
}

#[test]
fn good_requests_are_granted_where_they_lead() {
    use MountMode::{Ro, Rw};
    let rules = some_rules();
    for (owner, base, subpath, mode, leads_to) in [
        ("bob", "open", "a/b", Rw, "/srv/open/a/b"),
        ("bob", "open", "a/", Ro, "/srv/open/a"),
        ("bob", "open", "with space/und Ümlaut", Ro, "/srv/open/with space/und Ümlaut"),
        ("bob", "open", "1/2/3/4/5/6/7/8/9/10", Ro, "/srv/open/1/2/3/4/5/6/7/8/9/10"),
        ("bob", "open", ".git", Ro, "/srv/open/.git"),
        ("bob", "open", "a~b", Ro, "/srv/open/a~b"),
        ("alice", "shown", "x", Ro, "/srv/shown/x"),
        ("alice", "own", "x", Rw, "/home/alice/work/x"),
        ("bob.smith@example.org", "own", "x", Rw, "/home/bob.smith@example.org/work/x"),
        ("bob", "some", "public", Ro, "/srv/some/public"),
        ("bob", "some", "public/deeper/down", Ro, "/srv/some/public/deeper/down"),
        ("bob", "some", "teams/red/docs/2024", Ro, "/srv/some/teams/red/docs/2024"),
        ("bob", "some", "private/readme", Ro, "/srv/some/private/readme"),
        ("bob", "most", "anything", Ro, "/srv/most/anything"),
        ("bob", "most", "private/shared", Ro, "/srv/most/private/shared"),
        ("bob", "most", "private/shared/x", Ro, "/srv/most/private/shared/x"),
        ("bob", "most", "x/secret/ok", Ro, "/srv/most/x/secret/ok"),
    ] {
        let granted = verdict(Some(&rules), owner, asked("new", base, subpath, mode));
        assert_eq!(granted.as_deref(), Ok(Path::new(leads_to)), "{owner} {base} {subpath}");
    }
}

#[test]
fn bad_requests_are_denied_each_for_its_reason() {
    use DenialCode::*;
    use MountMode::{Ro, Rw};
    let rules = some_rules();
    for (owner, alias, base, subpath, mode, code) in [
        ("bob", "new", "nowhere", "", Ro, BaseNotFound),
        ("bob", "new", "", "", Ro, BaseNotFound),
        ("bob", "new", "../open", "", Ro, BaseNotFound),
        ("carol", "new", "shown", "", Ro, NotAuthorized),
        ("admin", "new", "shown", "", Ro, NotAuthorized),
        ("..", "new", "own", "", Ro, NotAuthorized),
        (".", "new", "own", "", Ro, NotAuthorized),
        ("a/b", "new", "own", "", Ro, NotAuthorized),
        ("{username}", "new", "own", "", Ro, NotAuthorized),
        ("bob\n", "new", "own", "", Ro, NotAuthorized),
        ("bob", "", "open", "", Ro, InvalidCharacters),
        ("bob", "a/b", "open", "", Ro, InvalidCharacters),
        ("bob", ".", "open", "", Ro, InvalidCharacters),
        ("bob", "..", "open", "", Ro, InvalidCharacters),
        ("bob", "ü", "open", "", Ro, InvalidCharacters),
        ("bob", "a b", "open", "", Ro, InvalidCharacters),
        ("bob", "a\0", "open", "", Ro, InvalidCharacters),
        ("bob", "new", "open", "a\0b", Ro, InvalidCharacters),
        ("bob", "new", "open", "a\nb", Ro, InvalidCharacters),
        ("bob", "new", "open", "a\\b", Ro, InvalidCharacters),
        ("bob", "external", "open", "", Ro, ReservedAlias),
        ("bob", "persistent", "open", "", Ro, ReservedAlias),
        ("bob", ".workroom", "open", "", Ro, ReservedAlias),
        ("bob", "inbound.db", "open", "", Ro, ReservedAlias),
        ("bob", "there", "open", "", Ro, AlreadyExists),
        ("bob", "new", "open", "/etc", Ro, DangerousPattern),
        ("bob", "new", "open", "..", Ro, DangerousPattern),
        ("bob", "new", "open", "a/../../etc", Ro, DangerousPattern),
        ("bob", "new", "open", "a/./b", Ro, DangerousPattern),
        ("bob", "new", "open", "a//b", Ro, DangerousPattern),
        ("bob", "new", "open", "~", Ro, DangerousPattern),
        ("bob", "new", "open", "~root/x", Ro, DangerousPattern),
        ("bob", "new", "open", "a/$(id)", Ro, DangerousPattern),
        ("bob", "new", "open", "${HOME}", Ro, DangerousPattern),
        ("bob", "new", "open", "a/`id`", Ro, DangerousPattern),
        ("bob", "new", "open", "%2e%2e/x", Ro, DangerousPattern),
        ("bob", "new", "open", "1/2/3/4/5/6/7/8/9/10/11", Ro, MaxDepthExceeded),
        ("bob", "new", "open", ".ssh", Ro, GlobalBlocked),
        ("bob", "new", "open", "a/.ssh/b", Ro, GlobalBlocked),
        ("bob", "new", "open", "keys/server.pem", Ro, GlobalBlocked),
        ("bob", "new", "open", "hidden/x", Ro, GlobalBlocked),
        ("bob", "new", "some", "", Ro, NotInAllowlist),
        ("bob", "new", "some", "publication", Ro, NotInAllowlist),
        ("bob", "new", "some", "teams/red", Ro, NotInAllowlist),
        ("bob", "new", "some", "teams/red/blue/docs", Ro, NotInAllowlist),
        ("bob", "new", "most", "private", Ro, BlockedByBase),
        ("bob", "new", "most", "private/x", Ro, BlockedByBase),
        ("bob", "new", "most", "x/secret", Ro, BlockedByBase),
        ("bob", "new", "most", "x/secret/okay", Ro, BlockedByBase),
        // What is blocked is in it.
        ("bob", "new", "most", "", Ro, BlockedByBase),
        ("alice", "new", "shown", "", Rw, ModeExceedsMax),
        // What is protected is above it.
        ("bob", "new", "open", "repo/.git", Rw, ModeExceedsMax),
        ("bob", "new", "open", "repo/.git/hooks", Rw, ModeExceedsMax),
        ("bob", "new", "open", ".vscode", Rw, ModeExceedsMax),
    ] {
        let denied = verdict(Some(&rules), owner, asked(alias, base, subpath, mode));
        assert_eq!(denied, Err(code), "{owner} {alias:?} {base} {subpath:?}");
    }
    let off = MountRules { enabled: false, ..some_rules() };
    for none in [None, Some(&off)] {
        assert_eq!(verdict(none, "bob", asked("new", "open", "", Ro)), Err(FeatureDisabled));
    }
}

#[test]
fn each_is_judged_beside_those_before_it() {
    let rules = some_rules();
    let asking = Asking { owner: "bob", has: &["there".to_owned()], unprotect: &[] };
    let requests: Vec<MountRequest> =
        ["a", "a", "b", "c"].iter().map(|alias| asked(alias, "open", "x", MountMode::Ro)).collect();
    let codes: Vec<_> = judge(Some(&rules), &asking, &requests)
        .into_iter()
        .map(|judged| judged.map(drop).map_err(|denial| denial.code))
        .collect();
    assert_eq!(
        codes,
        [Ok(()), Err(DenialCode::DuplicateAlias), Err(DenialCode::TooMany), Err(DenialCode::TooMany)]
    );
}

#[test]
fn what_a_policy_unprotects_may_be_written() {
    let rules = some_rules();
    let whole = protected(&rules, &[]);
    assert!(whole.contains(&".git/hooks/".to_owned()) && whole.contains(&".bashrc".to_owned()));
    let some = protected(&rules, &[".git".to_owned(), ".vscode/".to_owned()]);
    assert!(!some.iter().any(|path| path.starts_with(".git/") || path.starts_with(".vscode")), "{some:?}");
    assert!(some.contains(&".gitconfig".to_owned()));
    let unprotect = [".git".to_owned()];
    let asking = Asking { owner: "bob", has: &[], unprotect: &unprotect };
    let request = asked("new", "open", "repo/.git", MountMode::Rw);
    assert!(judge(Some(&rules), &asking, &[request]).remove(0).is_ok());
}

#[test]
fn rules_that_make_no_sense_are_refused_whole() {
    for wrong in [
        "max_per_session = 33",
        "max_depth = 0",
        "blocked = [\"[\"]",
        "protect = [\"/etc\"]",
        "protect = [\"../x\"]",
        "external = [{ name = \"a/b\", path = \"/srv\" }]",
        "external = [{ name = \"a\", path = \"srv\" }]",
        "external = [{ name = \"a\", path = \"/srv/../etc\" }]",
        "external = [{ name = \"a\", path = \"/\" }]",
        "external = [{ name = \"a\", path = \"/proc/1\" }]",
        "external = [{ name = \"a\", path = \"/{username}\" }]",
        "external = [{ name = \"a\", path = \"/srv/a\" }, { name = \"a\", path = \"/srv/b\" }]",
        "persistent = { path = \"/srv/all\" }",
        "original = [{ path = \"/usr/share\", users = [\"*\"] }]",
        "original = [{ path = \"/home/agent\", users = [\"*\"] }]",
        "original = [{ path = \"/tmp\", users = [\"*\"] }]",
        "original = [{ path = \"/run/x\", users = [\"*\"] }]",
        "[bases.a]\npath = \"/srv\"\nself_only = true",
        "[bases.a]\npath = \"/srv/{username}\"\nself_only = true\nusers = [\"bob\"]",
        "[bases.a]\npath = \"/srv\"\nallow = [\"/etc\"]",
        "[bases.a]\npath = \"/srv\"\nblock = [\"../x\"]",
        "[bases.\"a b\"]\npath = \"/srv\"",
    ] {
        let rules: MountRules = toml::from_str(wrong).unwrap_or_else(|error| panic!("{wrong}: {error}"));
        assert!(rules.check().is_err(), "{wrong}");
    }
    for unknown in
        ["ro = true", "[bases.a]\npaths = \"/srv\"", "[bases.a]\npath = \"/srv\"\nmax_mode = \"x\""]
    {
        assert!(toml::from_str::<MountRules>(unknown).is_err(), "{unknown}");
    }
    for right in ["", "enabled = false", "original = [{ path = \"/var/log\", users = [\"*\"] }]"] {
        rules(right);
    }
}
