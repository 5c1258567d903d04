//! Packets between the TUN device and the stack: two short queues.

use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use std::collections::VecDeque;

/// How many packets wait at most, each way. The kernel has a queue of its own before this one.
pub(super) const QUEUE: usize = 64;

#[derive(Default)]
pub(super) struct Packets {
    /// From the room.
    pub(super) incoming: VecDeque<Vec<u8>>,
    /// To the room.
    pub(super) outgoing: VecDeque<Vec<u8>>,
    /// Buffers that were used and can be used again.
    spare: Vec<Vec<u8>>,
}

impl Packets {
    /// A buffer with a copy of the bytes.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < QUEUE {
            self.spare.push(buffer);
        }
    }
}

pub(super) struct Incoming<'a>(Vec<u8>, &'a mut Vec<Vec<u8>>);

pub(super) struct Outgoing<'a>(&'a mut VecDeque<Vec<u8>>, Vec<u8>);

impl Device for Packets {
    type RxToken<'a> = Incoming<'a>;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        if self.outgoing.len() >= QUEUE {
            return None;
        }
        let packet = self.incoming.pop_front()?;
        let buffer = self.spare.pop().unwrap_or_default();
        Some((Incoming(packet, &mut self.spare), Outgoing(&mut self.outgoing, buffer)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        if self.outgoing.len() >= QUEUE {
            return None;
        }
        Some(Outgoing(&mut self.outgoing, self.spare.pop().unwrap_or_default()))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = super::MTU.into();
        // The kernel has just written the sums of what comes; a wrong one could harm nobody but the room.
        let mut checksum = ChecksumCapabilities::ignored();
        checksum.ipv4 = Checksum::Tx;
        checksum.tcp = Checksum::Tx;
        capabilities.checksum = checksum;
        capabilities
    }
}

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        let answer = read(&self.0);
        if self.1.len() < QUEUE {
            self.1.push(self.0);
        }
        answer
    }
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(mut self, length: usize, write: F) -> R {
        self.1.clear();
        self.1.resize(length, 0);
        let answer = write(&mut self.1);
        self.0.push_back(self.1);
        answer
    }
}
