//! FAB: evicts the block that has most pages in the buffer.
//!
//! Jo, Kang, Park, Kim, Lee, "FAB: flash-aware buffer management policy for portable media players", IEEE
//! Transactions on Consumer Electronics 2006. Blocks are kept in LRU order; the victim is the block with the most
//! pages, among equals the least recently written one (004, section 2.3; where 004, section 3.2 has "largest recently
//! used" it can only mean least).
//!
//! The search through all blocks, for which 004 blames it, is replaced by a list per page count; the choice is the same.
//!
//! Reading: a block that keeps pinned pages after a flush is from then on the last victim among those of its new size.

use super::blocks::BLOCK;
use super::buckets::Buckets;
use super::buffer::{Order, WriteBuffer};
use crate::info::{Config, Info};
use crate::options::{BuildError, Options};

/// Flash-aware buffer management.
pub type Fab = WriteBuffer<FabOrder>;

/// The largest block first, among equals the least recently written.
#[derive(Clone, Debug)]
pub struct FabOrder {
    sizes: Buckets,
}

impl Order for FabOrder {
    const INFO: Info = Info {
        name: "fab",
        family: "writebuffer",
        summary: "write buffer of an SSD: evicts the block with most pages, ties by LRU",
        paper: "Jo, Kang, Park, Kim, Lee: FAB, flash-aware buffer management policy for portable media players, IEEE \
                Transactions on Consumer Electronics 2006",
        options: &[BLOCK],
        tiers: &["buffer"],
        write_aware: true,
        addresses: true,
        neighbours: true,
        ..Info::PLAIN
    };

    fn new(_config: &Config, _options: &Options, slots: usize) -> Result<Self, BuildError> {
        Ok(FabOrder { sizes: Buckets::new(slots) })
    }

    #[inline]
    fn touched(&mut self, slot: u32, count: u8) {
        self.sizes.refresh(slot, count);
    }

    #[inline]
    fn grew(&mut self, slot: u32, count: u8) {
        if count > 1 {
            self.sizes.remove(slot, count - 1);
        }
        self.sizes.insert(slot, count);
    }

    fn shrank(&mut self, slot: u32, before: u8, after: u8) {
        self.sizes.remove(slot, before);
        if after > 0 {
            self.sizes.insert(slot, after);
        }
    }

    fn victim(&mut self) -> Option<u32> {
        self.sizes.largest()
    }

    fn victim_after(&self, slot: u32, count: u8) -> Option<u32> {
        self.sizes.after(slot, count)
    }

    fn memory_bytes(&self) -> usize {
        self.sizes.memory_bytes()
    }
}
