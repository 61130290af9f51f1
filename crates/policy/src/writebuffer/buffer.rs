//! Common part of the write buffers, which differ in the order in which blocks become victims.
//!
//! A write refers to its block first (it becomes the most recent one, as 004, section 2.4.2 (1) says of hits and
//! misses alike), then room is made where there is none, then the page goes in. So a block-level LRU never evicts the
//! block that is being written while there is another one, and a buffer that evicts the largest block may.
//!
//! A victim's pages leave at once. Those that may not be evicted stay, dirty, and keep their block in the order; a
//! block of which nothing may go is passed over, and when no block yields a page the write bypasses the buffer.

use super::blocks::Blocks;
use crate::info::{Config, Info};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use entresol_core::{Outcome, Page, Request, Tier};

/// The order in which the blocks of a write buffer become victims.
pub trait Order: Clone + Send + 'static {
    /// Name, source, options of the policy.
    const INFO: Info;

    /// True if the policy needs [`completed`](Self::completed).
    const SEQUENTIAL: bool = false;

    /// An empty order of at most `slots` blocks.
    fn new(config: &Config, options: &Options, slots: usize) -> Result<Self, BuildError>;

    /// True if blocks are completed when they are written.
    fn padding(_options: &Options) -> Result<bool, BuildError> {
        Ok(false)
    }

    /// Records a write to a block of `count` pages that keeps its number of pages.
    fn touched(&mut self, slot: u32, count: u8);

    /// Records a write to a block that now has `count` pages; it is new when that is one.
    fn grew(&mut self, slot: u32, count: u8);

    /// Records a flush that left a block with fewer pages; the block is gone when `after` is 0.
    fn shrank(&mut self, slot: u32, before: u8, after: u8);

    /// Records that all pages of a block have been written in the order of their addresses.
    fn completed(&mut self, _slot: u32, _count: u8) {}

    /// The first victim.
    fn victim(&mut self) -> Option<u32>;

    /// The victim to try after `slot`, of `count` pages, proved to be pinned.
    fn victim_after(&self, slot: u32, count: u8) -> Option<u32>;

    /// Visits the figures worth a curve over time.
    fn gauges(&self, _visit: &mut dyn FnMut(&'static str, f64)) {}

    /// Bytes held.
    fn memory_bytes(&self) -> usize;
}

/// Mark of a block that is not being written in sequence.
const BROKEN: u8 = u8::MAX;

/// A write buffer that evicts whole blocks in some order.
#[derive(Clone, Debug)]
pub struct WriteBuffer<O> {
    blocks: Blocks,
    order: O,
    /// Pages per slot written in sequence from the first one of the block on, or `BROKEN`. Empty when the order does
    /// not need it.
    runs: Vec<u8>,
}

impl<O: Order> Policy for WriteBuffer<O> {
    const INFO: Info = O::INFO;

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let blocks = Blocks::new(config, options, 0, O::padding(options)?)?;
        let slots = blocks.slots();
        let runs = if O::SEQUENTIAL { vec![BROKEN; slots] } else { Vec::new() };
        Ok(WriteBuffer { blocks, order: O::new(config, options, slots)?, runs })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        if let Some(slot) = self.blocks.slot_of(page) {
            driver.overwrite(request, Tier::TOP);
            if request.op.is_write() {
                self.order.touched(slot, self.blocks.count(slot));
                self.written(slot, self.blocks.offset_of(page));
            }
            return Outcome::Hit(Tier::TOP);
        }
        if !request.op.is_write() {
            return driver.bypass(request);
        }
        let (group, offset) = self.blocks.locate(page, driver);
        if self.blocks.is_full() {
            if let Some(slot) = self.blocks.find(group) {
                self.order.touched(slot, self.blocks.count(slot));
            }
            if !self.make_room(driver) {
                return driver.bypass(request);
            }
        }
        driver.admit(request, Tier::TOP);
        let slot = self.blocks.insert(page, group, offset);
        self.order.grew(slot, self.blocks.count(slot));
        self.written(slot, offset);
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let held = self.blocks.slot_of(page).is_some();
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: held, known: held }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.blocks.len()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("blocks", self.blocks.len_blocks() as f64);
        visit("flushed_blocks", self.blocks.flushed() as f64);
        if let Some(padded) = self.blocks.padded() {
            visit("padded_pages", padded as f64);
        }
        self.order.gauges(visit);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.blocks.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.blocks.memory_bytes() + self.order.memory_bytes() + self.runs.capacity()
    }
}

impl<O: Order> WriteBuffer<O> {
    /// Frees the pages of a block; false when none may go.
    fn make_room<D: Driver>(&mut self, driver: &mut D) -> bool {
        let mut candidate = self.order.victim();
        while let Some(slot) = candidate {
            let before = self.blocks.count(slot);
            let freed = self.blocks.flush(slot, driver);
            if freed > 0 {
                self.order.shrank(slot, before, before - freed);
                if O::SEQUENTIAL {
                    self.runs[slot as usize] = BROKEN;
                }
                return true;
            }
            candidate = self.order.victim_after(slot, before);
        }
        false
    }

    /// Follows sequences of writes. A sequence starts at the first page of a block, whatever came before; a block of
    /// one page has none.
    #[inline(always)]
    fn written(&mut self, slot: u32, offset: u8) {
        if O::SEQUENTIAL {
            let run = &mut self.runs[slot as usize];
            *run = if offset == 0 || offset == *run { offset + 1 } else { BROKEN };
            if usize::from(*run) == self.blocks.block() && *run > 1 {
                self.order.completed(slot, *run);
            }
        }
    }
}
