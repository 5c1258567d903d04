//! `workroom mounts`, `mount`, `unmount` and `create --mount`.

mod mounts;

use mounts::{host_dir, operator_says};
use serde_json::Value;
use workroom_testkit::{Server, for_each_user};

fn said(server: &Server<'_>, arguments: &[&str]) -> (bool, String, String) {
    let output = server.cli(arguments).output().expect("the CLI");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

fn works(server: &Server<'_>, arguments: &[&str]) -> String {
    let (ok, out, err) = said(server, arguments);
    assert!(ok, "{arguments:?}: {out}{err}");
    out
}

#[test]
fn directories_are_offered_mounted_listed_and_taken_off_by_word() {
    for_each_user(async |user| {
        let server = Server::of(user);
        assert!(works(&server, &["mounts"]).contains("offers no mounts"));
        host_dir(user, "projects/site");
        operator_says(
            &server,
            &format!(
                "[mounts]\nexternal = [{{ name = \"p\", path = \"{0}/projects\" }}]\n[mounts.bases.projects]\npath = \"{0}/projects\"\nusers = [\"*\"]\nmax_mode = \"rw\"\nblock = [\"private\"]\n",
                user.path("host").display()
            ),
        );
        let offered = works(&server, &["mounts"]);
        assert!(offered.contains("projects") && offered.contains("/workspace/external/ro/p"), "{offered}");
        let id = works(&server, &["create", "--mount", "site=projects/site:rw"]);
        let id = id.trim();
        assert_eq!(works(&server, &["exec", id, "-c", "cat /workspace/site/file"]), "of projects/site\n");
        let listed = works(&server, &["mount", id, "again=projects/site"]);
        assert!(listed.contains("/workspace/again") && listed.contains("mounted"), "{listed}");
        works(&server, &["unmount", id, "site"]);
        let listed: Value = serde_json::from_str(&works(&server, &["mounts", id, "--json"])).expect("JSON");
        let places: Vec<&str> = listed["mounts"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|one| one["place"].as_str())
            .collect();
        assert_eq!(places, ["/workspace/external/ro/p", "/workspace/again"]);
        let (ok, _, why) = said(&server, &["mount", id, "all=projects"]);
        assert!(!ok && why.contains("blocked_by_base") && why.contains("private"), "{why}");
        let (ok, _, why) = said(&server, &["create", "--mount", "x=none"]);
        assert!(!ok && why.contains("base_not_found"), "{why}");
    });
}
