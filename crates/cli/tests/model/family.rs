//! A family of sessions and their models: snapshots, resets, forks, merges, stops, restarts, and how all of it is compared.

use super::work::{Work, expect_listed, tree_by_shell};
use super::{Tree, is_below, merge};
use crate::violence::Dice;
use std::collections::{BTreeMap, BTreeSet};
use workroom_testkit::types::{
    BASELINE, DiffKind, DiffQuery, ForkSession, MergeSession, MergeSide, NOW, ResetSession, TakeSnapshot,
};
use workroom_testkit::{Server, TestSession, eventually};

/// The most relatives at a time, and the most snapshots of each.
const MOST_RELATIVES: usize = 4;
const MOST_SNAPSHOTS: usize = 5;

/// A session as it should be.
#[derive(Debug, Clone)]
struct Relative {
    id: String,
    tree: Tree,
    baseline: Tree,
    snapshots: Vec<(String, Tree)>,
    parent: Option<String>,
    /// What it was forked from.
    parted: Tree,
}

impl Relative {
    /// A moment of it and its name, of those that can be gone back to.
    fn moment(&self, dice: &mut Dice) -> (String, Tree) {
        match dice.below(self.snapshots.len() as u64 + 1) as usize {
            0 => (BASELINE.into(), self.baseline.clone()),
            number => self.snapshots[number - 1].clone(),
        }
    }

    fn moment_or_now(&self, dice: &mut Dice) -> (String, Tree) {
        if dice.below(3) == 0 { (NOW.into(), self.tree.clone()) } else { self.moment(dice) }
    }
}

/// What a step can be, beside file work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    Snapshot,
    Reset,
    Fork,
    Merge,
    Elsewhere,
    Stop,
    Linger,
    DeleteSnapshot,
    DeleteRelative,
    Restart,
    Kill,
}

const DEEDS: [Deed; 18] = [
    Deed::Snapshot,
    Deed::Snapshot,
    Deed::Snapshot,
    Deed::Snapshot,
    Deed::Reset,
    Deed::Reset,
    Deed::Fork,
    Deed::Fork,
    Deed::Merge,
    Deed::Merge,
    Deed::Merge,
    Deed::Elsewhere,
    Deed::Elsewhere,
    Deed::Stop,
    Deed::Linger,
    Deed::DeleteSnapshot,
    Deed::DeleteRelative,
    // One of the two below.
    Deed::Restart,
];

pub(crate) struct Family<'a, 'b> {
    server: &'a mut Server<'b>,
    dice: Dice,
    relatives: Vec<Relative>,
    /// The one that is worked in.
    here: usize,
    number: u64,
    /// What was done, and what came of merges.
    pub(crate) counts: BTreeMap<String, u64>,
}

impl<'a, 'b> Family<'a, 'b> {
    pub(crate) async fn new(server: &'a mut Server<'b>, dice: Dice) -> Family<'a, 'b> {
        let id = server.session().await.id;
        let (tree, baseline, snapshots) = (Tree::default(), Tree::default(), Vec::new());
        let first = Relative { id, tree, baseline, snapshots, parent: None, parted: Tree::default() };
        Family { server, dice, relatives: vec![first], here: 0, number: 0, counts: BTreeMap::new() }
    }

    fn session(&self) -> TestSession {
        TestSession::new(self.server.client(), self.relatives[self.here].id.clone())
    }

    fn one_of(&mut self, count: usize) -> usize {
        self.dice.below(count as u64) as usize
    }

    fn count(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    /// Some files, and that these are the baseline.
    pub(crate) async fn seed(&mut self, steps: u64) {
        for _ in 0..steps {
            self.file_work().await;
        }
        self.server.client().set_baseline(&self.relatives[self.here].id).await.expect("a baseline");
        let relative = &mut self.relatives[self.here];
        relative.baseline = relative.tree.clone();
        self.compare().await;
    }

    pub(crate) async fn step(&mut self) {
        self.number += 1;
        if self.dice.below(10) < 7 {
            return self.file_work().await;
        }
        let mut deed = DEEDS[self.one_of(DEEDS.len())];
        if deed == Deed::Restart && self.dice.below(2) == 0 {
            deed = Deed::Kill;
        }
        println!("{}: {deed:?} in {}", self.number, self.relatives[self.here].id);
        self.count(format!("{deed:?}"));
        match deed {
            Deed::Snapshot => self.snapshot().await,
            Deed::Reset => self.reset().await,
            Deed::Fork => self.fork().await,
            Deed::Merge => self.merge().await,
            Deed::Elsewhere => self.here = self.one_of(self.relatives.len()),
            Deed::Stop => drop(self.session().stop().await),
            Deed::Linger => drop(self.session().says("sleep 1000 >/dev/null 2>&1 &").await),
            Deed::DeleteSnapshot => self.delete_snapshot().await,
            Deed::DeleteRelative => self.delete_relative().await,
            Deed::Restart => {
                self.server.stop();
                self.server.restart();
            }
            Deed::Kill => self.server.restart(),
        }
    }

    async fn file_work(&mut self) {
        let by_api = self.dice.below(2) == 0;
        let mut tree = self.relatives[self.here].tree.clone();
        let (work, expected) = loop {
            let work = Work::random(&mut self.dice, &tree, self.number);
            if !work.is_for_the_model(&tree) || by_api && !work.is_for_the_api() {
                continue;
            }
            let expected = work.on_model(&mut tree);
            // The shell would refuse in its own way, and now and then do a part of it.
            if expected.is_ok() || by_api && self.dice.below(3) == 0 {
                break (work, expected);
            }
        };
        let session = self.session();
        println!(
            "{}: {work:?} by {}: {expected:?}",
            self.number,
            if by_api { "the API" } else { "the shell" }
        );
        if by_api {
            let done = work.by_api(session.client(), &session.id).await;
            assert_eq!(done.is_ok(), expected.is_ok(), "{work:?}: {done:?}");
            if let Err(error) = done {
                let problem = error.problem().unwrap_or_else(|| panic!("{work:?}: {error}"));
                assert!(problem.status < 500, "{work:?}: {problem:?}");
                self.count("refused by the API");
            } else {
                self.count("done by the API");
            }
        } else {
            work.by_shell(&session).await;
            self.count("done by the shell");
        }
        self.relatives[self.here].tree = tree;
    }

    async fn snapshot(&mut self) {
        if self.relatives[self.here].snapshots.len() == MOST_SNAPSHOTS {
            self.delete_snapshot().await;
        }
        let name = format!("s-{}", self.number);
        let relative = &mut self.relatives[self.here];
        let request = TakeSnapshot { name: Some(name.clone()) };
        let taken = self.server.client().take_snapshot(&relative.id, &request).await.expect("a snapshot");
        relative.snapshots.push((name, relative.tree.clone()));
        if taken.pause_ms > 0.0 {
            self.count("Snapshot of what runs");
        }
    }

    async fn reset(&mut self) {
        let (name, tree) = self.relatives[self.here].moment(&mut self.dice);
        let relative = &mut self.relatives[self.here];
        let request = ResetSession { to: Some(name) };
        self.server.client().reset(&relative.id, &request).await.expect("reset");
        relative.tree = tree;
    }

    async fn fork(&mut self) {
        if self.relatives.len() == MOST_RELATIVES {
            self.delete_relative().await;
        }
        let source = self.relatives[self.here].clone();
        let (from, tree) = source.moment_or_now(&mut self.dice);
        let request = ForkSession { from: Some(from), ..ForkSession::default() };
        let forks = self.server.client().fork(&source.id, &request).await.expect("a fork").forks;
        self.relatives.push(Relative {
            id: forks[0].session.id.clone(),
            tree: tree.clone(),
            baseline: tree.clone(),
            snapshots: Vec::new(),
            parent: Some(source.id),
            parted: tree,
        });
        if self.dice.below(2) == 0 {
            self.here = self.relatives.len() - 1;
        }
    }

    /// With a parent or a child: of these it is known where they parted.
    async fn merge(&mut self) {
        let ours = self.relatives[self.here].clone();
        let related: Vec<(Relative, Tree)> = self
            .relatives
            .iter()
            .filter_map(|other| {
                if other.parent.as_ref() == Some(&ours.id) {
                    Some((other.clone(), other.parted.clone()))
                } else if ours.parent.as_ref() == Some(&other.id) {
                    Some((other.clone(), ours.parted.clone()))
                } else {
                    None
                }
            })
            .collect();
        if related.is_empty() {
            return self.fork().await;
        }
        let (theirs, base) = &related[self.one_of(related.len())];
        let prefer = [None, Some(MergeSide::Ours), Some(MergeSide::Theirs)][self.one_of(3)];
        let side = prefer.unwrap_or(MergeSide::Ours);
        let Some(expected) = merge(base, &ours.tree, &theirs.tree, side) else {
            self.count("Merge that the model does not know");
            return;
        };
        let request =
            MergeSession { from: theirs.id.clone(), prefer, restart: true, ..MergeSession::default() };
        let answer = self.server.client().merge(&ours.id, &request).await;
        if prefer.is_none() && !expected.conflicts.is_empty() {
            let error = answer.expect_err("conflicts");
            assert_eq!(error.code(), "merge_conflict", "{error}");
            let report = error.problem().and_then(|problem| problem.report.clone()).expect("a report");
            let listed = report["conflicts"].as_array().expect("conflicts").iter();
            let told: BTreeSet<String> =
                listed.map(|conflict| conflict["path"].as_str().expect("a path").to_owned()).collect();
            assert_eq!(told, expected.conflicts);
            self.count("Merge with conflicts");
        } else {
            let merged = answer.expect("merged");
            assert!(merged.applied && merged.conflicts.is_empty(), "{merged:?}");
            let told: BTreeMap<String, DiffKind> =
                merged.changes.into_iter().map(|entry| (entry.path, entry.change)).collect();
            let mut changed = ours.tree.diff(&expected.merged);
            // What goes with a directory is not told one by one.
            changed.retain(|path, _| told.contains_key(path) || !told.keys().any(|dir| is_below(path, dir)));
            assert_eq!(told, changed);
            self.relatives[self.here].tree = expected.merged;
            self.count("Merge that was applied");
        }
        self.compare().await;
    }

    async fn delete_snapshot(&mut self) {
        if self.relatives[self.here].snapshots.is_empty() {
            return;
        }
        let which = self.one_of(self.relatives[self.here].snapshots.len());
        let relative = &mut self.relatives[self.here];
        let (name, _) = relative.snapshots.remove(which);
        self.server.client().delete_snapshot(&relative.id, &name).await.expect("deleted");
    }

    async fn delete_relative(&mut self) {
        let which = self.one_of(self.relatives.len());
        if which == self.here {
            return;
        }
        let gone = self.relatives.remove(which);
        self.here -= usize::from(which < self.here);
        self.server.client().delete(&gone.id).await.expect("deleted");
    }

    /// The session that is worked in is what the model says, and so is what differs.
    pub(crate) async fn compare(&mut self) {
        self.compare_one(self.here).await;
        let relative = self.relatives[self.here].clone();
        let which = self.one_of(self.relatives.len());
        let other = self.relatives[which].clone();
        let (from, from_tree) = relative.moment_or_now(&mut self.dice);
        let (to, to_tree) = other.moment_or_now(&mut self.dice);
        let to = if other.id == relative.id { to } else { format!("{}:{to}", other.id) };
        let query = DiffQuery { from: Some(from), to: Some(to), ..DiffQuery::default() };
        let diff = self.server.client().diff(&relative.id, &query).await.expect("a difference");
        let told: BTreeMap<String, DiffKind> =
            diff.entries.into_iter().map(|entry| (entry.path, entry.change)).collect();
        assert_eq!((told, diff.remainder), (from_tree.diff(&to_tree), 0), "{query:?}");
        self.count("differences");

        let digest = self.server.client().digest(&relative.id).await.expect("a digest");
        assert_eq!(digest.pristine, relative.tree == relative.baseline, "{digest:?}");
        assert_eq!(digest.pristine, digest.digest == digest.baseline, "{digest:?}");
        assert_eq!(digest.changes, relative.baseline.diff(&relative.tree).len() as u64, "{digest:?}");
        if digest.pristine {
            self.count("pristine");
        }
        // What is thrown away goes by itself, and not because somebody looks for it.
        eventually(async || {
            match self.server.client().collect_garbage(true).await.expect("an answer").layers {
                left if left.is_empty() => Ok(()),
                left => Err(format!("layers that nobody needs: {left:?}")),
            }
        })
        .await;
    }

    async fn compare_one(&self, which: usize) {
        let relative = &self.relatives[which];
        let session = TestSession::new(self.server.client(), relative.id.clone());
        assert_eq!(tree_by_shell(&session).await, relative.tree, "{}", relative.id);
        expect_listed(session.client(), &relative.id, &relative.tree).await;
    }

    /// Every session and every snapshot is what it should be; then all go.
    pub(crate) async fn finish(mut self) -> BTreeMap<String, u64> {
        for which in 0..self.relatives.len() {
            self.here = which;
            self.compare().await;
            for (name, tree) in self.relatives[which].snapshots.clone() {
                let request = ResetSession { to: Some(name) };
                self.server.client().reset(&self.relatives[which].id, &request).await.expect("reset");
                self.relatives[which].tree = tree;
                self.compare_one(which).await;
            }
        }
        for relative in &self.relatives {
            self.server.client().delete(&relative.id).await.expect("deleted");
        }
        self.server.expect_no_leaks().await;
        self.counts
    }
}
