//! BPLRU: an LRU list of erase blocks, page padding, LRU compensation.
//!
//! Kim, Ahn, "BPLRU: a buffer management scheme for improving random writes in flash storage", FAST 2008. A write moves
//! its whole block to the front of the list; the victim is the block at its end.
//!
//! - LRU compensation: a block that was written in sequence from its first page to its last will hardly be written
//!   again, so it moves to the end of the list at once. Reading: a sequence starts anew whenever the first page is
//!   written, any other page out of turn ends it; of several such blocks the last one is evicted first, as the text's
//!   "LRU position" says.
//! - Page padding: before a block is flushed, its missing pages are read from flash and written with it, so that a
//!   hybrid mapping can swap the block instead of merging it. The interface has no movement for a page that never
//!   enters the buffer, and 004 counts no padding either. So it is off by default; with it a flush is one I/O whatever
//!   its holes, and the gauge `padded_pages` says how many pages were read and written in addition, which the write
//!   counts do not include. Pages kept back by a pin count as missing.
//! - Reads are looked up and otherwise ignored: the paper uses the RAM for writes only.

use super::blocks::BLOCK;
use super::buffer::{Order, WriteBuffer};
use crate::info::{Config, Info, OptionInfo};
use crate::options::{BuildError, Options};
use crate::parts::Lists;
use entresol_core::Page;

/// Block padding LRU.
pub type Bplru = WriteBuffer<BplruOrder>;

/// Blocks in LRU order, those written in sequence first.
#[derive(Clone, Debug)]
pub struct BplruOrder {
    recency: Lists<1>,
    compensate: bool,
}

const RECENCY: usize = 0;

impl Order for BplruOrder {
    const INFO: Info = Info {
        name: "bplru",
        family: "writebuffer",
        summary: "write buffer of an SSD: LRU of erase blocks, sequentially written ones first",
        paper: "Kim, Ahn: BPLRU, a buffer management scheme for improving random writes in flash storage, FAST 2008",
        options: &[
            BLOCK,
            OptionInfo {
                name: "compensation",
                default: "on",
                help: "on: a block written from its first to its last page becomes the next victim; off: plain LRU",
            },
            OptionInfo {
                name: "padding",
                default: "off",
                help: "on: missing pages are read and written with the block, so that a flush is one I/O; they are \
                       counted by the gauge padded_pages, not as writes",
            },
        ],
        tiers: &["buffer"],
        write_aware: true,
        addresses: true,
        neighbours: true,
        ..Info::PLAIN
    };

    const SEQUENTIAL: bool = true;

    fn new(_config: &Config, options: &Options, slots: usize) -> Result<Self, BuildError> {
        let compensate = options.choice("compensation", &[("on", true), ("off", false)])?;
        Ok(BplruOrder { recency: Lists::new(slots), compensate })
    }

    fn padding(options: &Options) -> Result<bool, BuildError> {
        options.choice("padding", &[("on", true), ("off", false)])
    }

    #[inline]
    fn touched(&mut self, slot: u32, _count: u8) {
        self.recency.move_to_front(RECENCY, Page(slot));
    }

    #[inline]
    fn grew(&mut self, slot: u32, count: u8) {
        if count == 1 {
            self.recency.push_front(RECENCY, Page(slot));
        } else {
            self.recency.move_to_front(RECENCY, Page(slot));
        }
    }

    fn shrank(&mut self, slot: u32, _before: u8, after: u8) {
        if after == 0 {
            self.recency.remove(RECENCY, Page(slot));
        }
    }

    fn completed(&mut self, slot: u32, _count: u8) {
        if self.compensate {
            self.recency.remove(RECENCY, Page(slot));
            self.recency.push_back(RECENCY, Page(slot));
        }
    }

    fn victim(&mut self) -> Option<u32> {
        self.recency.back(RECENCY).map(|slot| slot.0)
    }

    fn victim_after(&self, slot: u32, _count: u8) -> Option<u32> {
        self.recency.towards_front(Page(slot)).map(|slot| slot.0)
    }

    fn memory_bytes(&self) -> usize {
        self.recency.memory_bytes()
    }
}
