//! What a room must not see: the host's secrets, users and sockets, and a neighbour's files.

use crate::files::Scratch;
use crate::{Case, Context, Outcome, case, none_found};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) static CASES: &[Case] = &[
    case(
        "host-secrets",
        "leak",
        "Looks for the host's secrets and identity",
        &["mountns", "landlock"],
        |_| secrets(),
    ),
    case("host-users", "leak", "Reads the names of the host's users", &["mountns"], |_| users()),
    case("host-homes", "leak", "Looks into other people's homes", &["mountns", "landlock"], |_| homes()),
    case(
        "host-sockets",
        "leak",
        "Connects to the host's daemons by their sockets",
        &["mountns", "landlock"],
        sockets,
    ),
    case(
        "neighbour-files",
        "neighbours",
        "Looks for a neighbour's canary in shared places",
        &["mountns", "uidrange"],
        neighbour,
    ),
];

fn secrets() -> Outcome {
    const SECRETS: &[&str] = &[
        "/etc/shadow",
        "/etc/shadow-",
        "/etc/gshadow",
        "/etc/sudoers",
        "/etc/ssh",
        "/etc/machine-id",
        "/var/lib/dbus/machine-id",
        "/etc/hostid",
        "/etc/krb5.keytab",
        "/etc/ssl/private",
        "/root/.ssh",
        "/root/.bash_history",
        "/var/log/syslog",
        "/var/log/journal",
        "/var/lib/docker",
        "/run/secrets",
        "/proc/device-tree",
        "/sys/firmware",
        "/sys/class/dmi/id/product_uuid",
    ];
    let mut found = Vec::new();
    for path in SECRETS {
        // There, even if closed, is too much; an empty file or folder put there as a cover is fine.
        let Ok(what) = fs::metadata(path) else { continue };
        let is_cover = match what.is_dir() {
            true => fs::read_dir(path).is_ok_and(|mut list| list.next().is_none()),
            false => {
                what.len() == 0
                    && File::open(path).is_ok_and(|mut file| file.read(&mut [0]).is_ok_and(|n| n == 0))
            }
        };
        if !is_cover {
            found
                .push(format!("{path} is there{}", if File::open(path).is_ok() { " and opens" } else { "" }));
        }
    }
    none_found(found, "absent or empty")
}

fn users() -> Outcome {
    const EXPECTED: &[&str] = &["root", "agent", "nobody"];
    let Ok(passwd) = fs::read_to_string("/etc/passwd") else {
        return Outcome::Held("/etc/passwd cannot be read".to_owned());
    };
    let names = passwd.lines().filter_map(|line| line.split(':').next()).filter(|name| !name.is_empty());
    let others = names.filter(|name| !EXPECTED.contains(name)).map(str::to_owned).collect();
    none_found(others, "only root, agent and nobody")
}

fn homes() -> Outcome {
    let mut found = Vec::new();
    for entry in fs::read_dir("/home").into_iter().flatten().flatten() {
        if entry.file_name() != "agent" {
            found.push(format!("{} is there", entry.path().display()));
        }
    }
    for folder in ["/root", "/mnt", "/media", "/srv", "/boot", "/lost+found", "/var/spool/cron"] {
        if fs::read_dir(folder)
            .is_ok_and(|list| list.flatten().any(|it| !it.file_name().as_encoded_bytes().starts_with(b".")))
        {
            found.push(format!("{folder} has entries"));
        }
    }
    none_found(found, "no other home")
}

fn sockets(context: &Context) -> Outcome {
    const KNOWN: &[&str] = &[
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/podman/podman.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
        "/run/systemd/notify",
        "/run/systemd/journal/stdout",
        "/run/systemd/journal/dev-log",
        "/run/udev/control",
        "/run/snapd.socket",
        "/dev/log",
        "/tmp/.X11-unix/X0",
    ];
    let connects = |path: &Path| {
        UnixStream::connect(path).is_ok()
            || UnixDatagram::unbound().is_ok_and(|socket| socket.connect(path).is_ok())
    };
    let mut found: Vec<String> = Vec::new();
    for path in KNOWN.iter().copied().chain(context.host_socket.as_deref()).map(Path::new) {
        if connects(path) {
            found.push(format!("connected to {}", path.display()));
        } else if path.exists() {
            found.push(format!("{} is there", path.display()));
        }
    }
    let mut left = 2000;
    let mut waiting = vec![PathBuf::from("/run"), PathBuf::from("/var/run")];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            left -= 1;
            if left < 0 {
                break;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                Ok(kind) if kind.is_socket() && connects(&entry.path()) => {
                    found.push(format!("connected to {}", entry.path().display()));
                }
                _ => {}
            }
        }
    }
    none_found(found, "no socket of a daemon")
}

/// Reads the first part of every file in places that rooms on one machine might share by mistake.
fn neighbour(context: &Context) -> Outcome {
    let Some(canary) = context.neighbour_canary.as_deref().filter(|canary| !canary.is_empty()) else {
        return Outcome::Skipped("no neighbour's canary was named".to_owned());
    };
    // Its own file has to be found: a search that finds nothing may be no search.
    let own = "workroom-attack-searches";
    let Some(scratch) = Scratch::in_tmp() else {
        return Outcome::Skipped("nothing can be made in /tmp to try the search with".to_owned());
    };
    let own_file = scratch.path("own");
    let _ = fs::write(&own_file, own);
    let mut found_own = false;
    let deadline = Instant::now() + Duration::from_secs(2);
    let start =
        ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/workspace", "/home", "/run", "/var/lib", "/mnt"];
    let mut waiting: Vec<(PathBuf, u8)> = start.iter().map(|path| (PathBuf::from(path), 0)).collect();
    let (mut found, mut read) = (Vec::new(), 0);
    while let Some((folder, depth)) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if read > 20_000 || Instant::now() > deadline {
                break;
            }
            let Ok(kind) = entry.file_type() else { continue };
            if entry.file_name().to_string_lossy().contains(canary) {
                found.push(format!("{} is named so", entry.path().display()));
            }
            if kind.is_dir() && depth < 4 {
                waiting.push((entry.path(), depth + 1));
            } else if kind.is_file() {
                read += 1;
                let mut start = Vec::new();
                let file = File::open(entry.path());
                let _ = file.and_then(|file| file.take(64 * 1024).read_to_end(&mut start));
                let text = String::from_utf8_lossy(&start);
                found_own |= text == own && entry.path() == own_file;
                if text.contains(canary) {
                    found.push(format!("{} holds it", entry.path().display()));
                }
            }
        }
    }
    if found.is_empty() && !found_own {
        return Outcome::Skipped(format!("read {read} files, and not its own"));
    }
    none_found(found, format!("not in {read} files, its own among them"))
}
