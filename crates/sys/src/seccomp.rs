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
