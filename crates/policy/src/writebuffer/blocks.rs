//! The pages in a write buffer, by erase block.

use super::buckets::PAGES_MAX;
use crate::info::{Config, OptionInfo};
use crate::interface::Driver;
use crate::options::{BuildError, Options};
use crate::parts::{Group, GroupLists, GroupTable};
use entresol_core::{Movement, Page, Tier, Verb};

const NOWHERE: u32 = u32::MAX;

/// The option that every write buffer has.
pub(super) const BLOCK: OptionInfo = OptionInfo {
    name: "block",
    default: "64",
    help: "pages of an erase block, 1 to 128 (004, section 2.4.2: e.g. 64)",
};

/// Position of a page: its block or list, and its offset in the block.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Slot of its block, or one of the extra lists.
    slot: u32,
    /// Position of the page in its block.
    offset: u8,
}

/// The pages of a buffer, every one of them dirty, in lists by block and in as many further lists of single pages as a
/// policy asks for. A block has a slot as long as it has a page here; policies index their data of a block by it. 16
/// bytes a handle, 33 a slot.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    block: u64,
    capacity: usize,
    len: usize,
    table: GroupTable,
    lists: GroupLists,
    places: Vec<Place>,
    counts: Vec<u8>,
    /// The pages that are being flushed, by offset: scratch space.
    leaving: [Page; PAGES_MAX],
    /// True if flushed blocks are completed: a flush is one I/O, holes included.
    pad: bool,
    padded: u64,
    flushed: u64,
}

impl Blocks {
    /// An empty buffer with lists for `extra` further sets of pages: slots from [`slots`](Self::slots) on.
    pub(super) fn new(config: &Config, options: &Options, extra: usize, pad: bool) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        let slots = capacity.min(config.pages);
        Ok(Blocks {
            block: options.number("block", 1..=PAGES_MAX as u64)?,
            capacity,
            len: 0,
            table: GroupTable::new(slots),
            lists: GroupLists::new(config.pages, slots + extra),
            places: vec![Place { slot: NOWHERE, offset: 0 }; config.pages],
            counts: vec![0; slots],
            leaving: [Page(0); PAGES_MAX],
            pad,
            padded: 0,
            flushed: 0,
        })
    }

    /// Number of slots of blocks.
    pub(super) fn slots(&self) -> usize {
        self.counts.len()
    }

    /// Pages of an erase block.
    #[inline(always)]
    pub(super) fn block(&self) -> usize {
        self.block as usize
    }

    /// Number of blocks that have pages here.
    pub(super) fn len_blocks(&self) -> usize {
        self.table.len()
    }

    /// Number of pages held.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// True if every frame is taken.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Pages that were read and rewritten to complete blocks.
    pub(super) fn padded(&self) -> Option<u64> {
        self.pad.then_some(self.padded)
    }

    /// Blocks that were flushed, in whole or, where pages are pinned, in part: each costs flash one block write (004,
    /// figure 2.7).
    pub(super) fn flushed(&self) -> u64 {
        self.flushed
    }

    /// The slot under which a page is held.
    #[inline(always)]
    pub(super) fn slot_of(&self, page: Page) -> Option<u32> {
        let slot = self.places[page.index()].slot;
        (slot != NOWHERE).then_some(slot)
    }

    /// Position of a held page in its block.
    #[inline(always)]
    pub(super) fn offset_of(&self, page: Page) -> u8 {
        self.places[page.index()].offset
    }

    /// Number of pages that a block has here.
    #[inline(always)]
    pub(super) fn count(&self, slot: u32) -> u8 {
        self.counts[slot as usize]
    }

    /// Block of a page that need not be held, and its position therein.
    #[inline(always)]
    pub(super) fn locate<D: Driver>(&self, page: Page, driver: &D) -> (Group, u8) {
        let address = driver.address(page);
        (Group::of(address, self.block), (address.block % self.block) as u8)
    }

    /// The slot of a block, if it has pages here.
    #[inline(always)]
    pub(super) fn find(&self, group: Group) -> Option<u32> {
        self.table.find(group)
    }

    /// Takes a page that is not held into its block and returns its slot.
    pub(super) fn insert(&mut self, page: Page, group: Group, offset: u8) -> u32 {
        let slot = self.table.find(group).unwrap_or_else(|| self.table.insert(group));
        self.place(page, slot, offset);
        self.counts[slot as usize] += 1;
        slot
    }

    /// Takes a page that is not held into an extra list, as its newest.
    pub(super) fn insert_single(&mut self, page: Page, list: u32) {
        self.place(page, list, 0);
    }

    fn place(&mut self, page: Page, slot: u32, offset: u8) {
        self.places[page.index()] = Place { slot, offset };
        self.lists.push(slot, page);
        self.len += 1;
    }

    /// Takes a page out of whatever list it is in; a block without pages gives up its slot.
    pub(super) fn remove(&mut self, page: Page) {
        let slot = std::mem::replace(&mut self.places[page.index()].slot, NOWHERE);
        self.lists.remove(slot, page);
        self.len -= 1;
        if let Some(count) = self.counts.get_mut(slot as usize) {
            *count -= 1;
            if *count == 0 {
                self.table.remove(slot);
            }
        }
    }

    /// The oldest page of a list.
    pub(super) fn oldest(&self, slot: u32) -> Option<Page> {
        self.lists.oldest(slot)
    }

    /// Pages of a list, oldest first.
    pub(super) fn iter(&self, slot: u32) -> impl Iterator<Item = Page> + '_ {
        self.lists.iter(slot)
    }

    /// Writes back and drops the pages of a block in the order of their addresses, each run of neighbours in one
    /// I/O. Pages that may not be evicted stay as they are, dirty. Returns how many pages went.
    pub(super) fn flush<D: Driver>(&mut self, slot: u32, driver: &mut D) -> u8 {
        let mut leaving: u128 = 0;
        for page in self.lists.iter(slot) {
            if driver.may_evict(page, Tier::TOP) {
                let offset = self.places[page.index()].offset;
                leaving |= 1 << offset;
                self.leaving[usize::from(offset)] = page;
            }
        }
        self.flushed += u64::from(leaving != 0);
        if self.pad && leaving != 0 {
            self.padded += self.missing(slot, leaving, driver);
        }
        let mut previous: u128 = 0;
        for offset in offsets(leaving) {
            let joined = if self.pad { previous != 0 } else { previous << 1 == 1 << offset };
            previous = 1 << offset;
            driver.emit(Movement { page: self.leaving[offset], verb: Verb::WriteBack { from: Tier::TOP }, joined });
        }
        for offset in offsets(leaving) {
            let page = self.leaving[offset];
            self.remove(page);
            driver.start(page, Verb::Drop { from: Tier::TOP });
        }
        leaving.count_ones() as u8
    }

    /// Number of pages that a flush lacks of the whole block, which is shorter at the end of its object.
    fn missing<D: Driver>(&self, slot: u32, leaving: u128, driver: &D) -> u64 {
        let Group { object, number } = self.table.group(slot);
        let known = driver.object_pages(object).saturating_sub(number * self.block).min(self.block);
        let whole = known.max(u64::from(128 - leaving.leading_zeros()));
        whole - u64::from(leaving.count_ones())
    }

    /// Loads a page's entries into the processor's cache.
    #[inline(always)]
    pub(super) fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.places, page.index());
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
            + self.lists.memory_bytes()
            + self.places.capacity() * size_of::<Place>()
            + self.counts.capacity()
    }
}

/// The set bits, lowest first.
fn offsets(mut set: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(lowest)
    })
}
