//! Ordinary work in a room: what people and agents do all day must simply work.

mod support;

use std::path::Path;
use std::process::Command;
use support::{Caller, finish, for_each_privilege, installed};

/// Runs a script of a language that is given it by `-c` or `-e`, and wants it to say `words`.
#[track_caller]
fn works(caller: &Caller, options: &[&str], command: &[&str], words: &str) {
    let outcome = finish(caller.run(options, command));
    assert!(outcome.code == 0 && outcome.out.contains(words), "{command:?}: {outcome:?}");
}

#[test]
fn python_with_its_batteries() {
    for_each_privilege(|caller| {
        if !installed("python3") {
            return;
        }
        let script = r#"
import concurrent.futures, json, multiprocessing, os, pathlib, sqlite3, subprocess, tempfile, threading, zlib
db = sqlite3.connect("/workspace/work.db")
db.execute("pragma journal_mode=wal")
db.execute("create table t (n integer, s text)")
with db: db.executemany("insert into t values (?, ?)", [(n, str(n)) for n in range(1000)])
assert db.execute("select sum(n) from t").fetchone() == (499500,)
total = [0]; lock = threading.Lock()
def add():
    for _ in range(100):
        with lock: total[0] += 1
threads = [threading.Thread(target=add) for _ in range(50)]
[t.start() for t in threads]; [t.join() for t in threads]
assert total == [5000]
with concurrent.futures.ProcessPoolExecutor(2) as pool: assert list(pool.map(abs, [-1, -2])) == [1, 2]
q = multiprocessing.Queue(); p = multiprocessing.Process(target=q.put, args=("sem",)); p.start()
assert q.get(timeout=20) == "sem"; p.join()
with tempfile.NamedTemporaryFile() as f:
    f.write(b"x"); f.flush(); assert pathlib.Path(f.name).read_text() == "x"
assert subprocess.run(["sh", "-c", "exit 4"]).returncode == 4
assert os.cpu_count() >= 1 and pathlib.Path.home() == pathlib.Path("/home/agent")
print("all", "good")"#;
        works(caller, &[], &["python3", "-c", script], "all good");
    });
}

/// Writes a wheel by hand, installs it into a new virtual environment and uses it.
const WHEEL: &str = r#"
set -e
mkdir w && cd w
python3 - <<'PY'
import zipfile
with zipfile.ZipFile("greet-1.0-py3-none-any.whl", "w") as z:
    z.writestr("greet.py", "def main(): print('hello from a wheel')\n")
    z.writestr("greet-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n")
    about = "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    z.writestr("greet-1.0.dist-info/WHEEL", about)
    z.writestr("greet-1.0.dist-info/entry_points.txt", "[console_scripts]\ngreet = greet:main\n")
    names = z.namelist() + ["greet-1.0.dist-info/RECORD"]
    z.writestr(names[-1], "".join(name + ",,\n" for name in names))
PY
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check --no-index ./greet-1.0-py3-none-any.whl
env/bin/greet
"#;

#[test]
fn pip_installs_a_wheel_into_a_virtual_environment() {
    let can = Command::new("/usr/bin/python3").args(["-c", "import venv, ensurepip"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("skipped: the system's python3 has no venv");
        return;
    }
    for_each_privilege(|caller| works(caller, &[], &["sh", "-c", WHEEL], "hello from a wheel"));
}

#[test]
fn node_perl_and_sqlite() {
    for_each_privilege(|caller| {
        if installed("node") {
            let script = "const { Worker } = require('worker_threads'); \
                require('fs').writeFileSync('/workspace/f', 'x'); \
                new Worker('console.log(\"from a worker\", 6 * 7)', { eval: true });";
            works(caller, &[], &["node", "-e", script], "from a worker 42");
        }
        if installed("perl") {
            works(
                caller,
                &[],
                &["perl", "-MPOSIX", "-e", "print +(uname)[1], ' ', join ',', map { $_ ** 2 } 1..3"],
                "room 1,4,9",
            );
        }
        if installed("sqlite3") {
            works(
                caller,
                &[],
                &["sqlite3", "/tmp/x.db", "create table t(a); insert into t values(7); select a from t"],
                "7",
            );
        }
    });
}

#[test]
fn git_keeps_history() {
    for_each_privilege(|caller| {
        if !installed("git") {
            return;
        }
        let script = "set -e; git init -q repo; cd repo; git config user.name a; git config user.email a@b; \
            echo one > f; git add f; git commit -qm first; echo two >> f; git commit -qam second; \
            git clone -q . ../copy; git -C ../copy log --oneline | wc -l; git gc -q; git status --short";
        works(caller, &[], &["sh", "-c", script], "2\n");
    });
}

#[test]
fn git_works_in_a_workspace_of_the_host() {
    for_each_privilege(|caller| {
        if !installed("git") {
            return;
        }
        let dir = caller.make_dir("repo");
        let script = "set -e; git init -q .; \
            git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first; git log --format=%s";
        works(caller, &["--workspace", dir.to_str().expect("plain")], &["sh", "-c", script], "first");
    });
}

const HELLO_C: &str = r#"cat > hello.c <<'C'
#include <pthread.h>
#include <stdio.h>
static void *say(void *word) { puts(word); return 0; }
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, say, "hello from a thread");
    return pthread_join(t, 0);
}
C
gcc -g -O0 -pthread -o hello hello.c && "#;

#[test]
fn gcc_builds_and_gdb_debugs() {
    for_each_privilege(|caller| {
        if !installed("gcc") {
            return;
        }
        works(caller, &[], &["sh", "-c", &format!("{HELLO_C} ./hello")], "hello from a thread");
        if installed("gdb") {
            let debug = "gdb -nx -batch -ex 'break say' -ex run -ex bt \
                -ex 'print (char *) word' -ex continue ./hello 2>&1";
            let outcome = caller.sh(&[], &format!("{HELLO_C} {debug}"));
            for words in ["Breakpoint 1,", "#0  say (word=", "hello from a thread", "exited normally"] {
                assert!(outcome.out.contains(words), "{words}: {outcome:?}");
            }
        }
        if installed("strace") {
            works(
                caller,
                &[],
                &["sh", "-c", "strace -f -o /tmp/trace true && grep -q execve /tmp/trace && echo traced"],
                "traced",
            );
        }
    });
}

#[test]
fn rust_builds_with_a_toolchain_from_outside_usr() {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let Some(sysroot) = sysroot.ok().and_then(|output| String::from_utf8(output.stdout).ok()) else {
        println!("skipped: no rustc");
        return;
    };
    let sysroot = sysroot.trim().to_owned();
    for_each_privilege(|caller| {
        let reachable = finish({
            let mut test = caller.command("test");
            test.args(["-x", &format!("{sysroot}/bin/rustc")]);
            test
        });
        if reachable.code != 0 || !Path::new("/usr/bin/cc").exists() {
            println!("skipped: {sysroot} is closed to this user, or there is no linker");
            return;
        }
        let shown = format!("{sysroot}:/opt/rust");
        let options = ["--ro", &shown, "--env", "PATH=/opt/rust/bin:/usr/bin:/bin"];
        works(caller, &options, &["rustc", "--version"], "rustc ");
        let script =
            "set -e; echo 'fn main() { println!(\"hello from {}\", \"rust\") }' > h.rs; rustc h.rs; ./h";
        works(caller, &options, &["sh", "-c", script], "hello from rust");
        let script = "set -e; cargo init -q --vcs none --name tiny p; cd p; cargo run -q --offline";
        works(caller, &options, &["sh", "-c", script], "Hello, world!");
    });
}

#[test]
fn processes_can_be_listed_and_controlled() {
    for_each_privilege(|caller| {
        if installed("ps") {
            let said = caller.says(&[], "sleep 1000 & ps -e -o pid,args");
            assert!(said.contains("sleep 1000") && said.lines().count() <= 8, "{said}");
        }
        if installed("top") {
            works(caller, &[], &["top", "-b", "-n", "1"], "PID");
        }
        if installed("bash") {
            let jobs = "set -m; sleep 1000 & kill -STOP %1; \
                while ! jobs | grep -q Stopped; do sleep 0.01; done; \
                kill -CONT %1; jobs; kill %1; wait %1; echo \"ended $?\"";
            works(caller, &[], &["bash", "-c", jobs], "ended 143");
            works(
                caller,
                &[],
                &["bash", "-c", "cat <(echo substituted) | tee >(cat >/dev/null); ulimit -c"],
                "substituted",
            );
        }
        works(
            caller,
            &[],
            &["sh", "-c", "nice -n 5 true; timeout 5 true; nproc; date; df -h / > /dev/null; echo fine"],
            "fine",
        );
    });
}

#[test]
fn unix_sockets_and_pipes_connect_processes() {
    for_each_privilege(|caller| {
        if !installed("python3") {
            return;
        }
        let script = r#"
import os, socket
for name in ["/tmp/s", "/workspace/s", "\0abstract"]:
    server = socket.socket(socket.AF_UNIX); server.bind(name); server.listen()
    if os.fork() == 0:
        client = socket.socket(socket.AF_UNIX); client.connect(name); client.sendall(b"hi"); os._exit(0)
    peer, _ = server.accept(); assert peer.recv(10) == b"hi"; os.wait()
a, b = socket.socketpair(); socket.send_fds(a, [b"f"], [1]); assert socket.recv_fds(b, 1, 1)[1]
os.mkfifo("/tmp/fifo")
if os.fork() == 0:
    open("/tmp/fifo", "w").write("through"); os._exit(0)
assert open("/tmp/fifo").read() == "through"
print("connected")"#;
        works(caller, &[], &["python3", "-c", script], "connected");
    });
}

#[test]
fn servers_listen_on_loopback() {
    for_each_privilege(|caller| {
        if !installed("python3") {
            return;
        }
        // The standard server as people start it, on a low and a high port; the page is waited for.
        let script = r#"
echo 'a page' > index.html
for port in 80 8080; do
    python3 -u -m http.server $port --bind 127.0.0.1 > log.$port 2>&1 &
    python3 - $port <<'PY'
import sys, time, urllib.request
for attempt in range(400):
    try:
        page = urllib.request.urlopen(f"http://localhost:{sys.argv[1]}/").read().decode()
        print(sys.argv[1], page.strip()); break
    except OSError: time.sleep(0.05)
PY
done"#;
        let outcome = caller.sh(&[], script);
        assert_eq!(outcome.out, "80 a page\n8080 a page\n", "{outcome:?}");
        let both = "import socket
for family, address in [(socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')]:
    s = socket.socket(family); s.bind((address, 0)); s.listen()
    c = socket.create_connection(s.getsockname()[:2]); c.sendall(b'x'); assert s.accept()[0].recv(1) == b'x'
    u = socket.socket(family, socket.SOCK_DGRAM); u.bind((address, 0)); u.sendto(b'y', u.getsockname())
    assert u.recv(1) == b'y'
print('both families')";
        works(caller, &[], &["python3", "-c", both], "both families");
    });
}

#[test]
fn archives_and_links_behave() {
    for_each_privilege(|caller| {
        let script = "set -e; mkdir -p a/b; echo x > a/b/f; ln -s b a/l; ln a/b/f a/hard; tar cf t.tar a; \
            mkdir out; tar xf t.tar -C out; cmp out/a/l/f a/b/f; stat -c %h out/a/hard; mv a renamed; \
            cp -a renamed copy; rm -r renamed out; find copy | wc -l";
        assert_eq!(caller.says(&[], script), "2\n5\n");
        // Files of the system, copied up and renamed, as package managers do.
        works(
            caller,
            &[],
            &["sh", "-c", "cp /usr/bin/env /tmp/e && chmod 755 /tmp/e && /tmp/e true && echo executed"],
            "executed",
        );
    });
}
