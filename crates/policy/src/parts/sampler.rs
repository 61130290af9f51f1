//! Spatial sampling of pages by a hash of their address, as in Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC
//! construction with SHARDS", FAST 2015. A page is in a sample with all of its requests or with none.

use entresol_core::{Address, Random};
use std::ops::Range;

/// Pages that are sampled together where a policy looks for neighbours: the largest erase block of a write buffer.
const GROUP_PAGES: u64 = 128;

/// Slots for each page that a sample of single pages is expected to have, and beyond: the size of a sample varies.
const SLACK: f64 = 1.5;
const SLACK_PAGES: usize = 64;

/// A sample of all possible pages.
#[derive(Clone, Debug)]
pub struct Sampler {
    mixed_seed: u64,
    group_pages: u64,
    values: Range<u64>,
}

impl Sampler {
    /// Number of hash values; a sample is a range of them, and disjoint ranges are disjoint samples.
    pub const RANGE: u64 = 1 << 24;

    /// The sample of a share of the pages for policies of which some look for `neighbours`
    /// ([`Info::neighbours`](crate::Info::neighbours)), or of which none does.
    pub fn of_share(seed: u64, neighbours: bool, share: f64) -> Self {
        let group_pages = if neighbours { GROUP_PAGES } else { 1 };
        Sampler::new(seed, group_pages, 0..(share * Self::RANGE as f64) as u64)
    }

    /// Slots for a share of so many pages.
    pub fn slots(pages: usize, share: f64) -> usize {
        (pages as f64 * share * SLACK) as usize + SLACK_PAGES
    }

    /// The sample of pages whose hash is in `values`. Groups of `group_pages` neighbours are in it together or not at
    /// all, for policies that look for runs and blocks.
    ///
    /// # Panics
    /// When a group has no page.
    pub fn new(seed: u64, group_pages: u64, values: Range<u64>) -> Self {
        assert!(group_pages > 0, "a group of no pages");
        Sampler { mixed_seed: Random::mix(seed), group_pages, values }
    }

    /// A hash of 40 bits if the page is in the sample, else `None`. The bits are independent of the membership and
    /// equal within a group.
    #[inline(always)]
    pub fn find(&self, at: Address) -> Option<u64> {
        let group = (u64::from(at.object.0) << 40) ^ (at.block / self.group_pages);
        let hash = Random::mix(group ^ self.mixed_seed);
        self.values.contains(&(hash % Self::RANGE)).then_some(hash / Self::RANGE)
    }
}
