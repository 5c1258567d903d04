//! Differences, digests and squashing, compared with what rooms see.

use crate::support::{Random, Stage, Test, assert_same, quietly};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use workroom_proto::{DiffRule, FromWorker, LayerTask};
use workroom_types::{Diff, DiffEntry, DiffKind, FileKind};

pub(crate) const TESTS: &[Test] = &[
    ("differences_are_those_that_rooms_see", differences_are_those_that_rooms_see),
    ("a_difference_is_told_as_people_want_it", a_difference_is_told_as_people_want_it),
    ("a_difference_costs_what_differs", a_difference_costs_what_differs),
    ("digests_are_of_what_differs", digests_are_of_what_differs),
    ("a_squashed_layer_shows_the_same", a_squashed_layer_shows_the_same),
    ("deep_differences_and_links_to_outside", deep_differences_and_links_to_outside),
];

pub(crate) fn stack(layers: &[&Path]) -> Vec<PathBuf> {
    layers.iter().map(|layer| (*layer).to_owned()).collect()
}

pub(crate) fn workspace() -> DiffRule {
    DiffRule {
        under: b"workspace".to_vec(),
        shown_from: b"workspace".to_vec(),
        patch: false,
        collapse: false,
        limit: 100_000,
    }
}

#[track_caller]
pub(crate) fn diff(stage: &Stage, from: &[&Path], to: &[&Path], rule: DiffRule) -> Diff {
    match stage.ask(LayerTask::Diff { from: stack(from), to: stack(to), rule }) {
        FromWorker::Diff(diff) => diff,
        other => panic!("{other:?}"),
    }
}

/// What differs between two listings of the kind that differences are made of.
fn model(from: &BTreeMap<PathBuf, String>, to: &BTreeMap<PathBuf, String>) -> BTreeMap<PathBuf, DiffKind> {
    let parts = |line: &str| -> Vec<String> { line.splitn(3, ' ').map(str::to_owned).collect() };
    let mut found = BTreeMap::new();
    for path in from.keys().chain(to.keys()) {
        let change = match (from.get(path).map(|line| parts(line)), to.get(path).map(|line| parts(line))) {
            (None, _) => DiffKind::Added,
            (_, None) => DiffKind::Deleted,
            (Some(old), Some(new)) if old[0] != new[0] => DiffKind::TypeChanged,
            (Some(old), Some(new)) if old[2] != new[2] => DiffKind::Modified,
            (Some(old), Some(new)) if old[1] != new[1] => DiffKind::Mode,
            _ => continue,
        };
        found.insert(path.clone(), change);
    }
    found
}

fn differences_are_those_that_rooms_see(stage: &Stage) {
    let mut random = Random::new();
    let names = ["base", "next", "one", "other", "last"];
    let layers: Vec<PathBuf> = names.iter().map(|name| stage.layer(name)).collect();
    let [base, next, one, other, last] = [0, 1, 2, 3, 4].map(|number| layers[number].as_path());
    let stacks: [&[&Path]; 6] =
        [&[], &[base], &[base, next], &[base, next, one], &[base, next, other], &[base, next, one, last]];
    let mut seen = vec![stage.see(&[], "plain")];
    for stack in &stacks[1..] {
        let (top, below) = stack.split_last().unwrap();
        seen.push(stage.play(&mut random, below, top, 150, "plain"));
    }
    let mut total = 0;
    for (from, before) in stacks.iter().zip(&seen) {
        for (to, after) in stacks.iter().zip(&seen) {
            let diff = diff(stage, from, to, workspace());
            let sorted: Vec<_> = diff.entries.iter().map(|entry| entry.path.as_bytes().to_vec()).collect();
            assert!(sorted.is_sorted(), "{sorted:?}");
            let told = diff.entries.iter().map(|entry| (PathBuf::from(&entry.path), entry.change)).collect();
            assert_same(&model(before, after), &told);
            total += diff.entries.len();
        }
    }
    println!("{total} differences");
}

fn find<'a>(diff: &'a Diff, path: &str) -> &'a DiffEntry {
    diff.entries.iter().find(|entry| entry.path == path).unwrap_or_else(|| panic!("{path} in {diff:#?}"))
}

fn a_difference_is_told_as_people_want_it(stage: &Stage) {
    let (lower, upper) = (stage.layer("lower"), stage.layer("upper"));
    quietly(stage.script(
        &[],
        &lower,
        "printf 'one\\ntwo\\nthree\\n' >text; printf 'a\\0b' >binary; echo x >mode; ln -s a link; mkdir dir; echo y >dir/file
         touch touched; mkdir was-dir; echo z >was-dir/below; mkdir sub; echo k >sub/kept",
    ));
    quietly(stage.script(
        &[&lower],
        &upper,
        "printf 'one\\n2\\nthree\\n' >text; printf 'a\\0c' >binary; chmod 755 mode; ln -sfn b link; rm -r dir
         touch -d 2001-01-01 touched; rm -r was-dir; echo now >was-dir; mkdir -p new/deep; echo n >new/deep/file
         printf 'no end' >added; chmod 700 sub; mkdir /tmp/elsewhere",
    ));
    let rule = || DiffRule { patch: true, ..workspace() };
    let told = diff(stage, &[&lower], &[&lower, &upper], rule());
    let paths: Vec<_> = told.entries.iter().map(|entry| (entry.path.as_str(), entry.change)).collect();
    use DiffKind::{Added, Deleted, Mode, Modified, TypeChanged};
    let expected = [
        ("added", Added),
        ("binary", Modified),
        ("dir", Deleted),
        ("dir/file", Deleted),
        ("link", Modified),
        ("mode", Mode),
        ("new", Added),
        ("new/deep", Added),
        ("new/deep/file", Added),
        ("sub", Mode),
        ("text", Modified),
        ("was-dir", TypeChanged),
        ("was-dir/below", Deleted),
    ];
    assert_eq!(paths, expected);
    let text = find(&told, "text");
    assert_eq!((text.old_size, text.new_size, text.kind), (Some(14), Some(12), FileKind::File));
    assert_eq!(
        text.patch.as_deref(),
        Some("--- a/text\n+++ b/text\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n")
    );
    assert_eq!(
        find(&told, "added").patch.as_deref(),
        Some("--- /dev/null\n+++ b/added\n@@ -0,0 +1 @@\n+no end\n\\ No newline at end of file\n")
    );
    assert_eq!(find(&told, "binary").patch, None);
    let mode = find(&told, "mode");
    assert_eq!((mode.old_mode.as_deref(), mode.new_mode.as_deref()), (Some("0644"), Some("0755")));
    assert_eq!(find(&told, "was-dir").kind, FileKind::File);
    assert_eq!(find(&told, "dir").kind, FileKind::Directory);

    let collapsed = diff(stage, &[&lower], &[&lower, &upper], DiffRule { collapse: true, ..workspace() });
    assert_eq!(find(&collapsed, "new").below, Some(2));
    assert!(collapsed.entries.iter().all(|entry| !entry.path.starts_with("new/")));
    let few = diff(stage, &[&lower], &[&lower, &upper], DiffRule { limit: 3, ..workspace() });
    assert_eq!((few.entries.len(), few.entries[2].path.as_str(), few.remainder), (3, "dir", 10));
    let below = DiffRule { under: b"workspace/new".to_vec(), ..workspace() };
    assert_eq!(diff(stage, &[&lower], &[&lower, &upper], below).entries.len(), 3);
    let file = DiffRule { under: b"workspace/text".to_vec(), ..workspace() };
    assert_eq!(diff(stage, &[&lower], &[&lower, &upper], file).entries.len(), 1);
    let through_a_link = DiffRule { under: b"workspace/link/x".to_vec(), ..workspace() };
    assert_eq!(diff(stage, &[&lower], &[&lower, &upper], through_a_link).entries, []);
    let whole = DiffRule { under: Vec::new(), shown_from: Vec::new(), ..workspace() };
    let whole = diff(stage, &[&lower], &[&lower, &upper], whole);
    assert_eq!(find(&whole, "/tmp/elsewhere").change, Added);
    assert_eq!(find(&whole, "/workspace/text").change, Modified);
    assert_eq!(diff(stage, &[&lower], &[&lower], rule()).entries, []);
    let reverse = diff(stage, &[&lower, &upper], &[&lower], rule());
    assert_eq!(find(&reverse, "dir/file").change, Added);
    assert_eq!(find(&reverse, "was-dir").kind, FileKind::Directory);
}

fn a_difference_costs_what_differs(stage: &Stage) {
    for (name, dirs) in [("small", 10), ("large", 1000)] {
        let (lower, upper) = (stage.layer(&format!("{name}-lower")), stage.layer(&format!("{name}-upper")));
        let fill = format!(
            "seq 1 {dirs} | xargs mkdir; for d in $(seq 1 {dirs}); do (cd $d; seq 1 100 | xargs touch); done"
        );
        quietly(stage.script(&[], &lower, &fill));
        quietly(stage.script(&[&lower], &upper, "for d in 1 2 3 4 5; do echo x >$d/1; rm $d/2; done"));
        let mut best = std::time::Duration::MAX;
        for _ in 0..5 {
            let started = Instant::now();
            assert_eq!(diff(stage, &[&lower], &[&lower, &upper], workspace()).entries.len(), 10);
            best = best.min(started.elapsed());
        }
        println!("10 changes in {} files: {best:?}", dirs * 100);
    }
}

#[track_caller]
pub(crate) fn digest(stage: &Stage, task: LayerTask) -> (String, u64) {
    match stage.ask(task) {
        FromWorker::Digest { digest, count } => (digest, count),
        other => panic!("{other:?}"),
    }
}

fn digests_are_of_what_differs(stage: &Stage) {
    let (lower, upper, again) = (stage.layer("lower"), stage.layer("upper"), stage.layer("again"));
    quietly(stage.script(&[], &lower, "echo x >x; mkdir d; echo y >d/y; ln -s x l"));
    let work = "echo new >x; rm d/y; mkdir e; mkfifo e/p";
    quietly(stage.script(&[&lower], &upper, work));
    quietly(stage.script(
        &[&lower],
        &again,
        &format!("mkdir z; echo; rmdir z; {work}; touch -d 1999-09-09 e").replace("echo;", ":;"),
    ));
    let changes =
        |from: &[&Path], to: &[&Path]| digest(stage, LayerTask::Changes { from: stack(from), to: stack(to) });
    let content = |of: &[&Path]| digest(stage, LayerTask::Content { stack: stack(of) });
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(changes(&[&lower], &[&lower]), (nothing.into(), 0));
    assert_eq!(changes(&[&lower], &[&lower, &stage.layer("empty")]), (nothing.into(), 0));
    assert_eq!(content(&[]), (nothing.into(), 0));
    assert_eq!(changes(&[&lower], &[&lower, &upper]), changes(&[&lower], &[&lower, &again]));
    assert_eq!(changes(&[&lower], &[&lower, &upper]).1, 4);
    assert_eq!(content(&[&lower, &upper]), content(&[&lower, &again]));
    assert_ne!(content(&[&lower]), content(&[&lower, &upper]));
    assert_ne!(changes(&[], &[&lower]), changes(&[], &[&lower, &upper]));
}

fn a_squashed_layer_shows_the_same(stage: &Stage) {
    let mut random = Random::new();
    let layers: Vec<PathBuf> = (0..4).map(|number| stage.layer(&format!("layer-{number}"))).collect();
    let layers: Vec<&Path> = layers.iter().map(PathBuf::as_path).collect();
    for number in 0..4 {
        stage.play(&mut random, &layers[..number], layers[number], 150, "all");
    }
    // Of the skeleton: changed, gone, replaced, moved.
    let top = stage.layer("top");
    let change =
        "rm /etc/hosts /etc/profile; echo new >/etc/hostname; rm -r /var/cache; echo file >/var/cache
         mv /var/log /srv/log 2>/dev/null || { mkdir /srv/log; rmdir /var/log; }; touch -d 2003-03-03 /mnt
         mkdir /var/log && chmod 711 /var/log; rm -r /var/spool && mkdir /var/spool && touch /var/spool/x";
    let said = stage.script_as(workroom_types::RoomUser::Root, &layers, &top, change).unwrap();
    assert_eq!(said.text, "");
    let all: Vec<&Path> = layers.iter().copied().chain([top.as_path()]).collect();
    let into = stage.dir.join("squashed");
    let squash = LayerTask::Squash { below: Vec::new(), layers: stack(&all), into: into.clone() };
    let answer = stage.ask(squash);
    let FromWorker::Measured { entries, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(stage.ask(LayerTask::Measure { layer: into.clone() }).clone(), answer, "{entries}");
    assert_same(&stage.see(&all, "all"), &stage.see(&[&into], "all"));
    let outside = "find /etc /var /srv /mnt -xdev -printf '%p %y %m %U %G %T@ %l\\n' | sort";
    let see = |stack: &[&Path], name: &str| {
        stage.script_as(workroom_types::RoomUser::Root, stack, &stage.layer(name), outside).unwrap().text
    };
    let (one, other) = (see(&all, "one"), see(&[&into], "other"));
    let differing: Vec<_> =
        one.lines().zip(other.lines()).filter(|(one, other)| one != other).take(3).collect();
    assert!(one == other, "{differing:?}");
    assert_eq!(diff(stage, &all, &[&into], DiffRule { under: Vec::new(), ..workspace() }).entries, []);
    assert!(
        !crate::support::listing(&into.join("fs"))
            .values()
            .any(|line| line.contains("redirect") || line.contains("opaque"))
    );
}

fn deep_differences_and_links_to_outside(stage: &Stage) {
    let outside = stage.dir.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "keep").unwrap();
    let (lower, upper) = (stage.layer("lower"), stage.layer("upper"));
    let top = upper.join("fs");
    std::os::unix::fs::symlink(&outside, top.join("workspace")).unwrap();
    std::os::unix::fs::symlink(&outside, top.join("absolute")).unwrap();
    let mut at = fs::File::open(&top).unwrap();
    for _ in 0..10_000 {
        rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, "d", flags, rustix::fs::Mode::empty()).unwrap().into();
    }
    let whole = || DiffRule { under: Vec::new(), shown_from: Vec::new(), limit: 10, ..workspace() };
    let started = Instant::now();
    let told = diff(stage, &[&lower], &[&lower, &upper], whole());
    println!("10,000 deep: {:?}", started.elapsed());
    // Two links, of which one stands in the place of the workspace, and the directories.
    assert_eq!(told.entries.len() as u64 + told.remainder, 10_002);
    assert_eq!(find(&told, "/absolute").kind, FileKind::Symlink);
    let through = DiffRule { under: b"workspace/precious".to_vec(), ..whole() };
    assert_eq!(diff(stage, &[&lower], &[&lower, &upper], through).entries, []);
    assert_eq!(digest(stage, LayerTask::Content { stack: stack(&[&lower, &upper]) }).1, 10_002);
    assert_eq!(stage.ask(LayerTask::Remove { path: upper.clone() }), FromWorker::Done);
    assert_eq!(fs::read_to_string(outside.join("precious")).unwrap(), "keep");
}
