//! Long sequential streams that pass by, where the cache holds pages in their midst: what is clean is the same below, so that
//! such a gap in what is to be read there can be read along with it, as ZFS reads small gaps between the reads that it joins.
//! The disk and its read-ahead go on without a break, and no device is asked for what is in memory already.
//!
//! The cache is there to keep the disk from such reads, so they are bounded. A page of a gap is paid for with a page that has
//! passed: the disk reads no more than twice as much as the stream itself needs of it. And only what the backing store has
//! in memory is had from there ([`Disk::read_now`](crate::disk::Disk::read_now)). Where it has not, the reader is faster than
//! the disk: nothing is left to pay with, and the rest of the gap comes from the cache device.

use super::core::{Core, Engine};
use super::keeper::Source;
use super::world::World;
use entresol_policy::Policy;

/// Of the pages that have passed so many times the cutoff pay for gaps.
const CUTOFFS_MAX: u64 = 2;

impl<P: Policy> Engine<P> {
    /// Whether pages from `first` on can be had from below in one piece, and which of them the cache holds as well: a bit
    /// for each, that of the first is the lowest. These are then paid for. `bytes` may then hold anything.
    pub(super) fn find_below(&mut self, first: u64, bytes: &mut [u8]) -> Option<u64> {
        if Core::is_off(self) || self.unseen.is_some() {
            return None;
        }
        let page_bytes = self.world.page_bytes();
        let mut held = 0_u64;
        for (at, bytes) in bytes.chunks_exact_mut(page_bytes).enumerate() {
            let page = first + at as u64;
            if !matches!(self.locate(page, bytes), Ok(Source::Below)) {
                if !self.world.is_same_below(page) {
                    return None;
                }
                held |= 1 << at;
            }
        }
        (held == 0 || self.world.pay_for_gap(first, u64::from(held.count_ones()))).then_some(held)
    }
}

impl World {
    /// Has the backing store durably what the cache holds of a page?
    fn is_same_below(&self, page: u64) -> bool {
        let is_newer = |handle| self.frame(handle).is_some_and(|frame| frame.dirty);
        !self.keeper.has_more_than_below(page) && !self.directory.find(page).is_some_and(is_newer)
    }

    fn pay_for_gap(&mut self, first: u64, pages: u64) -> bool {
        let at = self.objects.address(first);
        let is_long = self.streams.as_ref().is_some_and(|streams| streams.is_long(at));
        let pays = is_long && self.gap_pages >= pages;
        if pays {
            self.gap_pages -= pages;
        }
        pays
    }

    /// A page of a stream has passed, which pays for one of a gap.
    pub fn save_for_gaps(&mut self) {
        let cutoff_pages = self.streams.as_ref().map_or(0, |streams| streams.cutoff_pages());
        self.gap_pages = (self.gap_pages + 1).min(CUTOFFS_MAX * cutoff_pages);
    }

    /// The backing store does not have a gap in memory.
    pub fn leave_gaps(&mut self) {
        self.gap_pages = 0;
    }
}
