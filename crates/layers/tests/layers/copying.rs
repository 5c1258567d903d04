//! Copies of layers, also of those that are written to meanwhile.

use crate::support::{Random, Stage, Test, answer, assert_same, listing, quietly, something};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use workroom_proto::{Channel, FromWorker, LayerTask, ToWorker};

pub(crate) const TESTS: &[Test] = &[
    ("a_copy_is_all_that_its_source_is", a_copy_is_all_that_its_source_is),
    ("what_is_written_meanwhile_is_in_the_second_pass", what_is_written_meanwhile_is_in_the_second_pass),
    (
        "what_is_written_through_a_mapping_is_in_the_second_pass",
        what_is_written_through_a_mapping_is_in_the_second_pass,
    ),
    ("links_lead_nowhere_and_depth_is_no_matter", links_lead_nowhere_and_depth_is_no_matter),
    ("ten_thousand_files_are_looked_at_again", ten_thousand_files_are_looked_at_again),
    ("a_copy_that_fails_leaves_nothing", a_copy_that_fails_leaves_nothing),
    ("a_worker_reaches_nothing_else", a_worker_reaches_nothing_else),
];

#[track_caller]
fn copied(worker: &Channel) -> (u64, u64) {
    match answer(worker) {
        FromWorker::Copied { entries, bytes } => (entries, bytes),
        other => panic!("{other:?}"),
    }
}

fn copy(stage: &Stage, from: &Path, to: &Path) -> Channel {
    stage.work(LayerTask::Copy { from: from.to_owned(), to: to.to_owned() }, &[])
}

fn a_copy_is_all_that_its_source_is(stage: &Stage) {
    let (lower, upper, to) = (stage.layer("lower"), stage.layer("upper"), stage.dir.join("to"));
    quietly(stage.script(&[], &lower, "mkdir -p dir/sub gone; echo x >dir/sub/x; echo y >file"));
    quietly(stage.script(
        &[&lower],
        &upper,
        "rm -r gone; rm -r dir; mkdir dir; echo z >dir/z; ln dir/z other; ln -s /etc/passwd link; mkfifo -m 640 fifo
         python3 -c '
import os, socket
socket.socket(socket.AF_UNIX).bind(\"socket\")
os.setxattr(\"dir/z\", \"user.note\", b\"kept\")
os.setxattr(\"dir\", \"user.overlay.opaque\", b\"not what it seems\")
f = open(\"sparse\", \"wb\"); f.seek(50 << 20); f.write(b\"end\"); f.truncate(90 << 20)
os.mkdir(\"closed\"); open(\"closed/inside\", \"w\").write(\"x\"); os.utime(\"file\", ns=(1, 123456789))
'
         chmod 4751 dir/z; mkdir sticky; chmod 1777 sticky; touch /tmp/elsewhere",
    ));
    let worker = copy(stage, &upper, &to);
    let (entries, bytes) = copied(&worker);
    drop(worker);
    let (source, target) = (listing(&upper.join("fs")), listing(&to.join("fs")));
    assert_same(&source, &target);
    assert_eq!(entries as usize, source.len() - 1);
    assert!(bytes < 1 << 20, "{bytes} bytes of a file with holes");
    use std::os::unix::fs::MetadataExt;
    let there = |path: &Path| (path.metadata().unwrap().mode(), path.metadata().unwrap().uid());
    for dir in ["", "fs", "work"] {
        assert_eq!(there(&to.join(dir)), there(&upper.join(dir)), "{dir}");
    }
    let seen = "cat dir/z; ls -A . dir; stat -c '%n %a %h %s %Y' dir/z sparse file sticky; getfattr -d dir 2>/dev/null; du -k sparse | cut -c1-2";
    assert_eq!(
        stage.script(&[&lower, &to], &stage.layer("top"), seen),
        stage.script(&[&lower, &upper], &stage.layer("other"), seen)
    );
    match stage.ask(LayerTask::Measure { layer: to }) {
        FromWorker::Measured { entries: measured, .. } => assert_eq!(measured, entries),
        other => panic!("{other:?}"),
    }
}

fn what_is_written_meanwhile_is_in_the_second_pass(stage: &Stage) {
    let mut random = Random::new();
    for round in 0..6 {
        let (from, to) = (stage.layer(&format!("from-{round}")), stage.dir.join(format!("to-{round}")));
        let top = from.join("fs");
        (0..2000).for_each(|_| something(&mut random, &top));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    something(&mut random, &top);
                }
            });
            let worker = copy(stage, &from, &to);
            copied(&worker);
            stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer");
            for _ in 0..2 {
                worker.send(&ToWorker::Again, &[]).unwrap();
                copied(&worker);
                assert_same(&listing(&top), &listing(&to.join("fs")));
                // And once more, after a change that is over before the clock has moved.
                std::fs::write(top.join("one-more"), "1").unwrap();
                std::fs::write(top.join("one-more"), "2").unwrap();
            }
        });
    }
}

/// Writes to a page that is mapped change a file without changing its time, unless it went to the disk before.
fn what_is_written_through_a_mapping_is_in_the_second_pass(stage: &Stage) {
    let (from, to) = (stage.layer("from"), stage.dir.join("to"));
    let file = from.join("fs/mapped");
    fs::write(&file, vec![b'-'; 8192]).unwrap();
    let script = "import mmap, sys
f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); m[5] = 65
print('x', flush=True); sys.stdin.readline(); m[6] = 66
print('x', flush=True); sys.stdin.readline()";
    let mut writer = Command::new("python3")
        .args(["-c", script])
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(writer.stdout.take().unwrap()).lines();
    said.next().unwrap().unwrap();
    // What had just changed is copied again anyway.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let worker = copy(stage, &from, &to);
    copied(&worker);
    use std::io::Write;
    let mut tells = writer.stdin.take().unwrap();
    tells.write_all(b"\n").unwrap();
    said.next().unwrap().unwrap();
    worker.send(&ToWorker::Again, &[]).unwrap();
    copied(&worker);
    assert_eq!(&fs::read(to.join("fs/mapped")).unwrap()[..8], b"-----AB-");
    drop(tells);
    writer.wait().unwrap();
}

fn links_lead_nowhere_and_depth_is_no_matter(stage: &Stage) {
    let outside = stage.dir.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "keep").unwrap();
    let (from, to) = (stage.layer("from"), stage.dir.join("to"));
    let top = from.join("fs");
    symlink(&outside, top.join("absolute")).unwrap();
    symlink("../../outside", top.join("relative")).unwrap();
    symlink("/0/fs", top.join("inside-the-workshop")).unwrap();
    // Deeper than a path may be long, and than descriptors suffice for.
    let mut at = fs::File::open(&top).unwrap();
    for _ in 0..10_000 {
        rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, "d", flags, rustix::fs::Mode::empty()).unwrap().into();
    }
    symlink(&outside, format!("/proc/self/fd/{}/link", std::os::fd::AsRawFd::as_raw_fd(&at))).unwrap();
    let before = listing(&outside);
    let started = Instant::now();
    let worker = copy(stage, &from, &to);
    assert_eq!(copied(&worker).0, 10_004);
    worker.send(&ToWorker::Again, &[]).unwrap();
    assert_eq!(copied(&worker).0, 10_004);
    println!("10,000 deep: copied twice in {:?}", started.elapsed());
    drop(worker);
    assert_eq!(fs::read_link(to.join("fs/absolute")).unwrap(), outside);
    for layer in [from, to] {
        assert_eq!(
            stage.ask(LayerTask::Measure { layer: layer.clone() }),
            FromWorker::Measured { entries: 10_004, bytes: 0 }
        );
        assert_eq!(stage.ask(LayerTask::Remove { path: layer.clone() }), FromWorker::Done);
        assert!(!layer.exists());
    }
    assert_same(&before, &listing(&outside));
}

fn ten_thousand_files_are_looked_at_again(stage: &Stage) {
    let (from, to) = (stage.layer("from"), stage.dir.join("to"));
    for dir in 0..100 {
        let dir = from.join(format!("fs/{dir}"));
        fs::create_dir(&dir).unwrap();
        (0..100).for_each(|file| fs::write(dir.join(file.to_string()), "some content").unwrap());
    }
    // Older than what counts as changed just now.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let started = Instant::now();
    let worker = copy(stage, &from, &to);
    copied(&worker);
    let first = started.elapsed();
    fs::write(from.join("fs/7/7"), "other content").unwrap();
    let started = Instant::now();
    worker.send(&ToWorker::Again, &[]).unwrap();
    assert_eq!(copied(&worker).0, 10_100);
    println!("10,000 files: copied in {first:?}, again in {:?}", started.elapsed());
    assert_eq!(fs::read_to_string(to.join("fs/7/7")).unwrap(), "other content");
    stage.layer("small");
    let started = Instant::now();
    for _ in 0..20 {
        stage.ask(LayerTask::Measure { layer: stage.dir.join("small") });
    }
    println!("a worker, from asking to answer: {:?}", started.elapsed() / 20);
}

fn a_copy_that_fails_leaves_nothing(stage: &Stage) {
    let from = stage.layer("from");
    if stage.is_root {
        // Rooms have no devices, so neither do copies.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            from.join("fs/device"),
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::Mode::RWXU,
            rustix::fs::makedev(1, 3),
        )
        .unwrap();
        let to = stage.dir.join("to");
        let answer = answer(&copy(stage, &from, &to));
        assert!(
            matches!(&answer, FromWorker::Failed(failure) if failure.detail.contains("device")),
            "{answer:?}"
        );
        assert!(!to.exists());
    }
    let to = stage.dir.join("not/there");
    assert!(matches!(answer(&copy(stage, &from, &to)), FromWorker::Failed(_)));
    let missing = copy(stage, &stage.dir.join("missing"), &stage.dir.join("to"));
    assert!(matches!(answer(&missing), FromWorker::Failed(_)));
    assert!(!stage.dir.join("to").exists());
    // What is there already is nobody's to remove.
    assert!(matches!(answer(&copy(stage, &from, &from)), FromWorker::Failed(_)));
    assert!(from.join("fs").exists());
}

/// A worker that waits for what comes next can be looked at.
fn a_worker_reaches_nothing_else(stage: &Stage) {
    let (from, to) = (stage.layer("from"), stage.dir.join("to"));
    let worker = copy(stage, &from, &to);
    copied(&worker);
    let children = |pid: u32| -> Vec<u32> {
        let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        listed.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    };
    let outer = children(stage.spawner_pid())[0];
    let inner = children(outer)[0];
    let status = fs::read_to_string(format!("/proc/{inner}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
        line.trim_start_matches(':').trim().to_owned()
    };
    // DAC_OVERRIDE, FOWNER, FSETID, CHOWN, MKNOD, SYS_ADMIN.
    let expected = format!("{:016x}", 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 21 | 1 << 27);
    assert_eq!([field("CapEff"), field("CapPrm")], [expected.clone(), expected]);
    assert_eq!(
        [field("CapBnd"), field("CapInh"), field("NoNewPrivs")],
        ["0".repeat(16), "0".repeat(16), "1".into()]
    );
    if !stage.is_root {
        // What it has open is the business of whoever has authority over its user namespace.
        return;
    }
    let mut seen: Vec<_> = fs::read_dir(format!("/proc/{inner}/root"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, ["0", "empty", "made", "skeleton"]);
    for kind in ["net", "mnt", "ipc", "uts"] {
        let link = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
        assert_ne!(link(&inner.to_string()), link("self"), "{kind}");
    }
    let mut open: Vec<_> = fs::read_dir(format!("/proc/{inner}/fd"))
        .unwrap()
        .map(|entry| fs::read_link(entry.unwrap().path()).unwrap().to_string_lossy().into_owned())
        .filter(|target| !target.starts_with("socket:") && target != "/dev/null")
        .collect();
    open.sort_unstable();
    open.dedup();
    assert!(
        open.iter().all(|target| ["/", "/fs", "/0", "/made", "/made/fs"]
            .iter()
            .any(|known| target.ends_with(known))),
        "{open:?}"
    );
}
