//! Files of layers: written and read back, and what others may make of them.

use crate::support::{Random, Stage, Test, answer, assert_same, listing, quietly};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use workroom_proto::{Failure, FromWorker, LayerTask};
use workroom_types::{LAYER_ID, ProblemCode};

pub(crate) const TESTS: &[Test] = &[
    ("what_is_exported_is_imported", what_is_exported_is_imported),
    ("a_hostile_file_leaves_nothing", a_hostile_file_leaves_nothing),
    ("moved_directories_need_root", moved_directories_need_root),
];

fn export(stage: &Stage, layers: &[(&str, &Path)], word: &[u8]) -> Vec<u8> {
    let path = stage.dir.join("word");
    fs::write(&path, word).unwrap();
    let (mut reads, writes) = std::io::pipe().unwrap();
    let layers = layers.iter().map(|(name, layer)| ((*name).to_owned(), (*layer).to_owned())).collect();
    let worker =
        stage.work(LayerTask::Export { layers }, &[fs::File::open(path).unwrap().as_fd(), writes.as_fd()]);
    drop(writes);
    let mut file = Vec::new();
    reads.read_to_end(&mut file).unwrap();
    assert_eq!(answer(&worker), FromWorker::Done);
    file
}

fn import(stage: &Stage, file: &[u8], into: &Path, most_bytes: u64) -> FromWorker {
    let (reads, mut writes) = std::io::pipe().unwrap();
    let worker = stage.work(LayerTask::Import { into: into.to_owned(), most_bytes }, &[reads.as_fd()]);
    drop(reads);
    let file = file.to_vec();
    let writing = std::thread::spawn(move || drop(writes.write_all(&file)));
    let answer = answer(&worker);
    writing.join().unwrap();
    answer
}

fn what_is_exported_is_imported(stage: &Stage) {
    let mut random = Random::new();
    let (lower, upper) = (stage.layer("lower"), stage.layer("upper"));
    stage.play(&mut random, &[], &lower, 400, "all");
    stage.play(&mut random, &[&lower], &upper, 200, "all");
    quietly(stage.script(
        &[&lower],
        &upper,
        "mkdir -p gone/x; python3 -c '
import os, socket
socket.socket(socket.AF_UNIX).bind(\"socket\")
open(\"noted\", \"w\").write(\"x\")
os.setxattr(\"noted\", \"user.a=b%c\", b\"odd=\\n\")
os.setxattr(\"noted\", \"user.overlay.opaque\", b\"not what it seems\")
f = open(\"sparse\", \"wb\"); f.seek(50 << 20); f.write(b\"middle\"); f.truncate(90 << 20)
os.utime(\"noted\", ns=(0, -1500000001)); os.mkdir(b\"\\xff\")
'; rm -rf a; mkdir a; touch a/new; ln a/new linked
         chmod 4755 noted; long=$(printf 'x%.0s' $(seq 200)); mkdir -p $long/$long; echo deep >$long/$long/$long",
    ));
    let file = export(stage, &[("lower", &lower), ("upper-1", &upper)], b"the host's word");
    println!("{} bytes", file.len());
    let into = stage.dir.join("into");
    fs::create_dir(&into).unwrap();
    let answer = import(stage, &file, &into, 1 << 30);
    let layers = vec!["lower".to_owned(), "upper-1".to_owned()];
    assert_eq!(answer, FromWorker::Imported { word: b"the host's word".to_vec(), layers });
    // Whiteouts are the overlay's own; rooms do not see whose they are.
    let shown = |layer: &Path| {
        let mut found = listing(&layer.join("fs"));
        let (own, root) =
            (format!("{}:{}", LAYER_ID + 65536, LAYER_ID + 65536), format!("{LAYER_ID}:{LAYER_ID}"));
        found.values_mut().for_each(|line| *line = line.replace(&own, &root));
        found
    };
    assert_same(&shown(&lower), &shown(&into.join("lower")));
    assert_same(&shown(&upper), &shown(&into.join("upper-1")));
    let size = |path: &Path| {
        std::os::unix::fs::MetadataExt::blocks(&fs::metadata(path.join("fs/workspace/sparse")).unwrap())
    };
    assert!(size(&into.join("upper-1")) < 1000);
    let read_back: [&Path; 2] = [&into.join("lower"), &into.join("upper-1")];
    assert_same(&stage.see(&[&lower, &upper], "all"), &stage.see(&read_back, "all"));
    // The same once more is the same file, and rooms can go on with what was read.
    assert_eq!(
        export(stage, &[("lower", read_back[0]), ("upper-1", read_back[1])], b"the host's word"),
        file
    );
    quietly(stage.script(&read_back[..1], read_back[1], "touch here; rm linked; mkdir -p gone/y"));
    // Other programs can read it too.
    fs::write(stage.dir.join("file.tar.zst"), &file).unwrap();
    if Path::new("/usr/bin/zstd").exists() {
        let listed = std::process::Command::new("sh")
            .args(["-c", "zstd -dc file.tar.zst | tar -tf - | head -2"])
            .current_dir(&stage.dir)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "word\nlayers/lower\n");
    }
}

/// One entry of a tar by hand: kind, path, where a link leads, content, and more records.
type Raw<'a> = (u8, &'a str, &'a str, &'a [u8], &'a [(&'a str, &'a str)]);

fn header(name: &str, flag: u8, size: usize, device: u32) -> Vec<u8> {
    let mut block = vec![0; 512];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, &name[..name.len().min(99)]);
    put(100, "0000755");
    put(108, "0001750");
    put(116, "0001750");
    put(124, &format!("{size:011o}"));
    put(136, "00000000000");
    put(148, "        ");
    put(257, "ustar");
    put(329, &format!("{device:07o}"));
    put(337, &format!("{device:07o}"));
    block[156] = flag;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
    block
}

fn archive(entries: &[Raw<'_>]) -> Vec<u8> {
    let mut tar = Vec::new();
    let add = |tar: &mut Vec<u8>, bytes: &[u8]| {
        tar.extend_from_slice(bytes);
        tar.resize(tar.len().next_multiple_of(512), 0);
    };
    let word: Raw<'_> = (b'0', "word", "", b"w", &[]);
    for (flag, path, target, content, more) in [word].iter().chain(entries) {
        let mut record = String::new();
        let pairs = [("path", *path), ("linkpath", *target)];
        for (key, value) in pairs.iter().chain(*more).filter(|(_, value)| !value.is_empty()) {
            let rest = key.len() + value.len() + 3;
            let length = (rest + 1..).find(|length| rest + length.to_string().len() == *length).unwrap();
            record += &format!("{length} {key}={value}\n");
        }
        tar.extend(header("pax", b'x', record.len(), 0));
        add(&mut tar, record.as_bytes());
        let device = if *flag == b'3' && *content == b"device" { 1 } else { 0 };
        let content = if device == 1 { b"" } else { *content };
        tar.extend(header(path, *flag, content.len(), device));
        add(&mut tar, content);
    }
    tar.extend([0; 1024]);
    tar
}

fn packed(tar: &[u8]) -> Vec<u8> {
    zstd::encode_all(tar, 1).unwrap()
}

#[track_caller]
fn refused(stage: &Stage, file: &[u8], what: &str) -> Failure {
    let into = stage.dir.join("into");
    let _ = fs::create_dir(&into);
    match import(stage, file, &into, 1 << 20) {
        FromWorker::Failed(failure) => {
            let left: Vec<PathBuf> =
                fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert!(left.is_empty(), "{what}: {left:?}");
            failure
        }
        other => panic!("{what}: {other:?}"),
    }
}

fn a_hostile_file_leaves_nothing(stage: &Stage) {
    let outside = stage.dir.join("outside");
    fs::create_dir(&outside).unwrap();
    let to_outside = outside.to_str().unwrap();
    let top: Raw<'_> = (b'5', "layers/a", "", b"", &[]);
    let file = |path| -> Raw<'_> { (b'0', path, "", b"content", &[]) };
    let good = archive(&[top, file("layers/a/file")]);
    let bad: Vec<(&str, Vec<Raw<'_>>)> = vec![
        ("up", vec![top, file("layers/a/../b")]),
        ("up and out", vec![top, file("layers/a/../../../outside/x")]),
        ("absolute", vec![top, file("/etc/passwd")]),
        ("elsewhere", vec![top, file("other/a/x")]),
        ("no layer's name", vec![(b'5', "layers/..", "", b"", &[])]),
        ("hidden name", vec![(b'5', "layers/.x", "", b"", &[])]),
        ("empty part", vec![top, file("layers/a//x")]),
        ("dot", vec![top, file("layers/a/./x")]),
        ("no top", vec![file("layers/a/x")]),
        ("top is a file", vec![file("layers/a")]),
        ("top is a link", vec![(b'2', "layers/a", to_outside, b"", &[])]),
        ("layer twice", vec![top, (b'5', "layers/b", "", b"", &[]), top]),
        ("through a link", vec![top, (b'2', "layers/a/l", to_outside, b"", &[]), file("layers/a/l/x")]),
        ("over a link", vec![top, (b'2', "layers/a/l", to_outside, b"", &[]), file("layers/a/l")]),
        (
            "hard link to a link",
            vec![
                top,
                (b'2', "layers/a/l", to_outside, b"", &[]),
                (b'1', "layers/a/h", "layers/a/l", b"", &[]),
            ],
        ),
        ("hard link to nothing", vec![top, (b'1', "layers/a/h", "layers/a/none", b"", &[])]),
        ("hard link out", vec![top, (b'1', "layers/a/h", "layers/a/../../x", b"", &[])]),
        (
            "hard link to another layer",
            vec![
                top,
                file("layers/a/f"),
                (b'5', "layers/b", "", b"", &[]),
                (b'1', "layers/b/h", "layers/a/f", b"", &[]),
            ],
        ),
        ("device", vec![top, (b'3', "layers/a/d", "", b"device", &[])]),
        ("block device", vec![top, (b'4', "layers/a/d", "", b"", &[])]),
        ("twice", vec![top, file("layers/a/f"), file("layers/a/f")]),
        ("below a file", vec![top, file("layers/a/f"), file("layers/a/f/g")]),
        ("no parent", vec![top, file("layers/a/d/f")]),
        (
            "trusted attribute",
            vec![top, (b'0', "layers/a/f", "", b"", &[("SCHILY.xattr.trusted.overlay.opaque", "y")])],
        ),
        (
            "security attribute",
            vec![top, (b'0', "layers/a/f", "", b"", &[("SCHILY.xattr.security.capability", "y")])],
        ),
        (
            "impossible redirect",
            vec![top, (b'5', "layers/a/d", "", b"", &[("WORKROOM.redirect", "/../../x")])],
        ),
        ("impossible time", vec![top, (b'0', "layers/a/f", "", b"", &[("mtime", "99999999999999999999")])]),
        ("holes beyond", vec![top, (b'0', "layers/a/f", "", b"1\n5\n9\n", &[("GNU.sparse.realsize", "10")])]),
        (
            "too many holes",
            vec![top, (b'0', "layers/a/f", "", b"99999999999\n", &[("GNU.sparse.realsize", "10")])],
        ),
        ("size of another", vec![top, (b'0', "layers/a/f", "", b"x", &[("size", "999999999")])]),
    ];
    for (what, entries) in &bad {
        let failure = refused(stage, &packed(&archive(entries)), what);
        assert_eq!(failure.code, ProblemCode::ArchiveRefused, "{what}: {failure:?}");
    }
    let large = vec![0; 2 << 20];
    let failure = refused(stage, &packed(&archive(&[top, (b'0', "layers/a/f", "", &large, &[])])), "large");
    assert_eq!((failure.code, failure.limit.as_deref()), (ProblemCode::LimitExceeded, Some("import_bytes")));
    let whole = packed(&good);
    for end in [0, 1, 10, whole.len() / 2, whole.len() - 1] {
        refused(stage, &whole[..end], "cut off");
    }
    refused(stage, &packed(&good[..good.len() - 1024]), "without an end");
    refused(stage, &packed(&good[1536..]), "without a word");
    refused(stage, b"no such thing", "nonsense");
    let into = stage.dir.join("good");
    fs::create_dir(&into).unwrap();
    assert!(matches!(import(stage, &whole, &into, 1 << 20), FromWorker::Imported { .. }));
    assert_eq!(fs::read_to_string(into.join("a/fs/file")).unwrap(), "content");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

fn moved_directories_need_root(stage: &Stage) {
    let moved: [Raw<'_>; 4] = [
        (b'5', "layers/a", "", b"", &[]),
        (b'5', "layers/a/workspace", "", b"", &[]),
        (b'5', "layers/a/workspace/moved", "", b"", &[("WORKROOM.redirect", "dir")]),
        (b'3', "layers/a/workspace/dir", "", b"", &[]),
    ];
    let file = packed(&archive(&moved));
    if !stage.is_root {
        let failure = refused(stage, &file, "moved");
        assert!(failure.detail.contains("moved") && failure.hint.contains("squash"), "{failure:?}");
        return;
    }
    let (lower, into) = (stage.layer("lower"), stage.dir.join("into"));
    quietly(stage.script(&[], &lower, "mkdir dir; echo x >dir/x"));
    fs::create_dir(&into).unwrap();
    assert!(matches!(import(stage, &file, &into, 1 << 20), FromWorker::Imported { .. }));
    assert_eq!(
        stage.script(&[&lower, &into.join("a")], &stage.layer("top"), "ls; cat moved/x").text,
        "moved\nx\n"
    );
}
