//! The unsafe floor of the crate: raw system calls, forked children with a time limit, and a few safe faces.
//!
//! Everything else is built on these, so that the rest of the crate reads as a list of attempts.

use std::ffi::CStr;
use std::fmt::{self, Display};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A kernel error number, shown by its name because that is what a reader of the table looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// The answers of a filter: a call that was let through gives these only for lack of privilege.
    pub(crate) fn is_refusal(self) -> bool {
        self.0 == libc::EPERM || self.0 == libc::ENOSYS
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(0))
    }
}

impl Display for Errno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            libc::EPERM => "EPERM",
            libc::ENOENT => "ENOENT",
            libc::ESRCH => "ESRCH",
            libc::EINTR => "EINTR",
            libc::EIO => "EIO",
            libc::ENXIO => "ENXIO",
            libc::E2BIG => "E2BIG",
            libc::ENOEXEC => "ENOEXEC",
            libc::EBADF => "EBADF",
            libc::EAGAIN => "EAGAIN",
            libc::ENOMEM => "ENOMEM",
            libc::EACCES => "EACCES",
            libc::EFAULT => "EFAULT",
            libc::EBUSY => "EBUSY",
            libc::EEXIST => "EEXIST",
            libc::EXDEV => "EXDEV",
            libc::ENODEV => "ENODEV",
            libc::ENOTDIR => "ENOTDIR",
            libc::EISDIR => "EISDIR",
            libc::EINVAL => "EINVAL",
            libc::ENFILE => "ENFILE",
            libc::EMFILE => "EMFILE",
            libc::ENOTTY => "ENOTTY",
            libc::ETXTBSY => "ETXTBSY",
            libc::EFBIG => "EFBIG",
            libc::ENOSPC => "ENOSPC",
            libc::EROFS => "EROFS",
            libc::EMLINK => "EMLINK",
            libc::ENOSYS => "ENOSYS",
            libc::ELOOP => "ELOOP",
            libc::EOPNOTSUPP => "EOPNOTSUPP",
            libc::EAFNOSUPPORT => "EAFNOSUPPORT",
            libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
            libc::ESOCKTNOSUPPORT => "ESOCKTNOSUPPORT",
            libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
            libc::ENETUNREACH => "ENETUNREACH",
            libc::EHOSTUNREACH => "EHOSTUNREACH",
            libc::ECONNREFUSED => "ECONNREFUSED",
            libc::ETIMEDOUT => "ETIMEDOUT",
            libc::EDQUOT => "EDQUOT",
            other => return write!(out, "errno {other}"),
        };
        out.write_str(name)
    }
}

pub(crate) type Args = [usize; 6];

/// Arguments that no call accepts: a call that complains about them was not filtered.
pub(crate) const BAD: Args = [usize::MAX; 6];

/// Pads a list of arguments to the six that every call takes.
pub(crate) fn args(list: &[usize]) -> Args {
    let mut padded = [0; 6];
    padded[..list.len()].copy_from_slice(list);
    padded
}

/// The address of a literal, for an argument list.
pub(crate) fn text(literal: &'static CStr) -> usize {
    literal.as_ptr() as usize
}

/// The address of a value, for an argument list. The caller keeps the value alive for the call.
pub(crate) fn address<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).cast::<u8>().expose_provenance()
}

/// The address of a value that the kernel fills in.
pub(crate) fn room_for<T: ?Sized>(value: &mut T) -> usize {
    std::ptr::from_mut(value).cast::<u8>().expose_provenance()
}

/// One system call, exactly as given: no library wrapper that would check or split it.
pub(crate) fn raw(nr: libc::c_long, args: Args) -> Result<i64, Errno> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: callers pass addresses of values that they own and keep, or addresses that the kernel refuses
    // with EFAULT; a call that could change this process's memory map is only made in a child that then exits.
    let got = unsafe { libc::syscall(nr, a, b, c, d, e, f) };
    if got == -1 { Err(Errno::last()) } else { Ok(got) }
}

/// `raw` for calls whose result is a descriptor, which is closed with the value.
pub(crate) fn raw_fd(nr: libc::c_long, args: Args) -> Result<OwnedFd, Errno> {
    let fd = raw(nr, args)?;
    // SAFETY: the kernel has just made this descriptor for us and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exited(i32),
    Killed { signal: i32, core: bool },
    TimedOut,
}

/// A child's end and all that it said until then.
pub(crate) struct Child {
    pub(crate) said: String,
    pub(crate) end: End,
}

/// The child's way to report; what was said before it was killed still arrives.
pub(crate) struct Voice(File);

impl Voice {
    pub(crate) fn say(&mut self, what: impl Display) {
        // A parent that is gone cannot be told; the child ends by itself soon after.
        let _ = writeln!(self.0, "{what}");
    }
}

/// Runs `body` in a forked child and waits for it, at most `limit`; then it is killed.
///
/// Probes are single-threaded when they fork, so the child may allocate and use the standard library.
pub(crate) fn in_child(limit: Duration, body: impl FnOnce(&mut Voice)) -> Result<Child, Errno> {
    let deadline = Instant::now() + limit;
    let mut ends = [0i32; 2];
    raw(libc::SYS_pipe2, args(&[room_for(&mut ends), libc::O_CLOEXEC as usize]))?;
    // SAFETY: pipe2 has just made both descriptors for us.
    let (reader, writer) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    let pid = fork()?;
    if pid == 0 {
        drop(reader);
        die_with_parent();
        body(&mut Voice(writer));
        exit_now(0);
    }
    drop(writer);
    let said = read_until(reader, deadline);
    let end = wait_until(pid, deadline);
    Ok(Child { said, end })
}

fn read_until(mut reader: File, deadline: Instant) -> String {
    let mut said = Vec::new();
    let mut buffer = [0u8; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis() as usize;
        let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        match raw(libc::SYS_poll, args(&[room_for(&mut poll), 1, left])) {
            Ok(1..) => match reader.read(&mut buffer) {
                Ok(count @ 1..) => said.extend_from_slice(&buffer[..count]),
                _ => break,
            },
            Err(Errno(libc::EINTR)) => {}
            _ => break,
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// Waits for a child without blocking past the deadline: one that has exec'ed keeps no pipe to watch.
pub(crate) fn wait_until(pid: i32, deadline: Instant) -> End {
    loop {
        if let Some(end) = reap(pid, libc::WNOHANG) {
            return end;
        }
        if Instant::now() >= deadline {
            kill(pid, libc::SIGKILL).ok();
            reap(pid, 0);
            return End::TimedOut;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Collects a child if it has ended; with no options it waits for that.
pub(crate) fn reap(pid: i32, options: i32) -> Option<End> {
    let mut status = 0i32;
    let got = raw(libc::SYS_wait4, args(&[pid as usize, room_for(&mut status), options as usize]));
    match got {
        Ok(0) => None,
        Ok(_) if libc::WIFSIGNALED(status) => {
            Some(End::Killed { signal: libc::WTERMSIG(status), core: libc::WCOREDUMP(status) })
        }
        Ok(_) => Some(End::Exited(libc::WEXITSTATUS(status))),
        Err(_) => Some(End::Exited(0)),
    }
}

/// Splits the process: 0 in the child.
pub(crate) fn fork() -> Result<i32, Errno> {
    // SAFETY: probes are single-threaded here, so no lock can be held by a thread that the child lacks.
    let pid = unsafe { libc::fork() };
    if pid < 0 { Err(Errno::last()) } else { Ok(pid) }
}

/// Ends a child at once: no destructors, which would undo what the parent still uses.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit touches no memory of ours.
    unsafe { libc::_exit(code) }
}

/// A probe that is killed from outside must not leave its children behind.
pub(crate) fn die_with_parent() {
    raw(libc::SYS_prctl, args(&[libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize])).ok();
}

pub(crate) fn kill(pid: i32, signal: i32) -> Result<i64, Errno> {
    raw(libc::SYS_kill, args(&[pid as usize, signal as usize]))
}

/// Replaces this process; only the error comes back. The list must end with the last argument, without null.
pub(crate) fn exec(program: &CStr, argument: &CStr) -> Errno {
    let argv = [program.as_ptr(), argument.as_ptr(), std::ptr::null()];
    let environment = [std::ptr::null::<libc::c_char>()];
    raw(libc::SYS_execve, args(&[program.as_ptr() as usize, address(&argv), address(&environment)]))
        .err()
        .unwrap_or(Errno(0))
}

/// How many bytes of a file are in memory, as the kernel sees it.
pub(crate) fn resident_bytes(file: &File, length: usize) -> Result<u64, Errno> {
    let page = 4096usize;
    let fd = file.as_raw_fd() as usize;
    let protection = libc::PROT_READ as usize;
    let at = raw(libc::SYS_mmap, [0, length, protection, libc::MAP_SHARED as usize, fd, 0])? as usize;
    let mut pages = vec![0u8; length.div_ceil(page)];
    let looked = raw(libc::SYS_mincore, args(&[at, length, room_for(pages.as_mut_slice())]));
    raw(libc::SYS_munmap, args(&[at, length]))?;
    looked?;
    Ok(pages.iter().filter(|&&flags| flags & 1 == 1).count() as u64 * page as u64)
}

/// Processor time of this process, all threads, user and system.
pub(crate) fn cpu_time() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is large enough and all-zero is a valid value of it, also if the call fails.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let one = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    one(usage.ru_utime) + one(usage.ru_stime)
}

/// Sets the soft limit to the hard one, as any attacker would first, and says what it is now.
pub(crate) fn raise_soft_limit(which: usize) -> Result<u64, Errno> {
    let mut limit = [0u64; 2];
    raw(libc::SYS_prlimit64, args(&[0, which, 0, room_for(&mut limit)]))?;
    limit[0] = limit[1];
    raw(libc::SYS_prlimit64, args(&[0, which, address(&limit), 0]))?;
    Ok(limit[1])
}

unsafe extern "C" {
    fn inet_aton(text: *const libc::c_char, address: *mut libc::in_addr) -> libc::c_int;
}

/// The C library's generous reading of an IPv4 address: decimal, hexadecimal, octal, fewer than four parts.
pub(crate) fn generous_ipv4(spelling: &CStr) -> Option<std::net::Ipv4Addr> {
    let mut address = libc::in_addr { s_addr: 0 };
    // SAFETY: both pointers are valid for the call, which reads a terminated text and writes four bytes.
    let understood = unsafe { inet_aton(spelling.as_ptr(), &raw mut address) };
    (understood == 1).then(|| std::net::Ipv4Addr::from(u32::from_be(address.s_addr)))
}

/// getpid through the 32-bit entry of the kernel, which a filter for the native architecture does not see.
#[cfg(target_arch = "x86_64")]
pub(crate) fn getpid_by_int80() -> i64 {
    let mut result: i64 = 20;
    // SAFETY: call 20 of the 32-bit table is getpid, which takes nothing and touches no memory; the kernel
    // may clear r8 to r11 on this entry, so they are given up.
    unsafe {
        std::arch::asm!("int 0x80", inout("rax") result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _, options(nostack));
    }
    result
}

/// A shared memory segment, a semaphore set and a message queue under one key, which all may read. They go with the value.
pub(crate) struct SysV {
    ids: [i32; 3],
}

impl SysV {
    /// Never what somebody else has under this key: it would go with the value.
    pub(crate) fn create(key: i32) -> std::io::Result<SysV> {
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o644;
        let mut made = SysV { ids: [-1; 3] };
        for (at, id) in made.ids.iter_mut().enumerate() {
            // SAFETY: the three calls take integers only.
            *id = unsafe {
                match at {
                    0 => libc::shmget(key, 4096, flags),
                    1 => libc::semget(key, 1, flags),
                    _ => libc::msgget(key, flags),
                }
            };
            if *id < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(made)
    }

    pub(crate) fn remove_by_key(key: i32) {
        // SAFETY: the three calls take integers only; without IPC_CREAT they make nothing.
        let ids = unsafe { [libc::shmget(key, 0, 0), libc::semget(key, 0, 0), libc::msgget(key, 0)] };
        drop(SysV { ids });
    }
}

impl Drop for SysV {
    fn drop(&mut self) {
        // SAFETY: IPC_RMID ignores its pointer argument, and -1 is the id of nothing.
        unsafe {
            libc::shmctl(self.ids[0], libc::IPC_RMID, std::ptr::null_mut());
            libc::semctl(self.ids[1], 0, libc::IPC_RMID);
            libc::msgctl(self.ids[2], libc::IPC_RMID, std::ptr::null_mut());
        }
    }
}

/// A POSIX message queue that everyone may open for reading. It goes with the value.
pub(crate) struct Queue(String);

impl Queue {
    pub(crate) fn create(name: &str) -> std::io::Result<Queue> {
        let text = std::ffi::CString::new(name)?;
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        // SAFETY: a valid name, and a null pointer for the default attributes.
        let fd = unsafe { libc::mq_open(text.as_ptr(), flags, 0o644, std::ptr::null::<()>()) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened and is nobody else's. The umask must not keep attackers out.
        unsafe {
            libc::fchmod(fd, 0o644);
            libc::close(fd);
        }
        Ok(Queue(name.to_owned()))
    }

    pub(crate) fn remove(name: &str) {
        if let Ok(name) = std::ffi::CString::new(name) {
            // SAFETY: a valid name.
            unsafe { libc::mq_unlink(name.as_ptr()) };
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        Queue::remove(&self.0);
    }
}

/// Lets a program bind low ports, whoever runs it: a capability that is easily seen and does no harm.
pub(crate) fn give_capability(program: &Path) -> Result<(), Errno> {
    // Revision 2, effective; CAP_NET_BIND_SERVICE permitted.
    let capability = [0x0200_0001u32, 1 << 10, 0, 0, 0];
    let path = std::ffi::CString::new(program.as_os_str().as_bytes()).map_err(|_| Errno(libc::EINVAL))?;
    let name = c"security.capability";
    let call = [path.as_ptr() as usize, name.as_ptr() as usize, address(&capability), 20, 0, 0];
    raw(libc::SYS_setxattr, call).map(|_| ())
}

/// Odd, since 0 as a key would mean an object that nobody else can find.
pub(crate) fn random() -> std::io::Result<u32> {
    let mut number = 0u32;
    raw(libc::SYS_getrandom, args(&[room_for(&mut number), 4, 0]))
        .map_err(|errno| std::io::Error::from_raw_os_error(errno.0))?;
    Ok(number | 1)
}

pub(crate) fn is_root() -> bool {
    // SAFETY: only asks.
    unsafe { libc::geteuid() == 0 }
}
