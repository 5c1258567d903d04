//! One task from its beginning to its answer, in a process that can reach nothing but what the task is about.

use crate::compare::Sides;
use crate::measure::Size;
use crate::merge::Merge;
use crate::passes::LayerCopy;
use crate::stack::{Maps, Mounts, Workshop};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use workroom_proto::{Channel, Failure, FromWorker, LayerTask, Received, ToWorker};
use workroom_sys::namespace::{Namespaces, unshare};
use workroom_types::{Problem, ProblemCode};

/// Directories of the host that a task is about.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Directories of layers, to read what they hold.
    pub reads: Vec<PathBuf>,
    /// One that is not there, and is gone again if the task does not come to its end.
    pub makes: Option<PathBuf>,
    /// One that is there, to make things in.
    pub fills: Option<PathBuf>,
}

impl Needs {
    pub fn of(task: &LayerTask) -> Needs {
        let mut needs = Needs::default();
        match task {
            LayerTask::Copy { from, to } => {
                needs.reads.push(from.clone());
                needs.makes = Some(to.clone());
            }
            LayerTask::Diff { from, to, .. } | LayerTask::Changes { from, to } => {
                needs.reads.extend(from.iter().chain(to).cloned());
            }
            LayerTask::Content { stack } => needs.reads.clone_from(stack),
            LayerTask::Merge { base, ours, theirs, into, dry_run, .. } => {
                needs.reads.extend(base.iter().chain(ours).chain(theirs).cloned());
                needs.makes = (!dry_run).then(|| into.clone());
            }
            LayerTask::Measure { layer } => needs.reads.push(layer.clone()),
            LayerTask::Squash { below, layers, into } => {
                needs.reads.extend(below.iter().chain(layers).cloned());
                needs.makes = Some(into.clone());
            }
            LayerTask::Export { layers } => needs.reads.extend(layers.iter().map(|(_, layer)| layer.clone())),
            LayerTask::Import { into, .. } => needs.fills = Some(into.clone()),
            LayerTask::Remove { .. } => {}
        }
        needs.reads.sort_unstable();
        needs.reads.dedup();
        needs
    }
}

/// A worker before its task.
pub struct Worker {
    pub channel: Channel,
    /// What came beside the task.
    pub beside: Vec<OwnedFd>,
    pub mounts: Mounts,
    pub as_root: bool,
}

/// What a task came to.
enum Outcome {
    Answer(FromWorker),
    /// The same, and what was made is not wanted.
    NothingMade(FromWorker),
    /// The host has had its answers.
    Answered,
}

/// The status of a worker whose work is not to be kept.
const NOTHING_MADE: i32 = 1;

impl Worker {
    /// What a clone of this process must keep open to go on with this.
    pub fn descriptors(&self) -> Vec<i32> {
        let mounts = self.mounts.layers.iter().map(|(_, mount)| mount).chain(&self.mounts.made);
        let fds = mounts.chain([&self.mounts.skeleton]).chain(&self.beside).map(AsRawFd::as_raw_fd);
        fds.chain([self.channel.as_fd().as_raw_fd()]).collect()
    }

    /// Leaves everything else behind and does the task; returns the status to end with. What the task made is not
    /// wanted if that is not 0: the answer goes to `aside` then, to be given when it is gone.
    pub fn run(self, task: LayerTask, aside: Option<&Channel>) -> i32 {
        let Worker { channel, beside, mounts, as_root } = self;
        let outcome =
            confine(mounts, as_root, &task).and_then(|workshop| work(&workshop, task, &channel, beside));
        let (answer, is_kept) = match outcome {
            Ok(Outcome::Answer(answer)) => (answer, true),
            Ok(Outcome::NothingMade(answer)) => (answer, false),
            Ok(Outcome::Answered) => return 0,
            Err(error) => (failed(error), false),
        };
        let through = if is_kept { &channel } else { aside.unwrap_or(&channel) };
        // A host that is gone wants no answer.
        let _ = through.send(&answer, &[]);
        if is_kept { 0 } else { NOTHING_MADE }
    }
}

/// An error as the host is told of it.
pub fn failed(error: io::Error) -> FromWorker {
    let problem = error.downcast::<Problem>().unwrap_or_else(|error| {
        let (code, hint) = match Errno::from_io_error(&error) {
            Some(Errno::NOSPC | Errno::DQUOT) => (ProblemCode::StorageUnavailable, "make space on the disk"),
            Some(Errno::IO | Errno::ROFS) => (ProblemCode::StorageUnavailable, "look at the machine's log"),
            _ => (ProblemCode::Internal, ""),
        };
        Problem::new(code, format!("the work on layers failed: {error}"), hint)
    });
    FromWorker::Failed(Failure::from(problem))
}

/// What a worker may do beyond its own: open, own, mark and mount whatever rooms have written.
const CAPABILITIES: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_ADMIN);

const MOST_MEMORY: u64 = 2 << 30;

fn confine(mounts: Mounts, as_root: bool, task: &LayerTask) -> io::Result<Workshop> {
    unshare(Namespaces::MOUNT.and(Namespaces::NET).and(Namespaces::IPC).and(Namespaces::UTS))?;
    let maps = match task {
        _ if !as_root => Maps::None,
        LayerTask::Merge { .. } => Maps::SkeletonAndMade,
        LayerTask::Squash { .. } => Maps::Skeleton,
        _ => Maps::None,
    };
    let workshop = Workshop::enter(mounts, as_root, maps)?;
    // Deep trees and many layers take some descriptors.
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    // What rooms have written may be made to take all the memory there is.
    let memory = Rlimit { current: Some(MOST_MEMORY), maximum: Some(MOST_MEMORY) };
    rustix::process::setrlimit(Resource::Data, memory)?;
    rustix::thread::set_no_new_privs(true)?;
    for bit in 0..64 {
        match rustix::thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            Ok(()) => {}
            // Past the last capability that this kernel knows.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let sets = CapabilitySets {
        effective: CAPABILITIES,
        permitted: CAPABILITIES,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)?;
    // Whatever is made has the mode that it is given.
    rustix::process::umask(rustix::fs::Mode::empty());
    Ok(workshop)
}

fn work(
    workshop: &Workshop,
    task: LayerTask,
    channel: &Channel,
    beside: Vec<OwnedFd>,
) -> io::Result<Outcome> {
    match task {
        LayerTask::Copy { from, .. } => {
            let from = workshop.layer_fd(&from)?;
            let mut copy = LayerCopy::new(from, workshop.made()?, workshop.as_root)?;
            let mut size = copy.first()?;
            loop {
                channel.send(&FromWorker::Copied { entries: size.entries, bytes: size.bytes }, &[])?;
                match channel.receive()? {
                    Received::Message(ToWorker::Again, _) => size = copy.again()?,
                    Received::Closed => return Ok(Outcome::Answered),
                }
            }
        }
        LayerTask::Measure { layer } => {
            crate::measure::measure(workshop.layer(&layer)?).map(measured).map(Outcome::Answer)
        }
        LayerTask::Diff { from, to, rule } => {
            let sides = Sides::new(workshop, &from, &to)?;
            Ok(Outcome::Answer(FromWorker::Diff(crate::diff::diff(sides, &rule)?)))
        }
        LayerTask::Content { stack } => digest(Sides::new(workshop, &[], &stack)?),
        LayerTask::Changes { from, to } => digest(Sides::new(workshop, &from, &to)?),
        LayerTask::Squash { below, layers, .. } => {
            crate::squash::squash(workshop, &below, &layers).map(measured).map(Outcome::Answer)
        }
        LayerTask::Merge { base, ours, theirs, dry_run, choices, prefer, .. } => {
            let merged = Merge { base, ours, theirs, dry_run, choices, prefer }.run(workshop)?;
            let is_made = merged.applied;
            let answer = FromWorker::Merged(merged);
            Ok(if is_made { Outcome::Answer(answer) } else { Outcome::NothingMade(answer) })
        }
        LayerTask::Export { layers } => {
            let trees = layers.into_iter().map(|(name, layer)| Ok((name, workshop.layer(&layer)?)));
            crate::export::export(trees.collect::<io::Result<_>>()?, beside, workshop.as_root)?;
            Ok(Outcome::Answer(FromWorker::Done))
        }
        LayerTask::Import { most_bytes, .. } => {
            let file = beside.into_iter().next().ok_or(Errno::BADF)?;
            let (word, layers) = crate::import::import(workshop.made()?, file, most_bytes, workshop.as_root)?;
            Ok(Outcome::Answer(FromWorker::Imported { word, layers }))
        }
        LayerTask::Remove { .. } => Err(io::Error::other("a directory is deleted from where it is seen")),
    }
}

fn digest(sides: Sides) -> io::Result<Outcome> {
    let (digest, count) = crate::digest::digest(sides)?;
    Ok(Outcome::Answer(FromWorker::Digest { digest, count }))
}

fn measured(size: Size) -> FromWorker {
    FromWorker::Measured { entries: size.entries, bytes: size.bytes }
}
