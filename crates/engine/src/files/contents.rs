//! Contents of files: from a caller's stream into an open file of a room, and what such a file must be.

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::future::Future;
use std::io::{self, IoSlice, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use workroom_types::{Problem, ProblemCode};

/// As much as is written at once. Large, because each piece is handed to other threads and back.
const BATCH: usize = 1 << 20;

/// The same of a file that is known to be large by now.
const LARGE_BATCH: usize = 4 << 20;

/// How much of a file has come when it is.
const LARGE: u64 = 16 << 20;

/// File systems whose files are the kernel's own: what looks like a regular file there may wait for ever when it is
/// read, or do something when it is written.
const OF_THE_KERNEL: [u64; 8] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xcafe_4a11, // bpf
];

/// Where contents come from, piece by piece.
pub trait Source: Send {
    /// The next piece; nothing at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, Problem>> + Send;
}

/// What went through.
pub(crate) struct Poured {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// An open file that a room handed out, if it is one that the host may read, or write, without harm.
pub(crate) fn checked(fds: Vec<OwnedFd>, to_write: bool) -> Result<File, Problem> {
    let refuse = |why: &str| {
        Problem::new(
            ProblemCode::WrongKind,
            format!("the file cannot be opened from outside the room: {why}"),
            "use a command in the room",
        )
    };
    let [fd] = <[OwnedFd; 1]>::try_from(fds).map_err(|_| refuse("it was not handed out"))?;
    let look = || -> io::Result<_> {
        Ok((rustix::fs::fstat(&fd)?, rustix::fs::fstatfs(&fd)?, rustix::fs::fcntl_getfl(&fd)?))
    };
    let (stat, system, flags) = look().map_err(|error| refuse(&error.to_string()))?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(refuse("it is no regular file"));
    }
    if OF_THE_KERNEL.contains(&(system.f_type as u64)) {
        return Err(refuse("it is one of the kernel's own"));
    }
    let mode = flags & OFlags::RWMODE;
    let usable = if to_write { mode != OFlags::RDONLY } else { mode != OFlags::WRONLY };
    if flags.contains(OFlags::PATH) || !usable {
        return Err(refuse("it was handed out for something else"));
    }
    Ok(File::from(fd))
}

/// Writes all that a source has. While a batch is written and hashed, by a thread each, the next one is gathered. No thread
/// is held while a slow source is waited for, and no more than two batches are in memory.
pub(crate) async fn pour(source: &mut impl Source, file: File) -> Result<Poured, Problem> {
    let file = Arc::new(file);
    let (mut hash, mut bytes) = (Context::new(&SHA256), 0);
    let (mut batch, mut is_last) = gather(source, BATCH).await?;
    loop {
        bytes += batch.iter().map(|piece| piece.len() as u64).sum::<u64>();
        let (pieces, sink) = (batch.clone(), file.clone());
        let writing = tokio::task::spawn_blocking(move || write(&sink, &pieces));
        let hashing = tokio::task::spawn_blocking(move || {
            batch.iter().for_each(|piece| hash.update(piece));
            hash
        });
        let size = if bytes < LARGE { BATCH } else { LARGE_BATCH };
        let next = if is_last { None } else { Some(gather(source, size).await) };
        match writing.await {
            Ok(written) => written.map_err(|error| unwritten(&error))?,
            Err(_) => return Err(ending()),
        }
        hash = hashing.await.map_err(|_| ending())?;
        let Some(next) = next else { return Ok(Poured { bytes, sha256: hex(hash) }) };
        (batch, is_last) = next?;
    }
}

fn ending() -> Problem {
    Problem::new(ProblemCode::ShuttingDown, "the server is on its way down", "try again")
}

/// Pieces of a batch's size together, and whether they are the last.
async fn gather(source: &mut impl Source, enough: usize) -> Result<(Vec<Bytes>, bool), Problem> {
    let (mut batch, mut size) = (Vec::new(), 0);
    while size < enough {
        match source.next().await? {
            Some(piece) => {
                size += piece.len();
                batch.push(piece);
            }
            None => return Ok((batch, true)),
        }
    }
    Ok((batch, false))
}

fn write(mut file: &File, batch: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = batch.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut left = slices.as_mut_slice();
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match file.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut left, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn unwritten(error: &io::Error) -> Problem {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    match errno {
        Some(Errno::NOSPC | Errno::DQUOT) => Problem::new(
            ProblemCode::StorageUnavailable,
            "the disk is full; the file is as it was",
            "delete something, or write less",
        ),
        Some(Errno::FBIG) => Problem::new(
            ProblemCode::FileTooLarge,
            "the file is larger than the machine's file system takes; it is as it was",
            "write less",
        ),
        _ => Problem::new(
            ProblemCode::Internal,
            format!("the file was not written: {error}; it is as it was"),
            "",
        ),
    }
}

pub(crate) fn hex(hash: Context) -> String {
    hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::io::{Read, Seek};
    use std::os::fd::AsFd;

    struct Pieces(VecDeque<Result<Bytes, Problem>>);

    impl Source for Pieces {
        async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
            self.0.pop_front().transpose()
        }
    }

    fn memory() -> File {
        rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).expect("memory").into()
    }

    #[tokio::test]
    async fn all_pieces_arrive_in_their_order() {
        let pieces: Vec<Vec<u8>> = (0..50u8).map(|n| vec![n; usize::from(n) * 4000]).collect();
        let whole = pieces.concat();
        assert!(whole.len() > 2 * BATCH);
        let mut source = Pieces(pieces.into_iter().map(|piece| Ok(piece.into())).collect());
        let mut file = memory();
        let poured = pour(&mut source, file.try_clone().expect("a file")).await.expect("written");
        assert_eq!(poured.bytes, whole.len() as u64);
        file.rewind().expect("a file");
        let mut there = Vec::new();
        file.read_to_end(&mut there).expect("a file");
        assert!(there == whole);
        let empty = pour(&mut Pieces(VecDeque::new()), memory()).await.expect("written");
        assert_eq!((empty.bytes, &empty.sha256[..8]), (0, "e3b0c442"));
    }

    #[tokio::test]
    async fn a_source_that_breaks_is_no_end() {
        let cut = Problem::invalid("the body was cut off", "");
        let mut source = Pieces([Ok(Bytes::from_static(b"half")), Err(cut)].into());
        assert_eq!(pour(&mut source, memory()).await.err().map(|problem| problem.status), Some(400));
    }

    #[test]
    fn only_a_plain_file_is_taken_from_a_room() {
        let (reads, writes) = rustix::pipe::pipe().expect("a pipe");
        let code = |fds, to_write| checked(fds, to_write).err().map(|problem| problem.code);
        let refused = Some(ProblemCode::WrongKind);
        assert_eq!(code(vec![reads], false), refused);
        assert_eq!(code(vec![writes], true), refused);
        assert_eq!(code(vec![], false), refused);
        assert_eq!(code(vec![memory().into(), memory().into()], false), refused);
        let kernels = File::open("/proc/self/status").expect("proc");
        assert_eq!(code(vec![kernels.into()], false), refused);
        let read_only = File::open(std::env::current_exe().expect("a test")).expect("a file");
        assert_eq!(code(vec![read_only.as_fd().try_clone_to_owned().expect("a file")], true), refused);
        assert_eq!(code(vec![read_only.into()], false), None);
        assert_eq!(code(vec![memory().into()], true), None);
    }
}
