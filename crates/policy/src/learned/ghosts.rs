//! The two ghost caches of ExpCache: evicted pages in strict order of a rank that they bring with them.

use entresol_core::Page;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a page in a ghost cache brings with it; the order of forgetting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Frequency of use; 0 where only recency counts.
    pub frequency: u32,
    /// Number of the access that last touched the page: no two pages share one.
    pub stamp: u64,
}

/// A ghost cache that forgets the lowest rank first.
///
/// A page that is taken out stays in the heap as a stale entry until it comes up or the heap is full of such; that is
/// cheaper than to keep track of each page's place. The owner remembers which pages are in, and tells: an entry is
/// live if and only if the page is in and still has the stamp.
#[derive(Clone, Debug)]
pub struct Ghosts {
    heap: BinaryHeap<Reverse<u128>>,
    capacity: usize,
    len: usize,
}

const fn pack(page: Page, rank: Rank) -> u128 {
    (rank.frequency as u128) << 96 | (rank.stamp as u128) << 32 | page.0 as u128
}

const fn page_and_stamp(entry: u128) -> (Page, u64) {
    (Page(entry as u32), (entry >> 32) as u64)
}

impl Ghosts {
    /// An empty ghost cache of this many pages. 32 bytes a page of capacity.
    pub fn new(capacity: usize) -> Self {
        Ghosts { heap: BinaryHeap::with_capacity(2 * capacity + 1), capacity, len: 0 }
    }

    /// Number of pages in.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Notes that a page, which was in, has been taken out: its entry is stale from here on.
    pub fn take(&mut self) {
        self.len -= 1;
    }

    /// Puts a page in, which is not; returns the one that is forgotten for it, if the cache is full. `live` tells
    /// whether a page is in with this stamp. The capacity is not 0.
    pub fn put(&mut self, page: Page, rank: Rank, live: impl Fn(Page, u64) -> bool) -> Option<Page> {
        let forgotten = if self.len == self.capacity { self.pop(&live) } else { None };
        if self.heap.len() > 2 * self.capacity {
            self.heap.retain(|&Reverse(entry)| {
                let (page, stamp) = page_and_stamp(entry);
                live(page, stamp)
            });
        }
        self.heap.push(Reverse(pack(page, rank)));
        self.len += 1;
        forgotten
    }

    fn pop(&mut self, live: impl Fn(Page, u64) -> bool) -> Option<Page> {
        while let Some(Reverse(entry)) = self.heap.pop() {
            let (page, stamp) = page_and_stamp(entry);
            if live(page, stamp) {
                self.len -= 1;
                return Some(page);
            }
        }
        None
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.heap.capacity() * size_of::<u128>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use std::collections::BTreeMap;

    #[test]
    fn behaves_like_a_sorted_map() {
        for capacity in [1, 2, 5, 16] {
            let mut random = Random::new(capacity as u64);
            let mut ghosts = Ghosts::new(capacity);
            let mut model: BTreeMap<Rank, Page> = BTreeMap::new();
            let room = ghosts.heap.capacity();
            let mut stamps = [0; 40];
            for step in 1..5_000u64 {
                let page = Page(random.below(40) as u32);
                let held = model.iter().find(|(_, held)| **held == page).map(|(rank, _)| *rank);
                if let Some(rank) = held {
                    model.remove(&rank);
                    ghosts.take();
                    continue;
                }
                // A rank that is often the lowest of all; each stamp is used once.
                let rank = Rank { frequency: random.below(4) as u32, stamp: step ^ (random.below(2) << 40) };
                stamps[page.index()] = rank.stamp;
                let expected = if model.len() == capacity { model.pop_first().map(|(_, page)| page) } else { None };
                let live = |page: Page, stamp| {
                    (model.values().any(|held| *held == page) || expected == Some(page))
                        && stamps[page.index()] == stamp
                };
                assert_eq!(ghosts.put(page, rank, live), expected);
                model.insert(rank, page);
                assert_eq!(ghosts.len(), model.len());
            }
            assert_eq!(ghosts.heap.capacity(), room, "nothing is allocated after construction");
        }
    }
}
