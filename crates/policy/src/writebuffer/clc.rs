//! CLC, cold and largest cluster: of the blocks that have gone cold the largest is evicted.
//!
//! Kang, Park, Jung, Shim, Cha, "Performance trade-offs in using NVRAM write buffer for flash memory-based storage
//! devices", IEEE Transactions on Computers 2009. A cluster, the buffered pages of one erase block, starts at the front
//! of the size-independent list, which is in LRU order; every write to one of its pages brings it back there. What falls
//! out of the end of that list goes to the size-dependent list, from which the largest cluster is evicted, among equals
//! the coldest (the same in 004, sections 2.3 and 3.2).
//!
//! Readings:
//! - The share of the size-independent list is measured in pages of the buffer, 10 % by default. Its most recent
//!   cluster never falls out, however large it is.
//! - Without any cold cluster the least recent one of the size-independent list is evicted.
//! - A cold cluster that keeps pinned pages is from then on the last victim among those of its new size.

use super::blocks::BLOCK;
use super::buckets::Buckets;
use super::buffer::{Order, WriteBuffer};
use crate::info::{Config, Info, OptionInfo};
use crate::options::{BuildError, Options};
use crate::parts::Lists;
use entresol_core::Page;

/// Cold and largest cluster.
pub type Clc = WriteBuffer<ClcOrder>;

/// The largest of the cold blocks first.
#[derive(Clone, Debug)]
pub struct ClcOrder {
    /// Pages that the size-independent list is allowed.
    hot_max: usize,
    hot_pages: usize,
    /// The size-independent list.
    hot: Lists<1>,
    /// The size-dependent list.
    cold: Buckets,
    /// Page count of each block.
    counts: Vec<u8>,
}

const HOT: usize = 0;

impl Order for ClcOrder {
    const INFO: Info = Info {
        name: "clc",
        family: "writebuffer",
        summary: "write buffer of an SSD: the largest of the blocks that fell out of an LRU list",
        paper: "Kang, Park, Jung, Shim, Cha: Performance trade-offs in using NVRAM write buffer for flash memory-based \
                storage devices, IEEE Transactions on Computers 2009",
        options: &[
            BLOCK,
            OptionInfo {
                name: "hot",
                default: "10%",
                help: "pages of the size-independent list, where clusters are safe from eviction; per cents are of \
                       the buffer",
            },
        ],
        tiers: &["buffer"],
        write_aware: true,
        addresses: true,
        neighbours: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options, slots: usize) -> Result<Self, BuildError> {
        Ok(ClcOrder {
            hot_max: options.pages("hot", config, config.tiers[0])?,
            hot_pages: 0,
            hot: Lists::new(slots),
            cold: Buckets::new(slots),
            counts: vec![0; slots],
        })
    }

    #[inline]
    fn touched(&mut self, slot: u32, count: u8) {
        if self.hot.contains(Page(slot)) {
            self.hot.move_to_front(HOT, Page(slot));
        } else {
            self.cold.remove(slot, count);
            self.heat(slot, count);
        }
    }

    #[inline]
    fn grew(&mut self, slot: u32, count: u8) {
        self.counts[slot as usize] = count;
        if self.hot.contains(Page(slot)) {
            self.hot.move_to_front(HOT, Page(slot));
            self.hot_pages += 1;
            self.cool();
        } else {
            if count > 1 {
                self.cold.remove(slot, count - 1);
            }
            self.heat(slot, count);
        }
    }

    fn shrank(&mut self, slot: u32, before: u8, after: u8) {
        self.counts[slot as usize] = after;
        if self.hot.contains(Page(slot)) {
            self.hot_pages -= usize::from(before - after);
            if after == 0 {
                self.hot.remove(HOT, Page(slot));
            }
        } else {
            self.cold.remove(slot, before);
            if after > 0 {
                self.cold.insert(slot, after);
            }
        }
    }

    fn victim(&mut self) -> Option<u32> {
        self.cold.largest().or_else(|| self.hot.back(HOT).map(|slot| slot.0))
    }

    fn victim_after(&self, slot: u32, count: u8) -> Option<u32> {
        let next_hot = if self.hot.contains(Page(slot)) {
            self.hot.towards_front(Page(slot))
        } else if let Some(next) = self.cold.after(slot, count) {
            return Some(next);
        } else {
            self.hot.back(HOT)
        };
        next_hot.map(|slot| slot.0)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("size_independent_pages", self.hot_pages as f64);
    }

    fn memory_bytes(&self) -> usize {
        self.hot.memory_bytes() + self.cold.memory_bytes() + self.counts.capacity()
    }
}

impl ClcOrder {
    /// Takes a block into the size-independent list as the most recent one.
    fn heat(&mut self, slot: u32, count: u8) {
        self.hot.push_front(HOT, Page(slot));
        self.hot_pages += usize::from(count);
        self.cool();
    }

    /// Moves the excess of the size-independent list to the size-dependent one.
    #[inline]
    fn cool(&mut self) {
        while self.hot_pages > self.hot_max && self.hot.len(HOT) > 1 {
            let Some(slot) = self.hot.back(HOT) else { break };
            let count = self.counts[slot.index()];
            self.hot.remove(HOT, slot);
            self.hot_pages -= usize::from(count);
            self.cold.insert(slot.0, count);
        }
    }
}
