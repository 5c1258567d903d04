//! What a room looks like from the inside.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use support::{Caller, finish, for_each_privilege, installed};

#[test]
fn the_command_is_agent_without_any_privilege() {
    for_each_privilege(|caller| {
        let script = "id -un; id -u; id -g; id -G; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status";
        let said = caller.says(&[], script);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[..4], ["agent", "1000", "1000", "1000"]);
        for line in &lines[4..] {
            let (name, value) = line.split_once(":\t").expect("a field");
            let wanted = match name {
                "NoNewPrivs" => "1",
                "Seccomp" => "2",
                _ => "0000000000000000",
            };
            assert_eq!(value, wanted, "{name}");
        }
        assert_eq!(lines.len(), 4 + 7, "{said}");
    });
}

#[test]
fn root_is_root_by_name_only() {
    for_each_privilege(|caller| {
        let script = "id -un; id -u; id -g; echo ~; grep CapEff /proc/self/status; stat -c %U . && \
            touch mine /root/mine /home/agent/mine && echo written";
        let said = caller.says(&["--user", "root"], script);
        assert_eq!(
            said, "root\n0\n0\n/root\nCapEff:\t0000000000000000\nroot\nwritten\n",
            "without any capability it can write where the room's users work"
        );
        for refused in
            ["mount -t tmpfs none /mnt", "mknod /tmp/d c 1 3", "chown 5:5 /workspace", "hostname other"]
        {
            assert_ne!(caller.sh(&["--user", "root"], refused).code, 0, "{refused}");
        }
    });
}

#[test]
fn the_room_has_its_own_names() {
    for_each_privilege(|caller| {
        assert_eq!(caller.says(&[], "uname -n; cat /etc/hostname; pwd"), "room\nroom\n/workspace\n");
        assert_eq!(caller.says(&[], "cut -d: -f1 /etc/passwd"), "root\nagent\nnobody\n");
        let hosts = caller.says(&[], "cat /etc/hosts");
        assert!(hosts.contains("127.0.0.1 localhost"), "{hosts}");
        for (file, host) in [("/etc/machine-id", "/etc/machine-id"), ("/etc/resolv.conf", "/etc/resolv.conf")]
        {
            // A machine that has none of its own has none to give away.
            let Some(own) = fs::read_to_string(host).ok().filter(|own| !own.is_empty()) else { continue };
            assert_ne!(caller.sh(&[], &format!("cat {file}")).out, own, "{file} is the machine's");
        }
    });
}

#[test]
fn nothing_of_the_host_is_there() {
    for_each_privilege(|caller| {
        let canary = caller.make_file("canary", "of the host");
        let named = canary.to_str().expect("plain");
        for path in ["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/etc/fstab", "/boot", named]
        {
            assert_ne!(caller.sh(&[], &format!("ls {path}")).code, 0, "{path} is in the room");
        }
        let found = caller.says(&[], "find /home /tmp /workspace /mnt /opt /srv /media -mindepth 1");
        assert_eq!(found, "/home/agent\n");
        assert_eq!(caller.says(&["--user", "root"], "ls -A /root"), "");
        let top: BTreeSet<String> = caller.says(&[], "ls -A /").lines().map(str::to_owned).collect();
        let known = [
            "bin",
            "dev",
            "etc",
            "home",
            "lib",
            "lib32",
            "lib64",
            "libx32",
            "media",
            "mnt",
            "opt",
            "proc",
            "root",
            "run",
            "sbin",
            "srv",
            "sys",
            "tmp",
            "usr",
            "var",
            "workspace",
        ];
        let strange: Vec<_> = top.iter().filter(|name| !known.contains(&name.as_str())).collect();
        assert!(strange.is_empty(), "{strange:?} is in the room");
        // The room's processes are the guest, the launcher and these.
        let pids = caller.says(&[], "ls /proc | grep -c '^[0-9]'");
        assert!(pids.trim().parse::<u32>().expect("a number") <= 6, "{pids} processes");
    });
}

#[test]
fn the_environment_is_built_from_nothing() {
    for_each_privilege(|caller| {
        let names = |options: &[&str]| -> BTreeSet<String> {
            let said = finish(caller.run(options, &["env"])).good();
            said.lines().map(|line| line.split('=').next().unwrap_or_default().to_owned()).collect()
        };
        let known: BTreeSet<String> =
            ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_CTYPE", "TERM", "TZ"]
                .map(str::to_owned)
                .into();
        assert_eq!(names(&[]), known);
        assert_eq!(names(&["--env", "MORE=1"]), known.iter().cloned().chain(["MORE".into()]).collect());
        let options = ["--env", "A=b c=d", "--env", "HOME=/tmp", "--env", "EMPTY=", "--env", "A=last"];
        let said = caller.says(&options, "echo \"$A,$HOME,${EMPTY-unset},$USER,$LANG\"");
        assert_eq!(said, "last,/tmp,,agent,C\n");
        let characters = "printf äöü | wc -m";
        assert_eq!(caller.says(&[], characters), "3\n", "UTF-8 as it is");
        assert_eq!(caller.says(&["--env", "LANG=C"], characters), "6\n", "another language in all");
    });
}

#[test]
fn only_three_descriptors_are_open() {
    for_each_privilege(|caller| {
        // Its own directory is the fourth.
        assert_eq!(finish(caller.run(&[], &["ls", "/proc/self/fd"])).good(), "0\n1\n2\n3\n");
        let mut shell = caller.command("sh");
        shell.args(["-c", "exec 7</etc/passwd 9</; \"$0\" run -- ls /proc/self/fd"]).arg(caller.program());
        assert_eq!(finish(shell).good(), "0\n1\n2\n3\n", "what the caller had open");
    });
}

#[test]
fn every_mount_is_nosuid_and_nodev() {
    for_each_privilege(|caller| {
        let dir = caller.make_dir("work");
        let options = ["--workspace", dir.to_str().expect("plain"), "--ro", "/usr/share:/opt/share"];
        let mounts = caller.says(&options, "cat /proc/self/mountinfo");
        let devices =
            ["null", "zero", "full", "random", "urandom", "tty", "pts"].map(|name| format!("/dev/{name}"));
        let mut points = BTreeSet::new();
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let (point, flags) = (fields[4], fields[5].split(',').collect::<Vec<_>>());
            points.insert(point);
            assert!(flags.contains(&"nosuid"), "{line}");
            assert!(flags.contains(&"nodev") || devices.iter().any(|device| device == point), "{line}");
            if point.starts_with("/usr")
                || point.starts_with("/etc")
                || point == "/opt/share"
                || point == "/proc"
            {
                assert!(flags.contains(&"ro"), "{line}");
            }
        }
        for point in ["/", "/usr", "/proc", "/dev", "/dev/pts", "/dev/shm", "/workspace", "/opt/share"] {
            assert!(points.contains(point), "{point} in {points:?}");
        }
    });
}

#[test]
fn what_is_writable_and_what_is_not() {
    for_each_privilege(|caller| {
        let script =
            "for d in /workspace /home/agent /tmp /var/tmp /dev/shm; do echo $d > $d/f && cat $d/f; done";
        assert_eq!(caller.says(&[], script), "/workspace\n/home/agent\n/tmp\n/var/tmp\n/dev/shm\n");
        for path in [
            "/usr/file",
            "/usr/bin/file",
            "/bin/file",
            "/etc/alternatives/file",
            "/dev/file",
            "/proc/sys/kernel/hostname",
        ] {
            let outcome = caller.sh(&[], &format!("echo x > {path}"));
            assert_ne!(outcome.code, 0, "{path} can be written");
        }
        let said = caller.says(
            &[],
            "for d in null zero full random urandom tty; do test -c /dev/$d && echo $d; done; ls /dev",
        );
        assert!(said.starts_with("null\nzero\nfull\nrandom\nurandom\ntty\n"), "{said}");
        assert_eq!(said.lines().skip(6).count(), 13, "nothing else: {said}");
        assert_eq!(caller.says(&[], "echo x > /dev/null; head -c 4 /dev/zero | wc -c").trim(), "4");
    });
}

#[test]
fn shared_memory_and_proc_are_what_they_should_be() {
    for_each_privilege(|caller| {
        let said = caller.says(&[], "df -k --output=size /dev/shm | tail -1");
        assert_eq!(said.trim(), "65536");
        let outcome = caller.sh(&[], "head -c 70000000 /dev/zero > /dev/shm/f");
        assert!(outcome.code != 0 && outcome.err.contains("No space left"), "{outcome:?}");
        for masked in ["cmdline", "kallsyms", "keys", "timer_list", "interrupts"] {
            let outcome = caller.sh(&[], &format!("cat /proc/{masked}"));
            assert_eq!(outcome.out, "", "/proc/{masked}");
        }
        for dir in ["irq", "bus", "acpi"] {
            assert_eq!(caller.sh(&[], &format!("ls -A /proc/{dir}")).out, "", "/proc/{dir}");
        }
    });
}

fn plain(path: &std::path::Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn a_workspace_of_the_host_is_shared_with_sane_owners() {
    for_each_privilege(|caller| {
        let dir = caller.make_dir("work");
        caller.make_file("work/given", "from the host\n");
        let script = "stat -c '%U %u' . given; cat given; echo changed >> given; \
            mkdir made; echo new > made/file; chmod 750 made; mv made/file made/moved";
        let said = caller.says(&["--workspace", plain(&dir)], script);
        assert_eq!(said, "agent 1000\nagent 1000\nfrom the host\n");
        assert_eq!(fs::read_to_string(dir.join("given")).expect("read"), "from the host\nchanged\n");
        assert_eq!(fs::read_to_string(dir.join("made/moved")).expect("read"), "new\n");
        for name in ["given", "made", "made/moved"] {
            let meta = fs::metadata(dir.join(name)).expect("stat");
            assert_eq!((meta.uid(), meta.gid()), (caller.uid(), gid_of(caller)), "{name}");
        }
        assert_eq!(fs::metadata(dir.join("made")).expect("stat").mode() & 0o777, 0o750);
        let said = caller
            .says(&["--workspace", plain(&dir), "--user", "root"], "stat -c %U given; echo r > by-root");
        assert_eq!(said, "root\n");
        assert_eq!(fs::metadata(dir.join("by-root")).expect("stat").uid(), caller.uid());
    });
}

fn gid_of(caller: &Caller) -> u32 {
    caller.ids.unwrap_or_else(|| rustix::process::getegid().as_raw())
}

#[test]
fn as_root_anyones_directory_can_be_a_workspace() {
    support::as_root(|caller| {
        let dir = caller.make_dir("work");
        chown(&dir, Some(4321), Some(8765)).expect("chown");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("chmod");
        assert_eq!(
            caller.says(&["--workspace", plain(&dir)], "stat -c %u:%g .; echo x > file"),
            "1000:1000\n"
        );
        let meta = fs::metadata(dir.join("file")).expect("stat");
        assert_eq!((meta.uid(), meta.gid()), (4321, 8765));
    });
}

#[test]
fn a_read_only_workspace_stays_as_it_is() {
    for_each_privilege(|caller| {
        let dir = caller.make_dir("work");
        caller.make_file("work/given", "as it was");
        let option = format!("{}:ro", plain(&dir));
        assert_eq!(caller.says(&["--workspace", &option], "cat given"), "as it was");
        for script in ["echo x > given", "echo x > new", "rm given", "mkdir d", "chmod 777 given"] {
            for user in ["agent", "root"] {
                let outcome = caller.sh(&["--workspace", &option, "--user", user], script);
                assert!(outcome.code != 0 && outcome.err.contains("Read-only"), "{script}: {outcome:?}");
            }
        }
        assert_eq!(fs::read_dir(&dir).expect("read").count(), 1);
        assert_eq!(fs::read_to_string(dir.join("given")).expect("read"), "as it was");
    });
}

#[test]
fn workspaces_are_found_through_links_and_relative_paths() {
    for_each_privilege(|caller| {
        let dir = caller.make_dir("work with space");
        caller.make_file("work with space/file", "here");
        symlink(&dir, caller.path("link")).expect("link");
        for name in ["link", "./work with space", "work with space/../link"] {
            let mut run = caller.run(&["--workspace", name], &["cat", "file"]);
            run.current_dir(caller.path("."));
            assert_eq!(finish(run).good(), "here", "{name}");
        }
        // What the workspace's own links point to on the host is not there.
        symlink(caller.make_file("secret", "secret"), dir.join("out")).expect("link");
        assert_ne!(caller.sh(&["--workspace", plain(&dir)], "cat out").code, 0);
    });
}

#[test]
fn host_paths_are_shown_read_only() {
    for_each_privilege(|caller| {
        let dir = caller.make_dir("tools");
        let file = caller.make_file("tools/tool", "#!/bin/sh\necho works\n");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("chmod");
        let there = format!("{}:/opt/deep/tools", plain(&dir));
        let said = caller.says(
            &["--ro", &there],
            "/opt/deep/tools/tool; (echo x > /opt/deep/tools/new) 2>/dev/null || echo kept",
        );
        assert_eq!(said, "works\nkept\n");
        let path = caller.says(&["--ro", plain(&dir)], &format!("{}/tool", plain(&dir)));
        assert_eq!(path, "works\n", "at its own place");
        let single = format!("{}:/home/agent/bin/tool", plain(&file));
        let options = ["--ro", &single, "--env", "PATH=/home/agent/bin:/usr/bin"];
        assert_eq!(finish(caller.run(&options, &["tool"])).good(), "works\n", "a single file");
        assert!(!dir.join("new").exists());
        // Below root's home too, where many a toolchain lives: the way is open, and the rest is not.
        let below = format!("{}:/root/.tools/here", plain(&dir));
        let said =
            caller.says(&["--ro", &below], "/root/.tools/here/tool; ls /root >/dev/null 2>&1 || echo closed");
        assert_eq!(said, if caller.is_root() { "works\nclosed\n" } else { "works\n" });
        let config = format!("[run]\nro = [\"{below}\"]\n");
        let mut run = caller.run(&[], &["/root/.tools/here/tool"]);
        run.env("WORKROOM_CONFIG", caller.make_file("config.toml", &config));
        assert_eq!(finish(run).good(), "works\n", "by the configuration");
    });
}

#[test]
fn the_working_directory_can_be_chosen() {
    for_each_privilege(|caller| {
        for dir in ["/", "/tmp", "/home/agent", "/usr/bin"] {
            assert_eq!(finish(caller.run(&["--workdir", dir], &["pwd"])).good(), format!("{dir}\n"));
        }
    });
}

#[test]
fn there_is_no_network_but_loopback() {
    for_each_privilege(|caller| {
        if !installed("python3") {
            return;
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
        let port = listener.local_addr().expect("address").port();
        let script = format!(
            r#"
import errno, os, socket
def attempt(family, kind, address):
    try:
        s = socket.socket(family, kind); s.settimeout(5); s.connect(address); return "connected"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
print(attempt(socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 53)))
print(attempt(socket.AF_INET, socket.SOCK_DGRAM, ("169.254.169.254", 80)))
print(attempt(socket.AF_INET6, socket.SOCK_STREAM, ("2606:4700::1111", 53)))
print(attempt(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", {port})))
print(" ".join(name for _, name in socket.if_nameindex()))
"#
        );
        let said = finish(caller.run(&[], &["python3", "-c", &script])).good();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "ENETUNREACH");
        assert!(matches!(lines[1], "ENETUNREACH" | "EACCES" | "EPERM"), "{said}");
        assert!(matches!(lines[2], "ENETUNREACH" | "EADDRNOTAVAIL"), "{said}");
        assert_eq!(lines[3], "ECONNREFUSED", "the host's loopback is not the room's");
        assert_eq!(lines[4], "lo");
    });
}
