//! Long sequential streams that pass by, where the cache holds pages in their midst: what is clean is the same below, so that
//! such a gap in what is to be read there can be read along with it, as ZFS reads small gaps between the reads that it joins.
//! The disk and its read-ahead go on without a break, and no device is asked for what is in memory already.
//!
//! The cache is there to keep the disk from such reads, so they are bounded. A page of a gap is paid for with a page that has
//! passed: the disk reads no more than twice as much as the stream itself needs of it. And only what the backing store has
//! in memory is had from there ([`Disk::read_now`](crate::disk::Disk::read_now)). Where it has not, the reader is faster than
//! the disk: nothing is left to pay with, and the rest of the gap comes from the cache device.

use super::core::{Core, Engine};
use super::executor::Executor;
use super::write_back::{Source, WriteBack};
use entresol_policy::Policy;
use std::ops::Range;

/// Most credit for reading gaps that pages which passed can earn, in multiples of the cutoff.
const CUTOFFS_MAX: u64 = 2;
/// Places that are known as those where a stream passed last.
const PLACES: usize = 16;
/// Pages by which threads that take requests in turn may get ahead of one another.
const NEAR: u64 = 64;
/// Page number that no page is near.
const NOWHERE: u64 = 1 << 63;

/// Credit for reading gaps, and the pages at which streams passed last.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    /// Pages that are paid for.
    paid: u64,
    /// Pages after those that passed last, or that were read of a gap. Stream ids cannot be used: a gap is often an
    /// earlier stream's head, and then belongs to that stream.
    nexts: [u64; PLACES],
    hand: usize,
}

impl Gaps {
    /// Nothing has passed yet.
    pub const NONE: Gaps = Gaps { paid: 0, nexts: [NOWHERE; PLACES], hand: 0 };

    fn near(&self, page: u64) -> Option<usize> {
        self.nexts.iter().position(|next| next.abs_diff(page) <= NEAR)
    }

    /// A page has passed, which pays for another: `most` at a time.
    fn earn(&mut self, page: u64, most: u64) {
        self.paid = (self.paid + 1).min(most);
        let at = self.near(page).unwrap_or_else(|| {
            self.hand = (self.hand + 1) % PLACES;
            self.hand
        });
        self.nexts[at] = page + 1;
    }

    /// Takes so many held pages from the credit, for a row of pages. True if a stream passes there and there is credit
    /// for them; else nothing is taken.
    fn spend(&mut self, row: Range<u64>, held: u64) -> bool {
        let Some(at) = self.near(row.start).filter(|_| self.paid >= held) else { return false };
        self.paid -= held;
        self.nexts[at] = row.end;
        true
    }

    /// The backing store does not have a gap in memory.
    pub fn leave(&mut self) {
        self.paid = 0;
    }
}

impl<P: Policy> Engine<P> {
    /// Finds out if whole pages from `first` on can be had from below in one piece. If so, returns a bit for each page
    /// that the cache holds as well; the bit of the first page is the lowest. These pages are then paid for. `bytes`
    /// may then hold anything.
    pub(super) fn find_below(&mut self, first: u64, bytes: &mut [u8]) -> Option<u64> {
        if Core::is_off(self) || self.unseen.is_some() {
            return None;
        }
        let page_bytes = self.executor.page_bytes();
        let mut held = 0_u64;
        for (at, bytes) in bytes.chunks_exact_mut(page_bytes).enumerate() {
            let page = first + at as u64;
            if !matches!(self.locate(page, bytes), Ok(Source::Below)) {
                if !self.executor.is_same_below(page) {
                    return None;
                }
                held |= 1 << at;
            }
        }
        let row = first..first + (bytes.len() / page_bytes) as u64;
        (held == 0 || self.executor.gaps.spend(row, u64::from(held.count_ones()))).then_some(held)
    }
}

impl WriteBack {
    /// Has the log or the queue anything of a page that the backing store is not known to have, durably?
    fn has_more_than_below(&self, page: u64) -> bool {
        let stored = self.store.index().get(page);
        let is_dirty = stored.is_some_and(|entry| entry.dirty || entry.lost);
        is_dirty || self.dirty_queue.contains_key(&page) || self.unsynced.contains(page)
    }
}

impl Executor {
    /// Has the backing store durably what the cache holds of a page?
    fn is_same_below(&self, page: u64) -> bool {
        let is_newer = |handle| self.frame(handle).is_some_and(|frame| frame.dirty);
        !self.write_back.has_more_than_below(page) && !self.directory.find(page).is_some_and(is_newer)
    }

    /// A page of a stream has passed.
    pub fn passed(&mut self, page: u64) {
        let cutoff_pages = self.streams.as_ref().map_or(0, |streams| streams.cutoff_pages());
        self.gaps.earn(page, CUTOFFS_MAX * cutoff_pages);
    }
}
