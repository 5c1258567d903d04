//! Directories of the host in rooms that run: a clone of the spawner mounts them, takes them off, and tidies up.
//!
//! The tree is put together here, in a mount namespace that nobody else has, with all that is protected in it, and goes
//! into the room in one piece. As root this process goes into the room's mount namespace, which nothing in the room has
//! authority over. Elsewhere the namespace is the room's own: its guest gets the tree, and attaches it.

use crate::binds::{guard, refused, remove_placeholders, take};
use crate::build::{map_owner, mount_secrets_in};
use crate::identity::Privilege;
use crate::mounts::{attach, attach_on, directory};
use crate::step::During;
use crate::template::{ROOM, Template};
use rustix::fs::CWD;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use workroom_proto::{Channel, FromMounter, MountTask};
use workroom_sys::namespace::{Namespaces, enter, unshare};
use workroom_sys::place::{check_free, clone_tree_of, free_place, make_place};
use workroom_types::{Bind, ErrorCode, RoomError};

/// In the clone: does the task and answers it; returns the status to end with.
pub(crate) fn run(template: &Template, privilege: Privilege, task: MountTask, fds: Vec<OwnedFd>) -> i32 {
    let mut keep: Vec<i32> = vec![0, 1, 2];
    keep.extend(template.descriptors());
    keep.extend(fds.iter().map(AsRawFd::as_raw_fd));
    let closed =
        workroom_sys::exec::place_fd(0, 2).and_then(|()| workroom_sys::exec::close_all_but(&mut keep));
    let mut fds = fds.into_iter();
    let (Ok(()), Some(channel)) = (closed, fds.next().map(Channel::from_fd)) else { return 1 };
    let done = match (task, fds.next()) {
        (MountTask::Attach { binds, user }, Some(room)) => {
            attach_all(template, privilege, &binds, (room.as_fd(), user), &channel)
        }
        (MountTask::Detach { targets, remove_places }, Some(room)) => {
            detach_all(&targets, remove_places, room.as_fd()).map_err(Refusal::other)
        }
        (MountTask::Secrets, Some(room)) => give_place(room.as_fd(), &channel).map_err(Refusal::other),
        (MountTask::Tidy { binds }, _) => tidy(template, &binds).map_err(Refusal::other),
        _ => Err(Refusal::other(RoomError::invalid("a mount task came without its room", ""))),
    };
    let answer = match done {
        Ok(()) => FromMounter::Done,
        Err(Refusal { error, occupied }) => FromMounter::Failed { error, occupied },
    };
    i32::from(channel.send(&answer, &[]).is_err())
}

struct Refusal {
    error: RoomError,
    occupied: bool,
}

impl Refusal {
    fn other(error: RoomError) -> Refusal {
        Refusal { error, occupied: false }
    }
}

fn attach_all(
    template: &Template,
    privilege: Privilege,
    binds: &[Bind],
    (room, user): (BorrowedFd<'_>, u32),
    channel: &Channel,
) -> Result<(), Refusal> {
    let base = match privilege {
        Privilege::Root => Some(first_id(room).during("the room's ids").map_err(Refusal::other)?),
        Privilege::Rootless => None,
    };
    let trees = put_together(template, binds, base.map(|base| (base, user))).map_err(Refusal::other)?;
    let Some(base) = base else {
        for tree in trees {
            channel
                .send(&FromMounter::Tree, &[tree.as_fd()])
                .during("tell the host")
                .map_err(Refusal::other)?;
        }
        return Ok(());
    };
    let root = go_into(room).map_err(Refusal::other)?;
    for (number, (bind, tree)) in binds.iter().zip(&trees).enumerate() {
        let owner = (base + user, base + user);
        let attached = make_place(root.as_fd(), &bind.target, |_| Some(owner)).and_then(|place| {
            check_free(place.as_fd())?;
            attach_on(tree.as_fd(), place.as_fd())
        });
        if let Err(error) = attached {
            for done in &binds[..number] {
                let _ = free_place(root.as_fd(), &done.target, true);
            }
            let occupied = error.raw_os_error() == Some(libc::EEXIST);
            return Err(Refusal { error: refused(bind, &error), occupied });
        }
    }
    Ok(())
}

/// Detached trees, each with what is mapped and guarded in it. `ids`: the first of the room's, and whom owners are.
fn put_together(
    template: &Template,
    binds: &[Bind],
    ids: Option<(u32, u32)>,
) -> Result<Vec<OwnedFd>, RoomError> {
    let trees = take(template, binds)?;
    unshare(Namespaces::MOUNT).during("mount namespace")?;
    let proc = directory("/proc").during("open /proc")?;
    let mut together = Vec::new();
    for (bind, tree) in binds.iter().zip(trees) {
        if let Some((base, user)) = ids {
            let mapped = map_owner(base, proc.as_fd(), &tree, user);
            mapped.or_else(|error| if bind.read_only { Ok(()) } else { Err(error) })?;
        }
        let whole = attach(tree.as_fd(), CWD, ROOM)
            .and_then(|()| guard(tree.as_fd(), bind))
            .and_then(|()| clone_tree_of(tree.as_fd()));
        together.push(whole.map_err(|error| refused(bind, &error))?);
    }
    Ok(together)
}

/// Goes into a room's mount namespace; answers its root directory.
fn go_into(room: BorrowedFd<'_>) -> Result<OwnedFd, RoomError> {
    enter(room, Namespaces::MOUNT).during("enter the room's mounts")?;
    directory("/").during("open the room's root")
}

fn detach_all(targets: &[PathBuf], remove_places: bool, room: BorrowedFd<'_>) -> Result<(), RoomError> {
    let root = go_into(room)?;
    for target in targets {
        if !free_place(root.as_fd(), target, remove_places).during("take a host directory off")? {
            return Err(moved(target));
        }
    }
    Ok(())
}

/// A place for secrets, in a room that was made without one.
fn give_place(room: BorrowedFd<'_>, channel: &Channel) -> Result<(), RoomError> {
    let step = "/run/secrets";
    let owner = first_id(room).during("the room's ids")?;
    let root = go_into(room)?;
    let place = mount_secrets_in(root.as_fd(), Some(owner)).during(step)?;
    channel.send(&FromMounter::Tree, &[place.as_fd()]).during(step)
}

/// What it stands in can be moved by the room's root, and it goes along.
fn moved(target: &Path) -> RoomError {
    RoomError::new(
        ErrorCode::RoomSetup,
        format!("{} is not where it was mounted: the room has moved it", target.display()),
        "stop the session: its next room does not have it",
    )
}

fn tidy(template: &Template, binds: &[Bind]) -> Result<(), RoomError> {
    template
        .on_the_machine(|| binds.iter().try_for_each(remove_placeholders))?
        .during("tidy host directories")
}

/// The first of the ids of the room behind a pidfd, as the machine counts them.
fn first_id(room: BorrowedFd<'_>) -> io::Result<u32> {
    let unknown = || io::Error::other("the room has no ids of its own");
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", room.as_raw_fd()))?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")).map(str::trim).ok_or_else(unknown)?;
    let map = std::fs::read_to_string(Path::new("/proc").join(pid).join("uid_map"))?;
    let fields: Vec<&str> = map.split_whitespace().collect();
    match fields.as_slice() {
        ["0", first, ..] => first.parse().map_err(|_| unknown()),
        _ => Err(unknown()),
    }
}
