//! New processes by `clone3`, without exec: a copy of this process that goes on in a closure.

use crate::check;
use crate::seccomp::LauncherKey;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Of clone3 alone; the C library's constant is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What a new process gets of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CloneFlags(u64);

impl CloneFlags {
    pub const NONE: Self = Self(0);
    pub const NEW_USER: Self = Self(libc::CLONE_NEWUSER as u64);
    pub const NEW_PID: Self = Self(libc::CLONE_NEWPID as u64);
    /// The new process is a sibling: its end is told to this process's parent.
    pub const PARENT: Self = Self(libc::CLONE_PARENT as u64);

    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn and_if(self, condition: bool, other: Self) -> Self {
        if condition { self.and(other) } else { self }
    }
}

/// A process made by [`clone_process`] or [`clone_sibling_process`].
#[derive(Debug)]
pub struct Cloned {
    pub pid: i32,
    pub pidfd: OwnedFd,
}

/// Copies this process; the copy runs `child` and ends with the status it returns.
///
/// Only for single-threaded processes: the copy has only the calling thread, so a lock that another thread
/// held (the allocator's, say) would stay locked in it for ever.
pub fn clone_process(
    flags: CloneFlags,
    cgroup: Option<BorrowedFd<'_>>,
    child: impl FnOnce() -> i32,
) -> io::Result<Cloned> {
    clone_with(flags, cgroup, [0, 0], child)
}

/// The same for a process behind a filter, which is shown `key`: the copy is a sibling, whose end is told to this
/// process's parent.
pub fn clone_sibling_process(
    cgroup: Option<BorrowedFd<'_>>,
    key: LauncherKey,
    child: impl FnOnce() -> i32,
) -> io::Result<Cloned> {
    clone_with(CloneFlags::PARENT, cgroup, key.words(), child)
}

fn clone_with(
    flags: CloneFlags,
    cgroup: Option<BorrowedFd<'_>>,
    [fifth, sixth]: [u64; 2],
    child: impl FnOnce() -> i32,
) -> io::Result<Cloned> {
    let mut pidfd: libc::c_int = -1;
    // SAFETY: `clone_args` is plain integers; all zeroes is a valid value and the kernel's own default.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags.0 | libc::CLONE_PIDFD as u64;
    args.pidfd = &raw mut pidfd as u64;
    // A sibling tells its end to our parent with the signal that our own end sends.
    args.exit_signal = if flags.0 & libc::CLONE_PARENT as u64 != 0 { 0 } else { libc::SIGCHLD as u64 };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    let size = size_of::<libc::clone_args>();
    // SAFETY: without CLONE_VM and with no stack given this is a fork: the child returns here on a private
    // copy of the same stack. `args` outlives the call and `pidfd` is a valid place for the kernel to write. The
    // kernel does not look at the arguments behind the second.
    let pid =
        check(unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size, 0u64, 0u64, fifth, sixth) })?;
    if pid == 0 {
        let status = child();
        // SAFETY: ends the process at once; nothing of the parent's is flushed or run twice.
        unsafe { libc::_exit(status) }
    }
    // SAFETY: the kernel wrote a new descriptor there, which nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Cloned { pid: pid as i32, pidfd })
}

/// Stacks for [`Borrower`]: deep enough for what happens between clone and exec.
const STACK_SIZE: usize = 64 << 10;

/// Makes processes that borrow this one's memory until they execute a program or end, as vfork(2) does:
/// nothing is copied, and this process waits meanwhile.
pub struct Borrower {
    /// Not zeroed: of most of it no page is ever touched, in any room.
    stack: Box<[MaybeUninit<u128>]>,
}

impl Default for Borrower {
    fn default() -> Self {
        Self { stack: Box::new_uninit_slice(STACK_SIZE / size_of::<u128>()) }
    }
}

impl Borrower {
    /// Runs `child` in a new process that is a sibling of this one, born in `cgroup` if there is one. The filter that
    /// this process is behind is shown `key`. What the child writes to memory stays, so `child` can leave word of why it came back instead of executing.
    pub fn clone_sibling(
        &mut self,
        cgroup: Option<BorrowedFd<'_>>,
        key: LauncherKey,
        child: &mut dyn FnMut(),
    ) -> io::Result<i32> {
        // SAFETY: as above.
        let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
        args.flags = (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT) as u64;
        args.stack = self.stack.as_mut_ptr() as u64;
        args.stack_size = (self.stack.len() * size_of::<u128>()) as u64;
        if let Some(cgroup) = cgroup {
            args.flags |= CLONE_INTO_CGROUP;
            args.cgroup = cgroup.as_raw_fd() as u64;
        }
        let mut child: &mut dyn FnMut() = child;
        let argument: *mut &mut dyn FnMut() = &raw mut child;
        let [fifth, sixth] = key.words();
        let answer: i64;
        // SAFETY: the child starts on a stack of its own, which nothing else uses because this process is
        // suspended until the child executes a program or ends (CLONE_VFORK), and calls `enter`, which never
        // returns. The parent goes on behind the call with its own stack untouched. The kernel keeps every
        // register but those named as outputs.
        unsafe {
            std::arch::asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "xor ebp, ebp",
                "mov rdi, r13",
                "call r12",
                "ud2",
                "2:",
                inlateout("rax") libc::SYS_clone3 => answer,
                in("rdi") &raw mut args,
                in("rsi") size_of::<libc::clone_args>(),
                in("r8") fifth,
                in("r9") sixth,
                in("r12") enter as extern "C" fn(*mut &mut dyn FnMut()) -> !,
                in("r13") argument,
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
        if answer < 0 { Err(io::Error::from_raw_os_error(-answer as i32)) } else { Ok(answer as i32) }
    }
}

extern "C" fn enter(child: *mut &mut dyn FnMut()) -> ! {
    // SAFETY: points to the closure on the suspended parent's stack, which nobody else touches meanwhile.
    unsafe {
        (*child)();
        libc::_exit(127)
    }
}
