//! Unpacking bzip2: one block at a time, at most 4 MiB of memory, several streams behind each other as one.
//!
//! Written here because only unpacking is needed, and the libraries that do it are under a licence of their own, or C.

use std::io::{self, BufRead, Read};

const BLOCK: u64 = 0x3141_5926_5359;
const END: u64 = 0x1772_4538_5090;
const LONGEST_CODE: usize = 20;
/// Symbols that are read with one table before the next is chosen.
const GROUP: usize = 50;

pub(super) struct Decoder<R> {
    bits: Bits<R>,
    /// Symbols that a block of this stream can have; 0 between streams.
    block_size: usize,
    /// The block, as a chain: each entry has a byte and, above it, the place of the next.
    chain: Vec<u32>,
    at: u32,
    left: usize,
    /// Four equal bytes are followed by how many more there are.
    last: u8,
    equal: u8,
    repeat: u8,
    crc: u32,
    block_crc: u32,
    stream_crc: u32,
    streams: u64,
    ended: bool,
}

impl<R: BufRead> Decoder<R> {
    pub(super) fn new(inner: R) -> Decoder<R> {
        Decoder {
            bits: Bits { inner, buffer: 0, count: 0, missing: 0 },
            block_size: 0,
            chain: Vec::new(),
            at: 0,
            left: 0,
            last: 0,
            equal: 0,
            repeat: 0,
            crc: 0,
            block_crc: 0,
            stream_crc: 0,
            streams: 0,
            ended: false,
        }
    }

    /// Goes on to the next block, over the ends and beginnings of streams.
    fn next_block(&mut self) -> io::Result<()> {
        if self.block_size == 0 {
            self.bits.align();
            if self.streams > 0 && self.bits.at_end()? {
                self.ended = true;
                return Ok(());
            }
            let level = match (self.bits.take(24)?, self.bits.take(8)?) {
                (0x42_5a_68, level @ 0x31..=0x39) => level as usize - 0x30,
                _ => return Err(broken("no stream begins where one is expected")),
            };
            (self.block_size, self.stream_crc) = (level * 100_000, 0);
            self.streams += 1;
        }
        let magic = self.bits.take(24)? << 24 | self.bits.take(24)?;
        let crc = self.bits.take(32)? as u32;
        match magic {
            BLOCK => self.read_block(crc),
            END if crc == self.stream_crc => {
                self.block_size = 0;
                Ok(())
            }
            END => Err(broken("the checksum of a stream is wrong")),
            _ => Err(broken("no block begins where one is expected")),
        }
    }

    fn read_block(&mut self, crc: u32) -> io::Result<()> {
        if self.bits.take(1)? != 0 {
            return Err(broken("a block is scrambled in a way that was given up in 1996"));
        }
        let origin = self.bits.take(24)? as usize;
        let mut bytes = self.bytes_in_use()?;
        let symbols = bytes.len() + 2;
        let tables = self.bits.take(3)? as usize;
        if bytes.is_empty() || !(2..=6).contains(&tables) {
            return Err(broken("a block has no bytes or a wrong number of tables"));
        }
        let selectors = self.selectors(tables)?;
        let codes = (0..tables).map(|_| self.code(symbols)).collect::<io::Result<Vec<Code>>>()?;

        self.chain.clear();
        let mut counts = [0u32; 256];
        let (mut run, mut weight) = (0usize, 1usize);
        let mut group = selectors.iter();
        let mut code = &codes[0];
        let mut left_in_group = 0;
        loop {
            if left_in_group == 0 {
                let selector = group.next().ok_or_else(|| broken("a block has more symbols than it says"))?;
                (code, left_in_group) = (&codes[usize::from(*selector)], GROUP);
            }
            left_in_group -= 1;
            let symbol = code.read(&mut self.bits)?;
            // Two symbols are digits of a number, in a base of two without a zero: how often the first byte follows.
            if symbol < 2 {
                run += weight << symbol;
                weight <<= 1;
                if run > self.block_size {
                    return Err(broken("a block is longer than its stream allows"));
                }
                continue;
            }
            if run > 0 {
                self.push(bytes[0], run, &mut counts)?;
                (run, weight) = (0, 1);
            }
            if symbol == symbols - 1 {
                break;
            }
            bytes[..symbol].rotate_right(1);
            self.push(bytes[0], 1, &mut counts)?;
        }
        if origin >= self.chain.len() {
            return Err(broken("a block begins outside itself"));
        }
        let mut start = 0;
        for count in &mut counts {
            start += std::mem::replace(count, start);
        }
        for index in 0..self.chain.len() {
            let place = &mut counts[(self.chain[index] & 0xff) as usize];
            self.chain[*place as usize] |= (index as u32) << 8;
            *place += 1;
        }
        self.at = self.chain[origin] >> 8;
        self.left = self.chain.len();
        (self.equal, self.repeat) = (0, 0);
        (self.crc, self.block_crc) = (!0, crc);
        Ok(())
    }

    fn push(&mut self, byte: u8, times: usize, counts: &mut [u32; 256]) -> io::Result<()> {
        if self.chain.len() + times > self.block_size {
            return Err(broken("a block is longer than its stream allows"));
        }
        self.chain.resize(self.chain.len() + times, u32::from(byte));
        counts[usize::from(byte)] += times as u32;
        Ok(())
    }

    fn bytes_in_use(&mut self) -> io::Result<Vec<u8>> {
        let ranges = self.bits.take(16)?;
        let mut bytes = Vec::with_capacity(256);
        for range in (0..16u8).filter(|range| ranges & (0x8000 >> range) != 0) {
            let used = self.bits.take(16)?;
            bytes.extend((0..16u8).filter(|byte| used & (0x8000 >> byte) != 0).map(|byte| range * 16 + byte));
        }
        Ok(bytes)
    }

    /// Which table each group of symbols is read with.
    fn selectors(&mut self, tables: usize) -> io::Result<Vec<u8>> {
        let count = self.bits.take(15)? as usize;
        let mut order: Vec<u8> = (0..tables as u8).collect();
        let mut selectors = Vec::with_capacity(count);
        for _ in 0..count {
            let mut position = 0;
            while self.bits.take(1)? == 1 {
                position += 1;
                if position == tables {
                    return Err(broken("a block chooses a table that it does not have"));
                }
            }
            order[..=position].rotate_right(1);
            selectors.push(order[0]);
        }
        Ok(selectors)
    }

    fn code(&mut self, symbols: usize) -> io::Result<Code> {
        let mut length = self.bits.take(5)? as usize;
        let mut lengths = Vec::with_capacity(symbols);
        for _ in 0..symbols {
            loop {
                if !(1..=LONGEST_CODE).contains(&length) {
                    return Err(broken("a code has an impossible length"));
                }
                if self.bits.take(1)? == 0 {
                    break;
                }
                if self.bits.take(1)? == 0 { length += 1 } else { length -= 1 }
            }
            lengths.push(length);
        }
        Ok(Code::new(&lengths))
    }

    /// The next byte of the block before runs are unfolded.
    fn step(&mut self) -> io::Result<u8> {
        let entry = self.chain.get(self.at as usize).ok_or_else(|| broken("a block leads out of itself"))?;
        self.at = entry >> 8;
        self.left -= 1;
        Ok(*entry as u8)
    }
}

impl<R: BufRead> Read for Decoder<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < out.len() {
            let byte = if self.repeat > 0 {
                self.repeat -= 1;
                self.last
            } else if self.left > 0 {
                let byte = self.step()?;
                if self.equal == 4 {
                    (self.repeat, self.equal) = (byte, 0);
                    continue;
                }
                self.equal = if self.equal > 0 && byte == self.last { self.equal + 1 } else { 1 };
                self.last = byte;
                byte
            } else {
                if !self.chain.is_empty() {
                    self.chain.clear();
                    if !self.crc != self.block_crc {
                        return Err(broken("the checksum of a block is wrong"));
                    }
                    self.stream_crc = self.stream_crc.rotate_left(1) ^ self.block_crc;
                }
                if self.ended {
                    break;
                }
                self.next_block()?;
                continue;
            };
            self.crc = self.crc << 8 ^ CRC[(self.crc >> 24) as usize ^ usize::from(byte)];
            out[written] = byte;
            written += 1;
        }
        Ok(written)
    }
}

/// A canonical code: shorter codes before longer ones, symbols of one length in order.
struct Code {
    /// For each length: the first code that is longer, and what is added to a code for its place in `symbols`.
    limits: [(u32, i64); LONGEST_CODE + 1],
    symbols: Vec<u16>,
}

impl Code {
    fn new(lengths: &[usize]) -> Code {
        let mut code =
            Code { limits: [(0, 0); LONGEST_CODE + 1], symbols: Vec::with_capacity(lengths.len()) };
        let mut next = 0u32;
        for length in 1..=LONGEST_CODE {
            let before = code.symbols.len();
            code.symbols.extend(
                (0..lengths.len()).filter(|symbol| lengths[*symbol] == length).map(|symbol| symbol as u16),
            );
            code.limits[length].1 = before as i64 - i64::from(next);
            next += (code.symbols.len() - before) as u32;
            code.limits[length].0 = next;
            next <<= 1;
        }
        code
    }

    fn read<R: BufRead>(&self, bits: &mut Bits<R>) -> io::Result<usize> {
        let ahead = bits.peek(LONGEST_CODE as u32)? as u32;
        for (length, (limit, add)) in self.limits.iter().enumerate().skip(1) {
            let prefix = ahead >> (LONGEST_CODE - length);
            if prefix < *limit {
                let symbol =
                    usize::try_from(i64::from(prefix) + add).ok().and_then(|place| self.symbols.get(place));
                bits.consume(length as u32)?;
                return symbol
                    .map(|symbol| usize::from(*symbol))
                    .ok_or_else(|| broken("a code means nothing"));
            }
        }
        Err(broken("a code means nothing"))
    }
}

/// Bits, the highest of a byte first.
struct Bits<R> {
    inner: R,
    buffer: u64,
    count: u32,
    /// Of the bits in the buffer, those that are not in the file.
    missing: u32,
}

impl<R: BufRead> Bits<R> {
    fn peek(&mut self, bits: u32) -> io::Result<u64> {
        while self.count < bits {
            let byte = match self.inner.fill_buf()?.first() {
                Some(byte) => *byte,
                None => {
                    self.missing += 8;
                    0
                }
            };
            self.inner.consume(usize::from(self.missing == 0));
            self.buffer = self.buffer << 8 | u64::from(byte);
            self.count += 8;
        }
        Ok(self.buffer >> (self.count - bits) & ((1 << bits) - 1))
    }

    fn consume(&mut self, bits: u32) -> io::Result<()> {
        self.count -= bits;
        if self.missing > self.count {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is cut off"));
        }
        Ok(())
    }

    fn take(&mut self, bits: u32) -> io::Result<u64> {
        let value = self.peek(bits)?;
        self.consume(bits)?;
        Ok(value)
    }

    fn align(&mut self) {
        self.count -= self.count % 8;
    }

    fn at_end(&mut self) -> io::Result<bool> {
        Ok(self.count <= self.missing && self.inner.fill_buf()?.is_empty())
    }
}

const CRC: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000_0000 != 0 { crc << 1 ^ 0x04c1_1db7 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
