//! A room being built: runs in the clone that becomes the room's PID 1, top to bottom, once.
//!
//! Everything made here belongs to namespaces that only this process holds, so its end undoes all of it:
//! a step that fails says why on the control socket and the process exits. What exists outside those
//! namespaces goes too: the uid range with the descriptor that claims it, the cgroups when the spawner reaps
//! this process.
//!
//! As root the file tree and all namespaces are made with the machine's own authority and the user namespace
//! is entered last: nothing in the room, not even its root, has authority over any of them. Without
//! privileges the user namespace comes first, because it is what allows the rest.

mod host_directories;
mod root;
mod secrets;

pub(crate) use host_directories::{host_paths, map_owner};
pub(crate) use secrets::mount_in as mount_secrets_in;

use crate::cgroup::{Groups, RoomGroup};
use crate::identity::{Privilege, UidRange, UidRanges};
use crate::mounts::{
    Attributes, FsOption, attach, attach_in_room, bind, change_root, directory, in_directory, in_room, make,
    replace_root, set_attributes,
};
use crate::seccomp::{self, Strictness};
use crate::step::During;
use crate::template::{Template, write_own_maps};
use rustix::mount::MountAttrFlags;
use rustix::process::{Gid, Resource, Signal, Uid};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use workroom_guest::{Guest, Walls};
use workroom_proto::{Channel, FromGuest};
use workroom_sys::namespace::{Namespaces, enter, new_user_namespace, unshare};
use workroom_sys::seccomp::LauncherKey;
use workroom_types::{
    Enforced, ErrorCode, Layer, LayerState, Lifetime, Limits, RoomError, RoomSpec, RoomUser,
};

/// Everything the clone needs, and what its first steps add to it.
pub(crate) struct Builder<'a> {
    pub(crate) spec: &'a RoomSpec,
    pub(crate) template: &'a Template,
    pub(crate) privilege: Privilege,
    /// As root: where the room's ids are claimed, and then those.
    pub(crate) ranges: &'a std::io::Result<UidRanges>,
    pub(crate) range: Option<UidRange>,
    /// The caller's ids, which a rootless room maps.
    pub(crate) caller: (u32, u32),
    /// Less those that are left out on purpose.
    pub(crate) limits: Limits,
    pub(crate) groups: Option<&'a Groups>,
    pub(crate) group: RoomGroup,
    /// A copy of the mount of the directory that the room's writes go to, if it is not memory.
    pub(crate) layer: Option<OwnedFd>,
    /// Copies of what lies between the template and `layer`, the lowest first.
    pub(crate) lowers: Vec<OwnedFd>,
    /// Copies of the host directories of the spec: the workspace first, if there is one.
    pub(crate) host_trees: Vec<OwnedFd>,
    /// Copies of the granted directories of the spec.
    pub(crate) bind_trees: Vec<OwnedFd>,
    pub(crate) control: Channel,
    /// For a durable room.
    pub(crate) listener: Option<OwnedFd>,
}

/// What the steps have made so far.
#[derive(Default)]
struct Made {
    enforced: Enforced,
    proc: Option<OwnedFd>,
    user_namespace: Option<OwnedFd>,
    root: Option<OwnedFd>,
    /// The file system of the room's secrets.
    secrets: Option<OwnedFd>,
}

type Step = fn(&mut Builder<'_>, &mut Made) -> Result<(), RoomError>;

/// As root: authority is given up last.
const AS_ROOT: &[Step] = &[
    die_before_the_host,
    host_directories::take_host_directories,
    claim_ids,
    make_groups,
    close_what_is_not_the_rooms,
    unshare_namespaces,
    mount_proc,
    name_and_loopback,
    make_user_namespace,
    root::mount_root,
    bind_the_machine,
    mount_devices,
    secrets::mount_secrets,
    host_directories::bind_host_directories,
    host_directories::bind_granted_directories,
    mask_proc,
    enter_root,
    enter_user_namespace,
    hide_from_inside,
];

/// Without privileges: the user namespace is there from the start.
const ROOTLESS: &[Step] = &[
    die_before_the_host,
    host_directories::tell_layers_apart,
    make_groups,
    close_what_is_not_the_rooms,
    map_the_caller,
    unshare_namespaces,
    mount_proc,
    name_and_loopback,
    root::mount_root,
    bind_the_machine,
    mount_devices,
    secrets::mount_secrets,
    host_directories::bind_host_directories,
    host_directories::bind_granted_directories,
    mask_proc,
    enter_root,
    hide_from_inside,
];

/// Builds the room and becomes its guest; returns the status that PID 1 ends with.
pub(crate) fn run(mut builder: Builder<'_>) -> i32 {
    let mut made = Made::default();
    let steps = match builder.privilege {
        Privilege::Root => AS_ROOT,
        Privilege::Rootless => ROOTLESS,
    };
    let built = steps
        .iter()
        .try_for_each(|step| step(&mut builder, &mut made))
        .and_then(|()| hand_over(&mut builder, &mut made));
    match built {
        Ok((walls, resource_limits)) => workroom_guest::run(Guest {
            control: builder.control,
            listener: builder.listener,
            lifetime: builder.spec.lifetime,
            enforced: made.enforced,
            walls,
            work: builder.group.work,
            meters: builder.group.meters,
            switches_users: builder.privilege == Privilege::Root,
            resource_limits,
            secrets: made.secrets,
        }),
        Err(error) => {
            let _ = builder.control.send(&FromGuest::Failed { error }, &[]);
            1
        }
    }
}

impl Builder<'_> {
    /// Puts a mount into the room's tree, which in a durable room is as its commands left it.
    fn attach(&self, mount: BorrowedFd<'_>, root: BorrowedFd<'_>, target: &Path) -> std::io::Result<()> {
        match self.spec.layer {
            Some(_) => attach_in_room(mount, root, target),
            None => attach(mount, root, target),
        }
    }

    fn die_with_the_spawner(&self) -> std::io::Result<()> {
        if self.spec.lifetime == Lifetime::Durable {
            return Ok(());
        }
        Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
    }

    fn has(&self, layer: Layer) -> bool {
        !self.spec.without.contains(layer)
    }
}

impl Made {
    fn holds(&mut self, layer: Layer, by: &str) {
        self.enforced.set(layer, LayerState::Enforced(by.into()));
    }

    fn lacks(&mut self, layer: Layer, why: &str) {
        self.enforced.set(layer, LayerState::Missing(why.into()));
    }
}

const LEFT_OUT: &str = "left out on purpose";

/// The spawner's end is the room's, also when it is killed, unless the room is a durable one; and when the machine
/// is out of memory, rooms are ended before anything else on it, the largest process of them first.
fn die_before_the_host(builder: &mut Builder<'_>, _: &mut Made) -> Result<(), RoomError> {
    // Through the machine's /proc, since the room's will be read-only. Where it is refused the cgroup's limit
    // still holds; only the choice of victim is the kernel's own.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    builder.die_with_the_spawner().during("parent death signal")
}

fn claim_ids(builder: &mut Builder<'_>, _: &mut Made) -> Result<(), RoomError> {
    if builder.has(Layer::UserNs) && builder.has(Layer::UidRange) {
        let ranges =
            builder.ranges.as_ref().map_err(|error| std::io::Error::new(error.kind(), error.to_string()));
        builder.range = Some(ranges.and_then(UidRanges::claim).during("uid range")?);
    }
    Ok(())
}

fn make_groups(builder: &mut Builder<'_>, _: &mut Made) -> Result<(), RoomError> {
    let owner = builder.range.as_ref().map(|range| range.base);
    let durable = builder.spec.lifetime == Lifetime::Durable;
    builder.group = match builder.groups {
        Some(groups) => groups.create(&builder.spec.id, &builder.limits, owner, durable)?,
        None => RoomGroup::unlimited(&builder.limits, "no limit was asked for"),
    };
    Ok(())
}

/// The clone has all of the spawner's descriptors, other rooms' among them.
fn close_what_is_not_the_rooms(builder: &mut Builder<'_>, _: &mut Made) -> Result<(), RoomError> {
    // The spawner's 0 and 1 are /dev/null; its 2 is the caller's terminal, which is not the room's.
    workroom_sys::exec::place_fd(0, 2).during("close descriptors")?;
    let mut keep: Vec<i32> = vec![0, 1, 2, builder.control.as_fd().as_raw_fd()];
    keep.extend(
        builder
            .host_trees
            .iter()
            .chain(&builder.bind_trees)
            .chain(&builder.layer)
            .chain(&builder.lowers)
            .chain(&builder.listener)
            .map(|fd| fd.as_raw_fd()),
    );
    let work = &builder.group.work;
    keep.extend(work.birth.iter().chain(&work.join).map(|fd| fd.as_raw_fd()));
    keep.extend(work.freezer.iter().flat_map(|(freeze, events)| [freeze.as_raw_fd(), events.as_raw_fd()]));
    keep.extend(builder.group.locks.iter().map(|fd| fd.as_raw_fd()));
    keep.push(builder.template.skeleton.descriptor());
    keep.extend(builder.group.meters.descriptors().map(|fd| fd.as_raw_fd()));
    keep.extend(builder.range.iter().map(|range| range.lock.as_raw_fd()));
    workroom_sys::exec::close_all_but(&mut keep).during("close descriptors")
}

fn map_the_caller(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    let proc = directory("/proc/self").during("open /proc")?;
    let inside = builder.spec.user.id();
    let (uid, gid) = builder.caller;
    write_own_maps(proc.as_fd(), (inside, uid), (inside, gid)).during("map ids")?;
    made.holds(Layer::UserNs, "user namespace");
    made.lacks(Layer::UidRange, "needs root: the room has its caller's uid on the host");
    Ok(())
}

fn unshare_namespaces(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    let mut kinds = Namespaces::MOUNT;
    made.holds(Layer::MountNs, "mount namespace with a root of its own");
    for (layer, kind, name) in [
        (Layer::NetNs, Namespaces::NET, "network namespace, loopback only"),
        (Layer::IpcNs, Namespaces::IPC, "ipc namespace"),
        (Layer::UtsNs, Namespaces::UTS, "uts namespace"),
    ] {
        if builder.has(layer) {
            kinds = kinds.and(kind);
            made.holds(layer, name);
        } else {
            made.lacks(layer, LEFT_OUT);
        }
    }
    for (layer, name) in
        [(Layer::PidNs, "pid namespace"), (Layer::CgroupNs, "cgroup namespace for each command")]
    {
        if builder.has(layer) { made.holds(layer, name) } else { made.lacks(layer, LEFT_OUT) }
    }
    unshare(kinds).during("namespaces")
}

fn name_and_loopback(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    if builder.has(Layer::UtsNs) {
        rustix::system::sethostname(b"room").during("host name")?;
    }
    if builder.has(Layer::NetNs) {
        workroom_sys::net::loopback_up().during("loopback")?;
        // Commands have no capability to bind low ports with, and in here there is nobody to protect. Through
        // the room's own /proc: in a shared one, every namespace's entry lands on the same hash chain.
        let ports = "sys/net/ipv4/ip_unprivileged_port_start";
        let _ = workroom_sys::namespace::write_at(made.proc()?.as_fd(), ports, "0");
    }
    Ok(())
}

fn mount_proc(_: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    made.proc = Some(make("proc", &[], attributes).during("/proc")?);
    Ok(())
}

fn make_user_namespace(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    let (Some(range), Some(proc)) = (&builder.range, &made.proc) else { return Ok(()) };
    let map = range.map();
    made.user_namespace =
        Some(new_user_namespace(proc.as_fd(), range.base, &map, &map).during("user namespace")?);
    Ok(())
}

fn bind_the_machine(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    let root = made.root()?;
    for (source, target) in &builder.template.binds {
        let place = in_room(root.as_fd(), target);
        match place.and_then(|place| in_directory(place.as_fd(), || bind(source, "."))) {
            // The room's root has put something of its own there, in its own /etc: that is what it sees.
            Err(error) if target.starts_with("etc") && is_elsewhere(&error) => {}
            attached => attached.during("bind the system")?,
        }
    }
    Ok(())
}

/// Whether a place in the room is not there any more, or not by the way that it was.
fn is_elsewhere(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

fn mount_devices(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    let root = made.root()?;
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let pts = make(
        "devpts",
        &[
            FsOption::Set("ptmxmode", "0666"),
            FsOption::Set("mode", "0620"),
            FsOption::Set("max", MOST_TERMINALS),
        ],
        quiet,
    )
    .during("/dev/pts")?;
    builder.attach(pts.as_fd(), root.as_fd(), Path::new("dev/pts")).during("/dev/pts")?;
    let size = builder.spec.limits.shm.to_string();
    let inodes = (builder.spec.limits.shm / 4096).max(64).to_string();
    let options =
        [FsOption::Set("size", &size), FsOption::Set("nr_inodes", &inodes), FsOption::Set("mode", "1777")];
    let plain = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let shm = make("tmpfs", &options, plain).during("/dev/shm")?;
    builder.attach(shm.as_fd(), root.as_fd(), Path::new("dev/shm")).during("/dev/shm")
}

/// Terminals come out of a pool that the whole machine shares.
const MOST_TERMINALS: &str = "64";

/// What says or does more than a room needs. Most are closed to the room's uids as well; two walls are better.
const MASKED_FILES: [&str; 13] = [
    "cmdline",
    "config.gz",
    "interrupts",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "latency_stats",
    "modules",
    "sched_debug",
    "sysrq-trigger",
    "timer_list",
];
const MASKED_DIRS: [&str; 8] =
    ["acpi", "asound", "bus", "driver", "dynamic_debug", "irq", "scsi", "sys/fs/binfmt_misc"];

fn mask_proc(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    let step = "mask /proc";
    let (root, proc) = (made.root()?, made.proc()?);
    builder.attach(proc.as_fd(), root.as_fd(), Path::new("proc")).during("/proc")?;
    if !builder.has(Layer::Proc) {
        made.lacks(Layer::Proc, LEFT_OUT);
        return Ok(());
    }
    let masks = MASKED_FILES
        .iter()
        .map(|name| (name, "/source/empty/file"))
        .chain(MASKED_DIRS.iter().map(|name| (name, "/source/empty/directory")));
    let mask = |(name, with): (&&str, &str)| match bind(with, name) {
        // Not every kernel has all of them. What they are masked with is always there: the template has made it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && Path::new(with).exists() => Ok(()),
        masked => masked,
    };
    in_directory(proc.as_fd(), || masks.into_iter().try_for_each(mask)).during(step)?;
    set_attributes(proc.as_fd(), Attributes::READ_ONLY, None).during(step)?;
    made.holds(Layer::Proc, "read-only, masked");
    Ok(())
}

fn enter_root(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    let root = made.root()?;
    match builder.privilege {
        Privilege::Root => replace_root(root.as_fd()),
        Privilege::Rootless => change_root(root.as_fd()),
    }
    .during("enter the room's root")
}

/// From here on this process is the room's root and nobody's on the host.
fn enter_user_namespace(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    let step = "enter user namespace";
    rustix::thread::set_thread_groups(&[]).during(step)?;
    let Some(user_namespace) = &made.user_namespace else {
        made.lacks(Layer::UserNs, LEFT_OUT);
        made.lacks(Layer::UidRange, LEFT_OUT);
        return Ok(());
    };
    enter(user_namespace.as_fd(), Namespaces::USER).during(step)?;
    rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).during(step)?;
    rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).during(step)?;
    // A change of identity takes the death signal away.
    builder.die_with_the_spawner().during(step)?;
    made.holds(Layer::UserNs, "user namespace, entered last");
    if let Some(range) = &builder.range {
        made.holds(Layer::UidRange, &format!("65536 ids from {}", range.base));
    }
    Ok(())
}

/// The guest and the launcher are not for the room to read or trace.
fn hide_from_inside(builder: &mut Builder<'_>, made: &mut Made) -> Result<(), RoomError> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if builder.has(Layer::Dumpable) {
        made.holds(Layer::Dumpable, "guest and launcher are not dumpable");
        set_dumpable_behavior(DumpableBehavior::NotDumpable).during("dumpable")
    } else {
        made.lacks(Layer::Dumpable, LEFT_OUT);
        set_dumpable_behavior(DumpableBehavior::Dumpable).during("dumpable")
    }
}

type HandOver = (Walls, Vec<(Resource, u64)>);

/// Prepares the inner walls, then checks what is in force against what the policy asks for.
fn hand_over(builder: &mut Builder<'_>, made: &mut Made) -> Result<HandOver, RoomError> {
    let landlock = crate::landlock::version();
    let files = landlock > 0 && builder.has(Layer::Landlock);
    let scope = landlock >= 6 && builder.has(Layer::Scope);
    if files {
        made.holds(Layer::Landlock, &format!("Landlock ABI {landlock}"));
    } else {
        made.lacks(Layer::Landlock, if landlock > 0 { LEFT_OUT } else { "the kernel has no Landlock" });
    }
    if scope {
        made.holds(Layer::Scope, "Landlock scopes: signals, abstract sockets");
    } else {
        made.lacks(Layer::Scope, if landlock >= 6 { LEFT_OUT } else { "needs Landlock ABI 6 (Linux 6.12)" });
    }
    let seccomp = builder.has(Layer::Seccomp);
    for (layer, by) in
        [(Layer::Seccomp, "allow-list"), (Layer::Caps, "all five sets empty"), (Layer::Nnp, "no_new_privs")]
    {
        if builder.has(layer) { made.holds(layer, by) } else { made.lacks(layer, LEFT_OUT) }
    }
    for (layer, state) in &builder.group.states {
        made.enforced.set(*layer, state.clone());
    }
    made.enforced.0.sort_by_key(|(layer, _)| *layer as u8);
    check_policy(builder.spec, &made.enforced)?;

    let limits = &builder.spec.limits;
    // What the caller itself may not exceed, the room does not either.
    let open_files =
        rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX).min(limits.open_files);
    // One byte: no file is written, and, unlike zero, a crash handler of the host is not started either.
    let mut resource_limits = vec![(Resource::Core, 1), (Resource::Nofile, open_files)];
    if !builder.group.limits(Layer::Pids)
        && let Some(pids) = limits.pids.filter(|_| builder.has(Layer::Pids))
    {
        // The guest and the launcher count too, where the commands have their uid.
        let shared = builder.privilege == Privilege::Rootless || builder.spec.user == RoomUser::Root;
        resource_limits.push((Resource::Nproc, pids + if shared { 2 } else { 0 }));
    }
    if !builder.group.limits(Layer::Memory)
        && let Some(memory) = limits.memory.filter(|_| builder.has(Layer::Memory))
    {
        resource_limits.push((Resource::Data, memory));
    }
    let for_root = builder.privilege == Privilege::Root || builder.spec.user == RoomUser::Root;
    let writes_to_host = builder.spec.workspace.as_ref().is_some_and(|workspace| !workspace.read_only);
    let read_only_workspace = builder.spec.workspace.is_some() && !writes_to_host;
    let strictness = Strictness { no_setuid_files: writes_to_host || builder.spec.writes_to_host };
    let rules = crate::landlock::Rules { files, scope, for_root, read_only_workspace };
    let launcher_key = LauncherKey::random().during("randomness")?;
    let walls = Walls {
        landlock: (files || scope).then(|| Box::new(move || crate::landlock::restrict(rules)) as Box<_>),
        seccomp: seccomp.then(|| seccomp::program(strictness, launcher_key)),
        launcher_key,
        no_new_privs: builder.has(Layer::Nnp),
        drop_capabilities: builder.has(Layer::Caps),
        own_ids: made.user_namespace.is_some() || builder.privilege == Privilege::Rootless,
        cgroup_namespace: builder.has(Layer::CgroupNs),
        labels: builder.spec.lifetime == Lifetime::Durable,
    };
    Ok((walls, resource_limits))
}

/// A missing layer is never a silent downgrade.
fn check_policy(spec: &RoomSpec, enforced: &Enforced) -> Result<(), RoomError> {
    for (layer, state) in &enforced.0 {
        let required = spec.require.contains(*layer)
            || layer.required_by_default()
                && !spec.allow_missing.contains(*layer)
                && !spec.without.contains(*layer);
        let (LayerState::Missing(why) | LayerState::Partial(why)) = state else { continue };
        if required {
            return Err(RoomError::new(
                ErrorCode::LayerMissing,
                format!("the layer {} cannot be had here: {why}", layer.name()),
                if spec.require.contains(*layer) {
                    format!("run `workroom doctor` to see how to get it, or drop --require {}", layer.name())
                } else {
                    format!(
                        "run `workroom doctor` to see how to get it, or pass --allow-missing {}",
                        layer.name()
                    )
                },
            ));
        }
    }
    Ok(())
}

impl Made {
    fn root(&self) -> Result<OwnedFd, RoomError> {
        clone_fd(&self.root)
    }

    fn proc(&self) -> Result<OwnedFd, RoomError> {
        clone_fd(&self.proc)
    }
}

fn clone_fd(fd: &Option<OwnedFd>) -> Result<OwnedFd, RoomError> {
    fd.as_ref()
        .ok_or(std::io::Error::from_raw_os_error(libc::EBADF))
        .and_then(OwnedFd::try_clone)
        .during("order")
}
