//! IPv4 packets as they come from a room, told apart, and the few that are answered without a connection.

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    Icmpv4DstUnreachable, Icmpv4Packet, Icmpv4Repr, IpProtocol, Ipv4Packet, Ipv4Repr, TcpPacket, UdpPacket,
    UdpRepr,
};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Who talks to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// The first packet of a connection.
    Syn(Flow),
    /// Any other packet of one.
    Tcp(Flow),
    Udp(Flow, &'a [u8]),
    /// Nothing that is carried, or nothing that can be read.
    Other,
}

/// Tells a packet apart. Only whole packets of IPv4 with sound lengths pass.
pub fn read(bytes: &[u8]) -> Packet<'_> {
    let Ok(packet) = Ipv4Packet::new_checked(bytes) else { return Packet::Other };
    if packet.version() != 4 || packet.more_frags() || packet.frag_offset() != 0 {
        return Packet::Other;
    }
    let (from, to) = (packet.src_addr(), packet.dst_addr());
    let usual = |address: Ipv4Addr| {
        !address.is_unspecified()
            && !address.is_multicast()
            && !address.is_broadcast()
            && !address.is_loopback()
    };
    if !usual(from) || to.is_unspecified() || to.is_multicast() || to.is_broadcast() {
        return Packet::Other;
    }
    let flow = |source, destination| Flow {
        from: SocketAddrV4::new(from, source),
        to: SocketAddrV4::new(to, destination),
    };
    match packet.next_header() {
        IpProtocol::Tcp => match TcpPacket::new_checked(packet.payload()) {
            Ok(tcp) if tcp.src_port() == 0 || tcp.dst_port() == 0 => Packet::Other,
            Ok(tcp) => {
                let flow = flow(tcp.src_port(), tcp.dst_port());
                let first = tcp.syn() && !tcp.ack() && !tcp.rst() && !tcp.fin();
                if first { Packet::Syn(flow) } else { Packet::Tcp(flow) }
            }
            Err(_) => Packet::Other,
        },
        IpProtocol::Udp => match UdpPacket::new_checked(packet.payload()) {
            Ok(udp) if udp.src_port() == 0 || udp.dst_port() == 0 => Packet::Other,
            // Taken from the payload, which lives as long as the bytes do.
            Ok(udp) => Packet::Udp(flow(udp.src_port(), udp.dst_port()), udp.payload()),
            Err(_) => Packet::Other,
        },
        _ => Packet::Other,
    }
}

/// A UDP packet from the far end of a flow back to its near end.
pub fn udp_answer(flow: Flow, payload: &[u8]) -> Vec<u8> {
    let udp = UdpRepr { src_port: flow.to.port(), dst_port: flow.from.port() };
    let length = udp.header_len() + payload.len();
    let (ip, mut bytes) = back(flow, IpProtocol::Udp, length);
    let mut packet = UdpPacket::new_unchecked(&mut bytes[ip.buffer_len()..]);
    let fill = |place: &mut [u8]| place.copy_from_slice(payload);
    udp.emit(
        &mut packet,
        &ip.src_addr.into(),
        &ip.dst_addr.into(),
        payload.len(),
        fill,
        &ChecksumCapabilities::default(),
    );
    bytes
}

/// What a program is told whose packet is not carried: "administratively prohibited", which most report at once.
pub fn prohibited(flow: Flow, refused: &[u8]) -> Option<Vec<u8>> {
    let packet = Ipv4Packet::new_checked(refused).ok()?;
    let checksums = ChecksumCapabilities::ignored();
    let header = Ipv4Repr::parse(&packet, &checksums).ok()?;
    let start = &packet.payload()[..packet.payload().len().min(8)];
    // The length of what was refused, not of what is quoted.
    let reason = Icmpv4DstUnreachable::CommProhibited;
    let message = Icmpv4Repr::DstUnreachable { reason, header, data: start };
    let (ip, mut bytes) = back(flow, IpProtocol::Icmp, message.buffer_len());
    message.emit(
        &mut Icmpv4Packet::new_unchecked(&mut bytes[ip.buffer_len()..]),
        &ChecksumCapabilities::default(),
    );
    Some(bytes)
}

/// A packet from the far end of a flow to its near end, with its header written.
fn back(flow: Flow, protocol: IpProtocol, length: usize) -> (Ipv4Repr, Vec<u8>) {
    let ip = Ipv4Repr {
        src_addr: *flow.to.ip(),
        dst_addr: *flow.from.ip(),
        next_header: protocol,
        payload_len: length,
        hop_limit: 64,
    };
    let mut bytes = vec![0; ip.buffer_len() + length];
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[..]), &ChecksumCapabilities::default());
    (ip, bytes)
}
