//! Index of the store, in memory: the newest version that the store holds of each page. A block of the ring takes
//! eleven bytes, and five more for finding a page. In the slots layout a slot takes four bytes more.

use super::geometry::Layout;
use super::hit_table::HitTable;
use super::numbers::Numbers;
use crate::holds;
use entresol_core::Random;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;
use zerocopy::FromZeros;

/// The newest version that the store holds of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Log address of the version; in the slots layout its slot and version number. No other version has the same
    /// address.
    pub address: u64,
    /// CRC of its bytes.
    pub crc: u32,
    /// The backing store is not known to have the version, durably.
    pub dirty: bool,
    /// The policy counts the page as cached.
    pub resident: bool,
    /// The bytes of the version cannot be read.
    pub lost: bool,
}

/// A hash of page numbers: a bijection, so that no two pages share a hash.
#[derive(Default)]
pub struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("page numbers are u64");
    }

    fn write_u64(&mut self, page: u64) {
        self.0 = Random::mix(page);
    }
}

/// A map from pages.
pub type PageMap<T> = HashMap<u64, T, BuildHasherDefault<PageHasher>>;

const CURRENT: u8 = 1;
const DIRTY: u8 = 2;
const RESIDENT: u8 = 4;
/// Clean, though the last entry on the device calls the version dirty.
const UNSAID: u8 = 8;

/// Contents of a block of the ring, or of a slot; all zeros unless it has the newest version of its page.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, packed)]
struct Slot {
    page_low: u32,
    page_high: u16,
    flags: u8,
    crc: u32,
}

impl Slot {
    const NONE: Slot = Slot { page_low: 0, page_high: 0, flags: 0, crc: 0 };

    fn page(self) -> u64 {
        u64::from(self.page_high) << 32 | u64::from(self.page_low)
    }

    fn is_dirty(self) -> bool {
        self.flags & DIRTY != 0
    }

    fn is_current(self) -> bool {
        self.flags & CURRENT != 0
    }
}

/// A step of a walk through the versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A page.
    Page {
        /// The page.
        page: u64,
        /// Point from which the walk goes on.
        next: u64,
        /// False in the second pass over the slots.
        is_first: bool,
    },
    /// The blocks looked at hold no page; the walk goes on from here.
    Later(u64),
    /// The walk is over.
    Done,
}

/// Mapping between addresses and blocks.
enum Addresses {
    /// Addresses are those of one turn of a ring, from the tail on.
    Ring {
        tail: u64,
        /// Block of the ring at which the tail lies.
        tail_block: u64,
    },
    /// An address is a slot and, in its upper half, the number of the version there. `versions` has that number for
    /// every slot.
    Slots {
        versions: Vec<u32>,
        /// Number of the next version.
        next: u32,
        /// Slots in the order of their versions, until the walk has passed them.
        oldest_first: Vec<u32>,
        /// True if the walk makes a second pass over all slots.
        again: bool,
        /// Slots written during a walk, which it passes last. None outside of a walk, and where no version moves to
        /// another slot.
        late: Option<Vec<u32>>,
        /// True if reclaim moves versions to other slots.
        moves: bool,
    },
}

/// Entries by page.
pub struct Index {
    slots: Vec<Slot>,
    numbers: Numbers,
    addresses: Addresses,
    /// Number of dirty slots.
    dirty: usize,
    /// Number of slots whose versions are clean though no entry says so.
    unsaid: usize,
    /// Pages without bytes, with the addresses of the tables that say so.
    lost: BTreeMap<u64, Entry>,
    /// Block of the version that was found last: one request asks several times for its page.
    found: Cell<u32>,
    /// Versions that may be read without the index. Those that are no longer here are removed from there.
    hits: Option<Arc<HitTable>>,
}

impl Index {
    /// An empty index of a log whose ring has so many blocks and whose live part begins at `tail`.
    pub fn new(blocks: u32, tail: u64) -> Self {
        Index::of(blocks, Addresses::Ring { tail, tail_block: tail % u64::from(blocks) })
    }

    /// An empty index of so many slots. Reclaim `moves` versions to others, or leaves them where they are.
    pub fn of_slots(slots: u32, moves: bool) -> Self {
        let (versions, oldest_first) = (vec![0; slots as usize], Vec::new());
        Index::of(slots, Addresses::Slots { versions, next: 0, oldest_first, again: false, late: None, moves })
    }

    fn of(blocks: u32, addresses: Addresses) -> Self {
        Index {
            // Memory of the kernel is zeroed, and touched as the index fills.
            slots: Slot::new_vec_zeroed(blocks as usize).expect("an index takes no more than a usize of bytes"),
            numbers: Numbers::new(blocks as usize, blocks),
            addresses,
            dirty: 0,
            unsaid: 0,
            lost: BTreeMap::new(),
            found: Cell::new(0),
            hits: None,
        }
    }

    /// The same index for a ring of more blocks.
    pub(super) fn grown(&self, blocks: u32) -> Self {
        let Addresses::Ring { tail, .. } = self.addresses else { unreachable!("a store of slots does not grow") };
        let mut grown = Index::new(blocks, tail);
        self.iter().for_each(|(page, entry)| grown.insert(page, entry));
        self.unsaid_in(0..self.slots.len()).for_each(|page| grown.leave_unsaid(page));
        grown.hits = self.hits.clone();
        grown
    }

    /// Has versions that are no longer here be removed from a table from now on.
    pub(super) fn share(&mut self, hits: Arc<HitTable>) {
        self.hits = Some(hits);
    }

    /// The table of versions that may be read without the index, if there is one.
    pub(super) fn hits(&self) -> Option<&HitTable> {
        self.hits.as_deref()
    }

    /// True if the index has no page.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pages in the index.
    pub fn len(&self) -> usize {
        self.numbers.len() + self.lost.len()
    }

    /// Pages that the backing store is not known to have.
    pub fn dirty_len(&self) -> usize {
        self.dirty + self.lost.values().filter(|entry| entry.dirty).count()
    }

    /// Pages that the backing store is not known to have, without lost ones.
    pub fn dirty_sound_len(&self) -> usize {
        self.dirty
    }

    /// Blocks in which versions may lie.
    pub fn blocks(&self) -> usize {
        self.slots.len()
    }

    /// Dirty pages whose newest versions lie in these blocks. Lost pages lie in none.
    pub fn dirty_in(&self, blocks: Range<usize>) -> impl Iterator<Item = u64> {
        self.flagged_in(blocks, DIRTY)
    }

    /// Number of pages that are clean though no entry on the device says so.
    pub fn unsaid_len(&self) -> usize {
        self.unsaid
    }

    /// Pages whose newest versions lie in these blocks and are clean, though no entry on the device says so.
    pub fn unsaid_in(&self, blocks: Range<usize>) -> impl Iterator<Item = u64> {
        self.flagged_in(blocks, UNSAID)
    }

    fn flagged_in(&self, blocks: Range<usize>, flag: u8) -> impl Iterator<Item = u64> {
        let blocks = blocks.start.min(self.slots.len())..blocks.end.min(self.slots.len());
        self.slots[blocks]
            .iter()
            .filter(move |slot| slot.is_current() && slot.flags & flag != 0)
            .map(|slot| slot.page())
    }

    /// Notes that no entry on the device says that a page is clean.
    pub(super) fn leave_unsaid(&mut self, page: u64) {
        let Some(block) = self.find(page).filter(|&block| !self.slots[block].is_dirty()) else { return };
        self.unsaid += usize::from(self.slots[block].flags & UNSAID == 0);
        self.slots[block].flags |= UNSAID;
    }

    /// True if no entry on the device says that a page is clean. From now on one does.
    pub(super) fn take_unsaid(&mut self, page: u64) -> bool {
        let Some(block) = self.find(page).filter(|&block| self.slots[block].flags & UNSAID != 0) else { return false };
        self.slots[block].flags &= !UNSAID;
        self.unsaid -= 1;
        true
    }

    /// Bytes that the index of so many blocks or slots takes, without lost pages.
    pub(super) fn bytes_of(blocks: u64, layout: Layout) -> u64 {
        let version = if layout.has_slots() { size_of::<u32>() } else { 0 };
        blocks * (size_of::<Slot>() + version) as u64 + Numbers::bytes_of(blocks)
    }

    /// Bytes that this index takes, without lost pages.
    pub fn memory_bytes(&self) -> usize {
        let versions = match &self.addresses {
            Addresses::Ring { .. } => 0,
            Addresses::Slots { versions, .. } => size_of_val(versions.as_slice()),
        };
        self.slots.capacity() * size_of::<Slot>() + versions + self.numbers.memory_bytes()
    }

    fn block_of(&self, address: u64) -> usize {
        let Addresses::Ring { tail, tail_block } = self.addresses else { return address as u32 as usize };
        let (ahead, blocks) = (address - tail, self.slots.len() as u64);
        assert!(ahead < blocks, "address {address} is a turn of the ring or more after {tail}");
        let block = tail_block + ahead;
        (if block >= blocks { block - blocks } else { block }) as usize
    }

    fn address_of(&self, block: usize) -> u64 {
        match &self.addresses {
            Addresses::Ring { tail, tail_block } => {
                let (block, blocks) = (block as u64, self.slots.len() as u64);
                tail + if block >= *tail_block { block - tail_block } else { block + blocks - tail_block }
            }
            Addresses::Slots { versions, .. } => u64::from(versions[block]) << 32 | block as u64,
        }
    }

    fn entry(&self, block: usize) -> Entry {
        let Slot { flags, crc, .. } = self.slots[block];
        let (dirty, resident) = (self.slots[block].is_dirty(), flags & RESIDENT != 0);
        Entry { address: self.address_of(block), crc, dirty, resident, lost: false }
    }

    fn find(&self, page: u64) -> Option<usize> {
        // The table leads to every current version, and to no other.
        let found = self.found.get();
        if self.slots.get(found as usize).is_some_and(|slot| slot.is_current() && slot.page() == page) {
            return Some(found as usize);
        }
        let block = self.numbers.get(page, |number| self.slots[number as usize].page())?;
        self.found.set(block);
        Some(block as usize)
    }

    /// Fetches the first cell of a page's search into the processor's caches.
    #[inline]
    pub fn prefetch(&self, page: u64) {
        self.numbers.prefetch(page);
    }

    /// The newest version of a page.
    pub fn get(&self, page: u64) -> Option<Entry> {
        holds::looked();
        if let Some(entry) = self.lost.get(&page) {
            return Some(*entry);
        }
        self.find(page).map(|block| self.entry(block))
    }

    /// The newest version of a page, if the policy counts the page as cached.
    pub fn resident(&self, page: u64) -> Option<Entry> {
        self.get(page).filter(|entry| entry.resident)
    }

    pub(super) fn insert(&mut self, page: u64, entry: Entry) {
        if entry.lost {
            self.remove(page);
            self.lost.insert(page, entry);
            return;
        }
        self.lost.remove(&page);
        let block = self.block_of(entry.address);
        let slots = &self.slots;
        if let Some(obsolete) = self.numbers.insert(page, block as u32, |number| slots[number as usize].page()) {
            self.empty(obsolete as usize);
        }
        debug_assert!(!self.slots[block].is_current(), "block {block} holds the newest version of another page");
        self.slots[block] = Slot { page_low: page as u32, page_high: (page >> 32) as u16, flags: 0, crc: entry.crc };
        if let Addresses::Slots { versions, late, .. } = &mut self.addresses {
            versions[block] = (entry.address >> 32) as u32;
            if let Some(late) = late {
                late.push(block as u32);
            }
        }
        self.set_flags(block, entry);
    }

    fn set_flags(&mut self, block: usize, entry: Entry) {
        let flag = |set, flag| if set { flag } else { 0 };
        self.dirty += usize::from(entry.dirty);
        self.dirty -= usize::from(self.slots[block].is_dirty());
        if !entry.resident {
            self.hide(block);
        }
        let unsaid = if entry.dirty { 0 } else { self.slots[block].flags & UNSAID };
        self.unsaid -= usize::from(self.slots[block].flags & UNSAID != unsaid);
        self.slots[block].flags = CURRENT | unsaid | flag(entry.dirty, DIRTY) | flag(entry.resident, RESIDENT);
    }

    /// Forgets a page. Its versions on the device are all dead or declared so.
    pub fn remove(&mut self, page: u64) {
        holds::looked();
        self.lost.remove(&page);
        let slots = &self.slots;
        if let Some(block) = self.numbers.remove(page, |number| slots[number as usize].page()) {
            self.empty(block as usize);
        }
    }

    fn empty(&mut self, block: usize) {
        self.hide(block);
        self.dirty -= usize::from(self.slots[block].is_dirty());
        self.unsaid -= usize::from(self.slots[block].flags & UNSAID != 0);
        self.slots[block] = Slot::NONE;
    }

    /// Has the version in a block no longer be read without the index.
    fn hide(&self, block: usize) {
        if let Some(hits) = &self.hits
            && self.slots[block].flags & RESIDENT != 0
        {
            hits.remove(self.slots[block].page());
        }
    }

    /// Changes an entry, if there is one. Its address and CRC stay.
    pub fn update(&mut self, page: u64, change: impl FnOnce(&mut Entry)) {
        holds::looked();
        if let Some(entry) = self.lost.get_mut(&page) {
            change(entry);
            return;
        }
        let Some(block) = self.find(page) else { return };
        let mut entry = self.entry(block);
        change(&mut entry);
        if entry.lost { self.insert(page, entry) } else { self.set_flags(block, entry) }
    }

    /// Next step of a walk over the pages with a newest version, oldest first. A walk begins at 0; each step looks at
    /// no more blocks than `looks` and counts it down. A log ends at `rear`; pages appended meanwhile come last.
    /// Slots are walked in the order found before. If they were in use then, a second pass over all slots finds later
    /// versions. Slots to which versions may have moved during the walk come last.
    pub fn step(&mut self, from: u64, looks: &mut usize, rear: u64) -> Step {
        let blocks = self.slots.len() as u64;
        let (first, all, base) = match &self.addresses {
            Addresses::Ring { tail, .. } => (from.max(*tail) - *tail, (rear - *tail).min(blocks), *tail),
            Addresses::Slots { oldest_first, again, late, .. } => {
                let late = late.as_ref().map_or(0, Vec::len) as u64;
                (from, oldest_first.len() as u64 + if *again { blocks } else { 0 } + late, 0)
            }
        };
        let block = |at: u64| match &self.addresses {
            Addresses::Ring { tail_block, .. } => (((tail_block + at) % blocks) as usize, true),
            Addresses::Slots { oldest_first, again, late, .. } => {
                let (ordered, all) = (oldest_first.len() as u64, if *again { blocks } else { 0 });
                match (at.checked_sub(ordered), late) {
                    (None, _) => (oldest_first[at as usize] as usize, true),
                    (Some(at), Some(late)) if at >= all => (late[(at - all) as usize] as usize, false),
                    (Some(at), _) => (at as usize, false),
                }
            }
        };
        let first = first.min(all);
        let end = (first + *looks as u64).min(all);
        let found = (first..end).inspect(|_| holds::looked()).find(|&at| self.slots[block(at).0].is_current());
        let next = found.map_or(end, |at| at + 1);
        *looks -= (next - first) as usize;
        match found.map(block) {
            Some((block, is_first)) => Step::Page { page: self.slots[block].page(), next: base + next, is_first },
            None if end < all => Step::Later(base + next),
            None => {
                if let Addresses::Slots { oldest_first, late, .. } = &mut self.addresses {
                    // Slots are walked once.
                    (*oldest_first, *late) = (Vec::new(), None);
                }
                Step::Done
            }
        }
    }

    /// Pages whose newest versions lie in so many blocks from a point on, without lost ones, and the point after them
    /// if there are more blocks. The first point is 0. A log ends at `rear` and is read from its oldest version on,
    /// so that pages appended meanwhile come last.
    pub fn pages_from(&self, from: u64, blocks: usize, rear: u64) -> (Vec<u64>, Option<u64>) {
        let base = if let Addresses::Ring { tail, .. } = self.addresses { tail } else { 0 };
        let (first, all) = (from.max(base) - base, self.span(rear));
        let end = (first + blocks as u64).min(all);
        let block = |at: u64| match self.addresses {
            Addresses::Ring { tail_block, .. } => (tail_block + at) % self.slots.len() as u64,
            Addresses::Slots { .. } => at,
        };
        let slots = (first..end).inspect(|_| holds::looked()).map(|at| self.slots[block(at) as usize]);
        (slots.filter(|slot| slot.is_current()).map(Slot::page).collect(), (end < all).then_some(base + end))
    }

    /// Blocks in which newest versions may lie, of a log that ends at `rear`.
    pub fn span(&self, rear: u64) -> u64 {
        let blocks = self.slots.len() as u64;
        if let Addresses::Ring { tail, .. } = self.addresses { (rear - tail).min(blocks) } else { blocks }
    }

    /// Lost pages of a range, ascending.
    pub fn lost_among(&self, pages: Range<u64>) -> impl Iterator<Item = u64> {
        self.lost.range(pages).inspect(|_| holds::looked()).map(|(&page, _)| page)
    }

    /// Numbers of pages whose newest versions lie in these blocks: pages that count as cached, and others.
    pub fn counted(&self, blocks: Range<usize>) -> (usize, usize) {
        let blocks = blocks.start.min(self.slots.len())..blocks.end.min(self.slots.len());
        let current = self.slots[blocks].iter().filter(|slot| slot.is_current());
        current.inspect(|_| holds::looked()).fold((0, 0), |(cached, others), slot| {
            if slot.flags & RESIDENT != 0 { (cached + 1, others) } else { (cached, others + 1) }
        })
    }

    /// Number of these blocks with a newest version that counts as cached, or that is dirty.
    pub fn needed(&self, blocks: Range<usize>) -> usize {
        let blocks = blocks.start.min(self.slots.len())..blocks.end.min(self.slots.len());
        let current = self.slots[blocks].iter().filter(|slot| slot.is_current());
        current.inspect(|_| holds::looked()).filter(|slot| slot.flags & (RESIDENT | DIRTY) != 0).count()
    }

    /// Version number and slot of each newest version in these slots. None in a log, which is in the order of its
    /// blocks.
    pub fn numbered(&self, slots: Range<usize>) -> Vec<(u32, u32)> {
        let Addresses::Slots { versions, .. } = &self.addresses else { return Vec::new() };
        let current = (slots.start..slots.end.min(versions.len())).filter(|&block| self.slots[block].is_current());
        current.inspect(|_| holds::looked()).map(|block| (versions[block], block as u32)).collect()
    }

    /// The number that the next version of a slot gets. Numbers wrap: a version whose number is not below this one
    /// may be an older one.
    pub fn next_number(&self) -> u32 {
        if let Addresses::Slots { next, .. } = &self.addresses { *next } else { 0 }
    }

    /// Sets the slots that [`step`](Index::step) walks first.
    pub fn go_through(&mut self, slots: Vec<u32>) {
        if let Addresses::Slots { oldest_first, again, late, moves, .. } = &mut self.addresses {
            (*oldest_first, *again, *late) = (slots, true, moves.then(Vec::new));
        }
    }

    /// Counts the pages of the newest `versions` versions as cached. In the slots layout the order of versions is
    /// found here, for [`step`](Index::step).
    pub fn hold_newest(&mut self, versions: usize) {
        let slots = &mut self.slots;
        match &mut self.addresses {
            Addresses::Ring { tail_block, .. } => {
                let (newer, older) = slots.split_at_mut(*tail_block as usize);
                let newest_first = newer.iter_mut().rev().chain(older.iter_mut().rev());
                let newest = newest_first.filter(|slot| slot.is_current()).take(versions);
                newest.for_each(|slot| {
                    holds::looked();
                    slot.flags |= RESIDENT;
                });
            }
            Addresses::Slots { versions: numbers, next, oldest_first, again, late, moves } => {
                (*again, *late) = (false, moves.then(Vec::new));
                // Numbers wrap, but not past `next`: the distance from `next` tells the age.
                let since = |block: &u32| numbers[*block as usize].wrapping_sub(*next);
                *oldest_first = (0..slots.len() as u32).filter(|&block| slots[block as usize].is_current()).collect();
                oldest_first.sort_unstable_by_key(since);
                let newest_first = oldest_first.iter().rev().take(versions);
                newest_first.for_each(|&block| slots[block as usize].flags |= RESIDENT);
            }
        }
    }

    /// All entries: in the log the oldest version first; then the lost pages.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Entry)> {
        let first = match self.addresses {
            Addresses::Ring { tail_block, .. } => tail_block as usize,
            Addresses::Slots { .. } => 0,
        };
        let current = (first..self.slots.len()).chain(0..first).filter(|&block| self.slots[block].is_current());
        current
            .map(|block| (self.slots[block].page(), self.entry(block)))
            .chain(self.lost.iter().map(|(&page, &entry)| (page, entry)))
            .inspect(|_| holds::looked())
    }

    /// Number of the next version, in the slots layout.
    pub(super) fn versions(&self) -> u32 {
        match self.addresses {
            Addresses::Ring { .. } => unreachable!("log addresses are not numbered apart"),
            Addresses::Slots { next, .. } => next,
        }
    }

    /// Sets the number of the next version.
    pub(super) fn set_versions(&mut self, from: u32) {
        match &mut self.addresses {
            Addresses::Ring { .. } => unreachable!("log addresses are not numbered apart"),
            Addresses::Slots { next, .. } => *next = from,
        }
    }

    /// Takes the number of the next version.
    pub(super) fn next_version(&mut self) -> u32 {
        let version = self.versions();
        self.set_versions(version.wrapping_add(1));
        version
    }

    /// The page whose newest version is in a block.
    pub(super) fn page_in(&self, block: u32) -> Option<u64> {
        Some(self.slots[block as usize]).filter(|slot| slot.is_current()).map(Slot::page)
    }

    /// Blocks that hold no newest version.
    pub(super) fn empty_blocks(&self) -> impl Iterator<Item = u32> {
        (0..self.slots.len()).filter(|&block| !self.slots[block].is_current()).map(|block| block as u32)
    }

    /// Up to `enough` entries that the policy does not count as cached, clean or dirty ones, from a block on; and the
    /// block after them.
    pub(super) fn unheld(&self, from: usize, enough: usize, dirty: bool) -> (Vec<(u64, Entry)>, usize) {
        let wanted = CURRENT | if dirty { DIRTY } else { 0 };
        let mut unheld = Vec::new();
        let mut next = from;
        for block in (from..self.slots.len()).chain(0..from) {
            if unheld.len() == enough {
                break;
            }
            let Slot { flags, .. } = self.slots[block];
            if flags & (CURRENT | RESIDENT | DIRTY) == wanted {
                unheld.push((self.slots[block].page(), self.entry(block)));
            }
            next = (block + 1) % self.slots.len();
        }
        (unheld, next)
    }

    /// Pages and addresses of the entries in `slots` slots from one on.
    pub(super) fn in_slots(&self, from: usize, slots: usize) -> Vec<(u64, u64)> {
        let to = (from + slots).min(self.slots.len());
        let current = (from..to).filter(|&block| self.slots[block].is_current());
        current.map(|block| (self.slots[block].page(), self.address_of(block))).collect()
    }

    /// Pages and addresses of the entries in a range of `addresses` addresses.
    pub(super) fn between(&self, start: u64, addresses: u64) -> Vec<(u64, u64)> {
        let first = self.block_of(start);
        // Segments do not cross the end of the ring.
        let blocks = self.slots[first..].iter().take(addresses as usize).zip(start..);
        let current = blocks.filter(|(slot, _)| slot.is_current()).map(|(slot, address)| (slot.page(), address));
        let lost = self.lost.iter().map(|(&page, entry)| (page, entry.address));
        current.chain(lost.filter(|&(_, address)| (start..start + addresses).contains(&address))).collect()
    }

    /// Moves the tail over addresses that no entry has.
    pub(super) fn move_tail(&mut self, addresses: u64) {
        let Addresses::Ring { tail, tail_block } = self.addresses else { unreachable!("slots have no tail") };
        debug_assert!(self.between(tail, addresses).is_empty(), "entries in a segment that is dropped");
        self.addresses =
            Addresses::Ring { tail: tail + addresses, tail_block: (tail_block + addresses) % self.slots.len() as u64 };
    }

    /// Forgets every page except lost ones.
    pub fn retain_lost(&mut self) {
        if let Some(hits) = &self.hits {
            hits.close();
        }
        self.numbers.clear();
        self.dirty = 0;
        self.slots.fill(Slot::NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_a_map_round_the_ring() {
        const SEGMENT: u64 = 16;
        const BLOCKS: u64 = 8 * SEGMENT;
        let mut random = Random::new(1);
        let mut model: HashMap<u64, Entry> = HashMap::new();
        let (mut tail, mut address) = (5 * SEGMENT, 5 * SEGMENT);
        let mut index = Index::new(BLOCKS as u32, tail);
        for step in 0..50_000 {
            let page = random.below(150) << 40 | random.below(2);
            match random.below(8) {
                0..=3 => {
                    if address + 1 == tail + BLOCKS {
                        let oldest: Vec<u64> = index.between(tail, SEGMENT).iter().map(|&(page, _)| page).collect();
                        let expected = model.values().filter(|entry| entry.address < tail + SEGMENT).count();
                        assert_eq!(oldest.len(), expected, "step {step}");
                        for page in oldest {
                            index.remove(page);
                            model.remove(&page);
                        }
                        index.move_tail(SEGMENT);
                        tail += SEGMENT;
                    }
                    let lost = random.chance(0.1);
                    let (dirty, resident) = (random.chance(0.5), random.chance(0.5));
                    let entry = Entry { address, crc: random.next_u64() as u32, dirty, resident, lost };
                    index.insert(page, entry);
                    model.insert(page, entry);
                    address += 1;
                }
                4 => {
                    index.remove(page);
                    model.remove(&page);
                }
                5 => {
                    let change = |entry: &mut Entry| entry.dirty = !entry.dirty;
                    index.update(page, change);
                    model.entry(page).and_modify(change);
                }
                6 if step % 100 == 0 => {
                    index.update(page, |entry| entry.lost = true);
                    model.entry(page).and_modify(|entry| entry.lost = true);
                }
                _ => {}
            }
            assert_eq!(index.get(page), model.get(&page).copied(), "step {step}, page {page}");
            assert_eq!(index.len(), model.len(), "step {step}");
            if step % 100 == 0 {
                assert_eq!(index.dirty_len(), model.values().filter(|entry| entry.dirty).count(), "step {step}");
            }
        }
        let sound_pages = |index: &Index| index.iter().filter(|(_, entry)| !entry.lost).collect::<Vec<_>>();
        let (mut walked, mut cursor) = (Vec::new(), 0);
        loop {
            match index.step(cursor, &mut 3, u64::MAX) {
                Step::Page { page, next, .. } => {
                    walked.push(page);
                    cursor = next;
                }
                Step::Later(after) => cursor = after,
                Step::Done => break,
            }
        }
        let sound = sound_pages(&index);
        assert_eq!(walked, sound.iter().map(|&(page, _)| page).collect::<Vec<_>>());
        walked.iter().for_each(|&page| index.update(page, |entry| entry.resident = false));
        index.hold_newest(walked.len() / 2);
        let held: Vec<u64> =
            sound_pages(&index).iter().filter(|(_, entry)| entry.resident).map(|&(page, _)| page).collect();
        assert_eq!(held, walked[walked.len() - walked.len() / 2..]);
        sound.iter().for_each(|&(page, entry)| index.update(page, |now| now.resident = entry.resident));
        let sound: Vec<u64> = index.iter().filter(|(_, entry)| !entry.lost).map(|(_, entry)| entry.address).collect();
        assert!(sound.is_sorted() && !sound.is_empty(), "{sound:?}");
        let all: HashMap<u64, Entry> = index.iter().collect();
        assert_eq!(all, model);
        index.retain_lost();
        model.retain(|_, entry| entry.lost);
        assert_eq!(index.iter().collect::<HashMap<_, _>>(), model);
    }

    #[test]
    fn a_block_costs_sixteen_bytes() {
        let index = Index::new(100_000, 0);
        assert!(index.memory_bytes() <= 16 * 100_000 + 64, "{}", index.memory_bytes());
        assert_eq!(Index::bytes_of(100_000, Layout::Log), index.memory_bytes() as u64);
        assert_eq!(Index::bytes_of(7777, Layout::Slots), Index::of_slots(7777, false).memory_bytes() as u64);
    }
}
