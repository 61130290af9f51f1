//! Work that a decision leaves to be done once the core's lock has been given back.
//!
//! A movement changes the index, the queue and the frames at once, and leaves its bytes to a step:
//!
//! - *Copying*: a block of the store is reserved, and named in the index. The request's own bytes, or those of a frame
//!   that moves down, are copied to it later. Readers of the block and the write of its batch wait for that. Steps of one
//!   plan, and of several, fill distinct blocks in any order. Whoever reserves a block again waits first, so an older
//!   version never comes after a newer one. Frames share their bytes with the steps and the queue.
//! - *Loading*: a page belongs to a tier that has no bytes of it: the policy fetches another page than the requested
//!   one, or a frame moves down whose bytes the store has given up. That state is the mark that the page is loading. Its newest
//!   version is found where durability has it, as after an invalidation. The thread of the request reads the page under
//!   the page's lock, which other requests for it await, and has the core fill the tier. A write before that brings
//!   bytes of its own. Where the page's lock is not free, or the read fails, the page stays without bytes, and the next
//!   request for it reads them or gets the error. Nothing is reserved meanwhile, so reclaim has nothing to move, and a
//!   crash nothing to find.
//!
//! A step of a hold copies a page in 50 to 100 ns that the hold took before, and its CRC in as many; loading takes a read of
//! a device, up to 10 ms of a disk, out of the hold. A plan costs a request with one copy no memory; with more a list.

#[cfg(test)]
pub(super) mod open_plans;

use super::page_copy::PageCopy;
use entresol_store::{Unfilled, page_crc};

/// Most pages that wait to be loaded. More are loaded when they are requested.
const LOADS_MAX: usize = 64;

/// Bytes of the page of a request, with their CRC where it was computed before the core's lock was taken.
#[derive(Clone, Copy)]
pub(crate) struct PageBytes<'a> {
    pub bytes: &'a [u8],
    /// CRC of the bytes, if it is known.
    pub known_crc: Option<u32>,
}

impl<'a> PageBytes<'a> {
    /// Stands for bytes that have not been read yet.
    pub const UNKNOWN: PageBytes<'static> = PageBytes { bytes: &[], known_crc: None };

    /// Bytes whose CRC is computed if it is needed.
    pub fn new(bytes: &'a [u8]) -> Self {
        PageBytes { bytes, known_crc: None }
    }

    /// Bytes with this CRC, if it is known.
    pub fn with(bytes: &'a [u8], known_crc: Option<u32>) -> Self {
        PageBytes { bytes, known_crc }
    }

    /// Bytes whose CRC is computed now.
    pub fn checked(bytes: &'a [u8]) -> Self {
        PageBytes { bytes, known_crc: Some(page_crc(bytes)) }
    }

    pub fn crc(&self) -> u32 {
        self.known_crc.unwrap_or_else(|| page_crc(self.bytes))
    }
}

/// Whole pages of a request, from `first` on.
#[derive(Clone, Copy)]
pub(crate) struct RequestBytes<'a> {
    pub first: u64,
    pub bytes: &'a [u8],
    pub page_bytes: usize,
}

impl<'a> RequestBytes<'a> {
    /// One page.
    pub fn one(page: u64, bytes: &'a [u8]) -> Self {
        RequestBytes { first: page, bytes, page_bytes: bytes.len() }
    }

    /// Bytes of one of the pages.
    pub fn of(&self, page: u64) -> &'a [u8] {
        let at = (page - self.first) as usize * self.page_bytes;
        &self.bytes[at..at + self.page_bytes]
    }

    /// The pages.
    #[cfg(test)]
    fn pages(&self) -> std::ops::Range<u64> {
        self.first..self.first + (self.bytes.len() / self.page_bytes) as u64
    }
}

/// A block of the store that gets the bytes of a page.
struct Step {
    page: u64,
    block: Unfilled,
}

/// Steps that the decisions of one hold of the core's lock leave.
#[must_use = "a plan is carried out before its pages are unlocked"]
#[derive(Default)]
pub(crate) struct Plan {
    /// First step with bytes of the request. Most plans have no other step.
    own: Option<Step>,
    /// Others of these.
    more: Vec<Step>,
    /// Steps with bytes of frames.
    copies: Vec<(Step, PageCopy)>,
    /// Pages to be loaded.
    loads: Vec<u64>,
}

impl Plan {
    /// Adds a step with the bytes of the request's page.
    pub fn fill(&mut self, page: u64, block: Unfilled) {
        let step = Step { page, block };
        if self.own.is_none() { self.own = Some(step) } else { self.more.push(step) }
    }

    /// Adds a step with bytes of a frame.
    pub fn copy(&mut self, page: u64, block: Unfilled, bytes: PageCopy) {
        self.copies.push((Step { page, block }, bytes));
    }

    /// Adds a page to be loaded.
    pub fn load(&mut self, page: u64) {
        if self.loads.len() < LOADS_MAX {
            self.loads.push(page);
        }
    }

    /// Bytes of a frame that a step is to copy for a page.
    pub fn copied(&self, page: u64) -> Option<&PageCopy> {
        self.copies.iter().rev().find(|(step, _)| step.page == page).map(|(_, bytes)| bytes)
    }

    /// Carries out the steps with bytes of a page's frame: its block is about to be reserved again.
    pub fn settle_page(&mut self, page: u64) {
        if self.copied(page).is_some() {
            self.copies.extract_if(.., |(step, _)| step.page == page).for_each(|(step, bytes)| step.block.fill(&bytes));
        }
    }

    /// Carries out the steps with bytes of frames, under the core's lock.
    pub fn settle_copies(&mut self) {
        self.copies.drain(..).for_each(|(step, bytes)| step.block.fill(&bytes));
    }

    /// True if a block is still to be filled with bytes of the request.
    pub fn has_own(&self) -> bool {
        self.own.is_some()
    }

    /// True if a block is still to be filled.
    pub fn has_steps(&self) -> bool {
        self.own.is_some() || !self.copies.is_empty()
    }

    /// Copies the bytes, and returns the pages to be loaded. The locks of the request's pages are held, and the core's
    /// lock is not.
    pub fn carry_out(mut self, request: RequestBytes) -> Vec<u64> {
        let loads = std::mem::take(&mut self.loads);
        #[cfg(test)]
        let Some(plan) = open_plans::hold(self, request) else { return loads };
        #[cfg(not(test))]
        let plan = self;
        plan.carry_out_now(request);
        loads
    }

    /// Copies the bytes of frames, where there are no others.
    pub fn carry_out_copies(mut self) {
        debug_assert!(self.own.is_none(), "a request's bytes are not known here");
        self.settle_copies();
    }

    /// As [`carry_out`](Plan::carry_out), under the core's lock: what follows in the same hold may read the blocks.
    pub fn carry_out_now(mut self, request: RequestBytes) -> Vec<u64> {
        for Step { page, block } in self.own.into_iter().chain(self.more) {
            block.fill(request.of(page));
        }
        self.copies.drain(..).for_each(|(step, bytes)| step.block.fill(&bytes));
        self.loads
    }
}
