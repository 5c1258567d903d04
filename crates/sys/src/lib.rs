//! The only `unsafe` of the workspace: a safe face for each kernel call that the standard library and
//! rustix do not offer. One file per subject; every block says why it holds.

pub mod btrfs;
pub mod clone;
pub mod exec;
pub mod lock;
pub mod loop_device;
pub mod memory;
pub mod mount;
pub mod namespace;
pub mod net;
pub mod origin;
pub mod place;
pub mod project_quota;
#[cfg(feature = "async")]
pub mod readiness;
pub mod seccomp;
pub mod signal;
pub mod tun;
pub mod wait;

use std::io;

/// Turns a raw system call's answer into a result.
fn check(answer: libc::c_long) -> io::Result<libc::c_long> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// The Landlock version that this kernel offers, 0 without Landlock.
pub fn landlock_version() -> i32 {
    const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no attributes and only answers a number.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    answer.max(0) as i32
}
