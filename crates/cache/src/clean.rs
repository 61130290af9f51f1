//! Cleaning ahead: where too many pages are dirty, the coldest are written below before the policy asks.
//!
//! The coldest pages are those written longest ago: a log is ordered by age, and reclaim has put pages that the policy
//! kept behind the others. (Slots are gone through one after the other; their order is no age.) The pages stay cached
//! and become clean. The policy is not told: when it writes such a page back later, nothing is left to be written. A
//! cleaner of the policy's own goes on beside this one.

use super::maintenance::{self, StoreAccess};
use super::watermarks::DEPTH_MAX;
use super::write_back::WriteBack;
use super::{BlockCache, CacheConfig};
use entresol_store::mutant::{self, Mutant};
use std::io;
use std::ops::Range;
use std::sync::PoisonError;

/// Writes under way at a time, unless the queue demands more.
const DEPTH: usize = 8;
/// Segments looked through for dirty pages in one step.
const SEGMENTS_PER_STEP: usize = 64;

/// Limits on dirty pages: cleaning begins above the high one and ends at the low one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DirtyLimits {
    /// Shares of the tier on the cache device, high and low.
    pub shares: (f64, f64),
    high: usize,
    low: usize,
    /// The high limit was passed, and the low one is not yet reached.
    cleaning: bool,
    /// Position in the store at which the search for dirty pages goes on.
    from: u64,
}

impl DirtyLimits {
    pub const NONE: DirtyLimits =
        DirtyLimits { shares: (1.0, 1.0), high: usize::MAX, low: usize::MAX, cleaning: false, from: 0 };

    /// Limits for a tier of so many pages, at least a segment's: in the segment that is being filled nothing is
    /// cleaned.
    fn new((high, low): (f64, f64), tier_pages: usize, segment_pages: usize) -> Self {
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
    pub(super) fn owed_in(&self, blocks: Range<usize>) -> impl Iterator<Item = u64> {
        let index = self.store.index();
        let is_owed = |page: &u64| index.get(*page).is_some_and(|entry| self.is_owed(*page, entry));
        index.dirty_in(blocks).filter(is_owed)
    }

    /// Queues those of these pages that are still to be written below.
    pub(super) fn queue_owed(&mut self, pages: &[u64]) {
        for &page in pages {
            let entry = self.store.index().get(page).filter(|&entry| !entry.lost && self.is_owed(page, entry));
            if let Some(entry) = entry {
                self.write_back_stored(page, entry);
            }
        }
    }

    /// Queues cold dirty pages; none when enough of them are on their way.
    fn queue_cold(&mut self) {
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

/// One step towards fewer dirty pages.
pub(super) fn clean_some(access: &mut impl StoreAccess) -> io::Result<()> {
    let write_back = access.write_back();
    write_back.dirty_limits.cleaning = true;
    write_back.queue_cold();
    if write_back.dirty_queue.is_empty() {
        maintenance::settle(access)?;
    } else {
        let depth = access.write_back().depth().clamp(DEPTH, DEPTH_MAX);
        maintenance::write_some(access, depth)?;
    }
    let write_back = access.write_back();
    write_back.dirty_limits.cleaning = write_back.lacks_clean_pages();
    Ok(())
}

impl BlockCache {
    /// Sets how many pages may be dirty, as shares of the tier on the cache device. Above `high` the maintenance
    /// threads write the coldest pages below, until at most `low` are dirty. A `high` of 1, as after an open, is no
    /// limit. Up to a segment of pages may be dirty in any case. A cache without threads cleans nothing ahead.
    ///
    /// # Errors
    /// `InvalidInput` unless `0 <= low <= high <= 1`.
    pub fn set_dirty_limits(&self, high: f64, low: f64) -> io::Result<()> {
        if !(0.0 <= low && low <= high && high <= 1.0) {
            let why = format!("dirty limits {high} and {low} are not 0 <= low <= high <= 1");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        self.apply_dirty_limits(&config, (high, low))
    }

    /// The shares of the tier on the cache device that [`set_dirty_limits`](BlockCache::set_dirty_limits) set.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn dirty_limits(&self) -> io::Result<(f64, f64)> {
        Ok(self.locks.guard()?.core().write_back().dirty_limits.shares)
    }

    pub(super) fn apply_dirty_limits(&self, config: &CacheConfig, shares: (f64, f64)) -> io::Result<()> {
        let mut guard = self.locks.guard()?;
        let write_back = guard.write_back();
        let segment_pages = write_back.store.geometry().segment_pages as usize;
        write_back.dirty_limits = DirtyLimits::new(shares, config.tiers.last().copied().unwrap_or(0), segment_pages);
        Ok(())
    }
}
