//! The rules of `deny.toml` that matter most, checked without any other tool: licences, duplicates, sources.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// Asked when the test runs: a target directory shared between clones may hold a test built in another one.
fn workspace() -> PathBuf {
    let crate_dir = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests"));
    crate_dir.ancestors().nth(2).expect("the workspace").to_owned()
}

fn rules() -> toml::Table {
    let text = std::fs::read_to_string(workspace().join("deny.toml")).expect("deny.toml");
    text.parse().expect("deny.toml is TOML")
}

fn names(list: &toml::Value) -> Vec<String> {
    let name = |entry: &toml::Value| match entry {
        toml::Value::Table(table) => table["crate"].as_str().expect("a crate's name").to_owned(),
        other => other.as_str().expect("a name").to_owned(),
    };
    list.as_array().expect("a list").iter().map(name).collect()
}

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .args(["--locked", "--offline"])
        .current_dir(workspace())
        .output()
        .expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Every package that a build for this platform compiles: those of features that nobody turns on are not there.
fn packages() -> Vec<Value> {
    let tree =
        cargo(&["tree", "--workspace", "--prefix", "none", "--format", "{p}", "--edges", "normal,build,dev"]);
    // `name v1.2.3`, with more behind it for some.
    let used: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    // Of this platform alone: what others need was never fetched.
    let platform = "x86_64-unknown-linux-gnu";
    let metadata = ["metadata", "--format-version", "1", "--filter-platform", platform];
    let mut metadata: Value = serde_json::from_str(&cargo(&metadata)).expect("JSON");
    let mut packages = metadata["packages"].as_array_mut().map(std::mem::take).expect("packages");
    packages.retain(|package| {
        let words = (package["name"].as_str(), package["version"].as_str());
        matches!(words, (Some(name), Some(version)) if used.contains(&(name, version)))
    });
    assert!(packages.len() > 10, "the build is made of more than {} packages", packages.len());
    packages
}

fn text(package: &Value, field: &str) -> String {
    package[field].as_str().unwrap_or_default().to_owned()
}

#[test]
fn every_licence_is_allowed() {
    let allowed = names(&rules()["licenses"]["allow"]);
    for package in packages() {
        // `A OR B`, `A/B` and `(A OR B) AND C`: every part of a conjunction needs one allowed choice.
        let licence = text(&package, "license").replace('/', " OR ");
        let permitted = licence.replace(['(', ')'], "").split(" AND ").all(|part| {
            part.split(" OR ").any(|choice| allowed.iter().any(|allowed| allowed == choice.trim()))
        });
        assert!(permitted, "{} is under \"{licence}\"", text(&package, "name"));
    }
}

#[test]
fn no_crate_is_there_twice_and_none_is_banned() {
    let rules = rules();
    let (denied, skipped) = (names(&rules["bans"]["deny"]), names(&rules["bans"]["skip"]));
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages() {
        versions.entry(text(&package, "name")).or_default().push(text(&package, "version"));
    }
    for (name, versions) in versions {
        assert!(!denied.contains(&name), "{name} is banned by deny.toml");
        assert!(versions.len() == 1 || skipped.contains(&name), "{name} is there as {versions:?}");
    }
}

#[test]
fn every_source_is_the_registry_or_this_workspace() {
    for package in packages() {
        let source = text(&package, "source");
        assert!(
            source.is_empty() || source.starts_with("registry+"),
            "{} comes from {source}",
            text(&package, "name")
        );
    }
}
