//! What the tests of violence share: a way to a server that comes and goes, callers who keep books, a look at the machine.
#![allow(dead_code)] // each test file uses its own part of this

pub(crate) mod caller;
pub(crate) mod line;
pub(crate) mod machine;
pub(crate) mod ticker;

/// Random numbers that can be had again: the seed is printed, and WORKROOM_SEED sets it.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Dice {
        let seed = std::env::var("WORKROOM_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| {
            let now = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970");
            now.as_nanos() as u64
        });
        println!("WORKROOM_SEED={seed}");
        Dice(seed)
    }

    /// Others, of the same seed.
    pub(crate) fn fork(&mut self) -> Dice {
        Dice(self.next())
    }

    /// SplitMix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn moment(&mut self, longest_ms: u64) -> std::time::Duration {
        std::time::Duration::from_micros(self.below(longest_ms * 1000))
    }
}

/// Runs a test whose callers go on while the test itself waits for a process.
pub(crate) fn in_threads<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(test)
}
