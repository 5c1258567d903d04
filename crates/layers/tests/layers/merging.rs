//! Merges, compared with what each side is.

use crate::diffing::{diff, stack, workspace};
use crate::support::{Random, Stage, Test, quietly};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use workroom_proto::{FromWorker, LayerTask};
use workroom_types::{DiffKind, MergeSide, Merged, RoomUser};

pub(crate) const TESTS: &[Test] = &[
    ("a_merge_takes_what_one_side_changed", a_merge_takes_what_one_side_changed),
    (
        "what_both_changed_is_a_conflict_until_it_is_decided",
        what_both_changed_is_a_conflict_until_it_is_decided,
    ),
    ("random_merges_are_as_each_side_was", random_merges_are_as_each_side_was),
];

struct Family {
    base: PathBuf,
    ours: PathBuf,
    theirs: PathBuf,
}

impl Family {
    fn new(stage: &Stage, number: usize) -> Family {
        let [base, ours, theirs] =
            ["base", "ours", "theirs"].map(|name| stage.layer(&format!("{name}-{number}")));
        Family { base, ours, theirs }
    }

    fn ours(&self) -> [&Path; 2] {
        [&self.base, &self.ours]
    }

    fn theirs(&self) -> [&Path; 2] {
        [&self.base, &self.theirs]
    }

    fn merge(
        &self,
        stage: &Stage,
        into: &Path,
        dry_run: bool,
        choices: &[(&str, MergeSide)],
        prefer: Option<MergeSide>,
    ) -> Merged {
        let choices = choices.iter().map(|(path, side)| ((*path).to_owned(), *side)).collect();
        let (base, ours, theirs) = (stack(&[&self.base]), stack(&self.ours()), stack(&self.theirs()));
        let into = into.to_owned();
        match stage.ask(LayerTask::Merge { base, ours, theirs, into, dry_run, choices, prefer }) {
            FromWorker::Merged(merged) => merged,
            other => panic!("{other:?}"),
        }
    }
}

fn a_merge_takes_what_one_side_changed(stage: &Stage) {
    let family = Family::new(stage, 0);
    let lines = "for n in 1 2 3 4 5 6 7 8 9; do echo line $n; done";
    quietly(stage.script(
        &[],
        &family.base,
        &format!("({lines}) >text; echo x >theirs; echo x >ours; echo x >gone; mkdir -p dir/sub; echo y >dir/sub/y; echo m >mode; echo s >same"),
    ));
    quietly(stage.script(
        &family.ours()[..1],
        &family.ours,
        "sed -i 's/line 2/ours/' text; echo ours >ours; echo new >new-ours; chmod 640 mode; echo same >same",
    ));
    quietly(stage.script(
        &family.theirs()[..1],
        &family.theirs,
        "sed -i 's/line 8/theirs/' text; echo theirs >theirs; rm gone; rm -r dir; mkdir -p fresh/sub; echo f >fresh/sub/f; ln fresh/sub/f fresh/link
         ln -s /etc/passwd pointer; echo theirs >mode; echo same >same; chmod 711 fresh; touch -d 2002-02-02 theirs",
    ));
    let into = stage.dir.join("into");
    let planned = family.merge(stage, &into, true, &[], None);
    assert!(!planned.applied && !into.exists());
    let merged = family.merge(stage, &into, false, &[], None);
    assert!(merged.applied, "{merged:#?}");
    assert_eq!((merged.changes.clone(), vec![]), (planned.changes, merged.conflicts));
    let told: Vec<_> = merged.changes.iter().map(|entry| (entry.path.as_str(), entry.change)).collect();
    use DiffKind::{Added, Deleted, Modified};
    let expected = [
        ("dir", Deleted),
        ("fresh", Added),
        ("fresh/link", Added),
        ("fresh/sub", Added),
        ("fresh/sub/f", Added),
        ("gone", Deleted),
        ("mode", Modified),
        ("pointer", Added),
        ("text", Modified),
        ("theirs", Modified),
    ];
    assert_eq!(told, expected);
    let result = [family.base.as_path(), &family.ours, &into];
    let see = "cat text theirs ours new-ours mode same; find . -printf '%p %y %m %l %u %n\\n' | sort | grep -v ' d '; stat -c '%a %U' fresh mode; date -r theirs +%F";
    let seen = stage.script(&result, &stage.layer("top"), see);
    let text = "line 1\nours\nline 3\nline 4\nline 5\nline 6\nline 7\ntheirs\nline 9\ntheirs\nours\nnew\ntheirs\nsame\n";
    let rest = "./fresh/link f 644  agent 2\n./fresh/sub/f f 644  agent 2\n./mode f 640  agent 1\n./new-ours f 644  agent 1\n\
        ./ours f 644  agent 1\n./pointer l 777 /etc/passwd agent 1\n./same f 644  agent 1\n./text f 644  agent 1\n\
        ./theirs f 644  agent 1\n711 agent\n640 agent\n2002-02-02\n";
    assert_eq!(seen.text, format!("{text}{rest}"));
    // The new layer can be written to by a room, also where something was deleted.
    quietly(stage.script(
        &result[..2],
        &into,
        "echo again >gone; mkdir dir; echo z >dir/z; rm -r fresh; echo >>text",
    ));
    quietly(stage.script_as(RoomUser::Root, &result[..2], &into, "touch /root/x").unwrap());
}

fn what_both_changed_is_a_conflict_until_it_is_decided(stage: &Stage) {
    let family = Family::new(stage, 0);
    quietly(stage.script(
        &[],
        &family.base,
        "for f in text binary deleted modified; do printf 'a\\n' >$f; done; mkdir d1 d2 d3; echo x >d1/x; echo x >d2/x; echo x >d3/x; echo k >kind",
    ));
    quietly(stage.script(
        &family.ours()[..1],
        &family.ours,
        "echo ours >text; printf 'o\\0' >binary; rm deleted; echo ours >modified; rm -r d1; echo new >d2/new; rm -r d3; echo file >d3; rm kind; mkdir kind; echo ours >kind/o; echo ours >added",
    ));
    quietly(stage.script(
        &family.theirs()[..1],
        &family.theirs,
        "echo theirs >text; printf 't\\0' >binary; echo theirs >deleted; rm modified; echo new >d1/new; rm -r d2; echo theirs >d3/x; rm kind; ln -s x kind; mkdir added; echo theirs >added/t; echo free >free",
    ));
    let into = stage.dir.join("into");
    let refused = family.merge(stage, &into, false, &[], None);
    assert!(!refused.applied && !into.exists());
    use DiffKind::{Added, Deleted, Modified, TypeChanged};
    let told: Vec<_> = refused.conflicts.iter().map(|c| (c.path.as_str(), c.ours, c.theirs)).collect();
    let expected = [
        ("added", Added, Added),
        ("binary", Modified, Modified),
        ("d1", Deleted, Modified),
        ("d2", Modified, Deleted),
        ("d3", TypeChanged, Modified),
        ("deleted", Deleted, Modified),
        ("kind", TypeChanged, TypeChanged),
        ("modified", Modified, Deleted),
        ("text", Modified, Modified),
    ];
    assert_eq!(told, expected);
    let marked = refused.conflicts[8].merged.clone().expect("both sides, marked");
    assert!(
        marked.contains("<<<<<<<") && marked.contains("ours\n") && marked.contains("theirs\n"),
        "{marked}"
    );

    let choices =
        [("text", MergeSide::Theirs), ("/workspace/d1", MergeSide::Theirs), ("added", MergeSide::Theirs)];
    let merged = family.merge(stage, &into, false, &choices, Some(MergeSide::Ours));
    assert!(merged.applied && merged.conflicts.is_empty());
    let result = [family.base.as_path(), &family.ours, &into];
    let seen = stage.script(
        &result,
        &stage.layer("top"),
        "cat text; ls d1 d2 added; cat d3 free modified kind/o; ls",
    );
    assert_eq!(
        seen.text,
        "theirs\nadded:\nt\n\nd1:\nnew\nx\n\nd2:\nnew\nx\nfile\nfree\nours\nours\nadded\nbinary\nd1\nd2\nd3\nfree\nkind\nmodified\ntext\n"
    );
    let other = stage.dir.join("other");
    assert!(family.merge(stage, &other, false, &[], Some(MergeSide::Theirs)).applied);
    let theirs = diff(stage, &[&family.base, &family.ours, &other], &family.theirs(), workspace());
    // What ours alone had changed was nothing that was not in conflict.
    assert_eq!(theirs.entries, []);
}

fn random_merges_are_as_each_side_was(stage: &Stage) {
    let mut random = Random::new();
    for round in 0..4 {
        let family = Family::new(stage, round);
        let base = stage.play(&mut random, &[], &family.base, 300, "plain");
        let ours = stage.play(&mut random, &family.ours()[..1], &family.ours, 40, "plain");
        let theirs = stage.play(&mut random, &family.theirs()[..1], &family.theirs, 40, "plain");
        let told = family.merge(stage, &stage.dir.join("none"), true, &[], None);
        for (name, prefer) in [("o", MergeSide::Ours), ("t", MergeSide::Theirs)] {
            let into = stage.dir.join(format!("into-{name}-{round}"));
            let merged = family.merge(stage, &into, false, &[], Some(prefer));
            assert!(merged.applied);
            let seen = stage.see(&[&family.base, &family.ours, &into], "plain");
            let preferred = if prefer == MergeSide::Ours { &ours } else { &theirs };
            check(&told, &base, &ours, &theirs, preferred, &seen);
        }
        println!("{} conflicts", told.conflicts.len());
    }
}

type Listing = BTreeMap<PathBuf, String>;

fn check(
    told: &Merged,
    base: &Listing,
    ours: &Listing,
    theirs: &Listing,
    preferred: &Listing,
    seen: &Listing,
) {
    let is_dir = |side: &Listing, path: &Path| side.get(path).is_some_and(|line| line.starts_with("40000 "));
    let all = [base, ours, theirs, seen];
    let paths: BTreeSet<_> = all.iter().flat_map(|side| side.keys()).collect();
    for path in paths {
        let in_conflict = told.conflicts.iter().any(|conflict| {
            let at = Path::new(&conflict.path);
            // Permissions of a directory say nothing of what is in it.
            path == at
                || path.starts_with(at)
                    && !(is_dir(ours, at) && is_dir(theirs, at) && conflict.ours == conflict.theirs)
        });
        let [of_base, of_ours, of_theirs, result] = all.map(|side| side.get(path));
        let expected = if in_conflict {
            preferred.get(path)
        } else if of_ours == of_theirs || of_theirs == of_base {
            of_ours
        } else if of_ours == of_base {
            of_theirs
        } else {
            // Both changed it, and that was no conflict: lines, or permissions and content, of a file.
            assert!(
                result.is_some_and(|line| line.starts_with("100000 ") || line.starts_with("40000 ")),
                "{path:?}"
            );
            continue;
        };
        assert_eq!(
            result, expected,
            "{path:?}: {of_base:?} {of_ours:?} {of_theirs:?}, {:#?}",
            told.conflicts
        );
    }
}
