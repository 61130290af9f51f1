//! WRB, the Write Traffic Reduction Buffer: the largest block if it is large enough, else the least recently used.
//!
//! Fan, "Improving storage performance with non-volatile memory-based caching systems", thesis 2017 (004), section
//! 2.4.2: blocks in a hash table and in LRU order; a write, hit or miss, moves its block to the MRU position ((1)
//! Search, (2) Insertion); "if the count is over than the threshold value" of the block with the largest count that
//! block goes, else the LRU block, all pages at once ((3) Victim selection and eviction).
//!
//! Readings:
//! - No threshold of the evaluation is stated. The default is half a block, as in the example (3 of 6 pages).
//! - Among the largest blocks the least recently used one goes.
//! - "Changes the page status from clean to dirty": the buffer considers only write requests and frees what it
//!   flushes, so no page in it is ever clean here.
//! - When the largest blocks are pinned, the next largest above the threshold are tried, then the others in LRU order.
//!
//! The evaluation (sections 2.5.1, 2.5.2) has pages of 4 KiB, a buffer of 4,096 of them below a host cache of 65,536 where
//! it says so, and names no block size; 64 is the example of section 2.4.2.

use super::blocks::BLOCK;
use super::buckets::Buckets;
use super::buffer::{Order, WriteBuffer};
use crate::info::{Config, Info, OptionInfo};
use crate::options::{BuildError, Options};
use crate::parts::Lists;
use entresol_core::Page;

/// Write traffic reduction buffer.
pub type Wrb = WriteBuffer<WrbOrder>;

/// The largest block above a threshold, else the least recently written.
#[derive(Clone, Debug)]
pub struct WrbOrder {
    threshold: usize,
    recency: Lists<1>,
    sizes: Buckets,
    /// Page count of each block.
    counts: Vec<u8>,
}

const RECENCY: usize = 0;

impl Order for WrbOrder {
    const INFO: Info = Info {
        name: "wrb",
        family: "writebuffer",
        summary: "write buffer of an SSD: the largest block above a threshold, else the LRU block",
        paper: "Fan: Improving storage performance with non-volatile memory-based caching systems, thesis, University \
                of Minnesota 2017, chapter 2",
        options: &[
            BLOCK,
            OptionInfo {
                name: "threshold",
                default: "50%",
                help: "pages above which the largest block is evicted instead of the LRU block; per cents are of a \
                       block (004, section 2.4.2; the example has 3 of 6)",
            },
        ],
        tiers: &["buffer"],
        write_aware: true,
        addresses: true,
        neighbours: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options, slots: usize) -> Result<Self, BuildError> {
        let block = options.number::<usize>("block", ..)?;
        Ok(WrbOrder {
            threshold: options.pages("threshold", config, block)?,
            recency: Lists::new(slots),
            sizes: Buckets::new(slots),
            counts: vec![0; slots],
        })
    }

    #[inline]
    fn touched(&mut self, slot: u32, count: u8) {
        self.recency.move_to_front(RECENCY, Page(slot));
        self.sizes.refresh(slot, count);
    }

    #[inline]
    fn grew(&mut self, slot: u32, count: u8) {
        if count == 1 {
            self.recency.push_front(RECENCY, Page(slot));
        } else {
            self.recency.move_to_front(RECENCY, Page(slot));
            self.sizes.remove(slot, count - 1);
        }
        self.sizes.insert(slot, count);
        self.counts[slot as usize] = count;
    }

    fn shrank(&mut self, slot: u32, before: u8, after: u8) {
        self.sizes.remove(slot, before);
        if after == 0 {
            self.recency.remove(RECENCY, Page(slot));
        } else {
            self.sizes.insert(slot, after);
        }
        self.counts[slot as usize] = after;
    }

    fn victim(&mut self) -> Option<u32> {
        let largest = self.sizes.largest().filter(|&slot| self.is_large(slot));
        largest.or_else(|| self.small_from(self.recency.back(RECENCY)))
    }

    fn victim_after(&self, slot: u32, count: u8) -> Option<u32> {
        if usize::from(count) > self.threshold {
            let next = self.sizes.after(slot, count).filter(|&next| self.is_large(next));
            next.or_else(|| self.small_from(self.recency.back(RECENCY)))
        } else {
            self.small_from(self.recency.towards_front(Page(slot)))
        }
    }

    fn memory_bytes(&self) -> usize {
        self.recency.memory_bytes() + self.sizes.memory_bytes() + self.counts.capacity()
    }
}

impl WrbOrder {
    fn is_large(&self, slot: u32) -> bool {
        usize::from(self.counts[slot as usize]) > self.threshold
    }

    /// The first block at or before this one in the list that is not above the threshold.
    fn small_from(&self, from: Option<Page>) -> Option<u32> {
        let from = std::iter::successors(from, |&slot| self.recency.towards_front(slot));
        from.map(|slot| slot.0).find(|&slot| !self.is_large(slot))
    }
}
