//! The clerk: does the host's file work in the room, behind its walls, one request at a time.
//!
//! A copy of the launcher that executes no program. It has the walls of a command, and the user that agents have. Two
//! rights it has beyond them, over files of the room's own ids: whatever a room's processes left, closed directories and
//! files of the room's root included, can be read and deleted.

mod archive;
mod change;
pub(crate) mod closed;
mod copy;
mod delete;
mod draft;
mod edit;
mod failure;
mod info;
mod list;
mod new_directories;
mod patch;
mod place;
#[cfg(test)]
mod races;
mod read;
#[cfg(test)]
mod scratch;
mod search;
mod walk;
mod watch;
mod write;

use crate::launch::LaunchRules;
use place::Base;
use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use workroom_proto::{Channel, FromClerk, Received, ToClerk};
use workroom_sys::clone::clone_sibling_process;
use workroom_types::{AGENT_ID, Deleted, Problem, ProblemCode, RoomPath, UploadRules};

/// What a clerk may do to files that their modes keep `agent` out of.
pub(crate) const CAPABILITIES: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::FOWNER);

/// In the launcher: starts a clerk at the other end of a channel.
pub(crate) fn start(rules: &LaunchRules, fds: Vec<OwnedFd>) -> io::Result<i32> {
    let [channel] = <[OwnedFd; 1]>::try_from(fds).map_err(|_| io::ErrorKind::InvalidInput)?;
    let birth = rules.birth_group.as_ref().map(AsFd::as_fd);
    let cloned = clone_sibling_process(birth, rules.key, || match become_clerk(rules, &channel) {
        Ok(()) => run(&Channel::from_fd(channel)),
        Err(_) => 1,
    })?;
    Ok(cloned.pid)
}

fn become_clerk(rules: &LaunchRules, channel: &OwnedFd) -> io::Result<()> {
    workroom_sys::exec::close_all_but(&mut [0, 1, 2, channel.as_raw_fd()])?;
    rustix::thread::set_name(c"clerk")?;
    workroom_sys::place::show_key(rules.key);
    // A host that stops reading an archive is told by the write that fails.
    workroom_sys::signal::ignore(workroom_sys::signal::SIGPIPE);
    // Out of the reach of what is sent to the launcher's group.
    rustix::process::setpgid(None, None)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let keep = rustix::thread::capabilities(None)?.permitted & CAPABILITIES;
    if rules.switches_users {
        // Without it the change of user would take all capabilities away.
        rustix::thread::set_keep_capabilities(true)?;
        let (uid, gid) = (Uid::from_raw(AGENT_ID), Gid::from_raw(AGENT_ID));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        rustix::thread::set_keep_capabilities(false)?;
    }
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)?;
    // Last: a change of identity decides anew. Agents have this user too, and are not to read or trace it.
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// An answer, and the file that goes with it.
struct Reply {
    message: FromClerk,
    file: Option<OwnedFd>,
}

impl From<FromClerk> for Reply {
    fn from(message: FromClerk) -> Reply {
        Reply { message, file: None }
    }
}

/// Serves until the host hangs up; returns the status that the clerk ends with.
fn run(channel: &Channel) -> i32 {
    let mut pending = None;
    loop {
        let reply = match channel.receive() {
            Ok(Received::Message(request, fds)) => match serve(request, fds, &mut pending, channel) {
                Ok(Some(reply)) => reply,
                Ok(None) => continue,
                Err(problem) => failed(problem),
            },
            Ok(Received::Closed) => return 0,
            // A host that is newer than the room.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => failed(Problem::new(
                ProblemCode::Internal,
                format!("the room does not understand what was asked: {error}"),
                "stop the session: its next room will",
            )),
            Err(_) => return 1,
        };
        let file: Vec<_> = reply.file.iter().map(AsFd::as_fd).collect();
        let sent = match channel.send(&reply.message, &file) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => channel.send(&too_large(), &[]),
            other => other,
        };
        if sent.is_err() {
            return 1;
        }
    }
}

fn failed(problem: Problem) -> Reply {
    FromClerk::Failed(problem.into()).into()
}

fn too_large() -> FromClerk {
    let problem = Problem::new(
        ProblemCode::FileTooLarge,
        "the answer is too large for one piece",
        "ask for less at a time",
    );
    FromClerk::Failed(problem.into())
}

/// Does what was asked, and answers unless that was done on the way. `pending` is the file that the host was writing before; whatever is not its commit gives it up.
fn serve(
    request: ToClerk,
    fds: Vec<OwnedFd>,
    pending: &mut Option<write::Pending>,
    channel: &Channel,
) -> Result<Option<Reply>, Problem> {
    let written = pending.take();
    let find = |text: &str, root: bool| -> Result<(Base, RoomPath), Problem> {
        let path = RoomPath::parse(text, root)?;
        Ok((Base::of(&path)?, path))
    };
    let message = match request {
        ToClerk::List(asked) => {
            let (base, path) = find(&asked.path, asked.root)?;
            FromClerk::List(list::list(&base, &path, &asked)?)
        }
        ToClerk::Stat(asked) => {
            let (base, path) = find(&asked.path, asked.root)?;
            FromClerk::Info(info::stat(&base, &path)?)
        }
        ToClerk::Read(asked) => {
            let (base, path) = find(&asked.path, asked.root)?;
            FromClerk::Content(read::read(&base, &path, &asked)?)
        }
        ToClerk::Open(asked) => {
            let (base, path) = find(&asked.path, asked.root)?;
            let (file, stat) = read::open_file(&base, &path)?;
            let message = FromClerk::Opened(info::info(&path, &stat, None));
            return Ok(Some(Reply { message, file: Some(file) }));
        }
        ToClerk::Create(asked) => {
            let (base, path) = find(&asked.path, asked.root)?;
            let new = write::create(&base, path, asked)?;
            let file = new.file().try_clone_to_owned().map_err(out_of_descriptors)?;
            *pending = Some(new);
            return Ok(Some(Reply { message: FromClerk::Writable, file: Some(file) }));
        }
        ToClerk::Commit => {
            let Some(written) = written else {
                return Err(Problem::invalid("there is nothing to commit", "create a file first"));
            };
            FromClerk::Info(write::commit(&Base::of(written.path())?, written)?)
        }
        ToClerk::MakeDirectory(asked) => {
            let (base, path) = find(&asked.path, asked.root)?;
            FromClerk::Info(change::make_directory(&base, &path, &asked)?)
        }
        ToClerk::Move(asked) => {
            let (base, from) = find(&asked.from, asked.root)?;
            let to = RoomPath::parse(&asked.to, asked.root)?;
            FromClerk::Info(change::rename(&base, &from, &to, asked.overwrite)?)
        }
        ToClerk::Copy(asked) => {
            let (base, from) = find(&asked.from, asked.root)?;
            let to = RoomPath::parse(&asked.to, asked.root)?;
            FromClerk::Info(change::copy(&base, &from, &to, asked.overwrite)?)
        }
        ToClerk::Delete { path, recursive, root } => {
            let (base, path) = find(&path, root)?;
            FromClerk::Deleted(Deleted { deleted: delete::delete(&base, &path, recursive)? })
        }
        ToClerk::Edit(asked) => {
            let (base, path) = find(&asked.path, asked.root)?;
            FromClerk::Edited(edit::edit(&base, &path, &asked)?)
        }
        ToClerk::DiskUse(asked) => {
            let (base, path) = find(&asked.path, asked.root)?;
            FromClerk::DiskUse(list::disk_use(&base, &path)?)
        }
        ToClerk::Search(asked) => {
            let (base, path) = find(&asked.path, asked.root)?;
            FromClerk::Found(search::search(&base, &path, &asked)?)
        }
        ToClerk::Patch(asked) => {
            let (base, path) = find(&asked.path, asked.root)?;
            FromClerk::Patched(patch::patch(&base, &path, &asked)?)
        }
        ToClerk::Watch { path, recursive, root } => {
            let (base, path) = find(&path, root)?;
            watch::watch(&base, &path, recursive, channel)?;
            return Ok(None);
        }
        ToClerk::Import { path, root, caps } => {
            let (base, path) = find(&path, root)?;
            FromClerk::Imported(archive::import(&base, &path, caps, &UploadRules::default(), pipe(fds)?)?)
        }
        ToClerk::ImportUnder { path, root, caps, rules } => {
            let (base, path) = find(&path, root)?;
            FromClerk::Imported(archive::import(&base, &path, caps, &rules, pipe(fds)?)?)
        }
        ToClerk::Export { path, root, format } => {
            let (base, path) = find(&path, root)?;
            let begin = || channel.send(&FromClerk::Exporting, &[]);
            FromClerk::Exported { entries: archive::export(&base, &path, format, pipe(fds)?, begin)? }
        }
    };
    Ok(Some(message.into()))
}

fn out_of_descriptors(_: io::Error) -> Problem {
    Problem::limit("open_files", "too many files are open in the room's clerk", "")
}

/// The one that comes with an archive.
fn pipe(fds: Vec<OwnedFd>) -> Result<OwnedFd, Problem> {
    <[OwnedFd; 1]>::try_from(fds)
        .map(|[pipe]| pipe)
        .map_err(|_| Problem::new(ProblemCode::Internal, "the archive came without its pipe", ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use workroom_types::FilePath;

    fn ask(host: &Channel, request: &ToClerk) -> (FromClerk, Vec<OwnedFd>) {
        host.send(request, &[]).unwrap();
        hear(host)
    }

    fn hear(host: &Channel) -> (FromClerk, Vec<OwnedFd>) {
        match host.receive().unwrap() {
            Received::Message(answer, fds) => (answer, fds),
            Received::Closed => panic!("the clerk hung up"),
        }
    }

    fn code(answer: &FromClerk) -> Option<ProblemCode> {
        match answer {
            FromClerk::Failed(failure) => Some(failure.code),
            _ => None,
        }
    }

    #[test]
    fn a_clerk_answers_everything_and_ends_with_its_channel() {
        let (host, clerk) = Channel::pair().unwrap();
        std::thread::scope(|scope| {
            let serving = scope.spawn(move || run(&clerk));
            let (answer, _) = ask(&host, &ToClerk::Commit);
            assert_eq!(code(&answer), Some(ProblemCode::InvalidArgument));
            // No request that there is.
            host.send(&u64::MAX, &[]).unwrap();
            let (answer, _) = hear(&host);
            assert_eq!(code(&answer), Some(ProblemCode::Internal));
            let (answer, fds) =
                ask(&host, &ToClerk::Open(FilePath { path: "/proc/self/status".into(), root: true }));
            assert!(matches!(answer, FromClerk::Opened(_)));
            let mut name = [0; 5];
            rustix::io::read(&fds[0], &mut name).unwrap();
            assert_eq!(&name, b"Name:");
            let (answer, _) = ask(&host, &ToClerk::Stat(FilePath { path: "../x".into(), root: false }));
            assert_eq!(code(&answer), Some(ProblemCode::PathOutsideWorkspace));
            drop(host);
            assert_eq!(serving.join().unwrap(), 0);
        });
    }
}
