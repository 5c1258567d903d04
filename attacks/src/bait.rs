//! What an attacker in a room would love to reach: servers, shared memory, queues, processes, programs, files.
//!
//! Laid out by the runner outside the room, and by a neighbour inside another one; taken away when dropped.

use crate::{Context, sys};
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The bait on the host, and the context that tells probes where it lies.
pub struct HostBait {
    pub context: Context,
    /// Programs that would give privilege, for rooms to be shown. Only root can make such.
    pub programs: Option<PathBuf>,
    _process: Process,
    _sysv: sys::SysV,
    _shared_memory: LaidFile,
    _queue: Option<sys::Queue>,
}

impl HostBait {
    /// Lays it out. `canary` is already in the caller's environment; `folder` is the caller's to remove.
    pub fn lay(canary: &str, folder: &Path) -> io::Result<HostBait> {
        let number = sys::random()?;
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        let name = format!("workroom-bait-{number:08x}");
        let abstract_socket = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let socket_path = folder.join("daemon.sock");
        let socket = UnixListener::bind(&socket_path)?;
        // As open as the sockets of daemons that everybody may call.
        fs::set_permissions(&socket_path, Permissions::from_mode(0o666))?;
        let mut process = Command::new("/bin/sh");
        process.args(["-c", "read forever", "bait", canary]).stdin(Stdio::piped()).stdout(Stdio::null());
        if sys::is_root() {
            // The uid that a room's agent would have, were it not for its own range.
            process.uid(1000).gid(1000);
        }
        let process = Process(process.spawn()?);
        let shared_memory = LaidFile::lay(PathBuf::from("/dev/shm").join(&name), canary)?;
        let key = number.cast_signed();
        let sysv = sys::SysV::create(key)?;
        let queue = sys::Queue::create(&format!("/{name}")).ok();
        let programs = if sys::is_root() { lay_programs(folder)? } else { None };
        let context = Context {
            canary: canary.to_owned(),
            host_tcp_port: Some(tcp.local_addr()?.port()),
            host_udp_port: Some(udp.local_addr()?.port()),
            host_socket: Some(socket_path.to_string_lossy().into_owned()),
            host_abstract: Some(name.clone()),
            host_sysv_shm_key: Some(key),
            host_posix_shm: Some(format!("/{name}")),
            host_mq: queue.is_some().then(|| format!("/{name}")),
            host_pid: Some(process.0.id() as i32),
            ..Context::default()
        };
        serve(tcp, udp, [abstract_socket, socket]);
        Ok(HostBait {
            context,
            programs,
            _process: process,
            _sysv: sysv,
            _shared_memory: shared_memory,
            _queue: queue,
        })
    }

    /// Lets everybody on this machine at the programs: rooms are shown them in another way.
    pub fn show_programs(&self) -> io::Result<()> {
        match self.programs.as_deref().and_then(Path::parent) {
            Some(closed) => fs::set_permissions(closed, Permissions::from_mode(0o755)),
            None => Ok(()),
        }
    }
}

/// A process that ends with the value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file that goes with the value, and that everybody may read.
struct LaidFile(PathBuf);

impl LaidFile {
    /// Never what somebody else has put there: the places are open to all.
    fn lay(path: PathBuf, text: &str) -> io::Result<LaidFile> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let laid = LaidFile(path);
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.write_all(text.as_bytes())?;
        Ok(laid)
    }
}

impl Drop for LaidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A program that is setuid root and one that has a capability, below a folder that is closed to the machine's users.
fn lay_programs(folder: &Path) -> io::Result<Option<PathBuf>> {
    let closed = folder.join("closed");
    DirBuilder::new().mode(0o700).create(&closed)?;
    let programs = closed.join("programs");
    DirBuilder::new().mode(0o755).create(&programs)?;
    fs::set_permissions(&programs, Permissions::from_mode(0o755))?;
    let Some(harmless) = ["/usr/bin/true", "/bin/true"].iter().find(|path| fs::metadata(path).is_ok()) else {
        return Ok(None);
    };
    for (name, mode) in [("setuid", 0o4755), ("capable", 0o755)] {
        let program = programs.join(name);
        fs::copy(harmless, &program)?;
        fs::set_permissions(&program, Permissions::from_mode(mode))?;
    }
    // A file system that keeps no capabilities has the other program all the same.
    let _ = sys::give_capability(&programs.join("capable"));
    Ok(Some(programs))
}

/// Answers whoever calls, for as long as this process lives.
fn serve(tcp: TcpListener, udp: UdpSocket, unix: [UnixListener; 2]) {
    std::thread::spawn(move || {
        for mut caller in tcp.incoming().flatten() {
            let _ = caller.write_all(b"host");
        }
    });
    std::thread::spawn(move || {
        let mut buffer = [0u8; 512];
        while let Ok((size, from)) = udp.recv_from(&mut buffer) {
            let _ = udp.send_to(&buffer[..size], from);
        }
    });
    for socket in unix {
        std::thread::spawn(move || {
            for mut caller in socket.incoming().flatten() {
                let _ = caller.write_all(b"host");
            }
        });
    }
}

/// What a neighbour's things are called, and what is written in them.
#[derive(Debug, Clone)]
pub struct NeighbourNames {
    pub canary: String,
    /// Of its files, its abstract socket, its shared memory and its message queue.
    pub name: String,
    /// Of its System V objects.
    pub key: i32,
}

impl NeighbourNames {
    pub fn new() -> io::Result<NeighbourNames> {
        sys::random().map(NeighbourNames::of)
    }

    fn of(number: u32) -> NeighbourNames {
        NeighbourNames {
            canary: format!("neighbour-canary-{number:08x}"),
            name: format!("workroom-neighbour-{number:08x}"),
            key: number.cast_signed(),
        }
    }

    /// Tells probes of them.
    pub fn tell(&self, context: &mut Context) {
        context.neighbour_canary = Some(self.canary.clone());
        context.neighbour_abstract = Some(self.name.clone());
        context.neighbour_sysv_key = Some(self.key);
        context.neighbour_posix_shm = Some(format!("/{}", self.name));
        context.neighbour_mq = Some(format!("/{}", self.name));
    }

    /// Takes away what a neighbour that shared the caller's namespaces had no time to.
    pub fn sweep(&self) {
        sys::Queue::remove(&format!("/{}", self.name));
        sys::SysV::remove_by_key(self.key);
    }
}

/// Lays bait inside a room, says `ready`, and waits for its stdin to end: the neighbour. All its names come from the
/// canary, which others may find in its command line.
pub fn be_a_neighbour(canary: &str) -> io::Result<()> {
    let number = canary.rsplit('-').next().and_then(|text| u32::from_str_radix(text, 16).ok());
    let number = number.ok_or_else(|| io::Error::other("the canary has no number"))?;
    let NeighbourNames { canary, name, key } = NeighbourNames::of(number);
    let places = ["/tmp", "/dev/shm", "/workspace", "/home/agent", "/var/tmp", "/run/lock"];
    // A place that this room's user may not write to is no place for a canary.
    let files: Vec<LaidFile> =
        places.iter().filter_map(|place| LaidFile::lay(Path::new(place).join(&name), &canary).ok()).collect();
    if files.is_empty() {
        return Err(io::Error::other("no place for a canary"));
    }
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let _sysv = sys::SysV::create(key)?;
    // Landlock refuses to open a queue, which is there all the same from then on.
    let _queue = sys::Queue::create(&format!("/{name}"));
    println!("ready");
    io::stdout().flush()?;
    let mut rest = Vec::new();
    io::stdin().read_to_end(&mut rest)?;
    sys::Queue::remove(&format!("/{name}"));
    Ok(())
}
