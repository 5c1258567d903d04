//! Finding any of thousands of byte strings in a text, at gigabytes a second where there is none.
//!
//! ```text
//!  pattern   p o s t g r e s : / / …         its first windows, as many as a stride has bytes, are in a table
//!            └─window 0──┘
//!              └─window 1──┘ …
//!  text      . . . . . . . . p o s t g r e s : / / …
//!            ▲       ▲       ▲               one window in each stride is looked up: of an occurrence exactly one
//! ```
//!
//! A window that is in the table says where patterns may begin. There they are looked for among all patterns in
//! lexical order, so it does not matter how many begin alike. Where the text ends before a pattern does there is a
//! *piece*: the start of what may become an occurrence. Memory grows with the patterns' lengths and nothing else,
//! unlike that of an automaton.

use std::ops::Range;
use zeroize::{Zeroize, Zeroizing};

/// A window's value times this: its upper bits depend on all of the window.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

const WIDE: usize = 8;
const NARROW: usize = 4;
const LONGEST_STRIDE: usize = 8;

/// Patterns from this length on have a table of their own, with wide windows: a single short one does not make the
/// search for all others slow.
const LONG: usize = WIDE + NARROW;

/// What begins at one place of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) start: usize,
    /// The longest pattern that is there whole.
    pub(crate) whole: Option<usize>,
    /// Patterns that the text ends in.
    pub(crate) pieces: Range<usize>,
}

/// A compiled set of patterns.
pub(crate) struct Finder {
    /// All patterns, one after the other, in lexical order.
    bytes: Zeroizing<Vec<u8>>,
    /// Where each begins, and where the last one ends.
    bounds: Vec<usize>,
    /// For each pattern the longest other that it begins with.
    shorter: Vec<Option<u32>>,
    tables: Vec<Table>,
}

impl Finder {
    /// `patterns` are in lexical order, different, and none is shorter than four bytes.
    pub(crate) fn new<'a>(patterns: impl Iterator<Item = &'a [u8]> + Clone) -> Finder {
        let mut bounds = vec![0];
        let mut bytes = Zeroizing::new(Vec::with_capacity(patterns.clone().map(<[u8]>::len).sum()));
        for pattern in patterns.clone() {
            bytes.extend_from_slice(pattern);
            bounds.push(bytes.len());
        }
        let short = Table::new(NARROW, patterns.clone().filter(|pattern| pattern.len() < LONG));
        let long = Table::new(WIDE, patterns.filter(|pattern| pattern.len() >= LONG));
        let tables = [short, long].into_iter().flatten().collect();
        let mut finder = Finder { bytes, bounds, shorter: Vec::new(), tables };
        finder.shorter = finder.find_shorter();
        finder
    }

    fn find_shorter(&self) -> Vec<Option<u32>> {
        // In lexical order all that begins with a pattern comes right behind it.
        let mut begun: Vec<usize> = Vec::new();
        let mut shorter = Vec::with_capacity(self.len());
        for number in 0..self.len() {
            while begun.last().is_some_and(|last| !self.pattern(number).starts_with(self.pattern(*last))) {
                begun.pop();
            }
            shorter.push(begun.last().map(|last| *last as u32));
            begun.push(number);
        }
        shorter
    }

    pub(crate) fn len(&self) -> usize {
        self.bounds.len() - 1
    }

    pub(crate) fn pattern(&self, number: usize) -> &[u8] {
        &self.bytes[self.bounds[number]..self.bounds[number + 1]]
    }

    /// Everywhere that a pattern or a piece of one begins, in order.
    pub(crate) fn find(&self, text: &[u8], hits: &mut Vec<Hit>) {
        hits.clear();
        // From here on a text may not hold enough of a pattern for the tables: each place is looked at.
        let reach = self.tables.iter().map(Table::reach).max().unwrap_or(1);
        let near_the_end = (text.len() + 1).saturating_sub(reach);
        let mut starts = Vec::new();
        for table in &self.tables {
            table.look_up(text, &mut starts);
        }
        starts.retain(|start| *start < near_the_end);
        starts.sort_unstable();
        starts.dedup();
        let all = starts.into_iter().chain(near_the_end..text.len());
        hits.extend(all.filter_map(|start| self.begins(text, start)));
    }

    fn begins(&self, text: &[u8], start: usize) -> Option<Hit> {
        let rest = &text[start..];
        // The patterns that go on behind the text's end, and those of which it is the start, lie here.
        let from = self.first_where(0, |pattern| pattern >= rest);
        let to = self.first_where(from, |pattern| !pattern.starts_with(rest));
        let (exact, pieces) = match from < to && self.pattern(from).len() == rest.len() {
            true => (Some(from), from + 1..to),
            false => (None, from..to),
        };
        // Whatever lies between the longest pattern that is here and the text begins with that pattern.
        let mut whole = exact.or(from.checked_sub(1));
        while let Some(number) = whole.filter(|number| !rest.starts_with(self.pattern(*number))) {
            whole = self.shorter[number].map(|shorter| shorter as usize);
        }
        (whole.is_some() || !pieces.is_empty()).then_some(Hit { start, whole, pieces })
    }

    /// The first pattern from `from` on for which it holds, if it holds for all behind that one too.
    fn first_where(&self, from: usize, holds: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (from, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if holds(self.pattern(middle)) { high = middle } else { low = middle + 1 }
        }
        low
    }
}

/// The first windows of patterns.
struct Table {
    window: usize,
    stride: usize,
    /// A bit for each value that the upper bits of a spread window can have: is there any such window?
    present: Vec<u64>,
    present_shift: u32,
    /// By fewer upper bits: from where to where in `places`.
    buckets: Vec<u32>,
    bucket_shift: u32,
    places: Vec<Place>,
}

/// A window of at least one pattern.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    spread: u64,
    offset: u32,
}

impl Table {
    /// None if there are no patterns.
    fn new<'a>(window: usize, patterns: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Table> {
        let shortest = patterns.clone().map(<[u8]>::len).min()?;
        let stride = (shortest + 1 - window).min(LONGEST_STRIDE);
        let mut places = Vec::new();
        for pattern in patterns {
            for offset in 0..stride {
                let spread = load(&pattern[offset..offset + window]).wrapping_mul(SPREAD);
                places.push(Place { spread, offset: offset as u32 });
            }
        }
        places.sort_unstable();
        places.dedup();
        // Sparse enough that few windows of other text are in it, small enough for the processor's cache.
        let present_bits = (places.len() * 32).next_power_of_two().ilog2().clamp(10, 19);
        let bucket_bits = places.len().next_power_of_two().ilog2().max(1);
        let mut table = Table {
            window,
            stride,
            present: vec![0; 1 << (present_bits - 6)],
            present_shift: 64 - present_bits,
            buckets: vec![0; (1 << bucket_bits) + 1],
            bucket_shift: 64 - bucket_bits,
            places,
        };
        for place in &table.places {
            let bit = place.spread >> table.present_shift;
            table.present[(bit >> 6) as usize] |= 1 << (bit & 63);
            table.buckets[(place.spread >> table.bucket_shift) as usize + 1] += 1;
        }
        for bucket in 1..table.buckets.len() {
            table.buckets[bucket] += table.buckets[bucket - 1];
        }
        Some(table)
    }

    /// So many bytes of a pattern are sure to hold a window that is looked up.
    fn reach(&self) -> usize {
        self.stride + self.window - 1
    }

    fn look_up(&self, text: &[u8], starts: &mut Vec<usize>) {
        match self.window {
            WIDE => self.look_up_windows::<WIDE>(text, starts),
            _ => self.look_up_windows::<NARROW>(text, starts),
        }
    }

    fn look_up_windows<const WINDOW: usize>(&self, text: &[u8], starts: &mut Vec<usize>) {
        for (step, window) in text.windows(WINDOW).step_by(self.stride).enumerate() {
            let spread = load(&window[..WINDOW]).wrapping_mul(SPREAD);
            let bit = spread >> self.present_shift;
            if self.present[(bit >> 6) as usize] >> (bit & 63) & 1 == 1 {
                self.note_starts(step * self.stride, spread, starts);
            }
        }
    }

    #[cold]
    fn note_starts(&self, at: usize, spread: u64, starts: &mut Vec<usize>) {
        let bucket = (spread >> self.bucket_shift) as usize;
        let places = &self.places[self.buckets[bucket] as usize..self.buckets[bucket + 1] as usize];
        let here = places.iter().filter(|place| place.spread == spread);
        starts.extend(here.filter_map(|place| at.checked_sub(place.offset as usize)));
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // Spread windows are pieces of secrets in another guise.
        self.present.zeroize();
        self.places.iter_mut().for_each(|place| place.spread.zeroize());
    }
}

/// Four or eight bytes as a number.
fn load(window: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..window.len()].copy_from_slice(window);
    u64::from_le_bytes(bytes)
}
