# Hides a word in one kind of place. Says `hidden`, or why that cannot be done in this room.
import ctypes, os, socket, subprocess, sys, time

kind, word = sys.argv[1], sys.stdin.readline().strip()
data = word.encode()
libc = ctypes.CDLL(None, use_errno=True)

def write(path, content=data):
    with open(path, "wb") as file:
        file.write(content)

def writable_places():
    places = []
    for place in ["/workspace", "/tmp", "/var/tmp", "/run", "/dev/shm", "/etc", "/opt", "/srv", "/mnt", "/media",
                  "/root", "/home", "/var", "/var/lib", "/var/log", "/", os.environ.get("HOME", "/"), "/run/lock", "/dev"]:
        if os.path.isdir(place) and os.access(place, os.W_OK):
            places.append(place)
    return places

def background(code):
    """A process of its own session that nobody waits for."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open("/dev/null", os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            code()
            os._exit(0)
        os._exit(0)
    os.wait()

def everywhere():
    hidden = 0
    for place in writable_places():
        try:
            write(os.path.join(place, "." + word))
            hidden += 1
        except OSError:
            pass
    return hidden > 0

def odd_names():
    os.makedirs(b"/workspace/a\nb/\xff\xfe/-rf", exist_ok=True)
    os.chdir(b"/workspace/a\nb/\xff\xfe/-rf")
    for name in [b"\n", b"\\", b" ", b"*", b"\xf0\x9f\x98", b"x" * 255, b"...", data]:
        write(name)
    for _ in range(60):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    write("deep")
    return True

def attributes():
    write("/workspace/plain", b"nothing")
    os.setxattr("/workspace/plain", "user.note", data)
    os.setxattr("/workspace", "user.note", data)
    return True

def closed_trees():
    os.makedirs("/workspace/closed/inner")
    write("/workspace/closed/inner/file")
    os.symlink("/workspace/closed", "/workspace/to-dir")
    os.symlink(word, "/workspace/to-nothing")
    os.symlink("/proc/1/root", "/workspace/closed/inner/out")
    os.chmod("/workspace/closed/inner/file", 0)
    os.chmod("/workspace/closed/inner", 0)
    os.chmod("/workspace/closed", 0)
    os.chmod("/workspace", 0o555)
    return True

def fifo_and_socket():
    os.mkfifo("/tmp/" + word)
    held = socket.socket(socket.AF_UNIX)
    held.bind("/tmp/s-" + word)
    return True

def processes():
    subprocess.Popen(["sleep", "1000"], env={"WORD": word}, start_new_session=True,
                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    background(lambda: os.execv("/bin/sh", [word, "-c", "while :; do sleep 1000; done"]))
    return True

def stopped_process():
    background(lambda: (os.kill(os.getpid(), 19), os.execv("/bin/sleep", [word, "1000"])))
    subprocess.Popen(["/bin/sh", "-c", "kill -STOP $$", word], stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return True

def many_processes():
    def breed():
        for _ in range(60):
            try:
                if os.fork() == 0:
                    os.execv("/bin/sleep", [word, "1000"])
            except OSError:
                pass
        time.sleep(1000)
    background(breed)
    time.sleep(0.2)
    return True

def writer():
    def forever():
        number = 0
        while True:
            number += 1
            try:
                write("/tmp/%s-%d" % (word, number % 50))
                write("/dev/shm/%s-%d" % (word, number % 50))
            except OSError:
                pass
    background(forever)
    time.sleep(0.05)
    return True

def abstract_socket():
    held = socket.socket(socket.AF_UNIX)
    held.bind("\0" + word)
    held.listen()
    background(lambda: time.sleep(1000))
    return True

def listener():
    held = socket.socket()
    held.bind(("127.0.0.1", 4321))
    held.listen()
    background(lambda: time.sleep(1000))
    return True

def shared_memory():
    shmget, shmat = libc.shmget, libc.shmat
    shmat.restype = ctypes.c_void_p
    segment = shmget(0x5ec7e7, 4096, 0o1666)
    if segment < 0:
        return "no shared memory: %d" % ctypes.get_errno()
    ctypes.memmove(shmat(segment, None, 0), data, len(data))
    return True

def message_queue():
    queue = libc.msgget(0x5ec7e7, 0o1666)
    if queue < 0:
        return "no message queues: %d" % ctypes.get_errno()
    class Message(ctypes.Structure):
        _fields_ = [("kind", ctypes.c_long), ("text", ctypes.c_char * 64)]
    libc.msgsnd(queue, ctypes.byref(Message(1, data)), 64, 0o4000)
    return True

def posix_queue():
    libc.mq_open.restype = ctypes.c_int
    queue = libc.mq_open(b"/" + data, os.O_RDWR | os.O_CREAT, 0o666, None)
    return True if queue >= 0 else "no POSIX queues: %d" % ctypes.get_errno()

def keyring():
    key = libc.syscall(248, b"user", data, data, len(data), -4)
    return True if key > 0 else "no keys: %d" % ctypes.get_errno()

def full_disk():
    try:
        with open("/dev/shm/fill-" + word, "wb") as file:
            for _ in range(64):
                file.write(data * 1000)
    except OSError:
        pass
    for number in range(3000):
        write("/workspace/%s-%d" % (word, number), b"")
    return True

def deleted_but_open():
    def hold():
        file = open("/tmp/held", "wb")
        file.write(data)
        file.flush()
        os.unlink("/tmp/held")
        os.chdir("/tmp")
        sleeper = os.memfd_create(word)
        os.write(sleeper, data)
        time.sleep(1000)
    background(hold)
    time.sleep(0.05)
    return True

def start_files():
    home = os.environ.get("HOME", "/root")
    for name in [".bashrc", ".profile", ".bash_profile", ".ssh/authorized_keys", ".config/autostart", ".netrc"]:
        path = os.path.join(home, name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write(path, b"echo " + data + b"\n")
        except OSError:
            pass
    for path in ["/etc/profile", "/etc/passwd", "/etc/hosts", "/etc/ld.so.preload", "/etc/cron.d/x"]:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "ab") as file:
                file.write(b"# " + data + b"\n")
        except OSError:
            pass
    return True

def kernel_names():
    try:
        socket.sethostname(word[:60])
    except OSError:
        pass
    for path in ["/proc/self/comm", "/proc/sys/kernel/domainname", "/proc/sys/kernel/core_pattern"]:
        try:
            write(path, data[:15])
        except OSError:
            pass
    return "nothing of the kernel can be named" if socket.gethostname() != word[:60] else True

done = globals()[kind]()
print("hidden" if done is True else "cannot: %s" % done)
