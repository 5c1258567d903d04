//! Memory that was freed, and goes back to the machine.

/// Gives back what the allocator keeps of what was freed: it keeps all of it wherever something smaller that is still
/// in use lies above. Threads that allocate meanwhile wait for it, for milliseconds.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer, and touches only memory that is nobody's, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
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
