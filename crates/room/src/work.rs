//! Layer workers: clones of the spawner that look into what rooms have written.
//!
//! A worker that makes a directory is two processes. The outer one makes it, and removes it again unless the inner one,
//! which does the work and sees nothing else of the host, says that it is complete.

use crate::identity::Privilege;
use crate::mounts::clone_tree;
use crate::step::During;
use crate::template::{Template, Wanted};
use rustix::fs::Mode;
use rustix::process::{Signal, WaitOptions, set_parent_process_death_signal};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use workroom_layers::{Mounts, Needs, Worker, failed, remove_tree};
use workroom_proto::{Channel, FromWorker, LayerTask, Received};
use workroom_sys::clone::{CloneFlags, clone_process};
use workroom_types::{LAYER_ID, Problem, ProblemCode, RoomError};

/// In the clone: does the task and answers it; returns the status to end with.
pub(crate) fn run(template: &Template, privilege: Privilege, task: LayerTask, fds: Vec<OwnedFd>) -> i32 {
    let mut keep: Vec<i32> = vec![0, 1, 2];
    keep.extend(template.descriptors());
    keep.extend(fds.iter().map(AsRawFd::as_raw_fd));
    let prepared = workroom_sys::exec::place_fd(0, 2)
        .and_then(|()| workroom_sys::exec::close_all_but(&mut keep))
        .and_then(|()| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    let mut fds = fds.into_iter();
    let (Ok(()), Some(channel)) = (prepared, fds.next().map(Channel::from_fd)) else { return 1 };
    // When memory is short this goes before the host does.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    if let LayerTask::Remove { path } = &task {
        let _ = channel.send(&remove(template, path), &[]);
        return 0;
    }
    let needs = Needs::of(&task);
    let mounts = match prepare(template, privilege, &needs) {
        Ok(mounts) => mounts,
        Err(error) => {
            let _ = channel.send(&failed(io::Error::other(Problem::from(error))), &[]);
            return 1;
        }
    };
    let worker = Worker { channel, beside: fds.collect(), mounts, as_root: privilege == Privilege::Root };
    match needs.makes {
        None => {
            if close_all_but_its_own(&worker, None).is_err() {
                return 1;
            }
            worker.run(task, None)
        }
        Some(made) => run_inner(template, worker, task, &made),
    }
}

/// A worker has no way back to the host's directories.
fn close_all_but_its_own(worker: &Worker, aside: Option<&Channel>) -> io::Result<()> {
    let mut keep = worker.descriptors();
    keep.extend([0, 1, 2]);
    keep.extend(aside.map(|aside| aside.as_fd().as_raw_fd()));
    workroom_sys::exec::close_all_but(&mut keep)
}

/// Makes what is to be made, and takes what the task is about.
fn prepare(template: &Template, privilege: Privilege, needs: &Needs) -> Result<Mounts, RoomError> {
    template.skeleton.wait().during("skeleton")?;
    if let Some(path) = &needs.makes {
        template.on_the_machine(|| make_layer_dir(path, privilege))?.during("make a layer")?;
    }
    let made = needs.makes.as_deref().or(needs.fills.as_deref());
    let held = needs.reads.iter().cloned().map(Wanted::Files);
    let wanted: Vec<Wanted> =
        held.chain(made.map(|path| Wanted::Directory(path.to_owned(), false))).collect();
    let taken =
        template.take(&wanted).and_then(|trees| Ok((trees, clone_tree("/skeleton").during("skeleton")?)));
    match taken {
        Ok((mut trees, skeleton)) => {
            let made = made.and_then(|_| trees.pop());
            Ok(Mounts { skeleton, layers: needs.reads.iter().cloned().zip(trees).collect(), made })
        }
        Err(error) => {
            if let Some(path) = &needs.makes {
                let _ = template.on_the_machine(|| remove_tree(path));
            }
            Err(error)
        }
    }
}

fn make_layer_dir(path: &Path, privilege: Privilege) -> io::Result<()> {
    rustix::fs::mkdir(path, Mode::RWXU)?;
    if privilege == Privilege::Root {
        // As all of it: nobody's on the host.
        std::os::unix::fs::lchown(path, Some(LAYER_ID), Some(LAYER_ID))?;
    }
    Ok(())
}

/// Does the task in one more clone; what it made and does not want, or did not finish, is gone before it is answered.
fn run_inner(template: &Template, worker: Worker, task: LayerTask, made: &Path) -> i32 {
    let cloned = worker.channel.try_clone().and_then(|channel| {
        let (ours, theirs) = Channel::pair()?;
        let mut given = Some((worker, task, theirs));
        let cloned = clone_process(CloneFlags::NONE, None, || {
            let Some((worker, task, aside)) = given.take() else { return 1 };
            if close_all_but_its_own(&worker, Some(&aside)).is_err()
                || set_parent_process_death_signal(Some(Signal::KILL)).is_err()
            {
                return 1;
            }
            worker.run(task, Some(&aside))
        })?;
        Ok((channel, ours, cloned))
    });
    let (channel, aside, inner) = match cloned {
        Ok(cloned) => cloned,
        Err(_) => {
            let _ = template.on_the_machine(|| remove_tree(made));
            return 1;
        }
    };
    let ended = rustix::process::Pid::from_raw(inner.pid)
        .and_then(|pid| {
            rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(pid), WaitOptions::empty())).ok()
        })
        .flatten();
    if ended.is_some_and(|(_, status)| status.exit_status() == Some(0)) {
        return 0;
    }
    let removed = template.on_the_machine(|| remove_tree(made));
    let answer = match aside.try_receive() {
        Ok(Some(Received::Message(answer, _))) => answer,
        _ => failed(io::Error::other("the worker ended before it answered")),
    };
    let answer = match removed {
        Ok(Ok(())) => answer,
        Ok(Err(error)) => failed(cannot_delete(made, &error)),
        Err(error) => failed(io::Error::other(Problem::from(error))),
    };
    let _ = channel.send(&answer, &[]);
    1
}

fn remove(template: &Template, path: &Path) -> FromWorker {
    match template.on_the_machine(|| remove_tree(path)) {
        Ok(Ok(())) => FromWorker::Done,
        Ok(Err(error)) => failed(cannot_delete(path, &error)),
        Err(error) => failed(io::Error::other(Problem::from(error))),
    }
}

fn cannot_delete(path: &Path, error: &io::Error) -> io::Error {
    let detail = format!("{} cannot be deleted: {error}", path.display());
    io::Error::other(Problem::new(ProblemCode::StorageUnavailable, detail, ""))
}
