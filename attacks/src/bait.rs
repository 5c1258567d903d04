//! What an attacker in a room would love to reach: servers, shared memory, queues, processes, files.
//!
//! Laid out by the runner outside the room, and by a neighbour inside another one; taken away when dropped.

use crate::{Context, sys};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The bait on the host, and the context that tells probes where it lies.
pub struct HostBait {
    pub context: Context,
    process: Child,
    sysv: sys::SysV,
    shared_memory: PathBuf,
}

impl HostBait {
    /// Lays it out. `canary` is already in the caller's environment.
    pub fn lay(canary: &str) -> std::io::Result<HostBait> {
        let number = std::process::id();
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        let abstract_name = format!("workroom-bait-{number}");
        let unix = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name)?)?;
        let mut process = Command::new("/bin/sh");
        process.args(["-c", "read forever", "bait", canary]).stdin(Stdio::piped()).stdout(Stdio::null());
        if sys::is_root() {
            // The uid that a room's agent would have, were it not for its own range.
            process.uid(1000).gid(1000);
        }
        let process = process.spawn()?;
        let shared_memory = PathBuf::from(format!("/dev/shm/workroom-bait-{number}"));
        std::fs::write(&shared_memory, canary)?;
        std::fs::set_permissions(&shared_memory, std::fs::Permissions::from_mode(0o666))?;
        let key = 0x5752_0000 | (number as i32 & 0xffff);
        let sysv = sys::SysV::create(key)?;
        let queue = format!("/workroom-bait-{number}");
        let context = Context {
            canary: canary.to_owned(),
            host_tcp_port: Some(tcp.local_addr()?.port()),
            host_udp_port: Some(udp.local_addr()?.port()),
            host_abstract: Some(abstract_name),
            host_sysv_shm_key: Some(key),
            host_posix_shm: Some(format!("/workroom-bait-{number}")),
            host_mq: sys::create_queue(&queue).is_ok().then_some(queue),
            host_pid: Some(process.id() as i32),
            ..Context::default()
        };
        serve(tcp, udp, unix);
        Ok(HostBait { context, process, sysv, shared_memory })
    }
}

impl Drop for HostBait {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.sysv.remove();
        let _ = std::fs::remove_file(&self.shared_memory);
        if let Some(queue) = &self.context.host_mq {
            sys::remove_queue(queue);
        }
    }
}

/// Answers whoever calls, for as long as this process lives.
fn serve(tcp: TcpListener, udp: UdpSocket, unix: UnixListener) {
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
    std::thread::spawn(move || {
        for mut caller in unix.incoming().flatten() {
            let _ = caller.write_all(b"host");
        }
    });
}

/// Lays bait inside a room, says `ready`, and waits for its stdin to end: the neighbour.
pub fn be_a_neighbour(canary: &str, abstract_name: &str) -> std::io::Result<()> {
    for place in ["/tmp", "/dev/shm", "/workspace", "/home/agent", "/var/tmp", "/run/lock"] {
        // A place that this room's user may not write to is no place for a canary.
        let _ = std::fs::write(format!("{place}/neighbour-canary"), canary);
    }
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(abstract_name)?)?;
    println!("ready");
    std::io::stdout().flush()?;
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest)?;
    Ok(())
}
