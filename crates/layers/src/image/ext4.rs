//! An empty ext4 file system, written into a sparse file without any other program.
//!
//! Only what is not zero is written, a few dozen blocks whatever the size: tables and bitmaps of what is unused are holes.
//! All that describes the file system lies at its beginning, so that the rest is one piece:
//!
//! ```text
//!  0 super block │ group descriptors │ block bitmaps │ inode bitmaps │ inode tables │ journal │ / lost+found fs work
//! ```
//!
//! It has a journal, so that a power loss leaves it whole, and no checksums: what they would save is the reading of
//! bitmaps that are holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub(super) const BLOCK: u64 = 4096;
const BLOCKS_PER_GROUP: u64 = 32768;
const INODE: u64 = 256;
const INODES_PER_BLOCK: u64 = BLOCK / INODE;
const DESCRIPTOR: u64 = 32;

/// Inodes that the format keeps for itself; the root directory and the journal are among them.
const RESERVED_INODES: u32 = 10;
const ROOT: u32 = 2;
const JOURNAL: u32 = 8;
const LOST_AND_FOUND: u32 = 11;
const FILES: u32 = 12;
const WORK: u32 = 13;
/// What an overlay makes for itself in its work directory.
const OF_THE_OVERLAY: u64 = 3;

/// Where the magic number is that every such file system has.
pub(super) const MAGIC_AT: u64 = 1024 + 56;
pub(super) const MAGIC: [u8; 2] = [0x53, 0xef];

/// 2 TiB: block numbers of 32 bits reach further, and nobody's session does.
const MOST_BLOCKS: u64 = 1 << 29;

/// How such a file system is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) blocks: u64,
    groups: u64,
    /// How many there may be, and how many there are in each group. Those that are too many are marked as taken.
    inodes: u64,
    inodes_per_group: u64,
    journal_blocks: u64,
    /// Who has the directories in it.
    owner: u32,
    now: u32,
    id: [u8; 16],
}

impl Layout {
    /// With space for this many bytes of files, and for this many files and directories.
    pub(super) fn new(bytes: u64, inodes: u64, owner: u32, now: u32, id: [u8; 16]) -> Layout {
        let wanted = bytes.div_ceil(BLOCK).clamp(16, MOST_BLOCKS);
        let inodes = inodes.saturating_add(u64::from(WORK) + OF_THE_OVERLAY);
        // The kernel takes no journal that is smaller, and a larger one lets more be on its way.
        let journal_blocks = if wanted < 1 << 17 { 1024 } else { 4096 };
        let mut layout = Layout {
            blocks: wanted,
            groups: 1,
            inodes,
            inodes_per_group: 16,
            journal_blocks,
            owner,
            now,
            id,
        };
        // What describes the file system grows with it; a few rounds settle it.
        for _ in 0..8 {
            layout.groups = layout.blocks.div_ceil(BLOCKS_PER_GROUP);
            let per_group = inodes.div_ceil(layout.groups).next_multiple_of(INODES_PER_BLOCK);
            layout.inodes_per_group = per_group.clamp(INODES_PER_BLOCK, BLOCK * 8);
            let used = layout.first_free();
            // The kernel keeps a part back for itself.
            let kept = ((wanted + used) / 49).min(4096) + 1;
            layout.blocks = wanted + used + kept;
        }
        layout.groups = layout.blocks.div_ceil(BLOCKS_PER_GROUP);
        layout
    }

    fn descriptor_blocks(&self) -> u64 {
        (self.groups * DESCRIPTOR).div_ceil(BLOCK)
    }

    fn table_blocks(&self) -> u64 {
        self.inodes_per_group / INODES_PER_BLOCK
    }

    fn block_bitmap(&self, group: u64) -> u64 {
        1 + self.descriptor_blocks() + group
    }

    fn inode_bitmap(&self, group: u64) -> u64 {
        self.block_bitmap(self.groups) + group
    }

    fn inode_table(&self, group: u64) -> u64 {
        self.inode_bitmap(self.groups) + group * self.table_blocks()
    }

    fn journal(&self) -> u64 {
        self.inode_table(self.groups)
    }

    fn directory(&self, inode: u32) -> u64 {
        let after = self.journal() + self.journal_blocks;
        after + if inode == ROOT { 0 } else { u64::from(inode - LOST_AND_FOUND) + 1 }
    }

    /// The first block that nothing is in.
    fn first_free(&self) -> u64 {
        self.directory(WORK) + 1
    }

    fn blocks_in(&self, group: u64) -> u64 {
        (self.blocks - group * BLOCKS_PER_GROUP).min(BLOCKS_PER_GROUP)
    }

    fn used_in(&self, group: u64) -> u64 {
        self.first_free().saturating_sub(group * BLOCKS_PER_GROUP).min(self.blocks_in(group))
    }

    fn inodes_in(&self, group: u64) -> u64 {
        self.inodes.saturating_sub(group * self.inodes_per_group).min(self.inodes_per_group)
    }

    fn used_inodes_in(&self, group: u64) -> u64 {
        if group == 0 { WORK.into() } else { 0 }
    }

    /// Writes it into an empty file.
    pub(super) fn write(&self, file: &File) -> io::Result<()> {
        file.set_len(self.blocks * BLOCK)?;
        file.write_all_at(&self.super_block(), 1024)?;
        let mut descriptors = Vec::new();
        for group in 0..self.groups {
            descriptors.extend(self.descriptor(group));
            let used = bits(self.used_in(group), self.blocks_in(group));
            if used.iter().any(|byte| *byte != 0) {
                file.write_all_at(&used, self.block_bitmap(group) * BLOCK)?;
            }
            let inodes = bits(self.used_inodes_in(group), self.inodes_in(group));
            if inodes.iter().any(|byte| *byte != 0) {
                file.write_all_at(&inodes, self.inode_bitmap(group) * BLOCK)?;
            }
        }
        file.write_all_at(&descriptors, BLOCK)?;
        file.write_all_at(&self.inodes(), self.inode_table(0) * BLOCK)?;
        file.write_all_at(&self.journal_head(), self.journal() * BLOCK)?;
        let below_root = [("lost+found", LOST_AND_FOUND), ("fs", FILES), ("work", WORK)];
        for (inode, entries) in [(ROOT, &below_root[..]), (LOST_AND_FOUND, &[]), (FILES, &[]), (WORK, &[])] {
            file.write_all_at(&entries_of(inode, entries), self.directory(inode) * BLOCK)?;
        }
        Ok(())
    }

    fn super_block(&self) -> Vec<u8> {
        const HAS_JOURNAL: u32 = 0x4;
        const EXT_ATTR: u32 = 0x8;
        const DIR_INDEX: u32 = 0x20;
        /// Copies of the super block are where two fields say: nowhere.
        const SPARSE_SUPER2: u32 = 0x200;
        const FILETYPE: u32 = 0x2;
        const EXTENTS: u32 = 0x40;
        /// Bitmaps and tables may lie outside their groups.
        const FLEX_BG: u32 = 0x200;
        const SPARSE_SUPER: u32 = 0x1;
        const LARGE_FILE: u32 = 0x2;
        const HUGE_FILE: u32 = 0x8;
        const DIR_NLINK: u32 = 0x20;
        const EXTRA_ISIZE: u32 = 0x40;
        let free: u64 = (0..self.groups).map(|group| self.blocks_in(group) - self.used_in(group)).sum();
        let inodes = self.groups * self.inodes_per_group;
        let mut block = Bytes::new(1024);
        block.u32(0, inodes as u32);
        block.u32(4, self.blocks as u32);
        block.u32(12, free as u32);
        block.u32(16, (inodes.min(self.inodes) - u64::from(WORK)) as u32);
        block.u32(24, 2); // blocks of 1024 << 2
        block.u32(28, 2);
        block.u32(32, BLOCKS_PER_GROUP as u32);
        block.u32(36, BLOCKS_PER_GROUP as u32);
        block.u32(40, self.inodes_per_group as u32);
        block.u32(48, self.now);
        block.u16(54, 0xffff); // never to be checked for having been mounted often
        block.put(56, &MAGIC);
        block.u16(58, 1); // clean
        block.u16(60, 2); // read-only from the first error on
        block.u32(64, self.now);
        block.u32(76, 1); // with inodes of any size
        block.u32(84, RESERVED_INODES + 1);
        block.u16(88, INODE as u16);
        block.u32(92, HAS_JOURNAL | EXT_ATTR | DIR_INDEX | SPARSE_SUPER2);
        block.u32(96, FILETYPE | EXTENTS | FLEX_BG);
        block.u32(100, SPARSE_SUPER | LARGE_FILE | HUGE_FILE | DIR_NLINK | EXTRA_ISIZE);
        block.put(104, &self.id);
        block.u32(224, JOURNAL);
        block.put(236, &self.id); // the seed of directories' hashes
        block.put(252, &[1]);
        block.u32(256, 0x4 | 0x8); // extended attributes and access lists
        block.u32(264, self.now);
        block.u16(348, 32);
        block.u16(350, 32);
        block.u32(352, 1); // hashes of signed characters
        block.put(372, &[4]);
        block.0
    }

    fn descriptor(&self, group: u64) -> Vec<u8> {
        let mut descriptor = Bytes::new(DESCRIPTOR as usize);
        descriptor.u32(0, self.block_bitmap(group) as u32);
        descriptor.u32(4, self.inode_bitmap(group) as u32);
        descriptor.u32(8, self.inode_table(group) as u32);
        descriptor.u16(12, (self.blocks_in(group) - self.used_in(group)) as u16);
        descriptor.u16(14, (self.inodes_in(group) - self.used_inodes_in(group)) as u16);
        descriptor.u16(16, if group == 0 { 4 } else { 0 });
        descriptor.0
    }

    /// The first inodes, as they are in the first table.
    fn inodes(&self) -> Vec<u8> {
        let mut table = Bytes::new((u64::from(WORK) * INODE) as usize);
        let directory = |mode: u16, links: u16| (0o040_000 | mode, links, BLOCK);
        for (inode, owner, (mode, links, size), first) in [
            (ROOT, self.owner, directory(0o700, 5), self.directory(ROOT)),
            (JOURNAL, 0, (0o100_600, 1, self.journal_blocks * BLOCK), self.journal()),
            (LOST_AND_FOUND, 0, directory(0o700, 2), self.directory(LOST_AND_FOUND)),
            (FILES, self.owner, directory(0o755, 2), self.directory(FILES)),
            (WORK, self.owner, directory(0o700, 2), self.directory(WORK)),
        ] {
            let at = (u64::from(inode - 1) * INODE) as usize;
            table.u16(at, mode);
            for low in [2, 24] {
                table.u16(at + low, owner as u16);
            }
            for high in [120, 122] {
                table.u16(at + high, (owner >> 16) as u16);
            }
            table.u32(at + 4, size as u32);
            for time in [8, 12, 16] {
                table.u32(at + time, self.now);
            }
            table.u16(at + 26, links);
            table.u32(at + 28, (size / 512) as u32);
            table.u32(at + 32, 0x8_0000); // its blocks are said as extents
            table.put(at + 40, &one_extent(first, size / BLOCK));
            table.u16(at + 128, 32);
        }
        table.0
    }

    /// A journal that has nothing in it.
    fn journal_head(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(BLOCK as usize);
        let (kind, first, sequence) = (4u32, 1u32, 1u32);
        for word in [0xC03B_3998, kind, 0, BLOCK as u32, self.journal_blocks as u32, first, sequence] {
            head.extend(u32::to_be_bytes(word));
        }
        head.resize(48, 0);
        head.extend(self.id);
        head.extend(1u32.to_be_bytes()); // of one file system
        head.resize(BLOCK as usize, 0);
        head
    }
}

/// Blocks that follow each other.
fn one_extent(first: u64, count: u64) -> Vec<u8> {
    let mut tree = Bytes::new(60);
    tree.u16(0, 0xF30A);
    tree.u16(2, 1);
    tree.u16(4, 4);
    tree.u16(16, count as u16);
    tree.u32(20, first as u32);
    tree.0
}

/// A directory's only block.
fn entries_of(inode: u32, below: &[(&str, u32)]) -> Vec<u8> {
    let entries: Vec<(&str, u32)> =
        [(".", inode), ("..", ROOT)].into_iter().chain(below.iter().copied()).collect();
    let mut block = Bytes::new(BLOCK as usize);
    let mut at = 0;
    for (number, (name, inode)) in entries.iter().enumerate() {
        let is_last = number + 1 == entries.len();
        let length = if is_last { BLOCK as usize - at } else { (8 + name.len()).next_multiple_of(4) };
        block.u32(at, *inode);
        block.u16(at + 4, length as u16);
        block.put(at + 6, &[name.len() as u8, 2]);
        block.put(at + 8, name.as_bytes());
        at += length;
    }
    block.0
}

/// A bitmap in which the first `used` of `count` are taken, and all that there is not.
fn bits(used: u64, count: u64) -> Vec<u8> {
    let mut map = vec![0u8; BLOCK as usize];
    let mut set = |from: u64, to: u64| {
        for bit in from..to {
            map[(bit / 8) as usize] |= 1 << (bit % 8);
        }
    };
    set(0, used);
    set(count, BLOCK * 8);
    map
}

/// Numbers at places, the lower bytes first.
struct Bytes(Vec<u8>);

impl Bytes {
    fn new(size: usize) -> Bytes {
        Bytes(vec![0; size])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }
}
