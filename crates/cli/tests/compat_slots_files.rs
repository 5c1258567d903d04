//! Files of slots on their way out: read, listed, archived, and never any but the workspace's.

mod slots;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use slots::Slots;
use std::io::Read;
use workroom_testkit::for_each_user;

/// A refusal, as artifacts are refused.
fn refused(error: &str) -> Value {
    json!({ "success": false, "error": error })
}

#[test]
fn artifacts_are_read_as_text_or_as_they_are() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        slots.says("mkdir d; printf 'h\\xc3\\xa9\\xff' > d/a.txt; printf '' > empty.json; head -c 5000001 /dev/zero > big.bin").await;
        let read = async |fields: Value| {
            let mut body = json!({ "slot_id": "slot_0" });
            body.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
            slots.post("/artifacts/read", body).await
        };
        let text = json!({
            "success": true,
            "content": "hé\u{fffd}",
            "encoding": "text",
            "truncated": false,
            "bytes": 4,
            "file_size": 4,
            "path": "d/a.txt",
            "mime": "text/plain",
            "sha256": null,
        });
        assert_eq!(read(json!({ "path": "d/a.txt" })).await.expect(200), text);
        assert_eq!(
            read(json!({ "path": "/workspace/d/../d/a.txt", "encoding": " TEXT " })).await.expect(200),
            text
        );
        assert_eq!(
            read(json!({ "path": "d/a.txt", "encoding": null, "max_bytes": "x" })).await.expect(200),
            text
        );
        let first =
            read(json!({ "path": "d/a.txt", "encoding": "base64", "max_bytes": 3, "include_sha256": true }))
                .await;
        let expected = json!({
            "success": true,
            "content": STANDARD.encode("hé"),
            "encoding": "base64",
            "truncated": true,
            "bytes": 3,
            "file_size": 4,
            "path": "d/a.txt",
            "mime": "text/plain",
        });
        let first = first.expect(200);
        // Of the bytes that were returned; by another program than the server's.
        let sum = slots.says("printf 'h\\xc3\\xa9' | sha256sum").await;
        assert_eq!(first["sha256"].as_str(), sum.split(' ').next());
        for field in ["content", "encoding", "truncated", "bytes", "file_size", "path", "mime"] {
            assert_eq!(first[field], expected[field], "{field}");
        }
        let empty = read(json!({ "path": "empty.json", "max_bytes": 0 })).await.expect(200);
        assert_eq!(
            (&empty["content"], &empty["truncated"], &empty["mime"]),
            (&json!(""), &json!(false), &json!("application/json"))
        );
        let whole = read(json!({ "path": "big.bin", "encoding": "base64", "max_bytes": 99_000_000 }))
            .await
            .expect(200);
        assert_eq!(
            (&whole["bytes"], &whole["file_size"], &whole["truncated"]),
            (&json!(5_000_000), &json!(5_000_001), &json!(true))
        );
        for (fields, status, error) in [
            (json!({ "path": "none" }), 404, "Not found: none"),
            (json!({ "path": "d" }), 400, "Not a file: d"),
            (json!({}), 400, "Not a file: "),
            (json!({ "path": "d/a.txt", "encoding": "hex" }), 400, "Unsupported encoding: hex"),
            (json!({ "path": "none", "encoding": "hex" }), 404, "Not found: none"),
            (json!({ "path": "/etc/x" }), 403, "Access denied: path outside workspace"),
            (json!({ "path": "../etc/passwd" }), 403, "Access denied: path outside workspace"),
            (json!({ "path": "a\u{0}b" }), 403, "Access denied: path outside workspace"),
        ] {
            assert_eq!(read(fields.clone()).await.expect(status), refused(error), "{fields}");
        }
        for path in ["read", "list", "archive"] {
            let answer = slots.post(&format!("/artifacts/{path}"), json!({ "slot_id": "slot_5" })).await;
            assert_eq!(answer.expect(404), refused("Unknown slot: slot_5"), "{path}");
        }
    });
}

#[test]
fn lists_are_sorted_and_say_when_something_is_left_out() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        slots.says("mkdir -p b/c; echo 1 > a; echo 12 > b/x; echo 123 > b/c/y; ln -s b/x link; ln -s b dirlink; touch -d @1700000000.5 a; mkfifo pipe").await;
        let list = async |fields: Value| {
            let mut body = json!({ "slot_id": "slot_0" });
            body.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
            slots.post("/artifacts/list", body).await
        };
        let told = |answer: &Value| -> Vec<(String, bool, u64)> {
            let one = |entry: &Value| {
                let is_dir = entry["is_dir"].as_bool().expect("a flag");
                let size = if is_dir { 0 } else { entry["size"].as_u64().expect("a size") };
                (entry["path"].as_str().expect("a path").to_owned(), is_dir, size)
            };
            answer["entries"].as_array().expect("entries").iter().map(one).collect()
        };
        let named = |entries: &[(&str, bool, u64)]| -> Vec<(String, bool, u64)> {
            entries.iter().map(|(path, is_dir, size)| ((*path).to_owned(), *is_dir, *size)).collect()
        };
        let here = list(json!({})).await.expect(200);
        assert_eq!((&here["success"], &here["truncated"]), (&json!(true), &json!(false)));
        let top = named(&[
            ("a", false, 2),
            ("b", true, 0),
            ("dirlink", true, 0),
            ("link", false, 3),
            ("pipe", false, 0),
        ]);
        assert_eq!(told(&here), top, "{here}");
        assert_eq!(here["entries"][0]["mtime"], json!(1_700_000_000.5));
        let below = list(json!({ "path": "b", "recursive": true })).await.expect(200);
        assert_eq!(told(&below), named(&[("b/c", true, 0), ("b/c/y", false, 4), ("b/x", false, 3)]));
        let all = list(json!({ "recursive": true, "max_entries": 8 })).await.expect(200);
        assert_eq!(
            (told(&all).len(), &all["truncated"]),
            (8, &json!(false)),
            "all of them, and not one more"
        );
        let some = list(json!({ "recursive": true, "max_entries": 7 })).await.expect(200);
        assert_eq!((told(&some), &some["truncated"]), (told(&all)[..7].to_vec(), &json!(true)));
        let one = list(json!({ "path": "b/x" })).await.expect(200);
        assert_eq!((told(&one), &one["truncated"]), (named(&[("b/x", false, 3)]), &json!(false)));
        for (fields, status, error) in [
            (json!({ "path": "none" }), 404, "Not found: none"),
            (json!({ "path": "pipe" }), 400, "Unsupported path type: pipe"),
            (json!({ "path": "/usr" }), 403, "Access denied: path outside workspace"),
            (json!({ "path": ".." }), 403, "Access denied: path outside workspace"),
        ] {
            assert_eq!(list(fields.clone()).await.expect(status), refused(error), "{fields}");
        }
        slots.says("mkdir many; cd many; seq 6000 | xargs touch").await;
        let many = list(json!({ "path": "many" })).await.expect(200);
        assert_eq!((told(&many).len(), &many["truncated"]), (5000, &json!(true)));
        let asked = list(json!({ "path": "many", "max_entries": 999_999 })).await.expect(200);
        assert_eq!(told(&asked).len(), 5000);
    });
}

/// The members of an archive that came as base64: names and contents.
fn members(answer: &Value) -> Vec<(String, String)> {
    let packed = STANDARD.decode(answer["content"].as_str().expect("content")).expect("base64");
    assert_eq!(answer["bytes"], packed.len(), "as large as it says");
    let mut archive = tar::Archive::new(GzDecoder::new(packed.as_slice()));
    let members = archive.entries().expect("a tar").map(|entry| {
        let mut entry = entry.expect("a member");
        assert!(entry.header().entry_type().is_file());
        let name = entry.path().expect("a name").to_string_lossy().into_owned();
        let mut content = String::new();
        entry.read_to_string(&mut content).expect("content");
        (name, content)
    });
    members.collect()
}

#[test]
fn archives_hold_files_by_their_names_in_the_workspace() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        let deep = format!("{}/{}", "d".repeat(120), "e".repeat(120));
        slots.says(&format!("mkdir -p b/c {deep} empty; printf 1 > a; printf 2 > b/x; printf 3 > b/c/y; printf deep > {deep}/z")).await;
        let archive = async |fields: Value| {
            let mut body = json!({ "slot_id": "slot_0" });
            body.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
            slots.post("/artifacts/archive", body).await
        };
        let pair = |name: &str, content: &str| (name.to_owned(), content.to_owned());
        let all = archive(json!({})).await.expect(200);
        assert_eq!(
            (&all["success"], &all["encoding"], &all["format"]),
            (&json!(true), &json!("base64"), &json!("tar.gz"))
        );
        let expected =
            vec![pair("a", "1"), pair("b/c/y", "3"), pair("b/x", "2"), pair(&format!("{deep}/z"), "deep")];
        assert_eq!(members(&all), expected);
        assert_eq!(
            (&all["entry_count"], &all["truncated"], &all["skipped"]),
            (&json!(4), &json!(false), &json!(0))
        );
        let below = archive(json!({ "path": "b", "format": " TGZ " })).await.expect(200);
        assert_eq!(members(&below), [pair("b/c/y", "3"), pair("b/x", "2")]);
        let one = archive(json!({ "path": "b/x", "format": null })).await.expect(200);
        assert_eq!((members(&one), &one["entry_count"]), (vec![pair("b/x", "2")], &json!(1)));
        let some = archive(json!({ "max_entries": 2 })).await.expect(200);
        assert_eq!(
            (members(&some), &some["entry_count"], &some["truncated"]),
            (expected[..2].to_vec(), &json!(2), &json!(true))
        );
        let exact = archive(json!({ "max_entries": 4 })).await.expect(200);
        assert_eq!((&exact["entry_count"], &exact["truncated"]), (&json!(4), &json!(false)));
        for (fields, status, error) in [
            (json!({ "format": "zip" }), 400, "Unsupported archive format: zip"),
            (json!({ "format": "zip", "path": "none" }), 400, "Unsupported archive format: zip"),
            (json!({ "path": "none" }), 404, "Not found: none"),
            (json!({ "path": "/etc" }), 403, "Access denied: path outside workspace"),
        ] {
            assert_eq!(archive(fields.clone()).await.expect(status), refused(error), "{fields}");
        }
        let size = all["bytes"].as_u64().expect("a size");
        let large = archive(json!({ "max_bytes": size - 1 })).await.expect(413);
        let error = format!("Archive too large: {size} bytes (max {})", size - 1);
        assert_eq!(large, json!({ "success": false, "error": error, "bytes": size }));
        assert_eq!(archive(json!({ "max_bytes": size })).await.expect(200)["bytes"], size);
        slots.says("head -c 6000000 /dev/urandom > noise").await;
        let large = archive(json!({})).await.expect(413);
        let error = large["error"].as_str().expect("an error");
        assert!(
            error.starts_with("Archive too large: 6") && error.ends_with(" bytes (max 5000000)"),
            "{error}"
        );
    });
}

#[test]
fn a_name_that_is_no_text_is_archived_by_its_bytes() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        slots
            .says("mkdir \"$(printf 'd\\377')\"; printf odd > \"$(printf 'd\\377/f\\376')\"; ln -s gone dangling; mkdir e; ln -s e inside; mkfifo fifo")
            .await;
        let archived = slots.post("/artifacts/archive", json!({ "slot_id": "slot_0" })).await.expect(200);
        assert_eq!((&archived["entry_count"], &archived["skipped"]), (&json!(1), &json!(3)), "{archived}");
        let packed = STANDARD.decode(archived["content"].as_str().expect("content")).expect("base64");
        let mut archive = tar::Archive::new(GzDecoder::new(packed.as_slice()));
        let mut entries = archive.entries().expect("a tar");
        let mut member = entries.next().expect("one").expect("a member");
        assert_eq!(&*member.path_bytes(), b"d\xff/f\xfe");
        let mut content = String::new();
        member.read_to_string(&mut content).expect("content");
        assert_eq!(content, "odd");
    });
}

#[test]
fn no_link_leads_out_of_the_workspace() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        slots.says("ln -s /etc/passwd out; ln -s /etc dir; ln -s ../etc/hostname up; ln -s gone dangling; echo in > in; ln -s /workspace/in absolute; ln -s in relative; echo secret > /tmp/elsewhere; ln -s /tmp/elsewhere tmp").await;
        let denied = refused("Access denied: path outside workspace");
        for path in ["out", "dir/passwd", "up", "tmp"] {
            let read = slots.post("/artifacts/read", json!({ "slot_id": "slot_0", "path": path })).await;
            assert_eq!(read.expect(403), denied, "{path}");
            let tool = slots.tool("slot_0", "read_file", json!({ "path": path })).await;
            assert_eq!(tool["error"], "Access denied: path outside workspace", "{path}");
        }
        for path in ["out", "up", "tmp", "dir/new"] {
            let tool = slots.tool("slot_0", "write_file", json!({ "path": path, "content": "x" })).await;
            assert_eq!(tool["error"], "Access denied: path outside workspace", "{path}");
        }
        assert_eq!(slots.says("cat /tmp/elsewhere").await, "secret");
        let listed = slots.post("/artifacts/list", json!({ "slot_id": "slot_0", "path": "dir" })).await;
        assert_eq!(listed.expect(403), denied);
        let archived = slots.post("/artifacts/archive", json!({ "slot_id": "slot_0", "path": "dir" })).await;
        assert_eq!(archived.expect(403), denied);
        for path in ["absolute", "relative"] {
            let read = slots.post("/artifacts/read", json!({ "slot_id": "slot_0", "path": path })).await;
            assert_eq!(read.expect(200)["content"], "in\n", "{path}");
        }
        assert_eq!(
            slots
                .post("/artifacts/read", json!({ "slot_id": "slot_0", "path": "dangling" }))
                .await
                .expect(404),
            refused("Not found: dangling")
        );
        // What leads out is there to be seen, and what is behind it is not.
        let all = slots
            .post("/artifacts/list", json!({ "slot_id": "slot_0", "recursive": true }))
            .await
            .expect(200);
        let names: Vec<&str> = all["entries"]
            .as_array()
            .expect("entries")
            .iter()
            .filter_map(|entry| entry["path"].as_str())
            .collect();
        assert_eq!(names, ["absolute", "dangling", "dir", "in", "out", "relative", "tmp", "up"]);
        let packed = slots.post("/artifacts/archive", json!({ "slot_id": "slot_0" })).await.expect(200);
        let names: Vec<String> = members(&packed).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["absolute", "in", "relative"]);
        assert_eq!(packed["skipped"], 5, "and it says how many it has left out");
    });
}

#[test]
fn a_reset_leaves_nothing_whatever_was_there() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 2);
        slots.caller().says("slot_1", "echo kept > kept").await;
        slots.says("mkdir -p tree/deep; ln -s /etc dirlink; ln -s . loop; ln -s tree treelink; echo x > tree/deep/file; chmod 0 tree/deep tree; echo > '-rf'; touch $'new\\nline'; echo t > /tmp/t; (setsid sleep 98765 &)").await;
        slots.tool("slot_0", "bash_stateful", json!({ "command": "A=left; sleep 98765 &" })).await;
        let reset = slots.post("/reset", json!({ "slot_id": "slot_0" })).await.expect(200);
        assert_eq!(reset["output"], "Reset workspace for slot_0", "{reset}");
        assert_eq!(slots.says("ls -A; ls -A /tmp; ls -A ~; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 9876[5]' || true").await, "0");
        let stateful =
            slots.tool("slot_0", "bash_stateful", json!({ "command": "echo \"[$A]\"; jobs" })).await;
        assert_eq!(stateful["output"], "[]");
        assert_eq!(slots.caller().says("slot_1", "cat kept").await, "kept", "the others are as they were");
    });
}

#[test]
fn the_hosts_secrets_are_not_there() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        let shadow = slots.caller().bash("slot_0", "cat /etc/shadow").await;
        assert_eq!(
            (&shadow["success"], &shadow["error"]),
            (&json!(false), &json!("Exit code: 1")),
            "{shadow}"
        );
        let data_dir =
            slots.server.state().parent().expect("a data directory").to_string_lossy().into_owned();
        let inside = slots.caller().bash("slot_0", &format!("ls {data_dir}")).await;
        assert_eq!(inside["success"], false, "the server's own directory is not in its rooms: {inside}");
        let seen = slots.says("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").await;
        assert!(!seen.contains("--data-dir"), "{seen}");
    });
}
