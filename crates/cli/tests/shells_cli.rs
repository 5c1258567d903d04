//! `workroom sh`: streams, exit status and words of a stateful shell on the command line.

use serde_json::Value;
use workroom_testkit::{Server, for_each_user};

#[test]
fn commands_share_a_shell_and_say_when_it_is_another() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let sh = |words: &[&str]| {
            let words = [&["sh", session.id.as_str()], words].concat();
            let done = server.cli(&words).output().expect("the program");
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            (done.status.code(), text(done.stdout), text(done.stderr))
        };
        let said = |out: &str| (Some(0), out.to_owned(), String::new());
        assert_eq!(sh(&["--", "cd /usr; x=1"]), said(""));
        assert_eq!(sh(&["--", "echo", "$x;", "pwd"]), said("1\n/usr\n"));
        assert_eq!(
            sh(&["--", "printf out; printf err >&2; (exit 9)"]),
            (Some(9), "out".into(), "err".into())
        );
        let (code, _, words) = sh(&["--timeout", "200ms", "--", "sleep 1000"]);
        assert!(code == Some(124) && words.contains("--timeout"), "{code:?} {words}");
        let (code, _, words) = sh(&["--", "exit 4"]);
        assert!(code == Some(4) && words.contains("ended with 4"), "{code:?} {words}");
        let (code, out, words) = sh(&["--", "echo [$x]"]);
        assert!(code == Some(0) && out == "[]\n" && words.contains("without its state"), "{out} {words}");
        let (_, made, _) = sh(&["--new", "--name", "other", "--kind", "sh", "--env", "A=1", "--cwd", "/tmp"]);
        assert_eq!(sh(&["--shell", "other", "--", "echo $A; pwd"]), said("1\n/tmp\n"));
        assert_eq!(sh(&["--shell", made.trim(), "--", "echo same"]), said("same\n"));
        let (_, listed, _) = sh(&["--list"]);
        assert!(
            listed.contains("other") && listed.contains("default") && listed.contains("ready"),
            "{listed}"
        );
        let (code, out, _) = sh(&["--json", "--", "echo hi; (exit 3)"]);
        let result: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(
            (code, result["output"].as_str(), result["exit_code"].as_i64()),
            (Some(3), Some("hi\n"), Some(3))
        );
        assert_eq!(sh(&["--rm", "other"]).0, Some(0));
        let (code, _, words) = sh(&["--rm", "other"]);
        assert!(code == Some(125) && words.contains("no shell"), "{code:?} {words}");
        let (code, _, words) = sh(&["--shell", "other", "--", "true"]);
        assert!(code == Some(125) && words.contains("no shell"), "{code:?} {words}");
        assert_eq!(sh(&[]).0, Some(125), "there is nothing to do");
    });
}
