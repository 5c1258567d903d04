//! The process that carries the network of all rooms of a server: no other has a room's bytes in its memory.
//!
//! It is this program executed anew with nothing of the server's, and gives up what it does not need before it hears of
//! a room: as root it becomes nobody. It gets a listener and a TUN device of each room from the server, dials the rest
//! itself, and ends when its line to the server does. What a room sends can at worst end this process; the server then
//! starts another and hands the same descriptors over.
//!
//! ```text
//!  server ── Serve, Rules, Stop, Ask, Protect ─▶ egress ◀─ connections, packets ── rooms
//!         ◀─ Ready, Denied, Totals, Answer ─────   │
//!                                                  └─▶ the outside
//! ```

mod hall;
mod messages;
mod told;

pub use messages::{FromEgress, Settings, ToEgress, Wanted};
pub use told::Seen;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use workroom_proto::Channel;
use workroom_sys::origin::ask_command_line;

/// The name this program is started under to be this process.
const ARGV0: &str = "workroom-egress";

/// Whom it becomes that was root.
const NOBODY: u32 = 65534;

/// More threads than this gain nothing where rooms share a machine.
const MOST_THREADS: usize = 4;

/// Starts the process from this very program, whose `main` calls [`run_if_egress`].
pub fn start() -> io::Result<(Channel, Child)> {
    let (ours, theirs) = Channel::pair()?;
    let process = Command::new("/proc/self/exe")
        .arg0(ARGV0)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(theirs.into_fd()))
        .stdout(Stdio::null())
        .spawn()?;
    Ok((ours, process))
}

/// Becomes the process if this one was started as it. Call it early in `main`.
pub fn run_if_egress() {
    if !ask_command_line(|name, _| name == ARGV0.as_bytes()).unwrap_or(false) {
        return;
    }
    let ended = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
        .map_err(io::Error::from)
        .and_then(|socket| run(Channel::from_fd(socket)));
    match ended {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("workroom: the network process ended: {error}");
            std::process::exit(1)
        }
    }
}

fn run(host: Channel) -> io::Result<()> {
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    drop(null);
    let _ = rustix::thread::set_name(c"egress");
    // Before there is a second thread, which would keep what this one gives up.
    give_up()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let served = runtime.block_on(hall::serve(host));
    // What still waits for a name server or a slow peer is not waited for.
    runtime.shutdown_background();
    served
}

/// Gives up every right that carrying bytes does not take.
fn give_up() -> io::Result<()> {
    let open_files = rustix::process::getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: open_files, maximum: open_files });
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    if rustix::process::geteuid().is_root() {
        become_nobody()?;
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)?;
    // Not for others who are nobody to read or trace. After the change of identity, which sets it anew.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

fn become_nobody() -> io::Result<()> {
    use rustix::io::Errno;
    use rustix::process::{Gid, Uid};
    let (gid, uid) = (Gid::from_raw(NOBODY), Uid::from_raw(NOBODY));
    rustix::thread::set_thread_groups(&[])?;
    let became = rustix::thread::set_thread_res_gid(gid, gid, gid)
        .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid));
    match became {
        // A container that has root and no nobody: what root could do is given up all the same, by what follows.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
