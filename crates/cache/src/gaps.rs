//! Gaps in long sequential streams that bypass the cache: pages in their midst that the cache holds clean.
//!
//! Such a page is the same in the backing store, so it can be read there along with the stream. ZFS reads small gaps
//! between joined reads in the same way. The disk and its read-ahead go on without a break. No device is asked for a
//! page that is in memory already.
//!
//! The cache is there to keep the disk from such reads, so they are bounded. Each page of a gap costs the credit of one
//! bypassed page: the disk reads at most twice what the stream itself needs of it. Only pages that the backing store
//! has in memory are read there ([`Disk::read_now`](entresol_disk::Disk::read_now)). Where it has not, the reader is
//! faster than the disk: the credit expires, and the rest of the gap comes from the cache device.

use std::ops::Range;

/// Most credit for reading gaps that bypassed pages can earn, in multiples of the cutoff.
pub(super) const CUTOFFS_MAX: u64 = 2;
/// Positions kept at which streams passed last.
const PLACES: usize = 16;
/// Pages by which threads that serve a stream in turn may get ahead of one another.
const NEAR: u64 = 64;
/// Page number that no page is near.
const NOWHERE: u64 = 1 << 63;

/// Credit for reading gaps, and the pages at which streams passed last.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    /// Credit in pages.
    paid: u64,
    /// Pages after those that passed last, or that were read of a gap. Stream ids cannot be used: the pages in a gap
    /// often belong to an earlier stream's head.
    nexts: [u64; PLACES],
    hand: usize,
}

impl Gaps {
    /// No stream has passed yet.
    pub const NONE: Gaps = Gaps { paid: 0, nexts: [NOWHERE; PLACES], hand: 0 };

    fn near(&self, page: u64) -> Option<usize> {
        self.nexts.iter().position(|next| next.abs_diff(page) <= NEAR)
    }

    /// Earns the credit of a page that has passed, up to `most` in all.
    pub fn earn(&mut self, page: u64, most: u64) {
        self.paid = (self.paid + 1).min(most);
        let at = self.near(page).unwrap_or_else(|| {
            self.hand = (self.hand + 1) % PLACES;
            self.hand
        });
        self.nexts[at] = page + 1;
    }

    /// Spends credit for the held pages of a row. True if a stream passes there and the credit suffices; else spends
    /// none.
    pub fn spend(&mut self, row: Range<u64>, held: u64) -> bool {
        let Some(at) = self.near(row.start).filter(|_| self.paid >= held) else { return false };
        self.paid -= held;
        self.nexts[at] = row.end;
        true
    }

    /// Voids the credit: the backing store does not have a gap in memory.
    pub fn leave(&mut self) {
        self.paid = 0;
    }
}
