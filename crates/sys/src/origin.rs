//! Forgetting where a process came from: the command line and environment it was started with.

use std::io;

/// Overwrites this process's command line and environment in memory; from now on it is called `title`.
///
/// For a clone that goes on to serve others: what its caller was told must not be in it, and
/// `/proc/PID/cmdline` is readable to all. Nothing in the process may look at its arguments or environment
/// afterwards, and it must have one thread.
pub fn forget_origin(title: &str) -> io::Result<()> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The second field is a name in parentheses, which may hold anything; the third follows the last of them.
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest).unwrap_or_default();
    // arg_start, arg_end, env_start, env_end are fields 48 to 51 of proc_pid_stat(5).
    let addresses: Vec<usize> =
        fields.split(' ').skip(45).take(4).filter_map(|field| field.trim().parse().ok()).collect();
    let &[arg_start, arg_end, env_start, env_end] = addresses.as_slice() else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    // SAFETY: both ranges are the strings that the kernel put on this process's own stack when it was executed;
    // the stack is writable and never moves, and by contract nobody reads them as arguments any more.
    unsafe {
        for (start, end) in [(arg_start, arg_end), (env_start, env_end)] {
            if start != 0 && end > start {
                std::ptr::write_bytes(std::ptr::with_exposed_provenance_mut::<u8>(start), 0, end - start);
            }
        }
        let room = arg_end.saturating_sub(arg_start).saturating_sub(1);
        let shown = &title.as_bytes()[..title.len().min(room)];
        let target = std::ptr::with_exposed_provenance_mut::<u8>(arg_start);
        std::ptr::copy_nonoverlapping(shown.as_ptr(), target, shown.len());
        libc::clearenv();
    }
    Ok(())
}

/// Asks `question` of the first two words of the command line, leaving no copy of any of it in memory.
///
/// The standard library would copy all arguments to the heap, where a clone would inherit them.
pub fn ask_command_line<T>(question: impl FnOnce(&[u8], &[u8]) -> T) -> io::Result<T> {
    let mut buffer = [0u8; 4096];
    let file = rustix::fs::open(
        "/proc/self/cmdline",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    let read = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut buffer[..]))?;
    let mut words = buffer[..read].split(|&byte| byte == 0);
    let answer = question(words.next().unwrap_or_default(), words.next().unwrap_or_default());
    buffer.fill(0);
    std::hint::black_box(&buffer);
    Ok(answer)
}
