//! A network namespace with nothing in it but loopback and a TUN device, as a room has it, and programs run in it.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use workroom_egress::transparent::{MTU, NAME_SERVER, ROOM};
use workroom_sys::namespace::{Namespaces, unshare};

type Job = Box<dyn FnOnce() + Send>;

pub struct Room {
    jobs: mpsc::Sender<Job>,
}

impl Room {
    /// A room and the descriptor of its device; or why there can be none here.
    pub fn make() -> Result<(Self, OwnedFd), String> {
        let (jobs, work) = mpsc::channel::<Job>();
        let (made, making) = mpsc::channel();
        // Namespaces belong to threads: what this one starts is in the room, and nothing else of the process is.
        std::thread::spawn(move || {
            let tun = enter();
            let there = tun.is_ok();
            made.send(tun).expect("somebody waits");
            if there {
                work.into_iter().for_each(|job| job());
            }
        });
        let tun = making.recv().expect("the thread answers")?;
        Ok((Room { jobs }, tun))
    }

    /// Runs something in the room's thread.
    pub async fn inside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, waiting) = tokio::sync::oneshot::channel();
        self.jobs.send(Box::new(move || drop(done.send(work())))).expect("the room is there");
        super::within(waiting).await.expect("it was done")
    }

    pub async fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::null());
        self.inside(move || command.output().expect("it runs")).await
    }

    /// Runs a Python program, and gives what it printed.
    pub async fn python(&self, program: &str) -> String {
        let output = self.run("python3", &["-c", program]).await;
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }
}

fn enter() -> Result<OwnedFd, String> {
    let failed = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    unshare(Namespaces::NET.and(Namespaces::MOUNT)).map_err(failed("no namespaces (needs root)"))?;
    workroom_sys::net::loopback_up().map_err(failed("loopback"))?;
    let tun = workroom_sys::tun::create("tun0").map_err(failed("no TUN device (/dev/net/tun)"))?;
    workroom_sys::tun::configure("tun0", ROOM, MTU).map_err(failed("its address"))?;
    workroom_sys::tun::route_everything("tun0").map_err(failed("its route"))?;
    name_server(NAME_SERVER).map_err(failed("resolv.conf"))?;
    Ok(tun)
}

/// What programs of the room find in /etc/resolv.conf.
fn name_server(address: Ipv4Addr) -> std::io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
    static NUMBER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("workroom-egress-resolv-{}-{number}", std::process::id()));
    std::fs::write(&file, format!("nameserver {address}\noptions timeout:2 attempts:2\n"))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let real = std::fs::canonicalize("/etc/resolv.conf")?;
    mount_bind(&file, &real)?;
    std::fs::remove_file(&file)
}
