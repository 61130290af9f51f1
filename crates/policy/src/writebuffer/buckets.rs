//! Blocks by the number of their pages.

use crate::parts::Lists;
use entresol_core::Page;

/// Most pages of a block.
pub(super) const PAGES_MAX: usize = 128;

/// Slots of blocks in one list per page count, and the largest count in one instruction. 8 bytes a slot.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    /// List `n - 1` has the blocks of `n` pages.
    lists: Lists<PAGES_MAX>,
    /// Bit `n - 1`: there are blocks of `n` pages.
    filled: u128,
}

impl Buckets {
    /// Empty lists over slots below `slots`.
    pub(super) fn new(slots: usize) -> Self {
        Buckets { lists: Lists::new(slots), filled: 0 }
    }

    /// Adds a block of `count` pages as the last victim among those of its size.
    #[inline]
    pub(super) fn insert(&mut self, slot: u32, count: u8) {
        self.lists.push_front(usize::from(count) - 1, Page(slot));
        self.filled |= 1 << (count - 1);
    }

    /// Removes a block that is held under `count` pages.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32, count: u8) {
        let list = usize::from(count) - 1;
        self.lists.remove(list, Page(slot));
        if self.lists.is_empty(list) {
            self.filled &= !(1 << list);
        }
    }

    /// Makes a block the last victim among those of its size.
    #[inline]
    pub(super) fn refresh(&mut self, slot: u32, count: u8) {
        self.lists.move_to_front(usize::from(count) - 1, Page(slot));
    }

    /// The first victim among the largest blocks of fewer than `below` pages.
    #[inline]
    fn largest_below(&self, below: u32) -> Option<u32> {
        let fewer = if below > 128 { self.filled } else { self.filled & ((1 << (below - 1)) - 1) };
        let list = fewer.checked_ilog2()?;
        self.lists.back(list as usize).map(|slot| slot.0)
    }

    /// The first victim among the largest blocks.
    #[inline]
    pub(super) fn largest(&self) -> Option<u32> {
        self.largest_below(129)
    }

    /// The block to try after this one of `count` pages: the next of its size, then smaller ones.
    pub(super) fn after(&self, slot: u32, count: u8) -> Option<u32> {
        let same = self.lists.towards_front(Page(slot)).map(|slot| slot.0);
        same.or_else(|| self.largest_below(u32::from(count)))
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_is_from_the_largest_down_and_from_the_oldest_on() {
        let mut buckets = Buckets::new(6);
        for (slot, count) in [(0, 1), (1, 128), (2, 5), (3, 128), (4, 5), (5, 127)] {
            buckets.insert(slot, count);
        }
        buckets.remove(5, 127);
        buckets.refresh(2, 5);
        let count = [1, 128, 5, 128, 5, 127];
        let walk = std::iter::successors(buckets.largest(), |&slot| buckets.after(slot, count[slot as usize]));
        assert_eq!(walk.collect::<Vec<_>>(), [1, 3, 4, 2, 0]);
    }
}
