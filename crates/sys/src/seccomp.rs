//! Loading a seccomp filter. What the filter says is decided elsewhere.

use crate::check;
use std::io;

/// One instruction of classic BPF, laid out as the kernel reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// What a launcher shows a filter to be let through: a number in arguments that the call itself does not use.
///
/// It is made for one room and never leaves its launcher's memory, which no command shares once it has executed its
/// program, and the registers of a call, which only a tracer of the launcher could read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LauncherKey([u64; 2]);

impl LauncherKey {
    pub fn random() -> io::Result<LauncherKey> {
        let mut bytes = [0u8; 16];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let [first, second] = [0, 8].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        });
        Ok(LauncherKey([first, second]))
    }

    pub const fn from_words(words: [u64; 2]) -> LauncherKey {
        LauncherKey(words)
    }

    /// What the fifth and the sixth argument must be.
    pub const fn words(self) -> [u64; 2] {
        self.0
    }
}

/// Puts this process, and all it starts, behind `program` for ever. Needs no_new_privs.
pub fn install(program: &[Instruction]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: `filter` points to `len` instructions of the kernel's own layout (repr(C), same fields as
    // `sock_filter`), which the kernel only reads and copies.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) })
        .map(drop)
}

/// Whether the kernel knows an action.
pub fn action_available(action: u32) -> bool {
    // SAFETY: reads one u32.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
    answer == 0
}
