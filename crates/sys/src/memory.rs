//! Memory: what was freed and goes back to the machine, and what processes share.

use std::io;
use std::sync::atomic::AtomicU64;

/// Gives back what the allocator keeps of what was freed: it keeps all of it wherever something smaller that is still
/// in use lies above. Threads that allocate meanwhile wait for it, for milliseconds.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer, and touches only memory that is nobody's, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A number, zero at first, that this process shares with all that are copied from it afterwards, for as long as they live.
pub fn shared_number() -> io::Result<&'static AtomicU64> {
    // SAFETY: asks for new memory wherever there is some; nothing that is mapped already changes.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<AtomicU64>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the beginning of a page of zeroes, which is a valid and aligned number. Nobody unmaps it, and whoever else has it only
    // has it as this.
    Ok(unsafe { &*page.cast::<AtomicU64>() })
}

#[cfg(test)]
mod tests {
    use crate::clone::{CloneFlags, clone_process};
    use std::sync::atomic::Ordering;

    #[test]
    fn a_number_is_shared_by_processes_in_both_directions() {
        let number = super::shared_number().unwrap();
        assert_eq!(number.load(Ordering::Acquire), 0);
        let child = clone_process(CloneFlags::NONE, None, || {
            number.store(7, Ordering::Release);
            while number.load(Ordering::Acquire) == 7 {
                std::hint::spin_loop();
            }
            number.store(9, Ordering::Release);
            0
        })
        .unwrap();
        while number.load(Ordering::Acquire) != 7 {
            std::thread::yield_now();
        }
        number.store(8, Ordering::Release);
        let ended = rustix::process::WaitIdOptions::EXITED;
        let pidfd = std::os::fd::AsFd::as_fd(&child.pidfd);
        rustix::process::waitid(rustix::process::WaitId::PidFd(pidfd), ended).unwrap();
        assert_eq!(number.load(Ordering::Acquire), 9);
    }

    const PIECE: usize = 1 << 10;
    const PIECES: usize = 64 << 10;

    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn what_was_freed_below_something_in_use_goes_back() {
        let mut pieces: Vec<Box<[u8]>> = (0..PIECES).map(|_| vec![1; PIECE].into_boxed_slice()).collect();
        let last = pieces.pop();
        let full = resident();
        drop(pieces);
        super::give_back();
        let left = resident();
        assert!(left + PIECE * PIECES / 2 < full, "{full} bytes, then {left}");
        drop(last);
    }
}
