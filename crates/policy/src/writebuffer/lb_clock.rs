//! LB-CLOCK: a clock of erase blocks whose victim is the largest one not referenced.
//!
//! Debnath, Subramanya, Du, Lilja, "Large Block CLOCK (LB-CLOCK): a write caching algorithm for solid state disks",
//! MASCOTS 2009. Every block has a recency bit, set by each write to one of its pages. To find a victim the hand turns,
//! clearing bits, up to a block whose bit is clear; of all blocks whose bit is clear the one with the most pages goes.
//!
//! Readings, where the abstract and 004, section 2.3, leave room:
//! - The hand stays at the clear block it found until that block leaves or is written again. So recency decides when
//!   most blocks are in use and size when few are: the "dynamically varies the priority" of both texts.
//! - Among blocks of one size the one whose bit was cleared first goes.
//! - A new block enters just behind the hand, with its bit set.
//! - Sequential detection: a block that was written in sequence from its first page to its last (a sequence as in
//!   `bplru`) goes before all others, the earliest first, unless it is written again. `sequential=off` has none of it.
//! - When all clear blocks are pinned, the others are tried in the order in which the hand would meet them.

use super::blocks::BLOCK;
use super::buckets::Buckets;
use super::buffer::{Order, WriteBuffer};
use crate::info::{Config, Info, OptionInfo};
use crate::options::{BuildError, Options};
use crate::parts::Lists;
use entresol_core::Page;

/// Large Block CLOCK.
pub type LbClock = WriteBuffer<LbClockOrder>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recency {
    /// The recency bit is set.
    Set,
    /// The recency bit is clear: the block is in its bucket.
    Clear,
    /// The block was written in sequence to the end and not again since.
    Done,
}

/// Clock order by block, the largest of the unreferenced first.
#[derive(Clone, Debug)]
pub struct LbClockOrder {
    sequential: bool,
    /// The clock: the hand is at the back and moves on by moving the block there to the front.
    clock: Lists<1>,
    recency: Vec<Recency>,
    clear: Buckets,
    done: Lists<1>,
    /// Page count of each block.
    counts: Vec<u8>,
}

const ONLY: usize = 0;

impl Order for LbClockOrder {
    const INFO: Info = Info {
        name: "lb-clock",
        family: "writebuffer",
        summary: "write buffer of an SSD: CLOCK of erase blocks, the largest of the unreferenced goes",
        paper: "Debnath, Subramanya, Du, Lilja: Large Block CLOCK (LB-CLOCK), a write caching algorithm for solid state \
                disks, MASCOTS 2009",
        options: &[
            BLOCK,
            OptionInfo {
                name: "sequential",
                default: "on",
                help: "on: a block written from its first to its last page is evicted before all others; off: it is \
                       treated as any other",
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
        Ok(LbClockOrder {
            sequential: options.choice("sequential", &[("on", true), ("off", false)])?,
            clock: Lists::new(slots),
            recency: vec![Recency::Set; slots],
            clear: Buckets::new(slots),
            done: Lists::new(slots),
            counts: vec![0; slots],
        })
    }

    #[inline]
    fn touched(&mut self, slot: u32, count: u8) {
        self.become_set(slot, count);
    }

    #[inline]
    fn grew(&mut self, slot: u32, count: u8) {
        if count == 1 {
            self.clock.push_front(ONLY, Page(slot));
            self.recency[slot as usize] = Recency::Set;
        } else {
            self.become_set(slot, count - 1);
        }
        self.counts[slot as usize] = count;
    }

    fn shrank(&mut self, slot: u32, before: u8, after: u8) {
        self.counts[slot as usize] = after;
        if after == 0 {
            self.become_set(slot, before);
            self.clock.remove(ONLY, Page(slot));
        } else if self.recency[slot as usize] == Recency::Clear {
            self.clear.remove(slot, before);
            self.clear.insert(slot, after);
        }
    }

    fn completed(&mut self, slot: u32, _count: u8) {
        if self.sequential {
            self.recency[slot as usize] = Recency::Done;
            self.done.push_front(ONLY, Page(slot));
        }
    }

    fn victim(&mut self) -> Option<u32> {
        if let Some(done) = self.done.back(ONLY) {
            return Some(done.0);
        }
        self.turn();
        self.clear.largest()
    }

    fn victim_after(&self, slot: u32, count: u8) -> Option<u32> {
        let next = match self.recency[slot as usize] {
            Recency::Done => {
                let next = self.done.towards_front(Page(slot)).map(|slot| slot.0);
                return next.or_else(|| self.clear.largest()).or_else(|| self.set_from(self.clock.back(ONLY)));
            }
            Recency::Clear => match self.clear.after(slot, count) {
                Some(next) => return Some(next),
                None => self.clock.back(ONLY),
            },
            Recency::Set => self.clock.towards_front(Page(slot)),
        };
        self.set_from(next)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("sequential_blocks", self.done.len(ONLY) as f64);
    }

    fn memory_bytes(&self) -> usize {
        self.clock.memory_bytes()
            + self.recency.capacity()
            + self.clear.memory_bytes()
            + self.done.memory_bytes()
            + self.counts.capacity()
    }
}

impl LbClockOrder {
    /// Sets the recency bit of a block that has been held with `count` pages.
    #[inline(always)]
    fn become_set(&mut self, slot: u32, count: u8) {
        match std::mem::replace(&mut self.recency[slot as usize], Recency::Set) {
            Recency::Set => {}
            Recency::Clear => self.clear.remove(slot, count),
            Recency::Done => self.done.remove(ONLY, Page(slot)),
        }
    }

    /// Moves the hand to the first block whose bit is clear, clearing those it passes.
    fn turn(&mut self) {
        while let Some(slot) = self.clock.back(ONLY)
            && self.recency[slot.index()] == Recency::Set
        {
            self.recency[slot.index()] = Recency::Clear;
            self.clear.insert(slot.0, self.counts[slot.index()]);
            self.clock.move_to_front(ONLY, slot);
        }
    }

    /// The first block from this one on, as the hand goes, whose bit is set.
    fn set_from(&self, from: Option<Page>) -> Option<u32> {
        let from = std::iter::successors(from, |&slot| self.clock.towards_front(slot));
        from.map(|slot| slot.0).find(|&slot| self.recency[slot as usize] == Recency::Set)
    }
}
