//! What a host does by itself because of a name in a directory stays as it is, although the directory is writable.

mod mounts;

use mounts::{asks, host_dir, mount, operator_says, unmount, with_mounts};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use workroom_testkit::{Server, TestSession, User, eventually, for_each_user};

fn rules(user: &User) -> String {
    format!(
        "[mounts.bases.work]\npath = \"{}\"\nusers = [\"*\"]\nmax_mode = \"rw\"\n",
        user.path("host").display()
    )
}

/// As git makes it, as far as it matters here.
fn make_repository(user: &User, at: &str) {
    for dir in ["", "/.git", "/.git/hooks", "/.git/objects"] {
        user.make_dir(&format!("{at}{dir}"));
    }
    user.make_file(&format!("{at}/.git/config"), "[core]\n");
    user.make_file(&format!("{at}/.git/HEAD"), "ref: refs/heads/main\n");
    user.make_file(&format!("{at}/.bashrc"), "# mine\n");
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

const ATTEMPTS: [&str; 16] = [
    "echo evil > .git/hooks/post-commit",
    "echo evil >> .git/config",
    "rm .git/config",
    "mv .git/config .git/other",
    "mv .git .git2",
    "rm -rf .git/hooks",
    "mv .git/hooks .git/hooks2",
    "cp /bin/true .git/config.lock && mv .git/config.lock .git/config",
    "ln -f /etc/hostname .git/config",
    "echo evil >> .bashrc",
    "rm -f .bashrc && test ! -e .bashrc",
    "echo evil > .profile",
    "mkdir .vscode/x",
    "echo evil > .mcp.json",
    "chmod 777 .bashrc",
    "ln -s /tmp .claude/x",
];

async fn try_all(session: &TestSession, alias: &str) {
    for attempt in ATTEMPTS {
        let said = session.run(json!({"command": attempt, "cwd": format!("/workspace/{alias}")})).await;
        assert_ne!(said.exit_code, 0, "{alias}: {attempt}: {said:?}");
    }
}

#[test]
fn hooks_and_start_up_files_stay_as_they_are_also_those_that_are_not_there() {
    for_each_user(async |user| {
        let server = Server::of(user);
        user.make_dir("host");
        make_repository(user, "host/repo");
        let empty = host_dir(user, "empty");
        let repo = user.path("host/repo");
        operator_says(&server, &rules(user));
        let before = names(&repo);
        // One from the beginning, and one that comes while the room runs.
        let session = server.session_like(with_mounts(&[asks("repo", "work", "repo", "rw")])).await;
        try_all(&session, "repo").await;
        mount(&session, &[asks("empty", "work", "empty", "rw")]).await.expect("mounted");
        for attempt in [
            "mkdir .git/hooks",
            "mkdir -p .git/hooks && echo evil > .git/hooks/x",
            "rmdir .git",
            "mv .git elsewhere",
            "echo evil > .bashrc",
            "rm .bashrc",
            "mkdir .claude/x",
        ] {
            let said = session.run(json!({"command": attempt, "cwd": "/workspace/empty"})).await;
            assert_ne!(said.exit_code, 0, "{attempt}: {said:?}");
        }
        // All else is the room's to change.
        session.says("cd /workspace/repo && echo x > .git/objects/x && echo y > new && rm new && mkdir -p src/deep").await;
        assert_eq!(fs::read_to_string(repo.join(".git/config")).expect("it"), "[core]\n");
        assert_eq!(fs::read_to_string(repo.join(".bashrc")).expect("it"), "# mine\n");
        assert!(names(&repo.join(".git/hooks")).is_empty());

        // What was made to protect what was not there goes with the last that uses it.
        let other = server.session_like(with_mounts(&[asks("repo", "work", "repo", "rw")])).await;
        session.stop().await;
        try_all(&other, "repo").await;
        assert_eq!(names(&empty), ["file"]);
        other.stop().await;
        let mut after = before.clone();
        after.push("src".to_owned());
        eventually(async || match names(&repo) {
            left if left == after => Ok(()),
            left => Err(format!("{left:?}")),
        })
        .await;
        assert_eq!(fs::read_to_string(repo.join(".bashrc")).expect("it"), "# mine\n");
    });
}

#[test]
fn repositories_further_down_are_protected_where_they_are_there() {
    for_each_user(async |user| {
        let server = Server::of(user);
        user.make_dir("host");
        user.make_dir("host/all");
        user.make_dir("host/all/team");
        make_repository(user, "host/all/one");
        make_repository(user, "host/all/team/two");
        operator_says(&server, &rules(user));
        let session = server.session_like(with_mounts(&[asks("all", "work", "all", "rw")])).await;
        mount(&session, &[asks("again", "work", "all", "rw")]).await.expect("mounted");
        for repository in ["all/one", "all/team/two", "again/one", "again/team/two"] {
            for attempt in
                ["echo evil > .git/hooks/x", "echo evil >> .git/config", "mv .git away", "rm -f .bashrc"]
            {
                let said =
                    session.run(json!({"command": attempt, "cwd": format!("/workspace/{repository}")})).await;
                assert_ne!(said.exit_code, 0, "{repository}: {attempt}: {said:?}");
            }
            session
                .says(&format!("cd /workspace/{repository} && echo x > .git/objects/x && echo y > y"))
                .await;
        }
        // What is not there further down is not protected: it would take a name in every directory.
        session.says("mkdir /workspace/all/new && echo x > /workspace/all/new/.profile").await;
    });
}

#[test]
fn what_somebody_puts_into_a_placeholder_is_kept() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let dir = host_dir(user, "dir");
        operator_says(&server, &rules(user));
        let session = server.session_like(with_mounts(&[asks("dir", "work", "dir", "rw")])).await;
        fs::write(dir.join(".profile"), "# of the host\n").expect("written");
        fs::create_dir(dir.join(".vscode/mine")).expect("made");
        unmount(&session, "dir").await;
        assert_eq!(names(&dir), [".profile", ".vscode", "file"]);
        session.delete().await;
        assert_eq!(names(&dir), [".profile", ".vscode", "file"]);
    });
}

#[test]
fn placeholders_of_a_room_that_died_without_a_server_go_with_the_next_one() {
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let (dir, shared) = (host_dir(user, "dir"), host_dir(user, "shared"));
        operator_says(&server, &rules(user));
        let both = [asks("dir", "work", "dir", "rw"), asks("shared", "work", "shared", "rw")];
        let lost = server.session_like(with_mounts(&both)).await;
        let other = server.session_like(with_mounts(&both[1..])).await;
        assert!(names(&dir).len() > 1 && names(&shared).len() > 1);
        // What was just done is on its way to the store.
        lost.event("session.running").await;
        other.event("session.running").await;
        server.kill();
        server.end_room_of(&lost.id);
        server.restart();
        eventually(async || match names(&dir) {
            left if left == ["file"] => Ok(()),
            left => Err(format!("{left:?}")),
        })
        .await;
        // The other's room goes on, and is protected.
        let other = TestSession::new(server.client(), other.id.clone());
        assert!(names(&shared).len() > 1);
        assert_ne!(other.sh("echo evil > /workspace/shared/.bashrc").await.exit_code, 0);
        other.delete().await;
        assert_eq!(names(&shared), ["file"]);
    });
}

#[test]
fn links_in_the_place_of_what_is_protected_lead_nowhere() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let dir = host_dir(user, "dir");
        let outside = host_dir(user, "outside");
        symlink(outside.join("file"), dir.join(".bashrc")).expect("a link");
        symlink("real", dir.join(".git")).expect("a link");
        user.make_dir("host/dir/real");
        operator_says(&server, &rules(user));
        let session = server.session_like(with_mounts(&[asks("dir", "work", "dir", "rw")])).await;
        for attempt in [
            "echo evil > .bashrc",
            "rm .bashrc",
            "ln -sf real/x .bashrc",
            "rm .git",
            "mkdir .git/hooks",
            "mv -T real .git",
        ] {
            let said = session.run(json!({"command": attempt, "cwd": "/workspace/dir"})).await;
            assert_ne!(said.exit_code, 0, "{attempt}: {said:?}");
        }
        assert_eq!(fs::read_to_string(outside.join("file")).expect("it"), "of outside\n");
        session.delete().await;
        assert_eq!(fs::read_link(dir.join(".git")).expect("a link"), Path::new("real"));
    });
}

#[test]
fn a_policy_opens_what_it_names_and_nothing_is_made_setuid() {
    for_each_user(async |user| {
        let server = Server::of(user);
        user.make_dir("host");
        make_repository(user, "host/repo");
        let repo = user.path("host/repo");
        operator_says(&server, &rules(user));
        let request = json!({"policy": {"mounts": {
            "dynamic": [asks("repo", "work", "repo", "rw")], "unprotect": [".git"],
        }}});
        let session = server.session_like(request).await;
        session.says("cd /workspace/repo && echo hook > .git/hooks/x && echo more >> .git/config").await;
        assert_eq!(names(&repo.join(".git/hooks")), ["x"]);
        assert_ne!(session.sh("echo evil >> /workspace/repo/.bashrc").await.exit_code, 0);
        session
            .sh("cp /bin/true /workspace/repo/t; chmod 4755 /workspace/repo/t; chmod u+s /workspace/repo/t")
            .await;
        let mode = fs::metadata(repo.join("t")).expect("it").permissions().mode();
        assert_eq!(mode & 0o6000, 0, "{mode:o}");
    });
}

#[test]
fn what_the_operator_blocks_everywhere_is_not_shown_at_the_top_of_what_is_given() {
    for_each_user(async |user| {
        let server = Server::of(user);
        host_dir(user, "home");
        host_dir(user, "home/.ssh");
        user.make_file("host/home/.netrc", "secret\n");
        operator_says(&server, &rules(user));
        let session = server.session_like(with_mounts(&[asks("home", "work", "home", "ro")])).await;
        mount(&session, &[asks("again", "work", "home", "rw")]).await.expect("mounted");
        for place in ["home", "again"] {
            let seen = session.says(&format!("cd /workspace/{place} && ls -A .ssh; cat .netrc file")).await;
            assert_eq!(seen, "of home\n");
        }
    });
}
