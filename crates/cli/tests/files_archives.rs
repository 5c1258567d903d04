//! Directories as archives: out and in again in every format, and hostile ones that leave nothing.

use serde_json::json;
use std::io::Write;
use workroom_testkit::client::Upload;
use workroom_testkit::types::{ArchiveFormat, FilePath};
use workroom_testkit::{Server, TestSession, User, for_each_user, run, within};

fn at(path: &str) -> FilePath {
    FilePath { path: path.into(), root: false }
}

const FORMATS: [(ArchiveFormat, &str); 4] = [
    (ArchiveFormat::TarZst, "application/zstd"),
    (ArchiveFormat::TarGz, "application/gzip"),
    (ArchiveFormat::Tar, "application/x-tar"),
    (ArchiveFormat::Zip, "application/zip"),
];

/// What a tree is, in words that two of them can be compared by.
async fn told(session: &TestSession, directory: &str) -> String {
    let look =
        "find . -printf '%y %m %P %l\\n' | sort; find . -type f -print0 | sort -z | xargs -0 sha256sum";
    session.says(&format!("cd {directory} && {look}")).await
}

#[test]
fn a_tree_goes_out_and_comes_in_again_in_every_format() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let client = server.client();
        session
            .says(
                "mkdir -p tree/sub/empty && cd tree && echo one > a && ln -s a link && chmod 755 a && \
                 head -c 3000000 /dev/urandom > sub/large && touch 'sub/with space' sub/$'ä\\n'",
            )
            .await;
        for (format, media_type) in FORMATS {
            let mut export =
                client.export_archive(&session.id, &at("tree"), format).await.expect("an archive");
            let mut archive = Vec::new();
            while let Some(piece) = within("a piece", export.next()).await.expect("a piece") {
                archive.extend_from_slice(&piece);
            }
            assert_eq!(export.entries(), Some(7), "{format:?}");
            assert_eq!(export.sha256().map(str::len), Some(64));
            let format_name = serde_json::to_value(format).expect("a name");
            let name = format_name.as_str().expect("a name");
            let raw = server.http().get(&session.path(&format!("/archive?path=tree&format={name}"))).await;
            assert_eq!((raw.status, raw.header("content-type")), (200, Some(media_type)));
            let disposition = format!("attachment; filename=\"tree.{name}\"");
            assert_eq!(raw.header("content-disposition"), Some(disposition.as_str()));
            let into = format!("copy.{name}");
            let imported =
                client.import_archive(&session.id, &at(&into), archive.into()).await.expect("unpacked");
            assert_eq!(
                (imported.entry_count, imported.destination.as_str()),
                (7, into.as_str()),
                "{format:?}"
            );
            assert_eq!(told(&session, &into).await, told(&session, "tree").await, "{format:?}");
        }
        let entry = session.event("archive.imported").await;
        assert_eq!(entry.body["sha256"].as_str().map(str::len), Some(64), "{entry:?}");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

/// A tar of one entry, as a hostile hand would write it.
fn tar_with(kind: u8, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = [0u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0004777");
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[136..147].copy_from_slice(b"00000000000");
    header[156] = kind;
    header[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut archive = header.to_vec();
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(512), 0);
    archive
}

#[test]
fn a_hostile_archive_leaves_nothing() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.says("echo mine > kept").await;
        let good = tar_with(b'0', "good", "", b"good");
        let end = vec![0; 1024];
        let hostile = [
            ("a step up", tar_with(b'0', "../evil", "", b"x")),
            ("a step up within", tar_with(b'0', "a/../../evil", "", b"x")),
            ("a device", tar_with(b'3', "dev", "", b"")),
            ("a FIFO", tar_with(b'6', "fifo", "", b"")),
            (
                "a link out, then through it",
                [tar_with(b'2', "l", "/etc", b""), tar_with(b'0', "l/evil", "", b"x")].concat(),
            ),
            ("a hard link out", tar_with(b'1', "h", "../kept", b"")),
        ];
        for (what, entry) in hostile {
            let archive = [good.clone(), entry, end.clone()].concat();
            let refused = server.http().body(archive).post(&session.path("/archive?path=in")).await;
            assert_eq!(refused.problem(422), "archive_refused", "{what}");
            assert_eq!(session.says("ls -A; cat kept").await, "kept\nmine\n", "{what}");
        }
        let broken = [
            ("nonsense", vec![7; 5000]),
            ("nothing", Vec::new()),
            (
                "cut off in an entry",
                [good.clone(), tar_with(b'0', "b", "", &[1; 4000])[..2000].to_vec()].concat(),
            ),
            ("no end", good.clone()),
        ];
        for (what, archive) in broken {
            let answer = server.http().body(archive).post(&session.path("/archive?path=in")).await;
            if what != "no end" {
                assert_eq!(answer.problem(422), "archive_refused", "{what}");
                assert_eq!(session.says("ls -A").await, "kept\n", "{what}");
            }
        }
        assert_eq!(
            server.http().body("x").post(&session.path("/archive?path=../x")).await.problem(400),
            "path_outside_workspace"
        );
        assert_eq!(
            server.http().get(&session.path("/archive?format=rar")).await.problem(400),
            "invalid_argument"
        );
        assert_eq!(server.http().get(&session.path("/archive?path=nope")).await.problem(404), "not_found");
    });
}

/// Gives some bytes, then breaks.
struct Breaking(std::io::Cursor<Vec<u8>>);

impl std::io::Read for Breaking {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(std::io::ErrorKind::ConnectionReset.into()),
            read => Ok(read),
        }
    }
}

#[test]
fn an_archive_whose_sender_goes_away_leaves_nothing() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        let whole = [tar_with(b'0', "a", "", b"a"), tar_with(b'0', "b", "", b"b")].concat();
        let cut = Upload::new(Breaking(std::io::Cursor::new(whole)));
        server.client().import_archive(&session.id, &at("in"), cut).await.expect_err("it broke");
        // The server sees the break a moment later than we do.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        assert_eq!(session.says("ls -A").await, "");
    });
}

#[test]
fn an_export_that_cannot_be_finished_is_no_whole_answer() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        session.says("mkdir tree; for i in 1 2 3 4; do head -c 50000000 /dev/urandom > tree/$i; done").await;
        let mut export = server
            .client()
            .export_archive(&session.id, &at("tree"), ArchiveFormat::Tar)
            .await
            .expect("begun");
        within("a piece", export.next()).await.expect("a piece");
        session.stop().await;
        let ended = loop {
            match within("a piece", export.next()).await {
                Ok(Some(_)) => {}
                Ok(None) => break "as if it were whole",
                Err(_) => break "broken",
            }
        };
        assert_eq!(ended, "broken");
    });
}

#[test]
fn directories_are_copied_on_the_command_line() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let tree = user.make_dir("tree");
        std::fs::create_dir_all(tree.join("sub")).expect("a directory");
        for (name, content) in [("a", "one"), ("sub/b", "two")] {
            std::fs::File::create(tree.join(name))
                .and_then(|mut file| file.write_all(content.as_bytes()))
                .expect("a file");
        }
        std::os::unix::fs::symlink("a", tree.join("link")).expect("a link");
        let cp = |from: &str, to: &str| {
            let output = server.cli(&["cp", from, to]).output().expect("workroom cp");
            assert!(output.status.success(), "{from} {to}: {}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        let (there, back) = (format!("{}:up", session.id), user.make_dir("down").join("back"));
        cp(tree.to_str().expect("a path"), &there);
        assert_eq!(session.says("cat up/a up/sub/b; readlink up/link").await, "onetwoa\n");
        cp(&there, back.to_str().expect("a path"));
        assert_eq!(std::fs::read_to_string(back.join("sub/b")).expect("a file"), "two");
        assert_eq!(std::fs::read_link(back.join("link")).expect("a link").to_str(), Some("a"));
        // Into a directory that is there, below its own name.
        cp(&there, back.to_str().expect("a path"));
        assert_eq!(std::fs::read_to_string(back.join("up/a")).expect("a file"), "one");
        assert!(cp(&there, "-").len() > 1024, "a tar");
        let json = server
            .cli(&["cp", "--json", tree.to_str().expect("a path"), &there])
            .output()
            .expect("workroom cp");
        let imported: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
        assert_eq!(imported["destination"], json!("up/tree"));
    });
}
