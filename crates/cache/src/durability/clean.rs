//! Cleaning ahead: where too many pages are dirty, the coldest are written below before the policy asks.
//!
//! The coldest pages are those written longest ago: a log is ordered by age, and reclaim has put pages that the policy
//! kept behind the others. (Slots are gone through one after the other; their order is no age.) The pages stay cached
//! and become clean. The policy is not told: when it writes such a page back later, nothing is left to be written. A
//! cleaner of the policy's own goes on beside this one.

use super::write_back::WriteBack;
use entresol_store::mutant::{self, Mutant};
use std::ops::Range;

/// Segments looked through for dirty pages in one step.
const SEGMENTS_PER_STEP: usize = 64;

/// Limits on dirty pages: cleaning begins above the high one and ends at the low one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DirtyLimits {
    /// Shares of the tier on the cache device, high and low.
    pub shares: (f64, f64),
    high: usize,
    low: usize,
    /// The high limit was passed, and the low one is not yet reached.
    pub cleaning: bool,
    /// Position in the store at which the search for dirty pages goes on.
    from: u64,
}

impl DirtyLimits {
    pub const NONE: DirtyLimits =
        DirtyLimits { shares: (1.0, 1.0), high: usize::MAX, low: usize::MAX, cleaning: false, from: 0 };

    /// Limits for a tier of so many pages, at least a segment's: in the segment that is being filled nothing is
    /// cleaned.
    pub fn new((high, low): (f64, f64), tier_pages: usize, segment_pages: usize) -> Self {
        if high >= 1.0 {
            return DirtyLimits { shares: (high, low), ..DirtyLimits::NONE };
        }
        let pages = |share: f64| ((share * tier_pages as f64) as usize).max(segment_pages);
        DirtyLimits { shares: (high, low), high: pages(high), low: pages(low), ..DirtyLimits::NONE }
    }
}

impl WriteBack {
    /// True if more pages are dirty than should be.
    pub fn lacks_clean_pages(&self) -> bool {
        let DirtyLimits { high, low, cleaning, .. } = self.dirty_limits;
        self.has_help() && high < usize::MAX && self.store.index().dirty_sound_len() > if cleaning { low } else { high }
    }

    /// Pages with versions in these blocks of the store that have to be written below and are not on their way.
    pub(crate) fn owed_in(&self, blocks: Range<usize>) -> impl Iterator<Item = u64> {
        let index = self.store.index();
        let is_owed = |page: &u64| index.get(*page).is_some_and(|entry| self.is_owed(*page, entry));
        index.dirty_in(blocks).filter(is_owed)
    }

    /// Queues those of these pages that are still to be written below.
    pub(crate) fn queue_owed(&mut self, pages: &[u64]) {
        for &page in pages {
            let entry = self.store.index().get(page).filter(|&entry| !entry.lost && self.is_owed(page, entry));
            if let Some(entry) = entry {
                self.write_back_stored(page, entry);
            }
        }
    }

    /// Queues cold dirty pages; none when enough of them are on their way.
    pub(crate) fn queue_cold(&mut self) {
        let on_their_way = self.dirty_queue.len() + self.unsynced.len();
        let spared = self.dirty_limits.low + on_their_way;
        let mut wanted = self.store.index().dirty_sound_len().saturating_sub(spared);
        for _ in 0..SEGMENTS_PER_STEP {
            if wanted == 0 || self.depth() > 0 {
                return;
            }
            let Some((next, versions)) = self.store.segment_from(self.dirty_limits.from) else {
                self.dirty_limits.from = 0;
                return;
            };
            for (page, address) in versions {
                let entry = self.store.index().get(page).filter(|entry| entry.address == address && !entry.lost);
                let Some(entry) = entry.filter(|&entry| self.is_owed(page, entry)) else { continue };
                if wanted == 0 {
                    return;
                }
                self.write_back_stored(page, entry);
                self.counts.cleaned_ahead += 1;
                wanted -= 1;
                if mutant::is(Mutant::CleanedTooEarly) {
                    // After a crash no other code would write the page below.
                    let _noted = self.store.cleaned(page);
                }
            }
            self.dirty_limits.from = next;
        }
    }
}
