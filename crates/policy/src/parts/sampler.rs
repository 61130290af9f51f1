//! Which pages belong to a sample: spatial sampling by a hash of where a page lives, as in Waldspurger, Park, Garthwaite,
//! Ahmad, "Efficient MRC construction with SHARDS", FAST 2015. A page is in a sample with all of its requests or with none.

use entresol_core::{Address, Random};
use std::ops::Range;

/// A sample of all pages there may be.
#[derive(Clone, Debug)]
pub struct Sampler {
    mixed_seed: u64,
    group_pages: u64,
    values: Range<u64>,
}

impl Sampler {
    /// Values of the hash that decides; a sample is a range of them, disjoint ranges are disjoint samples.
    pub const RANGE: u64 = 1 << 24;

    /// The pages whose hash is in a range. So many neighbours are in it together or not at all, for those who look for runs
    /// and blocks.
    ///
    /// # Panics
    /// When a group has no page.
    pub fn new(seed: u64, group_pages: u64, values: Range<u64>) -> Self {
        assert!(group_pages > 0, "a group of no pages");
        Sampler { mixed_seed: Random::mix(seed), group_pages, values }
    }

    /// Of a page that is in the sample, 40 bits that are independent of that and the same for its group.
    #[inline(always)]
    pub fn find(&self, at: Address) -> Option<u64> {
        let group = (u64::from(at.object.0) << 40) ^ (at.block / self.group_pages);
        let hash = Random::mix(group ^ self.mixed_seed);
        self.values.contains(&(hash % Self::RANGE)).then_some(hash / Self::RANGE)
    }
}
