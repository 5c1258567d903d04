//! Every reason for which a directory of the host is not given, reached over HTTP; and that one denial mounts none.

mod mounts;

use mounts::{asks, denials, host_dir, mount, not_made, operator_says, with_mounts};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use workroom_testkit::types::{DenialCode, ProblemCode, TokenScope};
use workroom_testkit::{Server, TestSession, for_each_user};

fn rules(root: &str) -> String {
    format!(
        r#"
        [mounts]
        max_per_session = 2
        [mounts.bases.open]
        path = "{root}/open"
        users = ["*"]
        max_mode = "rw"
        [mounts.bases.shown]
        path = "{root}/shown"
        users = ["*"]
        [mounts.bases.bobs]
        path = "{root}/bobs"
        users = ["bob"]
        [mounts.bases.some]
        path = "{root}/open"
        users = ["*"]
        allow = ["public"]
        [mounts.bases.most]
        path = "{root}/open"
        users = ["*"]
        block = ["private"]
        "#
    )
}

#[test]
fn every_denial_is_told_by_its_code_and_journaled_and_mounts_nothing() {
    for_each_user(async |user| {
        let server = Server::of(user);
        for dir in ["open", "open/a", "shown", "bobs", "outside"] {
            host_dir(user, dir);
        }
        let root = user.path("host");
        symlink(root.join("outside"), root.join("open/link")).expect("a link");
        let session = server.session().await;
        let ask = |alias: &str, base: &str, subpath: &str| asks(alias, base, subpath, "ro");
        let mut reached = BTreeSet::new();
        let mut expect = async |asked: Vec<Value>, alias: &str, code: DenialCode| {
            let problem = mount(&session, &asked).await.expect_err("denied");
            assert_eq!((problem.code, problem.status), (ProblemCode::MountDenied, 403), "{problem:?}");
            assert_eq!(denials(&problem), [(alias.to_owned(), code.as_str().to_owned())], "{asked:?}");
            reached.insert(code.as_str());
        };
        expect(vec![ask("x", "open", "")], "x", DenialCode::FeatureDisabled).await;
        operator_says(&server, &rules(&root.display().to_string()));
        let good = ask("good", "open", "a");
        let long = "n".repeat(300);
        for (asked, code) in [
            (ask("x", "none", ""), DenialCode::BaseNotFound),
            (ask("x", "bobs", ""), DenialCode::NotAuthorized),
            (ask("x", "open", "../outside"), DenialCode::DangerousPattern),
            (ask("x", "open", "a\u{7}"), DenialCode::InvalidCharacters),
            (ask("x", "open", "1/2/3/4/5/6/7/8/9/10/11"), DenialCode::MaxDepthExceeded),
            (ask("x", "open", ".ssh"), DenialCode::GlobalBlocked),
            (ask("x", "some", "a"), DenialCode::NotInAllowlist),
            (ask("x", "most", "private"), DenialCode::BlockedByBase),
            (asks("x", "shown", "", "rw"), DenialCode::ModeExceedsMax),
            (ask("x", "open", "none"), DenialCode::PathNotFound),
            (ask("x", "open", "file"), DenialCode::PathNotFound),
            (ask("x", "open", "link"), DenialCode::PathEscape),
            (ask("x", "open", "link/deeper"), DenialCode::PathEscape),
            (ask("x", "open", &long), DenialCode::ResolutionFailed),
        ] {
            // Beside one that would be granted alone.
            expect(vec![good.clone(), asked], "x", code).await;
        }
        expect(vec![good.clone(), good.clone()], "good", DenialCode::DuplicateAlias).await;
        expect(vec![ask("skills", "open", "a")], "skills", DenialCode::ReservedAlias).await;
        let three = vec![good.clone(), ask("b", "open", "a"), ask("c", "open", "a")];
        expect(three, "c", DenialCode::TooMany).await;
        session.says("touch /workspace/x").await;
        expect(vec![ask("x", "open", "a")], "x", DenialCode::AlreadyExists).await;

        assert!(session.show().await.mounts.is_empty());
        assert_eq!(session.says("ls /workspace").await, "x\n");
        mount(&session, std::slice::from_ref(&good)).await.expect("alone");
        expect(vec![good.clone()], "good", DenialCode::AlreadyExists).await;
        assert_eq!(session.says("cat /workspace/good/file").await, "of open/a\n");

        let all: BTreeSet<&str> = DenialCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(reached, all);
        let journal = session.journal().await;
        let of = |kind: &str| journal.iter().filter(|entry| entry.kind == kind).collect::<Vec<_>>();
        let journaled: BTreeSet<&str> =
            of("mount.denied").iter().filter_map(|entry| entry.body["code"].as_str()).collect();
        assert_eq!(journaled, all);
        assert_eq!(of("mount.granted").len(), 1);
        assert_eq!(of("mount.granted")[0].body["name"], "good");
    });
}

#[test]
fn a_session_is_not_made_with_what_it_may_not_have_and_identity_is_the_tokens() {
    for_each_user(async |user| {
        let server = Server::of(user);
        for dir in ["open", "open/a", "shown", "bobs"] {
            host_dir(user, dir);
        }
        operator_says(&server, &rules(&user.path("host").display().to_string()));
        let of_bob = asks("x", "bobs", "", "ro");
        let both = with_mounts(&[asks("a", "open", "a", "ro"), of_bob.clone()]);
        let problem = not_made(&server, both).await;
        assert_eq!(denials(&problem), [("x".to_owned(), "not_authorized".to_owned())]);
        assert!(server.client().list(&Default::default()).await.expect("a list").sessions.is_empty());

        let token = async |owner: &str| {
            let token = json!({"scope": TokenScope::User, "owner": owner});
            let token = serde_json::from_value(token).expect("a token's fields");
            server.client().create_token(&token).await.expect("a token").token.expect("its secret")
        };
        let (alice, bob) =
            (server.client_with(&token("alice").await), server.client_with(&token("bob").await));
        let request =
            serde_json::from_value(with_mounts(std::slice::from_ref(&of_bob))).expect("a session's fields");
        let error = alice.create(&request, None).await.expect_err("not hers");
        assert_eq!(denials(error.problem().expect("a problem"))[0].1, "not_authorized");
        // There is no session, and yet a record: who asked, for what, and why it was denied. Each reads her own.
        let of_alice = alice.history(None, 0, 100).await.expect("a page").entries;
        let kinds: Vec<_> = of_alice.iter().map(|entry| entry.kind.as_str()).collect();
        assert_eq!(kinds, ["session.refused", "mount.denied"]);
        assert!(of_alice.iter().all(|entry| entry.actor.starts_with("token:")), "{of_alice:?}");
        assert_eq!(of_alice[0].body["policy"]["mounts"]["dynamic"][0]["base"], "bobs");
        assert_eq!(
            (&of_alice[1].body["alias"], &of_alice[1].body["code"]),
            (&json!("x"), &json!("not_authorized"))
        );
        assert!(bob.history(None, 0, 100).await.expect("a page").entries.is_empty());
        assert!(server.client().list(&Default::default()).await.expect("a list").sessions.is_empty());
        let (session, _) = bob.create(&request, None).await.expect("his");
        assert_eq!(
            TestSession::new(bob.clone(), session.id.clone()).says("cat /workspace/x/file").await,
            "of bobs\n"
        );

        let names = |offer: workroom_testkit::types::MountOffer| {
            offer.bases.into_iter().map(|base| base.name).collect::<Vec<_>>()
        };
        assert_eq!(names(alice.mount_offer().await.expect("an offer")), ["most", "open", "shown", "some"]);
        assert_eq!(
            names(bob.mount_offer().await.expect("an offer")),
            ["bobs", "most", "open", "shown", "some"]
        );
        // An admin who works on somebody's session gets what that one may have.
        let of_bobs = TestSession::new(server.client(), session.id);
        let more = mount(&of_bobs, &[asks("more", "bobs", "", "ro")]).await.expect("bob's");
        assert_eq!(more.len(), 2);
    });
}

#[test]
fn a_policy_document_is_judged_whole_and_applied_to_a_room_that_runs() {
    for_each_user(async |user| {
        let server = Server::of(user);
        for dir in ["open", "open/a", "open/b", "shown", "bobs"] {
            host_dir(user, dir);
        }
        operator_says(&server, &rules(&user.path("host").display().to_string()));
        let session = server.session().await;
        let set = async |dynamic: Value| {
            let change = json!({"policy": {"mounts": {"dynamic": dynamic}}});
            session.client().update(&session.id, &serde_json::from_value(change).expect("a change")).await
        };
        set(json!([asks("a", "open", "a", "ro")])).await.expect("set");
        assert_eq!(session.says("cat /workspace/a/file").await, "of open/a\n");
        set(json!([asks("b", "open", "b", "ro")])).await.expect("set");
        assert_eq!(
            session.says("ls -A /workspace/a 2>/dev/null; cat /workspace/b/file").await,
            "of open/b\n"
        );
        let refused = set(json!([asks("c", "open", "a", "ro"), asks("d", "bobs", "", "ro")])).await;
        assert_eq!(refused.expect_err("denied").problem().expect("a problem").code, ProblemCode::MountDenied);
        assert_eq!(session.says("cat /workspace/b/file").await, "of open/b\n");
        assert_ne!(session.sh("cat /workspace/c/file").await.exit_code, 0);
        assert_eq!(session.show().await.mounts.len(), 1);
        set(json!([])).await.expect("set");
        assert!(session.show().await.mounts.is_empty());
    });
}
