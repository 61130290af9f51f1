//! The LRU ghost cache of ExpCache: evicted pages in strict order of their last access, which is not the order of their
//! eviction.

use entresol_core::{Page, prefetch};

/// A ghost cache that forgets the page with the oldest access first. A page's stamp is the number of its last access,
/// so no two pages share one.
///
/// A page that is taken out stays in the heap as a stale entry until it comes up or the heap is full of stale entries.
/// A stale entry is cheaper than keeping track of each page's position. The owner remembers which pages are in: an entry is live
/// if and only if its page is in and still has the stamp.
#[derive(Clone, Debug)]
pub struct Ghosts {
    heap: Heap,
    capacity: usize,
    len: usize,
}

const fn pack(page: Page, stamp: u64) -> u128 {
    (stamp as u128) << 32 | page.0 as u128
}

const fn page_and_stamp(entry: u128) -> (Page, u64) {
    (Page(entry as u32), (entry >> 32) as u64)
}

impl Ghosts {
    /// An empty ghost cache of this many pages. 32 bytes a page of capacity.
    pub fn new(capacity: usize) -> Self {
        Ghosts { heap: Heap::new(2 * capacity), capacity, len: 0 }
    }

    /// Number of pages in.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Counts a page out that was in; its entry is stale from here on.
    pub fn take(&mut self) {
        self.len -= 1;
    }

    /// Puts a page in that was not in. Returns the page that is forgotten for it, if the cache is full. `live` is true
    /// for a page that is in with this stamp. The capacity is not 0.
    pub fn put(&mut self, page: Page, stamp: u64, live: impl Fn(Page, u64) -> bool) -> Option<Page> {
        let live = |entry| {
            let (page, stamp) = page_and_stamp(entry);
            live(page, stamp)
        };
        let entry = pack(page, stamp);
        if self.len == self.capacity {
            while !live(self.heap.top) {
                self.heap.pop();
            }
            let (forgotten, _) = page_and_stamp(self.heap.top);
            self.heap.sink(0, entry);
            return Some(forgotten);
        }
        if self.heap.len == self.heap.space {
            self.heap.retain(live);
        }
        self.heap.push(entry);
        self.len += 1;
        None
    }

    /// Page of the next entry, live or not: worth prefetching.
    pub fn upcoming(&self) -> Option<Page> {
        (self.heap.len > 0).then(|| page_and_stamp(self.heap.top).0)
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.heap.lines.capacity() * size_of::<Line>()
    }
}

/// The four children of a node: one line of the processor's cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u128; 4]);

const EMPTY: u128 = u128::MAX;

/// A min-heap with four children a node. Those of node `k` are nodes `4 k + 1` to `4 k + 4` and make up line `k`, so a
/// step down costs one cache line; empty places hold a key above all others, so no step asks where the end is.
#[derive(Clone, Debug)]
struct Heap {
    /// Node 0.
    top: u128,
    lines: Vec<Line>,
    len: usize,
    space: usize,
}

impl Heap {
    fn new(space: usize) -> Self {
        Heap { top: EMPTY, lines: vec![Line([EMPTY; 4]); space.div_ceil(4)], len: 0, space }
    }

    #[inline(always)]
    fn get(&self, node: usize) -> u128 {
        if node == 0 { self.top } else { self.lines[(node - 1) / 4].0[(node - 1) % 4] }
    }

    #[inline(always)]
    fn set(&mut self, node: usize, key: u128) {
        if node == 0 {
            self.top = key;
        } else {
            self.lines[(node - 1) / 4].0[(node - 1) % 4] = key;
        }
    }

    fn push(&mut self, key: u128) {
        let mut node = self.len;
        self.len += 1;
        while node > 0 {
            let parent = (node - 1) / 4;
            let above = self.get(parent);
            if above <= key {
                break;
            }
            self.set(node, above);
            node = parent;
        }
        self.set(node, key);
    }

    /// Removes the top.
    fn pop(&mut self) {
        self.len -= 1;
        let last = self.get(self.len);
        self.set(self.len, EMPTY);
        if self.len > 0 {
            self.sink(0, last);
        }
    }

    /// Puts a key in the place of a node and moves it down to where it belongs.
    fn sink(&mut self, mut node: usize, key: u128) {
        while let Some(&Line([a, b, c, d])) = self.lines.get(node) {
            // The lines of all four children, before it is known which one is next.
            (1..=4).for_each(|child| prefetch(&self.lines, 4 * node + child));
            let (left, l) = if b < a { (b, 1) } else { (a, 0) };
            let (right, r) = if d < c { (d, 3) } else { (c, 2) };
            let (least, child) = if right < left { (right, r) } else { (left, l) };
            if key <= least {
                break;
            }
            self.set(node, least);
            node = 4 * node + 1 + child;
        }
        self.set(node, key);
    }

    /// Keeps the keys that satisfy a condition.
    fn retain(&mut self, wanted: impl Fn(u128) -> bool) {
        let mut kept = 0;
        for node in 0..self.len {
            let key = self.get(node);
            self.set(node, EMPTY);
            if wanted(key) {
                self.set(kept, key);
                kept += 1;
            }
        }
        self.len = kept;
        for node in (0..kept.div_ceil(4)).rev() {
            self.sink(node, self.get(node));
        }
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
            let mut model: BTreeMap<u64, Page> = BTreeMap::new();
            let space = ghosts.heap.lines.capacity();
            let mut stamps = [0; 40];
            for step in 1..5_000u64 {
                let page = Page(random.below(40) as u32);
                let held = model.iter().find(|(_, held)| **held == page).map(|(stamp, _)| *stamp);
                if let Some(stamp) = held {
                    model.remove(&stamp);
                    ghosts.take();
                    continue;
                }
                // A stamp that is often the lowest of all; each is used once.
                let stamp = step ^ (random.below(4) << 40);
                stamps[page.index()] = stamp;
                let expected = if model.len() == capacity { model.pop_first().map(|(_, page)| page) } else { None };
                let live = |page: Page, stamp| {
                    (model.values().any(|held| *held == page) || expected == Some(page))
                        && stamps[page.index()] == stamp
                };
                assert_eq!(ghosts.put(page, stamp, live), expected);
                model.insert(stamp, page);
                assert_eq!(ghosts.len(), model.len());
            }
            assert_eq!(ghosts.heap.lines.capacity(), space, "nothing is allocated after construction");
        }
    }
}
