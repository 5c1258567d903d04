//! Writing a zip as a stream: sizes and checksums follow the contents, the directory comes last.

use super::export::{Content, Header};
use flate2::{Compression, CrcWriter, write::DeflateEncoder};
use std::io::{self, Write};

/// From this size on a member's sizes are written in 64 bits: packed, it may be a little larger than it is.
const WIDE: u64 = 0xf000_0000;

/// Sizes and checksum follow the content.
const FOLLOWED: u16 = 8;
const UTF8: u16 = 1 << 11;

/// Version 4.5, which knows 64 bits; on the writer's side, made on Unix.
const VERSION: u16 = 45;
const MADE_BY: u16 = 3 << 8 | VERSION;

pub(super) struct ZipWriter<W> {
    out: Counted<W>,
    /// Grows with every member, by about a hundred bytes.
    directory: Vec<u8>,
    entries: u64,
}

struct Counted<W> {
    inner: W,
    written: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<W: Write> ZipWriter<W> {
    pub(super) fn new(inner: W) -> ZipWriter<W> {
        ZipWriter { out: Counted { inner, written: 0 }, directory: Vec::new(), entries: 0 }
    }

    pub(super) fn add(&mut self, header: &Header<'_>, content: &mut Content<'_>) -> io::Result<()> {
        let offset = self.out.written;
        let deflated = header.target.is_none() && header.size > 0;
        let wide = header.size >= WIDE;
        let target = header.target.unwrap_or_default();
        let mut flags = if std::str::from_utf8(header.name).is_ok() { UTF8 } else { 0 };
        // Of what is written here as it is, sizes and checksum are known before.
        let mut sums = (crc32fast::hash(target), target.len() as u64, target.len() as u64);
        if deflated {
            flags |= FOLLOWED;
            sums = (0, 0, 0);
        }
        let common = Common { header, flags, method: if deflated { 8 } else { 0 } };

        let mut local = Fields::default();
        local.u32(0x0403_4b50).u16(VERSION);
        common.write(&mut local, sums, wide);
        let mut extra = common.time();
        if wide {
            extra.u16(1).u16(16).u64(0).u64(0);
        }
        local.u16(header.name.len() as u16).u16(extra.0.len() as u16).bytes(header.name).bytes(&extra.0);
        self.out.write_all(&local.0)?;
        if deflated {
            sums = self.deflate(content, wide)?;
        } else {
            self.out.write_all(target)?;
        }

        let mut extra = Fields::default();
        let offset_wide = offset >= u64::from(u32::MAX);
        if wide || offset_wide {
            let mut numbers = Fields::default();
            if wide {
                numbers.u64(sums.2).u64(sums.1);
            }
            if offset_wide {
                numbers.u64(offset);
            }
            extra.u16(1).u16(numbers.0.len() as u16).bytes(&numbers.0);
        }
        extra.bytes(&common.time().0);
        let mut entry = Fields::default();
        entry.u32(0x0201_4b50).u16(MADE_BY).u16(VERSION);
        common.write(&mut entry, sums, wide);
        entry.u16(header.name.len() as u16).u16(extra.0.len() as u16).u16(0).u16(0).u16(0);
        let directory_bit = if header.name.ends_with(b"/") { 0x10 } else { 0 };
        entry.u32(header.mode << 16 | directory_bit);
        entry.u32(if offset_wide { u32::MAX } else { offset as u32 }).bytes(header.name).bytes(&extra.0);
        self.directory.extend_from_slice(&entry.0);
        self.entries += 1;
        Ok(())
    }

    /// Packs a content and writes behind it what it came to: checksum, packed and unpacked size.
    fn deflate(&mut self, content: &mut Content<'_>, wide: bool) -> io::Result<(u32, u64, u64)> {
        let start = self.out.written;
        let mut encoder = CrcWriter::new(DeflateEncoder::new(&mut self.out, Compression::default()));
        let size = content.copy(&mut encoder)?;
        let crc = encoder.crc().sum();
        encoder.into_inner().finish()?;
        let packed = self.out.written - start;
        let mut after = Fields::default();
        after.u32(0x0807_4b50).u32(crc);
        if wide {
            after.u64(packed).u64(size);
        } else {
            after.u32(packed as u32).u32(size as u32);
        }
        self.out.write_all(&after.0)?;
        Ok((crc, packed, size))
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        let (start, length) = (self.out.written, self.directory.len() as u64);
        self.out.write_all(&self.directory)?;
        let end = self.out.written;
        let wide = self.entries >= u64::from(u16::MAX) || end >= u64::from(u32::MAX);
        let mut fields = Fields::default();
        if wide {
            fields.u32(0x0606_4b50).u64(44).u16(MADE_BY).u16(VERSION).u32(0).u32(0);
            fields.u64(self.entries).u64(self.entries).u64(length).u64(start);
            fields.u32(0x0706_4b50).u32(0).u64(end).u32(1);
        }
        let entries = if wide { u16::MAX } else { self.entries as u16 };
        let (length, start) = if wide { (u32::MAX, u32::MAX) } else { (length as u32, start as u32) };
        fields.u32(0x0605_4b50).u16(0).u16(0).u16(entries).u16(entries).u32(length).u32(start).u16(0);
        self.out.write_all(&fields.0)?;
        Ok(self.out.inner)
    }
}

/// What stands both before a member and in the directory.
struct Common<'a> {
    header: &'a Header<'a>,
    flags: u16,
    method: u16,
}

impl Common<'_> {
    fn write(&self, fields: &mut Fields, (crc, packed, size): (u32, u64, u64), wide: bool) {
        let (time, date) = clock(self.header.mtime);
        fields.u16(self.flags).u16(self.method).u16(time).u16(date).u32(crc);
        if wide {
            fields.u32(u32::MAX).u32(u32::MAX);
        } else {
            fields.u32(packed as u32).u32(size as u32);
        }
    }

    /// The time to the second, where 32 bits hold it.
    fn time(&self) -> Fields {
        let mut extra = Fields::default();
        if let Ok(seconds) = i32::try_from(self.header.mtime) {
            extra.u16(0x5455).u16(5).bytes(&[1]).u32(seconds as u32);
        }
        extra
    }
}

/// Little-endian numbers, one after the other.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Fields {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Fields {
        self.bytes(&value.to_le_bytes())
    }

    fn u32(&mut self, value: u32) -> &mut Fields {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Fields {
        self.bytes(&value.to_le_bytes())
    }
}

/// A time as zips have it, in UTC: even seconds, from 1980 to 2107.
fn clock(seconds: u64) -> (u16, u16) {
    let seconds = seconds.clamp(315_532_800, 4_354_819_198);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Counted from a 1 March, so that the leap day is the last of its year.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let date = (year - 1980) << 9 | month << 5 | day;
    let time = ((of_day / 3600) << 11) | ((of_day / 60 % 60) << 5) | (of_day % 60 / 2);
    (time as u16, date as u16)
}
