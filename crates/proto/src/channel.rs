//! A packet socket that carries messages and descriptors.

use crate::VERSION;
use rustix::fs::FileType;
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The most descriptors that travel with one message.
pub const MAX_FDS: usize = 5;

/// The largest message: a part of a file that is answered in one piece, 16 MiB of it, in base64. A command line and
/// environment as large as the kernel itself would take has half of that.
pub const MAX_MESSAGE: usize = 24 << 20;

/// The largest message that travels as a packet; a larger one travels as a memfd, because what a socket
/// takes in one packet depends on the machine's settings.
const MAX_INLINE: usize = 4096;

/// The whole packet of a message whose body is in the first descriptor.
const LARGE: u8 = 0x80 | VERSION;

/// What came in.
pub enum Received<M> {
    Message(M, Vec<OwnedFd>),
    /// The other side is gone.
    Closed,
}

/// One end of a conversation.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

impl Channel {
    /// Two connected ends, closed on exec.
    pub fn pair() -> io::Result<(Channel, Channel)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Channel { socket: ours }, Channel { socket: theirs }))
    }

    pub fn from_fd(socket: OwnedFd) -> Channel {
        Channel { socket }
    }

    pub fn into_fd(self) -> OwnedFd {
        self.socket
    }

    /// Another descriptor of the same end.
    pub fn try_clone(&self) -> io::Result<Channel> {
        Ok(Channel { socket: self.socket.try_clone()? })
    }

    /// Sends one message and waits while the other side's queue is full.
    pub fn send<M: Serialize>(&self, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        send_with(self.as_fd(), message, fds, SendFlags::empty())
    }

    /// Sends one message if the other side's queue has room for it; says whether it had.
    pub fn try_send<M: Serialize>(&self, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<bool> {
        try_send_on(self.as_fd(), message, fds)
    }

    /// Receives one message, waiting for it.
    pub fn receive<M: DeserializeOwned>(&self) -> io::Result<Received<M>> {
        match receive_with(self.as_fd(), RecvFlags::empty())? {
            Some(received) => Ok(received),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Receives one message if there is one.
    pub fn try_receive<M: DeserializeOwned>(&self) -> io::Result<Option<Received<M>>> {
        try_receive_on(self.as_fd())
    }
}

/// [`Channel::try_send`] on a channel's socket that something else owns.
pub fn try_send_on<M: Serialize>(
    socket: BorrowedFd<'_>,
    message: &M,
    fds: &[BorrowedFd<'_>],
) -> io::Result<bool> {
    match send_with(socket, message, fds, SendFlags::DONTWAIT) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// [`Channel::try_receive`] on a channel's socket that something else owns.
pub fn try_receive_on<M: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<Received<M>>> {
    receive_with(socket, RecvFlags::DONTWAIT)
}

fn send_with<M: Serialize>(
    socket: BorrowedFd<'_>,
    message: &M,
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let packet = encode(message)?;
    if packet.len() <= MAX_INLINE {
        return send_packet(socket, &packet, fds, flags);
    }
    if packet.len() > MAX_MESSAGE {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a message over the size limit"));
    }
    let body = rustix::fs::memfd_create("message", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::io::retry_on_intr(|| rustix::io::pwrite(&body, &packet, 0))?;
    let mut with_body = vec![body.as_fd()];
    with_body.extend_from_slice(fds);
    send_packet(socket, &[LARGE], &with_body, flags)
}

fn send_packet(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
    }
    let slice = [io::IoSlice::new(packet)];
    rustix::io::retry_on_intr(|| sendmsg(socket, &slice, &mut ancillary, flags | SendFlags::NOSIGNAL))?;
    Ok(())
}

fn receive_with<M: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    flags: RecvFlags,
) -> io::Result<Option<Received<M>>> {
    let mut buffer = [0u8; MAX_INLINE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        match recvmsg(socket, &mut slices, &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received,
            // The other side left without reading all we sent: said once, before what it said last.
            Err(Errno::INTR | Errno::CONNRESET) => continue,
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    };
    if received.bytes == 0 {
        return Ok(Some(Received::Closed));
    }
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(invalid("a packet arrived cut short"));
    }
    let packet = &buffer[..received.bytes];
    if packet != [LARGE] {
        return decode(packet).map(|message| Some(Received::Message(message, fds)));
    }
    if fds.is_empty() {
        return Err(invalid("a large message came without its body"));
    }
    let packet = read_body(fds.remove(0))?;
    decode(&packet).map(|message| Some(Received::Message(message, fds)))
}

/// Reads the body of a large message, which the sender may still be changing: only its size matters here,
/// and whatever the bytes are, they are decoded from our own copy.
fn read_body(body: OwnedFd) -> io::Result<Vec<u8>> {
    let stat = rustix::fs::fstat(&body)?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() || stat.st_size as usize > MAX_MESSAGE {
        return Err(invalid("a large message's body is not a file of an allowed size"));
    }
    let mut packet = vec![0; stat.st_size as usize];
    let read = rustix::io::retry_on_intr(|| rustix::io::pread(&body, &mut packet[..], 0))?;
    packet.truncate(read);
    Ok(packet)
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub(crate) fn encode<M: Serialize>(message: &M) -> io::Result<Vec<u8>> {
    postcard::to_extend(message, vec![VERSION]).map_err(io::Error::other)
}

pub(crate) fn decode<M: DeserializeOwned>(packet: &[u8]) -> io::Result<M> {
    match packet.split_first() {
        Some((&VERSION, body)) => postcard::from_bytes(body).map_err(|error| invalid(error.to_string())),
        Some((version, _)) => Err(invalid(format!("protocol version {version}, this is version {VERSION}"))),
        None => Err(invalid("an empty packet")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FromGuest, ToGuest};
    use std::io::{Read, Write};
    use workroom_types::{CommandSpec, Exit, ExitReport, RoomUser, Usage};

    fn message<M: DeserializeOwned>(channel: &Channel) -> (M, Vec<OwnedFd>) {
        match channel.receive().unwrap() {
            Received::Message(message, fds) => (message, fds),
            Received::Closed => panic!("closed"),
        }
    }

    #[test]
    fn messages_and_descriptors_arrive_together() {
        let (host, guest) = Channel::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        host.send(&ToGuest::Signal { command: 7, signal: 15 }, &[write.as_fd()]).unwrap();
        drop(write);
        let (got, mut fds) = message::<ToGuest>(&guest);
        assert_eq!(got, ToGuest::Signal { command: 7, signal: 15 });
        std::fs::File::from(fds.remove(0)).write_all(b"through").unwrap();
        let mut text = String::new();
        std::fs::File::from(read).read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }

    #[test]
    fn a_large_environment_passes_and_the_end_is_seen() {
        let (host, guest) = Channel::pair().unwrap();
        let spec = CommandSpec {
            argv: vec![b"true".to_vec()],
            env: (0..30_000).map(|n| format!("NAME{n}=value").into_bytes()).collect(),
            cwd: b"/".to_vec(),
            user: RoomUser::Agent,
            terminal: None,
        };
        let sent = ToGuest::Start { command: 1, spec };
        host.send(&sent, &[]).unwrap();
        assert_eq!(message::<ToGuest>(&guest).0, sent);
        drop(host);
        assert!(matches!(guest.receive::<ToGuest>().unwrap(), Received::Closed));
    }

    #[test]
    fn another_version_and_nonsense_are_refused() {
        assert!(decode::<ToGuest>(&[]).is_err());
        assert!(decode::<ToGuest>(&[VERSION + 1, 0]).unwrap_err().to_string().contains("protocol version"));
        assert!(decode::<ToGuest>(&[VERSION, 200, 1, 2]).is_err());
    }

    /// The bytes on the wire. A change here breaks rooms that outlive their host: append instead.
    #[test]
    fn the_wire_format_is_pinned() {
        assert_eq!(encode(&ToGuest::End).unwrap(), [1, 3]);
        assert_eq!(encode(&ToGuest::Signal { command: 2, signal: 15 }).unwrap(), [1, 1, 2, 30]);
        let report = ExitReport {
            exit: Exit::Code(3),
            duration_micros: 5,
            usage: Usage { cpu_micros: 6, peak_memory: 7, oom_kills: 0 },
        };
        assert_eq!(encode(&FromGuest::Exited { command: 1, report }).unwrap(), [1, 4, 1, 0, 6, 5, 6, 7, 0]);
    }
}
